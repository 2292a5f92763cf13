"""Statements that tried to smuggle SQL through atoms of the parser, and what reaches other callers."""

import duckdb
import pytest

import dpduck
from dpduck.database.functions import answer, database_of
from dpduck.store.cursors import Caller

COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) sex, count(*) AS n FROM visits GROUP BY sex"
POLICY = "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 3), DOMAIN sex IN ('F', 'M'))"
INVISIBLE = ("\u200b", "\u2060", "\ufeff", "\u00a0", "\u2028", "\x01", "\x0b", "\x7f")
ALICE, BOB = Caller("alice", owner=False), Caller("bob", owner=False)


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    con = dpduck.connect()
    con.execute(
        "CREATE TABLE visits AS SELECT ['F', 'M'][1 + range % 2] AS sex, 'secret' || range AS diag FROM range(50)"
    )
    con.execute("FROM dp($1)", [POLICY]).fetchall()
    con.execute("FROM dp($1)", [COUNT]).fetchall()  # the price is paid: whatever stands around it is free
    return con


def ask(con: duckdb.DuckDBPyConnection, text: str, caller: Caller = ALICE) -> str:
    """The SQL that a principal's statement becomes, or its one-line refusal."""
    database = database_of(con)
    assert database is not None
    return answer(database, caller, "run", text)


ATTACKS = [
    *(f"SELECT diag AS p{z}FROM{z}visits{z}UNION{z}ALL{z}SELECT{z}n FROM ({COUNT})" for z in INVISIBLE),
    f"SELECT extract(\"day FROM date '2020-01-01'), diag FROM visits --\" FROM sex) FROM ({COUNT})",
    f'SELECT CAST(1 AS main."hugeint) AS x, diag FROM visits --") FROM ({COUNT})',
    f'SELECT CAST(1 AS main."""BIGINT""") FROM ({COUNT})',
    f'SELECT TRY_CAST(1 AS main."hugeint) AS x, diag FROM visits --") FROM ({COUNT})',
    f'SELECT 1::main."hugeint AS x, diag FROM visits --" FROM ({COUNT})',
    f"SELECT CAST(1 AS main.\"hugeint) AS x, content FROM read_text('/etc/hostname') --\") FROM ({COUNT})",
    f"SELECT extract(\"day FROM date '2020-01-01'), 1; DROP TABLE visits --\" FROM sex) FROM ({COUNT})",
    f'SELECT CAST(1 AS DECIMAL("10)) AS x, diag FROM visits --")) FROM ({COUNT})',
    f"SELECT date_trunc(week(\"monday), diag FROM visits --\"), DATE '2020-01-01') FROM ({COUNT})",
    f"SELECT last_day(DATE '2020-01-01', \"month), diag FROM visits --\") FROM ({COUNT})",
    f"SELECT sex COLLATE 'nocase, diag FROM visits --' FROM ({COUNT})",
    f"SELECT 1 OPERATOR(\"+ 1, diag FROM visits --\") 1 FROM ({COUNT})",
    COUNT.replace(
        "sex, count(*)",
        "extract(\"day FROM date '2020-01-01'), (SELECT string_agg(diag) FROM visits) --\" FROM sex), count(*)",
    ),
    "CREATE PRIVATE VIEW leak OPTIONS (epsilon = 0.01) AS SELECT CAST(count(*) AS main.\"hugeint) AS n, diag "
    'FROM (SELECT 1 AS answer_1) AS released, visits --") AS n FROM visits GROUP BY sex',
]  # fmt: skip


@pytest.mark.parametrize("text", ATTACKS)
def test_sql_around_a_paid_answer_reads_nothing_else(con: duckdb.DuckDBPyConnection, text: str) -> None:
    """An atom that DuckDB would read as SQL is refused, also where the answer itself is paid for."""
    sql = ask(con, text)
    assert sql.startswith("FROM query(error("), sql
    with pytest.raises(duckdb.Error):
        con.execute(sql).fetchall()
    assert con.execute("SELECT count(*) FROM visits").fetchone() == (50,)
    assert len(con.execute("FROM dp_ledger()").fetchall()) == 2


@pytest.mark.parametrize("cast", ['DECIMAL("10,2)) > -5) AND (CAST(DIAG AS INTEGER) > 0) AND (CAST(1 AS DECIMAL(10")'])
def test_a_condition_cannot_leave_its_try(con: duckdb.DuckDBPyConnection, cast: str) -> None:
    """A parameter of a type that closes the guard around a condition would make failures an oracle."""
    text = COUNT.replace("GROUP BY", f"WHERE CAST(diag AS {cast}) > 0 GROUP BY")
    assert ask(con, text).startswith("FROM query(error(")
    assert len(con.execute("FROM dp_ledger()").fetchall()) == 2


def test_sql_around_cached_answers_binds_in_the_sandbox(con: duckdb.DuckDBPyConnection) -> None:
    """Even if the parse were fooled, SQL around an answer binds where no private table is, cached or not."""
    sql = ask(con, f"SELECT sum(n) AS total FROM ({COUNT})")
    assert not sql.startswith("FROM query(error(")
    refused = ask(con, f"SELECT sum(n) + total AS t FROM ({COUNT})")
    assert "DuckDB does not accept this" in refused or "no column" in refused


def test_a_price_without_drawable_noise_is_refused_before_the_charge() -> None:
    """A failure that public facts foretell costs nothing."""
    con = dpduck.connect()
    con.execute("CREATE TABLE visits AS SELECT range AS patient, 'F' AS sex FROM range(9)")
    unit = POLICY.replace("PRIVACY UNIT ROW", "PRIVACY UNIT patient MAX ROWS 100000")
    con.execute("FROM dp($1)", [unit]).fetchall()
    with pytest.raises(duckdb.Error, match="would not fit 64-bit numbers"):
        con.execute("FROM dp($1)", [COUNT.replace("0.01", "1e-9")]).fetchall()
    assert con.execute("SELECT spent FROM dp_budget()").fetchone() == (0.0,)


def test_what_others_asked_is_not_listed(con: duckdb.DuckDBPyConnection) -> None:
    """A principal sees the statements of their own releases only. Views of others by name and price."""
    database = database_of(con)
    assert database is not None
    view = "CREATE PRIVATE VIEW mine OPTIONS (epsilon = 0.5) AS SELECT count(*) AS n FROM visits WHERE diag = 'secret7'"
    con.execute(ask(con, view, ALICE)).fetchall()
    seen = con.execute(database.list_releases(BOB)).fetchall()
    assert [(row[0], row[1]) for row in seen] == [("mine", None)]
    assert len(con.execute(database.list_releases(ALICE)).fetchall()) == 2


@pytest.mark.parametrize("name", ["dpduck_releases", "release_1", "../../x", "a'b", "x.y", "\u212a", "a b", "1a"])
def test_names_of_views_are_plain(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """A view's name is a word: it names a table, a file, and nothing of dpduck's own."""
    said = ask(con, f'CREATE PRIVATE VIEW "{name}" OPTIONS (epsilon = 0.1) AS SELECT count(*) FROM visits')
    own = name.startswith(("dpduck_", "release_"))
    assert ("is reserved" if own else "cannot be the name of a view") in said
