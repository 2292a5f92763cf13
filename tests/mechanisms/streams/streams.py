"""A table that gets rows month by month, with a stream over it, and helpers for tests of both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

import dpduck
from dpduck.database.functions import database_of
from dpduck.kernel.queries.streams import StreamAsk
from dpduck.language.statements.kinds import CreatePrivate
from dpduck.language.statements.parse import parse_statement
from dpduck.mechanisms.streams.measurements import asks_of
from dpduck.mechanisms.streams.plan import StreamRequest
from dpduck.mechanisms.streams.statements import shape_of
from dpduck.mechanisms.streams.store import StreamRecord, open_state, read_last_version
from dpduck.mechanisms.streams.stream_plan import StreamPlan, plan_from_facts
from tests.support.clinics import one_line

MOST = 3
"""MAX ROWS."""

PERIODS = 6
POLICY = (
    "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person MAX ROWS {most}, BUDGET ({budget}), "
    "DOMAIN ward IN ('a', 'b') WITH NULL, DOMAIN came RANGE 2024-01-01 TO 2025-01-01 STEP MONTH)"
)
STREAM = (
    "CREATE PRIVATE STREAM by_month OPTIONS ({options}) AS "
    "SELECT came, ward, count(*) AS n FROM {source} GROUP BY came, ward"
)
Row = tuple[str | None, str | None, str | None, int | None]  # person, day, ward, number


def options(price: str = "epsilon = 1", strategy: str = "periods", more: str = "") -> str:
    """The clause of a stream of PERIODS periods."""
    return f"{price}, periods = {PERIODS}, strategy = {strategy}{more}"


class Visits:
    """A database with rows of persons, and a stream."""

    def __init__(self, path: Path | None = None, budget: str = "epsilon = 1000", **connect: Any) -> None:
        self.con = dpduck.connect(path or ":memory:", **connect)
        if not self.con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'visits'").fetchall():
            self.con.execute("CREATE TABLE visits (person VARCHAR, came DATE, ward VARCHAR, number INTEGER)")
            self.con.execute("CREATE TABLE wards AS FROM (VALUES ('a', 'one'), ('b', 'one')) AS w(name, colour)")
            self.dp("DECLARE PUBLIC TABLE wards")
            self.dp(POLICY.format(most=MOST, budget=budget))

    def dp(self, statement: str) -> list[tuple[Any, ...]]:
        return self.con.execute("FROM dp(?)", [statement]).fetchall()

    def refusal(self, statement: str) -> str:
        """Returns the message of a refused statement."""
        try:
            self.dp(statement)
        except duckdb.Error as error:
            return one_line(error)
        raise AssertionError("it was not refused")

    def put(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.con.execute("INSERT INTO visits VALUES (?, CAST(? AS DATE), ?, ?)", list(row))

    def create(self, clause: str = options(), source: str = "visits") -> None:
        self.dp(STREAM.format(options=clause, source=source))

    def refresh(self, months: int = PERIODS) -> str:
        """Refreshes the stream until the end of so many months."""
        return str(self.dp(f"REFRESH PRIVATE STREAM by_month UNTIL '{date(2024, months + 1, 1)}'")[0][0])

    def published(self, columns: str = "*") -> list[tuple[Any, ...]]:
        return self.con.execute(f"SELECT {columns} FROM private.by_month").fetchall()

    def spent(self) -> float:
        return float(self.con.execute("SELECT spent FROM dp_budget()").fetchall()[0][0])

    @property
    def named(self) -> StreamRecord:
        found = self.streams.store.find("by_month")
        assert found is not None
        return found

    @property
    def streams(self) -> Any:
        database = database_of(self.con)
        assert database is not None
        return database.streams

    def request(self) -> StreamRequest:
        """Returns the stream's request."""
        statement = parse_statement(self.named.statement)
        assert isinstance(statement, CreatePrivate)
        found: StreamRequest = self.streams.analyse(statement)
        return found

    def exact(self, number: int = 0) -> NDArray[np.int64]:
        """A table of exact integers of all periods and other keys that the stream's file holds."""
        streams, stream = self.streams, self.request()
        table = np.zeros(stream.request.question.sizes, np.int64)
        last, shape = read_last_version(streams.parts.ledger, self.named), shape_of(stream, self.plan, self.named)
        with open_state(streams.files, self.named, shape, streams.parts.ledger.bounding_key, last) as (cursor, state):
            rows = cursor.execute(f"SELECT * EXCLUDE (version) FROM {state._place}.main.counts").fetchall()
        for row in rows:
            table[row[: table.ndim]] += row[table.ndim + number]
        return table

    @property
    def plan(self) -> StreamPlan:
        """Returns the stream's plan."""
        return plan_from_facts(self.named.plan)

    def asks(self) -> list[StreamAsk]:
        """Returns the asks that the stream was charged for."""
        return asks_of(self.request(), self.plan)
