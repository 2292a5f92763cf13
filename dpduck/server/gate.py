"""The gate: every statement of every client passes here, over whichever protocol it came, and leaves as SQL to run."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from dpduck.errors import DpduckError, Refusal
from dpduck.frontend.names import fold
from dpduck.server.audit import Audit
from dpduck.server.inspection import ANSWERS, Call, Inspected, inspect
from dpduck.server.limits import Limits
from dpduck.server.principals import Principal
from dpduck.server.syntax import Syntax
from dpduck.server.vault import Vault
from dpduck.server.window import Window, answer_name

UNEXPECTED = "an unexpected failure at the gate; nothing was answered; accepted: a report to dpduck's makers"
FREE = frozenset(
    (
        "explain", "budget", "ledger_entries", "list_policies", "list_releases", "list_sessions", "check", "stderr_of",
        "ratio_of",
    )
)  # fmt: skip
"""Actions that change nothing, which whoever looks for columns may have carried out."""
DESCRIBED = {"run": "describe", "ask": "describe_ask"}
"""For actions that charge or use a round up: the one that gives their columns alone."""

_QUESTIONS = ("select", "with", "from", "(")
_REMEMBERED, _REMEMBERED_LENGTH = 4_096, 20_000


class Told(DpduckError):
    """A refusal in the vault's words."""


class Gate:
    """Says what may run in the window, and asks the vault on the way; safe to use from many threads."""

    def __init__(self, vault: Vault, window: Window, audit: Audit, limits: Limits) -> None:
        self._vault = vault
        self._window = window
        self._audit = audit
        self._limits = limits
        self._syntax = Syntax()
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._known: OrderedDict[str, Inspected] = OrderedDict()
        self._syncing = threading.Lock()

    def admit(self, principal: Principal, text: str) -> str:
        """SQL for the window that gives what the principal asked for; a DpduckError says why not. Noted either way.

        It charges what the dp functions in the statement cost, before it returns.
        """
        charged: list[int] = []
        try:
            with self._turn(principal.name):
                sql = self._admitted(principal, text, charged)
        except DpduckError as error:
            self._audit.note(principal.name, "refused", text, charged=charged[-1] if charged else None, why=str(error))
            raise
        except Exception:
            self._audit.note(principal.name, "refused", text, why=UNEXPECTED)
            raise DpduckError(UNEXPECTED) from None
        self._audit.note(
            principal.name, "charged" if charged else "answered", text, charged=charged[-1] if charged else None
        )
        return sql

    def probe(self, principal: Principal, text: str) -> str:
        """SQL for the window with the columns that a statement would have, and no rows: it charges nothing."""
        inspected = self.inspected(text)
        with self._turn(principal.name):
            self._require_views(inspected)
            sql = inspected.sql
            for call in inspected.calls:
                if call.action not in DESCRIBED and call.action not in FREE:
                    raise Refusal(f"the columns of {call.function} are known once it was asked", accepted="to run it")
                described = replace(call, action=DESCRIBED.get(call.action, call.action))
                sql = sql.replace(call.mark, self._answered(principal, described, []))
        return f"SELECT * FROM ({sql}) LIMIT 0"

    def inspected(self, text: str) -> Inspected:
        """What the statement is made of; spends nothing and asks nobody."""
        with self._lock:
            known = self._known.get(text)
        if known is None:
            known = inspect(text, self._syntax, longest=self._limits.characters)
            if len(text) <= _REMEMBERED_LENGTH:
                with self._lock:
                    self._known[text] = known
                    if len(self._known) > _REMEMBERED:
                        self._known.popitem(last=False)
        return known

    def sync(self) -> None:
        """Brings the window's private views to what the vault has."""
        with self._syncing:
            present, wanted = self._window.marks(), self._vault.views()
            for name, mark in wanted.items():
                if present.get(fold(name)) != mark:
                    self._window.put_view(name, mark, self._vault.view(name))
            for name in present.keys() - {fold(name) for name in wanted}:
                self._window.drop_view(name)

    def _admitted(self, principal: Principal, text: str, charged: list[int]) -> str:
        inspected = self.inspected(text)
        rows = self._require_views(inspected)
        sql = inspected.sql
        for call in inspected.calls:
            sql = sql.replace(call.mark, self._answered(principal, call, charged))
        if inspected.plain and rows <= self._limits.rows:
            return sql
        return f"FROM {ANSWERS}.main.{answer_name(self._window.run(sql))}"

    def _require_views(self, inspected: Inspected) -> int:
        """How many rows the private views of a statement have; Refusal where one is not there."""
        rows = 0
        for view in inspected.views:
            size = self._window.size(view)
            if size is None:
                raise Refusal(f"there is no private view {view[:200]!r}", accepted="a name of dp_releases()")
            rows += size
        return rows

    def _answered(self, principal: Principal, call: Call, charged: list[int]) -> str:
        """The table that holds the answer to a dp function."""
        reply = self._vault.ask(principal.name, call.action, call.argument, self._limits.release_seconds)
        if reply.charged is not None:
            charged.append(reply.charged)
        if reply.key is None:
            raise Told(reply.refused or UNEXPECTED)
        if not self._window.has_answer(reply.key):
            self._window.put_answer(reply.key, self._vault.rows(reply.key, self._limits.rows))
        if call.action == "run" and not (call.argument or "").lstrip().lower().startswith(_QUESTIONS):
            self.sync()
        return answer_name(reply.key)

    @contextmanager
    def _turn(self, name: str) -> Iterator[None]:
        """A place among the statements at work; refused where they are too many."""
        with self._lock:
            if self._running.total() >= self._limits.running or self._running[name] >= self._limits.running_each:
                raise Refusal(
                    "too many statements at once",
                    accepted=f"{self._limits.running_each} at a time, {self._limits.running} of all principals",
                )
            self._running[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[name] -= 1
                if not self._running[name]:
                    del self._running[name]
