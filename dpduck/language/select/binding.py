"""Checks of the SQL over private rows. DuckDB binds it over empty tables, and its complaints become refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from sqlglot import exp

from dpduck.language.rows.expressions import BOOLEAN, sql_of
from dpduck.language.rows.facts import PublicFacts
from dpduck.language.rows.functions import temporal_arguments
from dpduck.language.rows.predicates import literal, text_literal
from dpduck.language.rows.scope import Scope, resolve
from dpduck.language.rows.sql import bound_type, places_sql, written_conditions
from dpduck.language.rows.tree import RowSource
from dpduck.language.select.aggregates import AggregateReader
from dpduck.language.select.plain_types import check_types
from dpduck.language.select.request import Key, SelectRequest
from dpduck.language.text.dialect import exact_number
from dpduck.language.text.names import TableName
from dpduck.language.text.positions import position_of, refusal
from dpduck.values.domain import ValueDomain
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_text
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
    """Writes a SELECT of expressions. of_each: text after each, such as IS NULL if Python cannot hold the values."""
    listed = ", ".join(f"({sql_of(expression)}) {of_each}" for expression in expressions) or "1"
    return f"SELECT {listed} FROM {', '.join(places_sql(source))}"


def _check_one(expression: exp.Expr, source: RowSource, facts: PublicFacts) -> None:
    """Refuses an expression that DuckDB does not bind, with the expression's position."""
    alone = _once_sql([expression], source, "IS NULL")
    try:
        facts.bind_rows(alone, alone, source.every_table)
    except Refusal as error:
        raise error.at(position_of(expression)) from None


# Conditions are BOOLEAN, and ask for values in the column's domain. Types and domains alone decide.
#
# DuckDB casts other conditions row by row: WHERE sex raises for every row with a text, after the charge.

_CONDITIONS = ("BOOLEAN", '"NULL"', "NULL")
_MOST_SHOWN = 6
_EXAMPLES = {"DATE": "DATE '2024-01-31'", "TIMESTAMP": "TIMESTAMP '2024-01-31 12:00:00'"}


def check_conditions(
    source: RowSource, conditions: Sequence[exp.Expr], others: Sequence[exp.Expr], facts: PublicFacts
) -> None:
    """Refuses the first condition that is not BOOLEAN, or that compares a column with a value outside of its domain.

    conditions: conditions of the aggregates. others: operands and keys, which may hold conditions inside CASE.
    """
    for branch in source.all_branches:
        _check_source(branch, (), written_conditions(branch), facts)
    _check_source(source, conditions, (*written_conditions(source), *others), facts)


def _check_source(
    source: RowSource, conditions: Sequence[exp.Expr], others: Sequence[exp.Expr], facts: PublicFacts
) -> None:
    whole = [*_filters(source), *conditions]
    asked = [*whole, *(part for condition in (*whole, *others) for part in _inside(condition))]
    unknown = []
    for condition in asked:
        node = condition.unnest()
        if isinstance(node, exp.Column):
            _require_boolean(node, source.types[sql_of(node)], source)
        elif not isinstance(node, (*BOOLEAN, exp.Null)):
            unknown.append(node)
    for node in unknown:
        try:
            type_name = bound_type(node, source, facts)
        except Refusal:
            continue  # DuckDB's complaint comes again, with its position
        if type_name not in _CONDITIONS:
            raise refusal(node, f"a condition is {type_name}", "a condition such as sex = 'F', which is true or false")
    if not any(facts.has_collations(table) for table in source.every_table):
        for condition in whole:
            for part in _conjuncts(condition):
                _check_literals(part, source)


def _filters(source: RowSource) -> Iterator[exp.Expr]:
    """Yields the conditions of WHERE and ON, also of joined sources."""
    yield from source.filters
    for join in source.private_joins:
        yield from (*join.conditions, *_filters(join.source))


def _inside(expression: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the parts of an expression that DuckDB casts to BOOLEAN, such as both sides of AND."""
    for node in expression.walk():
        if isinstance(node, (exp.And, exp.Or)):
            yield from (node.this, node.expression)
        elif isinstance(node, exp.Not) or _asks_its_first(node):
            yield node.this


def _asks_its_first(node: exp.Expr) -> bool:
    """Tells whether a node takes a BOOLEAN: IS TRUE, IS FALSE, IF or CASE WHEN. CASE x WHEN .. compares instead."""
    if isinstance(node, exp.If):
        return not isinstance(node.parent, exp.Case) or node.parent.this is None
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean)


def _require_boolean(column: exp.Column, type_name: str, source: RowSource) -> None:
    if type_name != "BOOLEAN":
        kind, domain = sql_type(type_name).word, source.domain(column)
        if isinstance(domain, ValueDomain) and domain.values:
            example = _value_text(domain.values[0], domain)
        else:
            example = _example(type_name)
        raise refusal(column, f"{column.name} is {kind}", f"a condition such as {column.name} = {example}")


def _example(type_name: str) -> str:
    return _EXAMPLES.get(type_name, "'text'" if sql_type(type_name).has_any_letters else "1")


def check_kept(conditions: Sequence[exp.Expr], keys: Sequence[Key], scope: Scope) -> None:
    """Refuses a key that is no BOOLEAN as a condition of HAVING or QUALIFY. It would raise after the charge."""
    types = {key.expression: key.type_name for key in keys}
    for node in (part.unnest() for condition in conditions for part in (condition, *_inside(condition))):
        if isinstance(node, exp.Column) and len(scope.find(node)) == 1:
            key_type = types.get(sql_of(resolve(node, scope)), "BOOLEAN")
            if key_type != "BOOLEAN":
                kind = sql_type(key_type).word
                raise refusal(node, f"{node.name} is {kind}", f"a condition such as {node.name} = {_example(key_type)}")


# WHERE sex = 'male' with 'Male' in the domain would be a paid answer of zeros and noise.


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    node = condition.unnest()
    if isinstance(node, exp.And):
        for part in node.flatten():
            yield from _conjuncts(part)
    else:
        yield node


def _check_literals(condition: exp.Expr, source: RowSource) -> None:
    node = condition.this.unnest() if isinstance(condition, exp.Not) else condition
    if isinstance(node, exp.In):
        sides = [(node.this.unnest(), member) for member in node.expressions]
    elif isinstance(node, (exp.EQ, exp.NEQ)):
        sides = [(node.left.unnest(), node.right), (node.right.unnest(), node.left)]
    else:
        return
    for column, value in sides:
        domain = source.domain(column)
        if not isinstance(domain, ValueDomain) or domain.other is not None:
            continue
        read = _reader(domain.type_name)
        written = None if read is None else read(value)
        if written is not None and written not in _values(domain):
            raise refusal(
                value, f"{sql_of(value)[:60]} is not in the domain of {column.name}", _value_list(written, domain)
            )


def _reader(type_name: str) -> Callable[[exp.Expr], Fraction | str | None] | None:
    """Returns the reader of literals for a comparison with this type. None if two texts may mean the same value."""
    return text_literal if type_name == "VARCHAR" else literal if sql_type(type_name).is_integer else None


def _values(domain: ValueDomain) -> frozenset[Fraction | str | None]:
    if domain.type_name == "VARCHAR":
        return frozenset(domain.values)
    return frozenset(exact_number(text) for text in domain.values)


def _value_text(value: str, domain: ValueDomain) -> str:
    kind = sql_type(domain.type_name)
    return value if kind.is_integer or kind.is_boolean else quote_text(value)


def _value_list(written: Fraction | str, domain: ValueDomain) -> str:
    """Lists the values of a domain. Values that differ from `written` in case alone come first."""
    same = [value for value in domain.values if value.casefold() == str(written).casefold()]
    shown = [*same, *(value for value in domain.values if value not in same)]
    return ", ".join(_value_text(value, domain) for value in shown[:_MOST_SHOWN]) + (
        ", .." if len(shown) > _MOST_SHOWN else ""
    )
