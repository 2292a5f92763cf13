"""Identity of a browser's user, as a trusted proxy states it in a header after a login with OIDC or the like.

A statement of identity is believed only if the connection comes from a listed address, and if the request has the
secret that the owner gave to the proxy. It names a principal that exists already. The header never makes one.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from dpduck.server.operations.secret_file import read_secret
from dpduck.values.errors import Refusal
from dpduck.values.identities import is_identity

SECRET_HEADER = "X-Dpduck-Proxy-Secret"  # noqa: S105 - the name of the header
"""The header with the secret that the proxy and this server share."""

STATE_WITH_THREE = "--identity-header NAME, --identity-from ADDRESSES and --identity-secret FILE"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,63}")
_OF_HTTP = frozenset(
    (
        "host", "origin", "cookie", "connection", "content-length", "content-type", "transfer-encoding", "expect",
        "authorization", "sec-fetch-site", "sec-fetch-mode", "forwarded", "x-forwarded-for", "x-real-ip",
    )
)  # fmt: skip

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class ProxyClaim:
    """Statement of a request about its sender. identity: "" if there is none that is believed.

    why: the reason for the log if a statement is not believed. malformed: whether the proxy itself sent a malformed
    identity. Such a request is refused. Any other unbelieved request is a stranger's. navigates: whether a request
    opens a page.
    """

    identity: str = ""
    why: str = ""
    malformed: bool = False
    navigates: bool = True


STRANGER = ProxyClaim()
NO_PRINCIPAL = "nobody here has the identity of this login; accepted: an identity that the owner of the page has added"
SIGNED_OUT = "This session has ended. The login before this page may still be open: log out there, too."


@dataclass(frozen=True)
class TrustedProxy:
    """Proxy that states identities. header: the name of its header. secret_hash: SHA-256 of the shared secret."""

    header: str
    networks: tuple[Network, ...]
    secret_hash: bytes

    def claim(self, headers: Message, peer: str) -> ProxyClaim:
        """Reads the statement about the sender of a request. peer: the address at the other end of the connection."""
        stated, secrets = _values(headers, self.header), _values(headers, SECRET_HEADER)
        if not stated and not secrets:
            return STRANGER
        if not self._is_proxy(peer):
            return ProxyClaim(why="a header of identity from an address that is no proxy")
        if len(secrets) != 1 or secrets[0] is None or not self._is_secret(secrets[0]):
            return ProxyClaim(why="a header of identity without the proxy's secret")
        if not stated:
            return STRANGER
        if len(stated) != 1 or stated[0] is None or not is_identity(stated[0]):
            return ProxyClaim(why="the proxy's header of identity is malformed", malformed=True)
        modes = headers.get_all("Sec-Fetch-Mode") or []
        return ProxyClaim(stated[0], navigates=modes in ([], ["navigate"]))

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.networks)

    def _is_secret(self, text: str) -> bool:
        return hmac.compare_digest(_hash_secret(text.encode("latin-1", "replace")), self.secret_hash)


def _values(headers: Message, name: str) -> list[str | None]:
    """Lists the values of a header without blanks around them. None stands for a header with underscores in its name.

    CGI and WSGI read hyphens and underscores as the same. So a client could add a second header with underscores.
    """
    return [
        value.strip(" \t") if given.lower() == name.lower() else None
        for given, value in headers.items()
        if given.lower().replace("_", "-") == name.lower()
    ]


def open_proxy(header: str | None, networks: Sequence[str], secret: Path | None) -> TrustedProxy | None:
    """Returns the proxy of these options, None without any. Refuses some of the options without the others."""
    if header is None and not networks and secret is None:
        return None
    if header is None or not networks or secret is None:
        raise Refusal("a proxy that states identities needs three options", accepted=STATE_WITH_THREE)
    if not _NAME.fullmatch(header) or header.lower() in (*_OF_HTTP, SECRET_HEADER.lower()):
        raise Refusal(f"{header[:80]!r} is no header of identity", accepted="X-Forwarded-Email")
    return TrustedProxy(header, tuple(_network(text) for text in networks), _hash_secret(read_secret(secret)))


def _network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text.strip())
    except ValueError:
        raise Refusal(f"{text[:80]!r} is no range of addresses", accepted="127.0.0.1/32 or 10.0.0.7") from None
    if network.prefixlen == 0:
        raise Refusal(f"{text[:80]!r} is every address", accepted="the proxy's own, such as 127.0.0.1/32")
    return network


def _hash_secret(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
