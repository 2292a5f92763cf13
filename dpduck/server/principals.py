"""Principals, each with the tables that it may ask about and its share of the budget. Tokens are stored as hashes."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpduck.kernel.ledger.secrets import Secrets, SecretsFile
from dpduck.kernel.ledger.shares import Project, change_project, read_projects
from dpduck.values.errors import PermissionRefusal, Refusal, StoreError
from dpduck.values.identities import is_identity
from dpduck.values.records import as_object, read_record

if TYPE_CHECKING:
    from dpduck.store.cursors import Caller

RECORD = "principals"
_NAME = re.compile("[A-Za-z][A-Za-z0-9_.-]{0,63}")
_RESERVED = frozenset(("owner", "dpduck"))
_SURE = 1_000_000_000  # nanoseconds
_TOKEN_BYTES = 32  # 256 bits from the operating system: a fast hash is enough, since nobody can guess them


@dataclass(frozen=True)
class Principal:
    """Holder of a token. share: the fraction of each budget that it may use, None for all. tables: None for all tables.

    token_hash: hexadecimal SHA-256 of the token. until: the last moment at which the token is valid, None for no end.
    project: the project, the members of which share a part of each budget, None for none. a_day: the fraction of each
    budget that it may spend on one day in UTC, None for no such limit. identity: the identity that a trusted proxy
    states for it, None for its own name.
    """

    name: str
    share: Fraction | None
    tables: tuple[str, ...] | None
    token_hash: str
    until: datetime | None = None
    project: str | None = None
    a_day: Fraction | None = None
    identity: str | None = None

    def in_force(self, now: datetime | None = None) -> bool:
        return self.until is None or (now or datetime.now(UTC)) <= self.until

    @property
    def caller(self) -> Caller:
        from dpduck.store.cursors import Caller  # noqa: PLC0415 - whoever lists principals needs no database

        return Caller(
            self.name, owner=False, share=self.share, tables=self.tables, project=self.project, a_day=self.a_day
        )


Changed = Callable[[tuple[Principal, ...]], tuple[Principal, ...]]


class PrincipalBook:
    """Principals of one store, in its secrets. Every call reads them, so that revocations have effect at once."""

    def __init__(self, store_secrets: Secrets) -> None:
        self._kept = store_secrets

    def add(
        self,
        name: str,
        share: Fraction | None = None,
        tables: Sequence[str] | None = None,
        until: datetime | None = None,
        project: str | None = None,
        a_day: Fraction | None = None,
        identity: str | None = None,
    ) -> str:
        """Adds a principal, to a project if one is named. Returns the token, which is not stored."""
        if not _NAME.fullmatch(name) or name.lower() in _RESERVED:
            raise Refusal(
                f"{name[:80]!r} is no name for a principal", accepted="a letter, then letters, digits, '_', '.' and '-'"
            )
        for part in (share, a_day):
            if part is not None:
                _require_share(part)
        if any(name.lower() == other.name.lower() for other in self.projects()):
            raise Refusal(f"there is a project {name!r}", accepted="another name")
        _require_identity(self.all(), name, identity)
        if project is not None:
            _without(self.all(), name, missing=False)
            change_project(self._kept, project, None, name)  # before the token: no member asks without its project
        token = f"dpduck_{secrets.token_urlsafe(_TOKEN_BYTES)}"
        named = None if tables is None else tuple(tables)
        added = Principal(name, share, named, hash_token(token), until, project, a_day, identity)

        def with_added(present: tuple[Principal, ...]) -> tuple[Principal, ...]:
            _require_identity(present, name, identity)  # another process may have added one meanwhile
            return (*_without(present, name, missing=False), added)

        self._change(with_added)
        return token

    def put_identity(self, name: str, identity: str | None) -> None:
        """Sets the identity that a trusted proxy states for a principal. None takes it away."""

        def with_identity(present: tuple[Principal, ...]) -> tuple[Principal, ...]:
            _without(present, name, missing=True)
            _require_identity(present, name, identity)
            return tuple(
                replace(principal, identity=identity) if principal.name.lower() == name.lower() else principal
                for principal in present
            )

        self._change(with_identity)

    def revoke(self, name: str) -> None:
        """Removes a principal with its token. Earlier charges to its name stay."""
        self._change(lambda present: _without(present, name, missing=True))

    def limit_day(self, name: str, a_day: Fraction | None) -> None:
        """Changes the part of each budget that a principal may spend on one day in UTC. None takes the limit away."""
        self._limit(name, a_day, lambda entry: replace(entry, a_day=a_day))

    def limit_share(self, name: str, share: Fraction | None) -> None:
        """Changes the part of each budget that a principal may spend in all. None: all of it. The token stays."""
        self._limit(name, share, lambda entry: replace(entry, share=share))

    def _limit(self, name: str, part: Fraction | None, changed: Callable[[Principal], Principal]) -> None:
        if part is not None:
            _require_share(part)

        def change(present: tuple[Principal, ...]) -> tuple[Principal, ...]:
            others = _without(present, name, missing=True)
            return (*others, *(changed(entry) for entry in present if entry not in others))

        self._change(change)

    def put_project(self, name: str, share: Fraction) -> None:
        """Makes a project, or changes its share. What its members spent stays spent."""
        _require_share(share)
        if not _NAME.fullmatch(name) or name.lower() in _RESERVED:
            raise Refusal(
                f"{name[:80]!r} is no name for a project", accepted="a letter, then letters, digits, '_', '.' and '-'"
            )
        if any(principal.name.lower() == name.lower() for principal in self.all()):
            raise Refusal(f"there is a principal {name!r}", accepted="another name")
        same = next((project.name for project in self.projects() if project.name.lower() == name.lower()), name)
        change_project(self._kept, same, share)

    def projects(self) -> tuple[Project, ...]:
        return read_projects(self._kept)

    def all(self) -> tuple[Principal, ...]:
        return _parse_principals(self._kept.get(RECORD))

    def find(self, name: str) -> Principal:
        """Returns the principal of this name. Raises PermissionRefusal if there is none, or if its token has ended."""
        for principal in self.all():
            if principal.name == name and principal.in_force():
                return principal
        raise PermissionRefusal(
            "this principal was revoked, or the token has ended", accepted="a token that is in force"
        )

    def authenticate(self, token: str) -> Principal | None:
        """Returns the principal with this token, or None. Compares all hashes, each in constant time."""
        token_hash, holder = hash_token(token), None
        for principal in self.all():
            if hmac.compare_digest(principal.token_hash, token_hash):
                holder = principal
        return holder if holder is None or holder.in_force() else None

    def find_identity(self, identity: str) -> Principal | None:
        """Returns the principal with an identity, None if not in force. One without an identity goes by name."""
        found = [principal for principal in self.all() if identity == (principal.identity or principal.name)]
        return found[0] if len(found) == 1 and found[0].in_force() else None

    def _change(self, change: Changed) -> None:
        while True:  # another process may write meanwhile
            before = self._kept.get(RECORD)
            after = json.dumps(change(_parse_principals(before)), default=_as_stored).encode()
            if self._kept.replace(RECORD, before, after):
                return


def _as_stored(value: object) -> Any:
    """Returns the fields of a principal. Without the later ones they are those that version 0.2 reads."""
    stored = as_object(value)
    if isinstance(value, Principal):
        for name in ("project", "a_day", "identity"):
            if stored[name] is None:
                del stored[name]
    return stored


def _require_identity(present: Sequence[Principal], name: str, identity: str | None) -> None:
    """Refuses an identity that could be taken for another principal, in letters of either size."""
    if identity is not None and not is_identity(identity):
        raise Refusal(f"{identity[:80]!r} is no identity", accepted="what the proxy states, such as alice@example.org")
    own = {text.lower() for text in (identity, name) if text is not None}
    for other in present:
        theirs = {text.lower() for text in (other.identity, other.name) if text is not None}
        if other.name.lower() != name.lower() and not own.isdisjoint(theirs):
            raise Refusal(f"{other.name} has this name or identity already", accepted="another identity")


def _require_share(share: Fraction) -> None:
    if not 0 < share <= 1:
        raise Refusal("a share is a part of the budget", accepted="more than 0 and at most 1, such as 0.5")


def hash_token(token: str) -> str:
    """Hashes a token for storage."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def parse_until(text: str) -> datetime:
    """Returns a moment from the text of a date or a time. A date means its last second. Without a zone, it is UTC.

    >>> parse_until("2027-01-31").isoformat(), parse_until("2027-01-31T12:00:00+01:00").isoformat()
    ('2027-01-31T23:59:59+00:00', '2027-01-31T12:00:00+01:00')
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refusal(f"{text[:80]!r} is no date", accepted="2027-01-31 or 2027-01-31T12:00:00+00:00") from None
    if len(text) == len("2027-01-31"):
        moment = moment.replace(hour=23, minute=59, second=59)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def parse_share(text: str) -> Fraction:
    """Returns a share from its text: a number, a fraction or a percentage.

    >>> parse_share("0.5"), parse_share("1/3"), parse_share("25%")
    (Fraction(1, 2), Fraction(1, 3), Fraction(1, 4))
    """
    try:
        return Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise Refusal(f"{text[:80]!r} is no share", accepted="0.5, 1/2 or 50%") from None


def _without(present: Sequence[Principal], name: str, *, missing: bool) -> tuple[Principal, ...]:
    """Returns all principals but the named one. missing: refuses an absent name if True, a present name if False."""
    is_present = any(principal.name.lower() == name.lower() for principal in present)
    if missing and not is_present:
        raise Refusal(f"there is no principal {name[:80]!r}", accepted=", ".join(p.name for p in present) or "none yet")
    if is_present and not missing:
        raise Refusal(f"there is a principal {name!r} already", accepted="another name, or dpduck principal revoke")
    return tuple(principal for principal in present if principal.name.lower() != name.lower())


def _parse_principals(record: bytes | None) -> tuple[Principal, ...]:
    try:
        principals = () if record is None else read_record(tuple[Principal, ...], record)
    except StoreError:
        raise StoreError("the list of principals is damaged; accepted: the secrets file as last written") from None
    return tuple(sorted(principals, key=lambda principal: principal.name))


class WatchedSecrets:
    """Secrets in a file, read again only after the file has changed, since the gate reads them for every statement."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = SecretsFile.open(path, create=False)
        self._seen: dict[str, tuple[tuple[int, int, int], bytes | None]] = {}

    def get(self, name: str) -> bytes | None:
        state = self._path.stat()
        mark = (state.st_mtime_ns, state.st_size, state.st_ino)
        seen = self._seen.get(name)
        if seen is not None and seen[0] == mark:
            return seen[1]
        value = self._file.get(name)
        if time.time_ns() - state.st_mtime_ns > _SURE:  # a second change within a tick would look alike
            self._seen[name] = (mark, value)
        return value

    def save(self, name: str, value: bytes) -> None:
        self._file.save(name, value)

    def replace(self, name: str, expected: bytes | None, value: bytes) -> bool:
        return self._file.replace(name, expected, value)
