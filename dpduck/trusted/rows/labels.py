"""Conditions over declared columns of prepared rows: asked of the public labels, they reach rows as codes.

Whatever an analyst wrote about columns whose values their codes tell is computed once for each label, or each
combination of labels, and not for rows. A row then has a list of codes, or ranges of them, to be in. Only rows whose
value is outside of a domain are asked themselves: nothing public tells their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

import duckdb
import numpy as np

from dpduck.frontend.rows.parts import Coded, Source
from dpduck.trusted.rows import reader
from dpduck.trusted.rows.answered import answered
from dpduck.trusted.rows.bins import texts_parameter, texts_sql
from dpduck.trusted.rows.placed import Types, outer
from dpduck.trusted.rows.plain import columns_of, is_plain
from dpduck.trusted.rows.program import Division, Output
from dpduck.trusted.rows.workers import Workers
from dpduck.values.domain import Domain, ValueDomain
from dpduck.values.sqltypes import sql_type

MOST_COMBINATIONS = 1 << 14
"""Of labels that a condition is asked of: conditions over more are asked of rows."""

MOST_RANGES = 16
"""Of codes, in one condition; more are looked up in a list."""

_FLAG, _NUMBER = "dpduck_flag", "dpduck_number"


@dataclass(frozen=True)
class Declared:
    """A column of prepared rows that has codes. sql: of its code."""

    code: str
    domain: ValueDomain


Ask = Callable[[str, Mapping[str, Declared], Types], list[bool]]
"""For which combinations of labels, the last column's first, a condition is true."""


def tells(domain: Domain, type_name: str) -> bool:
    """Tells whether a code tells the value, but for that of OTHER: not of bins, nor of 0.0, which is equal to -0.0."""
    if not isinstance(domain, ValueDomain) or domain.type_name != type_name:
        return False
    return sql_type(type_name).is_told_by_label


def coded_source(
    source: Source, filters: Sequence[str], declared: Mapping[str, Declared], inside: frozenset[str], ask: Ask
) -> Source:
    """Returns the source with its conditions over declared columns, and these filters of it, as conditions over codes.

    inside: codes of which rows outside of a domain are left out anyway.
    """
    if not declared:
        return source
    types = dict(source.types)
    texts = dict.fromkeys((*source.filters, *filters, *_of_one_table(source)))
    asked = [text for text in texts if is_plain(text, types) or not outer(source)]
    coded = ((text, coded_condition(text, declared, types, inside, ask)) for text in asked)
    return replace(source, coded=tuple((text, one) for text, one in coded if one is not None))


def _of_one_table(source: Source) -> Iterator[str]:
    """Yields conditions of joins that are about one table: one about two is what rows are joined by."""
    for join in source.joins:
        for text in join.on:
            if isinstance(text, str) and len(_tables(columns_of(text, dict(source.types)))) == 1:
                yield text


def _tables(names: Sequence[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def coded_condition(
    text: str, declared: Mapping[str, Declared], types: Types, inside: frozenset[str], ask: Ask
) -> Coded | None:
    """Returns the condition over codes; None where something else than declared columns is in it."""
    names = columns_of(text, types)
    if not names or not declared.keys() >= set(names):
        return None
    columns = {name: declared[name] for name in sorted(names)}
    if prod(column.domain.size for column in columns.values()) > MOST_COMBINATIONS:
        return None
    outside = [condition for column in columns.values() for condition in _outside(column, column.code in inside)]
    if outside and len(_tables(names)) > 1 and not is_plain(text, types):
        return None  # rows outside would have to be asked after they are joined
    return Coded(" OR ".join(outside), _among(list(columns.values()), ask(text, columns, types)))


def _outside(column: Declared, left_out: bool) -> Iterator[str]:
    """Yields conditions for rows whose value the code does not tell."""
    if not left_out:
        yield f"{column.code} IS NULL"
    if column.domain.other is not None:
        yield f"{column.code} = {column.domain.size - 1}"


def _among(columns: Sequence[Declared], flags: Sequence[bool]) -> str:
    """Tells whether the codes of a row are a combination that is flagged."""
    place = columns[0].code
    if len(columns) > 1:
        place = _place([(f"CAST({column.code} AS BIGINT)", column.domain.size) for column in columns])
    among, but = _runs(flags, True), _runs(flags, False)
    if not among:
        return "FALSE"
    if not but:
        return f"{place} IS NOT NULL"
    if min(len(among), len(but)) > MOST_RANGES:
        return f"[{', '.join('TRUE' if flag else 'FALSE' for flag in flags)}][CAST({place} AS BIGINT) + 1]"
    return f"NOT ({_in(place, but)})" if len(but) < len(among) else _in(place, among)


def _runs(flags: Sequence[bool], wanted: bool) -> list[tuple[int, int]]:
    """Returns the first and last place of each run of such flags."""
    runs, first = list[tuple[int, int]](), 0
    for flag, run in groupby(flags):
        last = first + len(list(run)) - 1
        runs += [(first, last)] if flag == wanted else []
        first = last + 1
    return runs


def _in(place: str, runs: Sequence[tuple[int, int]]) -> str:
    single = ", ".join(str(low) for low, high in runs if low == high)
    ranges = [f"{place} BETWEEN {low} AND {high}" for low, high in runs if low < high]
    return " OR ".join([*([f"{place} IN ({single})"] if single else []), *ranges])


def asked_of_labels(
    cursor: duckdb.DuckDBPyConnection, workers: Workers, text: str, columns: Mapping[str, Declared], types: Types
) -> list[bool]:
    """See Ask. A condition that the database would not evaluate over rows is computed by a worker, as of rows."""
    rows, number, parameters = _labels_sql(columns, types)
    flags = np.zeros(prod(column.domain.size for column in columns.values()), dtype=bool)
    if is_plain(text, types):
        numbers, found = reader.columns(cursor, f"SELECT {number}, coalesce({text}, FALSE) FROM {rows}", parameters)
        flags[numbers] = found
        return [bool(flag) for flag in flags]
    division = Division({_FLAG: Output("flag", text)}, (), types)
    inputs = "".join(f", {sql} AS {name}" for name, sql in division.inputs().items())
    where = " AND ".join(f"({guard})" for guard in division.guards()) or "TRUE"
    sql = f"SELECT {number} AS {_NUMBER}{inputs} FROM {rows} WHERE {where}"
    asking = division.asking(sql, parameters, False)
    with answered(cursor, (), asking, workers) as (second, given):
        answer = reader.record_batches(second, asking.answered_sql, given, MOST_COMBINATIONS).read_all()
    flags[answer.column(_NUMBER).to_numpy()] = answer.column(_FLAG).to_numpy(zero_copy_only=False)
    return [bool(flag) for flag in flags]


def _labels_sql(columns: Mapping[str, Declared], types: Types) -> tuple[str, str, dict[str, object]]:
    """FROM with each combination of labels once, under the names of the columns; its number in SQL; parameters."""
    parameters: dict[str, object] = {}
    tables, places = list[str](), list[tuple[str, int]]()
    for alias, found in groupby(enumerate(columns.items()), key=lambda one: one[1][0].partition(".")[0]):
        selected, ranges, codes = list[str](), list[str](), list[tuple[str, int]]()
        for position, (name, column) in found:
            values, parameter, code = column.domain.values, f"dpduck_values_{position}", f"c{position}"
            parameters[parameter] = texts_parameter(values)
            label = f"{texts_sql(parameter, 'VARCHAR')}[{code} + 1]"
            value = f"CASE WHEN {code} < {len(values)} THEN CAST({label} AS {types[name]}) END"
            selected.append(f"{value} AS {name.partition('.')[2]}")
            ranges.append(f"range({column.domain.size}) AS t{position}({code})")
            codes.append((code, column.domain.size))
        selected.append(f"{_place(codes)} AS {_NUMBER}")
        tables.append(f"(SELECT {', '.join(selected)} FROM {', '.join(ranges)}) AS {alias}")
        places.append((f"{alias}.{_NUMBER}", prod(size for _, size in codes)))
    return ", ".join(tables), _place(places), parameters


def _place(digits: Sequence[tuple[str, int]]) -> str:
    """Returns the number whose digits these are, each in SQL and with how many values it has."""
    text = ""
    for digit, size in digits:
        text = f"({text} * {size} + {digit})" if text else digit
    return text
