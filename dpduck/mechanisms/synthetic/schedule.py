"""Division of a budget over rounds: exact rationals, fixed before any data is seen.

With m rows of a unit, a pure round costs 2 m rate for the choice and m / b for the answer. A zCDP round costs
(m rate)^2 / 2 and m^2 / (2 sigma^2). The parameter of an answer is b or sigma^2 (kernel.noise.law).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import erf, exp, log, pi, prod, sqrt

import numpy as np

from dpduck.strategies.budgets import root_below
from dpduck.values.arrays import FloatArray

TOTAL_SHARE = {True: Fraction(1, 20), False: Fraction(1, 50)}
"""Share of epsilon (True) or of rho for the noisy number of records."""

RECORDS = 10_000
"""Number of records in predictions if the policy has no EXPECT ROWS."""

UNSEEN = 0.05
"""Predicted error (total variation) of unasked marginals, after the wanted number of rounds."""

DRAWN = 0.12
"""Error of drawn rows, as a multiple of the root of a marginal's cells over rows. Measured on generated tables."""

UNEVEN, NODES = 0.45, 40
"""Spread of cells relative to the logarithm of a column's size, and the number of points of a mean (`remaining`)."""

PAIR_ERROR, PAIR_POWER, UNMEASURED = 0.5, 0.82, 0.1
"""Factor and power of the noise in a pair's error after annealed rounds. Error of a pair of independent columns."""

DROWNED = 0.35
"""Most total variation of noise in an average pair of columns at which pairs are measured."""

CLEAR_PAIRS, CLEAR_SINGLES = 0.15, 0.04
"""Most noise of small pairs, and of 1-way marginals at the whole price. If an average pair is beyond DROWNED, pairs are
measured only within both limits."""

LOUDEST = 0.25
"""Rounds are fewer if their noise would exceed this total variation."""

KEPT_NOISE = 0.8
"""The part of the noise of an average answer that the paper's update leaves in a marginal. It was measured."""

DROWNED_ANSWER = 0.3
"""Most total variation of noise in an answer of the paper's update. `answer_noise` never exceeds 0.5."""


@dataclass(frozen=True)
class Schedule:
    """Division of a budget. amount: epsilon if pure, else rho. first: the number of marginals before the rounds.

    first_share: the part of the amount for these marginals. choice_share: the part of a round's price for its choice.
    adaptive: whether rounds start at a quarter of their share, and double it if noise drowns an answer.
    """

    pure: bool
    amount: Fraction
    unit_bound: int
    rounds: int
    choice_share: Fraction
    first: int = 0
    first_share: Fraction = Fraction(0)
    adaptive: bool = False

    @property
    def total_price(self) -> Fraction:
        return self.amount * TOTAL_SHARE[self.pure]

    @property
    def first_price(self) -> Fraction:
        return self.amount * self.first_share / self.first if self.first else Fraction(0)

    @property
    def round_price(self) -> Fraction:
        left = self.amount * (1 - TOTAL_SHARE[self.pure]) - self.first_price * self.first
        return left / self.rounds if self.rounds else Fraction(0)

    def rate(self, price: Fraction) -> Fraction:
        if self.pure:
            return price / (2 * self.unit_bound)
        return root_below(2 * price) / self.unit_bound

    def parameter(self, price: Fraction) -> Fraction:
        """Returns the scale or variance of an answer that costs exactly `price`."""
        return self.unit_bound / price if self.pure else self.unit_bound**2 / (2 * price)

    def of_round(self, price: Fraction) -> tuple[Fraction, Fraction]:
        """Returns rate and parameter of a round that costs at most `price`."""
        choice = price * self.choice_share
        return self.rate(choice), self.parameter(price - choice)

    def variance(self, parameter: Fraction) -> float:
        return 2 * float(parameter) ** 2 if self.pure else float(parameter)


def mean_absolute(pure: bool, variance: float) -> float:
    """Returns the mean absolute value of Laplace or Gaussian noise of this variance."""
    return sqrt(variance / 2) if pure else sqrt(2 * variance / pi)


def error_after_rounds(schedule: Schedule, shapes: Sequence[tuple[int, ...]], attributes: int, records: int) -> float:
    """Guesses the mean total variation of marginals after the rounds, from noise and unasked marginals (UNSEEN)."""
    _, parameter = schedule.of_round(schedule.round_price)
    noise = mean_absolute(schedule.pure, schedule.variance(parameter))
    unseen = UNSEEN * target_rounds(shapes, attributes) / schedule.rounds
    return min(1.0, unseen + float(remaining([noise] * len(shapes), shapes, records).mean()))


def aim_error(schedule: Schedule, shapes: Sequence[tuple[int, ...]], sizes: Sequence[int], records: int) -> float:
    """Returns the predicted mean total variation over marginals for rounds that anneal.

    The error of a pair of columns is a power of its remaining noise, as if three pairs for each column shared the whole
    price. Marginals with more pairs have a larger error. If only 1-way marginals are measured, the error of a pair is
    twice their noise, plus the dependence between its columns. docs/synthetic_data.md says how far off this is.
    """
    numbers = [len(shape) * (len(shape) - 1) / 2 or 0.2 for shape in shapes]
    price = schedule.amount / (3 * len(sizes)) if schedule.rounds else schedule.first_price
    noise = mean_absolute(schedule.pure, schedule.variance(schedule.parameter(price)))
    asked = [*combinations(sizes, 2)] if schedule.rounds else [(size,) for size in sizes]
    remainder = float(remaining([noise] * len(asked), asked, records).mean())
    of_pair = PAIR_ERROR * float(remainder**PAIR_POWER) if schedule.rounds else UNMEASURED + 2 * remainder
    return sum(min(1.0, of_pair * float(number**0.7)) for number in numbers) / len(numbers)


def apart_error(marginals: Sequence[tuple[int, ...]]) -> float:
    """Returns the usual total variation between independent columns and the data, as a mean over marginals."""
    pairs = [len(marginal) * (len(marginal) - 1) / 2 for marginal in marginals]
    return sum(min(1.0, UNMEASURED * float(number**0.7)) for number in pairs) / len(pairs) or 1.0


def pair_noise(schedule: Schedule, sizes: Sequence[int], records: int) -> float:
    """Returns the total variation of noise in a pair of columns, if three pairs a column share the whole price."""
    parameter, mean = schedule.parameter(schedule.amount / (3 * len(sizes))), sum(sizes) / len(sizes)
    return mean_absolute(schedule.pure, schedule.variance(parameter)) * mean * mean / (2 * records)


def all_drowned(schedule: Schedule, sizes: Sequence[int], records: int) -> bool:
    """Tells whether noise drowns all pairs of columns, so that only 1-way marginals are worth their price.

    An average pair may be drowned although pairs of small columns are clear. Clear pairs are worth their price if they
    suffice for a tree over all columns.
    """
    if pair_noise(schedule, sizes, records) <= DROWNED:
        return False
    cells, columns = sorted(value * other for value, other in combinations(sizes, 2)), len(sizes)
    parameters = schedule.parameter(schedule.amount / (3 * columns)), schedule.parameter(schedule.amount / columns)
    pair, single = (mean_absolute(schedule.pure, schedule.variance(value)) / (2 * records) for value in parameters)
    return pair * cells[columns - 2] > CLEAR_PAIRS or single * sum(sizes) / columns > CLEAR_SINGLES


def drawn_error(shapes: Sequence[tuple[int, ...]], rows: int) -> float:
    """Returns the total variation between drawn rows and their distribution, as a mean over marginals."""
    return sum(min(0.5, DRAWN * sqrt(prod(shape) / rows)) for shape in shapes) / len(shapes)


def mean_cells(shapes: Sequence[tuple[int, ...]]) -> float:
    """Returns the mean number of cells of a marginal."""
    return sum(prod(shape) for shape in shapes) / len(shapes)


def surviving(variation: float) -> float:
    """Returns how much of this total variation of noise is left after a fit, if all cells have equally many records."""
    return variation / (1 + 2 * variation)


def remaining(noises: Sequence[float], shapes: Sequence[tuple[int, ...]], records: int) -> FloatArray:
    """Returns the total variation that noise of this mean absolute value leaves in each marginal of a fit.

    In a cell of c records, noise a leaves a c / (a + c): little noise stays, and much noise leaves at most c, since no
    cell is negative. Cells are as uneven as in usual tables: the logarithm of a cell's share has a normal law with
    variance sum of (UNEVEN ln(size))^2 over the columns.
    """
    places, weights = np.polynomial.hermite_e.hermegauss(NODES)
    spreads = np.sqrt([[sum((UNEVEN * log(size)) ** 2 for size in shape)] for shape in shapes])
    cells = np.array([[float(prod(shape))] for shape in shapes])
    counts = records / cells * np.exp(spreads * places - spreads * spreads / 2)
    noise = np.array(noises)[:, None]
    remainder = noise * counts / (noise + counts) @ (weights / weights.sum())
    return np.asarray(remainder * cells[:, 0] / (2 * records))


def target_rounds(shapes: Sequence[tuple[int, ...]], attributes: int) -> int:
    """Returns the wanted rounds: one for each attribute, or three if marginals are pairs, since a pair tells less."""
    pairs = max(len(shape) for shape in shapes) == 2
    return max(1, min(3 * attributes, len(shapes)) if pairs else attributes)


def rounds_of(schedule: Schedule, shapes: Sequence[tuple[int, ...]], attributes: int, records: int) -> int:
    """Returns the rounds for whole marginals: the wanted rounds, fewer if noise would exceed LOUDEST."""
    cells = mean_cells(shapes)
    for rounds in range(target_rounds(shapes, attributes), 1, -1):
        tried = replace(schedule, rounds=rounds)
        _, parameter = tried.of_round(tried.round_price)
        if mean_absolute(tried.pure, tried.variance(parameter)) * cells / (2 * records) <= LOUDEST:
            return rounds
    return 1


def uniform_error(shapes: Sequence[tuple[int, ...]]) -> float:
    """Returns the mean total variation between marginals of usual unevenness (`remaining`) and the uniform table."""
    spreads = [UNEVEN * sqrt(sum(log(size) ** 2 for size in shape)) for shape in shapes]
    return sum(erf(spread / (2 * sqrt(2))) for spread in spreads) / len(shapes)


def update_error(schedule: Schedule, shapes: Sequence[tuple[int, ...]], attributes: int, records: int) -> float:
    """Returns the predicted mean total variation after the rounds of the paper's update over whole marginals.

    The distance from the uniform table falls by a factor of e in attributes / 2 rounds.
    """
    learnt = exp(-2 * schedule.rounds / attributes)
    return uniform_error(shapes) * learnt + KEPT_NOISE * answer_noise(schedule, shapes, records)


def answer_noise(schedule: Schedule, shapes: Sequence[tuple[int, ...]], records: int) -> float:
    """Returns the mean total variation that the noise of a round leaves in a marginal (`remaining`)."""
    _, parameter = schedule.of_round(schedule.round_price)
    noise = mean_absolute(schedule.pure, schedule.variance(parameter))
    return float(remaining([noise] * len(shapes), shapes, records).mean())


def updates_of(schedule: Schedule, shapes: Sequence[tuple[int, ...]], attributes: int, records: int, most: int) -> int:
    """Returns the rounds for update = 'paper' over whole marginals: until the error grows or noise drowns an answer."""
    last = update_error(replace(schedule, rounds=1), shapes, attributes, records)
    for rounds in range(2, most + 1):
        tried = replace(schedule, rounds=rounds)
        error = update_error(tried, shapes, attributes, records)
        if error >= last or answer_noise(tried, shapes, records) > DROWNED_ANSWER:
            return rounds - 1
        last = error
    return most


def queries_rounds(schedule: Schedule, universe: int, queries: int, records: int, most: int) -> int:
    """Returns the number of rounds for single queries: it minimises the paper's bound on the largest error."""
    epsilon = float(schedule.amount) if schedule.pure else sqrt(2 * float(schedule.amount))
    best: float = (records * epsilon * sqrt(log(max(universe, 2))) / (10 * log(max(queries, 2)))) ** (2 / 3)
    return max(1, min(most, int(best + 0.5)))


def largest_error(schedule: Schedule, universe: int, queries: int, records: int) -> tuple[float, float]:
    """Returns the paper's bound on the largest error of a query, in rows, and the chance that it fails (Theorem 2.2).

    The bound is 2 n sqrt(ln |X| / T) + 10 T ln |W| / epsilon, for |X| cells, |W| queries and T rounds. It fails with
    chance 2 T / |W|. epsilon is the price of all rounds for one of a unit's rows.
    """
    rounds, epsilon = schedule.rounds, float(schedule.round_price * schedule.rounds) / schedule.unit_bound
    noise = 10 * rounds * log(max(queries, 2)) / epsilon
    return 2 * records * sqrt(log(max(universe, 2)) / rounds) + noise, 2 * rounds / queries
