"""A server that is killed in the middle of a release: nothing of the ledger is lost, nothing earlier either."""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

import dpduck
from dpduck.database.connection import verify_store
from dpduck.kernel.ledger.copies import POSITION
from dpduck.server import idle_vault, vault_client
from dpduck.server.gate import open_service
from dpduck.server.idle_vault import Keeping, begin_idle_vault
from dpduck.server.limits import Limits
from dpduck.server.vault_client import VaultProcess
from dpduck.values.errors import DpduckError
from tests.server.served import NoAudit, add_principals, count, make_clinic
from tests.server.shell import attach, eventually, needs_quack, serving, shell
from tests.support.processes import children


@contextmanager
def killed_after(seconds: float, process: int) -> Iterator[None]:
    """Kills the process at that time, or not where the block ended first. By descriptor, so never another one.

    A process that was killed is gone when the block is left.
    """
    descriptor = os.pidfd_open(process)
    killed = threading.Event()

    def kill() -> None:
        killed.set()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if killed.is_set():
            select.select([descriptor], [], [], 60)
        os.close(descriptor)


@pytest.mark.slow
def test_a_vault_that_is_killed_comes_back(tmp_path: Path, own_state: Path) -> None:
    """Killed while it answers: readers go on, waiting clients get an error, no charge is lost, answers stay free."""
    database = make_clinic(tmp_path)
    add_principals(database)
    before = verify_store(database)
    service = open_service(database, None, NoAudit(), Limits())
    try:
        bob, vault = service.book.find("bob"), service.vault
        assert isinstance(vault, VaultProcess)
        answers: dict[str, list[tuple[object, ...]]] = {}
        told: list[str] = []

        def ask(text: str) -> list[tuple[object, ...]]:
            sql = service.gate.admit(bob, text)
            with service.public.cursor() as cursor:
                return cursor.execute(sql).fetchall()

        for number in range(1, 5):
            text = count("age", f"0.0{number}")
            with killed_after(0.03 * number, vault._vault.process.pid) if number % 2 else nullcontext():
                try:
                    answers[text] = ask(text)
                except DpduckError as error:
                    told.append(str(error))
            assert ask("SELECT count(*) FROM ages") == [(10,)]  # the public database needs no vault
        assert all("ended" in line for line in told)
        assert {text: ask(text) for text in answers} == answers
    finally:
        service.close()
    assert len(answers) >= 1
    assert verify_store(database) >= before + len(answers)


@pytest.mark.slow
def test_a_vault_that_dies_costs_nobody_a_charge(tmp_path: Path, own_state: Path) -> None:
    """Killed between two charges and their answers: both clients are answered, for one charge each. Others wait.

    The killer's question runs alone when asked again: it can end only itself.
    """
    database = make_clinic(tmp_path)
    add_principals(database)
    service = open_service(database, None, NoAudit(), Limits(), keeping=Keeping(floor=6.0))
    try:
        vault = service.vault
        assert isinstance(vault, VaultProcess)
        first, before = vault._vault.process.pid, counter(tmp_path)
        rows: dict[str, int] = {}

        def ask(name: str, text: str) -> None:
            sql = service.gate.admit(service.book.find(name), text)
            with service.public.cursor() as cursor:
                rows[name] = len(cursor.execute(sql).fetchall())

        texts = {"bob": count("age", "0.01"), "alice": count("sex", "0.01")}
        threads = [threading.Thread(target=ask, args=one) for one in texts.items()]
        for thread in threads:
            thread.start()
        assert eventually(lambda: counter(tmp_path) >= before + 2, 60)  # charged; answers are held for six seconds
        time.sleep(1.0)
        os.kill(first, signal.SIGKILL)
        for thread in threads:
            thread.join()
        assert rows == {"bob": 10, "alice": 2} and vault._vault.process.pid != first
        for name, text in texts.items():
            ask(name, text)
    finally:
        service.close()
    with dpduck.connect(database) as connection:
        charged = connection.execute("SELECT principal, count(*) FROM dp_ledger() GROUP BY 1 ORDER BY 1").fetchall()
        left = connection.execute("SELECT count(*) FROM private.dpduck.unanswered").fetchall()
    assert dict(charged)["alice"] == dict(charged)["bob"] == 1 and left == [(0,)]


def test_interrupted_questions_are_asked_together_and_then_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five at once after the first death, so that nobody waits for the others. After the second, one at a time."""
    vault = VaultProcess.__new__(VaultProcess)
    vault._again = threading.Lock()
    times, together, at_work = Counter[str](), threading.Barrier(5), list[str]()
    most = 0

    def call(operation: str, principal: str, *given: object, patience: float) -> tuple[dict[str, object], None]:
        nonlocal most
        times[principal] += 1
        if times[principal] <= 2:
            together.wait(60)  # breaks unless all five are asked at once
            raise vault_client._Ended("ended")
        at_work.append(principal)
        most = max(most, len(at_work))
        time.sleep(0.02)
        at_work.remove(principal)
        return {"key": principal, "charged": None, "refused": None, "warning": ""}, None

    monkeypatch.setattr(vault, "_call", call)
    with ThreadPoolExecutor(5) as pool:
        replies = list(pool.map(lambda name: vault.ask(name, "run", "", 60.0).key, "abcde"))
    assert replies == list("abcde") and most == 1 and set(times.values()) == {3}


def counter(folder: Path) -> int:
    """Returns the number of the ledger's entries, from its counter outside the store."""
    with closing(sqlite3.connect(f"file:{folder / 'clinic_private_secrets'}?mode=ro", uri=True)) as secrets:
        (value,) = secrets.execute("SELECT value FROM secrets WHERE name = ?", [POSITION]).fetchone()
    return int(json.loads(value)["counter"])


@pytest.mark.slow
def test_a_process_that_waits_takes_the_place_of_a_vault(
    tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vault dies: a waiting process with all imports done opens the store, and another one begins to wait.

    If that one is killed too, a new process starts. No client notices either.
    """
    database = make_clinic(tmp_path)
    add_principals(database)
    monkeypatch.setattr(vault_client, "IDLE_AFTER", 0.0)
    vault = VaultProcess(database, idle=begin_idle_vault())
    try:
        vault.wait()
        for killed_too in (False, True):
            assert eventually(lambda: vault._idle is not None, 60)
            first, waiting = vault._vault.process, vault._idle
            assert waiting is not None and waiting.process.pid != first.pid
            for process in [first, waiting.process] if killed_too else [first]:
                process.kill()
                process.wait()
            assert vault.ask("bob", "budget", None, 60.0).key is not None
            assert (vault._vault.process is waiting.process) is not killed_too
        assert eventually(lambda: vault._idle is not None, 60)
        last = vault._idle
    finally:
        vault.close()
    assert vault._vault.process.returncode == 0 and last is not None and not last.alive, "nothing is left"


@pytest.mark.slow
def test_a_vault_that_answers_nothing_is_started_anew(tmp_path: Path, own_state: Path) -> None:
    """A vault that neither answers nor ends, as one without memory, is ended. Waiting clients are answered."""
    database = make_clinic(tmp_path)
    add_principals(database)
    vault = VaultProcess(database, watch=(0.5, 5.0))
    try:
        vault.wait()
        first = vault._vault.process
        time.sleep(7)
        assert vault._vault.process is first
        assert first.poll() is None, "one that is well goes on"
        os.kill(first.pid, signal.SIGSTOP)
        reply = vault.ask("bob", "budget", None, 60.0)
        assert reply.key is not None
        assert vault._vault.process is not first
        assert first.wait(10) == -signal.SIGKILL
    finally:
        vault.close()


@pytest.mark.slow
def test_a_vault_that_hears_nothing_holds_nobody_for_ever(
    tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the pipe holds is not sent for ever to a process that does not read it."""
    monkeypatch.setattr(idle_vault, "PATIENCE", 2.0)
    database = make_clinic(tmp_path)
    add_principals(database)
    vault = VaultProcess(database)
    try:
        vault.wait()
        first = vault._vault.process
        os.kill(first.pid, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as asking:
            asked = asking.submit(vault.ask, "bob", "explain", "x" * 10_000_000, 60.0)
            try:
                refused = asked.result(50).refused
            finally:
                if not asked.done():
                    first.kill()  # whoever waits for ever is let go
        assert refused is not None
        assert "characters" in refused
        assert vault._vault.process is not first
    finally:
        vault.close()


@pytest.mark.slow
@needs_quack
def test_a_server_that_is_killed_comes_back(tmp_path: Path, own_state: Path) -> None:
    """kill -9 of the server while a shell waits: its vault ends too, a new one has every charge and every answer."""
    database = make_clinic(tmp_path)
    token = add_principals(database)["bob"]
    first = f"FROM clinic.query($o$ {count('ward', '0.05')} $o$);\n"
    with serving(database) as server:
        answered, err = shell(attach(server.address, token) + first)
        assert err == "" and "ward,n" in answered
        vaults = [os.pidfd_open(child) for child in children(server.process.pid)]
        assert vaults
        with killed_after(0.2, server.process.pid):
            shell(attach(server.address, token) + f"FROM clinic.query($o$ {count('age', '0.07')} $o$);\n")
            server.process.kill()
            server.process.wait()
        for vault in vaults:
            readable, _, _ = select.select([vault], [], [], 60)
            assert readable, "the vault outlived its public database"
            os.close(vault)
    charged = verify_store(database)
    with serving(database) as server:
        assert shell(attach(server.address, token) + first) == (answered, "")
    assert verify_store(database) == charged


EXITS = """
import atexit, ctypes, os, sys, threading, time
from dpduck.server.vault_process import end_at_once
library = ctypes.CDLL(None)
library.on_exit(ctypes.cast(library.pause, ctypes.c_void_p), None)  # a handler of a library's that waits for ever
if sys.argv[1] == "mended":
    end_at_once()
threading.Thread(target=library.exit, args=(3,), daemon=True).start()
time.sleep(60)
"""


@pytest.mark.slow
def test_a_library_that_calls_exit_ends_the_vault(tmp_path: Path) -> None:
    """A handler that waits for ever keeps no process that neither answers nor ends. Without the mend it does."""
    script = tmp_path / "exits.py"
    script.write_text(EXITS)
    command = [sys.executable, str(script)]
    assert subprocess.run([*command, "mended"], check=False, timeout=60).returncode == 3
    with subprocess.Popen([*command, "as it was"]) as waits:
        with pytest.raises(subprocess.TimeoutExpired):
            waits.wait(timeout=5)
        waits.kill()
