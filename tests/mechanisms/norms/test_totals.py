"""total = TRUE and left_out = TRUE: cells are brought to a total, and intervals hold what norms leave out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import isqrt, sqrt
from typing import Any

import numpy as np
import pytest

import dpduck
from dpduck.auditor.neighbours import require_database
from dpduck.database.functions import OWNER
from dpduck.kernel.contributions import FULL, Contribution
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.door import Door
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, price
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.norms import NORMS
from dpduck.mechanisms.norms.plan import LEFT_OUT, TOTAL, TOTAL_SEARCH, NormProposal
from dpduck.mechanisms.norms.search import WHOLE
from dpduck.mechanisms.norms.totals import Summed, _brought, _with_left_out
from dpduck.values.errors import InternalError
from tests.support.clinics import Clinic

MOST, GROUPS = 100, 12
POLICY = (
    f"CREATE PRIVACY POLICY ON trips (PRIVACY UNIT person MAX ROWS {MOST}, BUDGET (rho = 100000), "
    f"DOMAIN month RANGE 0 TO {GROUPS} STEP 1, DOMAIN town IN ('a', 'b', 'c') WITH NULL, "
    "CLAMP price BETWEEN 0 AND 90 STEP 1, CLAMP loss BETWEEN -10 AND 10 STEP 1)"
)
ROWS = (
    "CREATE TABLE trips AS SELECT CASE WHEN range % 97 = 0 THEN NULL WHEN range < 1500 THEN range % 15 "
    "ELSE 100 + range % 900 END AS person, CAST(range * 31 % 13 AS INTEGER) AS month, "
    "['a', 'b', 'c', NULL, 'x'][range * 7 % 5 + 1] AS town, CAST(range % 5 AS INTEGER) AS loss, "
    "CASE WHEN range % 17 = 0 THEN NULL ELSE range * 13 % 120 - 15 END AS price FROM range(6000)"
)
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = {}, max_norm_contributed = {}{}) "
SELECT = "month, count(*) AS n, count(DISTINCT person) AS p, sum(price) AS s FROM trips GROUP BY month"


@pytest.fixture(scope="module")
def trips() -> Iterator[Clinic]:
    """900 people with five trips each, and 15 with a hundred, among texts and NULLs."""
    with dpduck.connect() as connection:
        made = Clinic(connection)
        made.con.execute(ROWS)
        made.dp(POLICY)
        yield made


def proposal_of(clinic: Clinic, more: str, norm: object = "'private'", select: str = SELECT) -> NormProposal:
    question, _ = require_database(clinic.con).question_of(CLAUSE.format(1, norm, more) + select, OWNER)
    assert NORMS.serves(question) and isinstance(question, SelectRequest)
    return NORMS.plan(question)


@pytest.mark.parametrize("norm", ["'private'", 5])
@pytest.mark.parametrize("more", [", total = TRUE", ", left_out = TRUE", ", total = TRUE, left_out = TRUE"])
def test_all_of_it_costs_what_the_statement_says(trips: Clinic, more: str, norm: object) -> None:
    """Searches, totals, sums and answers together cost the price, and hardly less."""
    proposal = proposal_of(trips, more, norm)
    assert Fraction(999_990, 1_000_000) < price(NORMS.asks(proposal)).rho <= 1
    assert len(proposal.totals) == (3 if "total" in more else 0)
    assert len(proposal.sums) == (3 if "left_out" in more else 0)
    for total in proposal.totals.values():
        assert total.answer.cost.rho == total.search.price / TOTAL_SEARCH * TOTAL
    for ask in proposal.sums.values():
        assert ask.cost.rho < LEFT_OUT


def test_noise_that_cannot_be_drawn_is_refused_before_the_charge(trips: Clinic) -> None:
    """At a norm that is stated, squares of many steps need more noise than 64 bits hold. Nothing is charged."""
    select = "month, count(*) AS n, var_pop(price, contribution_bounds_per_row => (0, 5000)) AS v FROM trips GROUP BY 1"
    said = trips.refused(CLAUSE.format("0.001", MOST, ", total = TRUE") + select)
    assert "at this price the noise would not fit 64-bit numbers" in said


def exact(clinic: Clinic, job: CountingJob) -> Any:
    return count_exactly(clinic.con.cursor(), job, bytes(32))._exact_counts


UNITS = {  # each unit's contribution to all cells together
    "count": "count(*)",
    "persons": "count(DISTINCT month)",
    "sum": "ifnull(sum(greatest(0, least(90, price))) FILTER (WHERE price IS NOT NULL), 0)",
}


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("norm", [1, 49, 2500, 10**6])
def test_a_total_is_the_sum_of_weighed_people(trips: Clinic, place: int, norm: int) -> None:
    """Each person's integers over all cells are one number, times the largest weight that its norm allows."""
    weighed = proposal_of(trips, ", total = TRUE").totals[place].job
    job = replace(weighed, aggregates=(replace(weighed.aggregates[0], norm=norm),))
    told = list(UNITS.values())[place]
    added = trips.rows(
        f"SELECT person, CAST({told} AS BIGINT) FROM trips WHERE person IS NOT NULL AND month BETWEEN 0 AND 11 "
        "GROUP BY person"
    )
    expected = sum(min(FULL, isqrt(FULL * FULL * norm // one**2) if one else FULL) * one for _, one in added)
    assert exact(trips, job).tolist() == [[expected]]


@pytest.mark.parametrize("place", range(3))
def test_a_person_moves_a_total_by_no_more_than_its_bound(trips: Clinic, place: int) -> None:
    """Without the person who has most, and without one who has few."""
    weighed = proposal_of(trips, ", total = TRUE").totals[place].job
    for norm in (1, 100, 10**5):
        job = replace(weighed, aggregates=(replace(weighed.aggregates[0], norm=norm),))
        (bound,) = job.unit_bounds
        before, moved = exact(trips, job), set()
        for person in (3, 500):
            trips.con.execute(f"CREATE OR REPLACE TEMP TABLE kept AS FROM trips WHERE person = {person}")
            trips.con.execute(f"DELETE FROM trips WHERE person = {person}")
            moved.add(int((before - exact(trips, job))[0, 0]))
            trips.con.execute("INSERT INTO trips FROM kept")
        assert 0 < max(moved) <= bound <= FULL * isqrt(norm) + FULL
        assert norm > 1 or max(moved) > 0.9 * bound, "the bound is nearly reached"


def test_cells_together_have_a_norm_and_no_attributes(trips: Clinic) -> None:
    """A job without weights cannot count cells together, nor can one with attributes."""
    job = proposal_of(trips, ", total = TRUE").totals[0].job
    with pytest.raises(InternalError):
        exact(trips, replace(job, aggregates=(Contribution(),)))
    with pytest.raises(InternalError):
        replace(proposal_of(trips, ", total = TRUE").job, together=True)


def test_no_other_total_is_admitted(trips: Clinic) -> None:
    """The door prices a total by its own job, and admits no rows but those of its family."""
    proposal = proposal_of(trips, ", total = TRUE")
    total = proposal.totals[0]
    (bound,), rho = total.job.unit_bounds, total.search.price / TOTAL_SEARCH * TOTAL
    noise = Noise(NoiseKind.GAUSSIAN, bound * bound / (2 * rho))
    family = total.answer

    def admitted(job: CountingJob, one: Noise) -> None:
        door = Door(NORMS.asks(proposal), lambda job: pytest.fail("counted"), None)  # type: ignore[arg-type]
        door.admit(Ask(replace(family.scan, job=job, tables=range(1)), WHOLE, one), family)

    admitted(total.job, noise)
    for job, one in (
        (total.job, Noise(NoiseKind.GAUSSIAN, noise.parameter * Fraction(999, 1000))),
        (replace(total.job, aggregates=(replace(total.job.aggregates[0], norm=4),)), noise),
        (replace(total.job, max_rows=MOST + 1), noise),
        (replace(total.job, together=False), noise),
        (proposal.job, noise),
    ):
        with pytest.raises(InternalError):
            admitted(job, one)


def test_cells_are_brought_to_a_larger_total_alone() -> None:
    """Answers grow by T / Z, their errors by the errors of both, and nothing happens where Z is noise or T smaller."""
    kept, errors = np.array([60.0, 40.0]), np.array([5.0, 5.0])
    cells = Summed(100.0, 50.0, 1.0)
    times, grown = _brought(cells, Summed(150.0, 9.0, 1.0), kept, errors)
    assert times == 1.5
    by_hand = 2.25 * (25 - 2 * 0.6 * 25 + 0.36 * 50) + 0.36 * 9
    assert grown[0] == pytest.approx(sqrt(by_hand))
    for other in (
        _brought(cells, Summed(90.0, 9.0, 1.0), kept, errors),
        _brought(Summed(20.0, 50.0, 1.0), cells, kept, errors),
    ):
        assert other[0] == 1.0 and other[1].tolist() == errors.tolist()


def test_the_error_of_a_grown_answer_is_that_of_its_formula() -> None:
    """20,000 draws of two cells and a total: the mean squared error is within 5 % of the stated one.

    False alarms: the standard error of a variance of so many normal draws is 1 %, a fifth of the bar, and the seed is
    fixed.
    """
    drawn, exact_cells = np.random.default_rng(4), np.array([3000.0, 1000.0])
    cells = exact_cells + drawn.normal(0, 20, (20_000, 2))
    totals = 6000 + drawn.normal(0, 50, 20_000)
    grown = cells * (totals / cells.sum(axis=1))[:, None]
    _, stated = _brought(Summed(4000.0, 800.0, 1.0), Summed(6000.0, 2500.0, 1.0), exact_cells, np.array([20.0, 20.0]))
    assert np.allclose(grown.std(axis=0), stated, rtol=0.05)


def test_upper_ends_hold_what_is_left_out_in_proportion() -> None:
    """Of 1,000 rows 400 are left out: an upper end grows by two thirds, and by the noise of both sums."""
    highs = np.array([[66.0, 6.0]] * 7)
    held = _with_left_out(Summed(600.0, 0.0, 1.0), Summed(1000.0, 1e-12, 1.0), highs, NoiseKind.GAUSSIAN)
    assert np.allclose(held, highs * (1 + 400 / 600), atol=0.3)
    wide = _with_left_out(Summed(600.0, 0.0, 1.0), Summed(1000.0, 100.0**2, 1.0), highs, NoiseKind.GAUSSIAN)
    assert (wide > held).all()
    nothing = _with_left_out(Summed(1.0, 100.0, 1.0), Summed(1000.0, 1.0, 1.0), highs, NoiseKind.GAUSSIAN)
    assert (nothing > highs + 998).all(), "all of it may be in any cell"


INTERVALS = "dp_interval_low({0}) AS {0}_low, dp_interval_high({0}) AS {0}_high"


def test_intervals_hold_true_counts(trips: Clinic) -> None:
    """Norm 3 leaves out two thirds of the heavy people's rows. No cell is outside its interval, at 0.999999.

    False alarms: each of 36 intervals misses once in a million by noise, and two runs in a row would have to.
    """
    told = ", ".join(INTERVALS.format(name) for name in ("n", "p", "s"))
    aggregates = "month, count(*) AS n, count(DISTINCT person) AS p, sum(price) AS s"
    truths = {
        row[0]: row[1:]
        for row in trips.rows(
            "SELECT month, count(*), count(DISTINCT person), "
            "sum(greatest(0, least(90, price))) FILTER (WHERE price IS NOT NULL) FROM trips "
            "WHERE person IS NOT NULL AND month < 12 GROUP BY month"
        )
    }
    inside, missed = [], 0
    for number in range(2):
        more = f", left_out = TRUE, confidence = 0.999999, refresh = '{number}'"
        rows = trips.dp(CLAUSE.format(20, 3, more) + f"{aggregates}, {told} FROM trips GROUP BY month")
        assert len(rows) == GROUPS
        inside.append(all(row[4 + 2 * k] <= truths[row[0]][k] <= row[5 + 2 * k] for row in rows for k in range(3)))
        missed += sum(row[1] + (row[5] - row[1]) * 0.1 < truths[row[0]][0] for row in rows)
    assert any(inside)
    assert missed > 0, "a norm that leaves nothing out would show nothing"


def test_a_total_brings_cells_near_the_truth(trips: Clinic) -> None:
    """At a price of 100 the total is all but exact: cells that lost half of their rows add up to it within 2 %."""
    (without,) = trips.dp(
        f"SELECT sum(n) FROM ({CLAUSE.format(100, 3, '')} month, count(*) AS n FROM trips GROUP BY month)"
    )
    (brought,) = trips.dp(
        f"SELECT sum(n) FROM ({CLAUSE.format(100, 3, ', total = TRUE')} month, count(*) AS n FROM trips GROUP BY month)"
    )
    truth = trips.value("SELECT count(*) FROM trips WHERE person IS NOT NULL AND month < 12")
    assert abs(brought[0] - truth) < 0.02 * truth < 0.2 * truth < truth - without[0]


REFUSED = {
    "(rho = 1, total = TRUE) month, count(*)": "max_norm_contributed = 30 or 'private'",
    "(rho = 1, max_norm_contributed = 5, left_out = TRUE) month, sum(loss)": "BETWEEN 0 AND",
    "(rho = 1, max_norm_contributed = 5, left_out = TRUE) month, avg(price)": "avg beside them",
    "(rho = 1, max_norm_contributed = 5, total = TRUE) month, avg(price), sum(price)": "avg beside them",
    "(target_stderr = 9, max_norm_contributed = 5, total = TRUE) month, count(*)": "epsilon and delta, or rho",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_totals_do_not_go_with(trips: Clinic, statement: str) -> None:
    """Each refusal names an accepted statement, before anything is charged."""
    before = trips.charges()
    said = trips.refused(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS {statement} FROM trips GROUP BY month")
    assert REFUSED[statement] in said and trips.charges() == before


def test_averages_beside_counts_are_as_they_are(trips: Clinic) -> None:
    """A count has a total and an interval that holds the missing rows, and the average beside it has its own."""
    more = ", total = TRUE, left_out = TRUE"
    proposal = proposal_of(trips, more, select="month, count(*) AS n, avg(price) AS a FROM trips GROUP BY month")
    assert list(proposal.totals) == [0] == list(proposal.sums)
    rows = trips.dp(
        CLAUSE.format(5, "'private'", more)
        + "month, count(*) AS n, avg(price) AS a, dp_interval_low(a) AS l, dp_interval_high(a) AS h, "
        "dp_interval_high(n) AS m FROM trips GROUP BY month"
    )
    assert all(low <= average <= high and n <= most for _, n, average, low, high, most in rows)
