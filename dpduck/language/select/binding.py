"""Checks of the SQL over private rows. DuckDB binds it over empty tables, and its complaints become refusals."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import PublicFacts
from dpduck.language.rows.functions import temporal_arguments
from dpduck.language.rows.sql import places_sql, written_conditions
from dpduck.language.rows.tree import RowSource
from dpduck.language.select.aggregates import AggregateReader
from dpduck.language.select.checked_types import check_conditions, check_kept, check_types
from dpduck.language.select.request import SelectRequest
from dpduck.language.text.names import TableName
from dpduck.language.text.positions import position_of, refusal
from dpduck.values.errors import Refusal
from dpduck.values.sqltypes import sql_type


def check_rows(
    select: exp.Select,
    request: SelectRequest,
    source: RowSource,
    reader: AggregateReader,
    written: Sequence[exp.Expr],
    facts: PublicFacts,
    *,
    run: bool = True,
) -> None:
    """Checks all SQL over rows. written: the keys that are read from rows. run: whether the SQL will run."""
    if run:
        check_shadowing(select, facts)
    check_binding(request, source, reader.expressions, written, facts)
    conditions = [node.this for node in (select.args.get("having"), select.args.get("qualify")) if node is not None]
    check_kept(conditions, request.question.keys, source.scope)
    check_conditions(source, tuple(reader.conditions.values()), (*reader.expressions, *written), facts)


def check_shadowing(select: exp.Select, facts: PublicFacts) -> None:
    """Refuses a database with a macro or function that hides a built-in one, because unchecked functions might run."""
    shadowed = facts.list_shadows()
    if shadowed:
        raise refusal(
            select,
            f"a macro or function of this database hides the built-in {min(shadowed)}",
            "dropping or renaming it, so that what runs over private rows is what was checked",
        )


def check_binding(
    request: SelectRequest,
    source: RowSource,
    conditions: Sequence[exp.Expr],
    keys: Sequence[exp.Expr],
    facts: PublicFacts,
) -> None:
    """Checks types, functions and constants before anything is charged.

    conditions: conditions and operands of aggregates. keys: keys that are read from rows.
    All SQL runs once over a row of NULLs, without TRY. Otherwise a constant that does not convert would raise, or count
    nothing, depending on whether there are rows.
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
        for expression in written:
            _check_one(expression, source, facts)
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
        return  # the complaint comes again, with its position
    for argument, column in zip(arguments, columns, strict=True):
        if not sql_type(column.type_name).takes_date_functions:
            raise refusal(argument, f"a function of dates over {column.type_name} is refused", "a DATE or a TIMESTAMP")


def _row_sql(request: SelectRequest) -> str:
    expressions = [f"({column.sql})" for column in request.question.sources]
    expressions += [f"({key.row_sql})" for key in request.question.keys if key.row_sql]
    expressions += [
        f"({aggregate.condition}) IS TRUE" for aggregate in request.question.aggregates if aggregate.condition
    ]
    expressions += [
        aggregate.operand.sql
        for aggregate in request.question.aggregates
        if aggregate.operand and aggregate.operand.sql
    ]
    expressions += [aggregate.distinct.sql for aggregate in request.question.aggregates if aggregate.distinct]
    where = " AND ".join(f"({condition})" for condition in request.rows.filters) or "true"
    return f"SELECT {', '.join(expressions) or '1'} FROM {request.rows.from_sql} WHERE {where}"


def _once_sql(expressions: Sequence[exp.Expr], source: RowSource, of_each: str = "") -> str:
    """Writes a SELECT of expressions. of_each: text to put after each expression, such as IS NULL."""
    listed = ", ".join(f"({sql_of(expression)}) {of_each}" for expression in expressions) or "1"
    return f"SELECT {listed} FROM {', '.join(places_sql(source))}"


def _check_one(expression: exp.Expr, source: RowSource, facts: PublicFacts) -> None:
    """Refuses an expression that DuckDB does not bind, with the expression's position."""
    alone = _once_sql([expression], source, "IS NULL")
    try:
        facts.bind_rows(alone, alone, source.every_table)
    except Refusal as error:
        raise error.at(position_of(expression)) from None
