"""Reader of private rows: SQL and parameters in, columns or batches out. No other module reads them (test_house.py).

Every failed read raises one fixed text without a context, since DuckDB's texts may quote data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from dpduck.kernel.rows.stand_ins import MARKED
from dpduck.values.errors import InternalError

T = TypeVar("T")

BUILT_IN_ONLY = "SET search_path = 'system.main'"
"""Setting with which the SQL that runs here uses functions of DuckDB alone, and no macro of the same name."""

FAILED = "counting failed"

VECTOR, MOST_BYTES = 2048, 64 << 20
"""Number of rows that DuckDB computes at a time, and bytes at which text_batches ends a batch."""

SMALL_BUFFER = "SET streaming_buffer_size = '1KB'"
"""Setting of a cursor. DuckDB computes ahead until a buffer is full, but ignores bytes of texts: it held 6 GB once."""

HASHED_JOINS = "SET prefer_range_joins = false"
"""Setting of a cursor. DuckDB prefers range joins to hash joins, but range joins may raise or crash."""

LAZY = duckdb.__version__.startswith("1.")
"""DuckDB 1.5 materialises results of sql() with parameters, and raises for values without a text. 2.0 does not."""


def begin(cursor: duckdb.DuckDBPyConnection) -> None:
    """Opens the transaction in which facts are read again and rows are counted."""
    cursor.execute(BUILT_IN_ONLY)
    for setting in (SMALL_BUFFER, HASHED_JOINS):
        with suppress(duckdb.Error):  # a locked configuration keeps its settings, and the failure ends no transaction
            cursor.execute(setting)
    cursor.execute("BEGIN TRANSACTION READ ONLY")


@contextmanager
def beside(
    cursor: duckdb.DuckDBPyConnection, name: str, rows: pa.RecordBatchReader
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yields a second connection, in which rows from elsewhere are registered under a name."""
    with cursor.cursor() as second:
        second.execute(BUILT_IN_ONLY)
        second.register(name, rows)
        yield second


def columns(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, object]) -> list[Any]:
    """Returns the columns of a result as numpy arrays, in order."""
    _require_rows(cursor, sql)
    return try_read(lambda: list(cursor.execute(sql, dict(parameters)).fetchnumpy().values()))


def batches(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, object], rows: int
) -> Iterator[pa.Table]:
    """Yields the rows of a result, about `rows` at a time. The first table is empty and has the columns."""
    reader = record_batches(cursor, sql, parameters, rows)
    yield reader.schema.empty_table()
    while (batch := try_read(lambda: next(reader, None))) is not None:
        yield pa.Table.from_batches([batch])


def text_batches(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, object], rows: int
) -> Iterator[pa.Table]:
    """Yields the rows of a result, at most `rows` and about MOST_BYTES at a time. The first table is empty."""
    # if only the number of rows were limited, long texts of one person could fill the memory
    pieces = batches(cursor, sql, parameters, VECTOR)
    empty = next(pieces)
    yield empty
    gathered, size = [empty], 0
    for piece in pieces:
        size += piece.nbytes
        gathered.append(piece)
        if size >= MOST_BYTES or sum(part.num_rows for part in gathered) > rows - VECTOR:
            yield pa.concat_tables(gathered).combine_chunks()
            gathered, size = [empty], 0
    if len(gathered) > 1:
        yield pa.concat_tables(gathered).combine_chunks()


def record_batches(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, object], rows: int
) -> pa.RecordBatchReader:
    """Returns the rows of a result for another connection, about `rows` at a time."""
    _require_rows(cursor, sql)
    if LAZY:
        return try_read(lambda: cursor.execute(sql, dict(parameters)).to_arrow_reader(rows))
    return try_read(lambda: cursor.sql(sql, params=dict(parameters) or None).to_arrow_reader(rows))


def pour_rows(
    second: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, object], name: str, rows: pa.RecordBatchReader
) -> None:
    """Runs a statement that gives no result. It reads `rows` under the name `name`, once at most."""
    second.register(name, rows)
    try:
        run(second, sql, parameters)
    finally:
        second.unregister(name)


def run(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, object] = MappingProxyType({})) -> None:
    """Runs a statement without a result."""
    _require_rows(cursor, sql)
    try_read(lambda: cursor.execute(sql, dict(parameters)))


def drop(cursor: duckdb.DuckDBPyConnection, table: str) -> None:
    """Drops a temporary table. If the transaction has failed, the table ends with it."""
    with suppress(duckdb.Error):
        cursor.execute(f"DROP TABLE IF EXISTS {table}")


def _require_rows(cursor: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuses SQL over the stand-in of an engine's table."""
    marked = cursor.execute(MARKED).fetchall()
    if any('"' + name.replace('"', '""') + '".' in sql.lower() for (name,) in marked):
        raise InternalError("an engine's table is not counted here")


def try_read(read: Callable[[], T], *failures: type[Exception]) -> T:
    """Returns the result of a read. Errors of DuckDB, of Arrow and of types in `failures` get one fixed text."""
    with suppress(duckdb.Error, pa.ArrowException, *failures):
        return read()
    raise InternalError(FAILED)  # outside the handler, so that DuckDB's error is not its context
