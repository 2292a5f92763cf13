"""Databases and stores as files: who may open them when, what lasts, and which are refused in one clear line."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.values.errors import StoreError
from tests.support.clinics import CHARGES, Clinic, by, one_line

OpenClinic = Callable[..., Clinic]


def in_another_process(code: str, *arguments: object) -> str:
    """Returns the output of a fresh Python process."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=1200
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_closed_and_opened_again(open_clinic: OpenClinic, clinic_file: Path) -> None:
    """Policy, ledger and releases are there after reopening, and the same statement is still free."""
    clinic = open_clinic(clinic_file)
    answer = clinic.dp(by("sex"))
    assert clinic.charges() == 1
    clinic.con.close()
    clinic = open_clinic(clinic_file)
    assert clinic.dp(by("sex")) == answer
    assert clinic.charges() == 1
    assert clinic.rows("SELECT budget, spent, remaining FROM dp_budget()") == [(10.0, 1.0, 9.0)]


def test_another_process_can_open_both_files_after_close(open_clinic: OpenClinic, clinic_file: Path) -> None:
    """close() releases the locks, though the functions of the connection were used from several cursors."""
    clinic = open_clinic(clinic_file)
    cursor = clinic.con.cursor()
    cursor.execute("FROM dp(?)", [by("ward")]).fetchall()
    clinic.con.close()
    code = "import sys, duckdb\nfor path in sys.argv[1:]: print(duckdb.connect(path).execute('SELECT 1').fetchall())"
    store = clinic_file.with_name("clinic_private.duckdb")
    assert in_another_process(code, clinic_file, store).split() == ["[(1,)]"] * 2


def test_a_connection_that_is_dropped_lets_go_too(clinic_file: Path) -> None:
    """Without close() the files are free once nobody refers to the connection: dpduck does not keep it alive."""
    connection = dpduck.connect(clinic_file)
    connection.execute("FROM dp(?)", [by("sex")]).fetchall()
    del connection
    code = "import sys, duckdb\nprint(duckdb.connect(sys.argv[1]).execute('SELECT 1').fetchall())"
    assert in_another_process(code, clinic_file).strip() == "[(1,)]"


def test_plain_duckdb_reads_private_tables(open_clinic: OpenClinic, clinic_file: Path) -> None:
    """The store is an ordinary DuckDB file: a process without dpduck reads its views and their comments."""
    clinic = open_clinic(clinic_file)
    clinic.dp(
        "CREATE PRIVATE VIEW by_ward OPTIONS (epsilon = 1) AS SELECT ward, count(*) AS n FROM visits GROUP BY ward"
    )
    expected = clinic.rows("FROM private.by_ward ORDER BY ward")
    clinic.con.close()
    code = (
        "import sys, duckdb\nassert 'dpduck' not in sys.modules\ncon = duckdb.connect(sys.argv[1], read_only=True)\n"
        "print(con.execute('FROM by_ward ORDER BY ward').fetchall())"
    )
    assert in_another_process(code, clinic_file.with_name("clinic_private.duckdb")).strip() == repr(expected)


def test_the_second_process_is_told_in_one_line(open_clinic: OpenClinic, clinic_file: Path, tmp_path: Path) -> None:
    """One store is used by one process at a time."""
    open_clinic(clinic_file)
    code = (
        "import sys, dpduck\ntry: dpduck.connect(sys.argv[1], store=sys.argv[2])\n"
        "except dpduck.StoreError as error: print(error)"
    )
    told = in_another_process(code, tmp_path / "other.duckdb", clinic_file.with_name("clinic_private.duckdb"))
    assert told.startswith("the store is in use by another process") and "accepted:" in told and told.count("\n") == 1


def test_a_second_connection_to_the_same_file(open_clinic: OpenClinic, clinic_file: Path) -> None:
    """duckdb.connect on the same file has dp() with the same ledger."""
    clinic = open_clinic(clinic_file)
    answer = clinic.dp(by("ward"))
    with duckdb.connect(str(clinic_file)) as second:
        assert second.execute("FROM dp(?)", [by("ward")]).fetchall() == answer
        assert second.execute(CHARGES).fetchall() == [(2,)]


def test_the_loaded_connection_closes_before_another(open_clinic: OpenClinic, clinic_file: Path) -> None:
    """When the loaded connection is closed, another one says in one line what to do, and works once it is loaded."""
    clinic = open_clinic(clinic_file)
    answer = clinic.dp(by("sex"))
    with duckdb.connect(str(clinic_file)) as second:
        clinic.con.close()
        with pytest.raises(duckdb.Error) as caught:
            second.execute("FROM dp(?)", [by("sex")]).fetchall()
        assert one_line(caught.value).startswith("the connection that dpduck was loaded on is closed; accepted:")
        dpduck.load(second)
        assert second.execute("FROM dp(?)", [by("sex")]).fetchall() == answer
        assert second.execute(CHARGES).fetchall() == [(1,)]


def test_a_read_only_database(open_clinic: OpenClinic, clinic_file: Path) -> None:
    """A release writes to the store alone: it works on a database that is opened read-only."""
    clinic = open_clinic(clinic_file, read_only=True)
    assert len(clinic.dp(by("ward"))) == 6
    with pytest.raises(duckdb.Error):
        clinic.rows("CREATE TABLE t (i INTEGER)")
    with clinic.con.cursor() as cursor:
        dpduck.load(cursor)
        assert cursor.execute("FROM dp(?)", [by("ward")]).fetchall() == clinic.dp(by("ward"))
    assert clinic.charges() == 2


def test_a_protected_database_attached_to_one_in_memory(clinic_file: Path, open_clinic: OpenClinic) -> None:
    """The policy of an attached table is looked up by its full name, and spends the budget that its store knows."""
    store = clinic_file.with_name("clinic_private.duckdb")
    clinic = open_clinic(":memory:", store=store)
    clinic.rows(f"ATTACH '{clinic_file}' (READ_ONLY)")
    question = by("sex").replace("FROM visits", "FROM clinic.visits")
    assert len(clinic.dp(question.replace("epsilon = 1)", "epsilon = 2)"))) == 2
    assert clinic.value("SELECT spent FROM dp_budget()") == 3.0


@pytest.mark.parametrize("name", ["it's a space", 'double "quote"', "ünïcödé ☂", "dots.in;name--$$"])
def test_any_path(open_clinic: OpenClinic, tmp_path: Path, name: str) -> None:
    """A path may have blanks, quotes and letters of any script."""
    directory = tmp_path / name
    directory.mkdir()
    clinic = open_clinic(directory / f"{name}.duckdb")
    clinic.fill()
    clinic.protect()
    answer = clinic.dp(by("sex"))
    clinic.con.close()
    assert {path.name for path in directory.iterdir()} >= {
        f"{name}.duckdb",
        f"{name}_private.duckdb",
        f"{name}_private_secrets",
    }
    assert open_clinic(directory / f"{name}.duckdb").dp(by("sex")) == answer


def test_an_explicit_store(open_clinic: OpenClinic, tmp_path: Path) -> None:
    """The store and its secrets are at the given path."""
    clinic = open_clinic(tmp_path / "a.duckdb", store=tmp_path / "elsewhere.store")
    clinic.fill()
    clinic.protect()
    clinic.dp(by("sex"))
    assert (tmp_path / "elsewhere.store").exists() and not (tmp_path / "a_private.duckdb").exists()
    assert clinic.value("SELECT path FROM duckdb_databases() WHERE database_name = 'private'").endswith(
        "elsewhere.store"
    )


def test_the_secrets_are_never_attached(open_clinic: OpenClinic, clinic_file: Path) -> None:
    """The secrets file has permissions for its owner alone, and is in no database of the connection."""
    clinic = open_clinic(clinic_file)
    secrets = next(path for path in clinic_file.parent.iterdir() if path.name.endswith("_secrets"))
    assert secrets.stat().st_mode & 0o077 == 0
    assert str(secrets) not in str(clinic.rows("FROM duckdb_databases()"))
    key = SecretsFile.open(secrets, create=False).get("bounding_key")
    assert key is not None and key not in clinic_file.with_name("clinic_private.duckdb").read_bytes()


def test_a_store_that_is_attached_already(open_clinic: OpenClinic, clinic_file: Path) -> None:
    """The right store under the right name is taken as it is. Another store, or a read-only one, is refused."""
    store = clinic_file.with_name("clinic_private.duckdb")
    for options, message in [("", None), (" (READ_ONLY)", "the store is attached read-only")]:
        with duckdb.connect(str(clinic_file)) as con:
            con.execute(f"ATTACH '{store}' AS private{options}")
            if message is None:
                assert dpduck.load(con).execute(CHARGES).fetchall() == [(1,)]
            else:
                with pytest.raises(dpduck.StoreError, match=message):
                    dpduck.load(con)
    with duckdb.connect(str(clinic_file)) as con:
        con.execute("ATTACH ':memory:' AS private")
        with pytest.raises(dpduck.Refusal, match="another database is attached as 'private'"):
            dpduck.load(con)


def test_a_store_with_two_names_is_refused(open_clinic: OpenClinic, clinic_file: Path, tmp_path: Path) -> None:
    """A hard link to the store is refused: the process opened it twice, and its ledger began anew."""
    clinic = open_clinic(clinic_file)
    charges = clinic.charges()
    store, link = tmp_path / "clinic_private.duckdb", tmp_path / "link_private.duckdb"
    assert store.is_file()
    link.hardlink_to(store)
    for database in (tmp_path / "link.duckdb", None):
        with pytest.raises(StoreError, match="a second name, a hard link"):
            dpduck.connect(database or ":memory:", store=link)
    clinic.con.close()
    with pytest.raises(StoreError, match="accepted: cp clinic_private"):
        dpduck.connect(clinic_file)
    link.unlink()
    assert open_clinic(clinic_file).charges() == charges == 1


def test_the_store_is_not_the_database(tmp_path: Path) -> None:
    """A store in the database's own file is refused, as it would be served with the database."""
    with pytest.raises(dpduck.Refusal, match="the store is the database itself"):
        dpduck.connect(tmp_path / "a.duckdb", store=tmp_path / "a.duckdb")


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    """A file that is no store is refused in one line, and nothing stays attached."""
    (tmp_path / "a_private.duckdb").write_bytes(b"not a database" * 1000)
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        with pytest.raises(dpduck.StoreError) as caught:
            dpduck.load(con)
        assert "\n" not in str(caught.value) and caught.value.__cause__ is None
        assert con.execute("SELECT count(*) FROM duckdb_databases() WHERE NOT internal").fetchall() == [(1,)]


def test_a_failed_load_leaves_the_connection_as_it_was(clinic_file: Path) -> None:
    """A store without its secrets is refused, detached again, and accepted once they are back."""
    secrets = next(path for path in clinic_file.parent.iterdir() if path.name.endswith("_secrets"))
    hidden = secrets.rename(secrets.with_name("hidden"))
    with duckdb.connect(str(clinic_file)) as con:
        with pytest.raises(dpduck.StoreError, match="secrets"):
            dpduck.load(con)
        assert con.execute("SELECT 1 FROM duckdb_databases() WHERE database_name = 'private'").fetchall() == []
        hidden.rename(secrets)
        assert dpduck.load(con).execute(CHARGES).fetchall() == [(1,)]


def test_eight_threads_load_one_database(clinic_file: Path) -> None:
    """Loading from several threads at once loads dpduck once."""
    with duckdb.connect(str(clinic_file)) as con:
        cursors = [con.cursor() for _ in range(8)]
        failures: list[BaseException] = []

        def load(cursor: Any) -> None:
            try:
                assert dpduck.load(cursor).execute(CHARGES).fetchall() == [(1,)]
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=load, args=(cursor,)) for cursor in cursors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


def test_databases_in_memory_are_apart(open_clinic: OpenClinic) -> None:
    """Each database in memory has its own store, ledger and functions."""
    one, other = open_clinic(), open_clinic()
    one.fill()
    one.protect()
    one.dp(by("sex"))
    assert one.charges() == 1
    assert other.charges() == 0
    assert other.rows("FROM dp_policies()") == []
