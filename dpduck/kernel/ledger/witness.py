"""A machine-wide witness of the end of a store's ledger, kept away from the store and from its secrets.

There is one small file for each store's identity in a state directory ($DPDUCK_STATE_DIR, $XDG_STATE_HOME/dpduck or
~/.local/state/dpduck). It is replaced by a compare-and-swap under a file lock at every charge.

It notices an older copy of the store that was restored together with its secrets file. It also notices two processes of
this user that charge copies of one store on this machine: the second is refused at its first charge at the latest,
before a count runs. It notices no copies on different machines, or under different users or state directories, since
each has a witness of its own. Nor does it notice a copy from before this machine saw the store, or a witness that was
deleted or restored along with the store.

Without a writable directory the store is refused. To do without the witness, the owner must say so:
DPDUCK_STATE_DIR=none, or no directory given to the ledger.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dpduck.kernel.ledger.secrets import Steps, no_step, sync_directory
from dpduck.values.errors import StoreError


def state_directory(environment: Mapping[str, str]) -> Path | None:
    """Returns the folder of witnesses that the environment names, or the default. None if the owner wants no witness.

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
