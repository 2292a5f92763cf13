"""A worker is killed during a job: the same counts, or "failed" with the charge kept."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dpduck.engines import spark
from dpduck.engines.task import task_of
from dpduck.kernel.places.orders import Order
from tests.engines.conftest import Lake, opened
from tests.support.engine_servers import sail_server

ROWS = pa.table({"unit": [number % 40 for number in range(400)], "kind": [number % 2 for number in range(400)]})
POLICY = (
    "CREATE PRIVACY POLICY ON lake.db.{} (PRIVACY UNIT unit MAX ROWS 2, BUDGET (epsilon = 10), DOMAIN kind IN (0, 1))"
)
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) kind, count(*) FROM lake.db.{} GROUP BY kind"


def slow(begun: Path) -> Callable[..., Any]:
    """Tasks that say that they have begun, and take their time over it the first time."""
    place = str(begun)

    def of(order: Order, name: str, *module: str) -> Any:
        task = task_of(order, name, *module)
        if name != "answer_task":
            return task

        def waiting(given: Any) -> Any:
            import os  # noqa: PLC0415
            import time  # noqa: PLC0415

            if not os.path.exists(place):  # noqa: PTH110
                with open(place, "w") as file:  # noqa: PTH123
                    file.write(str(os.getpid()))
                time.sleep(20)
            return task(given)

        return waiting

    return of


def parent(pid: int) -> int:
    return int(subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout)


def killed_once_begun(begun: Path, victim: Callable[[int], int]) -> threading.Thread:
    def kill() -> None:
        for _ in range(2_000):
            if begun.exists() and begun.read_text():
                os.kill(victim(int(begun.read_text())), signal.SIGKILL)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def ask_and_kill(lake: Lake, table: str, begun: Path, victim: Callable[[int], int]) -> str:
    """Asks once while something is killed. Returns "" if DuckDB counts the same, else the error. Requires a charge."""
    lake.put(2, **{table: ROWS})
    lake.dp(POLICY.format(table))
    thread, said = killed_once_begun(begun, victim), ""
    try:
        assert lake.same(ASK.format(table))
    except duckdb.Error as error:
        said = str(error)
    thread.join()
    assert lake.con.execute("SELECT count(*) FROM dp_ledger() WHERE epsilon = 1").fetchone() == (1,)
    return said


SPARKS = [pytest.param(name, marks=pytest.mark.engines) for name in ("connect", "classic")]


@pytest.mark.parametrize("server", SPARKS, indirect=True)
def test_a_task_that_is_killed(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are executors the task is done once more, with the same counts. Else it fails and stays paid."""
    monkeypatch.setattr(spark, "task_of", slow(tmp_path / "begun"))
    said = ask_and_kill(lake, "of_tasks", tmp_path / "begun", lambda pid: pid)
    assert said == "" if lake.server.address else "the charge stays, nothing was released" in said


@pytest.mark.parametrize("server", SPARKS[:1], indirect=True)
def test_an_executor_that_is_killed(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one does its tasks: the same counts, each unit once."""
    monkeypatch.setattr(spark, "task_of", slow(tmp_path / "begun"))
    assert ask_and_kill(lake, "of_executors", tmp_path / "begun", lambda pid: parent(parent(pid))) == ""


def test_an_engine_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of its tasks: the statement fails with the one text, and stays paid."""
    monkeypatch.setattr(spark, "task_of", slow(tmp_path / "begun"))
    monkeypatch.setattr("dpduck.engines.tables.probe_engine", lambda engine, workers: engine)
    with sail_server(tmp_path) as server, opened(server, monkeypatch) as lake:
        server.session.client.set_retry_policies([])
        assert server.process is not None
        said = ask_and_kill(lake, "of_engines", tmp_path / "begun", lambda _: int(str(server.process)))
        assert "the charge stays, nothing was released" in said
