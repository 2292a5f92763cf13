"""The errors that rows and sums of filtered summaries state include selection and loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.mechanisms.cubes.coverage_designs import Tally
from tests.support.clinics import Clinic

FILTERED = ("filter", "filter_one_sided", "filter_threshold", "filter_priority")
SIZE, RUNS = 400, 12
ROWS = """CREATE TABLE trips AS SELECT (j * 7919) % 1000 AS home, (j * 104729) % 1000 AS work
    FROM range(600) AS cells(j), range(60) AS rows(i) WHERE i <= j % 30 + (j % 7) * 3"""
POLICY = """CREATE PRIVACY POLICY ON trips (PRIVACY UNIT ROW, BUDGET (epsilon = 1000),
    DOMAIN home RANGE 0 TO 1000 STEP 1, DOMAIN work RANGE 0 TO 1000 STEP 1{guess})"""


@pytest.fixture
def trips(open_clinic: Callable[..., Clinic]) -> Iterator[Clinic]:
    """600 of a million cells occupied, with 1 to 48 rows: about half of the cells lie below the filter."""
    clinic = open_clinic()
    clinic.rows(ROWS)
    clinic.dp(POLICY.format(guess=f", EXPECT ROWS {clinic.value('SELECT count(*) FROM trips')}"))
    yield clinic


def view(method: str, tag: int, more: str = "", select: str = "") -> str:
    return (
        f"CREATE PRIVATE VIEW v{tag} OPTIONS (epsilon = 1, summary = '{method}', summary_size = {SIZE}, "
        f"refresh = 't{tag}'{more}) AS SELECT home, work, count(*) AS n, dp_interval_low(n) AS low, "
        f"dp_interval_high(n) AS high FROM trips {select} GROUP BY home, work"
    )


@pytest.mark.sampled
@pytest.mark.parametrize("method", FILTERED)
def test_rows_of_empty_cells_do_not_exclude_zero(trips: Clinic, method: str) -> None:
    """Many rows are noise that has passed the filter. At least 94 % of their 95 % intervals hold 0, and those of
    occupied cells hold their counts. A false alarm has a chance of 1e-9."""
    empty, occupied = Tally(), Tally()
    exact = {
        (home, work): count for home, work, count in trips.rows("SELECT home, work, count(*) FROM trips GROUP BY ALL")
    }
    for run in range(RUNS):
        trips.dp(view(method, run))
        for home, work, low, high in trips.rows(f"SELECT home, work, low, high FROM private.v{run}"):
            count = exact.get((home, work), 0)
            (occupied if count else empty).add(low <= count <= high)
    assert empty.looked > 400 and occupied.looked > 2000
    assert not empty.too_few and not occupied.too_few


@pytest.mark.sampled
@pytest.mark.parametrize("method", FILTERED)
@pytest.mark.parametrize("more", ["", ", total_epsilon = 0.1"])
def test_sums_say_what_a_filter_has_lost(trips: Clinic, method: str, more: str) -> None:
    """Sums of everything, of a tenth and of one column are off by at most six of their standard errors, though the
    filter loses many of theirs. The error of the whole sum holds the lost rows: they reach one and a half errors with a
    chance of 1e-10, where the noise of the number of rows hides 240. A sum that is too large is so by its own noise."""
    missing = []
    for run in range(3):
        trips.dp(view(method, run, more))
        for where in ("true", "home < 100", "work BETWEEN 200 AND 899"):
            estimate, error = trips.rows(f"SELECT sum(n), dp_sum_stderr(n_variance) FROM private.v{run} WHERE {where}")[
                0
            ]
            exact = trips.value(f"SELECT count(*) FROM trips WHERE {where}")
            missing.append((exact - estimate) / error)
    assert max(map(abs, missing)) < 6
    assert max(missing[::3]) < 1.5


def test_an_unknown_loss_is_no_small_error(trips: Clinic) -> None:
    """With WHERE nobody knows how many rows there are: the standard error of a sum is NULL, and rows keep theirs. Over
    no rows it is NULL, too: a filter may have dropped them all."""
    trips.dp(view("filter", 1, select="WHERE home < 500"))
    assert trips.rows("SELECT count(n_variance), dp_sum_stderr(n_variance) FROM private.v1") == [(0, None)]
    trips.dp(view("filter", 2, ", total_epsilon = 0.1", "WHERE home < 500"))
    assert trips.value("SELECT dp_sum_stderr(n_variance) FROM private.v2") > 0
    trips.dp(view("priority", 3, select="WHERE home < 500"))
    assert trips.value("SELECT dp_sum_stderr(n_variance) FROM private.v3") > 0
    assert trips.value("SELECT dp_sum_stderr(n_variance) FROM private.v3 WHERE home < 0") is None
