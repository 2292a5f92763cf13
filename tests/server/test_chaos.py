"""A served clinic under several principals while anything is killed, full, cut, swapped; then every certificate.

What must hold: the same statement has one answer for ever, no charge is lost, no share is exceeded, an older store is
refused, the server is back soon, and the checker finds nothing wrong. `make audit` runs two minutes of it;
DPDUCK_CHAOS_SECONDS=3600 an hour. The seed of what happens when is printed; when it happens is the machine's.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner

from dpduck.commands.command_line import main
from dpduck.engine.connection import verify_store
from dpduck.publish.postgres import load_extension
from dpduck.server.principals import PrincipalBook
from dpduck.trusted.ledger.secrets import SecretsFile
from dpduck.values.errors import StoreError
from tests.server.served import count, make_clinic
from tests.server.shell import EXTENSIONS, Server, eventually, needs_quack, start
from tests.server.test_crash import children
from tests.support.ports import free_port

PRINCIPALS, SHARE = 16, Fraction(1, 16)
STATEMENTS = 40
BACK = 30.0
"""Seconds within which the server is back on a machine that does other work too; the report has the figure itself."""
FILES = ("clinic_private.duckdb", "clinic_private.duckdb.wal")
POLICY = """CREATE PRIVACY POLICY ON visits (
    PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 100),
    DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 10, DOMAIN ward FROM wards.name
)"""


class Asking(threading.Thread):
    """A principal who asks on and on, attaches again when the connection is gone, and keeps every answer."""

    def __init__(self, chaos: Chaos, name: str, token: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.chaos, self.named, self.token, self.rng = chaos, name, token, np.random.default_rng(seed)
        self.answers: dict[str, list[tuple[object, ...]]] = {}
        self.changed: list[str] = []
        self.told: Counter[str] = Counter()
        self.asked = 0

    def run(self) -> None:
        connection = None
        while not self.chaos.over.is_set():
            try:
                connection = connection or self._attach()
                self._once(connection)
            except duckdb.Error as error:
                self.told[str(error).split("\n", 1)[0][:60]] += 1
                if connection is not None:
                    with suppress(duckdb.Error):
                        connection.close()
                connection = None
                time.sleep(1)
        if connection is not None:
            connection.close()

    def _attach(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(config={"threads": 1})
        for name in EXTENSIONS:
            load_extension(connection, name, "")
        connection.execute(f"ATTACH '{self.chaos.address}' AS clinic (TOKEN '{self.token}')")
        return connection

    def _once(self, connection: duckdb.DuckDBPyConnection) -> None:
        column = ("sex", "age", "ward")[self.rng.integers(3)]
        price = f"0.{self.rng.integers(1, STATEMENTS):03d}1"
        text = count(column, price)
        with connection.cursor() as cursor:
            rows = cursor.execute(f"FROM clinic.query($o$ {text} $o$)").fetchall()
        self.asked += 1
        if self.answers.setdefault(text, rows) != rows:
            self.changed.append(text)


class Chaos:
    """A server that is started again whenever it was ended, and what is done to it."""

    def __init__(self, database: Path, seed: int) -> None:
        self.database, self.address = database, f"quack:localhost:{free_port()}"
        self.over, self.rng = threading.Event(), np.random.default_rng(seed)
        self.done: Counter[str] = Counter()
        self.back: list[float] = []
        self.server: Server = start(database, address=self.address)

    def one(self) -> None:
        """Does one thing to the server, at random."""
        actions = (self.kill_child, self.kill_child, self.kill_server, self.full, self.cut, self.owner, self.swapped)
        action = actions[self.rng.integers(len(actions))]
        action()
        self.done[action.__name__] += 1

    def _processes(self) -> list[int]:
        found = children(self.server.process.pid)
        return [*found, *(grandchild for child in found for grandchild in children(child))]

    def kill_child(self) -> None:
        """Ends the vault, a worker or a runner."""
        with suppress(OSError):
            found = self._processes()
            if found:
                os.kill(found[self.rng.integers(len(found))], signal.SIGKILL)

    def kill_server(self) -> None:
        """Ends the server, whose vault ends with it; it is started again."""
        self._end()
        self._again()

    def swapped(self) -> None:
        """Puts an older copy of the store in its place: it is refused; with the newer one the server starts again."""
        room = self.database.parent / "older"
        self._end()
        now = {name: (self.database.parent / name) for name in FILES}
        if room.exists():
            kept = self.database.parent / "newer"
            kept.mkdir()
            for name, path in now.items():
                if path.exists():
                    shutil.move(path, kept / name)
                if (room / name).exists():
                    shutil.copy(room / name, path)
            command = [sys.executable, "-m", "dpduck.commands.command_line", "verify", str(self.database)]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            assert run.returncode == 1 and "older" in run.stderr, run.stdout + run.stderr
            for name, path in now.items():
                path.unlink(missing_ok=True)
                if (kept / name).exists():
                    shutil.move(kept / name, path)
            kept.rmdir()
        else:
            room.mkdir()
            for name, path in now.items():
                if path.exists():
                    shutil.copy(path, room / name)
        self._again()

    def full(self) -> None:
        """Lets the vault write no further for a moment, as on a full disk."""
        largest = max(path.stat().st_size for path in self.database.parent.iterdir() if path.is_file())
        limited = {}
        for process in children(self.server.process.pid):
            with suppress(OSError):
                limited[process] = resource.prlimit(process, resource.RLIMIT_FSIZE)
                resource.prlimit(process, resource.RLIMIT_FSIZE, (largest, limited[process][1]))
        time.sleep(1)
        for process, before in limited.items():
            with suppress(OSError):
                resource.prlimit(process, resource.RLIMIT_FSIZE, before)

    def cut(self) -> None:
        """Sends half of a message, and bytes that are none, and goes away."""
        for sent in (b"POST /quack HTTP/1.1\r\nContent-Length: 900\r\n\r\nabc", self.rng.bytes(200)):
            with (
                suppress(OSError),
                socket.create_connection(("localhost", int(self.address.rpartition(":")[2])), 5) as to,
            ):
                to.sendall(sent)

    def owner(self) -> None:
        """Publishes private views, or prepares the table, through the owner's door."""
        words = ["publish", "--to", str(self.database.parent / "published.duckdb")]
        words = words if self.rng.integers(2) else ["prepare"]
        command = [sys.executable, "-m", "dpduck.commands.command_line", words[0], str(self.database), *words[1:]]
        subprocess.run(command, capture_output=True, check=False, timeout=120)

    def _end(self) -> None:
        orphans = self._processes()
        self.server.stop(signal.SIGKILL)
        assert eventually(lambda: not any(Path(f"/proc/{one}/cmdline").exists() for one in orphans), BACK), "an orphan"
        for pipe in (self.server.process.stdout, self.server.process.stderr):
            if pipe is not None:
                pipe.close()

    def _again(self) -> None:
        """Starts the server; its vault, which ends by itself, may hold the store for a moment."""
        began = time.monotonic()
        while True:
            try:
                self.server = start(self.database, address=self.address)
                break
            except AssertionError:
                if time.monotonic() - began > BACK:
                    raise
                time.sleep(1)
        self.back.append(time.monotonic() - began)


def run_chaos(folder: Path, seconds: float) -> list[list[str]]:
    """Runs it for so long, and looks at everything afterwards; returns answers that changed, by who asked."""
    database = make_clinic(folder, POLICY)
    seed = int.from_bytes(os.urandom(4), "big")
    book = PrincipalBook(SecretsFile.open(database.with_name("clinic_private_secrets"), create=False))
    tokens = {f"p{number}": book.add(f"p{number}", SHARE) for number in range(PRINCIPALS)}
    chaos = Chaos(database, seed)
    asking = [Asking(chaos, name, token, seed + place) for place, (name, token) in enumerate(tokens.items())]
    try:
        for one in asking:
            one.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(float(chaos.rng.uniform(0.2, 3)))
            chaos.one()
    finally:
        chaos.over.set()
        chaos._end()  # whoever waits for it is told
        deadline = time.monotonic() + BACK
        for one in asking:
            one.join(max(0.1, deadline - time.monotonic()))
    answered = {(text, repr(rows)) for one in asking for text, rows in one.answers.items()}
    back = f"back after {max(chaos.back, default=0):.1f} s at most" if chaos.back else "never ended"
    asked = sum(one.asked for one in asking)
    sys.stdout.write(f"seed {seed}: {asked} answers, {len(answered)} releases, {dict(chaos.done)}, {back}\n")
    _require_whole(folder, database, answered)
    return [one.changed for one in asking if one.changed]


def _require_whole(folder: Path, database: Path, answered: set[tuple[str, str]]) -> None:
    """One answer for each statement, paid for once; shares and the budget hold; the checker finds nothing wrong."""
    texts = [text for text, _ in answered]
    assert len(texts) == len(set(texts)), "a statement has two answers"
    assert len(texts) > 3
    deadline = time.monotonic() + 60
    while True:
        try:
            entries = verify_store(database)
            break
        except (duckdb.IOException, StoreError):  # a vault that was orphaned ends by itself
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    assert entries >= len(texts)
    done = CliRunner().invoke(main, ["ledger", str(database), "--format", "csv"])
    rows = [line.split(",") for line in done.output.splitlines() if line and line[0].isdigit()]
    assert done.exit_code == 0 and len(rows) >= len(texts)
    found = CliRunner().invoke(main, ["certify", str(database), "--to", str(folder / "bundle")])
    assert found.exit_code == 0, found.output
    check = [sys.executable, "-I", str(folder / "bundle" / "check.py"), str(folder / "bundle")]
    run = subprocess.run(check, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    with duckdb.connect(str(database.with_name("clinic_private.duckdb")), read_only=True) as store:
        spent = store.execute(
            "SELECT principal, sum(CAST(split_part(epsilon, '/', 1) AS DOUBLE) / "
            "coalesce(nullif(TRY_CAST(split_part(epsilon, '/', 2) AS DOUBLE), 0), 1)) FROM dpduck.ledger_entries "
            "WHERE epsilon IS NOT NULL AND principal <> 'owner' GROUP BY ALL"
        ).fetchall()
    assert spent and all(amount <= 100 * float(SHARE) * (1 + 1e-9) for _, amount in spent), spent


@pytest.mark.audit
@needs_quack
def test_two_minutes_of_chaos(tmp_path: Path, state_directory: Path) -> None:
    """No answer changes, no charge is lost, no share is exceeded, and every certificate is whole."""
    changed = run_chaos(tmp_path, float(os.environ.get("DPDUCK_CHAOS_SECONDS", "120")))
    assert changed == [], "an answer that was another one the next time"
