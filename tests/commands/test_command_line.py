"""The command line."""

import csv
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands import listening, printing
from dpduck.commands.command_line import main
from dpduck.values.errors import StoreError
from tests.support.commands import rows, run

COUNT = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) sex, count(*) AS n FROM visits GROUP BY sex ORDER BY sex"
)
POLICY = "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN ('F', 'M'))"


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "clinic.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE visits AS SELECT ['F', 'M'][1 + range % 2] AS sex FROM range(1000)")
    return path


def test_a_policy_a_release_and_the_budget(clinic: Path) -> None:
    """dpduck sql DB ".." takes every statement. Budget, ledger and releases list what happened."""
    assert run("sql", clinic, POLICY).exit_code == 0
    answer = rows("sql", clinic, COUNT)
    assert [row["sex"] for row in answer] == ["F", "M"]
    assert rows("sql", clinic, COUNT) == answer, "the same statement is the same release, across processes too"
    (budget,) = rows("budget", clinic)
    assert (budget["spent"], budget["remaining"]) == (0.5, 0.5)
    assert [entry["epsilon"] for entry in rows("ledger", clinic)] == [0.0, 0.5]
    assert {"rows"} <= {row["finding"] for row in rows("check", clinic, "visits")}
    (release,) = rows("releases", clinic)
    assert release["statement"] == COUNT


def test_an_answer_without_rows_says_which_threshold_there_was(clinic: Path) -> None:
    """Below the empty table stand the threshold and what would show smaller groups, on standard error."""
    policy = POLICY.replace("(epsilon = 1)", "(epsilon = 1, delta = 1e-6, delta_keys = 1e-7)")
    assert run("sql", clinic, policy).exit_code == 0
    select = "GAUSSIAN_THRESHOLD, min_privacy_units_per_group = 5000) CAST(sex AS VARCHAR) || 'x' AS s, count(*) AS n"
    options = "epsilon = 0.5, delta = 1e-8, group_selection_strategy"
    text = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options} = {select} FROM visits GROUP BY s"
    result = run("sql", clinic, text)
    assert result.exit_code == 0, result.output
    said = " ".join(result.stderr.split())
    assert "no group passed the threshold: " in said
    assert "a larger epsilon or delta, or a smaller max_groups_contributed shows smaller groups" in said


def test_explain_spends_nothing(clinic: Path) -> None:
    """dpduck explain prints the candidates, the chosen one first, and for people the errors, in 80 columns."""
    run("sql", clinic, POLICY)
    shown = run("explain", clinic, COUNT).stdout
    assert max(map(len, shown.splitlines())) <= 80 and "count(*)" in shown
    beginnings = ("strategy: I", "cost: 50 % of your budget (epsilon = 0.5)", "note: ")
    assert all(any(line.startswith(words) for line in shown.splitlines()) for words in beginnings)
    assert "total_variance" in run("explain", clinic, COUNT, "--all").stdout
    candidates = rows("explain", clinic, COUNT)
    assert [candidate["chosen"] for candidate in candidates][:2] == [True, False]
    assert rows("budget", clinic)[0]["spent"] == 0


def test_boxes_fit_a_terminal(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 80 columns no answer, no price and nothing of a budget is left out. CSV has every digit and every column."""
    monkeypatch.setattr(printing, "width", lambda: 80)
    with duckdb.connect(str(clinic)) as con:
        con.execute("ALTER TABLE visits ADD COLUMN age INTEGER DEFAULT 30")
    clamped = POLICY.replace("DOMAIN sex", "CLAMP age BETWEEN 0 AND 100, DOMAIN sex")
    run("sql", clinic, f"-- written in an editor\n{clamped}")
    view = "CREATE PRIVATE VIEW by_sex OPTIONS (epsilon = 0.5) AS "
    run("sql", clinic, f"{view} SELECT sex, count(*) AS visits, avg(age) AS average_age FROM visits GROUP BY sex")
    for command, needed in (
        (("show", clinic, "by_sex"), ("visits", "average_age", "visits_stderr")),
        (("budget", clinic), ("declared", "epsilon = 1 ", "50 %", "epsilon_left", " 0.5 ")),
        (("ledger", clinic), ("charged_at", "of_your_budget", "CREATE PRIVACY POLICY", "50 % (epsilon = 0.5)")),
        (("releases", clinic), ("by_sex", "epsilon", "statement: CREATE PRIVATE VIEW")),
        (("policies", clinic), ("privacy_unit: ", "    BUDGET (epsilon = 1),")),
        (("explain", clinic, COUNT), ("stderr", "time: under a second")),
    ):
        text = run(*command).stdout
        assert max(map(len, text.splitlines())) <= 80 and "…" not in text, text
        assert all(word in text for word in needed), text
        assert "period" not in text and "in force" not in text
    assert re.search(r"│ F +│ +-?\d+\.\d{1,3} │", run("show", clinic, "by_sex").stdout), "as exact as is read"
    assert {"period", "policy", "share"} <= set(rows("budget", clinic)[0])
    assert rows("ledger", clinic)[0]["statement"] == f"-- written in an editor\n{clamped}"


def test_wide_rows_one_below_the_other(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that do not fit beside each other stand below each other. For many rows the columns are named."""
    monkeypatch.setattr(printing, "width", lambda: 80)
    run("sql", clinic, POLICY)
    ends = "dp_interval_low(n) AS lower_end_of_the_interval, dp_interval_high(n) AS upper_end_of_the_interval"
    wide = COUNT.replace("AS n", f"AS n, dp_stderr(n) AS standard_error_of_the_count, {ends}")
    text = run("sql", clinic, wide).stdout
    rests = r"( *\w+: -?\d+\.\d+\n){3}"
    assert re.fullmatch(rf"( +sex: [FM]\n +n: -?\d+\n{rests}\n?){{2}}", text), text
    monkeypatch.setattr(printing, "MOST_RECORDS", 1)
    text = run("sql", clinic, wide).stdout
    assert "│ … │" in text and "--format csv has all columns: sex, n, standard_error_of_the_count, lower" in text


def test_check_says_what_to_do_where_there_is_something(clinic: Path) -> None:
    """Findings one a line, advice below those that are not 0, in 80 columns. CSV is dp_check as it is."""
    run("sql", clinic, POLICY.replace("('F', 'M')", "('F')"))
    text = run("check", clinic, "visits").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "        500  50.0 % rows outside the domain of sex\n" in text
    assert f"{' ' * 20}WITH OTHER or more values would keep them\n" in text
    run("sql", clinic, POLICY.replace("CREATE", "CREATE OR REPLACE"))
    assert "WITH OTHER" not in run("check", clinic, "visits").stdout
    assert rows("check", clinic, "visits")[1]["advice"] == "WITH OTHER or more values would keep them"


def test_check_of_a_statement_shows_what_bounds_leave_out(clinic: Path) -> None:
    """Facts of units one a line, then a box of bounds with the least error marked. JSON is dp_check as it is."""
    people = POLICY.replace("PRIVACY UNIT ROW, BUDGET (epsilon = 1)", "PRIVACY UNIT who MAX ROWS 50, BUDGET (rho = 9)")
    with duckdb.connect(str(clinic)) as con:
        con.execute("ALTER TABLE visits ADD COLUMN who INTEGER")
        con.execute("UPDATE visits SET who = rowid % 40")
    run("sql", clinic, people)
    asked = COUNT.replace("epsilon = 0.5", "rho = 0.5")
    found = run("check", clinic, "visits", asked)
    assert found.exit_code == 0, found.output
    assert max(map(len, found.stdout.splitlines())) <= 80
    assert "      1,000         rows of this statement\n" in found.stdout
    assert " count(*)  │ max_norm_contributed │" in found.stdout and found.stdout.count("│ least") == 2
    listed = rows("check", clinic, "visits", asked)
    assert [row["percent"] for row in listed if row["bound"] == 5][:1] == [80]
    assert "dp_check(table_name" not in run("check", clinic, "visits", "-- a remark\n" + asked).output
    refused = run("check", clinic, "visits", "SELECT 1")
    assert refused.exit_code == 1 and refused.stderr.startswith(
        "Error: line 1, column 1: the statement is not annotated;"
    )
    assert rows("ledger", clinic)[1:] == []


@pytest.mark.parametrize("shape", ["box", "csv"])
def test_other_shapes(clinic: Path, shape: str) -> None:
    """Tables for people, CSV for programs."""
    run("sql", clinic, POLICY)
    result = run("budget", clinic, "--format", shape)
    assert "remaining" in result.stdout
    assert ("│" in result.stdout) == (shape == "box")
    listed = list(csv.reader(StringIO(run("ledger", clinic, "--format", "csv").stdout)))
    assert len({len(row) for row in listed}) == 1, "a text with commas is one column"
    assert any("," in cell for cell in listed[1])


def test_a_refusal_is_one_line_and_status_one(clinic: Path) -> None:
    """Bad input gets one clear line."""
    accepted = "SELECT WITH DIFFERENTIAL_PRIVACY .. FROM a table of dp_policies()"
    result = run("sql", clinic, "SELECT count(*) FROM visits")
    assert (result.exit_code, result.stderr) == (
        1, f"Error: there is no private view 'visits'; accepted: {accepted}\n"
    )  # fmt: skip
    run("sql", clinic, POLICY)
    result = run("sql", clinic, "SELECT sex, count(*) FROM visits GROUP BY sex")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1 and "accepted: " in result.stderr


def test_a_call_of_dp_is_not_a_statement(clinic: Path) -> None:
    """A shell changes FROM dp($$ .. $$) between double quotes. The message tells this from other mistakes."""
    run("sql", clinic, POLICY)
    result = run("sql", clinic, f"FROM dp(4711 {COUNT} 4711)")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: line 1, column 6: dp( is followed by a number: in double quotes a shell puts its process id in the "
        "place of $$; accepted: the statement alone, without FROM dp(..) around it; or between single quotes\n"
    )
    assert "the statement alone" in run("explain", clinic, f"FROM dp_explain($$ {COUNT} $$)").stderr
    assert rows("budget", clinic)[0]["spent"] == 0


@pytest.mark.slow
def test_functions_are_read_as_in_sql(clinic: Path) -> None:
    """FROM dp_columns(..), DESCRIBE and SHOW TABLES, with conditions: free. A table of rows beside it is refused."""
    run("sql", clinic, POLICY)
    columns = rows("sql", clinic, "SELECT column_name, domain FROM dp_columns('visits') WHERE domain IS NOT NULL")
    assert columns == [{"column_name": "sex", "domain": "IN ('F', 'M')"}]
    (described,) = rows("sql", clinic, "DESCRIBE visits")
    assert (described["column_name"], described["column_type"]) == ("sex", "VARCHAR")
    assert rows("sql", clinic, "show tables;") == [{"name": "visits", "kind": "private table"}]
    assert rows("sql", clinic, "FROM dp_budget()") == rows("budget", clinic)
    assert len(rows("sql", clinic, "FROM dp_twin('visits', number_of_rows := 7)")) == 7
    assert rows("sql", clinic, "FROM dp_budget()")[0]["spent"] == 0
    assert len(rows("sql", clinic, f"FROM dp('{COUNT}')".replace("''", "'"))) == 2
    for asked in ("FROM dp_budget(), visits", "FROM visits", "SELECT (SELECT count(*) FROM visits) FROM dp_budget()"):
        result = run("sql", clinic, asked)
        assert result.exit_code == 1 and "accepted: " in result.stderr and "1000" not in result.output, asked


@pytest.mark.slow
def test_a_stream_is_made_and_read(clinic: Path) -> None:
    """As docs/monthly.md types it: errors and price beforehand, a refresh by cron, and the published rows."""
    with duckdb.connect(str(clinic)) as con:
        con.execute(
            "CREATE TABLE stays AS SELECT i AS id, DATE '2024-01-01' + (i % 90)::INTEGER AS came FROM range(900) t(i)"
        )
    run("sql", clinic, "CREATE PRIVACY POLICY ON stays (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 1), DOMAIN came "
        "RANGE 2024-01-01 TO 2024-04-01 STEP MONTH)")  # fmt: skip
    stream = (
        "CREATE PRIVATE STREAM by_month OPTIONS (epsilon = 1) AS SELECT came, count(*) AS n FROM stays GROUP BY ALL"
    )
    explained = run("explain", clinic, stream).output
    assert "cost: 100 % of your budget (epsilon = 1)\n" in explained
    assert "over the whole horizon" in " ".join(explained.split())
    for statement in (stream, "REFRESH PRIVATE STREAM by_month UNTIL '2024-03-01'"):
        assert run("sql", clinic, statement).exit_code == 0
    read = rows("sql", clinic, "SELECT came, n_stderr FROM private.by_month ORDER BY came")
    assert [row["came"] for row in read] == ["2024-01-01", "2024-02-01"]
    pivoted = rows("sql", clinic, "PIVOT private.by_month ON came USING first(n_stderr)")
    assert pivoted
    for other in ("SELECT came FROM private.by_month, stays", "SELECT came FROM stays", "FROM read_csv('x')",
                  "FROM private.by_month; DELETE FROM stays", "FROM private.dpduck.ledger_entries",
                  "PIVOT stays ON came USING count(*)",
                  "FROM private.by_month, (PIVOT stays ON came USING count(*))",
                  "SELECT unnest((SELECT list(id) FROM stays)) FROM private.by_month",
                  "FROM private.by_month, LATERAL unnest((SELECT list(id) FROM stays)) t(x)",
                  "FROM private.by_month, (SUMMARIZE stays)", "FROM private.by_month, (DESCRIBE stays)",
                  "WITH x AS (SELECT * FROM (SUMMARIZE stays)) FROM x, private.by_month",
                  "WITH RECURSIVE stays AS (SELECT came FROM stays UNION SELECT came FROM private.by_month) FROM stays",
                  "COPY (FROM private.by_month) TO 'x.csv'"):  # fmt: skip
        assert run("sql", clinic, other).exit_code == 1, "nothing but private views is read so, in one statement"
    with duckdb.connect(str(clinic)) as con:
        assert con.execute("SELECT count(*) FROM stays").fetchall() == [(900,)]


def test_show_names_what_there_is(clinic: Path) -> None:
    """dpduck show of an unknown view is one line with the names of the views."""
    run("sql", clinic, POLICY)
    unknown = run("show", clinic, "by_six")
    assert (unknown.exit_code, unknown.stderr) == (
        1, "Error: there is no private view 'by_six'; accepted: a name of dpduck releases: none yet\n"
    )  # fmt: skip
    view = "CREATE PRIVATE VIEW by_sex OPTIONS (epsilon = 0.5) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
    assert run("sql", clinic, view).exit_code == 0
    assert len(rows("show", clinic, "BY_SEX")) == 2
    assert run("show", clinic, "by_six").stderr.endswith("a name of dpduck releases: by_sex\n")


def test_verify_counts_entries_and_notices_tampering(clinic: Path) -> None:
    """dpduck verify reads the whole chain."""
    run("sql", clinic, POLICY)
    assert run("verify", clinic).stdout == "the ledger is whole: 1 entries\n"
    with duckdb.connect(str(clinic.with_name("clinic_private.duckdb"))) as store:
        (table,) = store.execute("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'ledger%'").fetchall()[0]
        store.execute(f"DELETE FROM dpduck.{table}")
    result = run("verify", clinic)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_an_older_copy_is_refused_until_the_owner_adopts_it(clinic: Path) -> None:
    """A restored store is noticed. --adopt keeps the charges since."""
    store = clinic.with_name("clinic_private.duckdb")
    run("sql", clinic, POLICY)
    older = store.read_bytes()
    run("sql", clinic, COUNT)
    store.write_bytes(older)
    refused = run("budget", clinic)
    assert refused.exit_code == 1
    assert len(refused.stderr.splitlines()) == 1
    assert run("verify", clinic).exit_code == 1
    assert run("verify", clinic, "--adopt").exit_code == 0
    assert rows("budget", clinic)[0]["spent"] == 0.5


def test_publish_writes_views_only(clinic: Path, tmp_path: Path) -> None:
    """Private views with their comments. No policy, ledger or plain answer."""
    run("sql", clinic, POLICY)
    run("sql", clinic, COUNT)
    view = "CREATE PRIVATE VIEW by_sex OPTIONS (epsilon = 0.25) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
    assert run("sql", clinic, view).exit_code == 0
    assert "by_sex" in rows("releases", clinic)[-1].values()
    shown = rows("show", clinic, "by_sex")
    target = tmp_path / "published.duckdb"
    for _ in range(2):
        assert run("publish", clinic.with_name("clinic_private.duckdb"), "--to", target).exit_code == 0
        assert run("publish", clinic, "--to", target).exit_code == 0, "the database's path stands for its store"
    with duckdb.connect(str(target), read_only=True) as published:
        tables = published.execute("SELECT table_name, comment FROM duckdb_tables() ORDER BY table_name").fetchall()
        assert [name for name, _ in tables] == ["by_sex", "dpduck_releases"]
        assert tables[0][1].startswith("differentially private, epsilon = 0.25")
        assert published.execute("SELECT sex, n FROM by_sex").fetchall() == [(row["sex"], row["n"]) for row in shown]


def test_publish_writes_parquet(clinic: Path, tmp_path: Path) -> None:
    """A directory of Parquet files. A directory of somebody else's is left alone."""
    run("sql", clinic, POLICY)
    view = "CREATE PRIVATE VIEW by_sex OPTIONS (epsilon = 0.25) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
    run("sql", clinic, view)
    store = clinic.with_name("clinic_private.duckdb")
    for _ in range(2):
        assert run("publish", store, "--to", tmp_path / "out").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["by_sex.parquet", "dpduck_releases.parquet"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep me")
    assert run("publish", store, "--to", tmp_path / "mine").exit_code == 1
    assert (tmp_path / "mine" / "letter.txt").read_text() == "keep me"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The whole demonstration, once, as a process of its own."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "dpduck.commands.command_line", "demo", "--directory", str(folder / "clinic here")],
        capture_output=True,
        text=True,
        check=False,
        env={"DPDUCK_STATE_DIR": str(folder / "state"), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert "making" not in done.stderr, "no progress in a pipe"
    yield folder / "clinic here", done.stdout


@pytest.mark.slow
def test_demo_shows_exact_beside_private(demo: tuple[Path, str]) -> None:
    """1,000,000 visits, exact beside private with intervals, the budget left."""
    directory, output = demo
    assert "exact beside private" in output
    assert "remaining" in output
    with duckdb.connect(str(directory / "clinic.duckdb"), read_only=True) as clinic:
        assert clinic.execute("SELECT count(*) FROM visits").fetchone() == (1_000_000,)


@pytest.mark.slow
def test_demo_leaves_a_store_for_any_shell(demo: tuple[Path, str]) -> None:
    """A plain DuckDB opens the store and reads the private view."""
    directory, _ = demo
    with duckdb.connect(str(directory / "clinic_private.duckdb"), read_only=True) as store:
        assert store.execute("SELECT count(*) FROM ward_cube").fetchone() == (27,)


def test_demo_leaves_other_directories_alone(tmp_path: Path) -> None:
    """Nothing of the user's is lost."""
    (tmp_path / "clinic.duckdb").write_text("mine")
    result = run("demo", "--directory", tmp_path)
    assert result.exit_code == 1
    assert (tmp_path / "clinic.duckdb").read_text() == "mine"


def test_a_principal_is_for_tables_that_have_a_policy(clinic: Path) -> None:
    """A name that is no private table gives no token. The message lists the private tables."""
    run("sql", clinic, POLICY)
    refused = run("principal", "add", clinic, "bob", "--tables", "visit")
    assert refused.exit_code == 1
    assert "there is no policy on 'visit'; accepted: names with commas between them, of visits" in refused.output
    assert run("principal", "list", clinic).output == ""
    for name, table in (("bob", "visits"), ("carol", "Main.Visits,visits")):
        assert run("principal", "add", clinic, name, "--tables", table).output.startswith("dpduck_")
    listed = run("principal", "list", clinic)
    assert listed.exit_code == 0 and "│ bob" in listed.output
    first, _ = rows("principal", "list", clinic)
    given = {"name": "bob", "tables": ["visits"]}
    assert first == dict.fromkeys(("share", "until", "project", "a_day", "identity")) | given


def test_told_to_end_while_it_starts(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM to a server that is starting, and to its vault, ends it without a word and with the usual status."""
    run("sql", clinic, POLICY)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}

    def told(*_arguments: object, **_more: object) -> None:
        assert signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]
        signal.raise_signal(signal.SIGTERM)
        raise StoreError("the vault's process could not start")

    monkeypatch.setattr(listening, "open_service", told)
    try:
        result = run("serve", clinic, "--listen", "none", "--flight-sql")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (result.exit_code, result.output) == (0, "")


def test_a_database_that_another_process_has_open(clinic: Path) -> None:
    """One line says so, without paths and processes. A store that is to be published has the same line."""
    run("sql", clinic, POLICY)
    store = clinic.with_name("clinic_private.duckdb")
    script = (
        f"import duckdb; c = duckdb.connect({str(clinic)!r}); c.execute(\"ATTACH '{store}' AS store\"); "
        "print('open', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == b"open\n"
        refused = run("budget", clinic)
        unpublished = run("publish", store, "--to", clinic.with_name("published.duckdb"))
        with pytest.raises(StoreError, match="the database is in use by another process, perhaps dpduck serve"):
            dpduck.connect(clinic)
        other.communicate(b"\n")
    assert refused.exit_code == 1
    assert refused.output == (
        "Error: the database is in use by another process, perhaps dpduck serve or dpduck shell; accepted: "
        "the same when that has ended\n"
    )
    assert unpublished.exit_code == 1
    assert unpublished.output == refused.output.replace("the database", "the store")


def test_a_statement_from_standard_input(clinic: Path) -> None:
    """dpduck sql DB - reads the statement. The ledger's box shows its beginning on one line."""
    policy = POLICY.replace("(PRIVACY", "(\n\n  PRIVACY").replace(", ", ",\n   ")
    result = CliRunner().invoke(main, ["sql", str(clinic), "-"], input=policy)
    assert result.exit_code == 0 and "is in force" in result.output
    listed = run("ledger", clinic)
    assert listed.exit_code == 0 and len(listed.output.splitlines()) < 10
    assert rows("ledger", clinic)[0]["statement"] == policy
