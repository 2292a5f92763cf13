"""docs/nginx_identity.conf, run by a real nginx between a real server and a program that stands for oauth2-proxy."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.server.principals import PrincipalBook
from tests.server.served import add_principals, certificate, make_clinic, serving_flight
from tests.server.shell import eventually
from tests.server.test_proxy import CONFIGURATION, NGINX, listens, sent
from tests.server.web.client import sent as sent_plain
from tests.support.ports import free_port

SECRET = "0123456789abcdef" * 4
LOGGED_IN = {"of-alice": "alice@example.org", "of-eve": "eve@example.org", "of-two": "a@x.org,alice@example.org"}
"""The cookies that the log-in has given, and whom each belongs to."""


def has_auth_request() -> bool:
    """Whether this nginx can ask another program about a request."""
    if NGINX is None:
        return False
    said = subprocess.run([NGINX, "-V"], check=False, capture_output=True, text=True).stderr
    return "http_auth_request_module" in said


pytestmark = pytest.mark.skipif(not has_auth_request(), reason="no nginx with auth_request (Debian: nginx-light)")


class LogIn(BaseHTTPRequestHandler):
    """What oauth2-proxy answers to auth_request: 202 with the address of the user, or 401."""

    def do_GET(self) -> None:
        cookie = re.search(r"_oauth2_proxy=([\w-]+)", self.headers.get("Cookie", ""))
        mail = LOGGED_IN.get(cookie[1]) if cookie else None
        self.send_response(401 if mail is None else 202)
        if mail is not None:
            self.send_header("X-Auth-Request-Email", mail)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None: ...


@contextmanager
def between(folder: Path, page: int, secure: int) -> Iterator[None]:
    """nginx with the file of the docs, but for its ports and its files, and the log-in behind it."""
    public, private = certificate(folder)
    log_in = ThreadingHTTPServer(("127.0.0.1", 0), LogIn)
    threading.Thread(target=log_in.serve_forever, daemon=True).start()
    text = CONFIGURATION.with_name("nginx_identity.conf").read_text(encoding="utf-8")
    for old, new, times in (
        ("8443 ssl", f"{secure} ssl", 1), ("http://127.0.0.1:8080", f"http://127.0.0.1:{page}", 1),
        ("http://127.0.0.1:4180", f"http://127.0.0.1:{log_in.server_address[1]}", 2),
        ("/etc/dpduck/certificate.pem", str(public), 1), ("/etc/dpduck/key.pem", str(private), 1),
    ):  # fmt: skip
        assert text.count(old) == times, old
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    secret = f'proxy_set_header X-Dpduck-Proxy-Secret "{SECRET}";\n'
    (folder / "proxy_secret.conf").write_text(secret, encoding="ascii")
    command = [str(NGINX), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off;"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert eventually(lambda: listens(secure), 60), process.poll()
            yield
        finally:
            process.terminate()
            process.wait(60)
            log_in.shutdown()
            log_in.server_close()


@pytest.mark.slow
def test_a_login_of_the_organisation_before_the_page(tmp_path: Path, own_state: Path) -> None:
    """Alice needs no token. Strangers are sent to log in. No header of a browser gets through nginx, nor past it."""
    database, page, secure = make_clinic(tmp_path), free_port(), free_port()
    tokens = add_principals(database)
    PrincipalBook(SecretsFile.open(database.with_name("clinic_private_secrets"), create=False)).put_identity(
        "alice", "alice@example.org"
    )
    file = tmp_path / "proxy_secret"
    file.write_text(SECRET, encoding="ascii")
    file.chmod(0o600)
    origin, flight = f"https://localhost:{secure}", f"localhost:{free_port()}"
    words = ["--web", f"127.0.0.1:{page}", "--web-origin", origin, "--identity-header", "X-Forwarded-Email"]
    words += ["--identity-from", "127.0.0.1", "--identity-secret", str(file), "--flight-sql", flight]
    with serving_flight(database, *words), between(tmp_path, page, secure):
        public = tmp_path / "certificate.pem"

        def asked(cookie: str, more: str = "", path: str = "/") -> str:
            head = f"GET {path} HTTP/1.1\r\nHost: localhost:{secure}\r\nConnection: close\r\nCookie: {cookie}\r\n"
            return sent(secure, public, f"{head}{more}\r\n".encode()).decode("latin-1")

        alice = asked("_oauth2_proxy=of-alice")
        own = re.search(r"Set-Cookie: (__Host-dpduck_\d+=[\w-]{43});", alice)
        assert " 200 " in alice[:20] and own is not None and "; Secure" in alice and SECRET not in alice
        kept = f"_oauth2_proxy=of-alice; {own[1]}"
        assert "Set-Cookie" not in asked(kept)
        for cookie in ("", "_oauth2_proxy=forged", own[1]):
            assert " 302 " in (answer := asked(cookie))[:20] and "/oauth2/sign_in" in answer
        eve = "_oauth2_proxy=of-eve"
        for more in (
            "", "X-Forwarded-Email: alice@example.org\r\n", "x-forwarded-email: alice@example.org\r\n",
            "X_Forwarded_Email: alice@example.org\r\n", f"X-Dpduck-Proxy-Secret: {SECRET}\r\n",
            "X-Auth-Request-Email: alice@example.org\r\n", "X-Forwarded-Email: alice@example.org\r\n" * 2,
            "X-Forwarded-Email : alice@example.org\r\n", "X-Forwarded-Email:\r\n alice@example.org\r\n",
        ):  # fmt: skip
            assert asked(eve, more)[9:12] in ("403", "400"), more
            assert asked(f"{eve}; {own[1]}", more)[9:12] in ("403", "400"), "with the session of alice as well"
        assert asked("_oauth2_proxy=of-two")[9:12] == "403", "a list is nobody"
        assert " 302 " in asked("", path="/ask")[:20] and " 404 " in asked("", path="/oauth2/auth")[:20]
        past = f"X-Forwarded-Email: alice@example.org\r\nCookie: {own[1]}\r\n"
        straight = sent_plain(page, f"GET / HTTP/1.1\r\nHost: localhost:{secure}\r\n{past}\r\n".encode())
        assert b"Your token" in straight, "past nginx everybody is a stranger"
        assert tokens["alice"] not in alice
