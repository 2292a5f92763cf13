"""Key columns in SQL: the expression that rows are grouped by, and the domain code of each group.

No expression here can raise on any value. Labels and edges that are texts are prepared parameters. The public domain
bounds the number of groups, so values outside of it take no memory. The form of each expression is the fastest that was
measured (benchmarks/speed/counting.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.counting.jobs import GroupKey
from dpduck.kernel.rows.bins import bin_expression, texts_parameter, texts_sql
from dpduck.values.domain import RangeDomain, ValueDomain
from dpduck.values.errors import InternalError
from dpduck.values.sqltypes import sql_type

ParameterValue = int | str

MOST_POSITIONS = 128  # list_position is linear in the list; above this a hash join is faster
FARTHEST = 1 << 31  # values of wide types beyond this are looked up in a list


@dataclass(frozen=True, eq=False)
class KeyReading:
    """SQL of an integer that rows are grouped by for one key, and the conversion of that integer to a domain code.

    group_sql: the integer. For a row that meets `filters` it is NULL or from first to first + len(codes) - 1.
    codes: the domain code of each integer, -1 outside the domain. null_code: the code of a NULL of group_sql. Such a
    NULL is not always a NULL of the column. With OTHER it stands for unlisted values. guard: a condition that keeps
    exactly the rows inside the domain, "" if the filters do so. packed_sql: as group_sql, but at most `reach` from 0
    and from `first` in every row, filtered or not. So arithmetic cannot overflow. as_it_is: whether packed_sql is a
    code of the domain, or NULL. Then it needs no filter, no arithmetic and no wider type.
    """

    group_sql: str
    first: int
    codes: NDArray[np.int64] = field(repr=False)
    null_code: int
    filters: tuple[str, ...]
    guard: str
    parameters: Mapping[str, ParameterValue] = field(repr=False)
    packed_sql: str
    reach: int
    as_it_is: bool = False

    @property
    def slots(self) -> int:
        """Returns the number of groups (slots) of a key without its guard: one for each integer, and one for NULL."""
        return len(self.codes) + 1

    def slot_sql(self, type_name: str) -> str:
        """Writes the slot of a row inside the domain: an integer from 0 to slots - 1. NULL has the last slot."""
        slot = f"CAST({self.packed_sql} AS {type_name})" + (f" - ({self.first})" if self.first else "")
        return f"ifnull({slot}, {len(self.codes)})" if self.null_code >= 0 else f"({slot})"

    def decode(self, slots: NDArray[np.integer]) -> NDArray[np.integer]:
        table = np.append(self.codes, self.null_code)
        codes: NDArray[np.integer] = table.astype(np.int16 if table.max() < 1 << 15 else np.int64)[slots]
        return codes


@dataclass(frozen=True)
class CodeExpression:
    """SQL of the domain code of a row, NULL outside the domain, with its prepared parameters."""

    sql: str
    parameters: Mapping[str, ParameterValue]


def code_expression(key: GroupKey, position: int) -> CodeExpression:
    """Writes the domain code of `key` as one expression. `position` makes the parameter's name unique."""
    name, value = _parameter_and_value(key, position)
    if isinstance(key.domain, ValueDomain):
        sql = _list_code(value, key.domain, name, _value_position(value, key.domain, name))
        return CodeExpression(sql, {name: texts_parameter(key.domain.values)})
    bins = bin_expression(value, key.domain, name)
    null_code = f"WHEN {value} IS NULL THEN {len(key.domain.edges)} " if key.domain.with_null else ""
    sql = f"CASE {null_code}WHEN {value} IS NOT NULL AND {bins.inside} THEN {bins.sql} END"
    return CodeExpression(sql, bins.parameters)


def key_reading(key: GroupKey, position: int) -> KeyReading:
    """Returns how to group by a key: the form that was the fastest in measurements for such a domain."""
    name, value = _parameter_and_value(key, position)
    if not isinstance(key.domain, ValueDomain):
        return _range_reading(key.domain, name, value)
    integers = _integer_values(key.domain)
    if integers is not None:
        value = f"CAST({value} AS UTINYINT)" if key.domain.type_name == "BOOLEAN" else value
        return _integer_reading(value, key.domain, integers)
    return _list_reading(value, key.domain, name)


def code_reading(key: GroupKey) -> KeyReading:
    """Returns how to group by a column that already holds codes of the key's domain, as in prepared tables."""
    return KeyReading(
        key.value.sql, 0, np.arange(key.domain.size), -1, (), "", {}, key.value.sql, 1 << 32, as_it_is=True
    )


def _parameter_and_value(key: GroupKey, position: int) -> tuple[str, str]:
    """Returns a parameter's name, and SQL of the value. A TRY_CAST keeps a column with a new type from raising."""
    return f"dpduck_key_{position}", f"TRY_CAST({key.value.sql} AS {key.domain.type_name})"


def _integer_values(domain: ValueDomain) -> list[int] | None:
    """Returns the domain's values as integers, if their range is so small that rows can be grouped by them."""
    if domain.type_name == "BOOLEAN":
        return [int(value == "true") for value in domain.values]
    if not sql_type(domain.type_name).is_integer or not domain.values:
        return None
    integers = [int(value) for value in domain.values]
    low, high = min(integers), max(integers)
    return integers if high - low < 2 * len(integers) and max(-low, high) < FARTHEST else None


def _integer_reading(value: str, domain: ValueDomain, integers: list[int]) -> KeyReading:
    first, last = min(integers), max(integers)
    codes = np.full(last - first + 1, -1, dtype=np.int64)
    codes[np.array(integers) - first] = np.arange(len(integers))
    or_null = f" OR {value} IS NULL" if domain.with_null else ""
    listed = f"{value} IN ({', '.join(map(str, integers))}){or_null}"
    kind = sql_type(domain.type_name)
    without_sign = 1 if kind.is_boolean else kind.bits - kind.is_signed
    bits = without_sign if kind.bits <= 32 else None
    # least() and greatest() pass over NULLs, hence the CASE.
    clamped = f"CASE WHEN {value} IS NOT NULL THEN least(greatest({value}, {first}), {last}) END"
    return KeyReading(
        group_sql=value,
        first=first,
        codes=codes,
        null_code=len(integers) if domain.with_null else -1,
        filters=(f"{value} BETWEEN {first} AND {last}{or_null}",),
        guard=listed if (codes < 0).any() else "",
        parameters={},
        packed_sql=clamped if bits is None else value,
        reach=2 * (max(-first, last) + 1 if bits is None else 1 << bits),
    )


def _list_reading(value: str, domain: ValueDomain, name: str) -> KeyReading:
    """Groups by the position 1 .. n of a listed value, NULL for other values. DuckDB looks up each entry once."""
    count = len(domain.values)
    position = _value_position(value, domain, name)
    codes = np.arange(count, dtype=np.int64)
    if domain.with_null or domain.other is not None:
        # The extra slot tells a NULL of the column from a value that is not listed.
        position = f"CASE WHEN {value} IS NULL THEN {count + 1} ELSE {position} END"
        codes = np.append(codes, count if domain.with_null else -1)
    null_code, guard = -1, f"({position}) IS NOT NULL"
    if domain.other is not None:
        null_code, guard = domain.size - 1, "" if domain.with_null else f"{value} IS NOT NULL"
    parameters: dict[str, ParameterValue] = {name: texts_parameter(domain.values)}
    return KeyReading(position, 1, codes, null_code, (), guard, parameters, position, count + 2)


def _value_position(value: str, domain: ValueDomain, name: str) -> str:
    """Writes 1 .. n for a listed value, NULL for any other. Without min(), a label that is listed twice would raise."""
    labels = texts_sql(name, domain.type_name)
    if len(domain.values) <= MOST_POSITIONS:
        return f"list_position({labels}, {value})"
    listed = f"SELECT unnest({labels}) AS dpduck_label, generate_subscripts({labels}, 1) AS dpduck_place"
    if domain.type_name == "VARCHAR":
        value = f'({value} COLLATE "binary")'  # under the column's own collation it could equal two labels, and raise
    places = f"SELECT dpduck_label, min(dpduck_place) AS dpduck_place FROM ({listed}) GROUP BY dpduck_label"
    return f"(SELECT dpduck_place FROM ({places}) AS dpduck_places WHERE dpduck_label = {value})"


def _list_code(value: str, domain: ValueDomain, name: str, position: str) -> str:
    count = len(domain.values)
    null_code = str(count) if domain.with_null else "NULL"
    other = f"ifnull({position} - 1, {domain.size - 1})" if domain.other is not None else f"{position} - 1"
    return f"CASE WHEN {value} IS NULL THEN {null_code} ELSE {other} END"


def _range_reading(domain: RangeDomain, name: str, value: str) -> KeyReading:
    bins = bin_expression(value, domain, name)
    count = len(domain.edges)
    codes = np.arange(count, dtype=np.int64)
    present = f"{value} IS NOT NULL AND {bins.inside}"
    if not domain.with_null:
        clamped = f"least(greatest({bins.sql}, 0), {count - 1})"
        return KeyReading(bins.sql, 0, codes, -1, (present,), "", bins.parameters, clamped, count)
    group = f"CASE WHEN {present} THEN {bins.sql} ELSE {count} END"
    codes = np.arange(count + 1, dtype=np.int64)
    inside = f"{value} IS NULL OR ({bins.inside})"
    return KeyReading(group, 0, codes, -1, (inside,), "", bins.parameters, group, count + 1)


def is_long_list(key: GroupKey) -> bool:
    """Tells whether a key's texts are looked up in a subquery."""
    domain = key.domain
    return isinstance(domain, ValueDomain) and domain.type_name == "VARCHAR" and len(domain.values) > MOST_POSITIONS


def label_name(position: int) -> str:
    """Returns the name of the column with the short text of a key (short_label)."""
    return f"dpduck_label_{position}"


def short_label(key: GroupKey) -> str:
    """Writes a key's text if it is short enough for a label. All longer texts become one text that is no label."""
    # DuckDB keeps all columns of rows that it looks up in a subquery, so long texts are made short before that
    if not isinstance(key.domain, ValueDomain):
        raise InternalError("a list of labels without labels")
    longest = max(len(label.encode("utf-8", "surrogatepass")) for label in key.domain.values)
    value = f"TRY_CAST({key.value.sql} AS VARCHAR)"
    none = "x" * (longest + 1)
    return f"CASE WHEN strlen({value}) <= {longest} THEN {value} WHEN {value} IS NOT NULL THEN '{none}' END"
