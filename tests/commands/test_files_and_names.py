"""Files and names that are easily mistaken: one line with the mistake, and with a command to type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.publish import checker
from tests.support.commands import run
from tests.support.newer_file import make_newer

NAME = "Ünï Tablé"
POLICY = f'CREATE PRIVACY POLICY ON "{NAME}" (PRIVACY UNIT ROW, BUDGET (epsilon = 1))'


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "clinic.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute(f'CREATE TABLE "{NAME}" AS SELECT range AS patient FROM range(1000)')
    return path


def test_names_with_blanks_are_taken_as_they_are_shown(clinic: Path) -> None:
    """The output of CREATE PRIVACY POLICY can be typed: dp_check and its kin take the name with or without quotes."""
    drafted = run("policy", "draft", clinic, NAME)
    assert drafted.exit_code == 0 and f'"{NAME}"' in drafted.output
    assert run("sql", clinic, POLICY).exit_code == 0
    assert run("check", clinic, NAME).exit_code == run("check", clinic, f'main."{NAME}"').exit_code == 0
    with dpduck.connect(clinic) as con:
        assert con.execute(f"FROM dp_check('{NAME}')").fetchone() == ("rows", 1000.0, *con.execute(
            f"SELECT advice, percent FROM dp_check('{NAME}')").fetchall()[0])  # fmt: skip
        assert con.execute(f"SELECT count(*) FROM dp_columns('{NAME}')").fetchone() == (1,)
        with pytest.raises(duckdb.Error, match="'no such table' has no privacy policy"):
            con.execute("FROM dp_check('no such table')")
        with pytest.raises(duckdb.Error, match="is not expected here"):
            con.execute("""FROM dp_check('"a" b')""")


def test_a_policy_of_an_attached_table_names_it_in_full(clinic: Path) -> None:
    """The call of dp_check that is shown can be typed, whichever database is the current one."""
    with dpduck.connect(clinic) as con:
        con.execute("ATTACH ':memory:' AS \"it's\"; CREATE TABLE \"it's\".t AS SELECT 1 AS patient")
        policy = 'CREATE PRIVACY POLICY ON "it\'s".t (PRIVACY UNIT ROW, BUDGET (epsilon = 1))'
        ((said,),) = con.execute("FROM dp(?)", [policy]).fetchall()
        call = said.rpartition("; ")[2].partition(" tells")[0]
        assert call == "dp_check('it''s.main.t')"


def test_a_mark_before_the_first_letter_is_not_read(clinic: Path) -> None:
    """Some editors begin a file with a byte order mark."""
    ran = run("sql", clinic, "-", typed=f"\ufeff{POLICY};")
    assert ran.exit_code == 0 and "is in force" in ran.output


OPENING = (
    ("audit",), ("budget",), ("check", NAME), ("compare", "made"), ("explain", "SELECT"), ("ledger",), ("policies",),
    ("policy draft", NAME), ("policy show",), ("policy twin", "--to", "made.duckdb"), ("prepare",),
    ("release", "plan.sql", "--to", "released"), ("releases",), ("report", "--to", "page.html"),
    ("serve", "--listen", "none", "--flight-sql", "grpc://localhost:8815"),
    ("shell",), ("show", "v"), ("sql", "FROM dp_budget()"), ("sql", "FROM private.v"), ("sql", POLICY),
    ("sql", "ALTER PRIVACY POLICY ON t SET MAX EPSILON 1", "--dry-run"), ("trial", "plan.sql"),
)  # fmt: skip
"""Commands that open a database."""

STORE_ALONE = (
    ("certify", "--to", "bundle"), ("document codebook",), ("publish", "--to", "published.duckdb"), ("verify",),
)  # fmt: skip
"""Commands that open a store, and no database."""


@pytest.mark.parametrize("words", [*OPENING, *STORE_ALONE], ids=" ".join)
def test_a_file_of_a_newer_duckdb_is_named_by_every_command(
    clinic: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message, with the DuckDB that wrote the file, and lines that make a copy which can be read here."""
    if words[0] in ("release", "report"):
        pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    monkeypatch.chdir(clinic.parent)
    assert run("sql", clinic, POLICY).exit_code == 0
    view = f'CREATE PRIVATE VIEW v OPTIONS (epsilon = 0.1) AS SELECT count(*) AS n FROM "{NAME}"'
    Path("plan.sql").write_text(view, "utf-8")
    newer = make_newer(clinic if words in OPENING else clinic.with_name("clinic_private.duckdb"))
    command, *rest = words
    ran = run(*command.split(), clinic, *rest)
    assert ran.exit_code == 1
    assert ran.output.splitlines()[-1] == (
        f"Error: {newer.name} was written by DuckDB 9.0.0, and DuckDB {duckdb.__version__}, which is installed here, "
        f"cannot read it; accepted: a copy by that DuckDB in its place: ATTACH '{newer.name}' AS newer (READ_ONLY); "
        "ATTACH 'copy.duckdb' AS copy (STORAGE_VERSION 'v1.5.0'); COPY FROM DATABASE newer TO copy"
    )


@pytest.mark.parametrize("words", [
    ("serve", "--listen", "none", "--flight-sql", "grpc://localhost:8815"), ("principal list",), ("verify",),
])  # fmt: skip
def test_a_newer_database_without_a_store_is_named_too(clinic: Path, words: tuple[str, ...]) -> None:
    """The first complaint is about the file. The next one says that it has no policy."""
    command, *rest = words
    assert "Error: this database has no store; accepted: " in run(*command.split(), clinic, *rest).output
    make_newer(clinic)
    ran = run(*command.split(), clinic, *rest)
    assert ran.exit_code == 1 and "Error: clinic.duckdb was written by DuckDB 9.0.0, and " in ran.output


def test_an_agent_is_told_of_a_newer_file_too(clinic: Path) -> None:
    """The same line, on the errors of a process that speaks MCP on its output."""
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    assert run("sql", clinic, POLICY).exit_code == 0 and run("principal", "add", clinic, "alice").exit_code == 0
    make_newer(clinic)
    command = [sys.executable, "-m", "dpduck.commands.command_line", "mcp", str(clinic), "--principal", "alice"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert ran.returncode == 1 and ran.stdout == "" and "Traceback" not in ran.stderr
    assert "clinic.duckdb was written by DuckDB 9.0.0" in ran.stderr


def test_a_damaged_file_is_not_said_to_be_in_use(clinic: Path) -> None:
    """DuckDB's message about damage names a block, and no lock."""
    file = bytearray(clinic.read_bytes())
    file[20] ^= 255
    clinic.write_bytes(file)
    ran = run("budget", clinic)
    assert ran.exit_code == 1 and "in use" not in ran.output and "checksum" in ran.output


def test_a_store_is_no_database(clinic: Path) -> None:
    """A store that is given in place of its database is refused, and nothing is made beside it."""
    assert run("sql", clinic, POLICY).exit_code == 0
    before = sorted(path.name for path in clinic.parent.iterdir())
    ran = run("sql", clinic.with_name("clinic_private.duckdb"), POLICY)
    assert ran.exit_code == 1
    assert ran.output == (
        "Error: this is a store, which lies beside a database; accepted: that database, such as clinic.duckdb\n"
    )
    assert sorted(path.name for path in clinic.parent.iterdir()) == before


def test_a_report_is_a_page(clinic: Path) -> None:
    """A file by another name is refused before anything is drawn."""
    pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    assert run("sql", clinic, POLICY).exit_code == 0
    ran = run("report", clinic, "--to", clinic.with_name("page.pdf"))
    assert ran.exit_code == 1 and ran.output.startswith("Error: page.pdf would be a page of HTML; accepted: ")
    assert ran.output.endswith("page.html\n") and not clinic.with_name("page.pdf").exists()


def test_the_checker_says_what_it_cannot_read(tmp_path: Path) -> None:
    """Of a folder that is not there, or holds something else: one line, and no traceback."""
    (tmp_path / "certificates.json").write_text("{", encoding="utf-8")
    for folder in (tmp_path / "nosuch", tmp_path):
        command = [sys.executable, "-I", str(checker.__file__), str(folder)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 2 and "Traceback" not in ran.stderr
        assert f"{folder} is no bundle that can be read" in ran.stderr and "accepted: the folder" in ran.stderr


def test_a_refusal_points_at_the_clause_of_several_lines(clinic: Path) -> None:
    """Where a unit's clause is wrong, the position is that of the clause."""
    with dpduck.connect(clinic) as con:
        con.execute("CREATE TABLE flights AS SELECT range AS plane, '2013-01-01' AS at FROM range(9)")
        policy = (
            "CREATE PRIVACY POLICY ON flights (\n  PRIVACY UNIT plane PER MONTH OF at MAX ROWS 3,\n"
            "  BUDGET (epsilon = 1))"
        )
        with pytest.raises(duckdb.Error, match=r"line 2, column 16: at is VARCHAR"):
            con.execute("FROM dp(?)", [policy])


def test_a_name_that_no_view_can_have(clinic: Path) -> None:
    """The message does not call the name taken."""
    with dpduck.connect(clinic) as con:
        con.execute("FROM dp(?)", [POLICY])
        view = f'CREATE PRIVATE VIEW "my view;--" OPTIONS (epsilon = 0.5) AS SELECT count(*) AS n FROM "{NAME}"'
        with pytest.raises(duckdb.Error, match="'my view;--' cannot be the name of a view; accepted: up to"):
            con.execute("FROM dp(?)", [view])
