"""The audit log: no action happens that cannot be noted, nobody fills the log, and it can be rotated."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from dpduck.kernel.ledger.secrets import SecretsInMemory
from dpduck.server.audit import MOST_BYTES, MOST_NOTES, MOST_REFUSED, MOST_TEXT, MOST_TURNED_AWAY, AuditFile
from dpduck.server.gate import UNEXPECTED
from dpduck.server.limits import Limits
from dpduck.server.principals import PrincipalBook
from dpduck.server.sessions import Sessions
from dpduck.values.errors import PermissionRefusal, Refusal, StoreError
from tests.server.served import CANARY, Served, count, open_served

FULL = "the audit log cannot be written, so nothing is done"


class Disk:
    """Room for so many bytes more, which writing uses up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        write = os.write

        def bounded(descriptor: int, data: bytes) -> int:
            if not data[: self.room]:
                raise OSError(errno.ENOSPC, "full")
            written = write(descriptor, data[: self.room])
            self.room -= written
            return written

        monkeypatch.setattr("dpduck.server.audit.os.write", bounded)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_nothing_is_charged_that_cannot_be_noted(
    tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk all clients get the same true sentence, as does stderr. With room again everything goes on."""
    opened = open_served(tmp_path)
    try:
        disk = Disk(monkeypatch, 0)
        for who, text in (("bob", count("sex", "0.01")), ("alice", "FROM ages"), ("carol", "FROM dp_budget()")):
            assert opened.refused(who, text) == f"{FULL}; accepted: the same statement when the owner has made room"
        assert opened.refused("bob", "FROM nosuch").startswith("there is no private view"), "refused all the same"
        disk.room = 10**9
        assert len(opened.rows("bob", count("sex", "0.01"))) == 2
        assert [line["event"] for line in opened.audited()] == ["asked", "charged"]
        disk.room = len(json.dumps(opened.audited()[0])) + 40  # for one note, not for two
        spent = opened.spent()
        with pytest.raises(StoreError, match=FULL):
            opened.rows("bob", count("ward", "0.01"))
        assert len(opened.spent()) == len(spent) + 1 and opened.audited()[-1]["event"] == "asked"
    finally:
        opened.service.close()


def test_a_line_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line is taken back. Complaints come once a minute."""
    said, now = list[str](), [0.0]
    log = AuditFile(tmp_path / "log", clock=lambda: now[0], complain=said.append)
    log.note("bob", "answered", "FROM ages")
    disk = Disk(monkeypatch, 50)
    for _ in range(3):
        with pytest.raises(StoreError, match=FULL):
            log.note("bob", "asked", "x" * 100)
    assert len(lines(tmp_path / "log")) == 1
    assert said == [f"{FULL}: {tmp_path / 'log'} ({os.strerror(errno.ENOSPC)})"]
    disk.room = 10**6
    log.note("bob", "asked", "x" * 100)
    assert [line["event"] for line in lines(tmp_path / "log")] == ["answered", "asked"]
    log.close()


def test_nobody_fills_the_log(tmp_path: Path) -> None:
    """Texts give way to digests, then notes to their number. Charges are always noted, and so are others' notes."""
    now = [0.0]
    path = tmp_path / "log"
    log = AuditFile(path, clock=lambda: now[0])
    for _ in range(MOST_NOTES + 500):
        log.note("mallory", "refused", "x" * 99_000, why="no")
    for _ in range(1_000):
        log.note(None, "turned away", why="no such token")
    log.note("mallory", "charged", "y" * 99_000, charged=7)
    log.note("bob", "answered", "z" * 20_000)
    noted = lines(path)
    assert path.stat().st_size < 2 * MOST_BYTES + 300 * MOST_NOTES
    assert len(noted[0]["statement"]) == MOST_REFUSED and "statement_sha256" in noted[MOST_NOTES - 1]
    assert sum(line["principal"] is None for line in noted) == MOST_TURNED_AWAY
    assert noted[-2]["ledger_id"] == "7" and len(noted[-1]["statement"]) == MOST_TEXT
    now[0] = 61.0
    log.note("mallory", "answered", "FROM ages")
    log.close()
    counted = [(line["principal"], line["times"]) for line in lines(path) if line["event"] == "more of these"]
    assert counted == [("mallory", 500), (None, 1_000 - MOST_TURNED_AWAY)]


def test_the_log_is_rotated(tmp_path: Path) -> None:
    """Moved away and opened again, it goes on in a new file that only its owner can read."""
    path = tmp_path / "log"
    log = AuditFile(path)
    log.note("bob", "answered")
    path.rename(tmp_path / "log.1")
    log.note("bob", "answered")
    log.reopen()
    log.note("carol", "answered")
    log.close()
    assert len(lines(tmp_path / "log.1")) == 2 and [line["principal"] for line in lines(path)] == ["carol"]
    assert path.stat().st_mode & 0o077 == 0


def test_sessions_of_one_do_not_end_others() -> None:
    """A principal's own oldest connection is forgotten first. Only so many are opened in a minute."""
    book, now = PrincipalBook(SecretsInMemory()), [0.0]
    alice, bob = book.add("alice"), book.add("bob")
    sessions = Sessions(book, Limits(sessions=20, sessions_each=5, connections=8), clock=lambda: now[0])
    sessions.begin("of bob", bob)
    for number in range(8):
        sessions.begin(f"of alice {number}", alice)
    assert sessions.principal("of bob").name == "bob"
    for number in range(3):
        with pytest.raises(PermissionRefusal, match="not known any longer"):
            sessions.principal(f"of alice {number}")
    assert sessions.principal("of alice 3").name == "alice"
    with pytest.raises(Refusal, match="alice opens too many connections; accepted: 8 in a minute"):
        sessions.begin("one more", alice)
    now[0] = 61.0
    sessions.begin("one more", alice)
    assert sessions.principal("of alice 3").name == "alice", "just used"
    with pytest.raises(PermissionRefusal):
        sessions.principal("of alice 4")


def test_the_store_is_its_owners(served: Served) -> None:
    """Its ledger says who asked what: nobody else on the machine reads it, nor the log, nor the secrets."""
    for path in served.database.parent.glob("*_private*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert served.log.stat().st_mode & 0o077 == 0


def test_what_was_unexpected_is_named_without_its_words(
    tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reads one fixed text, the owner the kind of failure and its line: its message could quote data."""
    opened = open_served(tmp_path)

    def failing(*_: object) -> str:
        raise KeyError(CANARY)

    try:
        monkeypatch.setattr(type(opened.service.gate), "_admit_statement", failing)
        assert opened.refused("bob", "FROM ages") == UNEXPECTED
        why = opened.audited()[-1]["why"]
        assert re.fullmatch(f"{re.escape(UNEXPECTED)}: KeyError at test_audit.py:[0-9]+", why) and CANARY not in why
    finally:
        opened.service.close()
