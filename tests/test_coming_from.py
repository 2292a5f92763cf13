"""The page for users of other systems: our side of every statement runs, and BigQuery's as it says."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.server.audit import AuditFile
from dpduck.server.gate import open_service
from dpduck.server.limits import Limits
from dpduck.server.local_vault import LocalVault
from dpduck.server.principals import PrincipalBook
from tests.server.served import Served

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "coming_from.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"```sql\n(.*?)```", re.DOTALL)
SETUP = "The table and its policy"
SYSTEMS = ("BigQuery", "Tumult Analytics", "OpenDP", "SmartNoise SQL", "PipelineDP")
_THEIRS = re.compile(r"^-- \d+\. (.*)$", re.MULTILINE)
_DIALECT = re.compile(r"\s*(WITH |SELECT WITH|CREATE PRIVA|DECLARE PUBLIC)")


def statements(section: str) -> list[str]:
    """Our statements of a section, without the comments before them."""
    listed = (re.sub(r"^--[^\n]*\n", "", one, flags=re.MULTILINE) for one in BLOCK.findall(SECTIONS[section]))
    return [one for block in listed for one in re.split(r";\s*$", block, flags=re.MULTILINE) if one.strip()]


def run(con: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[object, ...]]:
    """Runs a statement of the dialect inside of dp(), and any other as it is."""
    if _DIALECT.match(statement):
        return con.execute("FROM dp(?)", [statement]).fetchall()
    return con.execute(statement).fetchall()


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    made = dpduck.connect()
    for statement in statements(SETUP):
        run(made, statement)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_ten_statements_of_each_system_run(system: str, con: duckdb.DuckDBPyConnection) -> None:
    """Ten statements each, with as many rows as their public groups have, or none where a threshold stands."""
    ours = statements(system)
    assert len(ours) == (15 if system == "BigQuery" else 10)
    for statement in ours:
        assert run(con, statement) or "_THRESHOLD" in statement, statement
    con.close()


def test_every_other_statement_runs(con: duckdb.DuckDBPyConnection) -> None:
    """So do those beside DuckDB's community extensions."""
    (others,) = [name for name in SECTIONS if name not in {*SYSTEMS, SETUP}]
    assert all(run(con, statement) for statement in statements(others))
    con.close()


def test_theirs_stand_beside_ours() -> None:
    """Each of our translations has the statement of the other system above it, numbered in order."""
    for system in SYSTEMS:
        numbers = [int(one) for one in re.findall(r"^-- (\d+)\. ", SECTIONS[system], re.MULTILINE)]
        assert numbers == list(range(1, (5 if system == "BigQuery" else 10) + 1)), system


def test_bigquerys_text_needs_what_the_page_says(con: duckdb.DuckDBPyConnection) -> None:
    """Ten statements run as BigQuery has them. Each of five others is refused before anything is charged."""
    unchanged, changed = BLOCK.findall(SECTIONS["BigQuery"])
    assert "--" not in unchanged and len(unchanged.split(";\n")) == 10
    charged = con.execute("SELECT spent FROM dp_budget()").fetchall()
    theirs = _THEIRS.findall(changed)
    assert len(theirs) == 5
    for text in theirs:
        with pytest.raises(duckdb.Error, match="accepted:"):
            con.execute("FROM dp(?)", [text]).fetchall()
    assert con.execute("SELECT spent FROM dp_budget()").fetchall() == charged
    con.close()


def bigquerys() -> tuple[list[str], list[str]]:
    """Returns BigQuery's ten statements that need no change, and its five that are refused."""
    unchanged, changed = BLOCK.findall(SECTIONS["BigQuery"])
    return [part.strip() for part in unchanged.split(";\n")], _THEIRS.findall(changed)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table of the page and its policy, in a file."""
    path = tmp_path_factory.mktemp("coming") / "clinic.duckdb"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(path.parent / "state"))
        with dpduck.connect(path) as con:
            for statement in statements(SETUP):
                run(con, statement)
    return path


@pytest.mark.slow
def test_bigquerys_text_is_typed_bare_in_commands(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """dpduck sql takes the ten statements as they stand, and refuses the five others in one line."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(file.parent / "state"))
    runs, refused = bigquerys()
    for text in runs:
        ran = CliRunner().invoke(main, ["sql", str(file), text, "--format", "csv"])
        assert ran.exit_code == 0 and (ran.output.count("\n") > 1 or "_THRESHOLD" in text), (text, ran.output)
    for text in refused:
        ran = CliRunner().invoke(main, ["sql", str(file), text])
        assert ran.exit_code == 1 and "accepted: " in ran.output and ran.output.count("\n") == 1, (text, ran.output)


@pytest.mark.slow
def test_bigquerys_text_is_typed_bare_at_a_server(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A principal types the ten statements at the gate. The five others are refused, and cost nothing."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(file.parent / "state"))
    book = PrincipalBook(SecretsFile.open(file.with_name("clinic_private_secrets"), create=False))
    tokens, log = {"ann": book.add("ann", None)}, file.with_name("audit.jsonl")
    limits = Limits(seconds=600.0, rows=100_000)
    service = open_service(file, None, AuditFile(log), limits, vault=LocalVault(file, None))
    try:
        served = Served(file, service, tokens, log)
        runs, refused = bigquerys()
        for text in runs:
            assert served.rows("ann", text) or "_THRESHOLD" in text, text
        for text in refused:
            assert "accepted: " in served.refused("ann", text), text
    finally:
        service.close()
