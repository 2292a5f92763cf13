"""How far the ledger has come, as two places outside the store remember it: the secrets file and the witness.

A charge is committed to the store first, then to the secrets file, then to the witness, and only then answered.
A crash in between leaves the ledger one valid entry ahead, never more: the next charge first brings both up to date.
Hence a position that is beyond the ledger's end, that has another hash than the ledger at its own entry, that is more
than one entry behind, or a witness ahead of the secrets, is an older copy or a second copy: fail closed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from dpduck.errors import StoreError
from dpduck.privacy import Charge
from dpduck.trusted.hash_chain import GENESIS
from dpduck.trusted.ledger_values import LedgerState, amounts_text, charge_of
from dpduck.trusted.secrets_file import Secrets
from dpduck.trusted.witness import Witness

POSITION = "ledger_position"
_COPY = (
    "accepted: the newest store together with its own secrets file, in one process at a time; "
    "or dpduck verify --adopt, which gives no budget back"
)


@dataclass(frozen=True)
class Position:
    """The number and hash of the last entry, and what every unit had spent by then."""

    counter: int
    head: str
    spent: dict[str, Charge]


@dataclass(frozen=True)
class Found:
    """The texts of both positions as they were read, for the compare-and-swap that follows."""

    secrets: bytes | None
    witness: bytes | None


def position_of(state: LedgerState) -> Position:
    """The position of a ledger in this state."""
    return Position(state.last_id, state.hash_at(state.last_id), dict(state.spent))


def encoded(position: Position) -> bytes:
    """A position as one line of JSON with exact texts."""
    spent = {unit: amounts_text(charge) for unit, charge in sorted(position.spent.items())}
    return json.dumps({"counter": position.counter, "head": position.head, "spent": spent}).encode()


def decoded(text: bytes | None, where: str) -> Position:
    """The position that was encoded; of nothing, the beginning."""
    if text is None:
        return Position(0, GENESIS, {})
    try:
        fields = json.loads(text)
        spent = {unit: charge_of(*amounts) for unit, amounts in fields["spent"].items()}
        return Position(int(fields["counter"]), str(fields["head"]), spent)
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        raise StoreError(f"the ledger's position in the {where} cannot be read; {_COPY}") from None


class OutsideCounters:
    """Both places; a witness is None only where the owner chose to have none, or the store is in memory."""

    def __init__(self, secrets: Secrets, witness: Witness | None) -> None:
        self._secrets = secrets
        self._witness = witness

    def read(self) -> Found:
        """Read the witness first: whoever writes them writes the secrets first."""
        witness = None if self._witness is None else self._witness.read()
        return Found(self._secrets.get(POSITION), witness)

    def require_same(self, found: Found, state: LedgerState) -> None:
        """Fail closed unless both positions lie on this ledger's chain, at its end or one entry before."""
        secrets = decoded(found.secrets, "secrets file")
        _require_on_chain(secrets, state, "secrets file")
        if found.witness is None:
            return
        witness = decoded(found.witness, "witness")
        _require_on_chain(witness, state, "witness of this machine")
        if witness.counter > secrets.counter:
            raise StoreError(f"the secrets file is older than the ledger; {_COPY}")

    def spent(self, found: Found) -> list[tuple[str, Charge]]:
        """What each unit had spent, according to the secrets file and then according to the witness."""
        places = (decoded(found.secrets, "secrets file"), decoded(found.witness, "witness"))
        return [amounts for place in places for amounts in place.spent.items()]

    def advance(self, found: Found, state: LedgerState) -> bool:
        """Bring both to the end of the ledger; False if another writer came in between."""
        text = encoded(position_of(state))
        if found.secrets != text and not self._secrets.replace(POSITION, found.secrets, text):
            return False
        if self._witness is None or found.witness == text:
            return True
        return self._witness.replace(found.witness, text)


def _require_on_chain(position: Position, state: LedgerState, where: str) -> None:
    if position.counter > state.last_id:
        raise StoreError(
            f"the ledger ends at entry {state.last_id} but the {where} has seen entry {position.counter}: "
            f"the store is an older copy; {_COPY}"
        )
    if position.head != state.hash_at(position.counter):
        raise StoreError(
            f"ledger entry {position.counter} is not the one that the {where} has seen: "
            f"two copies of the store were used; {_COPY}"
        )
    if position.counter < state.last_id - 1:
        raise StoreError(
            f"the ledger ends at entry {state.last_id} but the {where} has only seen entry {position.counter}: "
            f"it is an older copy; {_COPY}"
        )
