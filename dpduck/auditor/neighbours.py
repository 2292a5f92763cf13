"""Neighbouring databases of made-up rows, from policies alone: one of the two has one more privacy unit.

The added unit has more rows than MAX ROWS, values beyond every CLAMP, and texts that nobody else has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import duckdb

from dpduck.database.connection import connect
from dpduck.database.database import Database
from dpduck.database.functions import database_of
from dpduck.database.twins import twin_database
from dpduck.kernel.ledger.secrets import BOUNDING_KEY
from dpduck.language.rows.facts import CatalogColumn, Clamp, Policy
from dpduck.language.text.names import TableName
from dpduck.mechanisms.rehearsal import awkward_values
from dpduck.owner.policy_text import key_sql
from dpduck.store.catalog import Catalog
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.quoting import fold, quote_identifier, quote_text
from dpduck.values.sqltypes import sql_type

CROWDED, SPREAD, ODD = "crowded", "spread", "odd"
KINDS = (CROWDED, SPREAD, ODD)
"""Kinds of the added unit: all rows in one cell, rows in several cells, or NULLs and extreme values."""

FULL, OVER = "full", "over"
EDGES = (FULL, OVER)
"""Kinds of the added unit with as many rows in one cell as a norm of 1 leaves unchanged, or with one more."""

UNITS, MOST_ROWS = 400, 20_000
"""The number of units and the most rows of a database: few for a fast count, enough for texts of 1, 2, .. 28 units."""

MOST_ADDED = 200
WHOSE = 9_000_001
"""The number of the added unit. Also the first value of unique keys in its rows."""

UNIQUE_TEXT = "nobody else has this"
_BUDGET = re.compile(r"^    (BUDGET|LIFETIME) \((.*)\)( PER \w+)?(,?)$", re.MULTILINE)


@dataclass(frozen=True)
class Neighbours:
    """Two databases with the same policies, the second with one more unit. kind: the kind of the added unit."""

    both: tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]
    policies: tuple[Policy, ...]
    kind: str

    def columns(self, policy: Policy) -> tuple[CatalogColumn, ...]:
        return catalog_columns(self.both[0], policy.table)


def catalog_columns(connection: duckdb.DuckDBPyConnection, table: TableName) -> tuple[CatalogColumn, ...]:
    """Returns the columns of a table of a database that dpduck is loaded on."""
    database = require_database(connection)
    with database.connections.cursor() as cursor:
        return Catalog(cursor, database.about.policies).columns(table)


def require_database(connection: duckdb.DuckDBPyConnection) -> Database:
    """Returns the database of a connection that dpduck is loaded on."""
    database = database_of(connection)
    if database is None:
        raise InternalError("dpduck is not loaded on this connection")
    return database


def roomy(ddl: str) -> str:
    """Rewrites a policy's statement with budgets of the same kind that are large enough for very many runs.

    >>> roomy("CREATE PRIVACY POLICY ON t (\\n    PRIVACY UNIT ROW,\\n    BUDGET (epsilon = 1)\\n)").split("\\n")[2]
    '    BUDGET (epsilon = 1000000)'
    """
    return _BUDGET.sub(_roomy, ddl)


def _roomy(match: re.Match[str]) -> str:
    amounts = "rho = 1000000" if match[2].startswith("rho") else "epsilon = 1000000"
    amounts += ", delta = 0.0099, delta_keys = 0.0098" if "delta" in match[2] else ""
    return f"    {match[1]} ({amounts}){match[3] or ''}{match[4]}"


@contextmanager
def neighbours(source: duckdb.DuckDBPyConnection, kind: str = CROWDED) -> Iterator[Neighbours]:
    """Makes two databases in memory with stores of their own, from the policies of a third database."""
    most = max((policy.unit.max_rows for policy in require_database(source).about.policies.policies()), default=1)
    rows = max(UNITS, min(UNITS * most, MOST_ROWS))
    with ExitStack() as stack:
        both = stack.enter_context(connect()), stack.enter_context(connect())
        for twin in both:
            twin.execute("SET threads = 1")
            for _ in twin_database(source, twin, rows, roomy):
                pass
        # a secret of each database decides which rows of a unit count: neighbours have the same secret
        require_database(both[1]).ledger.secrets.save(BOUNDING_KEY, require_database(both[0]).ledger.bounding_key)
        policies = tuple(require_database(both[0]).about.policies.policies())
        if not policies:
            raise Refusal("no table has a privacy policy", accepted="dpduck policy draft DATABASE TABLE")
        pair = Neighbours(both, policies, kind)
        for policy in policies:
            for connection in both:
                _grade_texts(connection, policy, pair.columns(policy))
            _add_unit(pair, policy)
        yield pair


def _grade_texts(connection: duckdb.DuckDBPyConnection, policy: Policy, columns: Sequence[CatalogColumn]) -> None:
    """Gives texts without a domain to 1, 2, 3 .. units each, so that some are near any threshold for selected keys."""
    unit = policy.unit
    owner = ", ".join(map(quote_identifier, unit.columns or ((unit.column,) if unit.column else ()))) or "rowid"
    for column in columns:
        if is_open_text(column, policy):
            connection.execute(
                f"UPDATE {within(policy)} SET {quote_identifier(column.name)} = 'text ' || CAST(floor(sqrt(2 * u)) AS "
                f"INTEGER) FROM (SELECT rowid AS r, dense_rank() OVER (ORDER BY {owner}) AS u FROM {within(policy)}) "
                f"WHERE r = {within(policy)}.rowid"
            )


def is_open_text(column: CatalogColumn, policy: Policy) -> bool:
    """Tells whether a column has texts without a domain, and is no column of the privacy unit."""
    hidden = set(map(fold, policy.unit.own_columns))
    return column.type_name == "VARCHAR" and policy.domain(column.name) is None and fold(column.name) not in hidden


def _add_unit(pair: Neighbours, policy: Policy) -> None:
    connection, columns = pair.both[1], pair.columns(policy)
    database = require_database(connection)
    with database.connections.cursor() as cursor:
        keys = Catalog(cursor, database.about.policies).unique_keys(policy.table)
    unique = {fold(key[0]) for key in keys if len(key) == 1}
    unit = policy.unit
    unit_columns = set(map(fold, unit.own_columns))
    number = 1 if not unit_columns or unit_columns & unique else min(3 * unit.max_rows, unit.max_rows + MOST_ADDED)
    number = min(number, EDGES.index(pair.kind) + 1) if pair.kind in EDGES else number
    values, parts = [], _parts(pair, policy)
    for place, column in enumerate(columns):
        name = quote_identifier(column.name)
        if fold(column.name) in parts:
            values.append(f"{parts[fold(column.name)]} AS {name}")
        elif fold(column.name) in unit_columns | unique:
            key = str(WHOSE) if fold(column.name) in unit_columns else f"{WHOSE} + n"
            values.append(f"CAST({key_sql(key, column.type_name)} AS {column.type_name}) AS {name}")
        else:
            values.append(f"{_value(column, policy, pair.kind, place)} AS {name}")
    table = within(policy)
    half = f"(SELECT count(*) FROM {table}) // 2"
    copied = f"{half} + n * {half} // {number}" if pair.kind == SPREAD else "0"  # many units share a text in this half
    connection.execute(
        f"INSERT INTO {table} BY NAME WITH known AS (SELECT *, row_number() OVER () - 1 AS i FROM {table}) "
        f"SELECT {', '.join(values)} FROM range({number}) AS r(n) JOIN known ON i = {copied}"
    )


def _parts(pair: Neighbours, policy: Policy) -> dict[str, str]:
    """Returns SQL of the added unit's values in its own columns of the table, by name. Empty with a reference.

    Values lie in domains, and are not NULL if possible, so that the row counts. Other rows with such values are
    deleted.
    """
    values, table = dict[str, str](), within(policy)
    unit_columns = set(map(fold, policy.unit.own_columns)) if policy.unit.reference is None else set[str]()
    for column in pair.columns(policy):
        if fold(column.name) in unit_columns:
            name, kind = quote_identifier(column.name), column.type_name
            number = f"CAST({key_sql(str(WHOSE), kind)} AS {kind})" if policy.domain(column.name) is None else "NULL"
            least = f"SELECT CAST(coalesce({number}, min({name})) AS VARCHAR) FROM {table}"
            ((text,),) = pair.both[1].execute(least).fetchall()
            values[column.name] = "NULL" if text is None else f"CAST({quote_text(text)} AS {kind})"
    if values:
        same = " AND ".join(f"{quote_identifier(name)} = {value}" for name, value in values.items())
        for connection in pair.both:
            connection.execute(f"DELETE FROM {table} WHERE {same}")
    return {fold(name): value for name, value in values.items()}


def within(policy: Policy) -> str:
    """Returns a table's name without the database that it lies in."""
    return ".".join(quote_identifier(part) for part in policy.table.parts[1:])


def _value(column: CatalogColumn, policy: Policy, kind: str, place: int) -> str:
    """Returns SQL of a column's value in row n of the added unit. By default this is another made-up row's value."""
    name, clamp = f"known.{quote_identifier(column.name)}", policy.clamp(column.name)
    period = policy.unit.period
    if period is not None and fold(period.column) == fold(column.name):
        return name
    if kind == ODD:
        texts = [quote_text(text) for text in awkward_values(column.type_name)]
        listed = ", ".join(f"TRY_CAST({text} AS {column.type_name})" for text in [*texts, "NULL"])
        return f"(CAST([{listed}] AS {column.type_name}[]))[1 + CAST((n + {place}) % {len(texts) + 1} AS INTEGER)]"
    if clamp is not None:
        return _beyond(clamp, column.type_name)
    if kind != SPREAD and is_open_text(column, policy):
        return quote_text(UNIQUE_TEXT)
    if policy.domain(column.name) is not None and kind != SPREAD:
        least = f"(SELECT min({quote_identifier(column.name)}) FROM {within(policy)})"
        return f"CAST({least} AS {column.type_name})"
    return name


def _beyond(clamp: Clamp, type_name: str) -> str:
    """Returns SQL of a value ten times beyond a clamp, or of the clamp's end if the type has no such value."""
    if not sql_type(type_name).is_numeric:
        return f"CAST({quote_text(clamp.high)} AS {type_name})"
    far = f"CAST({quote_text(clamp.high)} AS DOUBLE) + 9 * abs(CAST({quote_text(clamp.high)} AS DOUBLE)) + 9"
    return f"coalesce(TRY_CAST({far} AS {type_name}), CAST({quote_text(clamp.high)} AS {type_name}))"
