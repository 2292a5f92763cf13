"""Tables of a store beside its ledger. One statement checks whether they exist, one transaction creates them."""

from __future__ import annotations

import duckdb

from dpduck.values.quoting import quote_identifier

TABLES = {
    "policies": "table_name VARCHAR, revision BIGINT, active BOOLEAN, definition VARCHAR, changed_at TIMESTAMP",
    "public_tables": "table_name VARCHAR, declared_at TIMESTAMP",
    "engine_packs": "engine VARCHAR, there VARCHAR, facts VARCHAR",
    "engine_tables": "table_name VARCHAR, engine VARCHAR, there VARCHAR, identity VARCHAR",
    "prepared": "table_name VARCHAR, nonce VARCHAR, state VARCHAR, facts VARCHAR, prepared_at TIMESTAMP",
    "releases": (
        "name VARCHAR, digest VARCHAR, statement VARCHAR, strategy VARCHAR, epsilon VARCHAR, delta VARCHAR, "
        "rho VARCHAR, released_at TIMESTAMP, rows BIGINT, principal VARCHAR, ledger_id BIGINT, laws VARCHAR, "
        "kind VARCHAR"
    ),
    "failures": "digest VARCHAR, ledger_id BIGINT",
    "unanswered": "digest VARCHAR, ledger_id BIGINT",
    "plans": "ledger_id BIGINT, plan VARCHAR, made_by VARCHAR",
    "measured": "name VARCHAR, table_name VARCHAR, moment VARCHAR, noisy BLOB",
    "sparse_names": (
        "name VARCHAR, kind VARCHAR, digest VARCHAR, statement VARCHAR, principal VARCHAR, table_name VARCHAR, "
        "keys VARCHAR, sparsity BIGINT, queries BIGINT, beta DOUBLE, release VARCHAR"
    ),
    "session_states": "digest VARCHAR, updates BIGINT, scale DOUBLE, commits BIGINT",
    "session_weights": "digest VARCHAR, high BIGINT, low BIGINT, weight DOUBLE",
    "session_answers": (
        "digest VARCHAR, question VARCHAR, number BIGINT, answer DOUBLE, source VARCHAR, updates BIGINT"
    ),
    "histogram_values": "digest VARCHAR, high BIGINT, low BIGINT, value BIGINT",
    "streams": (
        "name VARCHAR, digest VARCHAR, statement VARCHAR, table_name VARCHAR, nonce VARCHAR, ledger_id BIGINT, "
        "facts VARCHAR, published BIGINT"
    ),
}

LATER = {"releases": ("covariances", "source")}


def create_tables(cursor: duckdb.DuckDBPyConnection, store: str) -> None:
    """Creates the missing tables, and the columns that earlier versions lack."""
    schema = f"{quote_identifier(store)}.dpduck"
    if _are_there(cursor, schema):
        return
    cursor.execute("BEGIN")
    cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    for name, columns in TABLES.items():
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {schema}.{name} ({columns})")
    for name, later in LATER.items():
        for column in later:
            cursor.execute(f"ALTER TABLE {schema}.{name} ADD COLUMN IF NOT EXISTS {column} VARCHAR")
    cursor.execute("COMMIT")


def _are_there(cursor: duckdb.DuckDBPyConnection, schema: str) -> bool:
    """Tells whether every table has all columns, by binding a SELECT over them."""
    parts = []
    for name, columns in TABLES.items():
        listed = [column.split()[0] for column in columns.split(", ")]
        named = ", ".join(map(quote_identifier, (*listed, *LATER.get(name, ()))))
        parts.append(f"SELECT NULL FROM (SELECT {named} FROM {schema}.{name})")
    try:
        cursor.sql(" UNION ALL ".join(parts))  # a relation is bound, not run
    except (duckdb.CatalogException, duckdb.BinderException):
        return False
    return True


READY = "ready"


def has_left_copies(cursor: duckdb.DuckDBPyConnection, store: str) -> bool:
    """Tells whether a prepared copy must be deleted: it is unfinished, out of use, or of a table without a policy."""
    schema = f"{quote_identifier(store)}.dpduck"
    if not cursor.execute(f"SELECT 1 FROM {schema}.prepared LIMIT 1").fetchall():
        return False
    ((left,),) = cursor.execute(
        f"SELECT EXISTS (FROM {schema}.prepared WHERE state <> '{READY}' OR table_name NOT IN "
        f"(SELECT table_name FROM {schema}.policies WHERE active))"
    ).fetchall()
    return bool(left)
