"""Names of private objects: a statement gives a name to its object, finds it again, and drops it.

DuckDB binds a statement more than once, so a repeated statement has the outcome that it had at first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from dpduck.language.statements.kinds import PROJECTION, TABLE, VIEW, DropPrivate
from dpduck.language.text.words import meant_or
from dpduck.store.cursors import Caller, NamedLocks
from dpduck.values.errors import InternalError, PermissionRefusal, Refusal
from dpduck.values.quoting import fold

OWNER_NAME = "owner"
"""Name of the data owner as a caller. No principal may have it."""

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]{0,99}")
_ALIKE = {VIEW: (VIEW, PROJECTION), TABLE: (VIEW, PROJECTION)}
"""Kinds of objects that a statement about one kind may change. Views and tables count as the same kind."""


class Named(Protocol):
    """Private object, with the statement and the principal that gave it its name. digest: a digest of the object."""

    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def statement(self) -> str: ...
    @property
    def principal(self) -> str: ...


N = TypeVar("N", bound=Named)


@dataclass(frozen=True)
class PrivateNames(Generic[N]):
    """Names of the objects in one table of the store.

    Args:
        listing: SQL function that lists the names.
        suggested: Returns names that every caller may know.
        prefix: Text before a name in the message of a drop.
        lock_of: Returns the lock of a name. Objects with one lock change one at a time.
        waits: Called if another thread holds the lock.
        dropped: Digest of the text, caller and message of the last drop under each lock.
    """

    find: Callable[[str], N | None]
    kind_of: Callable[[N], str]
    remove: Callable[[N], None]
    listing: str
    suggested: Callable[[], Sequence[str]] = tuple
    prefix: str = ""
    lock_of: Callable[[str], str] = fold
    waits: Callable[[], None] = lambda: None
    locks: NamedLocks = field(default_factory=NamedLocks)
    dropped: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    @contextmanager
    def naming(self, name: str) -> Iterator[None]:
        """Holds the lock of a name, from the check that the name is free until the object exists.

        An object may wait long for its release. So this locks no more names than lock_of demands.
        """
        with self.locks.hold(self.lock_of(name), self.waits):
            self.dropped.pop(self.lock_of(name), None)
            yield

    def create(self, name: str, text: str, caller: Caller, digest: str, make: Callable[[], None]) -> N:
        """Returns the object that a statement makes. Does not call `make` if the same statement has made it already."""
        with self.naming(name):
            existing = self.made_by(name, text, caller, digest)
            if existing is None:
                make()
                existing = self.find(name)
            if existing is None:
                raise InternalError("a name that was given is not there")
            return existing

    def made_by(self, name: str, text: str, caller: Caller, digest: str) -> N | None:
        """Returns the object if this very statement made it, None if the name is free. Refuses a name in use."""
        require_name(name)
        existing = self.find(name)
        if existing is None or is_made_by(existing, text, caller, digest):
            return existing
        raise Refusal(
            f"the name {existing.name!r} is taken",
            accepted=f"DROP PRIVATE {self.kind_of(existing).upper()}, or another name",
        )

    def own(self, kind: str, name: str, caller: Caller, otherwise: str = "") -> N:
        """Returns the object, or refuses if the caller may not change it. otherwise: more names for the refusal."""
        existing = self.find(name)
        if existing is None:
            accepted = meant_or(name, self.suggested(), f"a name of {self.listing}{otherwise}")
            raise Refusal(f"there is no private {kind} {name!r}", accepted=accepted)
        self.require_own(kind, existing, caller, "one of your own")
        return existing

    def require_own(self, kind: str, existing: N, caller: Caller, accepted: str) -> None:
        word = self.kind_of(existing)
        if word not in _ALIKE.get(kind, (kind,)):
            raise Refusal(
                f"{existing.name!r} is a private {word}", accepted=f"DROP PRIVATE {word.upper()}, or another name"
            )
        if not caller.owner and existing.principal != caller.name:
            raise PermissionRefusal(f"the private {word} {existing.name!r} belongs to somebody else", accepted=accepted)

    def drop(self, statement: DropPrivate, text: str, caller: Caller) -> str:
        """Drops an object, and returns the message. The same statement again returns the same message."""
        lock = self.lock_of(statement.name)
        with self.locks.hold(lock, self.waits):
            if self.find(statement.name) is None:
                *repeated, done = self.dropped.get(lock, ("", "", ""))
                if repeated == [_digest(text), caller.name]:
                    return done
                if statement.if_exists:
                    return f"there was no such {statement.kind}"
            existing = self.own(statement.kind, statement.name, caller, ", or IF EXISTS")
            self.remove(existing)
            done = f"{self.prefix}{existing.name} is dropped; its budget stays spent"
            self.dropped[lock] = (_digest(text), caller.name, done)
            return done


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def is_made_by(existing: Named, text: str, caller: Caller, digest: str) -> bool:
    """Tells whether this very statement of this caller made an object."""
    return (existing.digest, existing.statement, existing.principal) == (digest, text, caller.name)


def require_name(name: str) -> None:
    """Refuses names that no private object may have. Accepted names are valid names of files, and not dpduck's own."""
    accepted = "up to 100 letters, digits and _, not beginning with a digit, release_ or dpduck_"
    if not _NAME.fullmatch(name):
        raise Refusal(f"{name[:40]!r} cannot be the name of a view", accepted=accepted)
    if name.lower().startswith(("release_", "dpduck_")):
        raise Refusal(f"the name {name[:40]!r} is reserved", accepted=accepted)
