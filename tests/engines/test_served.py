"""A served clinic with its visits in an engine: the tests of the core suite's gate, and the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dpduck
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.server.audit import AuditFile
from dpduck.server.gate import open_service
from dpduck.server.limits import Limits
from dpduck.server.local_vault import LocalVault
from dpduck.server.principals import PrincipalBook
from tests.server.served import CANARY, CUBE, Served, count, serving_flight
from tests.server.statement_lists import statements
from tests.support.clinics import POLICY, Clinic
from tests.support.engine_servers import Server


def there(text: str) -> str:
    """Returns the statement about the engine's table in place of DuckDB's."""
    return re.sub(r"(?<![\w.\"/])visits\b(?!\.)", "lake.db.visits", text)


def made(server: Server, folder: Path) -> tuple[Path, str]:
    """The clinic of the core suite's server, with rows that must never be seen, and bob's token."""
    path = folder / "clinic.duckdb"
    with dpduck.connect(path) as con:
        clinic = Clinic(con)
        clinic.fill()
        con.execute(f"INSERT INTO visits SELECT 1, 55, 900 + range, '{CANARY}' FROM range(3)")
        table = server.put("visits", con.table("visits").to_arrow_table())
        dpduck.attach_spark(con, server.session, name="lake", tables=[table])
        con.execute(f"DROP TABLE visits; CREATE TABLE secret AS SELECT '{CANARY}' AS word")
        clinic.protect(there(POLICY))
        clinic.dp(f"CREATE PRIVATE VIEW ward_cube OPTIONS (epsilon = 1) AS {there(CUBE)}")
        ages = "SELECT age, count(*) AS n FROM lake.db.visits GROUP BY age"
        clinic.dp(f"CREATE PRIVATE VIEW ages OPTIONS (epsilon = 1) AS {ages}")
    book = PrincipalBook(SecretsFile.open(folder / "clinic_private_secrets", create=False))
    return path, book.add("bob", None, ["lake.db.visits"])


@pytest.fixture
def probed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpduck.engines.tables.probe_engine", lambda engine, workers: engine)


@pytest.mark.slow
@pytest.mark.usefixtures("probed_before")
def test_attacks_on_the_gate(server: Server, tmp_path: Path) -> None:
    """Attacks are refused, with nothing charged or quoted, and honest statements answered, from an engine's rows."""
    if not server.address:
        pytest.skip("a session of this process has no address")
    path, token = made(server, tmp_path)
    log, vault = tmp_path / "audit.jsonl", LocalVault(path, engines=(f"lake={server.address}",))
    limits = Limits(seconds=60.0, rows=100_000)
    served = Served(path, open_service(path, None, AuditFile(log), limits, vault=vault), {"bob": token}, log)
    try:
        about = [text for text in statements("attacks.sql") if "visits" in text]
        assert len(about) > 40
        for text in (*about[::2], *map(there, about[1::2])):
            message = served.refused("bob", text)
            assert "accepted: " in message and len(message) < 1_000, (text, message)
        honest = [there(text) for text in statements("honest.sql") if "visits" in text and "dp" in text]
        assert len(honest) > 10
        for text in honest[::2]:
            assert served.rows("bob", text) is not None, text
        assert CANARY not in repr(served.rows("bob", "FROM ward_cube")) + server.said()
    finally:
        served.service.close()


@pytest.mark.slow
def test_the_command_line(server: Server, tmp_path: Path, state_directory: Path) -> None:
    """dpduck serve --engine: a principal's count is done in the engine. The address stands in no file."""
    flight = pytest.importorskip("adbc_driver_flightsql.dbapi")
    if not server.address:
        pytest.skip("a session of this process has no address")
    path, token = made(server, tmp_path)
    words = ("--flight-sql", "localhost:0", "--engine", f"lake={server.address}")
    with serving_flight(path, *words) as address:
        options = {"username": "bob", "password": token}
        uri = address.replace("grpc+tcp", "grpc")
        with flight.connect(uri, db_kwargs=options, autocommit=True) as con, con.cursor() as cursor:
            cursor.execute(there(count("ward")))
            found = cursor.fetchall()
    assert len(found) == 6 and sum(n for _, n in found) > 500
    kept = [file for file in tmp_path.rglob("*") if file.is_file() and file.parent.name != "state"]
    assert all(server.address.encode() not in file.read_bytes() for file in kept)
