"""dp_draft('..', privately := ..) suggests by noisy answers alone, which are paid for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest

from dpduck.language.rows.facts import CatalogColumn, Policy
from dpduck.owner.noisy_shares import FRACTIONS
from dpduck.owner.private_draft import NICE, PrivateQuestion, grid_of, questions
from dpduck.owner.suggestions import Answered, suggest
from dpduck.owner.unit_rows import unit_facts
from dpduck.store.policies import PolicyStore
from dpduck.values.accounting import rho_of
from tests.mechanisms.cubes.aggregate_clinic import exact_tables, open_stays, plan_of
from tests.support.clinics import Clinic, one_line

BARE = "CREATE PRIVACY POLICY ON trips (PRIVACY UNIT rider MAX ROWS 1, BUDGET ({}){})"
APPROXIMATE = "epsilon = 10, delta = 1e-6, delta_keys = 5e-7"
CHARGED = "SELECT count(*), sum(rho), sum(delta), sum(epsilon) FROM dp_ledger() WHERE rho > 0"


@pytest.fixture
def trips(open_clinic: Callable[..., Clinic]) -> Clinic:
    """8,000 trips of 2,000 riders, each with four. Fares from 3 to 93, days of 2025, five towns, one rider's secret."""
    clinic = open_clinic()
    clinic.con.execute(
        "CREATE TABLE trips AS SELECT i // 4 AS rider, 3 + hash(i, 1) % 90 + 0.5 AS fare, "
        "DATE '2025-01-01' + CAST(i % 365 AS INTEGER) AS day, "
        "CASE WHEN i < 4 THEN 'a secret' ELSE 'town; ' || (hash(i, 2) % 5) END AS \"town; --\", i % 2 = 0 AS tipped "
        "FROM range(8000) AS r(i)"
    )
    return clinic


def draft(clinic: Clinic, epsilon: str) -> str:
    rows = clinic.con.execute("FROM dp_draft('trips', privately := ?)", [epsilon]).fetchall()
    return "\n".join(row[0] for row in rows)


@pytest.mark.slow
def test_a_draft_is_suggested_for_a_price(trips: Clinic) -> None:
    """MAX ROWS, ranges, clamps, values and EXPECT ROWS stay within the price. The draft is a policy, then free.

    At this price noise has a standard deviation below 30 of 2,000 units, and expected numbers are 7 of these away.
    """
    trips.dp(BARE.format(APPROXIMATE, ""))
    text = draft(trips, "8")
    for line in (
        "PRIVACY UNIT rider MAX ROWS 4,", "DOMAIN tipped BOOLEAN WITH NULL,",
        "DOMAIN day RANGE 2025-01-01 TO 2026-01-01 STEP MONTH WITH NULL WITH EDGES,",
        "DOMAIN \"town; --\" IN ('town; 0', 'town; 1', 'town; 2', 'town; 3', 'town; 4') WITH NULL WITH OTHER,",
        "BUDGET (epsilon = 10, delta = 0.000001, delta_keys = 0.0000005)",
    ):  # fmt: skip
        assert line in text
    fare = next(line for line in text.splitlines() if "CLAMP fare" in line)
    assert fare.strip() == "CLAMP fare BETWEEN 0 AND 100,"
    assert "secret" not in text and "TODO" not in text
    assert abs(int(re.findall(r"EXPECT ROWS (\d+),", text)[0]) - 8000) < 900
    ((number, rho, delta, _),) = trips.rows(CHARGED)
    assert number == 4 and rho <= float(rho_of(Fraction(8), Fraction(5, 10**7))) and 0 < delta <= 5e-8
    assert draft(trips, "8") == text and trips.rows(CHARGED)[0][0] == 4
    trips.dp(text)
    assert trips.value("SELECT max_rows FROM dp_policies()") == 4


def test_a_pure_budget_pays_epsilon(trips: Clinic) -> None:
    """The parts of epsilon add up to it at most. Texts need a threshold, so they stay TODO with the reason."""
    trips.dp(BARE.format("epsilon = 10", ", CLAMP fare BETWEEN 0 AND 77"))
    text = draft(trips, "4")
    ((number, _, delta, epsilon),) = trips.rows(CHARGED)
    assert number == 2 and 3.9 < epsilon <= 4 and not delta
    assert "CLAMP fare BETWEEN 0 AND 77 STEP" in text, "what is declared is kept, and not asked about"
    assert "needs a budget with delta_keys" in text and "-- DOMAIN \"town; --\" IN ('TODO', 'TODO')" in text


def test_what_cannot_be_paid_is_not_asked(trips: Clinic) -> None:
    """A draft without a policy, beyond the budget, for others' eyes, or for no price is refused uncharged."""
    with pytest.raises(duckdb.Error) as caught:
        draft(trips, "1")
    assert "has no privacy policy yet" in one_line(caught.value)
    trips.dp(BARE.format("epsilon = 2", ""))
    for price, said in (("3", "no room for this private draft"), ("0", "out of range"), ("x", "out of range")):
        with pytest.raises(duckdb.Error) as caught:
            draft(trips, price)
        assert said in one_line(caught.value)
    assert trips.charges() == 0


@pytest.mark.slow
def test_noise_alone_suggests_nothing(trips: Clinic) -> None:
    """Where tails do not stand out of the noise, the TODO stays, with the reason."""
    trips.dp(BARE.format(APPROXIMATE, ""))
    text = draft(trips, "0.001")
    assert "its bounds do not stand out of the noise at this price" in text and "-- CLAMP fare BETWEEN TODO" in text


def policy_of(connection: duckdb.DuckDBPyConnection) -> Policy:
    return PolicyStore(connection.cursor, "private", dict).policies()[0]


def asked(connection: duckdb.DuckDBPyConnection) -> list[PrivateQuestion]:
    """Returns the questions of a draft about the columns of `stays` that need no threshold."""
    columns = [CatalogColumn("big", "BIGINT"), CatalogColumn("real", "DOUBLE"), CatalogColumn("dec", "DECIMAL(9,2)"),
               CatalogColumn("moment", "TIMESTAMP")]  # fmt: skip
    bare = replace(policy_of(connection), domains=(), clamps=())
    return questions(bare, columns, Fraction(1), None)


@pytest.mark.slow
@pytest.mark.parametrize("units", [(1, 23), pytest.param(range(1, 24), marks=pytest.mark.audit)])
def test_no_unit_moves_a_fact_by_more_than_is_claimed(units: Sequence[int]) -> None:
    """Removing a unit moves every exact table of a draft's statements by one row at most.

    Units have one to five rows of NULL, NaN, infinities and extremes. Without max_rows_contributed this fails.
    """
    with open_stays() as connection:
        asking = asked(connection)
        plans = [plan_of(connection, one.sql) for one in asking]
        whole = [exact_tables(connection, plan) for plan in plans]
        assert len(asking) == 5 and all(table.sum() > 5 for tables in whole for table in tables)
        for unit in units:
            connection.execute("CREATE OR REPLACE TEMP TABLE removed AS FROM stays WHERE who = ?", [unit])
            connection.execute("DELETE FROM stays WHERE who = ?", [unit])
            for plan, tables in zip(plans, whole, strict=True):
                for measured, before, after in zip(plan.measures, tables, exact_tables(connection, plan), strict=True):
                    assert int(np.abs(before - after).sum()) <= 1 == measured.unit_bound
            connection.execute("INSERT INTO stays FROM removed")


def quantiles(*places: float) -> list[float]:
    """Quantiles of places that have equally many values."""
    return [places[int(fraction * len(places))] for fraction in FRACTIONS]


def test_suggestions_are_a_function_of_answers() -> None:
    """Equal answers give equal drafts: after the door no code looks at the rows."""
    with open_stays() as connection:
        policy, asking = policy_of(connection), asked(connection)
        rows: list[tuple[object, ...]] = [(quantiles(0, 1, 2, 2), 1000, 2.0)]
        rows += [(quantiles(80, 83, 90, 91),) for _ in asking[1:]]
        answers = [Answered(one, [row], 3.0) for one, row in zip(asking, rows, strict=True)]
        left = [(one.column, "") for one in asking if one.column is not None]
        first = suggest(policy, answers, left, "p", None)
        assert first == suggest(policy, answers, left, "p", None)
        assert first.rows == 2300 and first.unit.endswith("MAX ROWS 3")


def test_max_rows_by_noisy_quantiles(trips: Clinic) -> None:
    """MAX ROWS is the least round number that leaves out about a hundredth of rows, or TODO where noise hides it."""
    trips.dp(BARE.format(APPROXIMATE, ""))
    policy = policy_of(trips.con)
    four = unit_facts(policy, ([float(NICE.index(4))] * len(FRACTIONS), 1000, 1.0), 1.0)
    assert four.most_rows == 4 and four.left is not None and four.left.most < 0.02
    assert four.rows == pytest.approx(4000, rel=0.01)
    skewed = [float(NICE.index(1)) if fraction < 0.9 else float(NICE.index(60)) for fraction in FRACTIONS]
    few = unit_facts(policy, (skewed, 10_000, 1.0), 1.0)
    assert few.most_rows == 60 and few.rows == pytest.approx(69_000, rel=0.2)
    assert unit_facts(policy, (skewed, 10_000, 1.0), 2000.0).most_rows is None, "a tenth does not stand out"


def test_bounds_are_on_the_public_grid(trips: Clinic) -> None:
    """A range surrounds the visible values. A clamp shows the share it leaves out. Where noise hides both is none."""
    trips.dp(BARE.format(APPROXIMATE, ""))
    question = PrivateQuestion("number", CatalogColumn("x", "DOUBLE"), "", grid_of("DOUBLE"))
    zero = question.grid.index(Fraction(0)) + 2
    answer = (quantiles(*(zero + place for place in range(20, 28))),)

    def lines(rank: float) -> str:
        unit = Answered(PrivateQuestion("unit", None, ""), [(quantiles(0.0), 10_000, 1.0)], rank)
        left = [(CatalogColumn("x", "DOUBLE"), "")]
        given = suggest(policy_of(trips.con), [unit, Answered(question, [answer], rank)], left, "p", None)
        return "; ".join(given.columns["x"][1])

    assert lines(10.0) == "DOMAIN x RANGE 20 TO 300 STEP 20 WITH EDGES,; CLAMP x BETWEEN 0 AND 300,"
    assert lines(5_000.0) == ""
