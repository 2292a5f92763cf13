"""Prepared tables while tables, files, policies or neighbours change: refused or as before, with nothing left over."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.database.functions import database_of
from dpduck.store.prepared_files import PreparedFiles
from dpduck.values.errors import Refusal
from tests.language.facts import request_of
from tests.store.preparing import POLICY, PREPARE, SHARED, dp, prepared_files, total

LONG = "'x' || repeat('y', 70000)"


def test_what_cannot_be_prepared_again_stays_as_it_was(hospital: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A moment beyond all calendars in a column with a DOMAIN of numbers: refused by its type, and nothing changes."""
    dp(hospital, PREPARE)
    files, policies = prepared_files(tmp_path), "SELECT * FROM dp_policies()"
    listed = hospital.execute(policies).fetchall()
    hospital.execute("ALTER TABLE visits ALTER sex TYPE TIMESTAMP USING TIMESTAMP '290309-12-22 (BC) 00:00:00'")
    for change in ("NEW EPOCH", "PREPARE"):
        with pytest.raises(duckdb.Error, match=r"'sex' is TIMESTAMP, and its DOMAIN is of"):
            dp(hospital, f"ALTER PRIVACY POLICY ON visits {change}")
    assert (prepared_files(tmp_path), hospital.execute(policies).fetchall()) == (files, listed)
    hospital.execute("ALTER TABLE visits ALTER sex TYPE BIGINT USING 0")
    assert abs(total(hospital) - 1000) < 10
    assert "is prepared" in dp(hospital, "ALTER PRIVACY POLICY ON visits NEW EPOCH")
    assert abs(total(hospital, more="WHERE sex = 0") - 1000) < 10


def test_names_and_columns_of_any_kind(hospital: duckdb.DuckDBPyConnection) -> None:
    """Quotes in names, and a DOMAIN of a dropped column, are no obstacle."""
    hospital.execute('ALTER TABLE visits ADD COLUMN "a "" b" VARCHAR')
    hospital.execute("ALTER TABLE visits DROP COLUMN sex")
    dp(hospital, PREPARE)
    assert abs(total(hospital) - 1000) < 10
    assert abs(total(hospital, more='WHERE "a "" b" IS NULL AND cost > 1') - 1000) < 10


@pytest.mark.parametrize("damage", ["gone", "truncated", "swapped", "no file of DuckDB", "older"])
def test_other_files_are_refused(hospital: duckdb.DuckDBPyConnection, tmp_path: Path, damage: str) -> None:
    """A missing, cut, foreign, older or damaged file is refused in one line and uncharged, and PREPARE mends it."""
    dp(hospital, PREPARE)
    (path,) = prepared_files(tmp_path)
    content = path.read_bytes()
    dp(hospital, "ALTER PRIVACY POLICY ON stays PREPARE")
    (other,) = set(prepared_files(tmp_path)) - {path}
    if damage == "older":
        dp(hospital, "ALTER PRIVACY POLICY ON visits NEW EPOCH")
        (path,) = set(prepared_files(tmp_path)) - {other}
    hospital.close()
    if damage == "gone":
        path.unlink()
    elif damage == "swapped":
        shutil.copyfile(other, path)
    else:
        rubbish = b"x" * len(content)
        path.write_bytes({"truncated": content[:-4096], "older": content}.get(damage, rubbish))
    with dpduck.connect(tmp_path / "clinic.duckdb") as con:
        before = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
        with pytest.raises(
            duckdb.Error, match=r'the file of the prepared table "clinic"."main"."visits" .*; accepted: ALTER'
        ):
            total(con)
        assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before
        assert abs(total(con, "stays") - 1000) < 10
        dp(con, PREPARE)
        assert abs(total(con) - 1000) < 10
        assert len(prepared_files(tmp_path)) == 2


def test_a_file_with_damaged_blocks(hospital: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """One release fails. From then on the file is known as damaged: statements are refused uncharged until PREPARE."""
    dp(hospital, PREPARE)
    hospital.close()
    (path,) = prepared_files(tmp_path)
    content = bytearray(path.read_bytes())
    middle = slice(12_288, len(content) - 300_000)
    content[middle] = bytes(byte ^ 255 for byte in content[middle])
    path.write_bytes(content)
    with dpduck.connect(tmp_path / "clinic.duckdb") as con:
        with pytest.raises(duckdb.Error):
            total(con, more="WHERE cost + 1 > 2")
        before = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
        with pytest.raises(duckdb.Error, match=r"(is damaged|cannot be read|is not whole|another table).*PREPARE"):
            total(con, more="WHERE cost + 1 > 2")
        assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before
        dp(con, PREPARE)
        assert abs(total(con, more="WHERE cost + 1 > 2") - 1000) < 10


@pytest.mark.slow
@pytest.mark.parametrize("times", [200_000, pytest.param(20_000_000, marks=pytest.mark.audit)])
def test_long_texts_do_not_decide(tmp_path: Path, times: int) -> None:
    """With more text of one person than a batch holds the table is prepared, and statements answer as before.

    2 GiB of text, which is more than Arrow's texts can hold, take half a minute.
    """
    with dpduck.connect(tmp_path / "notes.duckdb") as con:
        con.execute("CREATE TABLE notes AS SELECT range AS who, 'short' AS note FROM range(500)")
        con.execute(f"INSERT INTO notes SELECT 7, repeat('long', {times}) || i FROM range(28) AS r(i)")
        con.execute(f"INSERT INTO notes SELECT 600 + i, {LONG} FROM range(100) AS r(i)")
        policy = "PRIVACY UNIT who MAX ROWS 30, BUDGET (epsilon = 1000000), DOMAIN note IN ('short', 'x') WITH OTHER"
        dp(con, f"CREATE PRIVACY POLICY ON notes ({policy})")
        conditions = ("note > 'x'", "note < 'xyyz' AND note > 'short'", "note IS NOT NULL", "length(note) > 5")
        plain = [total(con, "notes", f"WHERE {condition}") for condition in conditions]
        assert "is prepared" in dp(con, "ALTER PRIVACY POLICY ON notes PREPARE")
        for condition, before in zip(conditions, plain, strict=True):
            assert abs(total(con, "notes", f"WHERE {condition}") - before) < 20


def test_units_that_are_long_texts_stay_apart(tmp_path: Path) -> None:
    """Two units that begin with the same 65,536 characters stay two units, each with its own rows."""
    with dpduck.connect(tmp_path / "long.duckdb") as con:
        con.execute(f"CREATE TABLE t AS SELECT {LONG} || i % 300 AS who, 1 AS x FROM range(600) AS r(i)")
        con.execute("INSERT INTO t SELECT 'u' || i, 1 FROM range(100) AS r(i)")
        dp(con, "CREATE PRIVACY POLICY ON t (PRIVACY UNIT who MAX ROWS 2, BUDGET (epsilon = 1000000))")
        dp(con, "ALTER PRIVACY POLICY ON t PREPARE")
        assert abs(total(con, "t") - 100) < 10


def test_what_others_do_to_a_table(shop: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A dropped table locks nothing: its siblings are prepared without it, and it can be unprepared."""
    dp(shop, "ALTER PRIVACY POLICY ON lines, orders PREPARE")
    shop.execute("DROP TABLE lines")
    assert "orders is prepared" in dp(shop, "ALTER PRIVACY POLICY ON orders NEW EPOCH")
    assert abs(total(shop, "orders") - 1000) < 10
    assert "is not prepared" in dp(shop, "ALTER PRIVACY POLICY ON lines UNPREPARE")
    assert len(prepared_files(tmp_path)) == 1


def test_a_change_that_was_undone(shop: duckdb.DuckDBPyConnection) -> None:
    """PREPARE prepares anew where a type changed and changed back, and where a key came later."""
    dp(shop, "ALTER PRIVACY POLICY ON lines, orders PREPARE")
    shop.execute("ALTER TABLE lines ALTER id TYPE VARCHAR")
    dp(shop, "ALTER PRIVACY POLICY ON orders SET EXPECT ROWS 5")
    shop.execute("ALTER TABLE lines ALTER id TYPE BIGINT")
    dp(shop, "ALTER PRIVACY POLICY ON lines PREPARE")
    assert abs(total(shop, "lines") - 1000) < 10
    shop.execute("ALTER TABLE lines ADD PRIMARY KEY (place)")
    dp(shop, "ALTER PRIVACY POLICY ON lines PREPARE")
    assert abs(total(shop, "lines", SHARED[1]) - 1000) < 10


def test_a_policy_that_was_dropped_leaves_nothing(hospital: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A dropped policy leaves no twin, also if the process ended in between: a new policy is of the table itself."""
    dp(hospital, PREPARE)
    hospital.execute("INSERT INTO visits SELECT 0, 5000 + range, 5 FROM range(500)")
    hospital.close()
    (store,) = tmp_path.glob("*_private.duckdb")
    with duckdb.connect(str(store)) as con:
        con.execute("DELETE FROM dpduck.policies WHERE table_name LIKE '%visits%'")
    with dpduck.connect(tmp_path / "clinic.duckdb") as con:
        assert prepared_files(tmp_path) == []
        dp(con, POLICY.format(table="visits"))
        assert abs(total(con) - 1500) < 10


@pytest.mark.parametrize("unit", ["household", "(household, survey)"])
@pytest.mark.parametrize("dropped", ["answers", "parts"])
def test_a_policy_that_is_dropped_while_a_statement_is_read(unit: str, dropped: str) -> None:
    """A policy dropped between reading a statement and looking for its twins gives one line about the change."""
    with dpduck.connect(config={"threads": 1}) as con:
        con.execute("CREATE TABLE answers (id INTEGER PRIMARY KEY, household INTEGER, survey VARCHAR)")
        con.execute("CREATE TABLE parts (id INTEGER PRIMARY KEY, answer INTEGER)")
        con.execute("CREATE TABLE marks (part INTEGER)")
        dp(con, f"CREATE PRIVACY POLICY ON answers (PRIVACY UNIT {unit} MAX ROWS 1, BUDGET (epsilon = 1))")
        dp(con, "CREATE PRIVACY POLICY ON parts (PRIVACY UNIT answer REFERENCES answers.id MAX ROWS 1)")
        dp(con, "CREATE PRIVACY POLICY ON marks (PRIVACY UNIT part REFERENCES parts.id MAX ROWS 1)")
        dp(con, "ALTER PRIVACY POLICY ON answers, parts, marks PREPARE")
        ask = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM marks"
        request, database = request_of(con, ask), database_of(con)
        assert database is not None
        dp(con, f"DROP PRIVACY POLICY ON {dropped}")
        with pytest.raises(Refusal, match=r"one that it refers to changed since it was prepared; accepted: ALTER"):
            database.about.prepared.place(request.rows)


def test_a_policy_is_changed_where_another_table_is_out_of_reach(tmp_path: Path) -> None:
    """With a prepared table in a database that is not attached, other tables are changed and asked about as ever."""
    for name in ("shop", "other"):
        with duckdb.connect(str(tmp_path / f"{name}.duckdb")) as con:
            con.execute("CREATE TABLE t AS SELECT range AS u, range % 2 AS x FROM range(100)")
    policy = "(PRIVACY UNIT u MAX ROWS 1, BUDGET (epsilon = 1000000))"
    with dpduck.connect(tmp_path / "shop.duckdb") as con:
        con.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS o")
        for table in ("t", "o.t"):
            dp(con, f"CREATE PRIVACY POLICY ON {table} {policy}")
            dp(con, f"ALTER PRIVACY POLICY ON {table} PREPARE")
    with dpduck.connect(tmp_path / "shop.duckdb") as con:
        dp(con, "ALTER PRIVACY POLICY ON t SET EXPECT ROWS 5")
        dp(con, "ALTER PRIVACY POLICY ON t NEW EPOCH")
        assert abs(total(con, "t") - 100) < 10
        assert "is not prepared" in dp(con, "ALTER PRIVACY POLICY ON o.main.t UNPREPARE")
        assert len(prepared_files(tmp_path)) == 1


def test_a_file_that_cannot_be_deleted(hospital: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be deleted is left for later, and the statement is carried out."""
    dp(hospital, PREPARE)

    def refuse(self: PreparedFiles, nonce: str) -> None:
        raise PermissionError

    monkeypatch.setattr(PreparedFiles, "remove", refuse)
    assert "epoch 1)" in dp(hospital, "ALTER PRIVACY POLICY ON visits NEW EPOCH")
    assert "is not prepared" in dp(hospital, "ALTER PRIVACY POLICY ON visits UNPREPARE")
    assert hospital.execute("SELECT count(prepared_at) FROM dp_policies()").fetchall() == [(0,)]


def test_another_stores_file_is_refused(hospital: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A file of the same table under another key, in the place of the store's own, is refused."""
    dp(hospital, PREPARE)
    (path,) = prepared_files(tmp_path)
    hospital.close()
    with duckdb.connect(str(path)) as twin:
        twin.execute("UPDATE header SET mac = repeat('0', 64)")
        twin.execute("CHECKPOINT")
    with dpduck.connect(tmp_path / "clinic.duckdb") as con, pytest.raises(duckdb.Error, match="prepared table"):
        total(con)


def test_columns_that_cannot_be_prepared(hospital: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Lists, dpduck's own names and collations are refused, and nothing is left behind."""
    for change, what in (
        ("ADD COLUMN many INTEGER[]", "many is INTEGER"),
        ("ADD COLUMN span INTERVAL", "span is INTERVAL"),
        ("ADD COLUMN dpduck_x INTEGER", "dpduck's own"),
    ):
        hospital.execute(f"ALTER TABLE visits {change}")
        with pytest.raises(duckdb.Error, match=what):
            dp(hospital, PREPARE)
        hospital.execute(f"ALTER TABLE visits DROP {change.split()[2]}")
    hospital.execute("CREATE TABLE spelt (patient INTEGER, name VARCHAR COLLATE NOCASE)")
    dp(hospital, "CREATE PRIVACY POLICY ON spelt (PRIVACY UNIT patient MAX ROWS 1, BUDGET (epsilon = 1))")
    with pytest.raises(duckdb.Error, match="COLLATION"):
        dp(hospital, "ALTER PRIVACY POLICY ON spelt PREPARE")
    with pytest.raises(duckdb.Error, match="has no privacy policy"):
        hospital.execute("CREATE TABLE bare AS SELECT 1 AS x")
        dp(hospital, "ALTER PRIVACY POLICY ON bare PREPARE")
    assert prepared_files(tmp_path) == []


def test_where_nothing_can_be_written(hospital: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Without the right to write beside the store PREPARE fails in one line, and the table stays as it was."""
    if os.geteuid() == 0:
        blocked = tmp_path / "clinic_prepared_x"
        blocked.touch()
    else:
        tmp_path.chmod(0o500)
        with pytest.raises(duckdb.Error, match="cannot be prepared"):
            dp(hospital, PREPARE)
        tmp_path.chmod(0o700)
    assert abs(total(hospital) - 1000) < 10
