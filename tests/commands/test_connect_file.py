"""dpduck principal add --shell: a file with which the stock shell attaches a server."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from dpduck.commands import connect_file
from dpduck.commands.connect_file import connect_sql, write_new_file
from dpduck.values.errors import Refusal
from tests.support.commands import run

POLICY = "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN ('F', 'M'))"


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "clinic.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE visits AS SELECT ['F', 'M'][1 + range % 2] AS sex FROM range(100)")
    assert run("sql", path, POLICY).exit_code == 0
    return path


def test_the_file_has_address_and_token_and_is_its_owners_alone(clinic: Path) -> None:
    """The token is in the file and nowhere else. An existing file stays as it is, and nobody is added."""
    file = clinic.with_name("alice.sql")
    said = run("principal", "add", clinic, "alice", "--shell", file)
    assert said.exit_code == 0 and said.output == f"{file} has the address and the token: duckdb -init {file}\n"
    text = file.read_text(encoding="utf-8")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "TOKEN 'dpduck_" in text and "getenv" not in text
    assert "SCOPE 'quack:localhost:9494');\nATTACH 'quack:localhost:9494' AS \"clinic\";\n" in text
    again = run("principal", "add", clinic, "bob", "--shell", file)
    assert again.exit_code == 1 and "exists; accepted: the name of a new file" in again.output
    assert file.read_text(encoding="utf-8") == text
    assert "bob" not in run("principal", "list", clinic).output


def test_it_can_be_printed_and_may_name_another_server(clinic: Path) -> None:
    """Beyond this machine the shell demands TLS with a certificate that it knows."""
    said = run("principal", "add", clinic, "bob", "--shell", "-", "--address", "quack:clinic.example.org:9443")
    assert said.exit_code == 0 and "TOKEN 'dpduck_" in said.output and "localhost" not in said.output
    assert (
        "SET enable_server_cert_verification = true;\n"
        "ATTACH 'quack:clinic.example.org:9443' AS \"clinic\" (DISABLE_SSL false);\n" in said.output
    )
    for address in ("quack:x'); DROP TABLE y --", "quack:localhost:65536", "quack:localhost:0"):
        wrong = run("principal", "add", clinic, "carol", "--shell", "-", "--address", address)
        assert wrong.exit_code == 1
        assert "is no address; accepted: quack:localhost:9494, or quack:HOST:PORT" in wrong.output
    assert "carol" not in run("principal", "list", clinic).output


def test_a_file_that_cannot_be_written_loses_no_token(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is printed where the file fails: its hash alone is kept."""
    said = run("principal", "add", clinic, "dora", "--shell", clinic.with_name("none") / "dora.sql")
    assert said.exit_code == 1 and "dpduck_" in said.output and "cannot be written" in said.output

    def appears(*_words: object) -> None:
        raise Refusal("it exists", accepted="another")

    monkeypatch.setattr(connect_file, "require_new_file", appears)
    there = clinic.with_name("there.sql")
    there.write_text("mine", encoding="utf-8")
    with pytest.raises(Refusal, match="cannot be written"):
        write_new_file(there, "text")
    assert there.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("stem", "name"), [("clinic", "clinic"), ("order", "order"), ("my file", "clinic"), ("temp", "clinic")]
)
def test_the_name_in_the_shell_is_that_of_the_file(stem: str, name: str) -> None:
    """All macros name the same database. Names of the shell's own databases are not taken."""
    text = connect_sql("quack:localhost:9494", "dpduck_x", Path(f"{stem}.duckdb"))
    assert f'AS "{name}";' in text
    assert text.count(f"served := '{name}'") == text.count("served := ") >= 11


def test_every_macro_is_made_as_duckdb_reads_it() -> None:
    """The statements after ATTACH run on any DuckDB, which binds a macro when it is called."""
    text = connect_sql("quack:localhost:9494", "dpduck_x", Path("clinic.duckdb"))
    macros = text[text.index("CREATE OR REPLACE TEMP MACRO") :]
    with duckdb.connect() as con:
        parts = con.extract_statements(macros)
        con.execute(parts[0].query)
        assert con.execute("SELECT dp_quoted('it''s $$ $q$'), dp_quoted(NULL), dp_quoted(3)").fetchall() == [
            ("'it''s $$ $q$'", "NULL", "'3'")
        ]
    assert len(parts) == 12
