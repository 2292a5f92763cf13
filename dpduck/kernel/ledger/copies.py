"""Positions of the ledger's end that are stored in two places outside the store: the secrets file and the witness.

A charge is committed to the store first, then to the secrets file, then to the witness, and only then answered. A crash
in between leaves the ledger one valid entry ahead at most: the next charge first brings both positions up to date. Both
also have the charges without an answer. Before an answer can be seen, its charge is removed there. So a copy of the
store from the time between charge and answer gets no answer.

The ledger refuses to work if a position is beyond its end, or more than one entry behind, or has another hash than the
ledger there, or if the witness is ahead of the secrets file. Each is a sign of an older or a second copy.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from dpduck.kernel.ledger.budgets import LedgerState
from dpduck.kernel.ledger.entries import GENESIS, amounts_text, charge_of
from dpduck.kernel.ledger.secrets import Secrets
from dpduck.kernel.ledger.witness import Witness
from dpduck.values.errors import StoreError
from dpduck.values.privacy import Charge

POSITION = "ledger_position"
MOST_BEGUN = 1000
"""Most charges without an answer that are remembered. Older ones are never answered."""

Begun = dict[int, int]
"""Charges without an answer, by ledger entry: how often the answer of each was begun."""

Change = Callable[[Begun], Begun]
_COPY = (
    "accepted: the newest store together with its own secrets file, in one process at a time; "
    "or dpduck verify --adopt, which gives no budget back"
)


@dataclass(frozen=True)
class ChainEnd:
    """End of the chain: last entry's number and hash. spent: sums by unit. begun: charges then without an answer."""

    counter: int
    head: str
    spent: dict[str, Charge]
    begun: Begun = field(default_factory=dict)


@dataclass(frozen=True)
class PositionTexts:
    """Texts of both positions as they were read. A later write replaces only these texts (compare-and-swap)."""

    secrets: bytes | None
    witness: bytes | None


def latest(begun: Begun) -> Begun:
    """Returns the latest MOST_BEGUN charges without an answer, in the order of their entries."""
    return dict(sorted(begun.items())[-MOST_BEGUN:])


def encode_position(position: ChainEnd) -> bytes:
    """Returns a position as one line of JSON with exact texts."""
    spent = {unit: amounts_text(charge) for unit, charge in sorted(position.spent.items())}
    begun = {str(entry): times for entry, times in latest(position.begun).items()}
    fields = {"counter": position.counter, "head": position.head, "spent": spent, "begun": begun}
    return json.dumps(fields).encode()


def decode_position(text: bytes | None, where: str) -> ChainEnd:
    """Returns the position in a text. None stands for the beginning of the chain."""
    if text is None:
        return ChainEnd(0, GENESIS, {})
    try:
        fields = json.loads(text)
        spent = {unit: charge_of(*amounts) for unit, amounts in fields["spent"].items()}
        begun = {int(entry): int(times) for entry, times in fields.get("begun", {}).items()}
        return ChainEnd(int(fields["counter"]), str(fields["head"]), spent, begun)
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        raise StoreError(f"the ledger's position in the {where} cannot be read; {_COPY}") from None


class OutsideCounters:
    """The position in secrets and witness. The witness is None if the owner wants none, or the store is in memory."""

    def __init__(self, secrets: Secrets, witness: Witness | None) -> None:
        self._secrets = secrets
        self._witness = witness

    def read_text(self) -> PositionTexts:
        """Returns both texts. Reads the witness first, since every writer writes the secrets first."""
        witness = None if self._witness is None else self._witness.read_text()
        return PositionTexts(self._secrets.get(POSITION), witness)

    def require_same(self, texts: PositionTexts, state: LedgerState) -> None:
        """Raises StoreError unless both positions are on this ledger's chain, at its end or one entry before."""
        secrets = decode_position(texts.secrets, "secrets file")
        _require_on_chain(secrets, state, "secrets file")
        if texts.witness is None:
            return
        witness = decode_position(texts.witness, "witness")
        _require_on_chain(witness, state, "witness of this machine")
        if witness.counter > secrets.counter:
            raise StoreError(f"the secrets file is older than the ledger; {_COPY}")

    def spent(self, texts: PositionTexts) -> list[tuple[str, Charge]]:
        """Lists the units with their sums, first by the secrets file and then by the witness."""
        places = (decode_position(texts.secrets, "secrets file"), decode_position(texts.witness, "witness"))
        return [amounts for place in places for amounts in place.spent.items()]

    def unanswered_charges(self, texts: PositionTexts, state: LedgerState) -> Begun:
        """Returns the charges that neither place counts as answered. A place may not know the last entry yet."""
        places = [decode_position(texts.secrets, "secrets file")]
        if self._witness is not None:
            places.append(decode_position(texts.witness, "witness"))
        entries = {entry for place in places for entry in place.begun} | (
            {state.last_id} if state.charged_last else set()
        )
        return {
            entry: max(place.begun.get(entry, 1) for place in places)
            for entry in sorted(entries)
            if all(entry in place.begun or entry > place.counter for place in places)
        }

    def advance(self, texts: PositionTexts, state: LedgerState, begun: Begun) -> PositionTexts | None:
        """Moves both positions to the end of the ledger. Returns their texts, None if another writer changed one."""
        text = encode_position(ChainEnd(state.last_id, state.last_hash, state.spent, begun))
        if texts.secrets != text and not self._secrets.replace(POSITION, texts.secrets, text):
            return None
        if self._witness is None:
            return PositionTexts(text, None)
        moved = texts.witness == text or self._witness.replace(texts.witness, text)
        return PositionTexts(text, text) if moved else None


def _require_on_chain(position: ChainEnd, state: LedgerState, where: str) -> None:
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
