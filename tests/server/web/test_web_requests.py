"""The page's reading of requests, its headers for browsers, and its notes in the audit log."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dpduck.server import audit
from dpduck.server.limits import Limits
from dpduck.server.web.listener import WebListener
from dpduck.server.web.requests import REFUSED, Patient, form_of, headers_of, is_gone, place_of
from tests.server.served import Served, certificate
from tests.server.web.client import Browser, listening
from tests.support.clinics import by
from tests.support.ports import free_port


def test_no_address_has_control_characters(served: Served, alice: Browser) -> None:
    """%00, line ends, escapes: the same answer for all, and no statement is made."""
    before = served.audited()
    for code in ("%00", "%0A", "%0d%0a", "%1b[2J", "%7F", "%C2%85"):
        assert alice.get(f"/view/ages{code}").body == REFUSED.body.decode(), code
    assert served.audited() == before and alice.get("/view/ages").status == 200


def test_a_browser_that_says_goodbye_over_tls_is_gone(tmp_path: Path) -> None:
    """close_notify comes as bytes, which are no sign of life. A browser that waits is there."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    public, private = certificate(tmp_path)
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(public))
    serving.load_cert_chain(public, private)
    pair = socket.socketpair()
    ours = serving.wrap_socket(pair[0], server_side=True, do_handshake_on_connect=False)
    greeting = threading.Thread(target=ours.do_handshake)
    greeting.start()
    theirs = asking.wrap_socket(pair[1], server_hostname="localhost")
    greeting.join()
    gone = is_gone(ours)
    with ours, theirs:
        assert not gone()
        theirs.sendall(b"more")
        assert not gone() and not gone()
        theirs.setblocking(False)
        with suppress(ssl.SSLWantReadError):
            theirs.unwrap()  # says goodbye, and does not hang up
        start = time.monotonic()
        while not gone():
            assert time.monotonic() - start < 20
            time.sleep(0.01)


def test_pages_leave_the_room_of_statements_in_the_log(tmp_path: Path) -> None:
    """What pages ask of themselves is bounded apart: reloading them without end hides nothing that was typed."""
    path, now = tmp_path / "log", [0.0]
    log = audit.AuditFile(path, clock=lambda: now[0])
    for _ in range(audit.MOST_NOTES + 500):
        log.note("mallory", "answered", f"FROM {'x' * 3_000}", page=True)
    log.note("mallory", "refused", "SELECT secret")
    now[0] = 61.0
    log.note("mallory", "answered", "FROM ages", page=True)
    log.close()
    noted = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    typed = [line for line in noted if "page" not in line]
    assert [line.get("statement") for line in typed] == ["SELECT secret"]
    assert len(noted) == audit.MOST_OF_PAGES + 3
    skipped = [(line["times"], line["page"]) for line in noted if line["event"] == "more of these"]
    assert skipped == [(audit.MOST_NOTES + 500 - audit.MOST_OF_PAGES, True)]


def test_the_log_tells_what_was_typed_from_what_a_page_asks(served: Served, alice: Browser) -> None:
    """A page's own statements are marked. A typed one, its price, and a refusal are not."""
    before = len(served.audited())
    alice.get("/")
    alice.get("/view/ages")
    assert len(served.audited()) > before and all(line["page"] for line in served.audited()[before:])
    before = len(served.audited())
    for text in ("SELECT max(n) FROM ages", by("sex", "0.0123"), "FROM nowhere"):
        alice.ask(text)
    typed = [line["statement"] for line in served.audited()[before:] if "page" not in line]
    assert len(typed) == 3 and typed[0] == "SELECT max(n) FROM ages" and typed[1].startswith("FROM dp_plan(")


def test_browsers_are_told_to_come_over_tls(served: Served) -> None:
    """Strict-Transport-Security is in every answer of a page with a name. This machine's other ports stay usable."""
    for place, strict in (
        (place_of("127.0.0.1", 1, False, "https://clinic.example.org"), True),
        (place_of("clinic.example.org", 8443, True, None), True),
        (place_of("localhost", 8443, True, None), False), (place_of("127.0.0.1", 1, False, None), False),
        (place_of("127.0.0.1", 1, False, "https://localhost:8443"), False),
    ):  # fmt: skip
        headers = dict(headers_of(REFUSED, place))
        assert headers.get("Strict-Transport-Security") == ("max-age=31536000" if strict else None)


def test_a_page_without_tls_beyond_this_machine_says_so(served: Served) -> None:
    """Behind a proxy on another machine tokens travel in the clear up to here: said once, at the start."""
    for host, said in (("0.0.0.0", True), ("127.0.0.1", False)):  # noqa: S104
        made = WebListener(f"{host}:{free_port()}", served.service, Limits(), origin="https://clinic.example.org")
        made.close()
        assert (f"listens at {host}" in made.warning and "in the clear" in made.warning) if said else not made.warning


def test_a_request_is_read_within_its_bytes() -> None:
    """Headers without end stop at the limit. A form that is none is none."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"x" * 100)
        reader = Patient(ours, 5.0, 64)
        assert reader.read(100) == b"x" * 64
        with pytest.raises(TimeoutError):
            reader.read(1)
        reader.allow(10)
        assert reader.read(100) == b"x" * 10
    assert form_of(b"a=1&b=%3C") == {"a": "1", "b": "<"}
    for wrong in (b"a", b"a=1&a=2", b"\xff=1", b"&".join(b"a%d=1" % one for one in range(9))):
        assert form_of(wrong) is None


def test_too_many_logins_in_a_minute_are_refused_as_such(served: Served) -> None:
    """Status 429, no session, noted as turned away, and in no other word: a right token, and nobody else's matter."""
    token = served.tokens["alice"]
    with listening(served.service, Limits(seconds=60.0, connections=3)) as port:
        entered = [Browser(port).login(token) for _ in range(3)]
        assert [one.status for one in entered] == [303] * 3
        late = Browser(port)
        refused = late.login(token)
        assert refused.status == 429 and "opens too many connections" in refused.words and not late.cookie
        assert "3 in a minute" in refused.words and token not in refused.body
        last = served.audited()[-1]
        assert last["event"] == "turned away" and "too many connections" in last["why"]
        assert Browser(port).login(served.tokens["bob"]).status == 303, "bob has a number of his own"
        wrong = Browser(port).login("dpduck_" + "x" * 40)
        assert wrong.status == 403, "a wrong token is no matter of numbers"
