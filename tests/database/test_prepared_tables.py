"""Prepared tables: what they mean, when they are refused, and that nothing of them is shown or left over."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.database.twin_files import MOST_COPIES, TwinFiles
from tests.database import prepared_kill_harness as harness
from tests.support.kills import account

POLICY = (
    "CREATE PRIVACY POLICY ON {table} (PRIVACY UNIT patient MAX ROWS 2, BUDGET (epsilon = 1000000), "
    "DOMAIN sex IN (0, 1), CLAMP cost BETWEEN 0 AND 10)"
)
PREPARE = "ALTER PRIVACY POLICY ON visits PREPARE"
TAGS = iter(range(10**6))


def dp(con: duckdb.DuckDBPyConnection, statement: str) -> str:
    """The one word of an owner's statement."""
    return str(con.execute("FROM dp(?)", [statement]).fetchall()[0][0])


def total(con: duckdb.DuckDBPyConnection, table: str = "visits", more: str = "") -> int:
    """A new count, at a price at which noise is below ten with a chance beyond 1 - 1e-12."""
    options = f"OPTIONS (epsilon = 100, refresh = '{next(TAGS)}')"
    statement = f"SELECT WITH DIFFERENTIAL_PRIVACY {options} count(*) AS n FROM {table} {more}"
    return int(con.execute("FROM dp(?)", [statement]).fetchall()[0][0])


def twin_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if "_prepared_" in path.name)


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A thousand patients with one visit each."""
    with dpduck.connect(tmp_path / "clinic.duckdb") as con:
        con.execute("CREATE TABLE visits AS SELECT range % 2 AS sex, range AS patient, 5 AS cost FROM range(1000)")
        con.execute("CREATE TABLE stays AS FROM visits")
        for table in ("visits", "stays"):
            dp(con, POLICY.format(table=table))
        yield con


def test_answers_are_about_the_rows_that_were_prepared(clinic: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Until NEW EPOCH or UNPREPARE, whatever becomes of the table; dp_check tells its owner how far it moved on."""
    done = dp(clinic, PREPARE)
    assert "is prepared: new questions are about its rows of 20" in done and dp(clinic, PREPARE) == done
    clinic.execute("INSERT INTO visits SELECT 0, 5000 + range, 5 FROM range(500)")
    assert abs(total(clinic) - 1000) < 10
    assert abs(total(clinic, more="WHERE cost + 1 > 2") - 1000) < 10
    facts = dict(clinic.execute("SELECT finding, value FROM dp_check('visits')").fetchall())
    assert (facts["rows"], facts["rows that were prepared"]) == (1500, 1000)
    policies = dict(clinic.execute("SELECT table_name, prepared_at IS NOT NULL FROM dp_policies()").fetchall())
    assert policies == {"clinic.main.visits": True, "clinic.main.stays": False}
    assert "is prepared" in dp(clinic, "ALTER PRIVACY POLICY ON visits NEW EPOCH")
    assert abs(total(clinic) - 1500) < 10
    assert len(twin_files(tmp_path)) == 1
    clinic.execute("DELETE FROM visits WHERE patient >= 5000")
    done = dp(clinic, "ALTER PRIVACY POLICY ON visits UNPREPARE")
    assert "is not prepared: new" in done and dp(clinic, "ALTER PRIVACY POLICY ON visits UNPREPARE") == done
    assert abs(total(clinic) - 1000) < 10
    assert twin_files(tmp_path) == []


def test_changes_of_a_policy(clinic: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """What changes codes prepares anew, an amount does not; a dropped policy takes the file with it."""
    dp(clinic, PREPARE)
    (first,) = twin_files(tmp_path)
    assert "is prepared" not in dp(clinic, "ALTER PRIVACY POLICY ON visits SET EXPECT ROWS 2000")
    assert twin_files(tmp_path) == [first]
    assert abs(total(clinic) - 1000) < 10
    assert "is prepared" in dp(clinic, "ALTER PRIVACY POLICY ON visits SET DOMAIN sex IN (0)")
    (second,) = twin_files(tmp_path)
    assert second != first
    assert abs(total(clinic, more="WHERE sex = 0") - 500) < 10
    dp(clinic, "DROP PRIVACY POLICY ON visits")
    assert twin_files(tmp_path) == []


def test_a_table_that_changed_its_columns_is_refused(clinic: duckdb.DuckDBPyConnection) -> None:
    """Conditions were found unable to raise by the columns of today: they are those of the twin, or nothing is read."""
    dp(clinic, PREPARE)
    clinic.execute("ALTER TABLE visits ALTER cost TYPE VARCHAR")
    before = clinic.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    with pytest.raises(duckdb.Error, match=r"changed since it was prepared; accepted: ALTER PRIVACY POLICY"):
        total(clinic)
    assert clinic.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before
    dp(clinic, PREPARE)
    assert abs(total(clinic) - 1000) < 10


def test_the_file_is_the_owners_alone(clinic: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """0600, in no list of databases, and not to be attached under a name that a statement knows."""
    before = clinic.execute("SELECT database_name FROM duckdb_databases() ORDER BY ALL").fetchall()
    tables = clinic.execute("SELECT count(*) FROM duckdb_tables()").fetchall()
    dp(clinic, PREPARE)
    total(clinic)
    (path,) = twin_files(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    after = clinic.execute("SELECT database_name FROM duckdb_databases() ORDER BY ALL").fetchall()
    assert [name for name in after if not name[0].startswith("dpduck_release_")] == before
    assert clinic.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'twin'").fetchall() == [(0,)]
    assert clinic.execute("SELECT count(*) FROM duckdb_tables()").fetchall() >= tables


def test_two_tables_of_one_statement_are_of_one_moment(tmp_path: Path) -> None:
    """A join of a prepared table with one that is not is refused; of two prepared ones it is answered."""
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


def test_each_new_epoch_reads_the_rows_anew(clinic: duckdb.DuckDBPyConnection) -> None:
    """Asked for again with nothing charged in between, too: an epoch without answers goes on, with today's rows."""
    dp(clinic, PREPARE)
    for more in (1, 2, 3):
        clinic.execute(f"INSERT INTO visits SELECT 0, {5000 + 100 * more} + range, 5 FROM range(100)")
        assert "epoch 1)" in dp(clinic, "ALTER PRIVACY POLICY ON visits NEW EPOCH")
        facts = dict(clinic.execute("SELECT finding, value FROM dp_check('visits')").fetchall())
        assert facts["rows that were prepared"] == 1000 + 100 * more
    assert abs(total(clinic) - 1300) < 10
    assert "epoch 2)" in dp(clinic, "ALTER PRIVACY POLICY ON visits NEW EPOCH")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A thousand orders of a thousand customers, each with one line."""
    with dpduck.connect(tmp_path / "shop.duckdb") as con:
        con.execute("CREATE TABLE orders AS SELECT range AS id, range AS customer, range % 2 AS sex FROM range(1000)")
        con.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
        con.execute("CREATE TABLE lines AS SELECT range AS place, range AS id, range % 3 AS kind FROM range(1000)")
        dp(con, "CREATE PRIVACY POLICY ON orders (PRIVACY UNIT customer MAX ROWS 2, BUDGET (epsilon = 1000000))")
        dp(con, "CREATE PRIVACY POLICY ON lines (PRIVACY UNIT id REFERENCES orders.id MAX ROWS 2)")
        yield con


SHARED = ("", "SEMI JOIN orders ON lines.id = orders.id", "JOIN orders ON lines.id = orders.id")


@pytest.mark.parametrize("later", ["orders NEW EPOCH", "lines NEW EPOCH", "orders SET DOMAIN sex IN (0, 1)"])
@pytest.mark.parametrize("first", [("orders", "lines"), ("lines", "orders"), ("lines, orders",)])
def test_one_unit_never_has_rows_of_two_moments(
    shop: duckdb.DuckDBPyConnection, first: tuple[str, ...], later: str
) -> None:
    """All orders become one customer's: whatever is prepared anew, lines and orders agree about whose they are."""
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
    """Lines are prepared by orders that are not; when these are prepared, lines are prepared anew."""
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
    """One statement and one preparing; what was asked about either is a new question."""
    both = "ALTER PRIVACY POLICY ON lines, orders"
    dp(shop, f"{both} PREPARE")
    said = dp(shop, f"{both} NEW EPOCH")
    assert said.count("epoch 1)") == 2 and said.count("are prepared") == 1
    assert abs(total(shop, "lines", SHARED[1]) - 1000) < 10
    with pytest.raises(duckdb.Error, match="NEW EPOCH, PREPARE or UNPREPARE, which alone take several tables"):
        dp(shop, f"{both} SET EXPECT ROWS 10")


def test_twins_of_two_moments_are_not_joined(shop: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Whatever the records say: refused, for nothing, until both are prepared."""
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
    """UNION ALL of a table that refers to another one, and rows that are units, over what was prepared."""
    dp(shop, "ALTER PRIVACY POLICY ON lines, orders PREPARE")
    assert abs(total(shop, "(SELECT kind FROM lines UNION ALL SELECT kind FROM lines WHERE kind = 1)") - 1333) < 10
    before = shop.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    shop.execute("ALTER TABLE orders ALTER customer TYPE VARCHAR")
    with pytest.raises(duckdb.Error, match="changed since it was prepared"):
        total(shop, "lines")
    assert shop.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before


def test_what_cannot_be_prepared_again_stays_as_it_was(clinic: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A moment that no calendar has, in a column with a DOMAIN of numbers: refused by its type, and nothing changed."""
    dp(clinic, PREPARE)
    files, policies = twin_files(tmp_path), "SELECT * FROM dp_policies()"
    listed = clinic.execute(policies).fetchall()
    clinic.execute("ALTER TABLE visits ALTER sex TYPE TIMESTAMP USING TIMESTAMP '290309-12-22 (BC) 00:00:00'")
    for change in ("NEW EPOCH", "PREPARE"):
        with pytest.raises(duckdb.Error, match=r"'sex' is TIMESTAMP, and its DOMAIN is of"):
            dp(clinic, f"ALTER PRIVACY POLICY ON visits {change}")
    assert (twin_files(tmp_path), clinic.execute(policies).fetchall()) == (files, listed)
    clinic.execute("ALTER TABLE visits ALTER sex TYPE BIGINT USING 0")
    assert abs(total(clinic) - 1000) < 10
    assert "is prepared" in dp(clinic, "ALTER PRIVACY POLICY ON visits NEW EPOCH")
    assert abs(total(clinic, more="WHERE sex = 0") - 1000) < 10


def test_more_public_tables_than_are_kept(clinic: duckdb.DuckDBPyConnection) -> None:
    """All copies of a statement are there while it is counted."""
    dp(clinic, PREPARE)
    joins = []
    for number in range(MOST_COPIES + 2):
        clinic.execute(f"CREATE TABLE p{number} AS FROM (VALUES (0), (1)) AS v(code)")
        dp(clinic, f"DECLARE PUBLIC TABLE p{number}")
        joins.append(f"JOIN p{number} ON sex = p{number}.code")
    assert abs(total(clinic, more=" ".join(joins)) - 1000) < 10
    assert abs(total(clinic, more=joins[0]) - 1000) < 10


def test_names_and_columns_of_any_kind(clinic: duckdb.DuckDBPyConnection) -> None:
    """Quotes in names, and a DOMAIN whose column is gone, are no obstacle."""
    clinic.execute('ALTER TABLE visits ADD COLUMN "a "" b" VARCHAR')
    clinic.execute("ALTER TABLE visits DROP COLUMN sex")
    dp(clinic, PREPARE)
    assert abs(total(clinic) - 1000) < 10
    assert abs(total(clinic, more='WHERE "a "" b" IS NULL AND cost > 1') - 1000) < 10


def test_public_tables_are_those_of_today(clinic: duckdb.DuckDBPyConnection) -> None:
    """A public table that is joined is read anew whenever it has changed."""
    clinic.execute("CREATE TABLE sexes AS FROM (VALUES (0, 'f', uuid()), (1, 'm', uuid())) AS s(code, name, id)")
    dp(clinic, "DECLARE PUBLIC TABLE sexes")
    dp(clinic, PREPARE)
    joined = "JOIN sexes ON sex = code"
    assert abs(total(clinic, more=joined) - 1000) < 10
    clinic.execute("DELETE FROM sexes WHERE code = 1")
    assert abs(total(clinic, more=joined) - 500) < 10
    clinic.execute("CREATE TABLE wide AS SELECT 0::HUGEINT AS code")
    dp(clinic, "DECLARE PUBLIC TABLE wide")
    assert abs(total(clinic, more="JOIN wide ON cost - 5 = wide.code") - 1000) < 10
    clinic.execute("UPDATE wide SET code = -1")  # of the same hash
    assert abs(total(clinic, more="JOIN wide ON cost - 5 = wide.code")) < 10
    clinic.execute("ALTER TABLE sexes ADD COLUMN more INTEGER[]")
    with pytest.raises(duckdb.Error, match="UNPREPARE"):
        total(clinic, more=joined)


@pytest.mark.parametrize("damage", ["gone", "truncated", "swapped", "no file of DuckDB", "older"])
def test_other_files_are_refused(clinic: duckdb.DuckDBPyConnection, tmp_path: Path, damage: str) -> None:
    """A file that is gone, cut, another table's, older or rubbish: one line, nothing charged, and PREPARE mends it."""
    dp(clinic, PREPARE)
    (path,) = twin_files(tmp_path)
    content = path.read_bytes()
    dp(clinic, "ALTER PRIVACY POLICY ON stays PREPARE")
    (other,) = set(twin_files(tmp_path)) - {path}
    if damage == "older":
        dp(clinic, "ALTER PRIVACY POLICY ON visits NEW EPOCH")
        (path,) = set(twin_files(tmp_path)) - {other}
    clinic.close()
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
        assert len(twin_files(tmp_path)) == 2


def test_a_file_with_damaged_blocks(clinic: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """One release fails; from then on the file is looked at, and statements are refused for nothing until PREPARE."""
    dp(clinic, PREPARE)
    clinic.close()
    (path,) = twin_files(tmp_path)
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


LONG = "'x' || repeat('y', 70000)"


def test_long_texts_do_not_decide(tmp_path: Path) -> None:
    """More than a batch can hold, of one person's: the table is prepared, and statements see what they saw before."""
    with dpduck.connect(tmp_path / "notes.duckdb") as con:
        con.execute("CREATE TABLE notes AS SELECT range AS who, 'short' AS note FROM range(500)")
        con.execute("INSERT INTO notes SELECT 7, repeat('long', 20000000) || i FROM range(28) AS r(i)")
        con.execute(f"INSERT INTO notes SELECT 600 + i, {LONG} FROM range(100) AS r(i)")
        policy = "PRIVACY UNIT who MAX ROWS 30, BUDGET (epsilon = 1000000), DOMAIN note IN ('short', 'x') WITH OTHER"
        dp(con, f"CREATE PRIVACY POLICY ON notes ({policy})")
        conditions = ("note > 'x'", "note < 'xyyz' AND note > 'short'", "note IS NOT NULL", "length(note) > 5")
        plain = [total(con, "notes", f"WHERE {condition}") for condition in conditions]
        assert "is prepared" in dp(con, "ALTER PRIVACY POLICY ON notes PREPARE")
        for condition, before in zip(conditions, plain, strict=True):
            assert abs(total(con, "notes", f"WHERE {condition}") - before) < 20


def test_units_that_are_long_texts_stay_apart(tmp_path: Path) -> None:
    """Two units that begin alike for 65,536 characters are not one unit, which would have rows of each other's."""
    with dpduck.connect(tmp_path / "long.duckdb") as con:
        con.execute(f"CREATE TABLE t AS SELECT {LONG} || i % 300 AS who, 1 AS x FROM range(600) AS r(i)")
        con.execute("INSERT INTO t SELECT 'u' || i, 1 FROM range(100) AS r(i)")
        dp(con, "CREATE PRIVACY POLICY ON t (PRIVACY UNIT who MAX ROWS 2, BUDGET (epsilon = 1000000))")
        dp(con, "ALTER PRIVACY POLICY ON t PREPARE")
        assert abs(total(con, "t") - 100) < 10


def test_what_others_do_to_a_table(shop: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A table that was dropped locks nothing: its siblings are prepared without it, and it can be unprepared."""
    dp(shop, "ALTER PRIVACY POLICY ON lines, orders PREPARE")
    shop.execute("DROP TABLE lines")
    assert "orders is prepared" in dp(shop, "ALTER PRIVACY POLICY ON orders NEW EPOCH")
    assert abs(total(shop, "orders") - 1000) < 10
    assert "is not prepared" in dp(shop, "ALTER PRIVACY POLICY ON lines UNPREPARE")
    assert len(twin_files(tmp_path)) == 1


def test_a_change_that_was_undone(shop: duckdb.DuckDBPyConnection) -> None:
    """What PREPARE is asked for, it does: a type that changed and changed back, and a key that came later."""
    dp(shop, "ALTER PRIVACY POLICY ON lines, orders PREPARE")
    shop.execute("ALTER TABLE lines ALTER id TYPE VARCHAR")
    dp(shop, "ALTER PRIVACY POLICY ON orders SET EXPECT ROWS 5")
    shop.execute("ALTER TABLE lines ALTER id TYPE BIGINT")
    dp(shop, "ALTER PRIVACY POLICY ON lines PREPARE")
    assert abs(total(shop, "lines") - 1000) < 10
    shop.execute("ALTER TABLE lines ADD PRIMARY KEY (place)")
    dp(shop, "ALTER PRIVACY POLICY ON lines PREPARE")
    assert abs(total(shop, "lines", SHARED[1]) - 1000) < 10


def test_a_policy_that_was_dropped_leaves_nothing(clinic: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Not even where the process ended in between: a new policy is of the table itself."""
    dp(clinic, PREPARE)
    clinic.execute("INSERT INTO visits SELECT 0, 5000 + range, 5 FROM range(500)")
    clinic.close()
    (store,) = tmp_path.glob("*_private.duckdb")
    with duckdb.connect(str(store)) as con:
        con.execute("DELETE FROM dpduck.policies WHERE table_name LIKE '%visits%'")
    with dpduck.connect(tmp_path / "clinic.duckdb") as con:
        assert twin_files(tmp_path) == []
        dp(con, POLICY.format(table="visits"))
        assert abs(total(con) - 1500) < 10


def test_a_policy_is_changed_where_another_table_is_out_of_reach(tmp_path: Path) -> None:
    """A prepared table of a database that is not attached: others are changed, and asked about, as ever."""
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
        assert len(twin_files(tmp_path)) == 1


def test_a_file_that_cannot_be_deleted(clinic: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is left for later: what was asked for is done."""
    dp(clinic, PREPARE)

    def refuse(self: TwinFiles, nonce: str) -> None:
        raise PermissionError

    monkeypatch.setattr(TwinFiles, "remove", refuse)
    assert "epoch 1)" in dp(clinic, "ALTER PRIVACY POLICY ON visits NEW EPOCH")
    assert "is not prepared" in dp(clinic, "ALTER PRIVACY POLICY ON visits UNPREPARE")
    assert clinic.execute("SELECT count(prepared_at) FROM dp_policies()").fetchall() == [(0,)]


def test_another_stores_file_is_refused(clinic: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A file of the same table under another key, put into the place of the store's own."""
    dp(clinic, PREPARE)
    (path,) = twin_files(tmp_path)
    clinic.close()
    with duckdb.connect(str(path)) as twin:
        twin.execute("UPDATE header SET mac = repeat('0', 64)")
        twin.execute("CHECKPOINT")
    with dpduck.connect(tmp_path / "clinic.duckdb") as con, pytest.raises(duckdb.Error, match="prepared table"):
        total(con)


def test_columns_that_cannot_be_prepared(clinic: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Lists, names of dpduck's own and collations are refused, and nothing is left behind."""
    for change, what in (
        ("ADD COLUMN many INTEGER[]", "many is INTEGER"),
        ("ADD COLUMN span INTERVAL", "span is INTERVAL"),
        ("ADD COLUMN dpduck_x INTEGER", "dpduck's own"),
    ):
        clinic.execute(f"ALTER TABLE visits {change}")
        with pytest.raises(duckdb.Error, match=what):
            dp(clinic, PREPARE)
        clinic.execute(f"ALTER TABLE visits DROP {change.split()[2]}")
    clinic.execute("CREATE TABLE spelt (patient INTEGER, name VARCHAR COLLATE NOCASE)")
    dp(clinic, "CREATE PRIVACY POLICY ON spelt (PRIVACY UNIT patient MAX ROWS 1, BUDGET (epsilon = 1))")
    with pytest.raises(duckdb.Error, match="COLLATION"):
        dp(clinic, "ALTER PRIVACY POLICY ON spelt PREPARE")
    with pytest.raises(duckdb.Error, match="has no privacy policy"):
        clinic.execute("CREATE TABLE bare AS SELECT 1 AS x")
        dp(clinic, "ALTER PRIVACY POLICY ON bare PREPARE")
    assert twin_files(tmp_path) == []


def test_where_nothing_can_be_written(clinic: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """No right to write beside the store: one line, and the table stays as it was."""
    if os.geteuid() == 0:
        blocked = tmp_path / "clinic_prepared_x"
        blocked.touch()
    else:
        tmp_path.chmod(0o500)
        with pytest.raises(duckdb.Error, match="cannot be prepared"):
            dp(clinic, PREPARE)
        tmp_path.chmod(0o700)
    assert abs(total(clinic) - 1000) < 10


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


def test_a_kill_at_any_step_of_preparing(tmp_path: Path) -> None:
    """What was prepared is used or refused, never half of it; no file is left that nobody uses."""
    found = account(Path(harness.__file__), tmp_path)
    assert set(found) == {*harness.STEPS, "answered"}
