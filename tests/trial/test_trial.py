"""Trials agree with real releases and with plain SQL, and leave nothing behind. They are the owner's alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

import dpduck
from dpduck.commands.trial import sentences
from dpduck.database import functions
from dpduck.language.statements.parse import parse_ask
from dpduck.language.text.names import answer_column
from dpduck.store.cursors import Caller
from dpduck.trial import labels as trial_labels
from dpduck.trial.labels import labels_of
from dpduck.trial.statement_trial import Trial
from dpduck.values.errors import PermissionRefusal, Refusal
from tests.support.clinics import Clinic
from tests.trial.trial_tables import TABLES, VISITS, TrialTable

ALICE, OWNER = Caller("alice", owner=False), Caller("owner", owner=True)
REAL, FAR = 200, 6.5
"""Real releases of a statement, and the largest distance in standard errors: the chance of more is below 1e-7 each."""


def clinic_of(open_clinic: Callable[..., Clinic], table: TrialTable) -> Clinic:
    clinic = open_clinic()
    for sql in table.setup:
        clinic.con.execute(sql)
    for policy in table.policy.split("; "):
        clinic.dp(policy)
    return clinic


def tried(clinic: Clinic, text: str, runs: int = 100) -> Trial:
    database = functions.database_of(clinic.con)
    assert database is not None
    (trial,) = database.trials.run(text, runs, [None], OWNER)
    return trial


def mean_within(shares: list[float], predicted: float, runs: int) -> bool:
    """Tells whether a predicted share over `runs` releases agrees with the shares of real releases.

    The spread is at least 0.3, that of an event of one release in ten: rarer events may be in no real release.
    """
    spread = max(stdev(shares), 0.3) * (1 / len(shares) + 1 / runs) ** 0.5
    return abs(fmean(shares) - predicted) <= FAR * spread + 1e-9


def disagreements(clinic: Clinic, table: TrialTable, real: int, runs: int = 200) -> list[str]:
    """Compares a trial with real releases: their rows, dropped and spurious rows, and errors within 10 and 50 %."""
    trial = tried(clinic, table.statement.replace("{tag}", "tried"), runs)
    truth = {tuple(row[: table.keys]): row[table.keys :] for row in clinic.rows(table.truth)}
    shown = [clinic.dp(table.statement.replace("{tag}", f"r{number}")) for number in range(real)]
    assert trial.rows is not None
    keys = [{tuple(row[: table.keys]) for row in rows} for rows in shown]
    dropped = [1 - len(own & truth.keys()) / len(truth) for own in keys]
    spurious = [1 - len(own & truth.keys()) / max(len(own), 1) for own in keys]
    agree = {
        "rows": trial.rows.rows == len(truth),
        "dropped": mean_within(dropped, trial.rows.dropped, runs),
        "spurious": mean_within(spurious, trial.rows.spurious, runs),
    }
    some = any(word in table.statement for word in ("HAVING", "LIMIT", "THRESHOLD"))
    names = [] if some else list(dict.fromkeys(figures.answer for figures in trial.answers))  # errors are of all cells
    for place, name in enumerate(names):
        lines = [figures for figures in trial.answers if figures.answer == name]
        cells = sum(line.cells for line in lines)
        for limit in (0.1, 0.5):
            predicted = sum(
                line.cells * float((line.within_10 if limit == 0.1 else line.within_50) or 0) for line in lines
            )
            shares = [
                fmean(
                    abs(row[table.keys + place] / truth[tuple(row[: table.keys])][place] - 1) <= limit for row in rows
                )
                for rows in shown
            ]
            agree[f"{name} within {limit}"] = mean_within(shares, predicted / cells, runs)
    assert some or len(agree) > 3, "errors are compared, too"
    return [what for what, same in agree.items() if not same]


@pytest.mark.parametrize("number", [0, 1, 4])
def test_trials_agree_with_releases(open_clinic: Callable[..., Clinic], number: int) -> None:
    """The errors, dropped and spurious rows of 40 real releases are as a trial predicts."""
    assert disagreements(clinic_of(open_clinic, TABLES[number]), TABLES[number], 40) == []


@pytest.mark.audit
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_trials_agree_with_many_releases(open_clinic: Callable[..., Clinic], table: TrialTable) -> None:
    """The errors, dropped and spurious rows of 200 real releases are as a trial predicts."""
    assert disagreements(clinic_of(open_clinic, table), table, REAL) == []


def test_a_wrong_prediction_is_found(open_clinic: Callable[..., Clinic]) -> None:
    """The comparison fails if a trial predicts the errors of another price."""
    table = TABLES[0]
    clinic = clinic_of(open_clinic, table)
    shown = TrialTable(
        table.name, table.setup, table.policy, table.statement.replace("epsilon = 0.2", "epsilon = {price}"),
        table.truth, table.keys,
    )  # fmt: skip
    trial = tried(clinic, shown.statement.replace("{price}", "0.05").replace("{tag}", "tried"), 200)
    rows = [clinic.dp(shown.statement.replace("{price}", "5").replace("{tag}", f"r{n}")) for n in range(40)]
    truth = dict(clinic.rows(table.truth))
    shares = [fmean(abs(n / truth[ward] - 1) <= 0.1 for ward, n in run) for run in rows]
    (line,) = trial.answers
    assert not mean_within(shares, float(line.within_10 or 0), 200)


@pytest.mark.parametrize(
    ("select", "plain"),
    [
        ("ward, sum(cost, contribution_bounds_per_row => (0, 5)) AS s", "ward, sum(cost)"),
        ("ward, sum(cost, contribution_bounds_per_group => (0, 5)) AS s", "ward, sum(cost)"),
        ("ward, count(*) AS n, sum(cost) AS s, avg(cost) AS a", "ward, count(*), sum(cost), avg(cost)"),
        ("ward, stddev(cost) AS d, count(cost) AS c", "ward, stddev(cost), count(cost)"),
        ("ward, count(DISTINCT patient_id) AS p", "ward, count(DISTINCT patient_id)"),
        ("ward, count(*) FILTER (WHERE drug = 'drug 2') AS f", "ward, count(*) FILTER (WHERE drug = 'drug 2')"),
    ],
)
def test_the_true_answer_is_that_of_plain_sql(open_clinic: Callable[..., Clinic], select: str, plain: str) -> None:
    """The true answer has no noise, no MAX ROWS and no clamp."""
    clinic = clinic_of(open_clinic, TABLES[2])
    database = functions.database_of(clinic.con)
    assert database is not None
    text = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6) {select} FROM visits GROUP BY ward"
    with database.trials._open(text) as statement:
        number = statement.draw_truth()
        rows = dict(statement.scratch.execute(f"SELECT cell[-1], {answer_column(number)} FROM true_cells").fetchall())
        true = statement.scratch.execute("SELECT * EXCLUDE (dpduck_run, dpduck_place) FROM true_shown").fetchall()
    expected = {row[0]: row[1:] for row in clinic.rows(f"SELECT {plain} FROM visits GROUP BY ward")}
    assert len(true) == 3
    for ward, *answers in true:
        assert rows[ward] == clinic.value(f"SELECT count(*) FROM visits WHERE ward = '{ward}'")
        assert answers == [pytest.approx(float(value), rel=2e-3) for value in expected[ward]]


AROUND = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6) ward, count(*) AS n FROM visits GROUP BY ward"
)


@pytest.mark.parametrize(
    ("sql", "labels", "is_ordered"),
    [
        (AROUND, ["ward"], False),
        (f"SELECT ward AS w, n + 1 AS more FROM ({AROUND}) WHERE n > 5 ORDER BY n", ["w"], True),
        (f"SELECT * FROM ({AROUND})", ["ward"], False),
        (f"WITH t(a, b) AS ({AROUND}) SELECT b, upper(a) AS u, max(b) OVER (ORDER BY b) AS m FROM t", ["u"], False),
        (f"(SELECT ward, n FROM ({AROUND})) UNION ALL SELECT 'all', 1 ORDER BY 2", ["ward"], True),
        (f"SELECT ward, (SELECT 1) AS one, count(*) AS c FROM ({AROUND}) GROUP BY ward", ["ward"], False),
    ],
)
def test_labels_are_what_no_answer_decides(
    open_clinic: Callable[..., Clinic], sql: str, labels: list[str], is_ordered: bool
) -> None:
    """A label keeps its role under another name. An order in a window is none of the statement."""
    clinic = clinic_of(open_clinic, TABLES[0])
    database = functions.database_of(clinic.con)
    assert database is not None
    outer = database.trials.tools.analyse(parse_ask(sql), None).outer
    assert sorted(labels_of(outer)) == labels
    assert trial_labels.is_ordered(outer) == is_ordered


def test_rows_are_matched_by_renamed_labels(open_clinic: Callable[..., Clinic]) -> None:
    """A SELECT that renames a column and filters, and a UNION, have the rows of plain SQL."""
    clinic = clinic_of(open_clinic, TABLES[0])
    text = f"SELECT ward AS w, n FROM ({AROUND.replace('epsilon = 1', 'epsilon = 100')}) WHERE n > 1500 ORDER BY n"
    rows = tried(clinic, text, 5).rows
    assert rows is not None
    shown = "SELECT count(*) FROM (SELECT ward FROM visits WHERE ward IS NOT NULL GROUP BY ward HAVING count(*) > 1500)"
    assert rows.rows == clinic.value(shown)
    both = tried(clinic, f"({AROUND}) UNION ALL SELECT 'all', 0", 5).rows
    assert both is not None
    assert (both.rows, both.swapped) == (4, None)


def test_runs_of_values_have_a_true_answer(open_clinic: Callable[..., Clinic]) -> None:
    """PREFIXES are tried, too, though their strategies divide by an error that a true answer does not have."""
    clinic = clinic_of(open_clinic, TABLES[1])
    text = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) cost, count(*) AS n FROM visits GROUP BY PREFIXES(cost)"
    )
    assert sum(line.cells for line in tried(clinic, text, 3).answers) == 5


@pytest.mark.parametrize("cast", ["CAST(count(*) AS TINYINT)", "CAST(CAST(count(*) AS VARCHAR) || 'x' AS INTEGER)"])
def test_no_error_quotes_an_exact_answer(open_clinic: Callable[..., Clinic], cast: str) -> None:
    """An answer that does not fit into a type is not in the message, and no other error is behind it."""
    clinic = clinic_of(open_clinic, TABLES[0])
    with pytest.raises(Refusal, match="TRY_CAST") as caught:
        tried(clinic, AROUND.replace("count(*)", cast), 3)
    assert not any(letter.isdigit() for letter in str(caught.value))
    assert caught.value.__context__ is None


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_noise_is_not_called_a_bias(open_clinic: Callable[..., Clinic]) -> None:
    """At a small price the mean of the runs is off by chance. Only a larger distance is said to be a bias."""
    trial = tried(
        clinic_of(open_clinic, TABLES[0]), TABLES[0].statement.replace("epsilon = 0.2", "epsilon = 0.001"), 20
    )
    (figures,) = trial.answers
    assert figures.bias_noise is not None and figures.bias_noise > 0.001
    assert "MAX ROWS and norms" not in "".join(
        sentences(replace(trial, answers=(replace(figures, bias_of_rows=0.002),)))
    )
    biased = replace(figures, bias_of_rows=-4 * figures.bias_noise)
    assert "MAX ROWS and norms take away" in "".join(sentences(replace(trial, answers=(biased,))))


def test_a_trial_leaves_nothing(tmp_path: Path) -> None:
    """A trial of a SELECT, a synthetic table and a stream changes no file, no ledger row and no table."""
    database = tmp_path / "clinic.duckdb"
    with dpduck.connect(database) as con:
        con.execute(VISITS)
        con.execute("ALTER TABLE visits ADD COLUMN day DATE")
        con.execute("UPDATE visits SET day = DATE '2024-01-01' + CAST(rowid % 300 AS INTEGER)")
        policy = TABLES[0].policy.replace("EXPECT", "DOMAIN day RANGE '2024-01-01' TO '2025-01-01' STEP MONTH, EXPECT")
        con.execute("FROM dp($1)", [policy])
        con.execute("CHECKPOINT")
    before = files(tmp_path)
    statements = (
        TABLES[0].statement.replace("{tag}", "x")
        + "; CREATE PRIVATE TABLE fake OPTIONS (epsilon = 1, delta = 1e-6) AS SELECT ward FROM visits "
        "WORKLOAD MARGINALS (1); CREATE PRIVATE STREAM s OPTIONS (epsilon = 1, delta = 1e-6, periods = 12) AS "
        "SELECT day, ward, count(*) AS n FROM visits GROUP BY day, ward"
    )
    with dpduck.connect(database) as con:
        names = {row[0] for row in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        rows = con.execute("FROM dp_trial($1, runs := 3, epsilon := [0.5, 2])", [statements]).fetchall()
        assert {row[0] for row in rows} == {1, 2, 3}
        assert {row[1] for row in rows} == {0.5, 2.0}
        assert {row[0] for row in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()} == names
        assert con.execute("SELECT count(*) FROM dp_releases()").fetchall() == [(0,)]
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE mechanism <> 'budget declared'").fetchall() == [(0,)]
    after = files(tmp_path)
    assert after.keys() == before.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert not {name for name in changed if "private" in name}


def test_a_trial_is_the_owners(open_clinic: Callable[..., Clinic]) -> None:
    """A principal is refused before the statement is read, whatever it is."""
    clinic = clinic_of(open_clinic, TABLES[0])
    database = functions.database_of(clinic.con)
    assert database is not None
    for argument in ('["SELECT 1", 5, null]', "nonsense", '["' + TABLES[0].truth + '", 5, null]'):
        with pytest.raises(PermissionRefusal):
            functions.run_call(database, ALICE, "trial", argument)
    for call in (
        lambda: database.trials.run(TABLES[0].statement, 5, [None], ALICE),
        lambda: database.trials.suggest(TABLES[0].statement, [], ALICE),
    ):
        with pytest.raises(PermissionRefusal):
            call()


@pytest.mark.parametrize(
    ("argument", "accepted"),
    [
        (("SELECT 1", 5, None), "SELECT WITH"),
        (("{statement}", 1, None), "2 to"),
        (("{statement}", 5, -1), "a number above 0"),
        (("{statement}", 5, "many"), "a number above 0"),
        (("{statement}", 5, "1/3"), "a number above 0, as 0.5"),
        (("CREATE PRIVATE HISTOGRAM h OPTIONS (epsilon = 1) ON visits (ward)", 5, None), "CREATE PRIVATE VIEW"),
    ],
)
def test_refusals(open_clinic: Callable[..., Clinic], argument: tuple[Any, ...], accepted: str) -> None:
    """Bad input gets one line that says what would be accepted."""
    clinic = clinic_of(open_clinic, TABLES[0])
    database = functions.database_of(clinic.con)
    assert database is not None
    text, runs, epsilon = argument
    with pytest.raises(Refusal, match=accepted):
        statement = text.replace("{statement}", TABLES[0].statement)
        database.trial(json.dumps([statement, runs, epsilon]), OWNER)
