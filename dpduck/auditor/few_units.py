"""Tables of a twin with the made-up rows of a few units, or of a single unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from dpduck.auditor.neighbours import catalog_columns, require_database
from dpduck.language.rows.facts import Policy
from dpduck.language.text.names import TableName
from dpduck.store.catalog import Catalog
from dpduck.values.quoting import fold, quote_identifier, quote_text

UNITS, ROWS_OF_UNIT, MADE_UP_ROWS = 4, 24, 400
"""The number of units that stay in a twin, the most rows of a unit in a table, and the twin's rows at first."""

Policies = Mapping[TableName, Policy]


def units_sql(private: Policies, table: TableName) -> str:
    """Returns SQL of a table's rows with a column unit_of_row. For PRIVACY UNIT ROW, a few groups of rows are units."""
    unit = private[table].unit
    if unit.reference is not None:
        parent = units_sql(private, TableName(unit.reference.parent))
        column, key = quote_identifier(unit.reference.column), quote_identifier(unit.reference.parent_column)
        owners = f"SELECT {key} AS parent_key, any_value(unit_of_row) AS unit_of_row FROM ({parent}) GROUP BY 1"
        return f"SELECT child.*, unit_of_row FROM {table.sql} AS child LEFT JOIN ({owners}) ON {column} = parent_key"
    columns = [quote_identifier(name) for name in unit.own_columns]
    if not columns:
        unit_text = f"'row ' || (row_number() OVER () // {ROWS_OF_UNIT}) % {UNITS}"
    else:
        absent = " OR ".join(f"{name} IS NULL" for name in columns)
        together = ", ".join(f"CAST({name} AS VARCHAR)" for name in columns)
        unit_text = f"CASE WHEN {absent} THEN NULL ELSE concat_ws(chr(31), {together}) END"
    return f"SELECT *, {unit_text} AS unit_of_row FROM {table.sql}"


def lay_out(twin: duckdb.DuckDBPyConnection, done: set[TableName]) -> None:
    """Leaves only a few units in each private table that is not in `done`. No statistics of the other rows remain."""
    private = policies_of(twin)
    chosen_units = _chosen_units(twin, private)
    waiting = [table for table in private if table not in done]
    done.update(waiting)
    for number, table in enumerate(waiting):
        twin.execute(f"CREATE TEMP TABLE laid_{number} AS {_laid_sql(twin, private, table, chosen_units)}")
    for number, table in enumerate(waiting):
        create_anew(twin, table, f"FROM temp.laid_{number}")
        twin.execute(f"DROP TABLE temp.laid_{number}")


def policies_of(twin: duckdb.DuckDBPyConnection) -> Policies:
    """Returns the policies of a database, each under its table."""
    return {policy.table: policy for policy in require_database(twin).about.policies.policies()}


def create_anew(twin: duckdb.DuckDBPyConnection, table: TableName, rows: str) -> None:
    """Creates a table anew with other rows. After a DELETE, the minima and maxima of the old rows would stay."""
    created = "SELECT sql FROM duckdb_tables() WHERE (database_name, schema_name, table_name) = ($1, $2, $3)"
    ((ddl,),) = twin.execute(created, list(table.parts)).fetchall()
    ((home,),) = twin.execute("SELECT current_database()").fetchall()
    twin.execute(f"DROP TABLE {table.sql}")
    twin.execute(f"USE {quote_identifier(table.parts[0])}")
    twin.execute(ddl)
    twin.execute(f"USE {quote_identifier(home)}")
    twin.execute(f"INSERT INTO {table.sql} {rows}")


def _chosen_units(twin: duckdb.DuckDBPyConnection, private: Policies) -> dict[str, list[str]]:
    """Returns the units that stay, as SQL literals, by the key of their privacy unit. A hash chooses them."""
    chosen: dict[str, list[str]] = {}
    for table, policy in private.items():
        if policy.unit.reference is None:
            listed = f"SELECT unit_of_row FROM ({units_sql(private, table)}) WHERE unit_of_row IS NOT NULL GROUP BY 1"
            rows = twin.execute(f"{listed} ORDER BY md5(unit_of_row) LIMIT {UNITS}").fetchall()
            chosen.setdefault(policy.unit.key, [quote_text(unit) for (unit,) in rows])
    return chosen


def _laid_sql(
    twin: duckdb.DuckDBPyConnection, private: Policies, table: TableName, chosen_units: Mapping[str, Sequence[str]]
) -> str:
    """Returns SQL of the rows of the units that stay: one unit with NULLs, one with constants, and one with both."""
    units = ", ".join(chosen_units.get(private[table].unit.key, [])) or "NULL"
    rows = (
        f"SELECT *, list_position([{units}], unit_of_row) AS place, row_number() OVER (PARTITION BY unit_of_row) AS "
        f"number FROM ({units_sql(private, table)}) QUALIFY number <= {ROWS_OF_UNIT} AND place IS NOT NULL"
    )
    fixed, listed = _key_columns(twin, private, table), []
    for column in catalog_columns(twin, table):
        name = quote_identifier(column.name)
        first = f"first_value({name}) OVER (PARTITION BY unit_of_row ORDER BY number)"
        absent = "place = 1 OR place = 3 AND number % 3 > 0"
        laid = f"CASE WHEN {absent} THEN NULL WHEN place <= 3 THEN {first} ELSE {name} END AS {name}"
        listed.append(name if fold(column.name) in fixed else laid)
    return f"SELECT {', '.join(listed)} FROM ({rows}) ORDER BY place, number"


def _key_columns(twin: duckdb.DuckDBPyConnection, private: Policies, table: TableName) -> set[str]:
    """Returns the columns that hold a row's unit, that other tables refer to, or that are unique keys."""
    references = [policy.unit.reference for policy in private.values()]
    parents = [link.parent_column for link in references if link is not None and TableName(link.parent) == table]
    database = require_database(twin)
    with database.connections.cursor() as cursor:
        unique = [name for key in Catalog(cursor, database.about.policies).unique_keys(table) for name in key]
    return set(map(fold, [*parents, *unique, *private[table].unit.own_columns]))


def copy_rows(twin: duckdb.DuckDBPyConnection) -> dict[TableName, str]:
    """Copies each table, with the unit of each row, to a temporary table. Returns the names of the copies by table."""
    private = policies_of(twin)
    stored = {table: f"temp.kept_{number}" for number, table in enumerate(private)}
    for table, name in stored.items():
        twin.execute(f"CREATE TEMP TABLE {name.removeprefix('temp.')} AS {units_sql(private, table)}")
    return stored


def units_of(twin: duckdb.DuckDBPyConnection, stored: Mapping[TableName, str]) -> list[str]:
    """Returns the units of all tables, as SQL literals. The last entry "" is for rows without a unit."""
    rows = " UNION ALL ".join(f"SELECT unit_of_row FROM {name}" for name in stored.values())
    listed = f"SELECT DISTINCT unit_of_row FROM ({rows}) WHERE unit_of_row IS NOT NULL ORDER BY 1"
    return [*(quote_text(unit) for (unit,) in twin.execute(listed).fetchall()), ""]


def give_rows(twin: duckdb.DuckDBPyConnection, stored: Mapping[TableName, str], unit: str | None) -> None:
    """Gives all tables the rows of one unit. unit: an SQL literal, "" for rows without a unit, None for all rows."""
    of_unit = f" WHERE unit_of_row {f'= {unit}' if unit else 'IS NULL'}" if unit is not None else ""
    for table, name in stored.items():
        create_anew(twin, table, f"SELECT * EXCLUDE (unit_of_row) FROM {name}{of_unit}")
