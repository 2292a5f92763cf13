"""One principal does everything at once that could take the service from the others, while another one works."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.commands.serving import BESIDE
from dpduck.edges.connection import verify_store
from dpduck.edges.extensions import load_extension
from dpduck.server.limits import Limits, parse_size
from dpduck.server.runners import BESIDE as BESIDE_RUNNER
from tests.server.served import add_principals, count, make_clinic
from tests.server.shell import EXTENSIONS, Server, needs_quack, serving
from tests.server.test_crash import children
from tests.server.test_quotas import WIDE
from tests.server.test_runners import resident

ROOT = Path(__file__).resolve().parent.parent.parent
MEMORY = "400MB"
BUSY, BUSY_IN_AN_AUDIT = 10.0, 1.0
"""Seconds by which anything may be later than twice as late: a busy machine, whose processors the attacker's clients
use as well, is no failure; the audit has the machine to itself."""


class Working:
    """A principal at work: how long reading, joining, asking and attaching took; none of it may fail."""

    def __init__(self, server: Server, token: str) -> None:
        self._address, self._token = server.address, token
        self._number = 0
        self.connection = self.attach()

    def attach(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(config={"threads": 1})
        for name in EXTENSIONS:
            load_extension(connection, name, "")
        connection.execute(f"ATTACH '{self._address}' AS clinic (TOKEN '{self._token}')")
        return connection

    def rows(self, text: str) -> list[tuple[object, ...]]:
        with self.connection.cursor() as cursor:
            return cursor.execute(f"FROM clinic.query($o$ {text} $o$)").fetchall()

    def once(self, took: dict[str, list[float]]) -> None:
        self._number += 1
        refresh = f"OPTIONS (epsilon = 0.001, refresh = '{self._number}')"
        for kind, text, rows in (
            ("read", "SELECT * FROM ward_cube", 21),
            ("join", "SELECT count(*) FROM ward_cube AS a JOIN ward_cube AS b USING (ward)", 1),
            ("ask", count("sex").replace("OPTIONS (epsilon = 0.1)", refresh), 2),
            ("known", count("ward", "0.01"), 6),
        ):
            start = time.monotonic()
            assert len(self.rows(text)) == rows, kind
            took[kind].append(time.monotonic() - start)
        start = time.monotonic()
        self.attach().close()
        took["attach"].append(time.monotonic() - start)
        time.sleep(0.2)

    def work(self, seconds: float) -> dict[str, float]:
        """The median of each kind."""
        took: dict[str, list[float]] = {kind: [] for kind in ("read", "join", "ask", "known", "attach")}
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(took["attach"]) < 5:
            self.once(took)
        return {kind: statistics.median(times) for kind, times in took.items()}


@contextmanager
def attacked(server: Server, token: str, seconds: float) -> Iterator[list[str]]:
    """Beside an attacker; what it says of itself is in the list afterwards."""
    port = server.address.rpartition(":")[2]
    command = [sys.executable, "-m", "tests.server.hostile", port, token, str(seconds)]
    said: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as attacker:
        try:
            yield said
            said.append(attacker.communicate(timeout=600)[0])
        finally:
            if attacker.poll() is None:
                os.killpg(attacker.pid, signal.SIGKILL)


def hold_against(folder: Path, seconds: float, busy: float) -> None:
    """The other's answers come, at most twice as late as alone; memory, notes, charges and the next start are right."""
    database = make_clinic(folder, WIDE)
    tokens = add_principals(database)
    with serving(database, "--memory", MEMORY, "--seconds", "2") as server:
        bob = Working(server, tokens["bob"])
        bob.work(0)
        alone = bob.work(min(10.0, seconds / 4))
        with attacked(server, tokens["alice"], seconds) as said:
            time.sleep(3)
            beside = bob.work(seconds - 6)
            window, processes = resident(server.process.pid), children(server.process.pid)
            runners = [resident(process) for process in processes]
        tried = json.loads(said[0])
        assert {"heavy", "wide", "views", "releases", "plans", "attacks", "connections"} <= tried.keys(), tried
        late = {kind: (round(alone[kind], 3), round(beside[kind], 3)) for kind in alone}
        assert all(there <= 2 * here + busy for here, there in late.values()), late
        limits = Limits(memory=parse_size(MEMORY))
        assert window < limits.memory + BESIDE
        assert all(size < limits.runner_bytes + BESIDE_RUNNER + 2**28 for size in runners), runners
        start = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - start < 90
    assert verify_store(database) > 10
    notes = [json.loads(line) for line in (folder / "clinic_private_audit.jsonl").read_text().splitlines()]
    asked = sum(note["event"] == "asked" for note in notes)
    with dpduck.connect(database) as connection:
        charged = connection.execute("SELECT count(*) FROM dp_ledger() WHERE principal <> 'owner'").fetchall()
    assert 10 < charged[0][0] <= asked, "whatever was charged was noted before"
    with serving(database, "--memory", MEMORY) as server:
        again = Working(server, tokens["bob"])
        assert len(again.rows("SELECT * FROM ward_cube")) == 21
        assert len(again.rows(count("ward", "0.01"))) == 6
        assert server.stop() == 0


@needs_quack
def test_a_minute_of_a_hostile_principal(tmp_path: Path, state_directory: Path) -> None:
    """The other reads, joins, asks and attaches, and none of it fails."""
    hold_against(tmp_path, 45, BUSY)


@pytest.mark.audit
@needs_quack
def test_ten_minutes_of_a_hostile_principal(tmp_path: Path, state_directory: Path) -> None:
    """The same at length."""
    hold_against(tmp_path, 600, BUSY_IN_AN_AUDIT)
