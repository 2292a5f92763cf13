"""Intervals of selected keys and of unfiltered summaries cover as stated, as test_coverage checks for cells.

A key is selected if its noisy number of units is above a threshold. So keys near the threshold are seen only with large
noise (E8). Their intervals take the noise given this selection.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scipy.stats import binom

import dpduck
from tests.mechanisms.cubes.coverage_designs import FALSE_ALARM, PRICES, Tally
from tests.support.clinics import Clinic

RUNS, FEW = 12, 3
"""Releases of each kind, in the audit and in the default suite."""
MANY = pytest.mark.parametrize("runs", [FEW, pytest.param(RUNS, marks=pytest.mark.audit)])
KEYS, RARE = 600, 100
DELTA = "1e-9"
UNITS = (60, 90, 150, 400)
"""Privacy units of the groups by turns."""

ROWS = f"""CREATE TABLE calls AS SELECT g * 1000 + u AS who, 'key ' || g AS key, (u + v) % 2 AS flag, v
    FROM range({KEYS}) AS r(g), range(400) AS s(u), range(2) AS t(v) WHERE u < [{", ".join(map(str, UNITS))}][1 + g % 4]
    UNION ALL SELECT 1000000 + u, 'rare ' || u, u % 2, 0 FROM range({RARE}) AS r(u)"""
NOISES = pytest.mark.parametrize("noise", ["LAPLACE", "GAUSSIAN"])
ANSWERS = ("count(*)", "count(DISTINCT who)", "count(*) FILTER (WHERE flag = 1)")


@pytest.fixture(scope="module")
def calls() -> Iterator[Clinic]:
    """Groups of 60 to 400 units of two rows, and a hundred groups of one unit that nobody may see."""
    with dpduck.connect(":memory:") as connection:
        clinic = Clinic(connection)
        clinic.rows(ROWS)
        clinic.dp(
            "CREATE PRIVACY POLICY ON calls (PRIVACY UNIT who MAX ROWS 2, "
            "BUDGET (epsilon = 10000, delta = 1e-4, delta_keys = 5e-5))"
        )
        yield clinic


def statement(noise: str, epsilon: float, tag: int, answer: str) -> str:
    """One answer for each key, and for all others, with its interval."""
    beside = "" if "who" in answer else ", other = TRUE"  # units of several groups do not add up to units
    return (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {epsilon}, delta = {DELTA}, refresh = '{tag}', "
        f"group_selection_strategy = {noise}_THRESHOLD, max_groups_contributed = 1{beside}) key, "
        f"dp_interval_low(a), dp_interval_high(a), {answer} AS a, grouping(key) AS other FROM calls GROUP BY key"
    )


@pytest.mark.sampled
@MANY
@NOISES
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("epsilon", [3, 20])
def test_published_keys_and_the_others_cover(calls: Clinic, noise: str, epsilon: float, answer: str, runs: int) -> None:
    """Keys of many units, which are published whatever their noise is, and the row for all others: 95 % hold.

    600 keys in three runs, and in twelve in the audit. A false alarm has a chance of 1e-9 where just 94 % hold. Each
    run has one row for the others: it is at most ten widths off, but with a chance below 1e-20.
    """
    exact = dict(calls.rows(f"SELECT key, {answer} FROM calls GROUP BY key"))
    least, tally, others = calls_above(calls, noise, epsilon, answer), Tally(), Tally()
    for run in range(runs):
        seen = 0
        for key, low, high, _, other in calls.dp(statement(noise, epsilon, run, answer)):
            if other:
                rest, far = sum(exact.values()) - seen, 10 * (1 + high - low)
                others.add(low - far <= rest <= high + far)
                continue
            seen += exact[key]
            if units_of(key) >= least:
                tally.add(low <= exact[key] <= high)
    assert tally.looked >= runs * KEYS // 4, "the keys of most units are always published"
    assert not tally.too_few, f"{tally.share:.4f} of {tally.looked}"
    assert others.looked == others.held == (0 if "who" in answer else runs)


def units_of(key: str) -> int:
    """Privacy units of a group."""
    kind, number = key.split()
    return UNITS[int(number) % 4] if kind == "key" else 1


def calls_above(calls: Clinic, noise: str, epsilon: float, answer: str) -> int:
    """The fewest units of a group that is published but with a chance of 3e-5: four standard errors more."""
    rows = calls.con.execute(
        "SELECT threshold, selection_stderr FROM dp_explain(?) WHERE chosen", [statement(noise, epsilon, 0, answer)]
    ).fetchall()
    threshold, error = rows[0]
    return int(threshold + 4 * error)


NEAR = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {}, delta = 1e-4, max_groups_contributed = 1, refresh = 'x', "
    "group_selection_strategy = {}_THRESHOLD) key, dp_interval_low(a) AS low, dp_interval_high(a) AS high, "
    "count(*) AS a FROM calls GROUP BY key"
)


@NOISES
def test_keys_near_the_threshold(noise: str) -> None:
    """E8: groups near the threshold are seen only with large noise, and their intervals hold all the same.

    None is at the threshold or below. As many are published as `published_50` says, with a false alarm of 1e-9. If 94 %
    of intervals hold, the last check fails with a chance of 1e-9. Intervals of the noise alone hold 83 % of 1,400, and
    would pass with a chance below 1e-10.
    """
    groups = 10_000
    with dpduck.connect(":memory:") as connection:
        clinic = Clinic(connection)
        clinic.rows(
            f"CREATE TABLE calls AS SELECT 'k' || g AS key, g * 100 + u AS who "
            f"FROM range({groups}) r(g), range(50) s(u)"
        )
        clinic.dp(
            "CREATE PRIVACY POLICY ON calls (PRIVACY UNIT who MAX ROWS 1, "
            "BUDGET (epsilon = 100, delta = 1e-3, delta_keys = 5e-4))"
        )
        asked = NEAR.format("0.175" if noise == "GAUSSIAN" else "0.15", noise)
        explained = "SELECT threshold, published_50, selection_stderr FROM dp_explain(?) WHERE chosen"
        threshold, chance, error = connection.execute(explained, [asked]).fetchall()[0]
        assert 0.03 < chance < 0.95 and abs(threshold - 50) < 2 * error, "the groups are near the threshold"
        rows = clinic.dp(asked)
        assert all(row[3] > threshold for row in rows)
        assert FALSE_ALARM < binom.cdf(len(rows), groups, chance) < 1 - FALSE_ALARM
        held = Tally(len(rows), sum(row[1] <= 50 <= row[2] for row in rows))
        assert not held.too_few, f"{held.share:.4f} of {held.looked}"
        half_widths = [row[2] - row[3] for row in rows]
        alone = Tally(len(rows), sum(row[3] - half <= 50 for row, half in zip(rows, half_widths, strict=True)))
        assert alone.too_few, f"{alone.share:.4f} of {alone.looked}"


@pytest.mark.sampled
@MANY
@pytest.mark.parametrize("price", PRICES["Laplace"])
@pytest.mark.parametrize("method", ["geometric", "threshold", "priority"])
def test_sums_over_summaries_cover(method: str, price: str, runs: int) -> None:
    """Sums over blocks of cells of summaries without a filter, within two of their standard errors: at least 94 %.

    200 blocks in three runs, twelve in the audit. Errors are sums of many noises. A false alarm has a chance of 1e-9.
    """
    with dpduck.connect(":memory:") as connection:
        clinic = Clinic(connection)
        clinic.rows("CREATE TABLE trips AS SELECT g FROM range(20000) r(g), range(30) s(i) WHERE i < (g * 7919) % 31")
        clinic.dp(
            "CREATE PRIVACY POLICY ON trips (PRIVACY UNIT ROW, BUDGET (epsilon = 1000), DOMAIN g RANGE 0 TO 20000 "
            "STEP 1, EXPECT ROWS 300000)"
        )
        exact = dict(clinic.rows("SELECT g // 100, count(*) FROM trips GROUP BY ALL"))
        tally = Tally()
        for run in range(runs):
            size = "" if method == "geometric" else ", summary_size = 5000"
            clinic.dp(
                f"CREATE PRIVATE VIEW v{run} OPTIONS ({price}, summary = '{method}'{size}, refresh = '{run}') AS "
                "SELECT g, count(*) AS n FROM trips GROUP BY g"
            )
            rows = clinic.rows(f"SELECT g // 100, sum(n), dp_sum_stderr(n_variance) FROM private.v{run} GROUP BY ALL")
            for block, found, error in rows:
                tally.add(abs(found - exact[block]) <= 2 * error)
        assert tally.looked > runs * 150
        assert not tally.too_few, f"{tally.share:.4f} of {tally.looked}"
