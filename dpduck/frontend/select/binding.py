"""What will run over private rows, bound by DuckDB over tables without any: its complaints become refusals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot import exp

from dpduck.frontend.rows.expressions import sql_of
from dpduck.frontend.rows.facts import PublicFacts
from dpduck.frontend.rows.functions import temporal_arguments
from dpduck.frontend.rows.relation import comparable
from dpduck.frontend.rows.sql import base, column_types, places_sql, written_conditions
from dpduck.frontend.rows.tree import RowSource
from dpduck.frontend.select.request import Request
from dpduck.frontend.text.names import TableName
from dpduck.frontend.text.positions import position_of, refusal
from dpduck.values.errors import Refusal

_NO_DATES = frozenset(("INTERVAL", "TIME", "TIME WITH TIME ZONE", "TIME_NS"))


def check_shadowing(select: exp.Select, facts: PublicFacts) -> None:
    """Refuses where what runs over private rows might not be the functions that were checked."""
    shadowed = facts.shadowed_functions()
    if shadowed:
        raise refusal(
            select,
            f"a macro or function of this database hides the built-in {min(shadowed)}",
            "dropping or renaming it, so that what runs over private rows is what was checked",
        )


def check_binding(
    request: Request,
    source: RowSource,
    conditions: Sequence[exp.Expr],
    keys: Sequence[exp.Expr],
    facts: PublicFacts,
) -> None:
    """Types, functions and constants are checked before anything is charged.

    conditions: those of the aggregates, and the numbers that they are over. keys: those that rows are read for. They
    and the filters run once over a row of NULLs, without TRY: a constant that does not convert would otherwise raise,
    or count nothing, depending on whether there are rows.
    """
    for branch in source.all_branches:
        check_types(written_conditions(branch), branch, ())
        _check_rows(None, written_conditions(branch), branch, facts)
    written = [*written_conditions(source), *conditions, *keys]
    check_types(written, source, keys)
    _check_rows(_row_sql(request), written, source, facts)


def _check_rows(row_sql: str | None, written: Sequence[exp.Expr], source: RowSource, facts: PublicFacts) -> None:
    tables = source.every_table
    _check_temporal(written, source, tables, facts)
    once = _once_sql(written, source, "IS NULL")
    try:
        facts.bind_rows(row_sql or once, once, tables)
    except Refusal as error:
        for one in written:
            _check_one(one, source, facts)
        raise error.at(None) from None


def _check_temporal(
    written: Sequence[exp.Expr], source: RowSource, tables: Sequence[TableName], facts: PublicFacts
) -> None:
    arguments = [argument for expression in written for argument in temporal_arguments(expression)]
    if not arguments:
        return
    try:
        columns = facts.bind(_once_sql(arguments, source), tables)
    except Refusal:
        return  # the same complaint comes again, with its place
    for argument, column in zip(arguments, columns, strict=True):
        if column.type_name in _NO_DATES:
            raise refusal(argument, f"a function of dates over {column.type_name} is refused", "a DATE or a TIMESTAMP")


def _row_sql(request: Request) -> str:
    expressions = [f"({column.sql})" for column in request.sources]
    expressions += [f"({key.row_sql})" for key in request.keys if key.row_sql]
    expressions += [f"({aggregate.condition}) IS TRUE" for aggregate in request.aggregates if aggregate.condition]
    expressions += [
        aggregate.operand.sql for aggregate in request.aggregates if aggregate.operand and aggregate.operand.sql
    ]
    expressions += [aggregate.distinct.sql for aggregate in request.aggregates if aggregate.distinct]
    where = " AND ".join(f"({condition})" for condition in request.filters) or "true"
    return f"SELECT {', '.join(expressions) or '1'} FROM {request.from_sql} WHERE {where}"


def _once_sql(expressions: Sequence[exp.Expr], source: RowSource, of_each: str = "") -> str:
    """of_each: what to ask of each value; IS NULL, where values that Python cannot hold are not wanted."""
    listed = ", ".join(f"({sql_of(expression)}) {of_each}" for expression in expressions) or "1"
    return f"SELECT {listed} FROM {', '.join(places_sql(source))}"


def _check_one(expression: exp.Expr, source: RowSource, facts: PublicFacts) -> None:
    """Points at the expression that DuckDB complains of."""
    alone = _once_sql([expression], source, "IS NULL")
    try:
        facts.bind_rows(alone, alone, source.every_table)
    except Refusal as error:
        raise error.at(position_of(expression)) from None


# Columns that something is computed with have a plain type, public columns included.
#
# For others DuckDB raises what TRY does not catch, by what a row holds: CASE over an ARRAY is not implemented
# where rows take different branches, and an error of ICU over a TIMESTAMP WITH TIME ZONE ends the whole
# database. A column as it stands, as a key, a unit, in IS NULL or count(column), may have any type.

_PLAIN = re.compile(
    r"BOOLEAN|U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|VARCHAR|DATE|TIME|"
    r"TIMESTAMP(_S|_MS|_NS)?|INTERVAL|UUID|ENUM\(.*\)",
    re.DOTALL,
)
_ACCEPTED = "numbers, texts, BOOLEAN, dates, times, INTERVAL, ENUM and UUID; any column as it stands, and IS NULL"


def check_types(written: Sequence[exp.Expr], source: RowSource, keys: Sequence[exp.Expr]) -> None:
    """Refuses the first column of another type that an expression, or a cast for a join, computes with.

    keys: those of what is written that are groups, as they stand; a condition or a number is cast.
    """
    types, pairs = column_types(source), [(join, pair) for join in source.public_joins for pair in join.pairs]
    alone = {id(one) for one in (*keys, *source.counted, *(private for _, (private, _) in pairs))}
    for expression in written:
        for column in () if _compares_keys(expression.unnest(), types) else expression.find_all(exp.Column):
            if not _is_asked_for_null(column) and not (id(expression) in alone and expression.unnest() is column):
                _require_plain(column, types[sql_of(column)])
    for join, (private, name) in pairs:
        public, own = types[base(join.alias, name)], types.get(sql_of(private))
        if own != public:  # the one is cast to the other
            _require_plain(private, own or public)
            _require_plain(private, public)


def _compares_keys(node: exp.Expr, types: Mapping[str, str]) -> bool:
    """Whether it is an equality of two columns of one type that keys may have."""
    sides = [node.left.unnest(), node.right.unnest()] if isinstance(node, exp.EQ) else [node]
    known = [types[sql_of(side)] for side in sides if isinstance(side, exp.Column)]
    return len(sides) == len(known) == 2 and comparable(*known)


def _is_asked_for_null(column: exp.Column) -> bool:
    node: exp.Expr | None = column.parent
    while isinstance(node, exp.Paren):
        node = node.parent
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)


def _require_plain(place: exp.Expr, type_name: str) -> None:
    if not _PLAIN.fullmatch(type_name):
        raise refusal(place, f"an expression over {type_name.partition('(')[0]} is refused", _ACCEPTED)
