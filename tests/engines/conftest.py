"""One engine for all tests of a run, and databases that count there and here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import dpduck
from dpduck.kernel import door
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.kernel.worker.workers import Workers
from tests.support.engine_servers import Server, sail_server, spark_classic, spark_connect
from tests.support.twins import told

SERVERS: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "sail": sail_server,
    "connect": spark_connect,
    "classic": spark_classic,
}


@pytest.fixture(
    scope="session",
    params=["sail", *(pytest.param(name, marks=pytest.mark.engines) for name in ("connect", "classic"))],
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as started:
        yield started


class Lake:
    """A database with tables of an engine, and `here`: another one that has their rows under the same names.

    compared: exact counts of each job, here and there.
    """

    def __init__(self, server: Server) -> None:
        self.server, self.compared = server, list[tuple[object, object]]()
        self.con, self.here = dpduck.connect(), duckdb.connect()
        keep_plans_plain(self.here)

    def put(self, buckets: int = 5, name: str = "lake", files: int = 3, **tables: pa.Table) -> None:
        """Puts tables into the engine, attaches them as name.db.table, and lays them here, too."""
        self.here.execute(f"ATTACH ':memory:' AS {name}; CREATE SCHEMA {name}.db")
        there = []
        for table, rows in tables.items():
            there.append(self.server.put(table, rows, files))
            self.here.register("rows_of_test", rows)
            self.here.execute(f"CREATE TABLE {name}.db.{table} AS FROM rows_of_test")
            self.here.unregister("rows_of_test")
        dpduck.attach_spark(self.con, self.server.session, name=name, tables=there, buckets=buckets)

    def public(self, name: str, rows_sql: str) -> None:
        """A public table, which both have."""
        for connection in (self.con, self.here):
            connection.execute(f"CREATE TABLE {name} AS {rows_sql}")
        self.dp(f"DECLARE PUBLIC TABLE {name}")

    def dp(self, statement: str) -> list[tuple[object, ...]]:
        return self.con.execute("FROM dp(?)", [statement]).fetchall()

    def same(self, statement: str) -> object:
        """Asks, and requires the same counts there and here. Returns these counts."""
        self.compared.clear()
        self.dp(statement)
        assert self.compared, "nothing was counted in the engine"
        assert all(here == there for here, there in self.compared)
        return self.compared[0][0]

    def refused(self, statement: str) -> str:
        with pytest.raises(duckdb.Error) as caught:
            self.dp(statement)
        return str(caught.value).partition("\n")[0]

    def close(self) -> None:
        self.con.close()
        self.here.close()


@contextmanager
def opened(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """A Lake that counts everything twice."""
    made = Lake(server)
    counting = door.counting

    def count(
        place: duckdb.DuckDBPyConnection,
        key: bytes,
        workers: Workers,
        prepared: Callable[[CountingJob], CountingJob] | None = None,
    ) -> Callable[[CountingJob], object]:
        if prepared is None:
            return counting(place, key, workers)

        def compare(job: CountingJob) -> object:
            there = prepared(job)
            counts = counting(place, key, workers)(there)
            if there is not job:
                made.compared.append((told(counting(made.here, key, workers)(job)), told(counts)))
            return counts

        return compare

    monkeypatch.setattr(door, "counting", count)
    yield made
    made.close()


@pytest.fixture
def lake(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    # this engine was probed: test_whole_way.py attaches it as it is
    monkeypatch.setattr("dpduck.engines.tables.probe_engine", lambda engine, workers: engine)
    with opened(server, monkeypatch) as made:
        yield made
