"""Intervals of sums, averages and bounded counts of selected keys hold as often as they say."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi
from typing import Any

import pytest

import dpduck
from tests.mechanisms.cubes.coverage_designs import Tally
from tests.support.clinics import Clinic

RUNS, FEW = 12, 3
"""Releases of each kind, in the audit and in the default suite."""
MANY = pytest.mark.parametrize("runs", [FEW, pytest.param(RUNS, marks=pytest.mark.audit)])
KEYS = 600
UNITS = (60, 90, 150, 400)
"""Privacy units of the groups by turns, of two rows each. One row in nine has no value."""
ROWS = f"""CREATE TABLE calls AS SELECT g * 1000 + u AS who, 'key ' || g AS key, (u + v) % 2 AS flag,
    CASE WHEN u % 9 > 0 THEN (g * 17 + u * 7) % 61 + 20 END AS cost FROM range({KEYS}) AS r(g), range(400) AS s(u),
    range(2) AS t(v) WHERE u < [{", ".join(map(str, UNITS))}][1 + g % 4]"""
POLICY = """CREATE PRIVACY POLICY ON calls (PRIVACY UNIT who MAX ROWS 2, CLAMP cost BETWEEN 0 AND 100,
    BUDGET (epsilon = 10000, delta = 1e-4, delta_keys = 5e-5))"""
BY_GROUP = "contribution_bounds_per_group => (0, 100)"
ANSWERS = {
    "sum(cost)": "sum(total)",
    "avg(cost)": "sum(total) / sum(valued)",
    "avg(cost) FILTER (WHERE flag = 1)": "sum(total) / sum(valued)",
    f"avg(cost, {BY_GROUP})": "sum(total) / sum(valued)",
    f"sum(cost, {BY_GROUP})": "sum(CASE WHEN valued > 0 THEN least(total, 100) END)",
    "count(*, contribution_bounds_per_group => (0, 1))": "count(*)",
    "count(*, contribution_bounds_per_group => (0, 9))": "2 * count(*)",
}
"""Answers, and the SQL that each estimates, over the totals of units."""


@pytest.fixture(scope="module")
def calls() -> Iterator[Clinic]:
    """Groups of 60 to 400 units of two rows."""
    with dpduck.connect(":memory:") as connection:
        clinic = Clinic(connection)
        clinic.rows(ROWS)
        clinic.dp(POLICY)
        yield clinic


def statement(noise: str, epsilon: float, tag: int, answer: str, more: str = "") -> str:
    """One answer for each key with its interval, beside an average of all rows."""
    options = f"epsilon = {epsilon}, delta = 1e-9, refresh = '{tag}', group_selection_strategy = {noise}_THRESHOLD"
    return (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}, max_groups_contributed = 1{more}) key, "
        f"dp_interval_low(a) AS low, dp_interval_high(a) AS high, {answer} AS a, avg(cost) AS beside, "
        "dp_interval_low(beside) AS low_beside, dp_interval_high(beside) AS high_beside FROM calls GROUP BY key"
    )


def exact(calls: Clinic, answer: str) -> dict[str, tuple[Any, Any]]:
    """Exact answers and averages by key."""
    units = "(SELECT key, who, sum(cost) AS total, count(cost) AS valued FROM calls GROUP BY key, who)"
    rows = calls.rows(f"SELECT key, {ANSWERS[answer]}, sum(total) / sum(valued) FROM {units} GROUP BY key")
    return {key: (value, average) for key, value, average in rows}


@pytest.mark.sampled
@MANY
@pytest.mark.parametrize("noise", ["LAPLACE", "GAUSSIAN"])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("epsilon", [3, 20])
def test_intervals_of_published_groups_hold(calls: Clinic, noise: str, epsilon: float, answer: str, runs: int) -> None:
    """At least 94 % of the intervals of groups hold, of the answer and of the average beside it.

    At least 450 groups in three runs. A false alarm has a chance of 1e-9 where just 94 % hold. The answers' noise is
    independent of the selection, so that groups near the threshold need no correction.
    """
    known, tallies = exact(calls, answer), (Tally(), Tally())
    for run in range(runs):
        for key, low, high, _, _, low_beside, high_beside in calls.dp(statement(noise, epsilon, run, answer)):
            value, average = known[key]
            tallies[0].add(low <= value <= high)
            tallies[1].add(low_beside <= average <= high_beside)
    assert min(tally.looked for tally in tallies) >= runs * KEYS // 4, "the keys of most units are published"
    assert not any(tally.too_few for tally in tallies), [f"{tally.share:.4f} of {tally.looked}" for tally in tallies]


@pytest.mark.sampled
@MANY
@pytest.mark.parametrize("answer", ["sum(cost)", "count(*, contribution_bounds_per_group => (0, 9))"])
@pytest.mark.parametrize("epsilon", [3, 20])
def test_intervals_hold_where_units_are_weighed(calls: Clinic, epsilon: float, answer: str, runs: int) -> None:
    """With a norm of the two rows that a unit has nobody counts for less: intervals hold as without a norm.

    A false alarm has a chance of 1e-9 where just 94 % hold.
    """
    known, tallies = exact(calls, answer), (Tally(), Tally())
    for run in range(runs):
        text = statement("GAUSSIAN", epsilon, run, answer, ", max_norm_contributed = 2")
        for key, low, high, _, _, low_beside, high_beside in calls.dp(text):
            value, average = known[key]
            tallies[0].add(low <= value <= high)
            tallies[1].add(low_beside <= average <= high_beside)
    assert min(tally.looked for tally in tallies) >= runs * KEYS // 4
    assert not any(tally.too_few for tally in tallies), [f"{tally.share:.4f} of {tally.looked}" for tally in tallies]


@pytest.mark.parametrize("noise", ["LAPLACE", "GAUSSIAN"])
def test_sums_have_the_noise_that_was_paid_for(calls: Clinic, noise: str) -> None:
    """Over 600 groups the mean error of sums is 0.75 to 1.32 times that of their standard errors.

    For Laplace noise the mean of 600 sizes leaves this range with a chance below 2e-10 (Chernoff). For Gaussian noise
    the range is 8 standard deviations wide. Two thirds of the noise would be found. A sum beside an average is a count
    times the centre and a sum about it. At a far larger price the count's noise would be 0 in most groups.
    """
    known = exact(calls, "sum(cost)")
    text = statement(noise, 4, 0, "sum(cost)").replace("dp_interval_low(a) AS low", "dp_stderr(a) AS low")
    rows = calls.dp(text)
    assert len(rows) == KEYS
    usual = 1 / 2**0.5 if noise == "LAPLACE" else (2 / pi) ** 0.5
    found = sum(abs(row[3] - known[row[0]][0]) / row[1] for row in rows) / len(rows) / usual
    assert 0.75 < found < 1.32
