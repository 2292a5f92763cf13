"""Prepared tables: which rows they answer about, when they are refused, and that nobody sees their files."""

from __future__ import annotations

import stat
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.store.prepared_files import MOST_COPIES, PreparedFiles
from tests.store import prepared_kill_harness as harness
from tests.store.preparing import POLICY, PREPARE, SHARED, dp, prepared_files, total
from tests.support.kills import account


def test_answers_are_about_the_rows_that_were_prepared(hospital: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Answers are about the prepared rows until NEW EPOCH or UNPREPARE. dp_check tells the owner of rows since then."""
    done = dp(hospital, PREPARE)
    assert "is prepared: new questions are about its rows of 20" in done and dp(hospital, PREPARE) == done
    hospital.execute("INSERT INTO visits SELECT 0, 5000 + range, 5 FROM range(500)")
    assert abs(total(hospital) - 1000) < 10
    assert abs(total(hospital, more="WHERE cost + 1 > 2") - 1000) < 10
    facts = dict(hospital.execute("SELECT finding, value FROM dp_check('visits')").fetchall())
    assert (facts["rows"], facts["rows that were prepared"]) == (1500, 1000)
    policies = dict(hospital.execute("SELECT table_name, prepared_at IS NOT NULL FROM dp_policies()").fetchall())
    assert policies == {"clinic.main.visits": True, "clinic.main.stays": False}
    assert "is prepared" in dp(hospital, "ALTER PRIVACY POLICY ON visits NEW EPOCH")
    assert abs(total(hospital) - 1500) < 10
    assert len(prepared_files(tmp_path)) == 1
    hospital.execute("DELETE FROM visits WHERE patient >= 5000")
    done = dp(hospital, "ALTER PRIVACY POLICY ON visits UNPREPARE")
    assert "is not prepared: new" in done and dp(hospital, "ALTER PRIVACY POLICY ON visits UNPREPARE") == done
    assert abs(total(hospital) - 1000) < 10
    assert prepared_files(tmp_path) == []


def test_an_empty_table_was_prepared_too(hospital: duckdb.DuckDBPyConnection) -> None:
    """For a table that had no rows when it was prepared, dp_check says so."""
    hospital.execute("DELETE FROM visits")
    dp(hospital, PREPARE)
    hospital.execute("INSERT INTO visits SELECT 0, 5000 + range, 5 FROM range(500)")
    facts = dict(hospital.execute("SELECT finding, value FROM dp_check('visits')").fetchall())
    assert (facts["rows"], facts["rows that were prepared"]) == (500, 0)


def test_changes_of_a_policy(hospital: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A change of codes prepares anew, and one of an amount does not. A dropped policy takes the file with it."""
    dp(hospital, PREPARE)
    (first,) = prepared_files(tmp_path)
    assert "is prepared" not in dp(hospital, "ALTER PRIVACY POLICY ON visits SET EXPECT ROWS 2000")
    assert prepared_files(tmp_path) == [first]
    assert abs(total(hospital) - 1000) < 10
    assert "is prepared" in dp(hospital, "ALTER PRIVACY POLICY ON visits SET DOMAIN sex IN (0)")
    (second,) = prepared_files(tmp_path)
    assert second != first
    assert abs(total(hospital, more="WHERE sex = 0") - 500) < 10
    dp(hospital, "DROP PRIVACY POLICY ON visits")
    assert prepared_files(tmp_path) == []


def test_a_table_that_changed_its_columns_is_refused(hospital: duckdb.DuckDBPyConnection) -> None:
    """Changed columns are refused: conditions cannot raise by the types of today, which the twin may not have."""
    dp(hospital, PREPARE)
    hospital.execute("ALTER TABLE visits ALTER cost TYPE VARCHAR")
    before = hospital.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    with pytest.raises(duckdb.Error, match=r"changed since it was prepared; accepted: ALTER PRIVACY POLICY"):
        total(hospital)
    assert hospital.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before
    dp(hospital, PREPARE)
    assert abs(total(hospital) - 1000) < 10


def test_the_file_is_the_owners_alone(hospital: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """The file is for its owner alone (0600), in no list of databases, and under no name that a statement knows."""
    before = hospital.execute("SELECT database_name FROM duckdb_databases() ORDER BY ALL").fetchall()
    tables = hospital.execute("SELECT count(*) FROM duckdb_tables()").fetchall()
    dp(hospital, PREPARE)
    total(hospital)
    (path,) = prepared_files(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    after = hospital.execute("SELECT database_name FROM duckdb_databases() ORDER BY ALL").fetchall()
    assert [name for name in after if not name[0].startswith("dpduck_release_")] == before
    assert hospital.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'twin'").fetchall() == [(0,)]
    assert hospital.execute("SELECT count(*) FROM duckdb_tables()").fetchall() >= tables


def test_two_tables_of_one_statement_are_of_one_moment(tmp_path: Path) -> None:
    """A join of a prepared table with a live one is refused, and one of two prepared tables is answered."""
    with dpduck.connect(tmp_path / "shop.duckdb") as con:
        con.execute("CREATE TABLE people AS SELECT range AS id, range % 2 AS sex FROM range(500)")
        con.execute("ALTER TABLE people ADD PRIMARY KEY (id)")
        con.execute("CREATE TABLE orders AS SELECT range % 500 AS person, range % 3 AS kind FROM range(1000)")
        dp(con, "CREATE PRIVACY POLICY ON people (PRIVACY UNIT id MAX ROWS 2, BUDGET (epsilon = 100000))")
        dp(con, "CREATE PRIVACY POLICY ON orders (PRIVACY UNIT person REFERENCES people.id MAX ROWS 2)")
        dp(con, "ALTER PRIVACY POLICY ON people PREPARE")
        joined = "JOIN people ON person = id"
        with pytest.raises(
            duckdb.Error, match=r"not of one moment; accepted: ALTER PRIVACY POLICY ON shop.main.orders"
        ):
            total(con, "orders", joined)
        assert abs(total(con, "orders") - 1000) < 10
        dp(con, "ALTER PRIVACY POLICY ON orders PREPARE")
        con.execute("DELETE FROM orders")
        assert abs(total(con, "orders", joined) - 1000) < 10


def test_each_new_epoch_reads_the_rows_anew(hospital: duckdb.DuckDBPyConnection) -> None:
    """NEW EPOCH reads today's rows, also twice in a row with no charge in between."""
    dp(hospital, PREPARE)
    for more in (1, 2, 3):
        hospital.execute(f"INSERT INTO visits SELECT 0, {5000 + 100 * more} + range, 5 FROM range(100)")
        assert "epoch 1)" in dp(hospital, "ALTER PRIVACY POLICY ON visits NEW EPOCH")
        facts = dict(hospital.execute("SELECT finding, value FROM dp_check('visits')").fetchall())
        assert facts["rows that were prepared"] == 1000 + 100 * more
    assert abs(total(hospital) - 1300) < 10
    assert "epoch 2)" in dp(hospital, "ALTER PRIVACY POLICY ON visits NEW EPOCH")


@pytest.mark.sampled
@pytest.mark.parametrize("later", ["orders NEW EPOCH", "lines NEW EPOCH", "orders SET DOMAIN sex IN (0, 1)"])
@pytest.mark.parametrize("first", [("orders", "lines"), ("lines", "orders"), ("lines, orders",)])
def test_one_unit_never_has_rows_of_two_moments(
    shop: duckdb.DuckDBPyConnection, first: tuple[str, ...], later: str
) -> None:
    """All orders go to one customer: after any preparing, lines and orders agree about the customer."""
    for tables in first:
        dp(shop, f"ALTER PRIVACY POLICY ON {tables} PREPARE")
    for more in SHARED:
        assert abs(total(shop, "lines", more) - 1000) < 10
    shop.execute("UPDATE orders SET customer = 5000")
    said = dp(shop, f"ALTER PRIVACY POLICY ON {later}")
    assert "shop.main.orders" in said and "shop.main.lines" in said and "are prepared" in said
    for more in SHARED:
        assert abs(total(shop, "lines", more) - 2) < 10


def test_a_parent_prepared_later_takes_its_children_along(shop: duckdb.DuckDBPyConnection) -> None:
    """Lines are prepared while orders are not. When orders are prepared, lines are prepared anew."""
    dp(shop, "ALTER PRIVACY POLICY ON lines PREPARE")
    shop.execute("UPDATE orders SET customer = 5000")
    assert abs(total(shop, "lines") - 1000) < 10
    said = dp(shop, "ALTER PRIVACY POLICY ON orders PREPARE")
    assert "orders, shop.main.lines are prepared: new questions are about their rows of 20" in said
    for more in SHARED:
        assert abs(total(shop, "lines", more) - 2) < 10
    assert sorted(dp(shop, "ALTER PRIVACY POLICY ON lines, orders PREPARE")) == sorted(said)
    at = shop.execute("SELECT DISTINCT prepared_at FROM dp_policies()").fetchall()
    assert len(at) == 1 and at[0][0] is not None
    assert "; shop.main.orders is not prepared" in dp(shop, "ALTER PRIVACY POLICY ON lines, orders UNPREPARE")


def test_tables_begin_a_new_epoch_together(shop: duckdb.DuckDBPyConnection) -> None:
    """One NEW EPOCH of two tables prepares them once. SET takes one table alone."""
    both = "ALTER PRIVACY POLICY ON lines, orders"
    dp(shop, f"{both} PREPARE")
    said = dp(shop, f"{both} NEW EPOCH")
    assert said.count("epoch 1)") == 2 and said.count("are prepared") == 1
    assert abs(total(shop, "lines", SHARED[1]) - 1000) < 10
    with pytest.raises(duckdb.Error, match="NEW EPOCH, PREPARE or UNPREPARE, which alone take several tables"):
        dp(shop, f"{both} SET EXPECT ROWS 10")


def test_twins_of_two_moments_are_not_joined(shop: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Twins of two moments are refused uncharged, whatever the records say, until both are prepared."""
    dp(shop, "ALTER PRIVACY POLICY ON lines, orders PREPARE")
    shop.close()
    (store,) = tmp_path.glob("*_private.duckdb")
    with duckdb.connect(str(store)) as con:
        facts = con.execute("SELECT facts FROM dpduck.prepared WHERE table_name LIKE '%lines%'").fetchall()[0][0]
        changed = facts.replace(facts.split('"')[1], "0" * 32)
        con.execute("UPDATE dpduck.prepared SET facts = ? WHERE table_name LIKE '%lines%'", [changed])
    with dpduck.connect(tmp_path / "shop.duckdb") as con:
        before = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
        both = "ALTER PRIVACY POLICY ON shop.main.lines, shop.main.orders PREPARE"
        with pytest.raises(duckdb.Error, match=f"not prepared in one moment; accepted: {both}"):
            total(con, "lines", SHARED[1])
        assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before
        dp(con, both)
        assert abs(total(con, "lines", SHARED[1]) - 1000) < 10


def test_statements_over_a_reference(shop: duckdb.DuckDBPyConnection) -> None:
    """UNION ALL of a table with a reference, and rows that are units, are answered over prepared rows."""
    dp(shop, "ALTER PRIVACY POLICY ON lines, orders PREPARE")
    assert abs(total(shop, "(SELECT kind FROM lines UNION ALL SELECT kind FROM lines WHERE kind = 1)") - 1333) < 10
    before = shop.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    shop.execute("ALTER TABLE orders ALTER customer TYPE VARCHAR")
    with pytest.raises(duckdb.Error, match="changed since it was prepared"):
        total(shop, "lines")
    assert shop.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before


def test_more_public_tables_than_are_kept(hospital: duckdb.DuckDBPyConnection) -> None:
    """All public copies that a statement needs are there while it is counted, even if fewer are kept afterwards."""
    dp(hospital, PREPARE)
    joins = []
    for number in range(MOST_COPIES + 2):
        hospital.execute(f"CREATE TABLE p{number} AS FROM (VALUES (0), (1)) AS v(code)")
        dp(hospital, f"DECLARE PUBLIC TABLE p{number}")
        joins.append(f"JOIN p{number} ON sex = p{number}.code")
    assert abs(total(hospital, more=" ".join(joins)) - 1000) < 10
    assert abs(total(hospital, more=joins[0]) - 1000) < 10


def test_public_tables_are_those_of_today(hospital: duckdb.DuckDBPyConnection) -> None:
    """A joined public table is read anew whenever it has changed."""
    hospital.execute("CREATE TABLE sexes AS FROM (VALUES (0, 'f', uuid()), (1, 'm', uuid())) AS s(code, name, id)")
    dp(hospital, "DECLARE PUBLIC TABLE sexes")
    dp(hospital, PREPARE)
    joined = "JOIN sexes ON sex = code"
    assert abs(total(hospital, more=joined) - 1000) < 10
    hospital.execute("DELETE FROM sexes WHERE code = 1")
    assert abs(total(hospital, more=joined) - 500) < 10
    hospital.execute("CREATE TABLE wide AS SELECT 0::HUGEINT AS code")
    dp(hospital, "DECLARE PUBLIC TABLE wide")
    assert abs(total(hospital, more="JOIN wide ON cost - 5 = wide.code") - 1000) < 10
    hospital.execute("UPDATE wide SET code = -1")  # -1 has the hash of 0
    assert abs(total(hospital, more="JOIN wide ON cost - 5 = wide.code")) < 10
    hospital.execute("ALTER TABLE sexes ADD COLUMN more INTEGER[]")
    with pytest.raises(duckdb.Error, match="UNPREPARE"):
        total(hospital, more=joined)


def test_in_memory(tmp_path: Path) -> None:
    """The twin of a database in memory is in memory."""
    with dpduck.connect() as con:
        con.execute("CREATE TABLE visits AS SELECT range % 2 AS sex, range AS patient, 5 AS cost FROM range(1000)")
        dp(con, POLICY.format(table="visits"))
        dp(con, PREPARE)
        con.execute("DELETE FROM visits")
        assert abs(total(con) - 1000) < 10
        dp(con, "ALTER PRIVACY POLICY ON visits UNPREPARE")
        assert abs(total(con)) < 10
    assert list(tmp_path.iterdir()) == []


def test_no_row_goes_to_a_disk_that_the_owner_closed() -> None:
    """The DuckDB of twins has the limits of the database. An empty temp_directory is a limit, also in memory."""
    with duckdb.connect(config={"temp_directory": ""}) as con:
        files = PreparedFiles(con.cursor, None, lambda: b"key")
        with files.create("1", "") as (second, _):
            assert second.execute("SELECT current_setting('temp_directory')").fetchall() == [("",)]


@pytest.mark.slow
def test_a_kill_at_any_step_of_preparing(tmp_path: Path) -> None:
    """After a kill at any step a prepared table is used or refused, never in part, and no unused file is left."""
    found = account(Path(harness.__file__), tmp_path)
    assert set(found) == {*harness.STEPS, "answered"}
