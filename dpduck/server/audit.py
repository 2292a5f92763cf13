"""The audit log: who, when, which statement, charged or refused and why; never an answer. One JSON object a line."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from dpduck.values.errors import StoreError

MOST_TEXT, MOST_REFUSED = 10_000, 500
"""Characters of a statement that was answered, and of one that was refused."""

MINUTE = 60.0
MOST_NOTES, MOST_TURNED_AWAY, MOST_BYTES = 6_000, 60, 1_000_000
"""Of one principal, or of all who are nobody, in a minute: what is more is counted; texts give way to their digests."""

MOST_OF_PAGES = 600
"""Of one principal in a minute, of what pages ask of themselves: apart, so that none takes a statement's room."""

ALWAYS = frozenset(("asked", "charged", "connected", "disconnected"))
UNWRITTEN = "the audit log cannot be written, so nothing is done"


def kind_of(error: BaseException) -> str:
    """Names what was unexpected and the line of code where it came up; neither can hold data, as its words can."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return f"{type(error).__name__}{place}"


class Audit(Protocol):
    """Where what happened is noted."""

    def note(
        self, principal: str | None, event: str, statement: str = "", *,
        charged: int | None = None, why: str = "", page: bool = False,
    ) -> None:  # fmt: skip
        """event: connected, disconnected, turned away, asked, answered, charged, refused. charged: the ledger's entry.
        page: whether a page asked this of itself.

        Asked is noted before anything can be charged: StoreError where that is impossible, and nothing is.
        """

    def reopen(self) -> None:
        """Goes on in a new file of the same name: the present one was moved away."""

    def close(self) -> None: ...


@dataclass
class _Minute:
    """What was noted of one principal in the present minute."""

    began: float
    notes: int = 0
    bytes: int = 0
    skipped: int = 0


class AuditFile:
    """An audit log in a file that only its owner can read; what cannot be noted is not done."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        complain: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201
    ) -> None:
        self._path, self._clock, self._complain = path, clock, complain
        self._lock = threading.Lock()
        self._minutes: dict[tuple[str | None, bool], _Minute] = {}
        self._complained = -MINUTE
        self._descriptor = self._opened()

    def note(
        self, principal: str | None, event: str, statement: str = "", *,
        charged: int | None = None, why: str = "", page: bool = False,
    ) -> None:  # fmt: skip
        with self._lock:
            minute = self._minute(principal, page)
            most_notes = MOST_OF_PAGES if page else MOST_TURNED_AWAY if principal is None else MOST_NOTES
            if event not in ALWAYS and minute.notes >= most_notes:
                minute.skipped += 1
                return
            line: dict[str, object] = {"principal": principal, "event": event, **({"page": True} if page else {})}
            most = MOST_REFUSED if event == "refused" else MOST_TEXT
            if statement and minute.bytes < MOST_BYTES:
                line["statement"] = statement[:most]
            elif statement:
                line["statement_sha256"] = hashlib.sha256(statement.encode("utf-8", "surrogatepass")).hexdigest()
            if charged is not None:
                line["ledger_id"] = str(charged)
            if why:
                line["why"] = why[:most]
            minute.bytes += self._write(line)
            minute.notes += 1

    def reopen(self) -> None:
        with self._lock:
            descriptor = self._opened()
            os.close(self._descriptor)
            self._descriptor = descriptor

    def close(self) -> None:
        with self._lock:
            for (principal, page), minute in self._minutes.items():
                self._note_skipped(principal, page, minute)
            os.close(self._descriptor)

    def _minute(self, principal: str | None, page: bool) -> _Minute:
        now = self._clock()
        found = self._minutes.get((principal, page))
        if found is None or now - found.began >= MINUTE:
            if found is not None:
                self._note_skipped(principal, page, found)
            found = self._minutes[principal, page] = _Minute(now)
        return found

    def _note_skipped(self, principal: str | None, page: bool, minute: _Minute) -> None:
        if minute.skipped:
            try:
                line: dict[str, object] = {"principal": principal, "event": "more of these", "times": minute.skipped}
                self._write(line | ({"page": True} if page else {}))
            except StoreError:
                return  # that it cannot be written is said where a statement is refused
            minute.skipped = 0

    def _write(self, line: dict[str, object]) -> int:
        """Writes a line whole or not at all."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        data = (json.dumps({"at": at, **line}) + "\n").encode("utf-8", "backslashreplace")
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            if written:
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            now = self._clock()
            if now - self._complained >= MINUTE:
                self._complained = now
                self._complain(f"{UNWRITTEN}: {self._path} ({os.strerror(error.errno or 0)})")
            raise StoreError(f"{UNWRITTEN}; accepted: the same statement when the owner has made room") from None
        return len(data)

    def _opened(self) -> int:
        try:
            return os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        except OSError as error:
            raise StoreError(
                f"the audit log cannot be written: {os.strerror(error.errno or 0)}; accepted: --audit FILE elsewhere"
            ) from None
