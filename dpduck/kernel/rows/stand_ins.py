"""Names of the catalog: stand-ins of an engine's tables, and the relation of all tables. No row is read here."""

from __future__ import annotations

STAND_INS = "dpduck_twins"
"""Name of a schema in each database with the stand-ins of an engine's tables: views with their columns, and no rows."""

MARKED = f"SELECT lower(database_name) FROM duckdb_schemas() WHERE schema_name = '{STAND_INS}'"
"""Query of the databases with stand-ins, in small letters."""

TABLES = (
    "(SELECT database_name, schema_name, table_name, sql FROM duckdb_tables() UNION ALL "
    f"SELECT database_name, schema_name, view_name, '' FROM duckdb_views() WHERE lower(database_name) IN ({MARKED}))"
)
"""Relation with every table and its definition. The stand-in of an engine's table is one, with an empty definition."""
