"""Noise of the product's samplers over counts of Adult: errors have the stated size, and intervals cover."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
from scipy import sparse

from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.operators import IdentityFactor
from dpduck.strategies.recovery.atoms import Along, NoisyTable
from dpduck.strategies.recovery.estimator import Estimator
from dpduck.strategies.recovery.intervals import sum_margin
from dpduck.values.arrays import FloatArray

NAMES = ("education", "sex", "race", "workclass")
RUNS = 4000
LAPLACE, GAUSSIAN = NoiseKind.LAPLACE, NoiseKind.GAUSSIAN


def exact_table(path: Path) -> FloatArray:
    """Counts of Adult by four columns."""
    codes = ", ".join(f"dense_rank() OVER (ORDER BY {name}) - 1 AS {name}" for name in NAMES)
    columns = duckdb.sql(f"SELECT {codes} FROM '{path}'").fetchnumpy()
    places = tuple(np.asarray(columns[name], np.intp) for name in NAMES)
    table = np.zeros([int(place.max()) + 1 for place in places])
    np.add.at(table, places, 1)
    return table


def noisy(exact: FloatArray, along: dict[int, Along], kind: NoiseKind, parameter: int) -> NoisyTable:
    """One table of every run, with noise of its own in each: runs are an axis that is measured cell by cell."""
    answers = exact.sum(axis=tuple(axis for axis in range(exact.ndim) if axis not in along))
    for place, (_, one) in enumerate(sorted(along.items())):
        rows = np.eye(answers.shape[place]) if one.rows is None else one.rows.toarray()
        rows = rows if one.kept is None else rows * one.kept
        answers = np.moveaxis(np.tensordot(rows, answers, axes=([1], [place])), 0, place)
    noise = Noise(kind, Fraction(parameter))
    drawn = draw(noise, answers.size * RUNS, operating_system_entropy()).reshape(*answers.shape, RUNS)
    return NoisyTable(along | {exact.ndim: Along(IdentityFactor(RUNS))}, noise.variance, answers[..., None] + drawn)


def test_errors_are_what_is_said_and_intervals_cover(data_file: Callable[[str], Path]) -> None:
    """The mean squared error of 4,000 runs is within 5 % of the variance, for each of two questions. 95 % are covered.

    A run's cells share some noise: over 4,000 runs the mean of squares over variances has a standard deviation below
    0.007 (a hundredth of the cells' 32 x 4,000, at the kurtosis 6 of one Laplace variable), so that right errors leave
    5 % with probability below 1e-10. A variance 1.5 times too large never is inside.
    """
    exact = exact_table(data_file("adult.parquet"))
    size = exact.shape
    plain = [Along(IdentityFactor(length)) for length in size]
    half = Along(IdentityFactor(size[0]), np.arange(size[0]) < 8)
    prefixes = Along(rows=sparse.csr_array(np.tril(np.ones((size[0], size[0])))))
    seen = [
        noisy(exact, {0: plain[0], 1: plain[1]}, LAPLACE, 8),
        noisy(exact, {0: plain[0]}, GAUSSIAN, 90),
        noisy(exact, {1: plain[1], 2: plain[2], 3: plain[3]}, LAPLACE, 5),
        noisy(exact, {0: half, 3: plain[3]}, GAUSSIAN, 60),
        noisy(exact, {0: prefixes}, LAPLACE, 12),
    ]
    estimator, smallest = Estimator([*size, RUNS], seen), min(one.variance for one in seen) ** 0.5
    every_run = sparse.csr_array(sparse.eye_array(RUNS))
    some = sparse.csr_array((np.arange(size[3]) < 4).astype(np.float64)[None, :])
    questions = [
        ({0: sparse.csr_array(np.eye(size[0])), 1: sparse.csr_array(np.eye(size[1]))}, exact.sum(axis=(2, 3))),
        ({1: sparse.csr_array(np.eye(size[1])), 3: some}, exact.sum(axis=(0, 2)) @ some.toarray().T),
    ]
    margins = sum_margin(LAPLACE, Fraction(95, 100))
    for asked, truth in questions:
        found = estimator.answer(asked | {4: every_run})
        assert found.known.all()
        errors, variances = found.estimates - truth[..., None], found.variances
        assert abs(np.mean(errors**2 / variances) - 1) < 0.05
        half_widths = np.vectorize(lambda stderr: margins.of(stderr, stderr / smallest))(np.sqrt(variances[..., 0]))
        covered = np.abs(errors) <= half_widths[..., None]
        assert covered.mean() > 0.95 - 6.5 * (0.05 * 0.95 / RUNS) ** 0.5
        assert not (np.abs(errors) <= half_widths[..., None] / 2).mean() > 0.95
