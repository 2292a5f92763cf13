"""Requests of browsers, read within limits, and responses with headers that keep browsers safe."""

from __future__ import annotations

import io
import re
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

from dpduck.server import LOOPBACK
from dpduck.server.limits import GivenUp
from dpduck.server.web.identity import STRANGER, ProxyClaim
from dpduck.values.errors import Refusal

HEAD_BYTES = 16_384
"""The largest size of a request's first line and headers, in bytes."""

LOGIN_BYTES = 2_048
"""The largest form, in bytes, before anybody has logged in."""

FIELDS = 8
_BYTES_OF_A_CHARACTER = 12  # four bytes of UTF-8, each written %XX
_SESSION = re.compile(r"[A-Za-z0-9_-]{43}")
_LENGTH = re.compile(r"[0-9]{1,9}")
_PATH = re.compile(r"/[A-Za-z0-9._~%/!$&'()*+,;=:@-]*")
_QUERY = re.compile(r"[A-Za-z0-9._~%/!$&'()*+,;=:@-]*")
WITH_QUERY = "/view/"
"""The only path below which an address may have a query: it selects rows of a view."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True)
class PageHosts:
    """Hosts under which browsers may see the page. secure: whether it reaches browsers over TLS."""

    hosts: frozenset[str]
    secure: bool

    @property
    def strict(self) -> bool:
        """Tells whether browsers must use TLS on every port of the hosts. False if a host is this machine itself."""
        names = {host.partition(":")[0] for host in self.hosts}
        return self.secure and names.isdisjoint(("localhost", "127.0.0.1", "["))

    def origin(self, host: str) -> str:
        return f"{'https' if self.secure else 'http'}://{host}"


def place_of(host: str, port: int, tls: bool, origin: str | None) -> PageHosts:
    """Returns the hosts of a page by its listener's address. origin: the origin of a proxy before it, if any.

    >>> sorted(place_of("localhost", 8080, False, None).hosts)
    ['127.0.0.1:8080', '[::1]:8080', 'localhost:8080']
    """
    if origin is not None:
        parts = urlsplit(origin)
        secure = parts.scheme == "https"
        if (
            not parts.netloc
            or parts.path.strip("/")
            or not (secure or parts.hostname in ("localhost", "127.0.0.1", "::1"))
        ):
            raise Refusal(f"{origin[:200]!r} is no origin", accepted="https://clinic.example.org")
        return PageHosts(frozenset((parts.netloc.lower().removesuffix(":443" if secure else ":80"),)), secure)
    usual = 443 if tls else 80
    names = LOOPBACK if host in LOOPBACK else (host,)
    written = [f"{name}:{port}" for name in names] + ([*names] if port == usual else [])
    return PageHosts(frozenset(written), tls)


class Patient(io.RawIOBase):
    """Reader of a socket with a deadline and a limit of bytes. A client that sends slowly gets no more time."""

    def __init__(self, connection: socket.socket, seconds: float, most: int) -> None:
        self._connection, self._most = connection, most
        self._end = time.monotonic() + seconds

    def allow(self, more: int) -> None:
        self._most += more

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        left = self._end - time.monotonic()
        if left <= 0 or self._most <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        count = self._connection.recv_into(memoryview(buffer)[: self._most])
        self._most -= count
        return count


@dataclass(frozen=True)
class PageRequest:
    """Request of a browser. host: the page's host. session: its cookie. gone: tells whether the browser has gone.

    claim: the statement of a proxy about the sender, if a proxy may state identities.
    """

    method: str
    path: str
    host: str
    session: str
    form: Mapping[str, str] = field(default_factory=dict)
    gone: GivenUp = lambda: False
    query: Mapping[str, str] = field(default_factory=dict)
    claim: ProxyClaim = STRANGER


@dataclass(frozen=True)
class Response:
    """Response to a browser. nonce: the nonce of the styles and the script that its page may load."""

    status: HTTPStatus
    body: bytes
    kind: str = "text/html; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    nonce: str = ""


STRICT = "max-age=31536000"
"""For a year, browsers use TLS for this host, whatever was typed. This does not extend to hosts below it."""

REFUSED = Response(HTTPStatus.NOT_FOUND, b"There is nothing here.\n", "text/plain; charset=utf-8")
"""The response to every request that is not understood."""


def new_nonce() -> str:
    """Returns a random word that nobody can guess, for one page."""
    return secrets.token_urlsafe(18)


def headers_of(response: Response, place: PageHosts) -> list[tuple[str, str]]:
    """Lists all headers of a response. They forbid browsers to store, frame or sniff a page, or load from elsewhere."""
    strict = [("Strict-Transport-Security", STRICT)] if place.strict else []
    loaded = f"'nonce-{response.nonce}'" if response.nonce else "'none'"
    policy = (
        f"default-src 'none'; script-src {loaded}; style-src {loaded}; img-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    )
    return [
        ("Content-Type", response.kind),
        ("Content-Length", str(len(response.body))),
        ("Content-Security-Policy", policy),
        ("X-Frame-Options", "DENY"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "same-origin"),  # with no-referrer, forms would come without their origin
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
        ("Connection", "close"),
        *strict,
        *response.headers,
    ]


def request_of(
    method: str, target: str, headers: Message, place: PageHosts, cookie: str, gone: GivenUp
) -> PageRequest | None:
    """Returns a request without its form, or None for a request that the page does not send under its own hosts."""
    hosts = headers.get_all("Host") or []
    host = hosts[0].lower() if len(hosts) == 1 else ""
    target, mark, asked = target.partition("?")
    if host not in place.hosts or method not in ("GET", "POST") or not _PATH.fullmatch(target):
        return None
    path, query = unquote(target, errors="replace"), _query(asked) if mark else {}
    if mark and (method != "GET" or not path.startswith(WITH_QUERY)):
        return None
    if query is None or _CONTROL.search(path) or not _well_formed(headers):
        return None
    if method == "POST" and not _from_here(headers, place.origin(host)):
        return None
    return PageRequest(method, path, host, _cookie(headers, cookie), gone=gone, query=query)


def _query(text: str) -> dict[str, str] | None:
    """Returns the fields of a URL's query, or None if it is malformed or has a control character."""
    if not text:
        return {}
    fields = form_of(text.encode("ascii")) if _QUERY.fullmatch(text) else None
    return None if fields is None or any(map(_CONTROL.search, (*fields, *fields.values()))) else fields


def _well_formed(headers: Message) -> bool:
    """Tells whether every line is a header, and no body comes in chunks.

    With a blank in a name, as in `Transfer-Encoding : chunked`, the headers end for Python, but not for every proxy.
    """
    if headers.defects or headers.get_payload() or "Transfer-Encoding" in headers:
        return False
    return all(_HEADER.fullmatch(name) and not _CONTROL.search(value) for name, value in headers.items())


def _from_here(headers: Message, origin: str) -> bool:
    """Tells whether a page of this origin sent a form. The browser writes these headers, and no page can."""
    origins, sites = headers.get_all("Origin") or [], headers.get_all("Sec-Fetch-Site") or []
    return [sender.lower() for sender in origins] == [origin] and sites in ([], ["same-origin"])


def _cookie(headers: Message, name: str) -> str:
    """Returns the session in the cookies, or "" unless exactly one is valid. Ignores cookies with other names."""
    parts = "; ".join(headers.get_all("Cookie") or ()).split(";")
    named = [value.strip() for key, _, value in (part.partition("=") for part in parts) if key.strip() == name]
    return named[0] if len(named) == 1 and _SESSION.fullmatch(named[0]) else ""


def length_of(headers: Message, most: int) -> int | None:
    """Returns the number of bytes of a form, or None if the headers do not state it once, or if it is too large."""
    said = headers.get_all("Content-Length") or []
    kind = (headers.get("Content-Type") or "").partition(";")[0].strip().lower()
    if len(said) != 1 or not _LENGTH.fullmatch(said[0]) or kind != "application/x-www-form-urlencoded":
        return None
    return int(said[0]) if int(said[0]) <= most else None


def form_bytes(characters: int) -> int:
    """Returns the largest size of a form with a statement, in bytes."""
    return LOGIN_BYTES + _BYTES_OF_A_CHARACTER * characters


def form_of(body: bytes) -> dict[str, str] | None:
    """Returns the fields of a form, or None if it is malformed or has a field twice."""
    try:
        given = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=FIELDS)
    except ValueError:
        return None
    return dict(given) if len(dict(given)) == len(given) else None


def set_cookie(name: str, value: str, place: PageHosts) -> tuple[str, str]:
    """Returns the header that gives a session to a browser until it ends, or removes it if `value` is empty."""
    ended = "" if value else "; Max-Age=0"
    secure = "; Secure" if place.secure else ""
    return "Set-Cookie", f"{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{ended}"


def is_gone(connection: socket.socket) -> Callable[[], bool]:
    """Returns a function that tells whether the browser hung up. Call it only while nothing else reads the connection.

    Over TLS, bytes after a whole request are read and dropped. Looking ahead would not do, since a TLS message that
    ends the connection would look like further data.
    """
    secret = isinstance(connection, ssl.SSLSocket)

    def gone() -> bool:
        connection.settimeout(0)
        try:
            return not (connection.recv(1) if secret else connection.recv(1, socket.MSG_PEEK))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except (OSError, ValueError):
            return True

    return gone
