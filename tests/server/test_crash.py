"""A server that is killed in the middle of a release: nothing of the ledger is lost, nothing earlier either."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from dpduck.edges.connection import verify_store
from dpduck.errors import DpduckError
from dpduck.server.audit import NoAudit
from dpduck.server.house import open_house
from dpduck.server.limits import Limits
from dpduck.server.vault_client import VaultProcess
from tests.server.served import add_principals, count, make_clinic
from tests.server.shell import attach, needs_quack, serving, shell


@contextmanager
def killed_after(seconds: float, process: int) -> Iterator[None]:
    """Kills the process at that time, or not where the block ended first; by descriptor, so never another one.

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


def test_a_vault_that_is_killed_comes_back(tmp_path: Path, state_directory: Path) -> None:
    """Killed while it answers: readers go on, who waits is told, no charge is lost, what was answered stays free."""
    database = make_clinic(tmp_path)
    add_principals(database)
    before = verify_store(database)
    house = open_house(database, None, NoAudit(), Limits())
    try:
        bob, vault = house.book.named("bob"), house.vault
        assert isinstance(vault, VaultProcess)
        answers: dict[str, list[tuple[object, ...]]] = {}
        told: list[str] = []

        def ask(text: str) -> list[tuple[object, ...]]:
            sql = house.gate.admit(bob, text)
            with house.window.cursor() as cursor:
                return cursor.execute(sql).fetchall()

        for number in range(1, 5):
            text = count("age", f"0.0{number}")
            with killed_after(0.03 * number, vault.process_id) if number % 2 else nullcontext():
                try:
                    answers[text] = ask(text)
                except DpduckError as error:
                    told.append(str(error))
            assert ask("SELECT count(*) FROM ages") == [(10,)]  # the window needs no vault
        assert all("ended" in line for line in told)
        assert {text: ask(text) for text in answers} == answers
    finally:
        house.close()
    assert len(answers) >= 1
    assert verify_store(database) >= before + len(answers)


def children(process: int) -> list[int]:
    """The processes that this one started."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@needs_quack
def test_a_server_that_is_killed_comes_back(tmp_path: Path, state_directory: Path) -> None:
    """kill -9 of the window while a shell waits: its vault ends too, a new server has every charge and every answer."""
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
            assert readable, "the vault outlived its window"
            os.close(vault)
    charged = verify_store(database)
    with serving(database) as server:
        assert shell(attach(server.address, token) + first) == (answered, "")
    assert verify_store(database) == charged
