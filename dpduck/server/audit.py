"""Audit log: who, when, which statement, its charge or refusal, and never an answer. Each line is one JSON object."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from dpduck.values.errors import StoreError

MOST_TEXT, MOST_REFUSED = 10_000, 500
"""The largest number of characters of a statement in one line, and of a refused statement."""

MINUTE = 60.0
MOST_NOTES, MOST_TURNED_AWAY, MOST_BYTES = 6_000, 60, 1_000_000
"""Limits per minute: lines of one principal, lines of all unknown clients, and bytes of either. Further events are only
counted, and statements beyond the bytes become digests."""

MOST_OF_PAGES = 600
"""Limit per minute for statements that a page sends by itself, which do not use up a principal's lines."""

ALWAYS = frozenset(("asked", "charged", "connected", "disconnected", "alert"))
UNWRITTEN = "the audit log cannot be written, so nothing is done"


def kind_of(error: BaseException) -> str:
    """Returns the class of an unexpected error and its line of code, which hold no data, unlike the error's text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return f"{type(error).__name__}{place}"


class Audit(Protocol):
    """Log of events."""

    def note(
        self, principal: str | None, event: str, statement: str = "", *,
        charged: int | None = None, why: str = "", page: bool = False,
    ) -> None:  # fmt: skip
        """Logs an event: connected, disconnected, turned away, asked, answered, charged, warned, refused or alert.

        charged: the ledger entry. page: whether the page itself sent the statement, and nobody typed it. The event
        "asked" comes before any charge. If it cannot be written, StoreError is raised and nothing is charged.
        """

    def counts(self) -> Mapping[str, int]:
        """Returns the number of events of each kind since the start. Events beyond the limits count as well."""

    def reopen(self) -> None:
        """Continues in a new file of the same name, after the present file was moved away."""

    def close(self) -> None: ...


@dataclass
class _Minute:
    began: float
    notes: int = 0
    bytes: int = 0
    skipped: int = 0


class AuditFile:
    """Audit log in a file that only its owner can read. If an event cannot be written, its statement is refused."""

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
        self._counts: Counter[str] = Counter()
        self._complained = -MINUTE
        self._descriptor = self._open_file()

    def note(
        self, principal: str | None, event: str, statement: str = "", *,
        charged: int | None = None, why: str = "", page: bool = False,
    ) -> None:  # fmt: skip
        with self._lock:
            self._counts[event] += 1
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

    def counts(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._counts)

    def reopen(self) -> None:
        with self._lock:
            descriptor = self._open_file()
            os.close(self._descriptor)
            self._descriptor = descriptor

    def close(self) -> None:
        with self._lock:
            for (principal, page), minute in self._minutes.items():
                self._note_skipped(principal, page, minute)
            os.close(self._descriptor)

    def _minute(self, principal: str | None, page: bool) -> _Minute:
        now = self._clock()
        minute = self._minutes.get((principal, page))
        if minute is None or now - minute.began >= MINUTE:
            if minute is not None:
                self._note_skipped(principal, page, minute)
            minute = self._minutes[principal, page] = _Minute(now)
        return minute

    def _note_skipped(self, principal: str | None, page: bool, minute: _Minute) -> None:
        if minute.skipped:
            try:
                line: dict[str, object] = {"principal": principal, "event": "more of these", "times": minute.skipped}
                self._write(line | ({"page": True} if page else {}))
            except StoreError:
                return  # the refusal of a statement says that the log cannot be written
            minute.skipped = 0

    def _write(self, line: dict[str, object]) -> int:
        """Writes a whole line or nothing, and returns its length in bytes."""
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

    def _open_file(self) -> int:
        try:
            return os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        except OSError as error:
            raise StoreError(
                f"the audit log cannot be written: {os.strerror(error.errno or 0)}; accepted: --audit FILE elsewhere"
            ) from None
