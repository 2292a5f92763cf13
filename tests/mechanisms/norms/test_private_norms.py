"""max_norm_contributed = 'private': norms are found inside the statement, within its price, and answers follow them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import sqrt
from typing import Any

import numpy as np
import pytest

import dpduck
from dpduck.auditor.neighbours import require_database
from dpduck.database.functions import OWNER
from dpduck.kernel.columns.comparisons import Constant
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.door import Door
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, price
from dpduck.kernel.queries.operators import IdentityFactor, KroneckerQuery, MatrixFactor
from dpduck.kernel.queries.tables import Table
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.cubes.measure import scan_of
from dpduck.mechanisms.norms import NORMS
from dpduck.mechanisms.norms.plan import CENTERS, SEARCH, NormProposal, at_norms, part_of
from dpduck.mechanisms.norms.search import found_level
from dpduck.strategies.plan import noisy_queries
from dpduck.values.errors import InternalError
from tests.support.clinics import Clinic

GROUPS, MOST = 12, 200
POLICY = (
    f"CREATE PRIVACY POLICY ON trips (PRIVACY UNIT person MAX ROWS {MOST}, BUDGET (rho = 100000), "
    f"DOMAIN month RANGE 0 TO {GROUPS} STEP 1, DOMAIN town IN ('a', 'b', 'c') WITH NULL, "
    "CLAMP price BETWEEN -10 AND 90 STEP 1)"
)
ROWS = (
    "CREATE TABLE trips AS SELECT CASE WHEN range % 97 = 0 THEN NULL ELSE (range * range) % 1510 END AS person, "
    "CAST(range * 31 % 13 AS INTEGER) AS month, ['a', 'b', 'c', NULL, 'x'][range * 7 % 5 + 1] AS town, "
    "CASE WHEN range % 17 = 0 THEN NULL ELSE range * 13 % 120 - 15 END AS price FROM range(20000)"
)
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = {}, max_norm_contributed = 'private'{}) "
SELECT = "month, count(*) AS n, avg(price) AS a, count(DISTINCT person) AS p FROM trips GROUP BY month"


@pytest.fixture(scope="module")
def trips() -> Iterator[Clinic]:
    """Some 450 people with 13 to 26 trips each, and one with 200 trips in a single month."""
    with dpduck.connect() as connection:
        made = Clinic(connection)
        made.con.execute(ROWS)
        made.con.execute("INSERT INTO trips SELECT 5000, 3, 'a', 80 FROM range(200)")
        made.dp(POLICY)
        yield made


def proposal_of(clinic: Clinic, select: str = SELECT, rho: float = 1) -> NormProposal:
    question, _ = require_database(clinic.con).question_of(CLAUSE.format(rho, "") + select, OWNER)
    assert NORMS.serves(question)
    assert isinstance(question, SelectRequest)
    return NORMS.plan(question)


def test_all_of_it_costs_what_the_statement_says(trips: Clinic) -> None:
    """Five per cent of each measure's price for its norm, the rest for the answers, and nothing beyond."""
    proposal = proposal_of(trips)
    assert price(NORMS.asks(proposal)).rho <= 1
    assert price(NORMS.asks(proposal)).rho > Fraction(999_999, 1_000_000)
    for search in proposal.searches:
        assert search.price == search.measure.share / (1 - SEARCH - CENTERS) * SEARCH
        step = Ask(search.ask.scan, Table(KroneckerQuery((), ())), Noise(NoiseKind.GAUSSIAN, search.noise))
        assert search.steps * step.cost.rho == search.price


def test_levels_are_those_of_each_unit(trips: Clinic) -> None:
    """The exact numbers of units by level, beside what SQL computes in another way."""
    proposal = proposal_of(trips)
    (rows,) = [one for one in proposal.searches if one.measure.form == "count"]
    counts = count_exactly(trips.con.cursor(), rows.job, bytes(32))
    found = dict(zip(counts._exact_coordinates[0].tolist(), counts._exact_counts[0].tolist(), strict=True))
    expected = trips.rows(
        "SELECT CASE WHEN s <= 1 THEN 0 ELSE CAST(ceil(log2(s) - 1e-9) AS INTEGER) END, "
        f"CAST(sum(greatest(1, least({rows.job.spread}, floor(a / sqrt(s) + 1e-9)))) AS BIGINT) FROM ("
        "SELECT person, sum(n * n) AS s, sum(n) AS a FROM (SELECT person, month, count(*) AS n FROM trips "
        "WHERE month < 12 AND person IS NOT NULL GROUP BY ALL) GROUP BY person) GROUP BY 1"
    )
    assert found == dict(expected)
    assert counts._unit_bounds == (rows.job.spread,) and counts._sizes == (rows.levels + 1,)


def test_a_unit_is_at_one_level(trips: Clinic) -> None:
    """Without a person, one level has less, by as much as a unit counts for at most: of counts, sums and persons."""
    for search in proposal_of(trips).searches:
        trips.con.execute("CREATE OR REPLACE TEMP TABLE kept AS FROM trips WHERE person = 5000")
        before = levels(trips, search.job)
        trips.con.execute("DELETE FROM trips WHERE person = 5000")
        after = levels(trips, search.job)
        trips.con.execute("INSERT INTO trips FROM kept")
        assert np.count_nonzero(before - after) == 1
        assert 1 <= np.abs(before - after).sum() <= search.job.spread


def levels(clinic: Clinic, job: Any) -> Any:
    counts = count_exactly(clinic.con.cursor(), job, bytes(32))
    return np.bincount(counts._exact_coordinates[0], counts._exact_counts[0], counts._sizes[0])


class Told(Door):
    """A door that answers a search by given numbers, and remembers how often it was asked."""

    def __init__(self, above: Sequence[float]) -> None:
        super().__init__([], lambda job: job, type("None_", (), {"bytes": lambda self, n: bytes(n)})())  # type: ignore[arg-type, return-value]
        self.above, self.asked = above, 0

    def admit(self, member: Ask[Any], family: Ask[None]) -> None:
        self.asked += 1

    def answer(self, ask: Ask[Any], chosen: object = None) -> Any:
        assert isinstance(ask.query, Table)
        (factor,) = ask.query.query.factors
        assert isinstance(factor, MatrixFactor)
        level = int(np.flatnonzero(factor.entries[0])[0]) - 1
        return (np.array([self.above[level]]),)


def test_a_search_ends_at_the_least_level_with_few_units_above(trips: Clinic) -> None:
    """Of exact numbers it is the first at or below the threshold. Of any numbers it asks as often as was paid for."""
    search = proposal_of(trips).searches[0]
    for first in range(search.levels + 1):
        above = search.threshold(search.levels) + 1
        numbers = [above if level < first else search.most for level in range(search.levels)]
        door = Told(numbers)
        assert found_level(search, door) == first
        assert door.asked <= search.steps
    drawn = np.random.default_rng(5)
    for _ in range(200):
        door = Told((drawn.normal(search.most, 50, search.levels)).tolist())
        assert 0 <= found_level(search, door) <= search.levels and door.asked <= search.steps


def test_a_cube_lets_fewer_units_above_its_norm(trips: Clinic) -> None:
    """Rows that a norm leaves out add up in margins: sqrt(48 m) for m = 48, 12, 4 and 1 cells, in the mean."""
    plain, cube = (
        proposal_of(trips, f"month, town, count(*) FROM trips GROUP BY {keys}").searches[0]
        for keys in ("month, town", "CUBE (month, town)")
    )
    assert cube.most / plain.most == pytest.approx((12 / 48 * 4 / 48 * 1 / 48) ** (1 / 8))


def test_half_as_many_units_are_above_a_norm_without_a_total(trips: Clinic) -> None:
    """A total brings back what large cells lose."""
    text = CLAUSE.format(1, "{}") + "month, count(*) FROM trips GROUP BY month"
    found = []
    for more in ("", ", total = TRUE"):
        question, _ = require_database(trips.con).question_of(text.format(more), OWNER)
        assert isinstance(question, SelectRequest)
        proposal = NORMS.plan(question)
        (search,) = proposal.searches
        found.append(
            search.most * sqrt(2 * float(search.price / SEARCH * part_of(proposal.shape.uses, 0, question.question)))
        )
    assert found == pytest.approx([0.8 * GROUPS / 2, 0.8 * GROUPS])


def test_the_norm_of_the_answers_is_the_one_that_was_found(trips: Clinic) -> None:
    """At a large price few people are above the norm that is found, and the error is that of the norm.

    450 people are above any norm below 4. The search wants at most 1.1, and its noise has an error of 0.9. So such a
    norm has a chance below 1e-100. No norm is above MAX ROWS.
    """
    rows = trips.dp(CLAUSE.format(100, "") + "month, count(*) AS n, dp_stderr(n) AS e FROM trips GROUP BY month")
    told = trips.value("SELECT last(strategy ORDER BY ledger_id) FROM dp_releases()")
    norm = float(told.removeprefix("I, norms "))
    assert 4 <= norm <= MOST, "people have 13 to 26 trips in 12 months, and one has 200"
    exact = dict(
        trips.rows("SELECT month, count(*) FROM trips WHERE person IS NOT NULL AND person < 5000 GROUP BY ALL")
    )
    for month, answer, error in rows:
        assert error == pytest.approx(sqrt(norm**2 / (2 * 95) + 1 / 12), rel=0.01)
        assert abs(answer - exact[month]) < 0.3 * exact[month]


def test_answers_are_charged_once_and_kept(trips: Clinic) -> None:
    """The same statement is free, and has the same answers."""
    before, statement = trips.charges(), CLAUSE.format(0.5, "") + SELECT
    first = trips.dp(statement)
    assert trips.dp(statement) == first and trips.charges() == before + 1


def test_prepared_rows_are_searched_too() -> None:
    """Levels of prepared rows are those of live ones."""
    with dpduck.connect() as connection:
        clinic = Clinic(connection)
        clinic.con.execute(ROWS)
        clinic.dp(POLICY)
        clinic.dp("ALTER PRIVACY POLICY ON trips PREPARE")
        rows = clinic.dp(CLAUSE.format(100, "") + "month, town, count(*) AS n FROM trips GROUP BY month, town")
        assert len(rows) == GROUPS * 4


def admitted(proposal: NormProposal, member: Ask[Any]) -> None:
    """Declares an answer at a door. Nobody reads its counts."""
    door = Door(NORMS.asks(proposal), lambda job: pytest.fail("counted"), None)  # type: ignore[arg-type]
    door.admit(member, proposal.answers)


def test_no_other_answers_are_admitted(trips: Clinic) -> None:
    """The door accepts only the norms, jobs and prices of the family."""
    proposal = proposal_of(trips, "month, count(*) AS n FROM trips GROUP BY month")
    plan = at_norms(proposal.request, (64,))
    (measured,) = plan.measures
    job = replace(proposal.job, aggregates=(measured.measure.contribution,))
    scan, cells = scan_of(measured, job, 0), Table(KroneckerQuery((0,), (IdentityFactor(GROUPS),)))
    noise = Noise(NoiseKind.GAUSSIAN, Fraction(measured.bounds.squared) / (2 * (1 - SEARCH)))
    admitted(proposal, Ask(scan, cells, noise))
    wrong = {
        "less noise": Ask(scan, cells, Noise(NoiseKind.GAUSSIAN, noise.parameter * Fraction(999, 1000))),
        "twice": Ask(scan, cells, noise, times=2),
        "a smaller bound": Ask(replace(scan, squared=measured.bounds.squared // 2), cells, noise),
        "another bound of all": Ask(replace(scan, l1=scan.l1 - 1), cells, noise),
        "no norm": Ask(replace(scan, job=proposal.job), cells, noise),
        "other rows": Ask(replace(scan, job=replace(job, filters=(Constant("TRUE"),))), cells, noise),
        "more rows": Ask(replace(scan, job=replace(job, max_rows=MOST + 1)), cells, noise),
        "another norm": Ask(
            replace(scan, job=replace(job, aggregates=(replace(job.aggregates[0], norm=128),))), cells, noise
        ),
        "levels": Ask(replace(scan, job=proposal.searches[0].job), cells, noise),
    }
    for name, ask in wrong.items():
        with pytest.raises(InternalError):
            admitted(proposal, ask)
            pytest.fail(name)


def test_a_search_has_no_step_that_is_not_paid_for(trips: Clinic) -> None:
    """One answer more than the steps that were paid for is refused."""
    search = proposal_of(trips).searches[0]
    door = Door([search.ask], lambda job: pytest.fail("counted"), None)  # type: ignore[arg-type]
    step = Ask(search.ask.scan, Table(KroneckerQuery((), ())), Noise(NoiseKind.GAUSSIAN, search.noise))
    for _ in range(search.steps):
        door.admit(replace(step), search.ask)
    with pytest.raises(InternalError, match="beyond its family"):
        door.admit(replace(step), search.ask)


def test_noise_leads_to_no_far_too_large_norm(trips: Clinic) -> None:
    """Where nobody is above the fourth level, few searches end more than six levels higher.

    Of 2,000 searches with fixed draws. At one standard error for all steps a tenth would.
    """
    search, drawn = proposal_of(trips).searches[0], np.random.default_rng(3)
    assert search.levels > 12
    far = 0
    for _ in range(2000):
        numbers = np.where(np.arange(search.levels) < 4, 10**6, 0) + drawn.normal(0, sqrt(search.noise), search.levels)
        far += found_level(search, Told(numbers.tolist())) > 10
    assert far <= 20


def test_a_norm_whose_noise_cannot_be_drawn_is_not_looked_for(trips: Clinic) -> None:
    """The largest level is one that the statement's price can answer, which is known before the charge."""
    with dpduck.connect() as connection:
        clinic = Clinic(connection)
        clinic.con.execute("CREATE TABLE t AS SELECT range % 50 AS who, range % 3 AS g, 1e12 AS x FROM range(60000)")
        clinic.dp(
            "CREATE PRIVACY POLICY ON t (PRIVACY UNIT who MAX ROWS 1000000, BUDGET (rho = 100), "
            "DOMAIN g RANGE 0 TO 3 STEP 1, CLAMP x BETWEEN 0 AND 1000000000 STEP 1)"
        )
        for rho in ("1", "0.000000001"):
            rows = clinic.dp(CLAUSE.format(rho, "") + "g, sum(x) AS s FROM t GROUP BY g")
            assert len(rows) == 3
        proposal = proposal_of(clinic, "g, sum(x) AS s FROM t GROUP BY g", rho=1e-9)
        (one,) = at_norms(proposal.request, (1 << proposal.searches[0].levels,)).measures
        assert noisy_queries(one.plan)


REFUSED = {
    "(epsilon = 1, max_norm_contributed = 'private')": "a price with a delta or in rho",
    "(rho = 1, max_norm_contributed = 'secret')": "or 'private'",
    "(rho = 1, max_norm_contributed = 'private', max_sum_norm_contributed = 9)": "max_norm_contributed = 30 beside",
    "(target_stderr = 9, max_norm_contributed = 'private')": "max_norm_contributed = 30 beside a target",
    "(rho = 1, max_norm_contributed = 'private', strategy = 'R')": "strategy = 'identity' or none",
}


@pytest.mark.parametrize("options", REFUSED)
def test_what_a_private_norm_does_not_go_with(trips: Clinic, options: str) -> None:
    """Each refusal says what would be accepted, before anything is charged."""
    said = trips.refused(
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS {options} month, count(*) FROM trips GROUP BY month"
    )
    assert REFUSED[options] in said
