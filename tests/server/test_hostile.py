"""One principal does everything at once that could take the service from the others, while another one works."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.commands.listening import BESIDE
from dpduck.database.connection import verify_store
from dpduck.publish.extensions import load_extension
from dpduck.server.limits import Limits, parse_size
from dpduck.server.runners import BESIDE as BESIDE_RUNNER
from tests.server.served import add_principals, count, make_clinic
from tests.server.shell import EXTENSIONS, Server, needs_quack, serving
from tests.server.test_quotas import WIDE
from tests.server.test_runners import resident
from tests.support.processes import children

ROOT = Path(__file__).resolve().parent.parent.parent
MEMORY, SECONDS = "400MB", 2
BUSY, BUSY_IN_AN_AUDIT = 1.0, 0.1
"""Seconds by which anything may be later than twice as late. What takes milliseconds alone waits for what is at work
when it comes, and on a machine that others use as well for them; the audit has the machine to itself. The grid of times
needs no allowance: its points double, so that a release which is computed twice as long is answered at most twice as
late."""

BLOCK, SHORT_BLOCK = 6.0, 3.0
"""Seconds with the attacker at work, then so many without, in turn: what else the machine does is alike in both. Short
ones where no more is asked than that everything is answered."""


class Working:
    """A principal at work: the times of reading, joining, asking and attaching. None may fail."""

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

    def work(self, seconds: float, took: dict[str, list[float]]) -> None:
        """Once at least, and again for so long."""
        end = time.monotonic() + seconds
        self.once(took)
        while time.monotonic() < end:
            self.once(took)


class Attacker:
    """The hostile principal's own process, at a lower priority than the server's, as if on a machine of its own.

    It is in the session of the server, since Linux may weigh sessions against each other, whatever their priorities.
    """

    def __init__(self, server: Server, token: str, seconds: float) -> None:
        port = server.address.rpartition(":")[2]
        command = [sys.executable, "-m", "tests.server.hostile", port, token, str(seconds)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, process_group=0)
        os.setpriority(os.PRIO_PROCESS, self.process.pid, 19)

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        self.go_on()
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: int) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)


@contextmanager
def attacked(server: Server, token: str, seconds: float) -> Iterator[Attacker]:
    """Runs beside an attacker, who lists its attempts at its end."""
    attacker = Attacker(server, token, seconds)
    try:
        with attacker.process:
            yield attacker
    finally:
        attacker.end()


def nothing_yet() -> dict[str, list[float]]:
    return {kind: [] for kind in ("read", "join", "ask", "known", "attach")}


def require_bounds(sizes: list[int], limits: Limits) -> None:
    """Runners stay below their limit. The vault, the largest, has copies of its last releases: five million rows."""
    *runners, vault = sorted(sizes)
    assert all(size < limits.runner_bytes + BESIDE_RUNNER + 2**28 for size in runners), runners
    assert vault < 2**30, vault


def require_start(database: Path, token: str) -> None:
    """The server starts again, with its views, and repeats its earlier answers."""
    with serving(database, "--memory", MEMORY) as server:
        again = Working(server, token)
        assert len(again.rows("SELECT * FROM ward_cube")) == 21
        assert len(again.rows(count("ward", "0.01"))) == 6
        assert server.stop() == 0


def hold_against(folder: Path, seconds: float, busy: float, block: float = BLOCK) -> int:
    """The other's answers come, at most twice as late as alone. Memory, notes, charges and the next start are right.

    Returns how often the other was looked at beside the attacker.
    """
    database = make_clinic(folder, WIDE)
    tokens = add_principals(database)
    with serving(database, "--memory", MEMORY, "--seconds", str(SECONDS)) as server:
        bob = Working(server, tokens["bob"])
        bob.work(0, nothing_yet())
        alone, beside = nothing_yet(), nothing_yet()
        start, rounds = time.monotonic(), 0
        with attacked(server, tokens["alice"], seconds) as attacker:
            while time.monotonic() - start < seconds - block or rounds < 3:
                attacker.go_on()
                time.sleep(1)
                bob.work(block, beside)
                window, processes = resident(server.process.pid), children(server.process.pid)
                processes_of_it = [
                    resident(process) for process in processes if Path(f"/proc/{process}/statm").exists()
                ]
                attacker.stop()
                time.sleep(SECONDS + 1)  # until its statements are over
                bob.work(block / 2, alone)
                rounds += 1
            attacker.go_on()
            tried = json.loads(attacker.process.communicate(timeout=600)[0])
        assert {"heavy", "wide", "views", "releases", "bare", "plans", "attacks", "connections"} <= tried.keys(), tried
        medians = {kind: (statistics.median(alone[kind]), statistics.median(beside[kind])) for kind in alone}
        late = {kind: (round(here, 3), round(there, 3)) for kind, (here, there) in medians.items()}
        assert all(there <= 2 * here + busy for here, there in late.values()), late
        print(late)  # noqa: T201
        limits = Limits(memory=parse_size(MEMORY))
        assert window < limits.memory + BESIDE
        require_bounds(processes_of_it, limits)
        start = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - start < 90
    assert verify_store(database) > 10
    notes = [json.loads(line) for line in (folder / "clinic_private_audit.jsonl").read_text().splitlines()]
    asked = sum(note["event"] == "asked" for note in notes)
    with dpduck.connect(database) as connection:
        charged = connection.execute("SELECT count(*) FROM dp_ledger() WHERE principal <> 'owner'").fetchall()
    assert 3 < charged[0][0] <= asked, "whatever was charged was noted before"
    require_start(database, tokens["bob"])
    return rounds


@pytest.mark.slow
@needs_quack
def test_statements_that_wait_cost_no_processor(tmp_path: Path, own_state: Path) -> None:
    """While statements wait for a place the server does nothing: DuckDB's threads do not look again and again."""
    database = make_clinic(tmp_path)
    tokens = add_principals(database)
    with serving(database, "--seconds", "4") as server:
        clients = [Working(server, tokens["alice"]) for _ in range(6)]

        def ask(client: Working) -> None:
            with suppress(duckdb.Error):
                client.rows("SELECT sum(hash(a.range)) FROM range(3000000000) AS a")

        threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        time.sleep(1)
        before = used(server.process.pid)
        time.sleep(2.5)
        spent = used(server.process.pid) - before
        for thread in threads:
            thread.join()
        assert spent < 0.5, "a thread that spins takes most of a processor"
        assert server.stop() == 0


def used(process: int) -> float:
    """Seconds of processors that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@needs_quack
def test_ten_seconds_of_a_hostile_principal(tmp_path: Path, state_directory: Path) -> None:
    """The other reads, joins, asks and attaches, and nothing fails."""
    assert hold_against(tmp_path, 10, BUSY, SHORT_BLOCK) >= 3


@pytest.mark.audit
@needs_quack
def test_ten_minutes_of_a_hostile_principal(tmp_path: Path, state_directory: Path) -> None:
    """The test above, for ten minutes."""
    assert hold_against(tmp_path, 600, BUSY_IN_AN_AUDIT) >= 3
