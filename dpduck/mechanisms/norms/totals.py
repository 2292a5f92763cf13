"""Brings cells to a total that was measured apart, and widens intervals by what norms leave out.

Let z be the noisy cells of weighed units, and Z their sum. Weights only remove: each expected cell is at most its true
count, so the lower end of an interval about z holds without any assumption.

total: T is the noisy sum of all cells at a larger norm. Answers are z max(1, T / Z). They still add up. Cells of units
that were weighed down may have lost more than others, so upper ends are raised once more by the same correction.

left_out: P is the noisy sum of all rows within MAX ROWS. With D = P - Z and its upper end D+, upper ends are those of z
times 1 + D+ / Z. D+ is valid whatever the rows are. For a cell it assumes that rows are left out in proportion.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from dpduck.kernel.contributions import FULL
from dpduck.kernel.noise.law import NoiseKind
from dpduck.mechanisms.cubes.plan import measured_plan
from dpduck.mechanisms.cubes.recover import wholes
from dpduck.mechanisms.norms.plan import Found, NoisySum
from dpduck.mechanisms.released_rows import AnswerColumn
from dpduck.strategies.plan import noisy_queries
from dpduck.strategies.recovery.curved import margins
from dpduck.values.arrays import FloatArray

SURE = 4.0
"""Standard errors that a sum must be above 0 before cells are compared with it."""


@dataclass(frozen=True)
class Summed:
    """A noisy sum of all cells, the variance of its noise, and the worth of one integer."""

    answer: float
    variance: float
    step: float


def widened(found: Found, number: int, answer: AnswerColumn) -> AnswerColumn:
    """Returns the answers of an aggregate by its total, with intervals that hold the missing rows.

    Averages stay: a unit that is weighed down is so in the count and in the sum.
    """
    use, whole = found.plan.uses[number], wholes(found.plan)[number]
    if use.also is not None or not use.weights:
        return answer
    step, noise = float(use.weights[0]), found.plan.noise
    cells = _cells(found, use.measure, step)
    kept, spread = answer.estimates, answer.stderrs
    own = margins(noise, spread, step)
    lows, highs, shown, errors = kept - own, kept + own, kept, spread
    if use.measure in found.totals:
        times, errors = _brought(cells, _summed(found.totals[use.measure], step), kept, spread)
        shown = np.rint(kept * times) if whole else kept * times
        highs = np.maximum(highs, 2 * shown - kept + margins(noise, errors, step))
    if use.measure in found.sums:
        every = _summed(found.sums[use.measure], step * FULL)
        highs = np.maximum(highs, _with_left_out(cells, every, kept + own, noise))
    if whole:
        lows, highs = np.floor(lows), np.ceil(highs)
    return AnswerColumn(shown, errors, lows, highs)


def _cells(found: Found, measure: int, step: float) -> Summed:
    """Returns the sum of the measured cells, which have one noise."""
    (table,) = found.tables[measure]
    ((_, noise),) = noisy_queries(measured_plan(found.plan.measures[measure].plan))
    cells = table[0]
    return Summed(float(cells.sum(dtype=np.float64)) * step, cells.size * noise.variance * step**2, step)


def _summed(one: NoisySum, step: float) -> Summed:
    return Summed(one.answer * step, one.variance * step**2, step)


def _brought(cells: Summed, total: Summed, kept: FloatArray, errors: FloatArray) -> tuple[float, FloatArray]:
    """Returns by how much answers grow, at least 1, and the standard errors of the grown answers.

    An answer is z T / Z, and z is a part of Z: their covariance is the variance of z.
    """
    if cells.answer <= SURE * sqrt(cells.variance) or total.answer <= cells.answer:
        return 1.0, errors
    times, parts = total.answer / cells.answer, kept / cells.answer
    own = errors**2 * (1 - 2 * parts) + parts**2 * cells.variance
    return times, np.sqrt(times**2 * np.maximum(own, 0) + parts**2 * total.variance)


def _with_left_out(cells: Summed, every: Summed, highs: FloatArray, noise: NoiseKind) -> FloatArray:
    """Returns upper ends with the missing rows, in proportion. highs: upper ends about the kept rows, at every level.

    Where the sum of the cells is noise alone, any cell may hold all missing rows.
    """
    error = sqrt(cells.variance + every.variance)
    missing = max(0.0, every.answer - cells.answer) + margins(noise, np.array([error]), every.step)
    if cells.answer <= SURE * sqrt(cells.variance):
        return highs + missing
    return np.maximum(highs, 0) * (1 + missing / cells.answer)
