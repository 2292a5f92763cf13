"""Averages without centres, and sums without bounds: both are found inside a statement with a private norm."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

import dpduck
from dpduck.auditor.neighbours import require_database
from dpduck.database.functions import OWNER
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.price import price
from dpduck.language.select.request import OPEN_STEPS, Operand, SelectRequest
from dpduck.mechanisms.cubes.measures import measure_values
from dpduck.mechanisms.norms import NORMS
from dpduck.mechanisms.norms.centers import center_search
from dpduck.mechanisms.norms.plan import CENTERS, NormProposal
from tests.support.clinics import Clinic

MOST, GROUPS = 100, 7
POLICY = (
    f"CREATE PRIVACY POLICY ON pays (PRIVACY UNIT person MAX ROWS {MOST}, BUDGET (rho = 100000), "
    f"DOMAIN g RANGE 0 TO {GROUPS} STEP 1, CLAMP bonus BETWEEN -10000 AND 90000 STEP 1)"
)
ROWS = (
    "CREATE TABLE pays AS SELECT CASE WHEN range % 97 = 0 THEN NULL ELSE range % 3000 END AS person, range % 8 AS g, "
    "CAST(50000 + hash(range) % 20000 AS INTEGER) AS pay, 0.5 + hash(range, 2) % 1000 / 1000.0 AS rate, "
    "CAST(hash(range, 3) % 10000 / 100 AS DECIMAL(9, 2)) AS fee, -3000 - CAST(hash(range, 5) % 100 AS BIGINT) AS debt, "
    "CASE WHEN range % 7 = 0 THEN NULL ELSE CAST(40000 + hash(range, 6) % 1000 AS INTEGER) END AS bonus, "
    "CASE WHEN range % 5 = 0 THEN 'nan' WHEN range % 5 = 1 THEN 'inf' ELSE '1' END::DOUBLE AS odd FROM range(30000)"
)
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = {}, max_norm_contributed = 'private'{}) "


@pytest.fixture(scope="module")
def pays() -> Iterator[Clinic]:
    """3,000 people with ten rows each, and columns of all types of numbers."""
    with dpduck.connect() as connection:
        made = Clinic(connection)
        made.con.execute(ROWS)
        made.dp(POLICY)
        yield made


def proposal_of(clinic: Clinic, select: str) -> NormProposal:
    question, _ = require_database(clinic.con).question_of(
        CLAUSE.format(1, "") + select + " FROM pays GROUP BY g", OWNER
    )
    assert isinstance(question, SelectRequest)
    return NORMS.plan(question)


def test_a_centre_is_paid_for(pays: Clinic) -> None:
    """Three per cent of the price, shared by the averages, as one choice of a unit's value each."""
    for select, number in (
        ("g, avg(pay)", 1),
        ("g, avg(pay), avg(bonus), count(*)", 2),
        ("g, count(*), sum(bonus)", 0),
    ):
        proposal = proposal_of(pays, select)
        assert len(proposal.centers) == number
        for one in proposal.centers:
            assert Fraction(999, 1000) * CENTERS / number < one.ask.cost.rho <= CENTERS / number
        assert Fraction(999_000, 1_000_000) < price(NORMS.asks(proposal)).rho <= 1


def test_each_person_has_one_value(pays: Clinic) -> None:
    """However many rows a person has, the buckets hold one, among the values that are finite."""
    for select in ("g, avg(pay)", "g, avg(bonus)", "g, avg(odd)"):
        (search,) = proposal_of(pays, select).centers
        counts = count_exactly(pays.con.cursor(), search.ask.scan.job, bytes(32))
        column = select.removeprefix("g, avg(").removesuffix(")")
        people = pays.value(
            f"SELECT count(DISTINCT person) FROM pays WHERE {column} IS NOT NULL AND isfinite(CAST({column} AS DOUBLE))"
        )
        assert int(counts._exact_counts.sum()) == people
        assert counts._unit_bounds == (1,)


@pytest.mark.parametrize("column", ["pay", "rate", "fee", "debt"])
def test_numbers_without_bounds_are_averaged_and_summed(pays: Clinic, column: str) -> None:
    """Answers are within eight standard errors and 5 % of the truth. Standard errors are below 2 %.

    False alarms: below 1e-14 for each answer by noise. Few people are above the norm that is found.
    """
    rows = pays.dp(CLAUSE.format(5, "") + f"g, avg({column}) AS a, dp_stderr(a) AS e FROM pays GROUP BY g ORDER BY g")
    sums = pays.dp(CLAUSE.format(5, "") + f"g, sum({column}) AS s, dp_stderr(s) AS e FROM pays GROUP BY g ORDER BY g")
    exact = pays.rows(
        f"SELECT CAST(avg({column}) AS DOUBLE), CAST(sum({column}) AS DOUBLE) FROM pays "
        f"WHERE person IS NOT NULL AND g < {GROUPS} GROUP BY g ORDER BY g"
    )
    for (_, average, error), (_, total, total_error), (mean, whole) in zip(rows, sums, exact, strict=True):
        assert abs(average - mean) <= 8 * error + abs(mean) * 0.01 and error < abs(mean) * 0.01
        assert abs(total - whole) <= 8 * total_error + abs(whole) * 0.05 and total_error < abs(whole) * 0.02


def test_an_odd_value_does_no_harm(pays: Clinic) -> None:
    """NaN, infinities and NULL have no value, for the centre as for the sum."""
    rows = pays.dp(CLAUSE.format(5, "") + "g, avg(odd) AS a FROM pays GROUP BY g")
    assert all(abs(average - 1) < 0.2 for _, average in rows)


def test_a_centre_that_is_found_helps(pays: Clinic) -> None:
    """Bonuses lie about 40,500, and the middle of their bounds is 40,000: a norm of distances is small about both.

    About 0 the error is 20 times as large, or more.
    """
    asked = "g, avg(bonus) AS a, dp_stderr(a) AS e FROM pays GROUP BY g"
    found, about = (pays.dp(CLAUSE.format(1, more) + asked) for more in ("", ", centers = 0"))
    assert max(row[2] for row in found) * 20 < min(row[2] for row in about)


def test_buckets_hold_every_number_of_an_open_column() -> None:
    """Buckets of logarithms reach from the least to the greatest number, and 0 is in the one in the middle."""
    operand = Operand("x", -OPEN_STEPS * Fraction(1), OPEN_STEPS * Fraction(1), Fraction(1))
    assert operand.is_open and not Operand("x", Fraction(-1), Fraction(1), Fraction(1)).is_open
    with dpduck.connect() as connection:
        clinic = Clinic(connection)
        clinic.con.execute(ROWS)
        clinic.dp(POLICY)
        found = proposal_of(clinic, "g, count(*)")
        search = center_search(measure_values("sum", "", operand), found.job, Fraction(1, 100), found.request.rows)
        edges = search.buckets.edges
        assert float(edges[-1]) > 39 and edges[0] == -edges[-1]
        middle = search.buckets.count // 2
        assert edges[middle] < 0 < edges[middle + 1]


REFUSED = {
    "(rho = 1) g, avg(pay)": "or max_norm_contributed = 'private'",
    "(rho = 1, max_norm_contributed = 5) g, sum(pay)": "or max_norm_contributed = 'private'",
    "(rho = 1, max_norm_contributed = 'private') g, median(pay)": "these values need public bounds",
    "(rho = 1, max_norm_contributed = 'private') g, sum(pay * rate)": "these values need public bounds",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_still_needs_bounds(pays: Clinic, statement: str) -> None:
    """Bounds are asked for where no norm is found, of quantiles and of expressions. Nothing is charged."""
    before = pays.charges()
    said = pays.refused(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS {statement} FROM pays GROUP BY g")
    assert REFUSED[statement] in said and pays.charges() == before
