"""Files that dpduck makes can be read by DuckDB 1.5 and 2.0, whichever of them made the file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import duckdb
import pytest

from dpduck.store.attaching import open_database
from dpduck.values.errors import StoreError
from tests.support.newer_file import make_newer
from tests.support.second_duckdb import ROOT, other_python, run_python

PRODUCT = ROOT / "dpduck"

MAKE = """
import sys
from importlib.util import find_spec
from pathlib import Path

import duckdb
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main
from dpduck.publish.publish import publish

folder = Path(sys.argv[1])
database = folder / "clinic.duckdb"


def run(*words):
    ran = CliRunner().invoke(main, [str(word) for word in words])
    assert ran.exit_code == 0, (words, ran.output, ran.exception)


duckdb.execute(
    "COPY (SELECT i % 900 AS patient, DATE '2024-01-01' + CAST(i * 11 % 730 AS INTEGER) AS came, "
    f"['n', 's', 'w'][i % 3 + 1] AS ward FROM range(20000) AS r(i)) TO '{folder / 'stays.parquet'}'"
)
for table in ("stays", "visits"):
    run("policy", "draft", database, table, "--from", folder / "stays.parquet")
    run("sql", database, f"CREATE PRIVACY POLICY ON {table} (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 9, "
        "delta = 1e-6), DOMAIN ward IN ('n', 's', 'w'), DOMAIN came RANGE 2024-01-01 TO 2027-01-01 STEP MONTH)")
run("prepare", database, "visits")
counts = "SELECT ward, count(*) AS n FROM stays GROUP BY ward"
run("sql", database, f"CREATE PRIVATE VIEW wards OPTIONS (epsilon = 1) AS {counts}")
run("sql", database, "CREATE PRIVATE STREAM months OPTIONS (epsilon = 1, delta = 1e-6, periods = 36, "
    "answers = 'totals') AS SELECT came AS month, ward, count(*) AS n FROM stays GROUP BY came, ward")
run("sql", database, "REFRESH PRIVATE STREAM months UNTIL '2024-02-01'")
run("publish", database, "--to", folder / "published.duckdb", "--view", "wards")
run("policy", "twin", database, "--to", folder / "copy.duckdb", "--rows", "100")
plan = folder / "plan.sql"
plan.write_text(f"CREATE PRIVATE VIEW again OPTIONS (epsilon = 0.5) AS {counts};")
if find_spec("vl_convert") is not None:  # draws the folder's pictures
    run("release", database, plan, "--to", folder / "released", "--yes")
print(duckdb.__version__)
"""

READ = """
import sys
from pathlib import Path

import duckdb

import dpduck

folder = Path(sys.argv[1])
for file in sorted(folder.rglob("*.duckdb")):
    with duckdb.connect(str(file), read_only=True) as con:
        assert con.execute("SELECT count(*) > 0 FROM duckdb_tables()").fetchone() == (True,), file
    print(file.relative_to(folder))
for file in sorted(folder.rglob("*.parquet")):
    duckdb.sql(f"FROM '{file}'").fetchall()
with dpduck.connect(folder / "clinic.duckdb") as con:
    spent = con.execute("SELECT spent FROM dp_budget()").fetchall()
    view = con.execute("SELECT n FROM private.wards ORDER BY ward").fetchall()
    counts = "ward, count(*) AS n FROM visits GROUP BY ward"
    asked = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) {counts}"
    prepared = con.execute("FROM dp(?)", [asked]).fetchall()
    assert all(abs(row[1] - n) < 400 for row, (n,) in zip(sorted(prepared), view)), (prepared, view)
    con.execute("FROM dp(?)", ["REFRESH PRIVATE STREAM months UNTIL '2024-03-01'"])
    assert con.execute("SELECT count(DISTINCT month) FROM private.months").fetchall() == [(2,)]
    assert con.execute("FROM dp(?)", [asked]).fetchall() == prepared  # free
with dpduck.connect(folder / "copy.duckdb") as con:
    assert len(con.execute("FROM dp_policies()").fetchall()) == 2
print(duckdb.__version__)
"""

KINDS = ("clinic.duckdb", "clinic_private.duckdb", "copy.duckdb", "published.duckdb")


@pytest.mark.slow
@pytest.mark.parametrize("made_here", [True, False])
def test_what_one_makes_the_other_reads(made_here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database, its store, prepared tables, a stream, a made-up copy, a published file and a released folder.

    The other DuckDB goes on where the first one stopped: prepared tables are counted, and a stream is refreshed.
    """
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    pythons = Path(sys.executable), other_python()
    first, second = pythons if made_here else pythons[::-1]
    folder = tmp_path / "files"
    folder.mkdir()
    maker = run_python(first, MAKE, folder).split()[-1]
    *files, reader = run_python(second, READ, folder).split()
    assert {maker[0], reader[0]} == {"1", "2"}
    assert set(KINDS) <= set(files)
    assert any("prepared" in name for name in files) and any("streams" in name for name in files)


def test_a_new_file_is_of_the_older_format(tmp_path: Path) -> None:
    """DuckDB 2.0 writes a format of its own unless it is told. 1.5 writes one that each version reads."""
    with open_database(tmp_path / "new.duckdb") as con:
        ((tags,),) = con.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 'new'").fetchall()
    assert tags["storage_version"].startswith(("v1.0", "v1.5"))


def test_files_are_made_in_few_places() -> None:
    """Who opens a database file by duckdb.connect, which may make one of DuckDB 2.0, is named here with a reason."""
    opened = re.compile(r"duckdb\.connect\((?!\)|\":memory:\")")
    texts = {path.relative_to(PRODUCT).as_posix(): path.read_text("utf-8") for path in PRODUCT.rglob("*.py")}
    assert {name for name, text in texts.items() if opened.search(text)} == {
        "store/attaching.py",  # open_database, which tells 2.0 the format
        "commands/preparing.py",  # of a database that is there
        "commands/names_of_tables.py",  # read-only
        "commands/owner_session.py",  # in the words of a refusal
        "server/local_vault.py",  # read-only
    }
    made = re.compile(r"ATTACH (?:IF NOT EXISTS )?\{[^}]*\} AS \S+ \((?!READ_ONLY|STORAGE_VERSION|TYPE|\{options\})")
    assert [name for name, text in texts.items() if made.search(text)] == []


def test_a_newer_file_is_named_with_its_writer(tmp_path: Path) -> None:
    """The message has the version that wrote the file, and lines that this version runs."""
    with open_database(tmp_path / "clinic.duckdb") as con:
        con.execute("CREATE TABLE t AS FROM range(7)")
    newer = make_newer(tmp_path / "clinic.duckdb")
    with pytest.raises(StoreError) as caught:
        open_database(newer)
    assert str(caught.value) == (
        f"clinic.duckdb was written by DuckDB 9.0.0, and DuckDB {duckdb.__version__}, which is installed here, cannot "
        "read it; accepted: a copy by that DuckDB in its place: ATTACH 'clinic.duckdb' AS newer (READ_ONLY); "
        "ATTACH 'copy.duckdb' AS copy (STORAGE_VERSION 'v1.5.0'); COPY FROM DATABASE newer TO copy"
    )


def test_the_lines_of_the_message_make_a_copy(tmp_path: Path) -> None:
    """The newer DuckDB runs them, in a folder with the file, and the older one reads the copy."""
    here, other = Path(sys.executable), other_python()
    old, new = (here, other) if duckdb.__version__.startswith("1.") else (other, here)
    make = "import sys, duckdb; duckdb.connect(sys.argv[1]).execute('CREATE TABLE t AS FROM range(7)')"
    run_python(new, make, tmp_path / "clinic.duckdb")
    opened = (
        "import sys, os, dpduck\nos.chdir(sys.argv[1])\ntry: dpduck.connect('clinic.duckdb')\n"
        "except dpduck.DpduckError as error: print(error)"
    )
    said = run_python(old, opened, tmp_path)
    lines = said.partition("in its place: ")[2].strip()
    assert lines, said
    run_python(new, "import sys, os, duckdb; os.chdir(sys.argv[1]); duckdb.execute(sys.argv[2])", tmp_path, lines)
    count = "import sys, duckdb; print(duckdb.connect(sys.argv[1]).execute('SELECT count(*) FROM t').fetchone()[0])"
    assert run_python(old, count, tmp_path / "copy.duckdb").strip() == "7"
