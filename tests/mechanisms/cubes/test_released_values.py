"""A released number is the exact answer plus noise of the stated size, through the connection."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest

from tests.support.clinics import Clinic, by

OpenClinic = Callable[..., Clinic]
CELLS = 20_000

# Allowances are 6.5 standard deviations of the estimate, so that a false alarm is about 1e-10. For a mean that is sd /
# sqrt(n). For a variance, relatively, sqrt(5 / n) (Laplace has kurtosis 6, Gaussian less). For a one-sided coverage of
# 95 %, sqrt(0.95 * 0.05 / n).


@pytest.fixture
def cells(open_clinic: OpenClinic) -> Clinic:
    """A table with 20,000 public cells. Every third is empty, and each has noise of its own."""
    clinic = open_clinic()
    clinic.rows(
        f"CREATE TABLE visits AS SELECT cell, range AS patient FROM range({CELLS}) t(cell), range(7) "
        "WHERE range < cell % 3 * 3"
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 20, delta = 1e-6), "
        f"DOMAIN cell RANGE 0 TO {CELLS} STEP 1)"
    )
    return clinic


@pytest.mark.parametrize("price", ["epsilon = 1", "epsilon = 0.25", "epsilon = 1, delta = 1e-7", "rho = 0.5"])
def test_noise_is_unbiased_of_the_stated_size_and_covered(cells: Clinic, price: str) -> None:
    """dp_stderr is the size of the errors, and the interval covers at least as often as it says."""
    statement = by("cell").replace("epsilon = 1", price)
    statement = statement.replace("AS n", "AS n, dp_stderr(n), dp_interval_low(n), dp_interval_high(n)")
    released = np.array(cells.rows(f"SELECT * FROM dp($${statement}$$) ORDER BY cell"), float)
    exact = released[:, 0] % 3 * 3
    errors, stderr = released[:, 1] - exact, released[0, 2]
    assert len(released) == CELLS
    assert (released[:, 2] == stderr).all()
    assert abs(errors.mean()) < 6.5 * stderr / sqrt(CELLS)
    assert errors.var() == pytest.approx(stderr**2, rel=6.5 * sqrt(5 / CELLS))
    empty = exact == 0
    assert abs(errors[empty].mean()) < 6.5 * stderr / sqrt(empty.sum())
    covered = (released[:, 3] <= exact) & (exact <= released[:, 4])
    assert covered.mean() > 0.95 - 6.5 * sqrt(0.95 * 0.05 / CELLS)
    assert np.abs(np.corrcoef(errors[:-1], errors[1:])[0, 1]) < 6.5 / sqrt(CELLS)


def test_the_unit_bound_scales_the_noise(open_clinic: OpenClinic) -> None:
    """MAX ROWS m multiplies the noise by m. max_rows_contributed takes it back down."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect()
    deviations = [
        clinic.value(f"SELECT max(s) FROM dp($${by('sex', more=more).replace('AS n', 'AS n, dp_stderr(n) AS s')}$$)")
        for more in ("", "max_rows_contributed = 2", "max_rows_contributed = 1")
    ]
    scales = [4, 2, 1]
    expected = [sqrt(2 * np.exp(-1 / scale)) / -np.expm1(-1 / scale) for scale in scales]
    assert deviations == pytest.approx(expected, rel=1e-9)


def test_fresh_tags_are_independent(cells: Clinic) -> None:
    """Two releases of one question share no noise, and two aggregates of one release do not either."""
    tables = [
        np.array(cells.rows(f"SELECT * FROM dp($${by('cell', more=f'refresh = {tag!r}')}$$) ORDER BY 1"), float)
        for tag in "ab"
    ]
    exact = tables[0][:, 0] % 3 * 3
    first, second = (table[:, 1] - exact for table in tables)
    assert abs(np.corrcoef(first, second)[0, 1]) < 6.5 / sqrt(CELLS)
    both = by("cell", epsilon="2").replace("AS n", "AS n, count(patient) AS m")
    table = np.array(cells.rows(f"SELECT * FROM dp($${both}$$) ORDER BY 1"), float)
    assert abs(np.corrcoef(table[:, 1] - exact, table[:, 2] - exact)[0, 1]) < 6.5 / sqrt(CELLS)
    assert (table[:, 1] - exact).var() == pytest.approx(first.var(), rel=13 * sqrt(5 / CELLS))  # each at epsilon 1


def test_whole_numbers_are_bigints(clinic: Clinic) -> None:
    """A single table's counts are whole and may be negative. A cube's, recovered from several, are DOUBLE."""
    assert clinic.rows(f"DESCRIBE FROM dp($${by('sex')}$$)")[1][1] == "BIGINT"
    cube = by("CUBE (sex, ward)", more="strategy = 'Q+'").replace("CUBE (sex, ward), count", "sex, ward, count", 1)
    types = {row[0]: row[1] for row in clinic.rows(f"DESCRIBE FROM dp($${cube}$$)")}
    assert types == {"sex": "BIGINT", "ward": "VARCHAR", "n": "DOUBLE"}


def test_a_cube_agrees_with_itself(clinic: Clinic) -> None:
    """All margins of a release are consistent: sums of finer cells are the coarser ones."""
    cube = by("CUBE (sex, ward)", more="strategy = 'Q+'").replace("CUBE (sex, ward), count", "sex, ward, count", 1)
    rows = {(sex, ward): n for sex, ward, n in clinic.dp(cube)}
    wards = [f"w{number}" for number in range(6)]
    for sex in (0, 1):
        assert sum(rows[sex, ward] for ward in wards) == pytest.approx(rows[sex, None], abs=1e-6)
    for ward in wards:
        assert rows[0, ward] + rows[1, ward] == pytest.approx(rows[None, ward], abs=1e-6)
    assert rows[0, None] + rows[1, None] == pytest.approx(rows[None, None], abs=1e-6)
