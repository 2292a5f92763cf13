"""dpduck serve --flight-sql as a process of its own, and an ADBC client."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.served import add_principals, count, make_clinic, serving_flight

adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="the ADBC driver for Flight SQL is not installed")


def rows(uri: str, options: dict[str, str], sql: str) -> list[tuple[Any, ...]]:
    with adbc.connect(uri, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory, state_directory: Path) -> tuple[Path, dict[str, str]]:
    """A clinic that nobody serves yet, and its principals' tokens."""
    database = make_clinic(tmp_path_factory.mktemp("clinic"))
    return database, add_principals(database)


@pytest.mark.slow
def test_serve_with_flight_sql(clinic: tuple[Path, dict[str, str]]) -> None:
    """Dpduck serve --flight-sql: a release made over Flight SQL is the same after a restart, and free."""
    database, tokens = clinic
    options = {"username": "alice", "password": tokens["alice"]}
    found = []
    for _ in range(2):
        with serving_flight(database, "--flight-sql", "localhost:0") as address:
            assert address.startswith("grpc+tcp://localhost:")
            found.append(sorted(rows(address.replace("grpc+tcp", "grpc"), options, count("ward"))))
    assert len(found[0]) == 6 and found[0] == found[1]


@pytest.mark.slow
def test_serve_over_tls(clinic: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """With a certificate of the owner's, tokens travel over TLS. Half a certificate is refused in one line."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine to make a certificate with")
    certificate, private = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(private),
         "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    database, tokens = clinic
    words = ["--flight-sql", "localhost:0", "--tls-certificate", str(certificate)]
    with serving_flight(database, *words, "--tls-key", str(private)) as address:
        assert address.startswith("grpc+tls://localhost:")
        options = {
            "username": "bob",
            "password": tokens["bob"],
            "adbc.flight.sql.client_option.tls_root_certs": certificate.read_text(),
        }
        assert rows(address, options, "SELECT count(*) FROM ages") == [(10,)]
    command = [sys.executable, "-m", "dpduck.commands.command_line", "serve", str(database), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == "Error: TLS needs a certificate and its key; accepted: --tls-certificate and --tls-key\n"
