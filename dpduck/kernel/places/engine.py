"""Counts over rows that lie in another engine: the orders that its tasks carry out, and the totals of their sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from dpduck.kernel.places.orders import Order, Sent, run_order
from dpduck.kernel.places.place import Opened, RowPlace
from dpduck.kernel.places.rows import LiveRows
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.plans import passes_that_are_off
from dpduck.kernel.worker.answered import Asking
from dpduck.kernel.worker.workers import Workers, least_room
from dpduck.values.errors import InternalError
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import NAMES, decimal_name, sql_type

PARTIALS = "dpduck_partials"
INTEGERS = ("dpduck_integers", "main", "dpduck_rows")
SUMS = ("dpduck_total_", "dpduck_units")
"""Prefixes of the columns that are added up. All other columns name the counted cell."""

Carry = Callable[[Order], Iterable[pa.Table]]


@dataclass(frozen=True)
class EngineRows(LiveRows):
    """Rows in an engine, for the counts of one statement.

    tables: the tables that orders name, private ones first. carry: function that carries out an order over rows of
    whole privacy units, each unit in one task. Its errors may quote data. packed: whether the engine stores each unit's
    rows together, and so has dropped those beyond the rows that may be kept.
    """

    in_engine: ClassVar[bool] = True
    tables: tuple[Sent, ...]
    carry: Carry = field(repr=False)
    packed: bool = False

    @property
    def private(self) -> frozenset[str]:
        return frozenset(table.sql for table in self.tables if table.rows is None)


@dataclass(frozen=True)
class EnginePlace(RowPlace):
    """Place of a statement with tables of an engine. open: function that checks these, and reads public tables."""

    open: Callable[[duckdb.DuckDBPyConnection], EngineRows] = field(repr=False)
    moment: str = ""

    @contextmanager
    def open_rows(self, cursor: duckdb.DuckDBPyConnection, workers: Workers) -> Iterator[Opened]:
        rows = self.open(cursor)
        yield cursor, lambda job: replace(job, place=rows)

    def has_key(self, cursor: duckdb.DuckDBPyConnection, table: str, key: tuple[str, ...]) -> bool:
        return False


@dataclass(frozen=True)
class Parts:
    """Functions that write the SQL to count an engine's rows part by part, each part in a task of its own.

    made: writes rows with a cell's columns. cut: writes two queries over these (stage.cut_sql). stage: writes counts.
    """

    made: Callable[[str], str]
    cut: Callable[[str], tuple[str, str]]
    stage: Callable[[str], str]


def columns_in_engine(
    cursor: duckdb.DuckDBPyConnection,
    engine: EngineRows,
    workers: Workers,
    sql: str,
    parameters: Mapping[str, object],
) -> list[Any]:
    """Returns the result of a query over an engine's rows: sums (columns of SUMS), and the columns to group by."""
    asking = Asking(sql, parameters=dict(parameters))
    with count_in_engine(cursor, engine, (), asking, lambda rows: rows, {}, workers) as (added, second):
        return reader.columns(second, added, {})


@contextmanager
def count_in_engine(
    cursor: duckdb.DuckDBPyConnection,
    engine: EngineRows,
    stages: Sequence[Asking],
    asking: Asking,
    stage: Callable[[str], str],
    parameters: Mapping[str, object],
    workers: Workers,
    parts: Parts | None = None,
    key: int | None = None,
) -> Iterator[tuple[str, duckdb.DuckDBPyConnection]]:
    """Yields SQL of the counts, and a cursor that reads it.

    parts: if given, parts of the rows become integers first, and then the rows of each unit are put together. key: if
    given, only the first CROWD rows of a unit in each table are kept, in an order by this key.
    """
    stage_sql = stage(asking.rows_with_answers)
    text = " ".join([*(question.sql for question in (*stages, asking)), stage_sql])
    named = tuple(_narrow_table(table, text) for table in engine.tables if table.sql in text)
    given, passes, room = dict(parameters), passes_that_are_off(cursor), least_room()
    order = Order(named, tuple(stages), asking, stage_sql, given, passes, room, key=None if engine.packed else key)
    if parts is not None and not engine.packed:
        before = replace(order, stage_sql=parts.cut(parts.made(asking.rows_with_answers))[0])
        integers = Sent(INTEGERS, _types_of(run_order(before, _no_rows(named), workers).schema))
        asking = Asking(f"SELECT * FROM {integers.sql}")
        crowds = Order((integers,), (), asking, parts.cut(asking.sql)[1], given, passes, room)
        order = Order(
            (integers,), (), asking, parts.stage(asking.sql), given, passes, room, replace(before, crowds=crowds)
        )
    nothing = run_order(order, _no_rows(order.tables), workers)
    with add_partials(cursor, nothing, _run_tasks(engine.carry, order, nothing.schema)) as counts:
        yield counts


@contextmanager
def add_partials(
    cursor: duckdb.DuckDBPyConnection, nothing: pa.Table, tables: Iterable[pa.Table]
) -> Iterator[tuple[str, duckdb.DuckDBPyConnection]]:
    """Yields SQL of the totals of the tasks' sums, and a cursor that reads it. nothing: sums over no rows."""
    batches = chain.from_iterable(part.to_batches() for part in chain([nothing], tables))
    partial = pa.RecordBatchReader.from_batches(nothing.schema, batches)
    with reader.beside(cursor, PARTIALS, partial) as second:
        yield _totals_sql(nothing.column_names), second


def _run_tasks(carry: Carry, order: Order, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yields the results of the tasks. They start at the first request. Each failure has the reader's fixed text."""
    results = reader.try_read(lambda: iter(carry(order)), Exception)
    while (part := reader.try_read(lambda: next(results, None), Exception)) is not None:  # its error could quote data
        if part.schema != schema:
            raise InternalError(reader.FAILED)
        yield part


def _narrow_table(table: Sent, text: str) -> Sent:
    """Returns a private table with the columns that the SQL names, so that no other columns are sent."""
    if table.rows is not None:
        return table
    columns = tuple(
        column for column in table.columns if quote_identifier(column[0]) in text or column[0] == table.unit
    )
    return replace(table, columns=columns or table.columns[:1])


def _no_rows(tables: Sequence[Sent]) -> list[pa.Table]:
    private = (table for table in tables if table.rows is None)
    return [
        pa.Table.from_pydict({f"dpduck_{number}": pa.nulls(0) for number in range(len(sent.columns))})
        for sent in private
    ]


def _totals_sql(columns: Sequence[str]) -> str:
    """Writes totals of the tasks' sums for each cell. They add up, since no unit is in two tasks."""
    cells = [name for name in columns if not _is_sum(name)]
    sums = (f"CAST(ifnull(sum({name}), 0) AS BIGINT) AS {name}" for name in columns if _is_sum(name))
    grouping = f" GROUP BY {', '.join(cells)}" if cells else ""
    return f"SELECT {', '.join([*cells, *sums])} FROM {PARTIALS}{grouping}"


def _is_sum(column: str) -> bool:
    return column.startswith(SUMS)


def _types_of(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    named = {sql_type(name).arrow: name for name in NAMES}
    decimals = pa.types.is_decimal
    return tuple(
        (col.name, decimal_name(col.type.precision, col.type.scale) if decimals(col.type) else named[str(col.type)])
        for col in schema
    )
