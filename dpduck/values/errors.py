"""Errors of dpduck. Each message is a single line that names the problem, its place, and accepted alternatives."""

from __future__ import annotations

from dataclasses import dataclass

NOTHING_PRIVATE = "no table with a privacy policy is read"


class DpduckError(Exception):
    """Base of every error that dpduck raises. Its text never contains private data."""

    entry: int | None = None  # number of the ledger's entry, if the failed call had paid for a release


@dataclass(frozen=True)
class Position:
    """Place in a statement. Lines and columns count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class Refusal(DpduckError):
    """Refusal of a statement from public facts alone, before anything was charged.

    >>> str(Refusal("DISTINCT is refused", accepted="count(*)", position=Position(1, 8)))
    'line 1, column 8: DISTINCT is refused; accepted: count(*)'
    """

    def __init__(self, what: str, *, accepted: str = "", position: Position | None = None) -> None:
        self.what = what
        self.accepted = accepted
        self.position = position
        super().__init__(self._text())

    def _text(self) -> str:
        where = f"{self.position}: " if self.position is not None else ""
        way_out = f"; accepted: {self.accepted}" if self.accepted else ""
        return " ".join(f"{where}{self.what}{way_out}".split())

    def at(self, position: Position | None) -> Refusal:
        """Returns the refusal with this position, or unchanged if it already has one."""
        if position is None or self.position is not None:
            return self
        return type(self)(self.what, accepted=self.accepted, position=position)


class BudgetRefusal(Refusal):
    """Refusal of a charge that is more than what a budget has left. Nothing was charged."""


class BusyRefusal(Refusal):
    """Refusal because a principal or the server has too many statements at once or in a minute. Nothing was charged."""


class PermissionRefusal(Refusal):
    """Refusal of a statement that this principal may not make. Nothing was charged."""


class StoreError(DpduckError):
    """Error of a store that is missing, damaged, copied or older than its own ledger. Nothing is answered."""


class ReleaseFailed(DpduckError):
    """Failure after the charge. The charge stays, and nothing was released. The message is always the same."""

    def __init__(self, ledger_id: int) -> None:
        super().__init__(
            f"the release failed after its charge was recorded as ledger entry {ledger_id}; "
            "the charge stays, nothing was released; accepted: the same with refresh = 'tag', which pays again"
        )


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a statement. The message is one line about the charge, which stays spent."""


class InternalError(DpduckError):
    """Error of two independent computations that disagree. Nothing was released."""
