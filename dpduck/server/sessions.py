"""Connections of clients by name, each with its principal. Their number and their lifetime are limited."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from dpduck.server.limits import Limits
from dpduck.server.principals import Principal, PrincipalBook
from dpduck.values.errors import BusyRefusal, PermissionRefusal

_MINUTE = 60.0


@dataclass
class _Session:
    name: str
    token_hash: str
    began: float
    used: float
    identity: str = ""


class Sessions:
    """Principals of the open connections. If too many are open, in all or of one principal, forgets the longest unused.

    Quack keeps a connection until its client ends it, and a killed client never does. So forgotten connections are
    ended, and each principal may open a limited number in a minute. Web sessions also end after some time.
    """

    def __init__(
        self,
        book: PrincipalBook,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.monotonic,
        forgotten: Callable[[str], None] = lambda session: None,
        life: float = math.inf,
        idle: float = math.inf,
    ) -> None:
        """forgotten: called for forgotten connections. life, idle: most seconds since the start and last use."""
        self._book, self._limits, self._clock, self._forgotten = book, limits, clock, forgotten
        self._life, self._idle = life, idle
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._own: dict[str, OrderedDict[str, None]] = {}
        self._opened: dict[str, deque[float]] = {}

    def begin(self, session: str, token: str) -> Principal | None:
        """Registers a connection, and returns the token's principal, if any. Refuses a principal with too many."""
        principal = self._book.authenticate(token)
        if principal is not None:
            self.enter(session, principal)
        return principal

    def enter(self, session: str, principal: Principal, identity: str = "") -> None:
        """Registers a connection of a principal, who is known by a token or by an identity. Refuses one with too many.

        identity: the identity that a trusted proxy states. The connection then belongs to this identity alone.
        """
        with self._lock:
            self._require_few(principal.name)
            own = self._own.setdefault(principal.name, OrderedDict())
            now = self._clock()
            self._sessions[session] = _Session(principal.name, principal.token_hash, now, now, identity)
            own[session] = None
            while len(own) > self._limits.sessions_each:
                oldest, _ = own.popitem(last=False)
                self._sessions.pop(oldest, None)
                self._forgotten(oldest)
            while len(self._sessions) > self._limits.sessions:
                self._forget(next(iter(self._sessions)))

    def _require_few(self, name: str) -> None:
        now, opened = self._clock(), self._opened.setdefault(name, deque())
        while opened and now - opened[0] >= _MINUTE:
            opened.popleft()
        if len(opened) >= self._limits.connections:
            raise BusyRefusal(f"{name} opens too many connections", accepted=f"{self._limits.connections} in a minute")
        opened.append(now)

    def count(self) -> int:
        """Counts the connections that are remembered."""
        with self._lock:
            return len(self._sessions)

    def principal(self, session: str, identity: str = "") -> Principal:
        """Returns the principal of a connection while its token is valid. Otherwise raises PermissionRefusal.

        identity: the identity of the request. Another one than that of the connection ends the connection.
        """
        with self._lock:
            connection, now = self._sessions.get(session), self._clock()
            if connection is not None and (now - connection.began >= self._life or now - connection.used >= self._idle):
                self._forget(session)
                connection = None
            if connection is not None and connection.identity != identity:
                self._forget(session)
                connection = None
            if connection is not None:
                connection.used = now
                self._sessions.move_to_end(session)
                self._own[connection.name].move_to_end(session)
        if connection is None:
            raise PermissionRefusal("this connection is not known any longer", accepted="ATTACH again")
        principal = self._book.find(connection.name)
        if principal.token_hash != connection.token_hash:
            raise PermissionRefusal("this token was revoked", accepted="a token that is in force")
        if identity and self._book.find_identity(identity) != principal:
            raise PermissionRefusal("this identity was taken away", accepted="an identity that is in force")
        return principal

    def end(self, session: str) -> None:
        with self._lock:
            if session in self._sessions:
                self._forget(session)

    def _forget(self, session: str) -> None:
        connection = self._sessions.pop(session)
        self._own[connection.name].pop(session, None)
        self._forgotten(session)
