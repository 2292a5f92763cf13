"""Correction of cells by a total that was measured apart, and wider intervals for the rows that norms leave out.

Let z be the noisy cells of weighed units, and Z their sum. Weights only remove, so each expected cell is at most its
true count, and the lower end of an interval about z always holds.

total: T is the noisy sum of all cells at a larger norm. Answers are z max(1, T / Z). Cells of heavy units lost more
    than others, so upper ends are raised once more by the same correction.

left_out: P is the noisy sum of all rows within MAX ROWS, and D+ is the upper end of P - Z. Upper ends of z are
    multiplied by 1 + D+ / Z, as if each cell lost rows in proportion.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from dpduck.kernel.contributions import FULL
from dpduck.kernel.noise.law import NoiseKind
from dpduck.mechanisms.cubes.recover import wholes
from dpduck.mechanisms.norms.plan import NoisySum, NormMeasurements
from dpduck.mechanisms.released_rows import AnswerColumn
from dpduck.strategies.plan import noisy_queries
from dpduck.strategies.recovery.curved import margins
from dpduck.values.arrays import FloatArray

SURE = 4.0
"""The sum of the cells must be this many standard errors above 0 before it is compared with another sum."""


@dataclass(frozen=True)
class Summed:
    """Noisy sum of all cells, the variance of its noise, and the worth of one integer."""

    answer: float
    variance: float
    step: float


def widen_intervals(outcome: NormMeasurements, number: int, answer: AnswerColumn) -> AnswerColumn:
    """Corrects an aggregate's answers by its total, and widens intervals so that they allow for missing rows.

    Averages stay as they are: a unit has the same weight in the count and in the sum.
    """
    use, whole = outcome.plan.uses[number], wholes(outcome.plan)[number]
    if use.also is not None or not use.weights:
        return answer
    step, noise = float(use.weights[0]), outcome.plan.noise
    cells = _cells(outcome, use.measure, step)
    estimates, spread = answer.estimates, answer.stderrs
    own = margins(noise, spread, step)
    lows, highs, shown, errors = estimates - own, estimates + own, estimates, spread
    if use.measure in outcome.totals:
        times, errors = _brought(cells, _rescale(outcome.totals[use.measure], step), estimates, spread)
        shown = np.rint(estimates * times) if whole else estimates * times
        highs = np.maximum(highs, 2 * shown - estimates + margins(noise, errors, step))
    if use.measure in outcome.sums:
        every = _rescale(outcome.sums[use.measure], step * FULL)
        highs = np.maximum(highs, _with_left_out(cells, every, estimates + own, noise))
    if whole:
        lows, highs = np.floor(lows), np.ceil(highs)
    return AnswerColumn(shown, errors, lows, highs)


def _cells(outcome: NormMeasurements, measure: int, step: float) -> Summed:
    """Returns the sum of a measure's noisy cells. step: the worth of one integer. All cells have the same noise."""
    (table,) = outcome.tables[measure]
    ((_, noise),) = noisy_queries(outcome.plan.measures[measure].plan)
    cells = table[0]
    return Summed(float(cells.sum(dtype=np.float64)) * step, cells.size * noise.variance * step**2, step)


def _rescale(noisy: NoisySum, step: float) -> Summed:
    return Summed(noisy.answer * step, noisy.variance * step**2, step)


def _brought(cells: Summed, total: Summed, estimates: FloatArray, errors: FloatArray) -> tuple[float, FloatArray]:
    """Returns the factor on the answers, at least 1, and the standard errors of the corrected answers.

    A corrected answer is z T / Z, with cell z, total T and sum of cells Z. The covariance of z and Z is z's variance.
    """
    if cells.answer <= SURE * sqrt(cells.variance) or total.answer <= cells.answer:
        return 1.0, errors
    times, parts = total.answer / cells.answer, estimates / cells.answer
    own = errors**2 * (1 - 2 * parts) + parts**2 * cells.variance
    return times, np.sqrt(times**2 * np.maximum(own, 0) + parts**2 * total.variance)


def _with_left_out(cells: Summed, every: Summed, highs: FloatArray, noise: NoiseKind) -> FloatArray:
    """Raises the upper ends `highs` by the missing rows: in proportion, or by all rows if the cells' sum is noise."""
    error = sqrt(cells.variance + every.variance)
    missing = max(0.0, every.answer - cells.answer) + margins(noise, np.array([error]), every.step)
    if cells.answer <= SURE * sqrt(cells.variance):
        return highs + missing
    return np.maximum(highs, 0) * (1 + missing / cells.answer)
