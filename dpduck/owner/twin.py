"""A made-up table from a policy and a schema alone: SQL over range(..) that names no table, so that it can read none.

Values lie in the domains and clamps, and each unit has MAX ROWS rows. What is asked of the table can be written, and
tried, on its twin: nothing is charged, and nothing is true.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpduck.frontend.rows.facts import Clamp, Column, Policy
from dpduck.frontend.text.names import fold, quote_identifier, quote_text
from dpduck.owner.domains import INTEGERS, is_numeric
from dpduck.values.domain import Domain, RangeDomain, ValueDomain

MOST_ROWS = 1_000_000
MOST_LABELS = 1_000
"""Of a domain with more values so many are used, evenly spread."""

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


def twin_sql(policy: Policy, columns: Sequence[Column], keys: Sequence[tuple[str, ...]], rows: int) -> str:
    """Returns a SELECT of so many made-up rows. keys: of the table, whose values are not repeated."""
    unique = {fold(key[0]) for key in keys if len(key) == 1}
    whose = policy.unit.reference.column if policy.unit.reference is not None else policy.unit.column
    made = []
    for place, column in enumerate(columns):
        mixed = f"hash(i, {place})"
        if fold(column.name) in unique:
            value = key_sql("i", column.type_name)
        elif fold(column.name) == fold(whose or ""):
            value = key_sql(f"i // {policy.unit.max_rows}", column.type_name)
        else:
            value = _value(column, policy.domain(column.name), policy.clamp(column.name), mixed)
        made.append(f"CAST({value} AS {column.type_name}) AS {quote_identifier(column.name)}")
    return f"SELECT {', '.join(made)} FROM range({rows}) AS made_up(i)"


def key_sql(number: str, type_name: str) -> str:
    """Returns the value of a key that has this number: the same in every table, so that references lead somewhere."""
    if type_name == "VARCHAR":
        return f"'made up ' || ({number})"
    if type_name == "UUID":
        return f"CAST(md5(CAST({number} AS VARCHAR)) AS UUID)"
    if type_name == "DATE":
        return f"DATE '2000-01-01' + CAST({number} AS INTEGER)"
    return f"TRY_CAST(TRY_CAST({number} AS VARCHAR) AS {type_name})"


def _value(column: Column, domain: Domain | None, clamp: Clamp | None, mixed: str) -> str:
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
    if domain.type_name in INTEGERS:
        width = int(domain.upper) - int(domain.edges[0])
        return f"CAST({domain.edges[0]} AS HUGEINT) + CAST({mixed} % {width} AS HUGEINT)"
    if domain.type_name in ("FLOAT", "DOUBLE"):
        return _between(domain.edges[0], domain.upper, domain.type_name, mixed)
    return _one_of(domain.edges, domain.type_name, mixed)


def _between(low: str, high: str, type_name: str, mixed: str) -> str:
    first, last = (f"CAST({quote_text(text)} AS DOUBLE)" for text in (low, high))
    value = f"({first} + ({mixed} % {_PRIME}) / {_PRIME}.0 * ({last} - {first}))"
    return f"TRY_CAST({f'floor({value})' if type_name in INTEGERS else value} AS {type_name})"


def _usual(type_name: str, mixed: str) -> str:
    """Returns a value of the type, of a column that a policy says nothing about; NULL of lists and the like."""
    if type_name in INTEGERS:
        return f"CAST({mixed} % 100 AS {type_name})"
    if is_numeric(type_name):
        return f"TRY_CAST(({mixed} % {_PRIME}) / {_PRIME}.0 * 9 AS {type_name})"
    if type_name.startswith("ENUM(") and not type_name.endswith("]"):
        values = f"enum_range(CAST(NULL AS {type_name}))"
        return f"list_extract({values}, 1 + CAST({mixed} % len({values}) AS INTEGER))"
    if type_name.startswith("TIMESTAMP"):
        return _MOMENT.format(h=mixed)
    return _USUAL[type_name].format(h=mixed) if type_name in _USUAL else "NULL"
