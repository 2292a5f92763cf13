"""dp_draft('..', privately := ..): what is suggested rests on noisy answers alone, which were paid for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest

from dpduck.database.policies import PolicyStore
from dpduck.frontend.rows.facts import Column, Policy
from dpduck.owner.private_draft import (
    Answered,
    PrivateQuestion,
    bound_lines,
    bounds_of,
    grid_of,
    questions,
    suggested,
    unit_facts,
)
from dpduck.values.accounting import rho_of
from tests.mechanisms.cubes.aggregate_clinic import exact_tables, open_stays, plan_of
from tests.support.clinics import Clinic, one_line

BARE = "CREATE PRIVACY POLICY ON trips (PRIVACY UNIT rider MAX ROWS 1, BUDGET ({}){})"
APPROXIMATE = "epsilon = 10, delta = 1e-6, delta_keys = 5e-7"
CHARGED = "SELECT count(*), sum(rho), sum(delta), sum(epsilon) FROM dp_ledger() WHERE rho > 0"


@pytest.fixture
def trips(open_clinic: Callable[..., Clinic]) -> Clinic:
    """8,000 trips of 2,000 riders, four each; fares from 3 to 93, days of 2025, five towns and one rider's secret."""
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
    """MAX ROWS, ranges, clamps, values and EXPECT ROWS; within the price; a policy as it stands, again free.

    At this price noise has a standard deviation below 30 of 2,000 units: what is expected is 7 of them away.
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
    assert fare.strip() in ("CLAMP fare BETWEEN 2 AND 100,", "CLAMP fare BETWEEN 5 AND 100,")
    assert "secret" not in text and "TODO" not in text
    assert abs(int(re.findall(r"EXPECT ROWS (\d+),", text)[0]) - 8000) < 900
    ((number, rho, delta, _),) = trips.rows(CHARGED)
    assert number == 4 and rho <= float(rho_of(Fraction(8), Fraction(5, 10**7))) and 0 < delta <= 5e-8
    assert draft(trips, "8") == text and trips.rows(CHARGED)[0][0] == 4
    trips.dp(text)
    assert trips.value("SELECT max_rows FROM dp_policies()") == 4


def test_a_pure_budget_pays_epsilon(trips: Clinic) -> None:
    """Parts of epsilon add up to it at most; texts have no threshold there, and stay TODO with the reason."""
    trips.dp(BARE.format("epsilon = 10", ", CLAMP fare BETWEEN 0 AND 77"))
    text = draft(trips, "4")
    ((number, _, delta, epsilon),) = trips.rows(CHARGED)
    assert number == 2 and 3.9 < epsilon <= 4 and not delta
    assert "CLAMP fare BETWEEN 0 AND 77 STEP" in text, "what is declared is kept, and not asked about"
    assert "needs a budget with delta_keys" in text and "-- DOMAIN \"town; --\" IN ('TODO', 'TODO')" in text


def test_what_cannot_be_paid_is_not_asked(trips: Clinic) -> None:
    """Without a policy, beyond the budget, for others' eyes, or for no price: refused, and nothing is charged."""
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
    """Where tails do not stand out of the noise the owner is left with the TODO, and told why."""
    trips.dp(BARE.format(APPROXIMATE, ""))
    text = draft(trips, "0.001")
    assert "its bounds do not stand out of the noise at this price" in text and "-- CLAMP fare BETWEEN TODO" in text


def policy_of(connection: duckdb.DuckDBPyConnection) -> Policy:
    return PolicyStore(connection.cursor, "private", dict).policies()[0]


def asked(connection: duckdb.DuckDBPyConnection) -> list[PrivateQuestion]:
    """The questions of a draft about the columns of `stays` that a threshold is not needed for."""
    columns = [Column("big", "BIGINT"), Column("real", "DOUBLE"), Column("dec", "DECIMAL(9,2)"),
               Column("moment", "TIMESTAMP")]  # fmt: skip
    bare = replace(policy_of(connection), domains=(), clamps=())
    return questions(bare, columns, Fraction(1), None)


@pytest.mark.slow
@pytest.mark.parametrize("units", [(1, 23), pytest.param(range(1, 24), marks=pytest.mark.audit)])
def test_no_unit_moves_a_fact_by_more_than_is_claimed(units: Sequence[int]) -> None:
    """On neighbours: with a unit removed, every exact table of a draft's statements moves by one row at most.

    Units have one to five rows of NULL, NaN, infinities and extremes. max_rows_contributed left out fails.
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


def test_suggestions_are_a_function_of_answers() -> None:
    """The same answers are the same draft: nothing else of the rows is looked at after the door."""
    with open_stays() as connection:
        policy, asking = policy_of(connection), asked(connection)
        rows = [[(4, 3, 3, 2, 2, 1, 1, 1000)], *([(10, 11, 12, 20, 40, 39, 38, 37)] for _ in asking[1:])]
        answers = [Answered(one, list(row), 3.0) for one, row in zip(asking, rows, strict=True)]
        left = [(one.column, "") for one in asking if one.column is not None]
        assert suggested(policy, answers, left, "p", None) == suggested(policy, answers, left, "p", None)
        assert suggested(policy, answers, left, "p", None).rows == 1800


def test_max_rows_by_noisy_quantiles(trips: Clinic) -> None:
    """The least round number that leaves out a hundredth of the rows; of few units a wider tail is taken."""
    trips.dp(BARE.format(APPROXIMATE, ""))
    policy = policy_of(trips.con)
    assert unit_facts(policy, (4, 4, 4, 4, 4, 4, 4, 1000), 1.0).most_rows == 4
    skewed = (60, 9, 5, 2, 1, 1, 1, 10_000)
    assert unit_facts(policy, skewed, 1.0).most_rows == 60
    assert unit_facts(policy, skewed, 300.0).most_rows == 5, "nothing beyond the tenth stands out of the noise"


def test_bounds_are_on_the_public_grid() -> None:
    """The first and last number of the grid around what quantiles say; none where the grid ends or noise drowns it."""
    column = Column("x", "INTEGER")
    grid = grid_of("INTEGER")
    question, zero = PrivateQuestion("number", column, "", grid), grid.index(Fraction(0))
    inside = (zero + 1, zero + 2, zero + 2, zero + 3, zero + 8, zero + 7, zero + 7, zero + 6)
    found = bounds_of(question, inside, 10_000, 10.0)
    assert found is not None and (float(found.low), float(found.high), found.tail) == (0, 200, 0.01)
    assert bound_lines(column, found, "") == [
        "DOMAIN x RANGE 0 TO 200 STEP 10 WITH EDGES,", "CLAMP x BETWEEN 0 AND 200,"
    ]  # fmt: skip
    assert bounds_of(question, inside, 10_000, 5_000.0) is None
    assert bounds_of(question, (0, 0, 0, 0, *inside[4:]), 10_000, 10.0) is None
