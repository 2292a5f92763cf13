"""load() and connect(): dpduck on a plain duckdb connection."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from dpduck.database.progress import progress_here, with_notes
from dpduck.database.registered import are_kept, find_database, require_free_names, serve
from dpduck.database.started import Started, complete_store
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.ledger.secrets import Steps, no_step
from dpduck.kernel.ledger.witness import state_directory
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.store.attaching import (
    STORE_NAME,
    attach_store,
    database_file,
    detach_store,
    no_store,
    open_database,
    require_no_store,
)
from dpduck.store.cursors import DatabaseConnections, OpenCursor
from dpduck.store.store_files import StoreFiles, store_files
from dpduck.values.errors import Refusal

_LOADING = threading.Lock()


def load(
    connection: duckdb.DuckDBPyConnection, store: str | Path | None = None, *, steps: Steps = no_step
) -> duckdb.DuckDBPyConnection:
    """Registers dp() and the other functions on a connection, and attaches the store as `private`.

    store: a file, by default <name>_private.duckdb beside a database file. A database in memory has a store in memory.
    steps: receives the name of each step of a release, for tests that stop the process there.

    If dpduck is loaded on two connections of a database, you may close one and go on with the other. In a read-only
    database the functions are temporary, so dpduck must be loaded on each connection and cursor.
    """
    with _with_store(connection, store) as files:
        installed = are_kept(connection)
        if not installed:
            require_free_names(connection)
        started = find_database(connection)
        if started is None:
            started = _start(connection, files, steps)
        else:
            started.connections.add(connection)
        serve(connection, started, kept=installed)
        with suppress(Refusal), connection.cursor() as cursor:  # a refusal here also refuses every new release
            keep_plans_plain(cursor)
    return connection


@contextmanager
def open_for_lists(
    database: str | Path, store: str | Path | None = None
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Started]]:
    """Opens a database for lists that need no dp functions. Registering any function makes DuckDB import numpy."""
    with open_database(database) as connection:
        with _with_store(connection, store) as files:
            started = _start(connection, files, no_step)
        yield connection, started


@contextmanager
def _with_store(connection: duckdb.DuckDBPyConnection, store: str | Path | None) -> Iterator[StoreFiles]:
    """Attaches the store for a block that loads dpduck. Blocks run one at a time. Detaches the store if one fails."""
    require_no_store(connection)
    files = store_files(database_file(connection), store)
    with _LOADING:
        attached = attach_store(connection, files)
        try:
            yield files
        except BaseException:
            if attached:
                with suppress(duckdb.Error):
                    detach_store(connection)
            raise


def _start(connection: duckdb.DuckDBPyConnection, files: StoreFiles, steps: Steps) -> Started:
    connections = DatabaseConnections()
    connections.add(connection)
    progress = progress_here() if steps is no_step else None  # a caller that receives the steps shows them itself
    steps = with_notes(progress, steps)
    ledger = _open_ledger(connections.cursor, files, steps)
    # None for a database in memory, since its rows are in no file
    beside = files.store if database_file(connection) is not None else None
    begun = Started(connections, STORE_NAME, ledger, steps, beside, progress)
    complete_store(begun)
    return begun


def connect(
    database: str | Path = ":memory:", store: str | Path | None = None, **options: Any
) -> duckdb.DuckDBPyConnection:
    """Opens a database with duckdb.connect and loads dpduck. Returns the plain duckdb connection.

    DuckDB 1.5 and 2.0 can open a new file, whichever made it. options: those of duckdb.connect.
    """
    connection = open_database(database, **options)
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
    """Attaches tables of a Spark Connect server to a database that dpduck is loaded on. Returns their full names.

    engine: an address (sc://host:15002/;use_ssl=true), for which a new session is opened, or a session. A session
    may not see tables that another one made. tables: schema.table in the engine, which becomes
    name.schema.table here. The engine counts their rows. buckets: the number of tasks of a count. The default follows
    EXPECT ROWS.
    """
    from dpduck.database.functions import database_of  # noqa: PLC0415
    from dpduck.engines.spark import SparkEngine, open_session  # noqa: PLC0415

    loaded = database_of(connection)
    if loaded is None:
        raise Refusal("dpduck is not loaded on this connection", accepted="dpduck.load(con) first")
    at = engine if isinstance(engine, str) else ""
    session = open_session(at) if at else engine
    return loaded.engines.attach(name, SparkEngine(session, at), tables, buckets)


def attach_known(connection: duckdb.DuckDBPyConnection, named: str) -> list[str]:
    """Attaches an engine, written name=address, with its tables from the store's records. Returns their names.

    A token comes from the environment (DPDUCK_ENGINE_NAME_TOKEN) and is stored nowhere.
    """
    from dpduck.database.functions import database_of  # noqa: PLC0415

    name, _, address = named.partition("=")
    loaded = database_of(connection)
    if loaded is None or not name or not address.startswith("sc://"):
        raise Refusal("an engine is a name and an address", accepted="--engine lake=sc://host:15002/;use_ssl=true")
    token = os.environ.get(f"DPDUCK_ENGINE_{name.upper()}_TOKEN")
    if token:
        address += f"{'' if '/;' in address else '/'};token={token}"
    tables = loaded.engines.attached_tables(name)
    if not tables:
        raise Refusal(f"the store knows no table of {name!r}", accepted="dpduck.attach_spark(con, ..), once, before")
    return attach_spark(connection, address, name=name, tables=tables)


def verify_store(database: str | Path, store: str | Path | None = None, *, adopt: bool = False) -> int:
    """Reads a store's whole ledger again. Returns the number of entries, or raises StoreError if anything was changed.

    adopt: the owner's declaration that an older copy is the store from now on. All known spending stays spent, and
    every other copy is refused.
    """
    files = store_files(Path(database), store)
    if files.store is None or not files.store.exists():
        raise no_store(Path(database), "a database that dpduck.load was called on")
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
