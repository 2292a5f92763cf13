"""Probe of an engine: before it is attached, it must count public made-up rows correctly.

A unit with rows in several partitions must count as often as any other unit. Unusual values must mean the same as in
DuckDB. A task must be able to start a worker process, and a failing task must not quote its rows.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from dpduck.engines.spark import SparkEngine, TablePlace
from dpduck.engines.task import FAILED
from dpduck.kernel.places.engine import add_partials
from dpduck.kernel.places.orders import Order, Sent, run_order
from dpduck.kernel.rows.plans import keep_plans_plain, passes_that_are_off
from dpduck.kernel.worker.answered import Asking
from dpduck.kernel.worker.workers import WorkerProgram, Workers, least_room
from dpduck.values.errors import Refusal

BUCKETS, PARTITIONS, ROWS_OF_ONE = 2, 20, 60
COLUMNS = (
    ("unit", "BIGINT"), ("whole", "BIGINT"), ("real", "DOUBLE"), ("exact", "DECIMAL(9,2)"), ("text", "VARCHAR"),
    ("day", "DATE"), ("moment", "TIMESTAMP"), ("flag", "BOOLEAN"),
)  # fmt: skip
_ROWS: tuple[tuple[Any, ...], ...] = (
    (1, 2**63 - 1, float("nan"), Decimal("1.25"), "o\u0308", date(1, 1, 1), datetime(1, 1, 1), True),
    (2, -(2**63), float("inf"), Decimal("-0.01"), "ö ", date(9999, 12, 31), datetime(9999, 12, 31), False),
    (3, 0, -0.0, Decimal("0.00"), "", date(1969, 12, 31), datetime(1969, 12, 31, 23, 59, 59), None),
    (4, None, None, None, None, None, None, None),
    (None, 7, 0.1, Decimal("9999999.99"), "NULL", date(2024, 2, 29), datetime(2024, 2, 29, 12), True),
    (5, 12, 1e-310, Decimal("0.10"), "12\x00\U0001f986", date(2024, 2, 29), datetime(2024, 2, 29, 12), False),
)
ACCEPTED = "Spark 4 or Sail, whose workers have this DuckDB, pyarrow and this Python, and may start a process"


def probe_engine(engine: SparkEngine, workers: Workers) -> SparkEngine:
    """Returns the engine if it passes the probe. Otherwise raises a Refusal that names the failure."""
    table = Sent(("dpduck_probe", "main", "probe"), COLUMNS)
    crowd = tuple((6, number % 7, 0.5, Decimal("1.00"), "x", None, None, True) for number in range(ROWS_OF_ONE))
    by_column = zip(COLUMNS, zip(*_ROWS, *crowd, strict=True), strict=True)
    rows = pa.table({name: pa.array(values) for (name, _), values in by_column})  # of the types of COLUMNS
    order = _order(table)
    nothing, expected = (run_order(order, [part], workers) for part in (rows.slice(0, 0), rows))
    place = TablePlace("", COLUMNS, "unit")
    scattered = {table.sql: engine.made_up(rows, PARTITIONS)}
    try:
        partials = list(engine.carry_frames(scattered, {table.sql: place}, BUCKETS, order))
    except Exception:
        raise Refusal("the engine cannot run a task", accepted=ACCEPTED) from None
    if _sums(nothing, partials) != _sums(nothing, [expected]):
        raise Refusal("the engine does not count whole units as DuckDB does", accepted=ACCEPTED)
    _require_one_text(engine, scattered, table, place, order)
    return engine


def _order(table: Sent) -> Order:
    """Returns an Order that counts by each column and a flag from a worker. It keeps at most three rows of a unit."""
    names = [name for name, _ in COLUMNS[1:]]
    listed = ", ".join(f"md5(CAST({name} AS VARCHAR)) AS {name}" for name in names)
    program = WorkerProgram(
        "SELECT try(ln(CAST(x AS DOUBLE))) > 2 AS rare FROM dpduck_batch", pa.schema([("rare", pa.bool_())])
    )
    asking = Asking(f"SELECT unit, text AS x, {listed} FROM {table.sql}", ("x",), program, 4)
    valid = f"SELECT * FROM ({asking.rows_with_answers}) WHERE unit IS NOT NULL"
    bounded = (
        f"SELECT * FROM ({valid}) QUALIFY row_number() OVER (PARTITION BY unit ORDER BY hash({', '.join(names)})) <= 3"
    )
    stage = f"SELECT {', '.join(names)}, rare, count(*) AS dpduck_total_0 FROM ({bounded}) GROUP BY ALL"
    with duckdb.connect() as connection:
        keep_plans_plain(connection)
        return Order((table,), (), asking, stage, {}, passes_that_are_off(connection), least_room())


def _sums(nothing: pa.Table, partials: list[pa.Table]) -> list[dict[str, Any]]:
    with duckdb.connect() as connection, add_partials(connection, nothing, partials) as (sql, second):
        rows = second.execute(f"SELECT * FROM ({sql}) ORDER BY ALL").to_arrow_table().to_pylist()
    return list(rows)


def _require_one_text(engine: SparkEngine, rows: dict[str, Any], table: Sent, place: TablePlace, order: Order) -> None:
    """Refuses an engine that quotes rows when a task fails."""
    failing = replace(
        order, asking=Asking("SELECT 1"), stage_sql="SELECT CAST('dpduck canary' AS BIGINT) AS dpduck_total_0"
    )
    try:
        list(engine.carry_frames(rows, {table.sql: place}, BUCKETS, failing))
    except Exception as error:
        message = str(error)
    else:
        message = ""
    if FAILED not in message or "canary" in message:
        raise Refusal("the engine quotes what fails in a task", accepted=ACCEPTED)
