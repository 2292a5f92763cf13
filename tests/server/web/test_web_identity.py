"""Identity that a proxy states: believed from its address and with its secret alone, and attacked in 60 ways."""

from __future__ import annotations

import hmac
import json
import socket
import string
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.message import Message
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dpduck.commands.command_line import main
from dpduck.commands.listening import Listening, Proxied, _require_addresses
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.server import audit
from dpduck.server.principals import Principal, PrincipalBook
from dpduck.server.web import identity
from dpduck.server.web.identity import STRANGER, TrustedProxy, open_proxy
from dpduck.server.web.requests import REFUSED
from dpduck.values.errors import DpduckError, Refusal
from tests.server.served import Served
from tests.server.test_metrics import mutated
from tests.server.web.client import Answer, Browser, listening, received, sent
from tests.support.clinics import by

SECRET, HEADER = "0123456789abcdef" * 4, "X-Forwarded-Email"
MAIL = {"alice": "alice@example.org", "bob": "bob@example.org"}
INSIDE, LOGIN, NOBODY = "Private views", "Your token", "nobody here has the identity"


def proxy_at(folder: Path, *addresses: str) -> TrustedProxy:
    """A proxy at these addresses, with its secret in a file."""
    file = folder / "proxy_secret"
    file.write_text(f"{SECRET}\n", encoding="ascii")
    file.chmod(0o600)
    found = open_proxy(HEADER, addresses, file)
    assert found is not None
    return found


@dataclass
class Site:
    """A page that takes identities from a proxy on this machine, and one that takes them from elsewhere alone."""

    served: Served
    port: int
    elsewhere: int

    def browser(self, cookie: str = "") -> Browser:
        return Browser(self.port, cookie)

    def noted(self) -> str:
        """The reason of the last line of the audit log."""
        return str(self.served.audited()[-1].get("why", ""))


@pytest.fixture(scope="module")
def site(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("proxy")
    for name, mail in MAIL.items():
        served.service.book.put_identity(name, mail)
    here, there = proxy_at(folder, "127.0.0.1/32"), proxy_at(folder, "10.9.8.0/24", "fd00::/8")
    with (
        pytest.MonkeyPatch.context() as patch,
        listening(served.service, proxy=here) as port,
        listening(served.service, proxy=there) as elsewhere,
    ):
        patch.setattr(audit, "MOST_TURNED_AWAY", 100_000)  # so that the log has a line for each attack
        yield Site(served, port, elsewhere)


def told(mail: str = MAIL["alice"], secret: str = SECRET) -> dict[str, str]:
    """The headers of the proxy."""
    return {"X-Forwarded-Email": mail, "X-Dpduck-Proxy-Secret": secret}


def got(browser: Browser, path: str = "/", **headers: str) -> Answer:
    return browser.get(path, **headers)


def test_a_browser_behind_the_proxy_needs_no_token(site: Site) -> None:
    """It gets the page and its session in one answer, asks, pays, and is noted by the name of its principal."""
    alice, before = site.browser(), site.served.spent()
    first = got(alice, **told())
    assert first.status == 200 and INSIDE in first.words and "alice" in first.words and "Set-Cookie" in first.headers
    assert SECRET not in first.body and SECRET not in site.served.log.read_text(encoding="utf-8")
    kept = alice.cookie
    again = got(alice, "/ask", **told())
    assert "Set-Cookie" not in again.headers and alice.cookie == kept
    form = alice.form(again, statement=by("sex", "0.0107"))
    priced = alice.post("/ask", form, **told())
    assert "The answer" in alice.post("/run", alice.form(priced), **told()).words
    (charge,) = site.served.spent()[len(before) :]
    assert charge[1] == "alice"
    assert "connected" in [line["event"] for line in site.served.audited() if line["principal"] == "alice"]


def test_logging_out_here_says_that_the_login_before_it_goes_on(site: Site) -> None:
    """The session ends, its copy too. The next page begins another one, since the proxy still knows the browser."""
    alice = site.browser()
    page = got(alice, **told())
    kept = alice.cookie
    form = alice.form(page)
    done = alice.post("/logout", form, **told())
    assert done.status == 200 and "log out there, too" in done.words and "Max-Age=0" in done.headers["Set-Cookie"]
    assert alice.post("/ask", {**form, "statement": "FROM dp_budget()"}, Cookie=kept, **told()).status == 303
    assert INSIDE in got(alice, **told()).words


def test_a_session_is_of_one_identity(site: Site) -> None:
    """Another identity, none, or a token's session: each change ends the session, and its forms work no more."""
    for later, shown in ((told(MAIL["bob"]), "bob"), ({}, LOGIN), (told(secret="x" * 64), LOGIN)):
        alice = site.browser()
        form = alice.form(got(alice, "/ask", **told()), statement="FROM dp_budget()")
        kept = alice.cookie
        changed = alice.post("/ask", form, **later)
        assert changed.status == 303 and "budget" not in changed.body
        assert alice.post("/ask", form, Cookie=kept, **told()).status == 303, "it stays ended"
        page = got(site.browser(kept), **later)
        assert shown in page.words and "alice" not in page.words
    alice = site.browser()
    got(alice, **told())
    kept = alice.cookie
    assert got(alice, **told("alice@example.org,bob@example.org")).status == 403
    assert got(alice, **told()).status == 200 and alice.cookie != kept, "a malformed identity is another one, too"
    bob = site.browser()
    bob.login(site.served.tokens["bob"])
    kept = bob.cookie
    assert "alice" in got(bob, **told()).words and bob.cookie != kept, "who the proxy names is logged in"
    assert LOGIN in got(site.browser(kept)).words, "and the token's session has ended"


def test_a_stolen_cookie_is_worth_nothing(site: Site) -> None:
    """Bob behind the proxy with the cookie of alice is bob. Without the proxy he is a stranger."""
    alice = site.browser()
    got(alice, **told())
    page = got(site.browser(alice.cookie), "/ask", **told(MAIL["bob"]))
    assert "bob" in page.words and "alice" not in page.words
    got(alice, **told())
    assert LOGIN in got(site.browser(alice.cookie)).words


def test_a_token_is_not_asked_for_behind_the_proxy(site: Site) -> None:
    """The form of the token is ignored where the proxy names somebody. Where it names nobody, tokens still work."""
    bob = site.browser()
    assert bob.post("/login", {"token": site.served.tokens["alice"]}, **told(MAIL["bob"])).status == 303
    assert not bob.cookie
    plain = site.browser()
    assert plain.login(site.served.tokens["alice"]).status == 303 and INSIDE in got(plain).words


def test_only_navigation_begins_a_session(site: Site) -> None:
    """A picture on another site cannot push out the sessions of the browser that loads it."""
    for mode, begins in (("navigate", True), ("no-cors", False), ("cors", False), ("websocket", False)):
        answer = got(site.browser(), **told(), Sec_Fetch_Mode=mode)
        assert ("Set-Cookie" in answer.headers) is begins and answer.status == (200 if begins else 303), mode


SMALL, WIDE = "аlice@example.org", "ａlice@example.org"  # noqa: RUF001 - a Cyrillic and a full-width letter
RAW: dict[str, list[tuple[str, str]]] = {
    "no secret": [(HEADER, MAIL["alice"])],
    "an empty secret": [(HEADER, MAIL["alice"]), (identity.SECRET_HEADER, "")],
    "another secret": [(HEADER, MAIL["alice"]), (identity.SECRET_HEADER, "f" * 64)],
    "the beginning of the secret": [(HEADER, MAIL["alice"]), (identity.SECRET_HEADER, SECRET[:-1])],
    "more than the secret": [(HEADER, MAIL["alice"]), (identity.SECRET_HEADER, SECRET + "0")],
    "the secret in capitals": [(HEADER, MAIL["alice"]), (identity.SECRET_HEADER, SECRET.upper())],
    "the secret twice": [(HEADER, MAIL["alice"])] + [(identity.SECRET_HEADER, SECRET)] * 2,
    "a wrong secret before it": [
        (HEADER, MAIL["alice"]), (identity.SECRET_HEADER, "0" * 64), (identity.SECRET_HEADER, SECRET),
    ],
    "a wrong secret after it": [
        (HEADER, MAIL["alice"]), (identity.SECRET_HEADER, SECRET), (identity.SECRET_HEADER, "0" * 64),
    ],
    "the secret in a list": [(HEADER, MAIL["alice"]), (identity.SECRET_HEADER, f"x, {SECRET}")],
    "the secret in quotes": [(HEADER, MAIL["alice"]), (identity.SECRET_HEADER, f'"{SECRET}"')],
    "the secret with underscores in its name": [(HEADER, MAIL["alice"]), ("X_Dpduck_Proxy_Secret", SECRET)],
    "the secret under both names": [
        (HEADER, MAIL["alice"]), (identity.SECRET_HEADER, SECRET), ("X-Dpduck_Proxy-Secret", SECRET),
    ],
    "the secret in a cookie": [(HEADER, MAIL["alice"]), ("Cookie", f"{identity.SECRET_HEADER}={SECRET}")],
    "the secret as a bearer": [(HEADER, MAIL["alice"]), ("Authorization", f"Bearer {SECRET}")],
    "the secret's hash": [
        (HEADER, MAIL["alice"]), (identity.SECRET_HEADER, identity._hash_secret(SECRET.encode()).hex()),
    ],
    "letters beyond Latin 1": [(HEADER, MAIL["alice"]), (identity.SECRET_HEADER, "é" * 64)],
    "an address in X-Forwarded-For": [(HEADER, MAIL["alice"]), ("X-Forwarded-For", "127.0.0.1")],
}  # fmt: skip
"""Headers with which a client on the proxy's machine tries to be alice. Each is a stranger's."""

MALFORMED: dict[str, list[str]] = {
    "twice": [MAIL["alice"], MAIL["alice"]],
    "two people": [MAIL["bob"], MAIL["alice"]],
    "a list": [f"{MAIL['bob']}, {MAIL['alice']}"],
    "a list without a blank": [f"{MAIL['bob']},{MAIL['alice']}"],
    "a list by semicolons": [f"{MAIL['bob']};{MAIL['alice']}"],
    "empty": [""],
    "blanks alone": ["   "],
    "a blank inside": ["alice @example.org"],
    "a name before it": [f"Alice <{MAIL['alice']}>"],
    "angle brackets": [f"<{MAIL['alice']}>"],
    "quotes": [f'"{MAIL["alice"]}"'],
    "an apostrophe": ["alice'--@example.org"],
    "over-long": ["a" * 255],
    "bytes of UTF-8": [SMALL],
    "full width": [WIDE],
    "Latin 1": ["alicé@example.org"],
    "a blank that does not break": ["alice\xa0@example.org"],
    "a backslash": ["alice\\@example.org"],
}
"""Requests that the proxy itself may pass on by mistake. Each one is refused."""

NOT_ALICE = {
    "capitals": "Alice@example.org",
    "all capitals": "ALICE@EXAMPLE.ORG",
    "a name of a principal with an identity": "alice",
    "a name of nobody": "mallory",
    "the owner": "owner",
    "dpduck": "dpduck",
    "another host": "alice@example.org.evil.example",
    "a dot at the end": "alice@example.org.",
    "a plus": "alice+x@example.org",
    "percent signs": "alice%40example.org",
    "a prefix": "alice@example.or",
    "a star": "*",
    "a pattern": "alice%",
    "a path": "../alice",
    "a number": "0",
    "SQL": "alice@example.org'--".replace("'", "`"),
    "null": "null",
}
"""Identities that are whole, and nobody's."""


def raw(port: int, headers: list[tuple[str, str]], path: str = "/", encoding: str = "utf-8") -> str:
    """Sends headers as they are, and returns the answer."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return sent(port, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{lines}\r\n".encode(encoding)).decode()


@pytest.mark.parametrize("name", RAW)
def test_without_the_secret_nobody_is_named(site: Site, name: str) -> None:
    """The login form, no session, and a line in the log, whatever stands for the secret."""
    answer = raw(site.port, RAW[name])
    assert " 200 " in answer[:20] and LOGIN in answer and "Set-Cookie" not in answer
    assert site.served.audited()[-1]["event"] in ("turned away", "more of these")
    assert "without the proxy's secret" in site.noted()


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_identity_is_refused(site: Site, name: str) -> None:
    """With the secret, from the proxy: no login form, no session, one fixed text."""
    headers = [(identity.SECRET_HEADER, SECRET)] + [(HEADER, value) for value in MALFORMED[name]]
    for encoding in ("utf-8", "latin-1"):
        if all(ord(letter) < 256 for value in MALFORMED[name] for letter in value) or encoding == "utf-8":
            answer = raw(site.port, headers, encoding=encoding)
            assert (" 403 " in answer[:20] and NOBODY in answer.lower()) or answer.endswith(REFUSED.body.decode())
            assert "Set-Cookie" not in answer and "alice" not in answer.rpartition("\r\n\r\n")[2]


@pytest.mark.parametrize("name", NOT_ALICE)
def test_an_identity_is_compared_letter_by_letter(site: Site, name: str) -> None:
    """Nobody is let in by something like an identity, and no principal is made. It is noted whole."""
    before = site.served.service.book.all()
    answer = got(site.browser(), **told(NOT_ALICE[name]))
    assert answer.status == 403 and NOBODY in answer.words.lower() and "Set-Cookie" not in answer.headers
    assert site.noted() == f"no principal has the identity {NOT_ALICE[name]}"
    assert site.served.service.book.all() == before


@pytest.mark.parametrize(
    "headers",
    [
        [("x-forwarded-email", MAIL["alice"])], [("X-FORWARDED-EMAIL", MAIL["alice"])],
        [(HEADER, f"  {MAIL['alice']}  ")],
    ],
)  # fmt: skip
def test_names_of_headers_have_no_case(site: Site, headers: list[tuple[str, str]]) -> None:
    """As HTTP has it: the proxy may write its header in small letters, and blanks around a value do not count."""
    answer = raw(site.port, [*headers, ("x-dpduck-proxy-SECRET", SECRET)])
    assert INSIDE in answer and "Set-Cookie" in answer


@pytest.mark.parametrize("other", ["X_Forwarded_Email", "X-Forwarded_Email", "x_forwarded-email"])
def test_a_header_that_looks_alike_is_refused(site: Site, other: str) -> None:
    """With underscores, alone or beside the right one: some servers read both names as one."""
    for headers in ([(other, MAIL["bob"])], [(HEADER, MAIL["alice"]), (other, MAIL["bob"])],
                    [(other, MAIL["alice"]), (HEADER, MAIL["alice"])]):  # fmt: skip
        answer = raw(site.port, [*headers, (identity.SECRET_HEADER, SECRET)])
        assert " 403 " in answer[:20] and "Set-Cookie" not in answer
        assert "malformed" in site.noted()


@pytest.mark.parametrize(
    "lines",
    [
        f"{HEADER}:\r\n {MAIL['alice']}\r\n", f"{HEADER}: x\r\n\t{MAIL['alice']}\r\n",
        f"{HEADER} : {MAIL['alice']}\r\n", f"{HEADER}: alice\0@example.org\r\n",
        f"{HEADER}: x\n{HEADER}: {MAIL['alice']}\n X: y\r\n", f"{HEADER}: alice\x0b@example.org\r\n",
        f" {HEADER}: {MAIL['alice']}\r\n", f"{HEADER}: x\rX-Y: {MAIL['alice']}\r\n",
        f"X: {'y' * 20_000}\r\n{HEADER}: {MAIL['alice']}\r\n",
    ],
)  # fmt: skip
def test_folded_and_broken_lines_are_no_request(site: Site, lines: str) -> None:
    """Line ends, blanks before the colon, control characters, more than fits: nobody is anybody."""
    head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n{identity.SECRET_HEADER}: {SECRET}\r\n"
    try:
        answer = sent(site.port, f"{head}{lines}\r\n".encode("latin-1")).decode()
    except OSError:  # it hung up before all was sent
        answer = ""
    assert INSIDE not in answer and "Set-Cookie" not in answer


@pytest.mark.parametrize(
    "forwarded", [{}, {"X_Forwarded_For": "10.9.8.7"}, {"Forwarded": "for=10.9.8.7"}, {"X_Real_IP": "10.9.8.7"}]
)
def test_the_address_is_that_of_the_connection(site: Site, forwarded: dict[str, str]) -> None:
    """A client on another address with the header and even the secret is a stranger, whatever it says of itself."""
    answer = got(Browser(site.elsewhere), **told(), **forwarded)
    assert LOGIN in answer.words and "Set-Cookie" not in answer.headers
    assert "from an address that is no proxy" in site.noted()


@pytest.mark.parametrize(
    ("peer", "networks", "believed"),
    [
        ("127.0.0.1", ["127.0.0.1/32"], True), ("127.0.0.1", ["127.0.0.1"], True), ("127.0.0.2", ["127.0.0.1"], False),
        ("::ffff:127.0.0.1", ["127.0.0.1/32"], True), ("::ffff:127.0.0.2", ["127.0.0.1/32"], False),
        ("::127.0.0.1", ["127.0.0.1/32"], False), ("::1", ["127.0.0.1/32"], False), ("::1", ["::1"], True),
        ("::ffff:10.0.0.9", ["10.0.0.0/29", "fd00::/8"], False), ("fd00::1%eth0", ["fd00::/8"], True),
        ("64:ff9b::7f00:1", ["127.0.0.1/32"], False), ("::ffff:7f00:1", ["127.0.0.1/32"], True),
        ("", ["127.0.0.1/32"], False), ("localhost", ["127.0.0.1/32"], False), ("0177.0.0.1", ["127.0.0.1"], False),
    ],
)  # fmt: skip
def test_addresses_of_both_kinds(tmp_path: Path, peer: str, networks: list[str], believed: bool) -> None:
    """An IPv4 address behind an IPv6 socket is that IPv4 address. No other notation of one is."""
    claim = proxy_at(tmp_path, *networks).claim(message(told()), peer)
    assert (claim.identity == MAIL["alice"]) is believed and bool(claim.why) is not believed


def message(headers: dict[str, str]) -> Message:
    found = Message()
    for name, value in headers.items():
        found[name] = value
    return found


def test_the_secret_is_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes of one length are compared by hmac.compare_digest, for right and wrong secrets alike."""
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def noting(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    proxy = proxy_at(tmp_path, "127.0.0.1")
    monkeypatch.setattr(hmac, "compare_digest", noting)
    for secret in (SECRET, "x", "", "\x80" * 999):
        proxy.claim(message(told(secret=secret)), "127.0.0.1")
    assert compared == [(32, 32)] * 4


def test_a_principal_that_is_revoked_or_over_is_out_at_once(site: Site) -> None:
    """In the middle of a session: revoked, past its last day, its identity taken away or given to somebody else."""
    book = site.served.service.book
    mail = "dora@example.org"
    for number in range(4):
        name = f"dora{number}"
        book.add(name, Fraction(1, 9), identity=mail)
        dora = site.browser()
        assert name in got(dora, **told(mail)).words
        if number == 0:
            book.revoke(name)
        elif number == 1:
            over = datetime.now(UTC) - timedelta(seconds=1)
            book._change(partial(ended, name=name, over=over))
        elif number == 2:
            book.put_identity(name, None)
        else:
            book.put_identity(name, "elsewhere@example.org")
        answer = got(dora, **told(mail))
        assert answer.status == 403 and NOBODY in answer.words.lower(), number
        with_one_less(book, name)
    book.add("emil", identity=mail)
    emil = site.browser()
    got(emil, **told(mail))
    book.revoke("emil")
    book.add("emil", identity=mail)
    kept = emil.cookie
    assert "emil" in got(emil, **told(mail)).words and emil.cookie != kept, "another principal has another session"
    book.revoke("emil")


def ended(present: tuple[Principal, ...], name: str, over: datetime) -> tuple[Principal, ...]:
    return tuple(replace(one, until=over) if one.name == name else one for one in present)


def with_one_less(book: PrincipalBook, name: str) -> None:
    if any(principal.name == name for principal in book.all()):
        book.revoke(name)


def test_a_name_is_an_identity_if_no_other_is_set(site: Site) -> None:
    """Carol has none, so a proxy that states names may state hers. No name or identity means two principals."""
    assert "carol" in got(site.browser(), **told("carol")).words
    book = site.served.service.book
    for call in (
        lambda: book.add("zoe", identity="carol"), lambda: book.add("zoe", identity="CAROL"),
        lambda: book.add("zoe", identity=MAIL["bob"].upper()), lambda: book.put_identity("carol", MAIL["alice"]),
        lambda: book.put_identity("carol", "bob"),
    ):  # fmt: skip
        with pytest.raises(Refusal, match="has this name or identity already; accepted: another identity"):
            call()
    for wrong in ("", "a b", "a,b", "é@example.org", "x" * 255):
        with pytest.raises(Refusal, match="is no identity"):
            book.put_identity("carol", wrong)
    with pytest.raises(Refusal, match="no principal 'nobody'"):
        book.put_identity("nobody", "n@example.org")
    assert not any(principal.name == "zoe" for principal in book.all())


def test_principals_without_identity_are_stored_as_before(tmp_path: Path) -> None:
    """An earlier version reads them. Two principals with one identity, forced into the record, are nobody."""
    file = SecretsFile.open(tmp_path / "secrets", create=True)
    book = PrincipalBook(file)
    book.add("ann")
    assert "identity" not in json.loads(file.get("principals") or b"")[0]
    book.put_identity("ann", "ann@example.org")
    book.add("ben")
    found = book.find_identity("ann@example.org")
    assert found is not None and found.name == "ann" and book.find_identity("ann") is None
    record = json.loads(file.get("principals") or b"")
    record[1]["identity"] = "ann@example.org"
    file.save("principals", json.dumps(record).encode())
    assert book.find_identity("ann@example.org") is None


@pytest.mark.parametrize("seed", range(3))
def test_random_headers_name_nobody(tmp_path: Path, seed: int) -> None:
    """20,000 random requests near a right one: alice is named only by exactly her header and the secret, once each."""
    rng, proxy = np.random.default_rng(seed), proxy_at(tmp_path, "127.0.0.1", "fd00::/8")
    letters = string.ascii_letters + string.digits + "@.,;_- \té\x00"
    names = [HEADER, HEADER.lower(), HEADER.replace("-", "_"), identity.SECRET_HEADER, identity.SECRET_HEADER.upper()]
    names += [identity.SECRET_HEADER.replace("-", "_"), "X-Forwarded-For", "Forwarded"]
    values = [MAIL["alice"], SECRET, MAIL["bob"], "127.0.0.1", ""]
    peers = ["127.0.0.1", "127.0.0.2", "fd00::9", "::1", "::ffff:127.0.0.1"]
    named = 0
    for _ in range(20_000):
        given = [(names[rng.integers(len(names))], values[rng.integers(len(values))]) for _ in range(rng.integers(5))]
        if rng.random() < 0.3:  # a right request, with perhaps one change
            given = [(HEADER, MAIL["alice"]), (identity.SECRET_HEADER, SECRET), *given[: rng.integers(2)]]
        if given and rng.random() < 0.3:
            at = rng.integers(len(given))
            cut = rng.integers(len(given[at][1]) + 1)
            letter = letters[rng.integers(len(letters))]
            given[at] = given[at][0], given[at][1][:cut] + letter + given[at][1][cut:]
        headers, peer = Message(), peers[rng.integers(len(peers))]
        for name, value in given:
            headers[name] = value
        claim = proxy.claim(headers, peer)
        stated = [(name.lower().replace("_", "-"), name, value.strip(" \t")) for name, value in given]
        mails = [(name, value) for key, name, value in stated if key == HEADER.lower()]
        secrets = [(name, value) for key, name, value in stated if key == identity.SECRET_HEADER.lower()]
        right = len(mails) == len(secrets) == 1 and "_" not in mails[0][0] + secrets[0][0]
        right = right and secrets[0][1] == SECRET and peer in ("127.0.0.1", "fd00::9", "::ffff:127.0.0.1")
        if claim.identity:
            assert right and claim.identity == mails[0][1], (given, peer)
            named += claim.identity == MAIL["alice"]
        else:
            assert claim == STRANGER or claim.why
    assert named > 100, "right ones are among them"


@pytest.mark.parametrize("seconds", [2.0, pytest.param(30.0, marks=pytest.mark.audit)])
def test_damaged_requests_log_nobody_in(site: Site, seconds: float) -> None:
    """Requests on the wire near a right one, but for the last letter of the secret: no session for some seconds."""
    rng, end, times = np.random.default_rng(), time.monotonic() + seconds, 0
    host = f"127.0.0.1:{site.port}"
    lines = [f"Host: {host}", f"{HEADER}: {MAIL['alice']}", f"{identity.SECRET_HEADER}: {SECRET[:-1]}", "Cookie: a=b"]
    head = "\r\n".join(["GET / HTTP/1.1", *lines, "", ""]).encode()
    while time.monotonic() < end:
        request = mutated(rng, head)
        if SECRET.encode() in request:  # by chance the missing letter came back
            continue
        with suppress(OSError), socket.create_connection(("127.0.0.1", site.port), timeout=30) as client:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            answer = received(client)
            assert b"Set-Cookie" not in answer and INSIDE.encode() not in answer.partition(b"<main")[2], request
            times += 1
    assert times > 5 and LOGIN in got(site.browser()).words


@pytest.mark.parametrize(
    ("header", "addresses", "secret", "why"),
    [
        (HEADER, [], "good", "needs three options"), (HEADER, ["127.0.0.1"], None, "needs three options"),
        (None, ["127.0.0.1"], "good", "needs three options"), (None, [], "good", "needs three options"),
        ("X Y", ["127.0.0.1"], "good", "no header of identity"), ("Cookie", ["127.0.0.1"], "good", "no header"),
        ("X_User", ["127.0.0.1"], "good", "no header"), ("X-Forwarded-For", ["127.0.0.1"], "good", "no header"),
        (identity.SECRET_HEADER, ["127.0.0.1"], "good", "no header of identity"),
        (HEADER, ["0.0.0.0/0"], "good", "is every address"), (HEADER, ["::/0"], "good", "is every address"),
        (HEADER, ["127.0.0.1/8"], "good", "no range of addresses"), (HEADER, ["localhost"], "good", "no range"),
        (HEADER, ["10.0.0.0/24,"], "good", "no range"), (HEADER, ["127.0.0.1"], "open", "every account can read"),
        (HEADER, ["127.0.0.1"], "short", "too short"), (HEADER, ["127.0.0.1"], "blank", "has blanks"),
        (HEADER, ["127.0.0.1"], "lines", "has blanks"), (HEADER, ["127.0.0.1"], "gone", "cannot be read"),
    ],
)  # fmt: skip
def test_options_are_refused_unless_all_are_safe(
    tmp_path: Path, header: str | None, addresses: list[str], secret: str | None, why: str
) -> None:
    """The three together, a header of its own, real addresses, and a secret that others cannot read or guess."""
    for name, text in (("good", SECRET), ("open", SECRET), ("short", "abc"), ("blank", f"{SECRET} x"),
                       ("lines", f"{SECRET}\n{SECRET}")):  # fmt: skip
        (tmp_path / name).write_text(text, encoding="ascii")
        (tmp_path / name).chmod(0o644 if name == "open" else 0o600)
    with pytest.raises(DpduckError, match=why) as refused:
        open_proxy(header, addresses, None if secret is None else tmp_path / secret)
    assert SECRET not in str(refused.value) and "accepted: " in str(refused.value)
    assert open_proxy(None, [], None) is None


def test_identities_need_a_page(tmp_path: Path) -> None:
    """Without --web the options would do nothing, so they are refused before anything starts."""
    proxy_at(tmp_path, "127.0.0.1")
    proxied = Proxied(HEADER, ("127.0.0.1",), tmp_path / "proxy_secret")
    with pytest.raises(Refusal, match="there is none; accepted: --web"):
        _require_addresses(Listening("quack:localhost:1", None, None, None, False, None, "", proxied))
    _require_addresses(Listening(None, None, "127.0.0.1:1", None, False, None, "", proxied))


def test_the_command_line_sets_identities(site: Site) -> None:
    """principal add --identity, principal identity, and the list."""
    database, book = str(site.served.database), site.served.service.book

    def ran(*words: str) -> str:
        return CliRunner().invoke(main, ["principal", words[0], database, *words[1:]]).output

    assert ran("add", "fay", "--identity", "fay@example.org").startswith("dpduck_")
    assert '"identity": "fay@example.org"' in ran("list", "--format", "json")
    assert ran("identity", "fay", "f@example.org") == "fay is f@example.org\n"
    assert "has this name or identity already" in ran("identity", "fay", MAIL["alice"])
    assert ran("identity", "fay") == "fay has no identity now\n"
    found = book.find_identity("fay")
    assert found is not None and found.identity is None
    book.revoke("fay")
