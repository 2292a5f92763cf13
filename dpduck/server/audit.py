"""The audit log: who, when, which statement, charged or refused and why; never an answer. One JSON object a line."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from dpduck.errors import StoreError

MOST_TEXT = 10_000


class Audit(Protocol):
    """Where what happened is noted."""

    def note(
        self, principal: str | None, event: str, statement: str = "", *, charged: int | None = None, why: str = ""
    ) -> None:
        """event: connected, turned away, answered, charged, refused. charged: the ledger's entry."""

    def close(self) -> None: ...


class AuditFile:
    """An audit log in a file that only its owner can read; what cannot be noted is not done."""

    def __init__(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        except OSError as error:
            raise StoreError(f"the audit log cannot be written ({type(error).__name__})") from None
        self._file = os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace", buffering=1)
        self._lock = threading.Lock()

    def note(
        self, principal: str | None, event: str, statement: str = "", *, charged: int | None = None, why: str = ""
    ) -> None:
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "principal": principal, "event": event}
        if statement:
            line["statement"] = statement[:MOST_TEXT]
        if charged is not None:
            line["ledger_id"] = str(charged)
        if why:
            line["why"] = why[:MOST_TEXT]
        with self._lock:
            self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        with self._lock:
            self._file.close()


class NoAudit:
    """For tests that look elsewhere."""

    def note(
        self, principal: str | None, event: str, statement: str = "", *, charged: int | None = None, why: str = ""
    ) -> None: ...

    def close(self) -> None: ...
