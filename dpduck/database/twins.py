"""Database of made-up tables under the policies of another database, from its policies, schemas and public tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import duckdb
import pyarrow as pa

from dpduck.language.statements.kinds import CreatePolicy
from dpduck.language.statements.parse import parse_statement
from dpduck.language.text.names import in_sql
from dpduck.values.quoting import quote_identifier


def twin_database(
    source: duckdb.DuckDBPyConnection,
    target: duckdb.DuckDBPyConnection,
    rows: int,
    reworded: Callable[[str], str] = lambda ddl: ddl,
) -> Iterator[str]:
    """Fills a new database with public tables, and a made-up twin of each table with a policy. Yields a line for each.

    reworded: rewrites the statement of a policy for the new database.
    """
    (home,) = source.execute("SELECT current_database()").fetchall()[0]
    public = [row[0] for row in source.execute("SELECT table_name FROM private.dpduck.public_tables").fetchall()]
    for table in public:
        _copy_table(source.sql(f"FROM {table}").to_arrow_table(), _within(table, home), target)
        target.execute("FROM dp(?)", [f"DECLARE PUBLIC TABLE {_within(table, home)}"]).fetchall()
    listed = source.execute("SELECT table_name, ddl FROM dp_policies()").fetchall()
    waiting = {in_sql(name): ddl for name, ddl in listed}
    for table in waiting:
        rows_of = source.sql("FROM dp_twin($1, $2)", params=[table, rows]).to_arrow_table()
        _copy_table(rows_of, _within(table, home), target, source.execute(f"DESCRIBE {table}").fetchall())
        for column in _keys(source, table):
            target.execute(f"ALTER TABLE {_within(table, home)} ADD PRIMARY KEY ({quote_identifier(column)})")
    for table, ddl in _parents_first(waiting):
        if ddl:
            target.execute("FROM dp(?)", [reworded(ddl)]).fetchall()
        yield f"{_within(table, home)}: {rows} made-up rows" if ddl else f"{table}: no statement says its policy"


def prepare_alike(source: duckdb.DuckDBPyConnection, target: duckdb.DuckDBPyConnection) -> None:
    """Prepares the made-up twins of prepared tables, since some statements are for prepared tables alone."""
    ((home,),) = source.execute("SELECT current_database()").fetchall()
    listed = "SELECT table_name FROM dp_policies() WHERE prepared_at IS NOT NULL"
    for (table,) in source.execute(listed).fetchall():
        target.execute("FROM dp(?)", [f"ALTER PRIVACY POLICY ON {_within(in_sql(table), home)} PREPARE"]).fetchall()


def _within(table: str, home: str) -> str:
    return table.removeprefix(f"{quote_identifier(home)}.")


def _copy_table(
    rows: pa.Table, name: str, target: duckdb.DuckDBPyConnection, columns: Sequence[tuple[str, ...]] = ()
) -> None:
    """Creates a table of these rows. columns: names with DuckDB's types, if Arrow's types are less exact."""
    if "." in name:
        target.execute(f"CREATE SCHEMA IF NOT EXISTS {name.rpartition('.')[0]}")
    target.register("dpduck_rows", rows)
    casts = [f"CAST({quote_identifier(field[0])} AS {field[1]}) AS {quote_identifier(field[0])}" for field in columns]
    target.execute(f"CREATE TABLE {name} AS SELECT {', '.join(casts) or '*'} FROM dpduck_rows")
    target.unregister("dpduck_rows")


def _keys(source: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """Returns the column of a primary key or UNIQUE constraint of one column, in a list, which is empty without one."""
    rows = source.execute(
        "SELECT constraint_column_names[1] FROM duckdb_constraints() WHERE len(constraint_column_names) = 1 "
        "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') AND "
        "concat('\"', database_name, '\".\"', schema_name, '\".\"', table_name, '\"') = $1 "
        "ORDER BY constraint_type LIMIT 1",
        [table],
    ).fetchall()
    return [row[0] for row in rows]


def _parents_first(waiting: dict[str, str | None]) -> Iterator[tuple[str, str | None]]:
    """Yields policies in an order where a parent comes before the tables that find their units through it."""
    left = dict(waiting)
    while left:
        names = {table.rpartition(".")[2].strip('"').lower() for table in left}
        ready = {table: ddl for table, ddl in left.items() if _parent_name(ddl) not in names} or left
        yield from ready.items()
        left = {table: ddl for table, ddl in left.items() if table not in ready}


def _parent_name(ddl: str | None) -> str | None:
    statement = parse_statement(ddl) if ddl else None
    unit = statement.clauses.unit if isinstance(statement, CreatePolicy) else None
    return unit.references[0].table.lower() if unit is not None and unit.references is not None else None
