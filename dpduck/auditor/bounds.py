"""Lower bounds on the privacy loss of a release, from many runs over two neighbouring tables.

An event is chosen on the first half of the runs. Its probabilities are bounded on the second half by Clopper-Pearson
intervals, each wrong with half of the stated probability. For a pure release, P(E) <= exp(epsilon) Q(E) for every
event. For a rho-zCDP release, the event's Rényi divergence of order a is at most a rho (Bun and Steinke 2016,
Definition 1.1, with data processing). Both hold in either direction, except for delta. So the result is a lower bound
on the true epsilon or rho. If it is above the charge, the release revealed more than was paid for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from dpduck.values.arrays import FloatArray, IntegerArray

ORDERS = np.concatenate([1 + np.geomspace(0.01, 1, 8), np.geomspace(2.5, 64, 10)])
"""Orders of Rényi divergences. Each gives a bound by itself, and the largest bound is taken."""

THRESHOLDS = 48
MOST_PARITIES = 32
POWER = 0.95


@dataclass(frozen=True)
class Claim:
    """Charge for one run. epsilon: None for a release that is not pure."""

    epsilon: float | None
    rho: float
    delta: float


@dataclass(frozen=True)
class Event:
    """Event that a weighted sum of an answer's numbers lies on one side of a threshold.

    parity: whether the sum is taken modulo 2. more: the table (0 or 1) on which the event is likelier.
    """

    weights: FloatArray
    parity: bool
    threshold: float
    above: bool
    more: int


@dataclass(frozen=True)
class Bound:
    """Lower bound on the loss in one measure. seen: the bound, which is wrong with probability `error` at most.

    charged: the limit for the loss. found: the least true loss at which `seen` exceeds it with probability 0.95.
    """

    measure: str
    charged: float
    seen: float
    found: float
    runs: int
    error: float

    @property
    def broken(self) -> bool:
        return self.seen > self.charged


def bounds(both: tuple[FloatArray, FloatArray], claim: Claim, error: float) -> list[Bound]:
    """Computes bounds on epsilon, if it was charged, and on rho. both: the answers of each table, one row for a run."""
    measures = [("rho", claim.rho)] if claim.epsilon is None else [("epsilon", claim.epsilon), ("rho", claim.rho)]
    number = min(len(both[0]), len(both[1])) // 2
    first, second = [table[:number] for table in both], [table[number : 2 * number] for table in both]
    events = list(_events(first))
    results = []
    for measure, charged in measures:
        share = error / len(measures)
        event, likely = _best(events, first, measure, claim, share, number)
        counts = [int(_inside(event, table).sum()) for table in second]
        often, rarely = counts[event.more], counts[1 - event.more]
        seen = float(_seen(measure, np.array([often]), np.array([rarely]), number, claim.delta, share)[0])
        least = _least_found(measure, charged, likely, number, claim.delta, share)
        results.append(Bound(measure, charged, max(seen, 0.0), least, number, share))
    return results


def _events(first: list[FloatArray]) -> Iterator[tuple[FloatArray, bool]]:
    """Yields weights of a sum of answers, and whether the sum's parity is taken.

    A sum has one answer alone, or it is the sum that differs most between the tables relative to its spread. Noise of
    even numbers alone would not hide a parity.
    """
    without, having = first
    width = without.shape[1]
    moved = having.mean(axis=0) - without.mean(axis=0)
    spread = np.sqrt(without.var(axis=0) + having.var(axis=0)) + 1e-9
    single = np.argsort(-np.abs(moved / spread))[:MOST_PARITIES]
    unit = np.eye(width)
    yield from ((unit[place], False) for place in single)
    yield from ((unit[place], True) for place in single)
    yield moved / spread**2, False
    common = np.cov(without, rowvar=False) + np.cov(having, rowvar=False)
    scale = np.sqrt(np.outer(spread, spread))
    ridge = np.atleast_2d(common) / scale + 1e-6 * np.eye(width)
    yield np.linalg.solve(ridge, moved / np.sqrt(spread)) / np.sqrt(spread), False


def _scores(weights: FloatArray, parity: bool, answers: FloatArray) -> FloatArray:
    scores: FloatArray = answers @ weights
    return np.mod(np.rint(scores), 2) if parity else scores


def _inside(event: Event, answers: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    above = _scores(event.weights, event.parity, answers) >= event.threshold
    return above if event.above else ~above


def _best(
    events: list[tuple[FloatArray, bool]],
    first: list[FloatArray],
    measure: str,
    claim: Claim,
    error: float,
    number: int,
) -> tuple[Event, float]:
    """Returns the event with the largest bound on the first half, and its probability on the table `more`."""
    best, chosen, likely = -np.inf, Event(events[0][0], False, 0.0, True, 0), 0.5
    for weights, parity in events:
        scores = [np.sort(_scores(weights, parity, values)) for values in first]
        pooled = np.concatenate(scores)
        quantiles = np.quantile(pooled, np.linspace(0, 1, THRESHOLDS), method="inverted_cdf")
        tails = [np.sort(values)[[-(number // 50) - 1, number // 50]] for values in scores]
        thresholds = np.unique(np.concatenate([quantiles, *tails]))
        above = [number - np.searchsorted(values, thresholds, side="left") for values in scores]
        for upper in (True, False):
            counts = above if upper else [number - values for values in above]
            for more in (0, 1):
                seen = _seen(measure, counts[more], counts[1 - more], number, claim.delta, error)
                place = int(seen.argmax())
                if seen[place] > best:
                    best, chosen = seen[place], Event(weights, parity, float(thresholds[place]), upper, more)
                    likely = (counts[more][place] + 0.5) / (number + 1)
    return chosen, float(likely)


def _seen(
    measure: str, often: IntegerArray, rarely: IntegerArray, number: int, delta: float, error: float
) -> FloatArray:
    """Computes lower bounds of the loss from the counts of events in `number` runs over each of two tables."""
    low = np.where(often > 0, betaincinv(np.maximum(often, 1), number - often + 1, error / 2), 0.0) - delta
    high = np.where(rarely < number, betaincinv(rarely + 1, np.maximum(number - rarely, 1), 1 - error / 2), 1.0)
    return _loss(measure, low, high, delta)


def _loss(measure: str, low: FloatArray, high: FloatArray, delta: float) -> FloatArray:
    """Computes the loss of an event with probability at least `low` on one table, and at most `high` on the other."""
    low, high = np.clip(low, 1e-300, 1 - 1e-16), np.clip(high / (1 - delta), 1e-300, 1 - 1e-16)
    if measure == "epsilon":
        result: FloatArray = np.log(low / high)
        return result
    order = ORDERS[:, None]
    of_event = order * np.log(low) + (1 - order) * np.log(high)
    of_rest = order * np.log1p(-low) + (1 - order) * np.log1p(-high)
    divergence = np.logaddexp(of_event, of_rest) / (order - 1)
    return np.where(low > high, (divergence / order).max(axis=0), 0.0)


def _least_found(measure: str, charged: float, likely: float, number: int, delta: float, error: float) -> float:
    """Computes the least loss for which this event would give a bound above the charge, with probability 0.95.

    The event keeps its probability on one table. On the other, a loss lowers it: by the factor exp(-loss) for epsilon,
    and by the shift of a normal law for rho. Counts lie within the normal quantiles of 0.025 and 0.975.
    """
    likely = min(max(likely, 1 / number), 1 - 1 / number)

    def shows(loss: float) -> bool:
        rare = likely * np.exp(-loss) if measure == "epsilon" else ndtr(ndtri(likely) - sqrt(2 * loss))
        reach = ndtri(1 - (1 - POWER) / 2)
        often = number * likely - reach * sqrt(number * likely * (1 - likely))
        rarely = number * rare + reach * sqrt(number * rare * (1 - rare)) + 1
        if often < 1:
            return False
        counts = np.array([int(often)]), np.array([min(int(rarely), number)])
        return bool(_seen(measure, *counts, number, delta, error)[0] > charged)

    low, high = charged, charged
    while not shows(high):
        low, high = high, 2 * high
        if high > 1e4:
            return float("inf")
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return high
