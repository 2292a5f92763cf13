"""dp_difference: the error is that of the noise, shared between periods or independent between releases."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import sqrt

import duckdb
import numpy as np
import pytest

from dpduck.mechanisms.streams.stream_plan import plan_from_facts
from dpduck.strategies.time_axis import STRATEGIES
from tests.mechanisms.streams.streams import STREAM, Visits, options
from tests.support.clinics import one_line

ANSWERS = {"n": 1, "n_total": 0, "n_last": 2}


@pytest.fixture(scope="module")
def visits() -> Iterator[Visits]:
    made = Visits(budget="rho = 100")
    made.put([(f"p{number}", f"2024-{1 + number % 6:02}-03", "ab"[number % 2], number) for number in range(30)])
    yield made
    made.con.close()


@pytest.fixture(scope="module")
def released() -> Iterator[Visits]:
    """Another table with a stream of three months, and two views."""
    made = Visits(budget="rho = 100")
    made.put([(f"p{number}", f"2024-{1 + number % 6:02}-03", "ab"[number % 2], number) for number in range(30)])
    made.create(options("rho = 1", "tree"))
    made.refresh(3)
    for name, price in (("one", "rho = 0.5"), ("two", "epsilon = 1")):
        made.dp(f"CREATE PRIVATE VIEW {name} OPTIONS ({price}) AS SELECT ward, count(*) AS n FROM visits GROUP BY ward")
    yield made
    made.con.close()


def covariance(visits: Visits, batches: list[int], window: int) -> np.ndarray:
    """The covariances of published answers, by the pseudo-inverse of what had been measured when each was published."""
    plan = plan_from_facts(visits.named.plan)
    matrix, rows = plan.axis.matrix.astype(float), []
    for period in range(batches[-1]):
        closed = next(one for one in batches if one > period)
        seen = matrix[~matrix[:, closed:].any(axis=1), :closed]
        first = max(0, period + 1 - window) if window else 0
        question = np.array([1.0 if first <= one <= period else 0.0 for one in range(closed)])
        weights = question @ np.linalg.pinv(seen)
        rows.append(np.pad(weights, (0, len(matrix) - len(weights))))
    stacked = np.array(rows)
    return stacked @ stacked.T * plan.noise.variance


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_periods_of_one_stream(visits: Visits, strategy: str) -> None:
    """The standard error of every difference of two periods is that of the exact covariance, for each answer."""
    visits.dp("DROP PRIVATE STREAM IF EXISTS by_month")
    visits.create(options("rho = 1", strategy, ", window = 2"))
    batches = [1, 2, 4, 5]
    for months in batches:
        visits.refresh(months)
    for answer, window in ANSWERS.items():
        exact = covariance(visits, batches, window)
        shown = {(row[0].month, row[1]): row[2:] for row in visits.published(f"came, ward, {answer}, {answer}_stderr")}
        for first, second in product((1, 3, 5), (2, 4)):
            of = f"'2024-0{first}-01', '2024-0{second}-01', answer := '{answer}'"
            rows = visits.con.execute(f"FROM dp_difference('by_month', 'by_month', {of})").fetchall()
            one, other = first - 1, second - 1
            variance = exact[one, one] + exact[other, other] - 2 * exact[one, other]
            assert len(rows) == 3
            for ward, found, stderr, low, high in rows:
                assert found == pytest.approx(shown[first, ward][0] - shown[second, ward][0])
                assert stderr == pytest.approx(sqrt(variance)) and low + stderr < found < high - stderr
        assert [shown[month, "a"][1] for month in range(1, 6)] == pytest.approx(np.sqrt(np.diag(exact)).tolist())
    visits.dp("DROP PRIVATE STREAM by_month")


def test_two_releases(released: Visits) -> None:
    """Two releases have independent noise: variances add up, of a stream's period and a view, and of two views."""
    errors = dict(released.con.execute("SELECT 'one', max(n_stderr) FROM private.one").fetchall())
    errors |= dict(released.con.execute("SELECT 'two', max(n_stderr) FROM private.two").fetchall())
    errors |= dict(
        released.con.execute("SELECT 'by_month', max(n_stderr) FROM private.by_month WHERE month(came) = 2").fetchall()
    )
    for first, second, periods in (
        ("one", "two", ""),
        ("by_month", "one", ", of_first := '2024-02-01'"),
        ("one", "by_month", ", of_second := '2024-02-01'"),
    ):
        rows = released.con.execute(f"FROM dp_difference('{first}', '{second}'{periods})").fetchall()
        assert {row[0] for row in rows} == {"a", "b", None}
        expected = sqrt(errors[first] ** 2 + errors[second] ** 2)
        assert [row[2] for row in rows] == pytest.approx([expected] * 3)
        assert all(row[3] < row[1] - 1.9 * row[2] and row[4] > row[1] + 1.9 * row[2] for row in rows)


def test_a_view_of_several_sets_is_refused(visits: Visits) -> None:
    """Rolled-up rows and rows of NULL look alike: they would be compared with each other."""
    select = "SELECT ward, count(*) AS n FROM visits GROUP BY CUBE (ward)"
    visits.dp(f"CREATE PRIVATE VIEW cube OPTIONS (rho = 0.5) AS {select}")
    with pytest.raises(Exception, match="several grouping sets"):
        visits.con.execute("FROM dp_difference('cube', 'cube')")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("'one', 'one'", "a view cannot differ from itself"),
        ("'one', 'by_month'", "'by_month' came, ward"),
        ("'one', 'nothing'", "there is no private view"),
        ("'one', 'two', '2024-01-01'", "is no stream"),
        ("'by_month', 'by_month', '2024-01-01', '2024-09-01'", "has published no period"),
        ("'one', 'two', answer := 'm'", "shows no answer"),
        ("'one', 'two', confidence := 2", "confidence"),
    ],
)
def test_what_is_refused(released: Visits, arguments: str, said: str) -> None:
    """Columns without a difference, or without a known error, are refused in one line."""
    with pytest.raises(Exception, match="accepted:") as error:
        released.con.execute(f"FROM dp_difference({arguments})")
    assert said in str(error.value)


AGGREGATES = {
    "all_rows": "count(*) AS n", "unnamed": "count(number)", "some": "count_if(number > 3) AS n",
    "added": "sum(number, contribution_bounds_per_row => (0, 9)) AS n", "wider": 'sum(visits."NUMBER", '
    "contribution_bounds_per_row => (0, 20)) FILTER (WHERE ward = 'a') AS m",
    "own_name": "sum(number, contribution_bounds_per_row => (0, 8))",
    "twice": "sum(2 * number, contribution_bounds_per_row => (0, 9)) AS n", "people": "count(DISTINCT person) AS n",
    "both": "count(*) AS k, sum(number, contribution_bounds_per_row => (0, 9)) AS n",
}  # fmt: skip
ALIKE = (
    "all_rows unnamed", "all_rows some", "some by_month", "added wider", "added own_name", "wider own_name",
    "all_rows both",
)  # fmt: skip
UNLIKE = ("all_rows added", "own_name unnamed", "added twice", "people all_rows", "by_month added", "both added")


@pytest.fixture(scope="module")
def aggregates(released: Visits) -> Visits:
    """A view for each aggregate."""
    for name, shown in AGGREGATES.items():
        select = f"SELECT ward, {shown} FROM visits WHERE ward IS NOT NULL GROUP BY ward"
        released.dp(f"CREATE PRIVATE VIEW {name} OPTIONS (rho = 0.5, refresh = '{name}') AS {select}")
    return released


def compared(visits: Visits, names: str, more: str = "") -> str:
    """Returns dp_difference's message for two names, '' for an answer."""
    first, second = names.split()
    periods = "".join(
        f", of_{one} := '2024-02-01'" for one, name in (("first", first), ("second", second)) if name == "by_month"
    )
    try:
        assert visits.con.execute(f"FROM dp_difference('{first}', '{second}'{periods}{more})").fetchall()
    except duckdb.Error as error:
        return one_line(error)
    return ""


@pytest.mark.parametrize("names", ALIKE)
def test_the_same_aggregate_is_compared(aggregates: Visits, names: str) -> None:
    """Counts of other rows, and a sum under another alias, FILTER or bounds, are numbers of one kind."""
    assert compared(aggregates, names) == ""


@pytest.mark.parametrize("names", UNLIKE)
def test_different_aggregates_are_refused(aggregates: Visits, names: str) -> None:
    """A count less a sum is refused in one line, without the aggregates' text, which others wrote."""
    for pair in (names, " ".join(reversed(names.split()))):
        said = compared(aggregates, pair)
        assert "is another aggregate than" in said and "2 *" not in said and "DISTINCT" not in said, said
    assert compared(aggregates, "both added", ", answer := 'n'") == ""


def test_principals_learn_count_or_sum_alone(aggregates: Visits) -> None:
    """Statements of others are not shown: a refusal does not tell whether another's view is a count or a sum."""
    table = "private.dpduck.releases"
    aggregates.con.execute(f"UPDATE {table} SET principal = 'alice' WHERE name IN ('twice', 'people')")
    try:
        assert [compared(aggregates, names) for names in ("twice added", "all_rows people")] == ["", ""]
        assert "is another aggregate than" in compared(aggregates, "twice all_rows")
    finally:
        aggregates.con.execute(f"UPDATE {table} SET principal = 'owner' WHERE name IN ('twice', 'people')")


def test_a_view_with_averages_says_what_to_do(visits: Visits) -> None:
    """Errors of averages differ from answer to answer: the refusal has the join that adds them up, which runs."""
    size = "avg(length(ward), contribution_bounds_per_row => (0, 9)) AS a"
    select = f"SELECT ward, count(*) AS n, {size} FROM visits GROUP BY ward"
    for name in ("mean", "again"):
        visits.dp(f"CREATE PRIVATE VIEW {name} OPTIONS (rho = 0.5, refresh = '{name}') AS {select}")
    with pytest.raises(
        Exception, match=r"averages or quantiles.*a\.n - b\.n, sqrt\(a\.n_stderr \^ 2 \+ b\.n_stderr \^ 2\)"
    ):
        visits.con.execute("FROM dp_difference('mean', 'again')")
    joined = "sqrt(a.n_stderr ^ 2 + b.n_stderr ^ 2) FROM private.mean AS a JOIN private.again AS b USING (ward)"
    assert all(row[1] > 0 for row in visits.con.execute(f"SELECT a.n - b.n, {joined}").fetchall())


def test_one_release_under_two_names_is_refused(visits: Visits) -> None:
    """The same statement under another name has the same noise, so the two are not independent."""
    for name, alias in (("first", "n"), ("second", "m")):
        visits.dp(
            f"CREATE PRIVATE VIEW {name} OPTIONS (rho = 0.25) AS SELECT ward, count(*) AS {alias} FROM visits "
            "WHERE ward = 'a' GROUP BY ward"
        )
    for name in ("second", "first"):
        with pytest.raises(Exception, match=r"are one release under two names|a view cannot differ from itself"):
            visits.con.execute(f"FROM dp_difference('first', '{name}')").fetchall()


@pytest.mark.parametrize("alias", ["day_total", "n_last"])
def test_a_count_may_be_called_as_a_total_is(visits: Visits, alias: str) -> None:
    """The kind of an answer follows from its place among the columns, not from the end of its name."""
    visits.dp("DROP PRIVATE STREAM IF EXISTS by_month")
    statement = STREAM.format(options=options("rho = 1", "periods"), source="visits")
    visits.dp(statement.replace("count(*) AS n", f"count(*) AS {alias}"))
    visits.refresh(2)
    of = "'2024-02-01', '2024-01-01'"
    errors = {row[2] for row in visits.con.execute(f"FROM dp_difference('by_month', 'by_month', {of})").fetchall()}
    variance = plan_from_facts(visits.named.plan).noise.variance
    assert [pytest.approx(sqrt(2 * variance))] == sorted(errors)
    visits.dp("DROP PRIVATE STREAM by_month")


def test_sums_of_a_streams_cells_are_refused_by_name(visits: Visits) -> None:
    """dp_stderr_of is about one release. A stream's own columns and dp_difference have the errors over time."""
    visits.create(options("rho = 1"))
    with pytest.raises(duckdb.Error) as caught:
        visits.con.execute("FROM dp_stderr_of('by_month', '1')")
    said = one_line(caught.value)
    assert "'by_month' is a stream" in said and "accepted: the columns .._stderr of private.by_month" in said
    assert "dp_difference('by_month', 'by_month'" in said
    visits.dp("DROP PRIVATE STREAM by_month")
