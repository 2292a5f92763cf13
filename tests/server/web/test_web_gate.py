"""The page attacked: tokens, cookies, forms from elsewhere, frames, names of hosts, HTML in names, slow strangers."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode

import pytest

import dpduck
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.server.gate import open_service
from dpduck.server.limits import Limits
from dpduck.server.local_vault import LocalVault
from dpduck.server.principals import PrincipalBook
from dpduck.server.sessions import Sessions
from dpduck.server.web import listener, pages
from dpduck.server.web.listener import PageConnections, WebListener
from dpduck.server.web.requests import REFUSED, place_of, set_cookie
from dpduck.values.errors import PermissionRefusal, Refusal
from tests.server.served import NoAudit, Served, add_principals, make_clinic
from tests.server.web.client import Browser, listening, received, sent
from tests.support.clinics import by

NOTHING = REFUSED.body.decode()


@pytest.mark.slow
def test_the_token_is_in_no_page_no_address_and_no_log(served: Served, stranger: Browser) -> None:
    """It goes in by a form's body once. No answer and no log contains it."""
    token = served.tokens["alice"]
    entered = stranger.login(token)
    seen = [entered, *(stranger.get(path) for path in ("/", "/ask", "/view/ages")), stranger.ask("FROM dp_budget()")]
    assert [one.status for one in seen] == [303, 200, 200, 200, 200]
    assert not [one for one in seen if token in one.body or token in str(one.headers)]
    assert entered.headers["Location"] == "/" and token not in stranger.cookie
    assert token not in served.log.read_text(encoding="utf-8")
    assert stranger.get(f"/?token={token}").body == NOTHING, "an address never brings a token, or anything"
    assert '<input id="token" name="token" type="password"' in Browser(stranger.port).get("/").body


def test_the_cookie_is_kept_from_scripts_and_other_sites(stranger: Browser, served: Served) -> None:
    """HttpOnly, SameSite=Strict, no end beyond the browser's. Over TLS Secure, under a name that only TLS may set."""
    kept = stranger.login(served.tokens["alice"]).headers["Set-Cookie"]
    assert re.fullmatch(rf"dpduck_{stranger.port}=[\w-]{{43}}; Path=/; HttpOnly; SameSite=Strict", kept)
    secure = place_of("clinic.example.org", 443, True, None)
    assert set_cookie("c", "v", secure)[1] == "c=v; Path=/; HttpOnly; SameSite=Strict; Secure"
    behind = place_of("127.0.0.1", 8080, False, "https://clinic.example.org")
    assert behind.secure and behind.hosts == {"clinic.example.org"}
    made = pages.Pages(served.service, Limits(), behind, "dpduck_1")
    assert made.cookie == "__Host-dpduck_1"
    made.close()


def test_a_session_ends(tmp_path: Path, served: Served) -> None:
    """By logging out, unused, after its life, and when its token is revoked, whatever the name has by then."""
    now = [0.0]
    file = SecretsFile.open(tmp_path / "secrets", create=True)
    book = PrincipalBook(file)
    token = book.add("dora")
    sessions = Sessions(book, Limits(), clock=lambda: now[0], life=100.0, idle=30.0)
    for name in ("used", "unused", "left"):
        assert sessions.begin(name, token) is not None
    sessions.end("left")
    for now[0] in (0.0, 29.0, 58.0, 87.0, 99.0):
        assert sessions.principal("used").name == "dora"
    for name in ("unused", "left", "never"):
        with pytest.raises(PermissionRefusal):
            sessions.principal(name)
    now[0] = 100.0
    with pytest.raises(PermissionRefusal):
        sessions.principal("used")
    sessions.begin("revoked", token)
    book.revoke("dora")
    with pytest.raises(PermissionRefusal):
        sessions.principal("revoked")
    book.add("dora")
    with pytest.raises(PermissionRefusal, match="this token was revoked"):
        sessions.principal("revoked")


def test_logging_out_ends_the_session_itself(served: Served, alice: Browser) -> None:
    """Whoever copied the cookie is out, too. A form from elsewhere cannot log anybody out. It is noted."""
    copied = Browser(alice.port, alice.cookie)
    assert "Private views" in copied.get("/").words
    assert alice.post("/logout", {}).status == 400 and "Private views" in copied.get("/").words
    done = alice.post("/logout", alice.form(alice.get("/")))
    assert done.status == 303 and "Max-Age=0" in done.headers["Set-Cookie"]
    assert "Your token" in copied.get("/").words
    assert (served.audited()[-1]["principal"], served.audited()[-1]["event"]) == ("alice", "disconnected")
    alice.login(served.tokens["alice"])
    alice.login(served.tokens["alice"])
    assert [line["event"] for line in served.audited()[-3:]] == ["connected", "connected", "disconnected"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": ""}, {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "http://127.0.0.1:1"}, {"Sec_Fetch_Site": "same-site"}, {"Content_Type": "text/plain"},
    ],
)  # fmt: skip
def test_forms_from_elsewhere_do_nothing(served: Served, alice: Browser, headers: dict[str, str]) -> None:
    """Neither another origin nor none, not even with the token of the form. Nothing is charged."""
    before = served.spent()
    form = alice.form(alice.get("/ask"), statement="FROM dp_budget()")
    assert alice.post("/ask", form, **headers).body == NOTHING
    assert Browser(alice.port).post("/login", {"token": served.tokens["bob"]}, **headers).body == NOTHING
    assert alice.post("/ask", form).status == 200 and served.spent() == before


def test_a_form_needs_the_token_of_its_session(served: Served, alice: Browser) -> None:
    """Without it, or with another session's, nothing is asked."""
    other = Browser(alice.port)
    other.login(served.tokens["bob"])
    stolen = other.form(other.get("/ask"))["form_token"]
    for token in ("", stolen):
        answer = alice.post("/ask", {"statement": "FROM dp_budget()", "form_token": token})
        assert answer.status == 400 and "another session" in answer.words


def test_nobody_pays_what_this_session_was_not_shown(served: Served, alice: Browser) -> None:
    """The button is of one session and one statement, and for one press: anything else is priced, not paid."""
    before = served.spent()
    priced = alice.ask(by("sex", "0.011"))
    form = alice.form(priced)
    assert served.spent() == before
    for changed in ({"offer": "0" * 43}, {"offer": ""}, {"statement": by("sex", "4")}):
        again = alice.post("/run", form | changed)
        assert "What it costs" in again.words and served.spent() == before
    bob = Browser(alice.port)
    bob.login(served.tokens["bob"])
    assert "What it costs" in bob.post("/run", form | bob.form(bob.get("/ask"))).words and served.spent() == before
    assert "What it costs" in alice.post("/run", form).words and served.spent() == before, "one press each"
    form = alice.form(alice.ask(by("sex", "0.011")))
    for _ in range(2):
        assert "The answer" in alice.post("/run", form).words, "the same again is free"
        assert len(served.spent()) == len(before) + 1


def test_every_answer_says_that_it_is_not_framed_kept_or_sniffed(alice: Browser, stranger: Browser) -> None:
    """Pages, refusals and files: no frame, no cache, no other origin, no script but the page's own."""
    answers = [alice.get("/"), alice.get("/page.js"), alice.get("/nothing"), stranger.login("x"), stranger.get("/")]
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"):
            assert part in policy
        assert "unsafe" not in policy and "http" not in policy and "*" not in policy
        for name, value in (
            ("X-Frame-Options", "DENY"), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "same-origin"), ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
        ):  # fmt: skip
            assert answer.headers[name] == value
        assert "Server" not in answer.headers
    nonces = [
        re.findall(r"nonce-([\w-]+)", one.headers["Content-Security-Policy"])[0] for one in (answers[0], answers[4])
    ]
    assert len(set(nonces)) == 2 and f'<script src="/page.js" nonce="{nonces[0]}" defer></script>' in answers[0].body
    assert "nonce" not in answers[1].headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:{port}.evil.example", ""]
)
def test_other_names_of_this_host_are_refused(alice: Browser, host: str) -> None:
    """A name that an attacker's DNS points here (rebinding) shows nothing, whoever the cookie belongs to."""
    assert alice.get("/", Host=host.format(port=alice.port)).body == NOTHING
    assert alice.get("/", Host=f"localhost:{alice.port}").status == 200


def test_what_is_not_known_has_one_answer(alice: Browser, stranger: Browser) -> None:
    """Paths, methods, malformed requests, two lengths, a body in chunks: the same bytes. Nobody's request is quoted."""
    port = alice.port
    head = f"Host: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\nCookie: {alice.cookie}\r\n"
    form = "Content-Type: application/x-www-form-urlencoded\r\n"
    raw = [
        f"GET /%3Cscript%3E HTTP/1.1\r\n{head}\r\n", f"DELETE / HTTP/1.1\r\n{head}\r\n",
        f"HEAD / HTTP/1.1\r\n{head}\r\n",
        f"OPTIONS * HTTP/1.1\r\n{head}\r\n", f"GET http://evil.example/ HTTP/1.1\r\n{head}\r\n", "\x16\x03\x01\r\n\r\n",
        f"GET / HTTP/1.1\r\n{head}Host: 127.0.0.1:{port}\r\n\r\n", f"GET / HTTP/9.9\r\n{head}\r\n", "GET /\r\n\r\n",
        f"GET / HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        f"GET / HTTP/1.1\r\n{head}Transfer-Encoding : chunked\r\n\r\n",
        f"POST /logout HTTP/1.1\r\n{head}{form}Content-Length: 3\r\nTransfer-Encoding : chunked\r\n\r\na=b",
        f"GET / HTTP/1.1\r\n{head}X: a\r\n folded\r\n\r\n", f"GET / HTTP/1.1\r\n{head}X(y): a\r\n\r\n",
        f"GET / HTTP/1.1\r\n{head}X: a\0b\r\n\r\n", f"GET / HTTP/1.1\r\n{head}: a\r\n\r\n",
        f"GET / HTTP/1.1\r\n X: a\r\n{head}\r\n",
        f"POST /ask HTTP/1.1\r\n{head}{form}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        f"POST /ask HTTP/1.1\r\n{head}{form}Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
        f"POST /ask HTTP/1.1\r\n{head}{form}Content-Length: -1\r\n\r\n",
        f"POST /ask HTTP/1.1\r\n{head}{form}Expect: 100-continue\r\nContent-Length: 1\r\n\r\na",
        f"POST /ask HTTP/1.1\r\n{head}{form}Content-Length: 7\r\n\r\na=1&a=2",
    ]  # fmt: skip
    answers = {sent(port, text.encode("latin-1")) for text in raw}
    assert len(answers) == 1 and answers.pop().endswith(REFUSED.body)
    for path in ("/favicon.ico", "/view/", "/view/secret", "/view/visits", "/../etc/passwd", "/page.css/", "/run"):
        assert alice.get(path).body == NOTHING and (
            path.startswith("/view/s") or stranger.get(path).status in (200, 404)
        )


@pytest.mark.slow
def test_wrong_tokens_wait_and_are_told_nothing(served: Served, stranger: Browser) -> None:
    """One second each, in one fixed text. Noted as turned away. A right token gets in."""
    start = time.monotonic()
    answers = [stranger.login(token) for token in ("", "dpduck_<script>", served.tokens["alice"][:-1])]
    assert time.monotonic() - start >= 3 * pages.WRONG_TOKEN_SECONDS
    assert {answer.status for answer in answers} == {403} and not stranger.cookie
    assert len({re.sub(r'nonce="[^"]*"', "", answer.body) for answer in answers}) == 1
    assert stranger.login("x" * 3_000).body == NOTHING, "a token has no such length"
    assert [line["event"] for line in served.audited()[-3:]] == ["turned away"] * 3
    assert stranger.login(served.tokens["alice"]).status == 303


@pytest.mark.slow
def test_names_are_text_wherever_they_come_from(tmp_path: Path, own_state: Path) -> None:
    """Tables, columns, labels, statements and refusals with HTML are shown, and never read as HTML."""
    evil, worse = "<script>alert(1)</script>", "'><img src=x onerror=alert(1)>"
    database = make_clinic(tmp_path)
    with dpduck.connect(database) as owner:
        owner.execute(f'CREATE TABLE "{evil}" AS SELECT i AS p, \'{evil}\' AS "{worse}" FROM range(9) AS r(i)')
        for text in (
            f'CREATE PRIVACY POLICY ON "{evil}" (PRIVACY UNIT p MAX ROWS 1, BUDGET (epsilon = 5), '
            f"DOMAIN \"{worse}\" IN ('{evil}', 'plain'))",
            f'CREATE PRIVATE VIEW made OPTIONS (epsilon = 1) AS SELECT "{worse}", count(*) AS "{evil}" FROM "{evil}" '
            f'GROUP BY "{worse}"',
        ):
            owner.execute("FROM dp(?)", [text])
    token = add_principals(database)["alice"]
    vault = LocalVault(database)
    service = open_service(database, None, NoAudit(), Limits(seconds=60.0), vault=vault)
    with listening(service) as port:
        alice = Browser(port)
        alice.login(token)
        asked = f'SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) "{worse}", count(*) AS n FROM "{evil}" '
        priced = alice.ask(f'{asked}GROUP BY "{worse}"')
        seen = [priced, alice.pay(priced), *(alice.get(path) for path in ("/", "/ask", "/view/made"))]
        seen += [alice.ask(f"SELECT '{evil}' AS \"{evil}\""), alice.ask(f'SELECT "{evil}" FROM ages'), alice.ask(evil)]
    service.close()
    for one in seen:
        assert one.status == 200 and evil not in one.body and "<img" not in one.body
        assert evil in one.words, one.words
    assert "The answer" in seen[1].words
    if find_spec("vl_convert"):
        assert 'role="img"' in seen[4].body, "its labels are in the picture, too"


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("0.0.0.0:1", {}),
        ("192.0.2.1:8080", {}),
        ("clinic.example.org:8080", {}),
        ("0.0.0.0:1", {"origin": "http://localhost:1"}),
    ],
)
def test_beyond_this_machine_needs_tls_or_a_proxy(served: Served, address: str, options: dict[str, str]) -> None:
    """As for the other protocols, tokens never travel in the clear unless the owner names what is in front."""
    with pytest.raises(Refusal, match=r"in the clear; accepted: 127.0.0.1, --tls-certificate"):
        WebListener(address, served.service, Limits(), **options)  # type: ignore[arg-type]
    for wrong in ("clinic.example.org", "ftp://x", "https://x/y", "http://clinic.example.org"):
        with pytest.raises(Refusal, match="no origin"):
            place_of("127.0.0.1", 1, False, wrong)


# Strangers who keep it waiting, and principals who ask too much.


def test_slow_strangers_make_room(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """More connections than there are places, each sending nothing: whoever asks is answered at once, meanwhile."""
    monkeypatch.setattr(listener, "MOST_CONNECTIONS", 8)
    with listening(served.service) as port:
        slow = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(30)]
        for one in slow:
            one.sendall(b"GET / HTTP/1.1\r\nHost: x")
        start = time.monotonic()
        assert Browser(port).get("/").status == 200 and time.monotonic() - start < 12
        assert [received(one) for one in slow[:20]] == [b""] * 20, "the longest waiting went first"
        for one in slow:
            one.close()


def test_drop_by_drop_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole request has so many seconds, however it is cut, and so many bytes, before its sender is known."""
    monkeypatch.setattr(listener, "READ_SECONDS", 0.6)
    with listening(served.service) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        start = time.monotonic()
        with pytest.raises(OSError):  # reset, or a pipe that nobody reads
            while time.monotonic() - start < 20:
                client.sendall(b"G")
                time.sleep(0.1)
        assert time.monotonic() - start < 12
    with listening(served.service) as port:
        with suppress(OSError):  # it hangs up before all is sent
            assert sent(port, b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 200_000) == b""
        assert Browser(port).get("/").status == 200


def test_what_is_at_work_keeps_its_place() -> None:
    """A new connection replaces one that waits. If all are at work, the new one is sent away."""
    pairs = [socket.socketpair() for _ in range(5)]
    ends = [one for one, _ in pairs]
    held = PageConnections(2)
    assert held.enter(ends[0]) and held.enter(ends[1])
    held.works(ends[0])
    assert held.enter(ends[2]) and pairs[1][1].recv(1) == b"", "the one that waited was sent away"
    held.works(ends[2])
    assert not held.enter(ends[3])
    held.leave(ends[0])
    assert held.enter(ends[3])
    held.waits(ends[2])
    assert held.enter(ends[4]) and pairs[3][1].recv(1) == b"", "the longest waiting goes first"
    for pair in pairs:
        for one in pair:
            one.close()


def test_one_principal_has_so_many_pages_at_work(
    served: Served, alice: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for more at once is refused. Everybody else is answered."""
    monkeypatch.setattr(pages, "AT_WORK_EACH", 0)
    refused = alice.get("/")
    assert refused.status == 429 and "too many pages at once" in refused.words.lower()
    monkeypatch.setattr(pages, "AT_WORK_EACH", 1)
    assert "Private views" in alice.get("/").words


def test_statements_are_held_to_the_limits_of_the_gate(served: Served, alice: Browser) -> None:
    """Length, refusals and their texts are the gate's own, word for word."""
    for text in ("SELECT * FROM secret", "INSTALL httpfs", "SELECT 1; SELECT 2", f"SELECT '{'x' * 100_001}'"):
        said = served.refused("alice", text)
        what, _, accepted = said.partition("; accepted: ")
        shown = alice.ask(text).words
        assert what[1:] in shown and accepted in shown


def test_refusals_of_the_page_are_in_the_audit_log(served: Served, alice: Browser) -> None:
    """A refused page request is noted with its text and takes a place like any statement. It is refused where there is
    none.
    """
    for text in ("INSTALL httpfs", "SELECT 1; SELECT 2", "COPY visits TO 'x'", f"SELECT {'+'.join(['1'] * 9000)}"):
        before = len(served.audited())
        assert "Accepted" in alice.ask(text).words
        noted = [line for line in served.audited()[before:] if line["event"] == "refused"]
        assert len(noted) == 1 and text.startswith(noted[0]["statement"][:20]), text[:20]
    gate, form = served.service.gate, alice.form(alice.get("/ask"), statement="SELECT 1; SELECT 2")
    gate._running["alice"] += 600
    try:
        refused = alice.post("/ask", form)
        assert refused.status == 429 and "too many statements at once" in refused.words.lower()
        assert alice.get("/").status == 429
    finally:
        del gate._running["alice"]


@pytest.mark.parametrize("other", ['x={"a":1}', "a[b]=1", "flag", 'x="unclosed', "foo@bar=1", "=", "dpduck=1"])
def test_cookies_of_others_keep_nobody_out(alice: Browser, other: str) -> None:
    """Cookies know no ports: whatever another program on this host has set before or after, the session is found."""
    for cookie in (f"{other}; {alice.cookie}", f"{alice.cookie}; {other}"):
        assert "Private views" in alice.get("/", Cookie=cookie).words
    twice = f"{alice.cookie}; {alice.cookie.partition('=')[0]}={'A' * 43}"
    assert "Your token" in alice.get("/", Cookie=twice).words, "of two nobody knows which is whose"


def test_a_form_that_was_cut_off_is_none(alice: Browser) -> None:
    """Fewer bytes than were announced, then an end: nothing is asked."""
    body = urlencode(alice.form(alice.get("/ask"), statement="FROM dp_budget()"))
    host = f"127.0.0.1:{alice.port}"
    head = f"POST /ask HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nCookie: {alice.cookie}\r\n"
    head += f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body) + 500}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", alice.port), timeout=30) as client:
        client.sendall((head + body).encode())
        client.shutdown(socket.SHUT_WR)
        assert received(client).endswith(REFUSED.body)


def test_who_waits_without_a_place_waits_no_longer() -> None:
    """A wrong token waits its second, but its thread ends as soon as somebody else has its place."""
    pairs = [socket.socketpair() for _ in range(2)]
    (first, _), (second, _) = pairs
    held = PageConnections(1)
    assert held.enter(first)
    held.works(first)
    waiting = threading.Thread(target=held.pause, args=(first, 60.0))
    waiting.start()
    while not held.enter(second):
        time.sleep(0.01)
    waiting.join(20)
    assert not waiting.is_alive()
    for pair in pairs:
        for one in pair:
            one.close()
