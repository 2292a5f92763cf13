"""Looks keys of stored tables up again, in the transaction that counts: by them a unit has one row in a cell.

A job says which key it relies on (jobs.CountingJob.cell_key). DuckDB keeps a PRIMARY KEY or UNIQUE constraint for all
rows that a transaction sees. A prepared table holds rows of an earlier moment, so its own record of keys counts.
"""

from __future__ import annotations

import duckdb

from dpduck.frontend.rows.parts import Stored
from dpduck.trusted.private.jobs import CountingJob, KeyedJob, KeyJob
from dpduck.trusted.rows import reader
from dpduck.trusted.rows.elsewhere import Apart
from dpduck.trusted.rows.prepared import Twins
from dpduck.values.errors import Refusal


def require_cell_key(cursor: duckdb.DuckDBPyConnection, job: object, twins: Twins | Apart | None) -> None:
    """Refuses a job whose stored table does not have the key that its bounds rest on.

    Args:
        cursor: reads the tables, in the transaction that will count.
        twins: what is counted in place of the tables.
    """
    described = job.rows if isinstance(job, KeyedJob | KeyJob) else job
    if not isinstance(described, CountingJob) or not described.cell_key:
        return
    source = described.source
    table = source.first.sql if source is not None and isinstance(source.first, Stored) else ""
    if twins is None:
        kept = _has_key(cursor, table, described.cell_key)
    else:
        twin = None if isinstance(twins, Apart) else twins.tables.get(table)
        kept = twin is not None and described.cell_key in twin.keys
    if not kept:
        raise Refusal("a key changed meanwhile", accepted="the same statement again")


def _has_key(cursor: duckdb.DuckDBPyConnection, table: str, key: tuple[str, ...]) -> bool:
    """Tells whether a table of DuckDB's own has these columns as a key, and no text that a collation compares."""
    named = " || '.' || ".join(
        f"""'"' || replace({part}, '"', '""') || '"'""" for part in ("database_name", "schema_name", "table_name")
    )
    own = "database_name IN (SELECT database_name FROM duckdb_databases() WHERE type = 'duckdb')"
    own += f" AND {named} = {_text(table)}"
    listed = f"[{', '.join(map(_text, key))}]"
    keys = f"constraint_type IN ('PRIMARY KEY', 'UNIQUE') AND constraint_column_names = {listed}"
    (keys_found,) = reader.columns(cursor, f"SELECT count(*) FROM duckdb_constraints() WHERE {own} AND {keys}", {})
    plain = "NOT contains(upper(sql), ' COLLATE ')"
    (tables_found,) = reader.columns(cursor, f"SELECT count(*) FROM duckdb_tables() WHERE {own} AND {plain}", {})
    return int(keys_found[0]) > 0 and int(tables_found[0]) == 1


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
