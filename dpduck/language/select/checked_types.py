"""Types of expressions over rows, checked before the charge. Types and domains alone decide.

A column inside an expression must have a plain type, even if it is public. A condition must be BOOLEAN, because DuckDB
casts other conditions row by row: WHERE sex would raise for a text, after the charge. A condition must also ask for
values in the column's domain: sex = 'male' with 'Male' in the domain would be a paid answer of zeros and noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from sqlglot import exp

from dpduck.language.rows.expressions import BOOLEAN, sql_of
from dpduck.language.rows.facts import PublicFacts
from dpduck.language.rows.predicates import literal, text_literal
from dpduck.language.rows.scope import Scope, resolve
from dpduck.language.rows.sql import base, bound_type, equality_keys, written_conditions
from dpduck.language.rows.tree import RowSource
from dpduck.language.select.request import Key
from dpduck.language.text.dialect import exact_number
from dpduck.language.text.positions import refusal
from dpduck.values.domain import ValueDomain
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_text
from dpduck.values.sqltypes import sql_type

_ACCEPTED = "numbers, texts, BOOLEAN, dates, times, INTERVAL, ENUM and UUID; any column as it stands, and IS NULL"


def check_types(written: Sequence[exp.Expr], source: RowSource, keys: Sequence[exp.Expr]) -> None:
    """Refuses the first column without a plain type inside an expression, or inside a cast for a join.

    keys: the grouping expressions. A key may have any type. Conditions and operands may not, because they are cast.
    """
    types, pairs = source.types, [(join, pair) for join in source.public_joins for pair in join.pairs]
    alone = {id(node) for node in (*keys, *source.counted, *(private for _, (private, _) in pairs))}
    for expression in written:
        for column in () if equality_keys(expression, types) else expression.find_all(exp.Column):
            if not _is_asked_for_null(column) and not (id(expression) in alone and expression.unnest() is column):
                _require_plain(column, types[sql_of(column)])
    for join, (private, name) in pairs:
        public, own = types[base(join.alias, name)], types.get(sql_of(private))
        if own != public:  # one column is cast to the other's type
            _require_plain(private, own or public)
            _require_plain(private, public)


def _is_asked_for_null(column: exp.Column) -> bool:
    node: exp.Expr | None = column.parent
    while isinstance(node, exp.Paren):
        node = node.parent
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)


def _require_plain(place: exp.Expr, type_name: str) -> None:
    if not sql_type(type_name).is_plain:
        raise refusal(place, f"an expression over {sql_type(type_name).word} is refused", _ACCEPTED)


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
    """Tells whether a node takes a BOOLEAN: IS TRUE, IS FALSE, IF or CASE WHEN. CASE x WHEN .. compares x."""
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
    """Refuses a key that is no BOOLEAN as a condition of HAVING or QUALIFY, because it would raise after the charge."""
    types = {key.expression: key.type_name for key in keys}
    for node in (part.unnest() for condition in conditions for part in (condition, *_inside(condition))):
        if isinstance(node, exp.Column) and len(scope.find(node)) == 1:
            key_type = types.get(sql_of(resolve(node, scope)), "BOOLEAN")
            if key_type != "BOOLEAN":
                kind = sql_type(key_type).word
                raise refusal(node, f"{node.name} is {kind}", f"a condition such as {node.name} = {_example(key_type)}")


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
    """Lists the values of a domain. Values that differ from `written` only in case come first."""
    same = [value for value in domain.values if value.casefold() == str(written).casefold()]
    shown = [*same, *(value for value in domain.values if value not in same)]
    return ", ".join(_value_text(value, domain) for value in shown[:_MOST_SHOWN]) + (
        ", .." if len(shown) > _MOST_SHOWN else ""
    )
