"""Alerts for the owner: one line for each event that somebody should see, in the audit log and on standard error.

An alert is given once when its condition begins, and again only after the condition has ended. A restarted server gives
an alert once more if its condition still holds.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from dpduck.server.audit import Audit
from dpduck.server.operations.figures import Figures
from dpduck.store.spending import NEARLY_SPENT
from dpduck.values.errors import StoreError
from dpduck.values.per_cent import in_per_cent

MINUTE, MANY_TURNED_AWAY = 60.0, 30
"""Log-ins that are refused within a minute, from which there is an alert."""

LEAST_FREE = 256 * 2**20
"""Bytes of the store's disk below which there is an alert. A charge that cannot be written is refused."""

WEEK = timedelta(days=7)


def print_line(line: str) -> None:
    """Writes a line to standard error, for the system's log."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


class Alerts:
    """Alerts of one server. One thread looks at its figures."""

    def __init__(
        self,
        audit: Audit,
        complain: Callable[[str], None] = print_line,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._audit, self._complain, self._clock = audit, complain, clock
        self._standing: set[str] = set()
        self._restarts = 0
        self._turned_away: deque[tuple[float, int]] = deque()

    def look(self, figures: Figures, now: datetime | None = None) -> None:
        """Gives the alerts that begin with these figures."""
        self._look_at_budgets(figures)
        if figures.restarts > self._restarts:
            self._restarts = figures.restarts
            self._give("vault", f"the vault was restarted, {figures.restarts} times since the server started")
        self._look_at_log_ins(figures.events.get("turned away", 0))
        free = figures.free_bytes
        if free is not None:
            what = f"the disk of the store has {free // 2**20} MiB left: charges that cannot be written are refused"
            self._stand("disk", "disk", free < LEAST_FREE, free >= 2 * LEAST_FREE, what)
        for name, until in figures.ends.items():
            is_near = until - (now or datetime.now(UTC)) <= WEEK
            what = f"the token of {name} ends at {until.isoformat()}"
            self._stand(f"token {name} {until.isoformat()}", "token", is_near, not is_near, what)

    def _look_at_budgets(self, figures: Figures) -> None:
        for unit, share in figures.spending.items():
            said = f"the budget of {unit}: {in_per_cent(Fraction(share), up=False)} is spent"
            spent, nearly = share >= 1, share >= NEARLY_SPENT
            self._stand(f"all of {unit}", "budget", spent, not spent, f"the budget of {unit}: all of it is spent")
            self._stand(f"most of {unit}", "budget", nearly and not spent, not nearly, said)

    def _look_at_log_ins(self, total: int) -> None:
        now = self._clock()
        self._turned_away.append((now, total))
        while len(self._turned_away) > 1 and now - self._turned_away[1][0] >= MINUTE:
            self._turned_away.popleft()
        times = total - self._turned_away[0][1]
        self._stand("log-ins", "log-in", times >= MANY_TURNED_AWAY, not times, f"{times} log-ins in a minute refused")

    def _stand(self, key: str, kind: str, begins: bool, ends: bool, what: str) -> None:
        """Gives an alert if its condition begins, and takes note of its end."""
        if begins and key not in self._standing:
            self._standing.add(key)
            self._give(kind, what)
        elif ends:
            self._standing.discard(key)

    def _give(self, kind: str, what: str) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._complain(json.dumps({"at": at, "alert": kind, "why": what}))
        with suppress(StoreError):  # standard error has it, if the log cannot be written
            self._audit.note(None, "alert", why=f"{kind}: {what}")
