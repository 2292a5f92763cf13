"""Figures of a trial beside another program: numpy over made-up runs, and plain SQL over rows for biases."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import duckdb
import numpy as np
import pytest

from dpduck.database import functions
from dpduck.language.select.outer import OuterQuery
from dpduck.store.cursors import Caller
from dpduck.trial.figures import answer_figures, row_figures
from tests.support.clinics import Clinic
from tests.trial.test_trial import clinic_of
from tests.trial.trial_tables import TABLES

OWNER = Caller("owner", owner=True)
SIZES, TRUE, MORE = (5.0, 7.0, 40.0, 300.0), (10.0, 20.0, 200.0, 4000.0), (9.0, 18.0, 150.0, 3900.0)
NOISY = np.array([(11, 19, 150, 4100), (9, 26, 190, 3000), (10, 20, 205, 8000)], dtype=float)
HALF = 30.0
"""Four cells with rows, true answers, and answers with clamps alone. Three runs, and half of every interval."""


@pytest.fixture
def scratch() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for name, runs, answers in (("true", 1, [TRUE]), ("more", 1, [MORE]), ("noisy", 3, NOISY)):
            connection.execute(
                f"CREATE TABLE {name}_cells (dpduck_run INT, dpduck_place INT, cell VARCHAR[], answer_1 DOUBLE, "
                "low_1 DOUBLE, high_1 DOUBLE, answer_2 DOUBLE)"
            )
            for run in range(runs):
                for place, answer in enumerate(answers[run]):
                    connection.execute(
                        f"INSERT INTO {name}_cells VALUES ($1, $2, [$3], $4, $5, $6, $7)",
                        [run, place, f"cell {place}", answer, answer - HALF, answer + HALF, SIZES[place]],
                    )
        yield connection


@pytest.mark.parametrize(("bucket", "cells"), [(0, [0, 1]), (1, [2]), (2, [3])])
def test_errors_are_those_of_numpy(scratch: duckdb.DuckDBPyConnection, bucket: int, cells: list[int]) -> None:
    """Errors, shares, noise, biases and coverage of the cells of each size."""
    figures = answer_figures(scratch, 0, "n", 1)
    assert [line.size for line in figures] == ["1 to 9 rows", "10 to 99 rows", "100 to 999 rows"]
    line, noisy = figures[bucket], NOISY[:, cells]
    true, more = np.array(TRUE)[cells], np.array(MORE)[cells]
    errors = np.abs(noisy / true - 1)
    assert (line.answer, line.cells) == ("n", len(cells))
    assert line.median_error == pytest.approx(np.quantile(errors, 0.5, method="inverted_cdf"))
    assert line.p90_error == pytest.approx(np.quantile(errors, 0.9, method="inverted_cdf"))
    assert line.within_10 == pytest.approx((errors <= 0.1 + 1e-12).mean())
    assert line.within_50 == pytest.approx((errors <= 0.5 + 1e-12).mean())
    assert line.stderr == pytest.approx(np.sqrt(noisy.var(axis=0, ddof=1).mean()))
    assert line.bias_of_rows == pytest.approx((noisy.mean(axis=0) - more).sum() / true.sum())
    assert line.bias_of_clamps == pytest.approx((more - true).sum() / true.sum())
    assert line.coverage == pytest.approx((np.abs(noisy - true) <= HALF).mean())


def test_rows_and_their_order_are_compared(scratch: duckdb.DuckDBPyConnection) -> None:
    """Dropped, spurious and swapped rows of two runs, counted by hand."""
    shown = {"true": [["a", "b", "c", "d"]], "noisy": [["a", "c", "b", "d"], ["b", "a", "x"], ["a", "b", "c", "d"]]}
    for name, runs in shown.items():
        scratch.execute(f"CREATE TABLE {name}_shown (dpduck_run INT, dpduck_place INT, label VARCHAR, n DOUBLE)")
        for run, labels in enumerate(runs):
            for place, label in enumerate(labels, 1):
                scratch.execute(f"INSERT INTO {name}_shown VALUES ($1, $2, $3, 1.5)", [run, place, label])
    figures = row_figures(scratch, ["label"], OuterQuery("SELECT label, n FROM t ORDER BY n", ("label", "n")))
    assert figures.rows == 4
    assert figures.dropped == pytest.approx(2 / 12)
    assert figures.spurious == pytest.approx(1 / 11)
    assert figures.swapped == pytest.approx((1 / 6 + 1 / 1 + 0 / 6) / 3)
    unordered = row_figures(scratch, ["label"], OuterQuery("SELECT label, n FROM t", ("label", "n")))
    assert unordered.swapped is None


def test_biases_are_those_of_plain_sql(open_clinic: Callable[..., Clinic]) -> None:
    """What MAX ROWS and a clamp take away, beside plain SQL: persons with several rows, NULLs, a clamp, a filter.

    The bias of rows is a mean over runs with noise. It is farther off than 7 standard errors with a chance below 1e-11.
    """
    clinic = clinic_of(open_clinic, TABLES[2])
    database = functions.database_of(clinic.con)
    assert database is not None
    where = "WHERE drug <> 'drug 3'"
    text = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 5, max_rows_contributed = 2) count(*) AS n, "
        f"sum(cost) AS s FROM visits {where}"
    )
    (trial,) = database.trials.run(text, 40, [None], OWNER)
    count, total = trial.answers
    rows, kept = clinic.rows(
        f"SELECT sum(n), sum(least(n, 2)) FROM (SELECT count(*) AS n FROM visits {where} GROUP BY patient_id)"
    )[0]
    assert 0.5 < kept / rows < 0.95, "MAX ROWS leaves rows out"
    assert count.stderr is not None and count.bias_of_rows is not None
    assert abs(count.bias_of_rows - (kept / rows - 1)) < 7 * count.stderr / rows / 40**0.5
    assert count.bias_of_clamps == pytest.approx(0, abs=1e-9)
    ((clamped, plain),) = clinic.rows(f"SELECT sum(least(cost, 60)), sum(cost) FROM visits {where}")
    assert 0.6 < clamped / plain < 0.95, "the clamp takes something away"
    assert total.bias_of_clamps == pytest.approx(clamped / plain - 1, abs=2e-3)


def test_coverage_is_that_of_the_interval(open_clinic: Callable[..., Clinic]) -> None:
    """Where nothing is left out, 95 % intervals hold the true answer in 95 % of runs.

    Of 600 independent intervals fewer than 540 or all do so with a chance below 1e-7.
    """
    table = TABLES[1]
    clinic = clinic_of(open_clinic, table)
    database = functions.database_of(clinic.con)
    assert database is not None
    text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) ward, count(*) AS n FROM visits GROUP BY ward"
    (trial,) = database.trials.run(text, 200, [None], OWNER)
    (line,) = trial.answers
    assert line.cells == 3 and line.coverage is not None
    assert 0.9 <= line.coverage < 1
    assert line.stderr == pytest.approx(2**0.5 / 0.5, rel=0.35)
