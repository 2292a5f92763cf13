"""docs/nginx.conf, run by a real nginx before a real server: TLS for all three gates, and limits for strangers."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest

from dpduck.publish.extensions import load_extension
from tests.server.served import add_principals, certificate, count, make_clinic
from tests.server.shell import EXTENSIONS, eventually, needs_quack, serving
from tests.support.ports import free_port

CONFIGURATION = Path(__file__).resolve().parent.parent.parent / "docs" / "nginx.conf"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")

pytestmark = [
    needs_quack,
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian: nginx-light)"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with"),
]


@contextmanager
def proxied(
    folder: Path, quack: int, flight: int, page: int, secure_page: int, agents: int
) -> Iterator[tuple[int, int]]:
    """The ports of the proxy. The file of the docs, but for its ports, its patience and its certificate's place."""
    public, private = certificate(folder)
    ports = free_port(), free_port()
    text = CONFIGURATION.read_text(encoding="utf-8")
    for old, new in (
        ("8443 ssl", f"{secure_page} ssl"), ("127.0.0.1:8080", f"127.0.0.1:{page}"),
        ("127.0.0.1:8090", f"127.0.0.1:{agents}"),
        ("9443 ssl", f"{ports[0]} ssl"), ("32443 ssl", f"{ports[1]} ssl"), ("127.0.0.1:9494", f"127.0.0.1:{quack}"),
        ("127.0.0.1:32010", f"127.0.0.1:{flight}"), ("/etc/dpduck/certificate.pem", str(public)),
        ("/etc/dpduck/key.pem", str(private)), ("client_body_timeout     10s", "client_body_timeout     1s"),
    ):  # fmt: skip
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    command = [str(NGINX), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off;"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert eventually(lambda: all(listens(port) for port in ports), 60), process.poll()
            yield ports
        finally:
            process.terminate()
            process.wait(60)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def sent(port: int, public: Path, data: bytes) -> bytes:
    """Sends bytes over TLS. Returns the answer until the other end hangs up."""
    context = ssl.create_default_context(cafile=str(public))
    plain = socket.create_connection(("localhost", port), timeout=60)
    with context.wrap_socket(plain, server_hostname="localhost") as secured:
        secured.sendall(data)
        return secured.recv(65_536)


def login_request(port: int, token: str) -> bytes:
    """Sends the form of the page's log-in."""
    form, host = f"token={token}", f"localhost:{port}"
    head = f"POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: https://{host}\r\nConnection: close\r\n"
    kind = f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(form)}\r\n\r\n"
    return f"{head}{kind}{form}".encode()


def agent_request(port: int, token: str) -> bytes:
    """Asks for the tools of agents."""
    body = '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
    kind = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    return f"{head}{kind}Content-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.mark.slow
def test_the_proxy_of_the_docs(tmp_path: Path, own_state: Path) -> None:
    """Both protocols and the page over TLS. A body that is too large or too slow goes no further than the proxy."""
    database = make_clinic(tmp_path)
    tokens, flight, page, secure_page = add_principals(database), free_port(), free_port(), free_port()
    origin = f"https://localhost:{secure_page}"
    agents = free_port()
    words = "--flight-sql", f"localhost:{flight}", "--web", f"127.0.0.1:{page}", "--web-origin", origin
    words = *words, *(("--mcp", f"127.0.0.1:{agents}") if find_spec("mcp") else ())
    with serving(database, *words) as server:
        quack = int(server.address.rpartition(":")[2])
        with proxied(tmp_path, quack, flight, page, secure_page, agents) as (secure_quack, secure_flight):
            public = tmp_path / "certificate.pem"
            behind = [page, *([agents] if "--mcp" in words else [])]
            assert eventually(lambda: all(map(listens, behind)), 60)
            entered = sent(secure_page, public, login_request(secure_page, tokens["bob"]))
            assert b" 303 " in entered and b"; Secure" in entered and b"__Host-dpduck" in entered
            if "--mcp" in words:
                listed = sent(secure_page, public, agent_request(secure_page, tokens["bob"]))
                assert b" 200 " in listed and b"no-store" in listed
            with duckdb.connect() as client:
                for name in EXTENSIONS:
                    load_extension(client, name, "")
                client.execute(f"SET ca_cert_file = '{public}'")
                client.execute("SET enable_server_cert_verification = true")
                client.execute(
                    f"ATTACH 'quack:127.0.0.1:{secure_quack}' AS clinic (TOKEN '{tokens['bob']}', DISABLE_SSL false)"
                )
                assert client.execute("SELECT count(*) FROM clinic.ages").fetchall() == [(10,)]
                asked = client.execute(f"FROM clinic.query($o$ {count('ward', '0.01')} $o$)").fetchall()
                assert len(asked) == 6
                many = client.execute("SELECT count(*) FROM clinic.query('FROM range(500000)')").fetchall()
                assert many == [(500_000,)]
            flight_sql = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="no ADBC driver for Flight SQL")
            given = {
                "username": "bob",
                "password": tokens["bob"],
                "adbc.flight.sql.client_option.tls_root_certs": public.read_text(),
            }
            address = f"grpc+tls://localhost:{secure_flight}"
            with flight_sql.connect(address, db_kwargs=given, autocommit=True) as connection, connection.cursor() as c:
                c.execute(count("ward", "0.01"))
                assert sorted(c.fetchall()) == sorted(asked)
            start_of = b"POST /quack HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
            assert b" 413 " in sent(secure_quack, public, start_of + b"300000000\r\n\r\n")
            start = time.monotonic()
            assert sent(secure_quack, public, start_of + b"1000\r\n\r\nx")[9:12] in (b"", b"408")
            assert time.monotonic() - start < 30, "a slow body is not waited for"
        assert server.stop() == 0
