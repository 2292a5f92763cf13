"""Conditions over declared columns of prepared rows, evaluated on the public labels and written as conditions on codes.

If codes determine the values of all columns in a condition, it is evaluated once for each combination of labels, and
not for each row. It becomes a list of codes, or of ranges of codes. For rows with a value outside of a domain it is
evaluated on the row, since nothing public determines that value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

import duckdb
import numpy as np

from dpduck.kernel.columns.comparisons import Coded
from dpduck.kernel.columns.expressions import Expression, Own, RelationColumn
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.bins import texts_parameter, texts_sql
from dpduck.kernel.worker.answered import answer_rows
from dpduck.kernel.worker.program import Division, Output
from dpduck.kernel.worker.workers import Workers
from dpduck.values.domain import Domain, ValueDomain
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type

MOST_COMBINATIONS = 1 << 14
"""The most combinations of labels that a condition is evaluated on. Conditions over more are evaluated on rows."""

MOST_RANGES = 16
"""The most ranges of codes in one condition. More ranges are looked up in a list."""

_FLAG, _NUMBER = "dpduck_flag", "dpduck_number"


@dataclass(frozen=True)
class CodedColumn:
    """A column with a domain in prepared rows. code: the column with the codes of its values."""

    code: RelationColumn
    domain: ValueDomain


Ask = Callable[[Expression, Mapping[RelationColumn, CodedColumn]], list[bool]]
"""Function that evaluates a condition on all combinations of labels. The last column's labels vary fastest."""


def tells(domain: Domain, type_name: str) -> bool:
    """Tells whether each code but OTHER's determines one value. A bin's code does not, nor that of 0.0 and -0.0."""
    if not isinstance(domain, ValueDomain) or domain.type_name != type_name:
        return False
    return sql_type(type_name).is_told_by_label


def encode_condition(
    condition: Expression, declared: Mapping[RelationColumn, CodedColumn], inside: frozenset[RelationColumn], ask: Ask
) -> Expression:
    """Returns a condition over codes in place of values. It stays unchanged if it reads any column not in `declared`.

    inside: code columns for which rows outside of the domain are left out anyway.
    """
    names = condition.columns
    if not names or not declared.keys() >= set(names):
        return condition
    columns = {column: declared[column] for column in sorted(names, key=lambda column: column.quoted_name)}
    if prod(column.domain.size for column in columns.values()) > MOST_COMBINATIONS:
        return condition
    outside = [part for column in columns.values() for part in _outside(column, column.code in inside)]
    if outside and len({column.relation for column in names}) > 1 and not condition.plain:
        return condition  # rows outside would have to be evaluated after the join
    pieces = [piece for part in outside for piece in (" OR ", *part)][1:]
    test = _among(list(columns.values()), ask(condition, columns))
    return Coded(condition, Own(tuple(pieces)) if pieces else None, test)


def _outside(column: CodedColumn, left_out: bool) -> Iterator[tuple[RelationColumn, str]]:
    """Yields conditions for rows with a value that their code does not determine: no code, or the code of OTHER."""
    if not left_out:
        yield column.code, " IS NULL"
    if column.domain.other is not None:
        yield column.code, f" = {column.domain.size - 1}"


def _among(columns: Sequence[CodedColumn], flags: Sequence[bool]) -> Own:
    """Writes the condition that the codes of a row are one of the combinations with a True flag."""
    place: Pieces = (columns[0].code,)
    if len(columns) > 1:
        place = _place([(("CAST(", column.code, " AS BIGINT)"), column.domain.size) for column in columns])
    chosen, others = _runs(flags, True), _runs(flags, False)
    if not chosen:
        return Own(("FALSE",))
    if not others:
        return Own((*place, " IS NOT NULL"))
    if min(len(chosen), len(others)) > MOST_RANGES:
        listed = ", ".join("TRUE" if flag else "FALSE" for flag in flags)
        return Own((f"[{listed}][CAST(", *place, " AS BIGINT) + 1]"))
    return Own(("NOT (", *_in(place, others), ")")) if len(others) < len(chosen) else Own(_in(place, chosen))


Pieces = tuple[str | RelationColumn, ...]


def _runs(flags: Sequence[bool], wanted: bool) -> list[tuple[int, int]]:
    runs, first = list[tuple[int, int]](), 0
    for flag, run in groupby(flags):
        last = first + len(list(run)) - 1
        runs += [(first, last)] if flag == wanted else []
        first = last + 1
    return runs


def _in(place: Pieces, runs: Sequence[tuple[int, int]]) -> Pieces:
    single = ", ".join(str(low) for low, high in runs if low == high)
    listed = [(*place, f" IN ({single})")] if single else []
    listed += [(*place, f" BETWEEN {low} AND {high}") for low, high in runs if low < high]
    return tuple(piece for part in listed for piece in (" OR ", *part))[1:]


def evaluate_on_labels(
    cursor: duckdb.DuckDBPyConnection,
    workers: Workers,
    condition: Expression,
    columns: Mapping[RelationColumn, CodedColumn],
) -> list[bool]:
    """Evaluates a condition on all combinations of labels, as Ask says. Unless it is plain, a worker does so."""
    rows, number, parameters = _labels_sql(columns)
    flags = np.zeros(prod(column.domain.size for column in columns.values()), dtype=bool)
    if condition.plain:
        query = f"SELECT {number}, coalesce({condition.sql}, FALSE) FROM {rows}"
        numbers, values = reader.columns(cursor, query, parameters)
        flags[numbers] = values
        return [bool(flag) for flag in flags]
    division = Division({_FLAG: Output("flag", condition)}, ())
    inputs = "".join(f", {sql} AS {name}" for name, sql in division.inputs().items())
    where = " AND ".join(f"({guard})" for guard in division.guards()) or "TRUE"
    sql = f"SELECT {number} AS {_NUMBER}{inputs} FROM {rows} WHERE {where}"
    asking = division.asking(sql, parameters, False)
    with answer_rows(cursor, (), asking, workers) as (second, given):
        answer = reader.record_batches(second, asking.rows_with_answers, given, MOST_COMBINATIONS).read_all()
    flags[answer.column(_NUMBER).to_numpy()] = answer.column(_FLAG).to_numpy(zero_copy_only=False)
    return [bool(flag) for flag in flags]


def _labels_sql(columns: Mapping[RelationColumn, CodedColumn]) -> tuple[str, str, dict[str, object]]:
    """Writes a FROM with each combination of labels once, and its number. Returns also the SQL parameters."""
    parameters: dict[str, object] = {}
    tables, places = list[str](), list[tuple[Pieces, int]]()
    for alias, group in groupby(enumerate(columns.items()), key=lambda numbered: numbered[1][0].relation):
        selected, ranges, codes = list[str](), list[str](), list[tuple[Pieces, int]]()
        for position, (column, declared) in group:
            values, parameter, code = declared.domain.values, f"dpduck_values_{position}", f"c{position}"
            parameters[parameter] = texts_parameter(values)
            label = f"{texts_sql(parameter, 'VARCHAR')}[{code} + 1]"
            value = f"CASE WHEN {code} < {len(values)} THEN CAST({label} AS {column.type_name}) END"
            selected.append(f"{value} AS {quote_identifier(column.name)}")
            ranges.append(f"range({declared.domain.size}) AS t{position}({code})")
            codes.append(((code,), declared.domain.size))
        selected.append(f"{Own(_place(codes)).sql} AS {_NUMBER}")
        tables.append(f"(SELECT {', '.join(selected)} FROM {', '.join(ranges)}) AS {quote_identifier(alias)}")
        places.append(((f"{quote_identifier(alias)}.{_NUMBER}",), prod(size for _, size in codes)))
    return ", ".join(tables), Own(_place(places)).sql, parameters


def _place(digits: Sequence[tuple[Pieces, int]]) -> Pieces:
    """Writes a mixed-radix number. digits: SQL of each digit, with the number of its values."""
    number: Pieces = ()
    for digit, size in digits:
        number = ("(", *number, f" * {size} + ", *digit, ")") if number else digit
    return number
