"""The owner's queries and reports, alone and while the store is served: one wording, and never a private row."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from dpduck.commands.owner_session import OwnerSession, rows_of
from dpduck.server.locked import ReleasedTables, answer_place, is_named, missing_table
from dpduck.values.errors import DpduckError
from tests.server.doors import door_process
from tests.server.served import CANARY, make_clinic
from tests.server.statement_lists import FOLDER, statements
from tests.support.commands import rows, run

QUERIES = (
    "SELECT age, n FROM private.ages ORDER BY age LIMIT 3",
    "FROM ages ORDER BY age",
    "FROM private.main.ages ORDER BY age",
    "WITH old AS (FROM private.ages WHERE age > 50) SELECT sum(n) FROM old",
    "WITH RECURSIVE up AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM up WHERE i < 3) FROM up, ages WHERE age = 10 * i",
    "PIVOT (FROM private.ward_cube WHERE grouping_level = 'sex, ward') ON sex USING first(n) ORDER BY ward",
    "FROM (PIVOT private.ward_cube ON sex USING sum(n) GROUP BY ward) WHERE ward IS NOT NULL ORDER BY ward",
    "SUMMARIZE private.ages",
    "SUMMARIZE SELECT n FROM ages",
    "SELECT column_name, domain FROM dp_columns('visits') WHERE domain IS NOT NULL ORDER BY ALL",
    "SELECT r.name, r.rows FROM dp_releases() AS r, dp_budget() AS b WHERE r.kind = 'view' ORDER BY ALL",
    "SELECT a.age, c.domain FROM private.ages AS a JOIN dp_columns('visits') AS c ON c.cells = a.age",
    "SELECT dp_columns.column_name FROM dp_columns('visits') ORDER BY ALL",
    "SELECT 1 + 1 AS two",
    "VALUES (1, 'a')",
    "DESCRIBE visits",
    "show tables;",
    "SELECT count(*) FROM visits WHERE age BETWEEN 20 AND 39",
    "SELECT sex, count(*) FROM visits GROUP BY sex ORDER BY sex",
)
REFUSED = (
    "FROM secret", "FROM clinic.main.secret", "FROM main.visits", "SELECT patient FROM visits", "SUMMARIZE visits",
    "SUMMARIZE secret", "PIVOT visits ON sex USING count(*)", "FROM ages, visits", "FROM ages, (SUMMARIZE visits)",
    "SELECT unnest((SELECT list(ward) FROM visits)) FROM ages", "FROM dp_columns(), visits",
    "SELECT (SELECT max(word) FROM secret) FROM dp_budget()", "WITH x AS (FROM secret) FROM x, ages",
    "WITH RECURSIVE visits AS (SELECT ward FROM visits UNION SELECT 'x' FROM ages) FROM visits",
    "FROM read_csv('{file}')", "FROM '{file}'", "FROM read_text('{file}')", "FROM glob('{file}')",
    "SELECT * FROM query('FROM read_text(''{file}'')')", "FROM sniff_csv('{file}')", "FROM read_blob('{file}')",
    "FROM dp_columns((SELECT max(content) FROM read_text('{file}')))", "FROM parquet_schema('{file}')",
    "COPY private.ages TO '{file}.out'", "EXPORT DATABASE '{file}.out'", "ATTACH '{file}.out' AS x",
    "ATTACH '{database}' AS x; FROM x.secret", "FROM private.ages; DELETE FROM visits",
    "INSERT INTO visits FROM visits",
    "DELETE FROM private.ages", "DROP TABLE ages", "CREATE TABLE t AS FROM ages", "UPDATE private.ages SET n = 0",
    "SET enable_external_access = true", "RESET lock_configuration", "INSTALL httpfs", "LOAD httpfs", "CHECKPOINT",
    "PRAGMA database_size; FROM secret", "CALL pragma_version()", "EXPLAIN FROM secret", "USE memory",
    "FROM private.dpduck.ledger_entries", "FROM private.dpduck.releases", "FROM store.main.ages",
    "FROM query_table('secret')", "SELECT dpduck_call('run', 'DROP PRIVATE VIEW ages')", "FROM 'http://localhost:1/x.csv'",
    "BEGIN", "PREPARE p AS FROM ages", "EXECUTE p", "FROM duckdb_secrets() WHERE which_secret('a', 'b')",
)  # fmt: skip


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Witnesses of stores stay inside the tests."""
    directory = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(directory))
        yield directory


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory, state: Path) -> Path:
    """A clinic with two private views, and rows that must never be seen."""
    return make_clinic(tmp_path_factory.mktemp("clinic"))


def refusal(*words: object) -> str:
    """One line, with nothing of the data in it."""
    result = run(*words)
    assert result.exit_code == 1, words
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1, result.output
    assert CANARY not in result.output
    return result.stderr


def test_queries_say_the_same_alone_and_served(clinic: Path) -> None:
    """SELECT, FROM, WITH, PIVOT, SUMMARIZE, dp functions and known answers: equal rows, and nothing is charged."""
    before = rows("ledger", clinic)
    alone = [rows("sql", clinic, text) for text in QUERIES]
    assert all(alone)
    with door_process(clinic):
        assert [rows("sql", clinic, text) for text in QUERIES] == alone
        assert rows("ledger", clinic) == before
    assert rows("ledger", clinic) == before


@pytest.mark.slow
def test_nothing_else_is_read_or_written(clinic: Path, tmp_path: Path) -> None:
    """Private rows, files, the network and settings: refused in one line, alone and served, and nothing changes."""
    file = tmp_path / "files" / "words.csv"
    file.parent.mkdir()
    file.write_text(f"word\n{CANARY}\n", "utf-8")
    texts = [text.replace("{file}", str(file)).replace("{database}", str(clinic)) for text in REFUSED]
    before = rows("sql", clinic, "FROM ages"), rows("ledger", clinic)
    alone = [refusal("sql", clinic, text) for text in texts]
    with door_process(clinic):
        served = [refusal("sql", clinic, text) for text in texts]
    assert served == alone
    assert (rows("sql", clinic, "FROM ages"), rows("ledger", clinic)) == before
    assert sorted(path.name for path in file.parent.iterdir()) == ["words.csv"]
    with duckdb.connect(str(clinic), read_only=True) as con:
        assert con.execute("SELECT count(*) FROM secret").fetchall() == [(1,)]


def test_no_attack_of_a_client_reads_a_row(clinic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements that servers refuse: refused here, too, or answered without a private row, a file or a charge."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    written = (FOLDER / "attacks.sql").read_text("utf-8").split("\n# --- ")
    names = ("two statements", "listeners", "SQL hidden", "figures of the instance", "answers of", "files", "changes")
    there = {line for part in written if part.startswith(names) for line in part.splitlines()[1:]}
    listed = [text for text in statements("attacks.sql") if text in there and "PRIVACY POLICY" not in text]
    assert len(listed) > 150
    with OwnerSession(clinic, None) as session:
        before, rows_before = session.ask("dp_ledger", None).fetchall(), session.run("FROM ages").fetchall()
        for text in listed:
            try:
                said = repr(session.run(text).limit(50).fetchall())
            except (duckdb.Error, DpduckError, RecursionError, UnicodeError) as error:
                said = str(error)
            assert CANARY not in said, text
        assert session.ask("dp_ledger", None).fetchall() == before
        assert session.run("FROM ages").fetchall() == rows_before
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("text", [
    "ALTER TABLE visits ADD COLUMN day DATE", "CREATE TABLE t AS SELECT 1 AS x", "DROP TABLE visits",
    "INSERT INTO visits SELECT 1", "UPDATE visits SET age = 1;", "DELETE FROM visits", "DROP VIEW v; DROP TABLE t",
])  # fmt: skip
def test_a_change_of_a_table_is_for_duckdb(clinic: Path, text: str) -> None:
    """The refusal says where such a statement runs. Released tables are changed by dp statements alone."""
    before = clinic.read_bytes()
    with OwnerSession(clinic, None) as session:
        with pytest.raises(DpduckError, match=r"^this changes the table itself; accepted: in DuckDB, .*: duckdb clin"):
            session.run(text)
        with pytest.raises((DpduckError, duckdb.Error)) as caught:
            session.run("DROP TABLE private.ages")
    assert "in DuckDB" not in str(caught.value)
    assert clinic.read_bytes() == before


def test_a_missing_view_is_named(clinic: Path) -> None:
    """The refusal lists the tables, as the server's do. For a misspelt function of dp it lists the functions."""
    assert refusal("sql", clinic, "FROM private.wages_by_age") == (
        "Error: there is no private view 'wages_by_age'; accepted: ward_cube, ages, SELECT WITH DIFFERENTIAL_PRIVACY "
        ".. FROM a table of dp_policies()\n"
    )
    assert "accepted: ages" in refusal("sql", clinic, "FROM private.agees")
    assert "a query here reads no file" in refusal("sql", clinic, "FROM read_csv('x.csv')")
    assert "accepted: " in refusal("sql", clinic, "FROM dp_columns('x', 'y')")


def test_a_query_over_views_opens_no_private_table(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database with the rows stays closed, and the store is read without being written."""

    def opened(*_: object) -> None:
        raise AssertionError("the database was opened")

    monkeypatch.setattr("dpduck.commands.owner_session.connect", opened)
    assert rows("sql", clinic, "SELECT count(*) AS c FROM private.ages") == [{"c": 10}]


def test_a_question_beside_a_missing_table_is_not_charged(clinic: Path) -> None:
    """A query that charges and cannot be read is refused before its charge."""
    asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.25) ward, count(*) FROM visits GROUP BY ward"
    before = rows("ledger", clinic)
    assert "no private view 'visits'" in refusal("sql", clinic, f"FROM dp($q$ {asked} $q$), visits")
    assert rows("ledger", clinic) == before


def test_reports_and_policies_are_had_while_served(clinic: Path, tmp_path: Path) -> None:
    """policy show, certify, compare, report and audit: as when the store is free."""
    asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex"
    alone = run("policy", "show", clinic), run("certify", clinic, "--to", tmp_path / "alone")
    assert [result.exit_code for result in alone] == [0, 0]
    with door_process(clinic):
        served = run("policy", "show", clinic), run("certify", clinic, "--to", tmp_path / "served")
        audited = run("audit", clinic, asked, "--seconds", "0.1", "--format", "json")
        assert "accepted: " in refusal("compare", clinic, "nosuch") and "in use" not in refusal("compare", clinic, "x")
        drafted = run("policy", "draft", clinic, "visits")
        try:
            import vl_convert  # noqa: F401, PLC0415
        except ImportError:
            pass
        else:
            reported = run("report", clinic, "--to", tmp_path / "report.html")
            assert reported.exit_code == 0 and reported.output.startswith("2 private views in "), reported.output
    assert [result.output for result in served] == [
        result.output.replace("alone", "served") for result in alone
    ]  # the bundle's last link is the same
    assert drafted.exit_code == 0 and "PRIVACY UNIT patient MAX ROWS TODO" in drafted.output, drafted.output
    assert audited.exit_code == 0, audited.output
    found = [json.loads(line) for line in audited.stdout.splitlines()]
    assert found and all(not finding["broken"] for finding in found if "broken" in finding)


def test_the_session_goes_on_when_the_server_has_gone(clinic: Path) -> None:
    """One line, and the next statement opens the store."""
    with OwnerSession(clinic, None) as session:
        with door_process(clinic) as server:
            assert session.is_served() and len(session.run("FROM ages").fetchall()) == 10
            server.kill()
            server.wait(600)
            with pytest.raises(Exception, match="the server ended meanwhile; dp_ledger"):
                session.run("FROM dp_budget()")
        assert len(session.run("FROM ages").fetchall()) == 10 and not session.is_served()


def test_copies_follow_the_store(clinic: Path) -> None:
    """In a session that stays open, a dropped view is gone, and a view made anew has its new rows."""
    made = "CREATE PRIVATE VIEW mine OPTIONS (epsilon = 0.1) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
    with OwnerSession(clinic, None) as session:
        session.is_served()
        assert session.run(made).fetchall() == [("private.mine is ready",)]
        first = session.run("FROM mine ORDER BY sex").fetchall()
        session.run("DROP PRIVATE VIEW mine")
        with pytest.raises(Exception, match="there is no private view 'mine'"):
            session.run("FROM mine")
        session.run(made.replace("0.1", "0.2"))
        second = session.run("FROM mine ORDER BY sex").fetchall()
        assert len(first) == len(second) == 2 and first != second


def test_released_tables_are_all_there_is(clinic: Path) -> None:
    """The instance of a query has views of the tables that it names, and is locked."""
    tables = ReleasedTables(clinic.with_name("clinic_private.duckdb"), "FROM ages")
    listed = "SELECT view_name FROM duckdb_views() WHERE NOT internal"
    assert tables.run(listed).fetchall() == [("ages",)]
    stores = "SELECT readonly FROM duckdb_databases() WHERE path IS NOT NULL"
    assert tables.run(stores).fetchall() == [(True,)]
    for text in ("FROM read_text('/etc/hostname')", f"ATTACH '{os.devnull}' AS x", "SET threads = 1"):
        with pytest.raises(duckdb.Error):
            tables.run(text)
    tables.close()


@pytest.mark.parametrize(
    "value",
    ["170141183460469231731687303715884105727::HUGEINT", "1::UHUGEINT", "'a'::ENUM('a', 'b')", "'101'::BIT",
     "'x'::BLOB", "INTERVAL 1 MONTH", "TIMETZ '10:00:00+02:00'", "TIMESTAMP_NS '2020-01-01 00:00:00.123456789'",
     "'[1]'::JSON", "1.5::DECIMAL(38, 2)", "{'a': 1, 'b': [1, 2]}", "MAP {'a': 1}", "[1, 2]::INTEGER[2]",
     "union_value(a := 1)", "NULL"],
)  # fmt: skip
def test_values_of_all_types_travel(value: str) -> None:
    """An answer in the instance of a query has the values and the types that it had."""
    tables = ReleasedTables()
    with duckdb.connect() as con:
        given = con.sql(f"SELECT {value} AS c")
        tables.put_answer(0, rows_of(given))
        taken = tables.run(f"FROM {answer_place(0)}")
        assert (taken.fetchall(), taken.types) == (given.fetchall(), given.types)
    tables.close()


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [('a"b', 'FROM "A""b"', True), ("p_seed", "FROM dp_project('p', 'q')", True), ("ages", "FROM wards", False)],
)
def test_names_in_a_text(name: str, text: str, named: bool) -> None:
    """Quotes and capitals do not hide a name, and a projection has its seeds with it."""
    assert is_named(name, text) is named


def test_other_errors_name_no_missing_table() -> None:
    """Only DuckDB's words about a missing table lead to a known answer."""
    assert missing_table(duckdb.CatalogException("Scalar Function with name x does not exist")) is None
    assert missing_table(duckdb.BinderException("Table with name x does not exist")) is None
