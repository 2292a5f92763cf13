"""Writes a policy as CREATE PRIVACY POLICY, and made-up rows for its table, on which statements can be tried for free.

The made-up rows follow from the policy and the schema alone, by SQL that names no table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from dpduck.language.rows.facts import CatalogColumn, Clamp, Policy
from dpduck.language.statements.policy import MAX_ROWS_LIMIT
from dpduck.language.text.dialect import MAX_CHARACTERS, MAX_DIGITS, PrivateDuckDB, exact_number, tokenize_statement
from dpduck.language.text.names import TableName
from dpduck.owner.domains import decimal_text
from dpduck.values.domain import Domain, RangeDomain, ValueDomain
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Budget
from dpduck.values.quoting import fold, quote_identifier, quote_text
from dpduck.values.sqltypes import sql_type

MOST_ROWS = 1_000_000
MOST_LABELS = 1_000
"""Most labels of a domain in made-up rows. From a larger domain, evenly spread labels are taken."""

_PRIME = 1_000_003
_USUAL = {
    "BOOLEAN": "{h} % 2 = 0",
    "VARCHAR": "'text ' || {h} % 50",
    "DATE": "DATE '2020-01-01' + CAST({h} % 1500 AS INTEGER)",
    "TIME": "TIME '00:00:00' + to_seconds(CAST({h} % 86400 AS BIGINT))",
    "UUID": "CAST(md5(CAST({h} AS VARCHAR)) AS UUID)",
    "INTERVAL": "to_days(CAST({h} % 30 AS INTEGER))",
}
_MOMENT = "TIMESTAMP '2020-01-01' + to_seconds(CAST({h} % 120000000 AS BIGINT))"


def twin_sql(policy: Policy, columns: Sequence[CatalogColumn], keys: Sequence[tuple[str, ...]], rows: int) -> str:
    """Returns a SELECT of `rows` made-up rows. keys: unique keys of the table. Columns of single keys do not repeat."""
    unique = {fold(key[0]) for key in keys if len(key) == 1}
    unit_columns = {fold(name) for name in policy.unit.own_columns}
    expressions = []
    for place, column in enumerate(columns):
        mixed = f"hash(i, {place})"
        if fold(column.name) in unique:
            value = key_sql("i", column.type_name)
        elif fold(column.name) in unit_columns and (policy.unit.columns or policy.domain(column.name) is None):
            value = _part(column, policy, place)
        elif fold(column.name) in unit_columns:
            value = key_sql(f"i // {policy.unit.max_rows}", column.type_name)
        else:
            value = _made_up(column, policy.domain(column.name), policy.clamp(column.name), mixed)
        expressions.append(f"CAST({value} AS {column.type_name}) AS {quote_identifier(column.name)}")
    return f"SELECT {', '.join(expressions)} FROM range({rows}) AS made_up(i)"


def _part(column: CatalogColumn, policy: Policy, place: int) -> str:
    """Returns SQL of a value in one of the columns that hold a unit. All rows of the unit have the same value.

    Without a domain, the value is the unit's number, or any value if the type has no such number.
    """
    number, domain, kind = f"i // {policy.unit.max_rows}", policy.domain(column.name), column.type_name
    any_value = _made_up(column, domain, None, f"hash({number}, {place})")
    if domain is not None:
        return any_value
    return f"coalesce(CAST({key_sql(number, kind)} AS {kind}), CAST({any_value} AS {kind}))"


def key_sql(number: str, type_name: str) -> str:
    """Returns SQL of the key value for a number. It is equal in every table, so that references match."""
    if type_name == "VARCHAR":
        return f"'made up ' || ({number})"
    if type_name == "UUID":
        return f"CAST(md5(CAST({number} AS VARCHAR)) AS UUID)"
    if type_name == "DATE":
        return f"DATE '2000-01-01' + CAST({number} AS INTEGER)"
    return f"TRY_CAST(TRY_CAST({number} AS VARCHAR) AS {type_name})"


def _made_up(column: CatalogColumn, domain: Domain | None, clamp: Clamp | None, mixed: str) -> str:
    if isinstance(domain, ValueDomain):
        labels = [*domain.labels[: len(domain.values) + domain.with_null], *(["made up"] if domain.other else [])]
        return _one_of(labels, column.type_name, mixed)
    if domain is not None:
        value = _in_range(domain, mixed)
        return f"CASE WHEN {mixed} % 20 = 0 THEN NULL ELSE {value} END" if domain.with_null else value
    if clamp is not None:
        return _between(clamp.low, clamp.high, column.type_name, mixed)
    return _usual(column.type_name, mixed)


def _one_of(labels: Sequence[str | None], type_name: str, mixed: str) -> str:
    number = min(len(labels), MOST_LABELS)
    chosen = [labels[place * len(labels) // number] for place in range(number)]
    listed = ", ".join("NULL" if label is None else quote_text(label) for label in chosen)
    which = f"1 + CAST({mixed} % {number} AS INTEGER)"
    return f"CAST(list_extract(CAST([{listed}] AS VARCHAR[]), {which}) AS {type_name})"


def _in_range(domain: RangeDomain, mixed: str) -> str:
    low, high = (f"CAST({quote_text(text)} AS {domain.type_name})" for text in (domain.edges[0], domain.upper))
    if domain.type_name == "DATE":
        return f"{low} + CAST({mixed} % date_diff('day', {low}, {high}) AS INTEGER)"
    if domain.type_name == "TIMESTAMP":
        return f"{low} + to_seconds(CAST({mixed} % greatest(date_diff('second', {low}, {high}), 1) AS BIGINT))"
    kind = sql_type(domain.type_name)
    if kind.is_whole:
        width = int(domain.upper) - int(domain.edges[0])
        return f"CAST({domain.edges[0]} AS HUGEINT) + CAST({mixed} % {width} AS HUGEINT)"
    if kind.is_float:
        return _between(domain.edges[0], domain.upper, domain.type_name, mixed)
    return _one_of(domain.edges, domain.type_name, mixed)


def _between(low: str, high: str, type_name: str, mixed: str) -> str:
    first, last = (f"CAST({quote_text(text)} AS DOUBLE)" for text in (low, high))
    value = f"({first} + ({mixed} % {_PRIME}) / {_PRIME}.0 * ({last} - {first}))"
    return f"TRY_CAST({f'floor({value})' if sql_type(type_name).is_whole else value} AS {type_name})"


def _usual(type_name: str, mixed: str) -> str:
    """Returns SQL of a value for a column without an item in the policy. It is NULL for types without such a value."""
    kind = sql_type(type_name)
    if kind.is_whole:
        return f"CAST({mixed} % 100 AS {type_name})"
    if kind.is_numeric:
        return f"TRY_CAST(({mixed} % {_PRIME}) / {_PRIME}.0 * 9 AS {type_name})"
    if kind.is_enum:
        values = f"enum_range(CAST(NULL AS {type_name}))"
        return f"list_extract({values}, 1 + CAST({mixed} % len({values}) AS INTEGER))"
    usual = _USUAL.get(type_name, _MOMENT if kind.is_dated else "NULL")
    return usual.format(h=mixed)


_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_OURS = frozenset(("ALL", "ROW", "TODO"))
"""Words that a policy reads as keywords, and so not as a column's name."""

_MOST_LOOKED_AT = 100_000
"""Most edges of a floating type that are compared one by one."""

Home = tuple[str, str] | None


def policy_sql(policy: Policy, home: Home) -> str | None:
    """Returns CREATE PRIVACY POLICY with all items, or None if the text would be too long or edges are irregular.

    home: the database and schema that names of tables leave out.
    """
    labels = sum(domain.size for _, domain in policy.domains if isinstance(domain, ValueDomain))
    if labels * 4 > MAX_CHARACTERS or not all(_is_regular(domain) for _, domain in policy.domains):
        return None
    items = ",\n    ".join(_items(policy, home))
    text = f"CREATE PRIVACY POLICY ON {table_text(policy.table, home)} (\n    {items}\n)"
    try:
        tokenize_statement(text)
    except Refusal:
        return None
    return text


def _items(policy: Policy, home: Home) -> Iterator[str]:
    yield unit_text(policy, home)
    yield budget_text(policy)
    if policy.budget.lifetime is not None:
        yield f"LIFETIME {_amounts(policy.budget.lifetime)}"
    for column, domain in policy.domains:
        yield f"DOMAIN {name_text(column)} {domain_text(domain)}"
    for clamp in policy.clamps:
        yield f"CLAMP {name_text(clamp.column)} BETWEEN {clamp.low} AND {clamp.high} STEP {clamp.step}"
    if policy.expect_rows is not None:
        yield f"EXPECT ROWS {policy.expect_rows}"
    if policy.max_epsilon is not None:
        yield f"MAX EPSILON {_amount(policy.max_epsilon)}"
    if policy.min_epsilon is not None:
        yield f"MIN EPSILON {_amount(policy.min_epsilon)}"


def name_text(name: str) -> str:
    """Returns a column's or table's name, in quotes if it needs them.

    >>> name_text("age"), name_text("row"), name_text("of birth")
    ('age', '"row"', '"of birth"')
    """
    if _BARE.fullmatch(name) and name.upper() not in _OURS:
        tokens = PrivateDuckDB().tokenize(name)
        if len(tokens) == 1 and tokens[0].token_type.name == "VAR":
            return name
    return quote_identifier(name)


def table_text(table: TableName, home: Home) -> str:
    """Returns a table's name, without its database and its schema if these are the ones in `home`."""
    parts = table.parts
    if home is not None and fold(parts[0]) == fold(home[0]):
        parts = parts[2:] if fold(parts[1]) == fold(home[1]) else parts[1:]
    return ".".join(map(name_text, parts))


def budget_text(policy: Policy) -> str:
    """Returns the BUDGET clause of a policy."""
    per = "" if policy.unit.period is None else f" PER {policy.unit.period.word}"
    return f"BUDGET {_amounts(policy.budget)}{per}"


def unit_text(policy: Policy, home: Home) -> str:
    """Returns the PRIVACY UNIT clause of a policy, with MAX ROWS."""
    unit, period = policy.unit, policy.unit.period
    per = "" if period is None else f" PER {period.word} OF {name_text(period.column)}"
    if unit.column is None:
        return f"PRIVACY UNIT ROW{per}"
    if unit.columns:
        listed = ", ".join(map(name_text, unit.columns))
        return f"PRIVACY UNIT ({listed}) MAX ROWS {min(unit.max_rows, MAX_ROWS_LIMIT)}"
    if unit.reference is not None:
        parent = table_text(TableName(unit.reference.parent), home)
        column, refers = unit.reference.column, f"{parent}.{name_text(unit.reference.parent_column)}"
    else:
        column, refers = unit.column, ""
        whole = unit.key if period is None else unit.key.removesuffix(f" PER {period.word}")
        *parts, key = whole.split(".")  # no part has a dot: owner/policies.py refuses one
        if fold(whole) != fold(f"{policy.table}.{unit.column}"):
            refers = f"{table_text(TableName(tuple(parts)), home)}.{name_text(key)}"
    referring = f" REFERENCES {refers}" if refers else ""
    return f"PRIVACY UNIT {name_text(column)}{referring}{per} MAX ROWS {min(unit.max_rows, MAX_ROWS_LIMIT)}"


def _amounts(budget: Budget) -> str:
    if budget.epsilon is None:
        return f"(rho = {_amount(budget.rho or Fraction(0))})"
    parts = [f"epsilon = {_amount(budget.epsilon)}"]
    parts += [f"delta = {_amount(budget.delta)}"] if budget.delta else []
    parts += [f"delta_keys = {_amount(budget.delta_keys)}"] if budget.delta_keys else []
    return f"({', '.join(parts)})"


def _amount(value: Fraction) -> str:
    """Returns an amount as an exact decimal, with an exponent (1e-6) if it has many digits."""
    text = decimal_text(value)
    whole, _, after = text.partition(".")
    digits = (whole + after).lstrip("0")
    return f"{digits}e-{len(after)}" if len(text) > MAX_DIGITS // 2 and after else text


def domain_text(domain: Domain, most: int | None = None) -> str:
    """Returns the text after the column in a DOMAIN clause. most: the largest number of labels, None for no limit.

    >>> domain_text(ValueDomain("VARCHAR", ("F", "M"), with_null=True))
    "IN ('F', 'M') WITH NULL"
    >>> domain_text(RangeDomain("DATE", ("2024-01-01", "2024-02-01"), "2024-03-01", "", "month", 1))
    'RANGE 2024-01-01 TO 2024-03-01 STEP MONTH'
    """
    null = " WITH NULL" if domain.with_null else ""
    if isinstance(domain, RangeDomain):
        low, high = (_bound(text) for text in (domain.edges[0], domain.upper))
        step = domain.step
        if domain.unit:
            unit = domain.unit.upper()
            step = unit if domain.step_count == 1 else f"{domain.step_count} {unit}S"
        return f"RANGE {low} TO {high} STEP {step}{null}{' WITH EDGES' if domain.with_edges else ''}"
    if domain.type_name == "BOOLEAN" and domain.values == ("false", "true"):
        return f"BOOLEAN{null}"
    if domain.type_name == f"ENUM({', '.join(map(quote_text, domain.values))})":
        return f"ENUM{null}"
    shown = [_value(text, domain.type_name) for text in domain.values[:most]]
    shown += [".."] if len(shown) < len(domain.values) else []
    other = f" WITH OTHER {quote_text(domain.other)}" if domain.other is not None else ""
    return f"IN ({', '.join(shown)}){null}{other}"


def _value(text: str, type_name: str) -> str:
    bare = sql_type(type_name).is_numeric and _NUMBER.fullmatch(text) and len(text) <= MAX_DIGITS
    return text if bare else quote_text(text)


def _bound(text: str) -> str:
    try:
        exact_number(text)
    except ValueError:
        return text if _DATE.fullmatch(text) else quote_text(text)
    return text


def _is_regular(domain: Domain) -> bool:
    """Tells whether the bounds and the step of a range give exactly its edges, after rounding to a floating type."""
    if not isinstance(domain, RangeDomain) or domain.unit:
        return True
    low, step = exact_number(domain.edges[0]), exact_number(domain.step)
    if exact_number(domain.upper) != low + step * len(domain.edges):
        return False
    floating = sql_type(domain.type_name).is_float
    if not floating or len(domain.edges) > _MOST_LOOKED_AT:
        return not floating
    holds = np.float32 if domain.type_name == "FLOAT" else np.float64
    return all(holds(float(low + step * place)) == holds(float(edge)) for place, edge in enumerate(domain.edges))
