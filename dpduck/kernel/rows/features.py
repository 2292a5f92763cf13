"""Features: values computed from the rows of one privacy unit. There is one for the unit, or one for each of its rows.

The SQL here is constant. Of an analyst's text it contains names of columns alone. The database's process computes it
after the charge. So it must not raise, whatever the values are. Neither rows of other units nor the order in which rows
are stored or read may change the result:

* Each form is over the rows of one unit: GROUP BY or PARTITION BY the unit.
* Equal values get one form: 0 for -0, one NaN for all (comparable_sql). Types with other differences between equal
  values are refused, such as INTERVAL (`is_feature` of values/sqltypes.py).
* A sum is of whole numbers or decimals that DuckDB keeps in 64 bits (fits_64_bits). It adds up in 128 bits, which
  2^63 rows do not fill. Doubles are refused: their sum depends on the order of rows.
* Rows that are tied in an order are ordered by a keyed hash of all values that are read, then by these values. Rows
  that are still tied are the same.
* Memory is bounded. A form keeps one value of a unit while its rows are read. DISTINCT and windows keep one short value
  of each row: a text beyond 64 bytes that only tells rows apart is replaced by its SHA-256 (held.py). The more texts
  the features of a statement hold, the fewer bytes each text may have, and orders and DISTINCT are few (texts_held).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dpduck.kernel.columns.expressions import RelationColumn
from dpduck.kernel.columns.stored import shorten_sql, without_sign
from dpduck.kernel.relations import Feature, OrderItem, RowValue, Source, Union, Units
from dpduck.kernel.units import parts_of, person_of
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.sqltypes import sql_type

MOST_DISTANCE, MOST_TEXTS, MOST_ORDERS, MOST_DISTINCT = 10_000, 64, 8, 16
"""Limits on all subqueries of a statement together. In 300 MB of memory, one person's rows made statements fail. One
statement had twelve `last` of texts of every length. Others had 64 count(DISTINCT ..) over 60,000 rows, or 16 in each
of four subqueries. Yet others had 24 orders over 1,000 notes of 1,000 bytes, or 48 orders over 60,000 small integers.
"""

_OF_VALUE = {"min": "min", "max": "max", "sum": "sum", "any": "bool_or", "all": "bool_and"}
_NUMBERED = ("row_number", "rank", "dense_rank")
_BESIDE = ("lag", "lead")
_IN_FULL_ORDER = ("row_number", "first", *_BESIDE)


def comparable_sql(operand: RowValue, value: str) -> str:
    """Writes a value so that equal values have equal bits."""
    kind = operand.type_name
    if not sql_type(kind).is_feature:
        raise InternalError("a value that cannot be compared")
    return without_signs(value, kind)


def without_signs(value: str, type_name: str) -> str:
    """Writes a stored value without the sign of a zero. Other people's rows may change that sign in storage."""
    return without_sign(value, type_name) if sql_type(type_name).is_float else value


def texts_held(source: Source) -> int:
    """Returns the number of texts that DuckDB holds for a row until all rows are read: computed texts, and features."""
    relations = list(_units_of(source))
    windowed, grouped = ([node for node in relations if node.windowed is kind] for kind in (True, False))
    distinct = sum(node.form == "distinct" for relation in grouped for node in relation.features)
    _require_few(distinct, MOST_DISTINCT, "count(DISTINCT ..) {0} times", f"at most {MOST_DISTINCT} in one statement")
    orders = sum(map(len, map(_orders, windowed)))
    accepted = "fewer orders: any number of windows of a subquery with one ORDER BY are one"
    _require_few(orders, MOST_ORDERS, "windows of {0} different orders", accepted)
    texts = sum(map(_texts_of, relations))
    accepted = "fewer features and windows over texts, or ORDER BY numbers and dates in them"
    _require_few(texts, MOST_TEXTS, "{0} texts of each row in features and windows", accepted)
    return texts


def _require_few(count: int, most: int, what: str, accepted: str) -> None:
    if count > most:
        raise Refusal(f"the subqueries of a statement have {what.format(count)}, more than {most}", accepted=accepted)


def _units_of(source: Source) -> Iterator[Units]:
    first = source.first
    if isinstance(first, Units):
        yield first
        yield from _units_of(first.source)
    for branch in first.branches if isinstance(first, Union) else ():
        yield from _units_of(branch.source)
    for join in source.joins:
        yield from _units_of(join.right)


def _texts_of(relation: Units) -> int:
    texts = sum(_is_text(operand) and not isinstance(operand.value, RelationColumn) for operand in relation.operands)
    if relation.windowed:
        return texts + _of_windows(relation)
    return texts + sum(_is_text(operand) for feature in relation.features for operand in feature.operands)


def _orders(relation: Units) -> set[tuple[tuple[OrderItem, ...], bool]]:
    """Returns the different orders of windows, each with a flag: whether it also orders tied rows."""
    return {(feature.order, feature.form in _IN_FULL_ORDER) for feature in relation.features}


def _of_windows(relation: Units) -> int:
    """Returns the number of texts that windows hold: DuckDB computes one order at a time."""
    # each holds earlier results and the values that it orders by, which are all values if it orders ties
    tied = sum(map(_is_text, {*column_operands(relation), *relation.operands}))
    texts = 0
    for order, in_full in _orders(relation):
        texts += sum(_is_text(place.operand) for place in order) + (tied if in_full else 0)
    return texts + sum(feature.operand is not None and _is_text(feature.operand) for feature in relation.features)


def column_operands(relation: Units) -> list[RowValue]:
    """Lists the stored columns among the outputs of windows, without the unit."""
    outputs = (
        col for col, _ in relation.outputs if isinstance(col, RelationColumn) and col != person_of(relation.unit)
    )
    return [RowValue(col, col.type_name) for col in outputs]


def _is_text(operand: RowValue) -> bool:
    return not sql_type(operand.type_name).is_short


def feature_sql(
    feature: Feature, values: Mapping[RowValue, str], condition: str, relation: Units, tied: Sequence[str]
) -> str:
    """Writes a feature over a unit's rows. condition: filter of rows. tied: order of tied rows, first by keyed hash."""
    if relation.windowed:
        by = ", ".join(part.sql for part in parts_of(relation.unit))
        return _window_sql(feature, values, condition, by, tied)
    operand = feature.operand
    if feature.form == "first" and operand is not None:
        value = values[operand]
        keys = [*map(_key, _order_keys(feature.order, values)), *map(_key, ((tied[0], _FIRST), (value, _FIRST)))]
        chosen = f"arg_min(struct_pack(v := {value}), create_sort_key({', '.join(keys)}))"
        filtered = f" FILTER (WHERE {condition})" if condition else ""
        return f"struct_extract({chosen}{filtered}, 'v')"
    if feature.form == "distinct" and operand is not None:
        return f"count(DISTINCT {_where(condition, shorten_sql(values[operand], operand.type_name))})"
    return _of_values(feature, values, condition)


def _window_sql(
    feature: Feature, values: Mapping[RowValue, str], condition: str, unit_sql: str, tied: Sequence[str]
) -> str:
    """Writes a feature as a window. A form with equal results for tied rows needs no order among tied rows."""
    ordered, form = _order_keys(feature.order, values), feature.form
    if form in _IN_FULL_ORDER:
        ordered += [(sql, _FIRST) for sql in tied]
    by = f" ORDER BY {', '.join(f'{sql} {way}' for sql, way in ordered)}"
    window = f"OVER (PARTITION BY {unit_sql}{by if ordered else ''})"
    if form in _NUMBERED and not condition:
        return f"{form}() {window}"
    operand = feature.operand
    if form in ("first", *_BESIDE) and operand is not None and not condition:
        distance = f", {int(feature.distance)}" if form in _BESIDE else ""
        if not 0 <= feature.distance <= MOST_DISTANCE:
            raise InternalError("a row too far away")
        return f"{'first_value' if form == 'first' else form}({values[operand]}{distance}) {window}"
    if form == "count":
        return f"count({_where(condition, '1') if condition else '*'}) {window}"
    return f"{_of_values(feature, values, condition)} {window}"


def _of_values(feature: Feature, values: Mapping[RowValue, str], condition: str) -> str:
    operand = feature.operand
    function = _OF_VALUE.get(feature.form)
    if function is None or operand is None:
        raise InternalError("a feature of no known form")
    if feature.form == "sum" and not sql_type(operand.type_name).fits_64_bits:
        raise InternalError("a sum that could overflow")
    if feature.form in ("any", "all") and operand.type_name != "BOOLEAN":
        raise InternalError("a condition that is none")
    return f"{function}({_where(condition, values[operand])})"


def _where(condition: str, value: str) -> str:
    return f"CASE WHEN {condition} THEN {value} END" if condition else value


_WAYS = ("ASC", "DESC")
_FIRST = "ASC NULLS LAST"


def _order_keys(order: Sequence[OrderItem], values: Mapping[RowValue, str]) -> list[tuple[str, str]]:
    return [
        (values[item.operand], f"{_WAYS[item.descending]} NULLS {'FIRST' if item.nulls_first else 'LAST'}")
        for item in order
    ]


def _key(ordered: tuple[str, str]) -> str:
    sql, way = ordered
    return f"{sql}, '{way}'"
