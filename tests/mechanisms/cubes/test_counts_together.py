"""Counts of one SELECT that are planned together: answers, errors, sensitivity, limits and known answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import sqrt

import duckdb
import numpy as np
import pytest
from scipy.stats import chi2

from dpduck.language.select import together
from dpduck.mechanisms.cubes.measures import Measure
from dpduck.strategies import counts as strategies_counts
from tests.mechanisms.cubes.aggregate_clinic import open_stays, plan_of
from tests.mechanisms.cubes.test_aggregate_sensitivity import moves_beyond_norms
from tests.support.clinics import Clinic

POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET ({budget}),
    DOMAIN x RANGE 0 TO 10 STEP 1, DOMAIN sex IN ('F', 'M'), DOMAIN ward IN ('a', 'b', 'c') WITH NULL WITH OTHER 'z',
    DOMAIN flag BOOLEAN WITH NULL, DOMAIN age RANGE 0 TO 100 STEP 10, DOMAIN late RANGE 0 TO 60 STEP 10 WITH NULL
    WITH EDGES, DOMAIN shop RANGE 0 TO 40 STEP 1, DOMAIN mood IN ('bad', 'good', 'fair'),
    CLAMP age BETWEEN 0 AND 100)"""
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({}) {} FROM visits {}"
PIVOT = ", ".join(f"count(*) FILTER (WHERE x = {number}) AS n{number}" for number in range(10))
OVERLAP = "count_if(flag) AS a, count_if(ward IN ('a', 'b')) AS b, count_if(NOT flag OR ward = 'a') AS c"
HUGE = "epsilon = 100"


def clinic_of(open_clinic: Callable[..., Clinic], budget: str = "epsilon = 1000000") -> Clinic:
    """6,000 visits with NULL, and with values outside of every domain that is not whole."""
    clinic = open_clinic()
    clinic.con.execute("CREATE MACRO drawn(i, n) AS CAST(hash(i, n) >> 2 AS BIGINT)")
    clinic.con.execute("CREATE TYPE moods AS ENUM ('good', 'bad', 'fair')")
    clinic.con.execute(
        "CREATE TABLE visits AS SELECT CASE WHEN i % 23 > 0 THEN CAST(hash(i, 1) % 13 AS INTEGER) - 1 END AS x, "
        "['F', 'M', 'x', NULL][drawn(i, 2) % 4 + 1] AS sex, ['a', 'b', 'c', 'd', NULL][drawn(i, 3) % 5 + 1] AS ward, "
        "[TRUE, FALSE, NULL][drawn(i, 4) % 3 + 1] AS flag, CAST(hash(i, 5) % 130 AS INTEGER) - 15 AS age, "
        "CASE WHEN i % 7 > 0 THEN CAST(hash(i, 6) % 90 AS INTEGER) - 10 END AS late, CAST(i % 40 AS INTEGER) AS shop, "
        "CAST(['good', 'bad', 'fair'][drawn(i, 7) % 3 + 1] AS moods) AS mood FROM range(6000) AS r(i)"
    )
    clinic.dp(POLICY.format(budget=budget))
    return clinic


@pytest.fixture
def visits(open_clinic: Callable[..., Clinic]) -> Clinic:
    return clinic_of(open_clinic)


@pytest.fixture
def in_rho(open_clinic: Callable[..., Clinic]) -> Clinic:
    """Returns the table with a budget that buys Gaussian noise."""
    return clinic_of(open_clinic, "rho = 1000000")


@pytest.fixture(scope="module")
def stays() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_stays(budget="rho = 1000000") as connection:
        yield connection


def joint(clinic: Clinic, statement: str) -> list[Measure]:
    """The measures of counts that are planned together."""
    return [one.measure for one in plan_of(clinic.con, statement).measures if one.measure.strategy is not None]


def total(clinic: Clinic, statement: str) -> float:
    """The total variance that is predicted."""
    return float(
        clinic.con.execute("SELECT total_variance FROM dp_explain(?) WHERE chosen", [statement]).fetchall()[0][0]
    )


CONDITIONS = (
    ("x = 1", "x = 2", "x IN (4, 5)", "x BETWEEN 6 AND 8", "x >= 3 AND x < 5", "x <> 3", "x IS NULL", "x > 7"),
    ("sex = 'F'", "sex = 'M'", "sex <> 'F'", "sex = 'F' OR sex = 'M'", "NOT (sex = 'F')", "sex IS NULL", "sex > 'G'"),
    ("flag", "NOT flag", "flag IS NULL", "flag IS NOT TRUE", "ward = 'a'", "ward = 'z'", "ward = 'd'", "ward IS NULL",
     "NOT (flag AND ward = 'a')", "flag OR ward IN ('a', 'c')", "ward <> 'b'", "coalesce(flag, TRUE)"),
    ("age >= 10 AND age < 20", "age BETWEEN 20 AND 49", "age < 30", "age >= 0 AND age < 10 AND flag", "age >= 90",
     "age >= 30 AND age < 60 AND NOT flag", "age BETWEEN 10 AND 14", "age >= 10 AND age < 20 AND x = 1",
     "age >= 20 AND age < 30 AND x = 2"),
    ("late < 10", "late >= 10 AND late < 30", "late >= 50", "late IS NULL", "late = 20", "late > 5", "NOT late < 10"),
    ("mood = 'good'", "mood <> 'bad'", "mood < 'fair'", "mood IN ('bad', 'fair')", "mood >= 'bad'"),
    ("x = 1 AND sex = 'F'", "x = 2 AND sex = 'M'", "x = 1 OR sex = 'F'", "sex = 'F'", "x = age",
     "x = 1 AND ward = 'a'"),
)  # fmt: skip


@pytest.mark.parametrize("place", range(len(CONDITIONS)))
def test_every_row_is_counted_as_sql_counts_it(visits: Clinic, place: int) -> None:
    """Over NULL and values outside of the domains, with and without count(*), grouped or not, nearly without noise.

    Each count has at least a 24th of epsilon = 100. An error above 8 has a chance of 1e-15. Conditions hold for more
    rows than that outside of the domains. A CUBE is counted in two statements: DuckDB 2.0.1 has an internal error for
    one with many filters.
    """
    counts = ", ".join(f"count(*) FILTER (WHERE {one})" for one in CONDITIONS[place])
    cube = "GROUP BY CUBE (flag) ORDER BY grouping(flag), flag"
    for more, group in (
        ("", ""),
        ("count(*), ", ""),
        ("flag, ", "GROUP BY flag ORDER BY flag"),
        ("flag, count(*), ", cube),
    ):
        if group == cube:
            exact = visits.rows(f"SELECT {more}{counts} FROM visits GROUP BY flag ORDER BY flag")
            exact += visits.rows(f"SELECT NULL, count(*), {counts} FROM visits")
        else:
            exact = visits.rows(f"SELECT {more}{counts} FROM visits {group}")
        found = visits.dp(ASK.format(HUGE, f"{more}{counts}", group))
        assert len(found) == len(exact)
        for shown, meant in zip(found, exact, strict=True):
            numbers = [one for one in shown if one is not None and not isinstance(one, bool)]
            counted = [one for one in meant if one is not None and not isinstance(one, bool)]
            assert np.abs(np.array(numbers) - counted).max() <= 8, (more, group)


def test_conditions_that_only_codes_decide_are_planned_together(visits: Clinic) -> None:
    """Conditions that hold outside of a domain, inside of a bin, or by an order of their own, stay alone."""
    groups = [
        {text for one in joint(visits, ASK.format(HUGE, ", ".join(f"count_if({text})" for text in listed), ""))
         for text in (one.kinds.conditions if one.kinds is not None else ())}
        for listed in CONDITIONS
    ]  # fmt: skip
    assert [len(group) for group in groups] == [5, 3, 10, 6, 5, 0, 2]
    assert '("r0"."sex" = \'F\')' not in groups[6] and not any("<>" in text for text in groups[0])


@pytest.mark.parametrize("price", ["epsilon = 1", "epsilon = 1, delta = 1e-6"])
def test_a_pivot_is_as_good_as_group_by(open_clinic: Callable[..., Clinic], price: str) -> None:
    """Ten exclusive conditions have the errors of GROUP BY, a tenth of the standard error that they had before."""
    clinic = clinic_of(open_clinic, "epsilon = 1000, delta = 1e-3")
    grouped = total(clinic, ASK.format(price, "x, count(*)", "GROUP BY x"))
    assert total(clinic, ASK.format(price, PIVOT, "")) == pytest.approx(grouped, rel=1e-9)
    cased = PIVOT.replace("count(*) FILTER (WHERE ", "sum(CASE WHEN ").replace(") AS", " THEN 1 ELSE 0 END) AS")
    assert total(clinic, ASK.format(price, cased, "")) == pytest.approx(grouped, rel=1e-9)
    mixed = cased.replace("sum(", "count(").replace(" ELSE 0", "")
    assert total(clinic, ASK.format(price, mixed, "")) == pytest.approx(grouped, rel=1e-9)
    named = total(clinic, ASK.format(f"{price}, strategy = 'I'", PIVOT, ""))
    assert named > 9 * grouped, "a strategy that is named is taken at its word"


def test_a_target_costs_as_much_as_group_by(in_rho: Clinic) -> None:
    """target_stderr for ten exclusive conditions costs a tenth of the earlier rho. A count(*) beside them is paid for
    alone, so that all have the target."""
    price = "SELECT price FROM dp_explain(?) WHERE chosen"
    asked = [("x, count(*)", "GROUP BY x"), (PIVOT, ""), (f"count(*) AS n, {PIVOT}", "")]
    texts = [in_rho.con.execute(price, [ASK.format("target_stderr = 5", *one)]).fetchall()[0][0] for one in asked]
    rhos = [float(text.split("rho = ")[1].rstrip(")")) for text in texts]
    assert rhos[1] == pytest.approx(rhos[0], rel=1e-3) and rhos[2] == pytest.approx(2 * rhos[0], rel=1e-3)
    statement = ASK.format("target_stderr = 5", asked[2][0], "")
    errors = [row[3] for row in in_rho.con.execute("FROM dp_errors(?)", [statement]).fetchall()]
    assert max(errors) <= 5 and min(errors) > 4.99


def test_errors_are_those_of_many_releases(in_rho: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The covariance of three overlapping counts in 40 groups, over 12 releases, is that of the plan.

    Whitened by it, squares add up to a chi-squared of 3 x 40 x 12 degrees. Bounds are at 1e-9 on either side. The law
    of counts by themselves, at a third of the price each, is rejected. The search ends by its own rule here: on a busy
    machine, its time would end first.
    """
    monkeypatch.setattr(strategies_counts, "SECONDS", 60.0)
    counts = f"shop, {OVERLAP}"
    exact = np.array(in_rho.rows(f"SELECT {counts} FROM visits GROUP BY shop ORDER BY shop"), np.float64)[:, 1:]
    asked = "rho = 0.005, refresh = 'r{}'"
    order = "GROUP BY shop ORDER BY shop"
    noise = np.concatenate([np.array(in_rho.dp(ASK.format(asked.format(n), counts, order)), np.float64)[:, 1:] - exact
                            for n in range(12)])  # fmt: skip
    found = plan_of(in_rho.con, ASK.format(asked.format(0), counts, order))
    answers = np.zeros((3, found.measures[0].measure.noisy_tables))
    for number, use in enumerate(found.uses):
        answers[number, list(use.tables)] = [float(weight) for weight in use.weights]
    covariance = answers @ answers.T * found.measures[0].plan.variances[0]
    low, high = chi2.ppf([1e-9, 1 - 1e-9], noise.size)

    def squares(matrix: np.ndarray) -> float:
        return float(np.einsum("ij,jk,ik->", noise, np.linalg.inv(matrix), noise))

    assert low < squares(covariance) < high
    assert not low < squares(np.eye(3) * 3 * 100) < high
    statement = ASK.format("rho = 0.005", counts, "GROUP BY shop")
    errors = [row[3] for row in in_rho.con.execute("FROM dp_errors(?)", [statement]).fetchall()]
    assert errors == pytest.approx(np.sqrt(covariance.diagonal()).tolist(), rel=1e-3)  # four digits are shown


STATEMENTS = (
    ("count_if(flag), count_if(NOT flag), count_if(flag IS NULL)", ""),
    ("count(*), count_if(ward = 'w0'), count_if(ward IS NULL), count_if(flag AND ward IN ('w0', 'w1'))", ""),
    ("count_if(sex = 'F'), count_if(sex = 'M'), sum(dec)", "GROUP BY ward"),
    ("sum(CASE WHEN sex = 'F' THEN 1 ELSE 0 END), count_if(sex = 'M'), avg(big)", "GROUP BY CUBE (ward, flag)"),
    ("count_if(text = 'a'), count_if(text IN ('a', 'b')), count_if(text IN ('b', 'c')), count_if(text = 'a')", ""),
)


@pytest.mark.parametrize("price", ["epsilon = 1", "rho = 1"])
@pytest.mark.parametrize(("aggregates", "grouping"), STATEMENTS)
def test_no_unit_moves_answers_by_more_than_their_norms(
    stays: duckdb.DuckDBPyConnection, aggregates: str, grouping: str, price: str
) -> None:
    """Neighbours without a unit of up to three rows differ by no more than the price assumes, in L1, in L2 and in any
    single answer."""
    statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) {aggregates} FROM stays {grouping}"
    assert any(one.measure.strategy for one in plan_of(stays, statement).measures)
    compared, beyond = moves_beyond_norms(stays, statement)
    assert compared > 0 and beyond == []


def test_the_digest_is_of_the_statement(visits: Clinic) -> None:
    """The digest has no plan of counts, so that stored answers are found again."""
    request = plan_of(visits.con, ASK.format("epsilon = 1", PIVOT, "")).request
    assert request.question.together
    alone = replace(request, question=replace(request.question, together=()))
    assert alone.digest() == request.digest()


def test_other_aggregates_have_their_part_of_the_price(visits: Clinic) -> None:
    """Counts that are planned together add up their weights: two of weight 1 count as one of weight 2."""
    two = "count_if(x = 1), count_if(x = 2), avg(age)"
    parts = [one.measure.share for one in plan_of(visits.con, ASK.format("epsilon = 1", two, "")).measures]
    weighed = ASK.format("epsilon = 1, aggregate_weights = (2, 1)", "count_if(x = 1), avg(age)", "")
    others = [one.measure.share for one in plan_of(visits.con, weighed).measures]
    assert sorted(parts) == pytest.approx(sorted(others), rel=1e-6)
    errors = [
        row[3] for row in visits.con.execute("FROM dp_errors(?)", [ASK.format("epsilon = 1", two, "")]).fetchall()
    ]
    single = visits.con.execute("FROM dp_errors(?)", [weighed]).fetchall()[0][3]
    assert errors[0] == errors[1] == pytest.approx(single, rel=1e-6)


def test_counts_alone_where_nothing_is_gained(in_rho: Clinic) -> None:
    """Two conditions that are met or not independently cost the same by themselves, and are counted as before."""
    statement = ASK.format("epsilon = 1", "count(*) FILTER (WHERE x = 1), count(*) FILTER (WHERE sex = 'F')", "")
    assert joint(in_rho, statement) == [] and plan_of(in_rho.con, statement).request.question.together == ()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("epsilon = 1, nonnegative = TRUE", {"each count"}),
        ("epsilon = 1, integer = TRUE", {"each count"}),
        ("rho = 1, consistency = 'none'", {"each count"}),
        ("rho = 1", {"a strategy that was searched for"}),
        ("epsilon = 1", {"each kind of rows"}),
        ("epsilon = 1, strategy = 'I'", set()),
    ],
)
def test_options_are_obeyed(in_rho: Clinic, options: str, names: set[str]) -> None:
    """Options that change each answer by itself have each count measured. With a strategy counts stay alone."""
    text = "count_if(flag), count_if(NOT flag), count_if(ward = 'a'), count_if(ward = 'b')"
    statement = ASK.format(options, text, "")
    assert {one.strategy.name for one in joint(in_rho, statement) if one.strategy is not None} == names
    (row,) = in_rho.dp(statement)
    exact = in_rho.rows(f"SELECT {text} FROM visits")[0]
    assert [abs(one - other) < 60 for one, other in zip(row, exact, strict=True)] == [True] * 4
    whole = options != "epsilon = 1, nonnegative = TRUE" and names != {"a strategy that was searched for"}
    assert all(isinstance(one, int) for one in row) == whole


def test_beyond_the_limits_counts_stay_alone(visits: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many combinations of columns are planned by column, and too many kinds of rows in several groups."""
    text = (
        "count_if(flag), count_if(NOT flag), count_if(ward = 'a'), count_if(ward = 'b'), count_if(flag AND ward = 'c')"
    )
    statement = ASK.format("epsilon = 1", text, "")
    (whole,) = joint(visits, statement)
    assert whole.kinds is not None and len(whole.kinds.columns) == 2
    monkeypatch.setattr(together, "MOST_CELLS", 10)
    parts = joint(visits, statement)
    assert [len(one.kinds.columns) for one in parts if one.kinds is not None] == [1, 1]
    monkeypatch.setattr(together, "MOST_CELLS", 2)
    assert joint(visits, statement) == []
    monkeypatch.undo()
    monkeypatch.setattr(together, "MOST_KINDS", 3)
    parts = joint(visits, statement)
    assert len(parts) > 1 and all(one.kinds is not None and one.kinds.kinds <= 3 for one in parts)
    monkeypatch.setattr(together, "MOST_PARTS", 0)
    assert joint(visits, statement) == []


def test_explain_says_how_counts_are_planned(visits: Clinic) -> None:
    """One sentence for each group, and the bound that follows."""
    note, bounds = visits.con.execute(
        "SELECT note, bounds FROM dp_explain(?) WHERE chosen", [ASK.format("epsilon = 1", PIVOT, "")]
    ).fetchall()[0]
    assert (
        "10 counts are planned together: their conditions tell 10 kinds of rows apart, one row is in at most 1 of the "
        "counts, and what is measured is each count" in note
    )
    assert "10 counts together, of which one row is in at most 1, over all rows" in bounds and "100 %" in bounds


def test_what_is_known_from_counts_together(visits: Clinic) -> None:
    """Each count, their sums and sums of CASE are known from one release. Counts that it does not determine are not."""
    visits.dp(ASK.format("epsilon = 1", f"{PIVOT}, count_if(flag), count_if(NOT flag), avg(age)", ""))
    assert (
        len(joint(visits, ASK.format("epsilon = 1", f"{PIVOT}, count_if(flag), count_if(NOT flag), avg(age)", ""))) == 2
    )
    single = visits.con.execute("FROM dp_known('SELECT count_if(x = 3) AS n FROM visits')").fetchall()[0]
    summed = visits.con.execute(
        "FROM dp_known('SELECT sum(CASE WHEN x IN (3, 4) THEN 1 END) AS n FROM visits')"
    ).fetchall()[0]
    assert (
        single[0]
        == visits.dp(ASK.format("epsilon = 1", f"{PIVOT}, count_if(flag), count_if(NOT flag), avg(age)", ""))[0][3]
    )
    assert summed[1] == pytest.approx(single[1] * sqrt(2), rel=1e-9)
    everything = visits.con.execute("FROM dp_known('SELECT count(*) AS n FROM visits')").fetchall()[0]
    assert "rows with x outside of its domain are not counted" in everything[-1]
    for text in ("count_if(flag AND x = 1)", "count_if(flag IS NULL)"):
        with pytest.raises(duckdb.Error, match="no release"):
            visits.con.execute(f"FROM dp_known('SELECT {text} AS n FROM visits')")


def test_standard_errors_of_sums_of_groups(visits: Clinic) -> None:
    """dp_stderr_of adds up groups of each count, of which some are sums of several kinds of rows."""
    text = "shop, count_if(flag) AS a, count_if(flag OR ward = 'a') AS b, count_if(ward = 'a') AS c"
    statement = ASK.format("epsilon = 1", text, "GROUP BY shop")
    visits.dp(statement)
    name = visits.value("SELECT name FROM dp_releases()")
    errors = [row[3] for row in visits.con.execute("FROM dp_errors(?)", [statement]).fetchall()]
    for number, error in enumerate(errors, 1):
        found = visits.con.execute(
            f"FROM dp_stderr_of('{name}', 'CASE WHEN shop < 4 THEN 1 END', aggregate := {number})"
        ).fetchall()[0]
        assert found[1] == pytest.approx(2 * error, rel=1e-3)  # four digits are shown
    assert len(set(errors)) > 1


def test_counts_over_very_many_combinations_are_known_one_by_one(visits: Clinic) -> None:
    """Conditions over 20,000 combinations of four columns are kept as they are: each is known, others are not."""
    cell = "x = {0} AND shop = {0} AND ward = 'a' AND age >= 10 AND age < 20"
    counts = ", ".join(f"count_if({cell.format(number)}) AS n{number}" for number in range(1, 6))
    statement = ASK.format("epsilon = 1", counts, "")
    (measure,) = joint(visits, statement)
    assert measure.kinds is not None and len(measure.kinds.codes) == 20_000 and measure.kinds.kinds == 6
    (row,) = visits.dp(statement)
    question = "SELECT count_if({}) AS n, dp_stderr(n) AS e FROM visits"
    for number in (1, 4):
        found = visits.con.execute("FROM dp_known(?)", [question.format(cell.format(number))]).fetchall()[0]
        assert found[0] == row[number - 1] and found[1] == pytest.approx(1.357, rel=1e-3)
    with pytest.raises(duckdb.Error, match="no release"):
        visits.con.execute("FROM dp_known(?)", [question.format(cell.format(6))])
