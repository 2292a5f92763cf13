"""Positions of the ledger's end that are stored in two places outside the store: the secrets file and the witness.

A charge is committed to the store first, then to the secrets file, then to the witness, and only then answered. A crash
in between leaves the ledger one valid entry ahead at most: the next charge first brings both positions up to date. Both
also have the charges without an answer. Before an answer can be seen, its charge is removed there. So a copy of the
store from the time between charge and answer gets no answer. The ledger refuses to work if a position is beyond its
end, or more than one entry behind, or has another hash than the ledger there. It also refuses if the witness is ahead
of the secrets file. Each is a sign of an older or a second copy.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dpduck.kernel.ledger.budgets import LedgerState
from dpduck.kernel.ledger.entries import GENESIS, amounts_text, charge_of
from dpduck.kernel.ledger.secrets import Secrets, Steps, no_step, sync_directory
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
    """End of the chain: number and hash of the last entry. spent, begun: sums by unit, and unanswered charges then."""

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
    """The position in both places. The witness is None if the owner chose to have none, or the store is in memory."""

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
        """Returns the charges that no place counts as answered. A place may not know the last entry yet."""
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
        """Moves both positions to the end of the ledger, and returns their texts.

        Returns None if another writer has changed one meanwhile.
        """
        text = encode_position(ChainEnd(state.last_id, state.hash_at(state.last_id), state.spent, begun))
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


# A machine-wide witness of the end of a store's ledger, kept away from the store and from its secrets.
#
# There is one small file per store identity in a state directory ($DPDUCK_STATE_DIR, $XDG_STATE_HOME/dpduck or
# ~/.local/state/dpduck). It is replaced by a compare-and-swap under a file lock at every charge.
#
# Noticed: the store and its secrets file restored together from an older copy, and two processes that charge
# copies of one store on this machine as this user. The second process is refused at the latest at its first
# charge, before a count runs. Not noticed: copies on different machines, or under different users or state
# directories, since each has a witness of its own. Not noticed either: a copy from before this machine saw the
# store, and a witness that was deleted or restored along with the store. A store that is new on a machine has no
# witness there yet, and gets one.
#
# Without a writable directory the store is refused. To do without the witness, the owner must say so:
# DPDUCK_STATE_DIR=none, or no directory given to the ledger.


def state_directory(environment: Mapping[str, str]) -> Path | None:
    """Returns the folder of witnesses by the environment. None if the owner chose to have none.

    >>> state_directory({"XDG_STATE_HOME": "/var/state"}).as_posix()
    '/var/state/dpduck'
    """
    chosen = environment.get("DPDUCK_STATE_DIR", "")
    if chosen:
        return None if chosen == "none" else Path(chosen)
    base = environment.get("XDG_STATE_HOME", "")
    return (Path(base) if base else Path.home() / ".local" / "state") / "dpduck"


class Witness:
    """Witness of one store, in a file of its own."""

    def __init__(self, directory: Path, store_id: str, *, steps: Steps = no_step) -> None:
        self._path = directory / f"{store_id}.witness"
        self._lock_path = directory / f"{store_id}.lock"
        self._steps = steps
        with _own_errors():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def read_text(self) -> bytes | None:
        """Returns the text that was written last. None if this machine has not seen the store."""
        with _own_errors():
            try:
                return self._path.read_bytes()
            except FileNotFoundError:
                return None

    def replace(self, expected: bytes | None, value: bytes) -> bool:
        """Writes the value if the file still has `expected`, and returns whether it did. The value is then on disk."""
        with _own_errors(), self._hold_lock():
            if self.read_text() != expected:
                return False
            temporary = self._path.with_suffix(".new")
            with temporary.open("wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            self._steps("witness written")
            temporary.replace(self._path)
            sync_directory(self._path.parent)
            return True

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        descriptor = os.open(self._lock_path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # released when the descriptor is closed, or the process dies
            yield
        finally:
            os.close(descriptor)


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the witness of this store could not be kept in the state directory ({type(error).__name__}); nothing is "
            "answered; accepted: DPDUCK_STATE_DIR set to a directory that can be written, or to none to do without"
        ) from None
