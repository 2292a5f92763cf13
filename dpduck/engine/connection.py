"""load() and connect(): dpduck on a plain duckdb connection.

twin_database() makes a database of made-up tables under the policies of another: from policies and schemas alone, and
public tables.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dpduck.database.attached import (
    STORE_NAME,
    StoreFiles,
    attach_store,
    database_file,
    detach_store,
    require_no_store,
    store_files,
)
from dpduck.database.cursors import Connections, OpenCursor
from dpduck.database.twin_files import TwinFiles
from dpduck.engine.engine import Engine
from dpduck.engine.functions import engine_of, install_macros, require_free_names, serve
from dpduck.engine.progress import progress_here, with_notes
from dpduck.engines.spark import SparkEngine, connected
from dpduck.frontend.statements.kinds import CreatePolicy
from dpduck.frontend.statements.parse import parse_statement
from dpduck.frontend.text.names import in_sql, quote_identifier
from dpduck.trusted.ledger.copies import state_directory
from dpduck.trusted.ledger.ledger import Ledger
from dpduck.trusted.ledger.secrets import Steps, no_step
from dpduck.trusted.rows.plain import keep_plans_plain
from dpduck.values.errors import Refusal, StoreError


def twin_database(
    source: duckdb.DuckDBPyConnection,
    made: duckdb.DuckDBPyConnection,
    rows: int,
    reworded: Callable[[str], str] = lambda ddl: ddl,
) -> Iterator[str]:
    """Fills a new database with twins of all tables that have a policy, and says of which.

    reworded: what a policy is there, from the statement that makes it here.
    """
    (home,) = source.execute("SELECT current_database()").fetchall()[0]
    public = [row[0] for row in source.execute("SELECT table_name FROM private.dpduck.public_tables").fetchall()]
    for table in public:
        _copied(source.sql(f"FROM {table}").to_arrow_table(), _within(table, home), made)
        made.execute("FROM dp(?)", [f"DECLARE PUBLIC TABLE {_within(table, home)}"]).fetchall()
    listed = source.execute("SELECT table_name, ddl FROM dp_policies()").fetchall()
    waiting = {in_sql(name): ddl for name, ddl in listed}
    for table in waiting:
        rows_of = source.sql("FROM dp_twin($1, $2)", params=[table, rows]).to_arrow_table()
        _copied(rows_of, _within(table, home), made, source.execute(f"DESCRIBE {table}").fetchall())
        for column in _keys(source, table):
            made.execute(f"ALTER TABLE {_within(table, home)} ADD PRIMARY KEY ({quote_identifier(column)})")
    for table, ddl in _parents_first(waiting):
        if ddl:
            made.execute("FROM dp(?)", [reworded(ddl)]).fetchall()
        yield f"{_within(table, home)}: {rows} made-up rows" if ddl else f"{table}: no statement says its policy"


def prepare_alike(source: duckdb.DuckDBPyConnection, made: duckdb.DuckDBPyConnection) -> None:
    """Prepares the twins of tables that are prepared: some statements are for these alone."""
    ((home,),) = source.execute("SELECT current_database()").fetchall()
    listed = "SELECT table_name FROM dp_policies() WHERE prepared_at IS NOT NULL"
    for (table,) in source.execute(listed).fetchall():
        made.execute("FROM dp(?)", [f"ALTER PRIVACY POLICY ON {_within(in_sql(table), home)} PREPARE"]).fetchall()


def _within(table: str, home: str) -> str:
    """Returns a table's name without the database that it lies in."""
    return table.removeprefix(f"{quote_identifier(home)}.")


def _copied(
    rows: pa.Table, name: str, made: duckdb.DuckDBPyConnection, columns: Sequence[tuple[str, ...]] = ()
) -> None:
    """Creates a table of these rows; columns: with their types, where Arrow's say less."""
    if "." in name:
        made.execute(f"CREATE SCHEMA IF NOT EXISTS {name.rpartition('.')[0]}")
    made.register("dpduck_rows", rows)
    casts = [f"CAST({quote_identifier(one[0])} AS {one[1]}) AS {quote_identifier(one[0])}" for one in columns]
    made.execute(f"CREATE TABLE {name} AS SELECT {', '.join(casts) or '*'} FROM dpduck_rows")
    made.unregister("dpduck_rows")


def _keys(source: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """Returns the column of a table's primary key, or of its first unique one, where it is one column."""
    rows = source.execute(
        "SELECT constraint_column_names[1] FROM duckdb_constraints() WHERE len(constraint_column_names) = 1 "
        "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') AND "
        "concat('\"', database_name, '\".\"', schema_name, '\".\"', table_name, '\"') = $1 "
        "ORDER BY constraint_type LIMIT 1",
        [table],
    ).fetchall()
    return [row[0] for row in rows]


def _parents_first(waiting: dict[str, str | None]) -> Iterator[tuple[str, str | None]]:
    """Yields policies, those first that others refer to: a unit that is found through a parent is the parent's."""
    left = dict(waiting)
    while left:
        names = {table.rpartition(".")[2].strip('"').lower() for table in left}
        ready = {table: ddl for table, ddl in left.items() if _referred(ddl) not in names} or left
        yield from ready.items()
        left = {table: ddl for table, ddl in left.items() if table not in ready}


def _referred(ddl: str | None) -> str | None:
    """Returns the name of the table that a policy's unit refers to."""
    statement = parse_statement(ddl) if ddl else None
    unit = statement.clauses.unit if isinstance(statement, CreatePolicy) else None
    return unit.references[0].table.lower() if unit is not None and unit.references is not None else None


_LOADING = threading.Lock()


def load(
    connection: duckdb.DuckDBPyConnection, store: str | Path | None = None, *, steps: Steps = no_step
) -> duckdb.DuckDBPyConnection:
    """Registers dp() and its kin on a connection and attaches the store as `private`.

    store: a file; by default <name>_private.duckdb beside a database file, in memory for a database in memory.
    steps: called with the name of each step of a release; for tests that stop the process there.
    Loading on a further connection of the same database keeps dpduck working there when the first one is closed. In a
    read-only database the functions are temporary, so that each of its connections and cursors has to be loaded.
    """
    require_no_store(connection)
    files = store_files(database_file(connection), store)
    with _LOADING:
        attached = attach_store(connection, files)
        try:
            require_free_names(connection)
            engine = engine_of(connection)
            if engine is None:
                _begin(connection, files, steps)
            else:
                engine.connections.add(connection)
                install_macros(connection)
            with suppress(Refusal), connection.cursor() as cursor:  # where it is refused, so is every new release
                keep_plans_plain(cursor)
        except BaseException:
            if attached:
                with suppress(duckdb.Error):
                    detach_store(connection)
            raise
    return connection


def _begin(connection: duckdb.DuckDBPyConnection, files: StoreFiles, steps: Steps) -> None:
    connections = Connections()
    connections.add(connection)
    progress = progress_here() if steps is no_step else None  # who is told of steps shows them
    steps = with_notes(progress, steps)
    ledger = _open_ledger(connections.cursor, files, steps)
    # in memory for a database in memory, whose rows are in no file
    beside = files.store if database_file(connection) is not None else None
    twins = TwinFiles(connections.cursor, beside, lambda: ledger.bounding_key)
    serve(connection, Engine(connections, STORE_NAME, ledger, steps, twins, progress))


def connect(
    database: str | Path = ":memory:", store: str | Path | None = None, **options: Any
) -> duckdb.DuckDBPyConnection:
    """duckdb.connect plus load; returns the plain duckdb connection."""
    connection = duckdb.connect(str(database), **options)
    try:
        return load(connection, store)
    except BaseException:
        connection.close()
        raise


def attach_spark(
    connection: duckdb.DuckDBPyConnection,
    engine: object,
    *,
    name: str,
    tables: Sequence[str],
    buckets: int | None = None,
) -> list[str]:
    """Attaches tables of a Spark Connect server to a database that dpduck is loaded on; their names in full.

    engine: an address, sc://host:15002/;use_ssl=true, or a session. tables: as schema.table there, name.schema.table
    here. Their rows are counted where they are. buckets: tasks of a count; by EXPECT ROWS if not given.
    """
    loaded = engine_of(connection)
    if loaded is None:
        raise Refusal("dpduck is not loaded on this connection", accepted="dpduck.load(con) first")
    session = connected(engine) if isinstance(engine, str) else engine
    return loaded.engines.attach(name, SparkEngine(session), tables, buckets)


def attach_known(connection: duckdb.DuckDBPyConnection, named: str) -> list[str]:
    """Attaches an engine, written name=address, with the tables that the store knows of it; their names.

    A token comes from the environment (DPDUCK_ENGINE_NAME_TOKEN), and is kept nowhere.
    """
    name, _, address = named.partition("=")
    loaded = engine_of(connection)
    if loaded is None or not name or not address.startswith("sc://"):
        raise Refusal("an engine is a name and an address", accepted="--engine lake=sc://host:15002/;use_ssl=true")
    token = os.environ.get(f"DPDUCK_ENGINE_{name.upper()}_TOKEN")
    if token:
        address += f"{'' if '/;' in address else '/'};token={token}"
    tables = loaded.engines.known(name)
    if not tables:
        raise Refusal(f"the store knows no table of {name!r}", accepted="dpduck.attach_spark(con, ..), once, before")
    return attach_spark(connection, address, name=name, tables=tables)


def verify_store(database: str | Path, store: str | Path | None = None, *, adopt: bool = False) -> int:
    """Reads the whole ledger of a database's store again; StoreError where it is not what was written.

    adopt: the owner's word that an older copy is the store from now on; whatever is known to have been spent stays
    spent, and every other copy is refused. Returns the number of entries.
    """
    files = store_files(Path(database), store)
    if files.store is None or not files.store.exists():
        raise StoreError("this database has no store; accepted: a database that dpduck.load was called on")
    with duckdb.connect(":memory:") as connection:
        attach_store(connection, files)
        if adopt:
            ledger = Ledger.adopt(
                connection.cursor,
                STORE_NAME,
                secrets_path=files.secrets,
                witness_directory=state_directory(os.environ),
                principal="owner",
                statement="dpduck verify --adopt",
            )
        else:
            ledger = _open_ledger(connection.cursor, files, no_step)
        ledger.verify()
        return len(ledger.entries())


def _open_ledger(open_cursor: OpenCursor, files: StoreFiles, steps: Steps) -> Ledger:
    witness_directory = None if files.store is None else state_directory(os.environ)
    return Ledger.open(
        open_cursor, STORE_NAME, secrets_path=files.secrets, witness_directory=witness_directory, steps=steps
    )
