"""dp_errors and the note of dp_explain: how far each aggregate will be off, what helps most, and by how much."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from math import sqrt
from typing import Any

import duckdb
import pytest

import dpduck
from tests.support.clinics import Clinic, one_line

MORE = "DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 10, CLAMP charge BETWEEN 0 AND 1000"
ALL = "sex, count(*) AS n, sum(charge) AS s, avg(charge) AS a, stddev(charge) AS d, median(charge) AS m"
ROWS = ", EXPECT ROWS 20000"
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({}) {} FROM visits GROUP BY {}"
NAMES = ("count(*)", 'sum("charge")', 'avg("charge")', 'stddev("charge")', 'median("charge")')


@pytest.fixture
def visits(open_clinic: Callable[..., Clinic]) -> Clinic:
    """20,000 visits of 5,000 patients. Charges are spread evenly, and some are missing."""
    clinic = open_clinic()
    clinic.con.execute(
        "CREATE TABLE visits AS SELECT i // 4 AS patient, hash(i, 1) % 2 AS sex, hash(i, 2) % 100 AS age, "
        "CASE WHEN i % 50 > 0 THEN hash(i, 3) % 1001 END AS charge FROM range(20000) AS r(i)"
    )
    return protected(clinic)


def protected(clinic: Clinic, most_rows: int = 4, budget: str = "epsilon = 100", tail: str = ROWS) -> Clinic:
    clinic.dp(f"CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS {most_rows}, "
              f"BUDGET ({budget}), {MORE}{tail})")  # fmt: skip
    return clinic


def errors(clinic: Clinic, statement: str) -> dict[str, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in clinic.con.execute("FROM dp_errors(?)", [statement]).fetchall()}


def note(clinic: Clinic, statement: str) -> str:
    return str(clinic.con.execute("SELECT note FROM dp_explain(?) WHERE chosen", [statement]).fetchall()[0][0])


def test_every_aggregate_has_an_error_of_its_own(visits: Clinic) -> None:
    """One line an aggregate, narrow, none of them 0. Errors that depend on the answers are NULL without EXPECT ROWS."""
    statement = ASK.format("epsilon = 1", ALL, "sex")
    found = errors(visits, statement)
    assert tuple(found) == NAMES and all(line[:2] == (2, 10000.0) for line in found.values())
    assert all(0 < line[2] <= (line[3] or line[2]) for line in found.values())
    assert [line[3] is None for line in found.values()] == [False, False, True, True, True]  # of the smallest cell
    times = re.fullmatch(r"(\d+)/n", found[NAMES[2]][4])
    assert times is not None and float(times[1]) / 10_000 == pytest.approx(found[NAMES[2]][2], rel=0.01)
    shown = str(visits.con.sql("FROM dp_errors(?)", params=[statement]))
    assert max(map(len, shown.splitlines())) <= 80
    only = ASK.format("epsilon = 1", "sex, avg(charge) AS a", "sex")
    stated = "SELECT worst_stderr FROM dp_explain(?) WHERE chosen"
    assert visits.con.execute(stated, [only]).fetchall()[0][0] == pytest.approx(
        errors(visits, only)[NAMES[2]][2], rel=1e-3
    )
    protected(visits, tail="")
    found = errors(visits, statement)
    assert [found[name][2] is None for name in NAMES] == [False, False, True, True, True]
    assert visits.con.execute(stated, [only]).fetchall() == [(None,)]
    assert f"worst_stderr is that of {NAMES[1]}" in note(visits, statement)


def test_errors_are_those_of_the_answer(visits: Clinic) -> None:
    """On a table as the policy expects it, foreseen errors are those of the answer, within a quarter.

    The standard errors of answers are functions of noisy rows, 10,000 a cell against noise of tens: their own noise is
    below a hundredth. A quantile's is of whole buckets, between which the tree's noise differs: a factor of three. A
    line for a sum in an average's place, or EXPECT ROWS for each cell, fails.
    """
    price = "epsilon = 1, quantiles = 'tree'"  # a chosen quantile has no standard error
    foreseen = errors(visits, ASK.format(price, ALL, "sex"))
    asked = ALL + "".join(f", dp_stderr({name}) AS {name}_e" for name in "nsadm")
    rows = visits.dp(ASK.format(price, asked, "sex"))
    for place, name in enumerate(NAMES):
        told = sqrt(sum(row[6 + place] ** 2 for row in rows) / len(rows))
        within = 3 if name == NAMES[-1] else 1.25
        assert 1 / within < foreseen[name][2] / told < within, name


def offered(text: str) -> dict[str, float]:
    """Returns the changes that a note offers, with the per cents that an answer would be off by."""
    return {change.rstrip(","): float(figure) for change, figure in re.findall(r"with ([^;]+?),? ([\d.e-]+) %", text)}


def test_what_helps_is_what_it_is_said_to_be(visits: Clinic) -> None:
    """Each change that a note offers leads to the figure in the note."""
    protected(visits, budget="epsilon = 100, delta = 1e-6")
    text = note(visits, ASK.format("epsilon = 1", "age, count(*) AS n", "age"))
    now = re.search(r"a cell of 2000 rows is off by ([\d.]+) %", text)
    offers = offered(text)
    assert now is not None and len(offers) == 3
    assert {re.sub(r"[\d.]+", "..", name) for name in offers} == {
        "no age (.. values)", "bins of age twice as wide", "MAX ROWS .. in the policy, which leaves rows out"
    }  # fmt: skip
    flat = visits.con.execute("FROM dp_errors(?)", [ASK.format("epsilon = 1", "count(*) AS n", "()")]).fetchall()
    assert 100 * flat[0][3] / 20000 == pytest.approx(offers["no age (10 values)"], rel=0.02)
    visits.dp("ALTER PRIVACY POLICY ON visits SET DOMAIN age RANGE 0 TO 100 STEP 20")
    wide = errors(visits, ASK.format("epsilon = 1", "age, count(*) AS n", "age"))[NAMES[0]]
    assert 100 * wide[2] / wide[1] == pytest.approx(offers["bins of age twice as wide"], rel=0.02)
    protected(visits, most_rows=2, budget="epsilon = 100, delta = 1e-6")
    fewer = errors(visits, ASK.format("epsilon = 1", "age, count(*) AS n", "age"))[NAMES[0]]
    assert 100 * fewer[2] / 2000 == pytest.approx(offers["MAX ROWS 2 in the policy, which leaves rows out"], rel=0.02)


GRID = [
    "sex, count(*) AS n, sum(charge) AS s FROM visits GROUP BY sex",
    "sex, sum(charge) AS s, count(*) AS n FROM visits GROUP BY sex",
    "sex, age, count(*) AS n, avg(charge) AS s FROM visits GROUP BY CUBE (sex, age)",
    "sex, count(*) AS n, count(DISTINCT patient) AS s FROM visits GROUP BY sex",
    "age, count(*) AS n, count(DISTINCT sex) AS s FROM visits GROUP BY age",
    "sex, avg(charge) AS s, stddev(charge) AS t FROM visits GROUP BY sex",
    "sex, count(*) AS n, median(charge) AS s FROM visits GROUP BY sex",
    "count(*) FILTER (WHERE charge > 500) AS n, count(*) FILTER (WHERE sex = 1) AS m FROM visits",
    "sum(charge) AS s FROM visits",
]


def relative(clinic: Clinic, statement: str) -> list[float]:
    """Errors relative to the rows of a cell. Errors of other aggregates stay absolute."""
    rows = clinic.con.execute("FROM dp_errors(?)", [statement]).fetchall()
    added = [line[0].startswith(("count", "sum")) for line in rows]
    return [line[3] / line[2] if of_rows else line[3] for line, of_rows in zip(rows, added, strict=True)]


def test_advice_is_true_of_every_aggregate(visits: Clinic) -> None:
    """A change that a note offers divides every aggregate's error by its factor or more, as dp_errors says, and one
    error by exactly this factor. All kinds of aggregates, at pure prices and others."""
    protected(visits, budget="epsilon = 30, delta = 1e-5")
    seen = 0
    for price, asked in product(("epsilon = 1", "epsilon = 1, delta = 1e-6"), GRID):
        statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) {asked}"
        before = relative(visits, statement)
        for times, change in OFFER.findall(note(visits, statement)):
            other = statement.replace(price, change[9:-1])
            if change.startswith("MAX ROWS"):
                other = statement.replace(price, f"{price}, max_rows_contributed = {change[9:]}")
            elif change == "no sex":
                other = statement.replace("CUBE (sex, age)", "CUBE (age)").replace(" sex,", " ")
                other = other.removesuffix("GROUP BY sex")
            gains = [one / two for one, two in zip(before, relative(visits, other), strict=True)]
            assert min(gains) == pytest.approx(float(times), rel=0.06), (statement, change, gains)
            seen += 1
    assert seen > 20


OFFER = re.compile(r"([\d.e+]+) times smaller with (OPTIONS \([^)]*\)|MAX ROWS \d+|no sex)")


def test_a_chosen_quantile_errs_as_its_law_says(visits: Clinic) -> None:
    """Half of epsilon 1 over 4 rows a unit gives a Laplace law of 8 ranks, not the worst-case bound over all tables."""
    statement = ASK.format("epsilon = 1, quantiles = 'choice'", "sex, median(charge) AS m", "sex")
    typical = errors(visits, statement)[NAMES[4]][2]
    assert typical == pytest.approx(sqrt(2) * 8 / 10_000 * 1000, rel=0.01)
    stated = "SELECT worst_stderr FROM dp_explain(?) WHERE chosen"
    assert visits.con.execute(stated, [statement]).fetchall()[0][0] == pytest.approx(typical, rel=1e-3)


def test_the_noise_of_a_delta_is_offered_at_the_same_cost(visits: Clinic) -> None:
    """OPTIONS (rho = ..) of the note costs as much as the statement, and errs as the note says."""
    protected(visits, most_rows=1, budget="epsilon = 100, delta = 1e-6")
    statement = ASK.format("epsilon = 1", "count(*) AS n", "()")
    (offer,) = [(name, figure) for name, figure in offered(note(visits, statement)).items() if "rho" in name]
    rho = re.findall(r"rho = ([\d.]+)", offer[0])[0]
    priced = "SELECT rho FROM dp_explain(?) WHERE chosen"
    other = ASK.format(f"rho = {rho}", "count(*) AS n", "()")
    assert visits.con.execute(priced, [statement]).fetchall()[0][0] == pytest.approx(float(rho), rel=1e-3)
    assert 100 * errors(visits, other)[NAMES[0]][2] / 20000 == pytest.approx(offer[1], rel=0.02)


def test_letters_are_spelled_out(visits: Clinic) -> None:
    """Every strategy of a cube describes its measurements."""
    statement = ASK.format("epsilon = 1", "sex, age, count(*) AS n", "CUBE (sex, age)")
    rows = visits.con.execute("SELECT strategy, note FROM dp_explain(?)", [statement]).fetchall()
    words = {"I": "identity: ", "O": "views: ", "Q": "marginals: ", "C": "clustering: ", "F": "fourier: "}
    assert {row[0].rstrip("+") for row in rows} == set(words)
    assert all(row[1].startswith(words[row[0].rstrip("+")]) for row in rows)


def test_noise_above_expect_rows_is_said_before_the_charge() -> None:
    """A statement that is noise alone says so in a step, and then charges. Another statement does not."""
    steps: list[str] = []
    with duckdb.connect() as con:
        dpduck.load(con, steps=steps.append)
        con.execute("CREATE TABLE visits AS SELECT range AS patient FROM range(100)")
        policy = "PRIVACY UNIT patient MAX ROWS 1, BUDGET (epsilon = 10), EXPECT ROWS 100"
        con.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON visits ({policy})"]).fetchall()
        for epsilon, said in (("1", False), ("0.001", True)):
            steps.clear()
            con.execute("FROM dp(?)", [ASK.format(f"epsilon = {epsilon}", "count(*) AS n", "()")]).fetchall()
            warned = [place for place, step in enumerate(steps) if "EXPECT ROWS 100" in step]
            assert bool(warned) == said
        assert warned[0] < steps.index("before the charge")


def test_what_has_no_aggregates_is_sent_to_dp_explain(visits: Clinic) -> None:
    """A statement without the errors of aggregates is refused, with a hint at dp_explain."""
    visits.dp("ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 100, delta = 1e-6)")
    sparse = "CREATE PRIVATE HISTOGRAM h OPTIONS (epsilon = 1, sparsity = 3, queries = 9) ON visits (sex)"
    with pytest.raises(duckdb.Error) as caught:
        visits.con.execute("FROM dp_errors(?)", [sparse])
    assert one_line(caught.value) == "this statement has no errors by aggregate; accepted: dp_explain of it"


@pytest.mark.parametrize("options", ["group_selection_strategy = GAUSSIAN_THRESHOLD", "summary = 'filter_priority'"])
def test_noise_above_the_expected_rows_is_said_of_other_mechanisms(visits: Clinic, options: str) -> None:
    """Mechanisms that foresee no errors by aggregate say so by their worst one."""
    protected(visits, budget="epsilon = 100, delta = 1e-6, delta_keys = 5e-7")
    priced = "delta = 1e-8, " if "GAUSSIAN" in options else ""
    counts = "sex, count(*) AS n", "sex"
    dear, cheap = (ASK.format(f"epsilon = {one}, {priced}{options}", *counts) for one in ("1", "0.0001"))
    assert "larger than EXPECT ROWS" not in note(visits, dear)
    assert "larger than EXPECT ROWS 20000" in note(visits, cheap)
