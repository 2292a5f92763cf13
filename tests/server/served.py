"""A clinic on disk, ready to be served, and words for what tests do with a server."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpduck
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.server.audit import AuditFile
from dpduck.server.gate import Service, open_service
from dpduck.server.limits import Limits, Quota, TimeGrid
from dpduck.server.local_vault import LocalVault
from dpduck.server.principals import PrincipalBook
from dpduck.values.errors import DpduckError
from tests.support.clinics import POLICY, Clinic, by

CUBE = "SELECT sex, ward, count(*) AS n FROM visits GROUP BY CUBE (sex, ward)"
CANARY = "xq-canary"
"""In values of the private table that no domain has: whoever shows it has leaked."""

WRONG_CASTS = (
    "SELECT CAST('abc' AS INTEGER)", "SELECT CAST('a\nb' AS DATE)", "SELECT DATE 'x'", 'SELECT "a\rb" FROM range(3)',
    "SELECT CAST(range::VARCHAR || 'x' AS INTEGER) FROM range(5)", "SELECT range::TINYINT FROM range(300)",
    "SELECT (range || '\n x')::INT FROM range(100000)", 'SELECT "a\nb" FROM range(3)',
)  # fmt: skip
"""Statements over nothing private that are admitted or tried, and that then fail in DuckDB."""


def ask(statement: str) -> str:
    """A statement of dp() as a client's SQL."""
    return f"FROM dp($ask$ {statement} $ask$)"


def count(column: str = "sex", epsilon: str = "0.1") -> str:
    return ask(by(column, epsilon))


@dataclass
class Served:
    """A service with its files."""

    database: Path
    service: Service
    tokens: dict[str, str]
    log: Path

    def sql(self, who: str, text: str) -> str:
        principal = self.service.book.authenticate(self.tokens[who])
        assert principal is not None
        return self.service.gate.admit(principal, text)

    def rows(self, who: str, text: str) -> list[tuple[Any, ...]]:
        sql = self.sql(who, text)
        with self.service.public.cursor() as cursor:
            return cursor.execute(sql).fetchall()

    def refused(self, who: str, text: str) -> str:
        """The one line of a refusal, with nothing charged."""
        before = self.spent()
        try:
            sql = self.sql(who, text)
        except DpduckError as error:
            message = str(error)
        else:
            raise AssertionError(f"{text[:300]!r} was admitted as {sql[:300]!r}")
        assert self.spent() == before, text[:300]
        assert "\n" not in message and CANARY not in message, message
        return message

    def spent(self) -> list[tuple[Any, ...]]:
        """Everything that was spent, as the owner sees it."""
        vault = self.service.vault
        assert isinstance(vault, LocalVault)
        return [(entry.id, entry.principal, entry.epsilon) for entry in vault._database.ledger.entries()]

    def audited(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]


def make_clinic(folder: Path, policy: str = POLICY, *, prepared: bool = False) -> Path:
    """A clinic with a policy, a private view of its cube, and rows that must never be seen. prepared: so is its table.

    It is a copy of a clinic made once, unless its witness is here already: a second copy is refused.
    """
    made, state = made_once(policy, prepared), Path(os.environ["DPDUCK_STATE_DIR"])
    if any((state / witness.name).exists() for witness in (made / "state").iterdir()):
        return new_clinic(folder, policy, prepared)
    shutil.copytree(made / "state", state, dirs_exist_ok=True)
    shutil.copytree(made / "clinic", folder, dirs_exist_ok=True)
    return folder / "clinic.duckdb"


@cache
def made_once(policy: str, prepared: bool) -> Path:
    """Makes a clinic and its witness in a folder of their own, which goes when the process ends."""
    made = TemporaryDirectory(prefix="clinic", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
    atexit.register(made.cleanup)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(Path(made.name, "state")))
        Path(made.name, "clinic").mkdir(mode=0o700)
        new_clinic(Path(made.name, "clinic"), policy, prepared)
    return Path(made.name)


def new_clinic(folder: Path, policy: str, prepared: bool) -> Path:
    """Makes the clinic of `make_clinic` in a folder."""
    path = folder / "clinic.duckdb"
    with dpduck.connect(path) as connection:
        clinic = Clinic(connection)
        clinic.fill()
        connection.execute(f"INSERT INTO visits SELECT 1, 55, 900 + range, '{CANARY}' FROM range(3)")
        connection.execute(f"CREATE TABLE secret AS SELECT '{CANARY}' AS word")
        clinic.protect(policy)
        if prepared:
            clinic.dp("ALTER PRIVACY POLICY ON visits PREPARE")
        clinic.dp(f"CREATE PRIVATE VIEW ward_cube OPTIONS (epsilon = 1) AS {CUBE}")
        clinic.dp(
            "CREATE PRIVATE VIEW ages OPTIONS (epsilon = 1) AS SELECT age, count(*) AS n FROM visits GROUP BY age"
        )
        connection.execute("CHECKPOINT")
    return path


def add_principals(database: Path) -> dict[str, str]:
    """alice may ask about everything with half of the budget, bob about one table, carol about none."""
    book = PrincipalBook(SecretsFile.open(database.with_name("clinic_private_secrets"), create=False))
    return {
        "alice": book.add("alice", Fraction(1, 2)),
        "bob": book.add("bob", None, ["visits"]),
        "carol": book.add("carol", None, ["wards"]),
    }


def open_served(
    folder: Path,
    limits: Limits | None = None,
    policy: str = POLICY,
    *,
    quota: Quota | None = None,
    grid: TimeGrid | None = None,
    prepared: bool = False,
) -> Served:
    """A served clinic with its vault in this process. Without a grid of times, unless one is given."""
    database = make_clinic(folder, policy, prepared=prepared)
    tokens, log = add_principals(database), folder / "audit.jsonl"
    limits = limits or Limits(seconds=600.0, rows=100_000)
    service = open_service(database, None, AuditFile(log), limits, vault=LocalVault(database, None, quota, grid))
    return Served(database, service, tokens, log)


@contextmanager
def serving_flight(database: Path, *words: str) -> Iterator[str]:
    """The Flight SQL address of a server, a process of its own, that ends with the test."""
    command = [sys.executable, "-m", "dpduck.commands.command_line", "serve", str(database), "--listen", "none", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            address = process.stdout.readline().strip()
            assert address, process.stderr.read()
            yield address
            process.send_signal(signal.SIGTERM)
            assert process.wait(600) == 0
        finally:
            process.kill()


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of this machine's name and address, and its key."""
    found, private = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:127.0.0.2",
         "-keyout", str(private), "-out", str(found)],
        check=True, capture_output=True,
    )  # fmt: skip
    return found, private


def table_of(served: Served, sql: str) -> pa.Table:
    with served.service.public.cursor() as cursor:
        return cursor.sql(sql).to_arrow_table()


def catalog(connection: duckdb.DuckDBPyConnection) -> set[tuple[str, str]]:
    """Every table and view that an instance holds, by database."""
    found = connection.execute(
        "SELECT database_name, table_name FROM duckdb_tables() UNION SELECT database_name, view_name "
        "FROM duckdb_views() WHERE NOT internal"
    ).fetchall()
    return set(found)


class NoAudit:
    """An audit log for tests that look elsewhere."""

    def note(
        self,
        principal: str | None,
        event: str,
        statement: str = "",
        *,
        charged: int | None = None,
        why: str = "",
        page: bool = False,
    ) -> None: ...

    def counts(self) -> dict[str, int]:
        return {}

    def reopen(self) -> None: ...

    def close(self) -> None: ...
