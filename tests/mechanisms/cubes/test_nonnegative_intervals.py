"""nonnegative moves answers: intervals stay about the measured values, and standard errors contain the move."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.clinics import Clinic

CELLS, OCCUPIED, ROWS, REPEATS = 10_000, 100, 25, 8


@pytest.fixture
def sparse(open_clinic: Callable[..., Clinic]) -> Clinic:
    """A table of 10,000 cells: 100 cells have 25 rows each and the others are empty."""
    clinic = open_clinic()
    clinic.rows(f"CREATE TABLE trips AS SELECT 100 * (range % {OCCUPIED}) AS g FROM range({OCCUPIED * ROWS})")
    clinic.dp(
        "CREATE PRIVACY POLICY ON trips (PRIVACY UNIT ROW, BUDGET (epsilon = 1000), "
        f"DOMAIN g RANGE 0 TO {CELLS} STEP 1)"
    )
    return clinic


def statement(tag: int, more: str = "") -> str:
    return (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, nonnegative = TRUE, refresh = 't{tag}'{more}) g, "
        "count(*) AS n, dp_stderr(n), dp_interval_low(n), dp_interval_high(n) FROM trips GROUP BY g"
    )


@pytest.mark.parametrize("more", ["", ", integer = TRUE"])
def test_occupied_cells_of_a_sparse_table_are_covered(sparse: Clinic, more: str) -> None:
    """Occupied cells lose about three rows to the projection. 95 % intervals hold their counts and dp_stderr is the
    root mean squared error. Fewer than 91 % of 800, or an error off by a third, have a chance below 1e-9."""
    rows = np.array([row for tag in range(REPEATS) for row in sparse.dp(statement(tag, more))], float)
    held = (rows[:, 3] <= ROWS) & (rows[:, 4] >= ROWS)
    occupied = rows[:, 0] % 100 == 0
    assert held[occupied].sum() >= 0.88 * OCCUPIED * REPEATS
    errors = rows[occupied, 1] - ROWS
    assert errors.mean() < -2
    assert np.sqrt((rows[occupied, 2] ** 2).mean()) == pytest.approx(np.sqrt((errors**2).mean()), rel=1 / 3)
    assert ((rows[:, 3] <= rows[:, 1]) & (rows[:, 1] <= rows[:, 4])).all()
    assert rows[:, 3].min() == 0
    empty = ~occupied
    assert ((rows[empty, 3] <= 0) & (rows[empty, 4] >= 0)).mean() > 0.94


def test_releases_from_before_have_no_interval(sparse: Clinic) -> None:
    """A stored release without the measured counts is answered as it is, without an interval that would not hold."""
    before = sparse.dp(statement(1))
    name = sparse.value("SELECT name FROM dp_releases()")
    sparse.rows(f"ALTER TABLE private.{name} DROP COLUMN raw_1")
    after = sparse.dp(statement(1))
    assert [row[:3] for row in after] == [row[:3] for row in before]
    assert {row[3:] for row in after} == {(None, None)}
