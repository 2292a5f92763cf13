"""Messages that made a reader hesitate: each names the way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from socket import socket

import duckdb
import pytest

import dpduck
from dpduck.engines.listener import require_listener
from dpduck.values.errors import Refusal
from tests.support.clinics import Clinic

ASKED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)"
SAID = (
    (f"{ASKED} wrad, count(*) FROM visits GROUP BY wrad", "accepted: ward (did you mean that?); all are sex, age"),
    (f"{ASKED} sex, count(*) FROM vists GROUP BY sex", "accepted: visits (did you mean that?), or a table with"),
    (f"{ASKED} sex, count(*) FROM visits JOIN wrads ON visits.ward = wrads.name GROUP BY sex",
     "there is no table 'wrads'; accepted: wards (did you mean that?)"),
    (f"{ASKED} sex, count(*) FROM other.vists GROUP BY sex", "'other.vists'; accepted: a table with a policy"),
    (f"{ASKED} sex, count(*) FORM visits GROUP BY sex", "accepted: FROM in place of FORM"),
    (f"{ASKED} `sex`, count(*) FROM visits GROUP BY sex", 'accepted: double quotes around a name: "name"'),
    (f"{ASKED} home.city, count(*) FROM visits GROUP BY home.city",
     "home is a column, and 'city' would be a field of it; accepted: a column of its own for home.city (docs/how_to/"),
    (f"{ASKED} count(*) FROM visits AS v WHERE V.Home.city = 'Ulm'", "home is a column, and 'city' would be a field"),
    (f"{ASKED} count(*) FROM visits AS v WHERE visits.home = 'Ulm'", "there is no table 'visits' in FROM"),
    ("ALTER PRIVACY POLICY ON visits SET DOMAIN wrad IN ('w0')", "accepted: ward (did you mean that?)"),
    ("ALTER PRIVACY POLICY ON visits SET DOMAIN age RANGE 0 TO 98 STEP 5", "k at least 1: 0 TO 100"),
    ("ALTER PRIVACY POLICY ON visits SET DOMAIN age RANGE 0 TO 98 STEP 0", "STEP 0 is not above 0"),
    ("ALTER PRIVACY POLICY ON visits SET DOMAIN day RANGE '2013-01-01' TO '2014-01-01' STEP INTERVAL 7 DAYS",
     "k at least 1: 2013-01-01 TO 2014-01-07"),
)  # fmt: skip


@pytest.mark.parametrize(("statement", "said"), SAID)
def test_the_way_out_is_named(open_clinic: Callable[..., Clinic], statement: str, said: str) -> None:
    """Typos with the nearest name, words of other dialects, and ends that a range could have."""
    clinic = open_clinic()
    clinic.fill()
    clinic.rows("ALTER TABLE visits ADD COLUMN day DATE")
    clinic.rows("ALTER TABLE visits ADD COLUMN home STRUCT(city VARCHAR)")
    clinic.protect()
    assert said in clinic.refused(statement)


def test_a_renamed_database_is_told_from_one_without_a_policy(tmp_path: Path) -> None:
    """A policy belongs to a table of a database by its name. After the file is renamed, the refusal says why."""
    place = tmp_path / "monthly.duckdb"
    with duckdb.connect(str(place)) as made:
        made.execute("CREATE TABLE visits AS SELECT range AS id FROM range(10)")
    with dpduck.connect(place, store=tmp_path / "store.duckdb") as con:
        Clinic(con).dp("CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1))")
        con.execute("CREATE TABLE others AS FROM visits")
    with dpduck.connect(place.rename(tmp_path / "yearly.duckdb"), store=tmp_path / "store.duckdb") as con:
        clinic = Clinic(con)
        assert "in another database or schema, as where a file was renamed" in clinic.refused(
            f"{ASKED} count(*) FROM visits"
        )
        assert "renamed" not in clinic.refused(f"{ASKED} count(*) FROM others")


def test_distinct_values_beside_others(clinic: Clinic) -> None:
    """OTHER stands for several values, which are not told apart: the refusal names it."""
    clinic.dp("ALTER PRIVACY POLICY ON visits SET DOMAIN ward IN ('w0', 'w1') WITH OTHER")
    told = clinic.refused(f"{ASKED} count(DISTINCT ward) FROM visits")
    assert "without OTHER and EDGES; accepted: a DOMAIN without WITH OTHER" in told


def test_the_note_says_what_is_known_of_averages(clinic: Clinic) -> None:
    """Errors of averages are NULL without EXPECT ROWS. The note has them times the rows of a cell, and the option to
    type. With it, they are those very figures.
    """
    clinic.dp("ALTER PRIVACY POLICY ON visits SET CLAMP age BETWEEN 0 AND 100")
    asked = f"$${ASKED} ward, count(*) AS n, avg(age) AS a FROM visits GROUP BY ward$$"
    note = clinic.value(f"SELECT note FROM dp_explain({asked}) WHERE chosen")
    found = re.search(
        r'the error of avg\("age"\) is about ([0-9.,]+) divided by the rows of a cell; (ALTER [^,]*),', note
    )
    assert found is not None, note
    assert "relative to a cell's rows, the error would be 6 times smaller with no ward (6 values)" in note
    of_average = f"FROM dp_errors({asked}) WHERE aggregate LIKE 'avg%'"
    assert clinic.value(f"SELECT stderr {of_average}") is None
    assert found[1] in clinic.value(f"SELECT note {of_average}")
    clinic.dp(found[2].removesuffix("n") + "6000000")
    assert "puts figures" not in clinic.value(f"SELECT note FROM dp_explain({asked}) WHERE chosen")
    assert clinic.value(f"SELECT stderr {of_average}") == pytest.approx(
        float(found[1].replace(",", "")) / 1_000_000, rel=0.02
    )
    assert clinic.value(f"SELECT note {of_average}") == "400/n", "the error times the rows of a cell, of any size"


def test_a_view_says_whose_rows_it_is_about(clinic: Clinic) -> None:
    """The comment of a private view has its price, its privacy unit, MAX ROWS and what its domains leave out."""
    clinic.dp(
        "CREATE PRIVATE VIEW cube OPTIONS (epsilon = 1) AS SELECT ward, age, count(*) AS n FROM visits GROUP BY ALL"
    )
    comment = clinic.value("SELECT comment FROM duckdb_tables() WHERE table_name = 'cube'")
    assert comment.startswith("differentially private, epsilon = 1 (pure), 10 % of the budget then; protects")
    assert "of which at most 4 are counted" in comment
    assert "by ward (6 values, rows with NULL or other values are not counted), age (10 values, rows with" in comment
    assert "ledger entry" in comment
    asked = f"{ASKED} ward, age, count(*) AS n FROM visits GROUP BY ALL"
    stated = clinic.value(f"SELECT worst_stderr FROM dp_explain($${asked}$$) WHERE chosen")
    assert f"; standard error of n {stated:.4g}; strategy" in comment


def test_a_view_says_how_far_it_is_off(clinic: Clinic) -> None:
    """The standard errors of counts and sums are in its comment whatever was selected. Those of averages differ."""
    clinic.dp("ALTER PRIVACY POLICY ON visits SET CLAMP age BETWEEN 0 AND 100")
    clinic.dp(
        "CREATE PRIVATE VIEW cube OPTIONS (epsilon = 1, strategy = 'Q', budgets = 'uniform', consistency = 'none') AS "
        "SELECT ward, 2 * count(*) AS twice, count(*) AS n, avg(age) AS mean FROM visits GROUP BY ROLLUP (ward)"
    )
    clinic.dp(
        "CREATE PRIVATE VIEW moved OPTIONS (epsilon = 1, nonnegative = TRUE) AS "
        "SELECT ward, count(*) AS n FROM visits GROUP BY ward"
    )
    comments = dict(
        clinic.rows("SELECT table_name, comment FROM duckdb_tables() WHERE table_name IN ('cube', 'moved')")
    )
    assert re.search(r"; standard error of n [0-9.]+; strategy", comments["cube"])
    assert "standard error" not in comments["moved"]


def test_counts_beside_averages_are_not_off_by_a_rounding(clinic: Clinic) -> None:
    """A count that is measured in steps of a clamp is a multiple of one step, as its shortest text."""
    clinic.dp("ALTER PRIVACY POLICY ON visits SET CLAMP age BETWEEN 0 AND 100 STEP 0.1")
    rows = clinic.dp(f"{ASKED} ward, count(*) AS n, avg(age), sum(age) AS s FROM visits GROUP BY ward")
    assert len({n % 1 for _, n, _, _ in rows}) > 1, "they are no whole numbers"
    assert all(len(repr(number).partition(".")[2]) <= 3 for _, n, _, s in rows for number in (n, s)), rows


def test_a_view_without_any_group_says_so(open_clinic: Callable[..., Clinic]) -> None:
    """Selected keys may be none: the word for the view tells where the threshold is, each time."""
    clinic = open_clinic()
    clinic.fill()
    clinic.dp(
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, "
        "BUDGET (epsilon = 100, delta = 1e-5, delta_keys = 5e-6))"
    )
    view = (
        "CREATE PRIVATE VIEW {} OPTIONS (epsilon = {}, delta = 1e-8, group_selection_strategy = GAUSSIAN_THRESHOLD) AS "
        "SELECT {}, count(*) AS n FROM visits GROUP BY ALL"
    )
    for _ in range(2):
        assert clinic.dp(view.format("none", 1, "patient")) == [
            ("private.none is ready; no group was above the threshold, which dp_explain shows: fewer or larger groups, "
             "or a higher price",)
        ]  # fmt: skip
    assert clinic.dp(view.format("some", 20, "ward")) == [("private.some is ready",)]


def test_values_outside_a_domain_may_be_asked_for_where_it_keeps_them(clinic: Clinic) -> None:
    """WITH OTHER keeps the rows of unlisted values, so that a condition on such a value is no slip."""
    asked = f"{ASKED} count(*) FROM visits WHERE ward = 'w9'"
    assert "'w9' is not in the domain of ward" in clinic.refused(asked)
    clinic.dp("ALTER PRIVACY POLICY ON visits SET DOMAIN ward IN ('w0') WITH OTHER 'another'")
    assert len(clinic.dp(asked)) == 1


def test_nearly_the_name_of_a_table_or_view(clinic: Clinic) -> None:
    """For an unknown table or private view, the message suggests the nearest name."""
    clinic.dp("CREATE PRIVATE VIEW cube OPTIONS (epsilon = 1) AS SELECT ward, count(*) AS n FROM visits GROUP BY ward")
    assert "accepted: cube (did you mean that?), or a name" in clinic.refused("DROP PRIVATE VIEW cubee")
    for call, near in (("dp_check('vists')", "visits"), ("dp_stderr_of('cubee', '1')", "cube")):
        with pytest.raises(duckdb.Error, match=f"accepted: {near} "):
            clinic.rows(f"FROM {call}")


def test_the_ends_have_no_standard_error(clinic: Clinic) -> None:
    """The answers for min and max are further off than the noise of their ranks suggests. Their intervals say so."""
    clinic.dp("ALTER PRIVACY POLICY ON visits SET CLAMP age BETWEEN 0 AND 200")
    asked = f"{ASKED} max(age) AS x, dp_stderr(x), dp_interval_high(x), median(age) AS y, dp_stderr(y) FROM visits"
    (most, stderr, high, _, middle_stderr) = clinic.dp(asked)[0]
    assert stderr is None and middle_stderr > 0
    assert high >= 199 > most


def test_owners_are_told_what_a_change_means(clinic: Clinic) -> None:
    """A weak budget, questions that cost again, and the spent budget as an epsilon are all stated."""
    alter = "ALTER PRIVACY POLICY ON visits SET "
    (said,) = clinic.dp(f"{alter}MAX EPSILON 2")[0]
    assert said.endswith("repeating an earlier question stays free")
    (said,) = clinic.dp(f"{alter}DOMAIN sex IN (0, 1) WITH NULL")[0]
    assert said.endswith("repeating an earlier question will cost again")
    (said,) = clinic.dp(f"{alter}BUDGET (epsilon = 5000)")[0]
    assert "budget: epsilon = 5000, more than the largest price of one statement, 100;" in said
    clinic.dp(f"{ASKED} sex, count(*) FROM visits GROUP BY sex")
    narrow = clinic.refused(f"{alter}BUDGET (epsilon = 1, delta = 1e-6)")
    least = re.search(r"rho of at least [0-9.]+: epsilon of at least ([0-9.]+) with delta = 1e-06", narrow)
    assert least is not None
    clinic.dp(f"{alter}BUDGET (epsilon = {least[1]}, delta = 1e-6)")


def test_what_thresholds_leave_out_is_explained(open_clinic: Callable[..., Clinic]) -> None:
    """max_groups_contributed leaves rows out, which no interval is about. A spent delta for keys names two ways out."""
    clinic = open_clinic()
    clinic.fill()
    clinic.dp(
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, "
        "BUDGET (epsilon = 10, delta = 1e-5, delta_keys = 1e-6))"
    )
    asked = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, {}"
        "group_selection_strategy = {}_THRESHOLD) ward, count(*) AS n FROM visits GROUP BY ward"
    )
    for option, told in (("", False), ("max_groups_contributed = 2, ", True)):
        note = clinic.value(f"SELECT note FROM dp_explain($${asked.format(option, 'GAUSSIAN')}$$) WHERE chosen")
        assert ("rows of a unit in further groups are left out, and intervals are about the rest" in note) == told
    clinic.dp(asked.format("", "LAPLACE"))
    spent = clinic.refused(asked.format("max_groups_contributed = 1, ", "LAPLACE"))
    assert "delta for keys = 1e-6 but the " in spent and " has 0 of 1e-6 left" in spent
    assert "SET BUDGET (epsilon = .., delta = .., delta_keys = ..)" in spent


def test_an_engine_that_is_not_there_is_refused_at_once() -> None:
    """Nothing listens at a port that was just given back: one line without the token, not minutes of attempts."""
    pytest.importorskip("pyspark")
    with socket() as given_back:
        given_back.bind(("127.0.0.1", 0))
        port = given_back.getsockname()[1]
    require_listener("sc://..no name:1")  # the client's own failure says what is wrong with it
    with dpduck.connect() as con, pytest.raises(Refusal, match="nothing listens at sc:") as caught:
        dpduck.attach_spark(con, f"sc://127.0.0.1:{port}/;token=secret", name="lake", tables=["db.flights"])
    assert "secret" not in str(caught.value) and "sc://127.0.0.1" in str(caught.value)
