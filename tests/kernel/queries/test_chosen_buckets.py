"""Buckets near a quantile are drawn by the claimed law, which costs the charged price, by an independent oracle."""

from __future__ import annotations

from dataclasses import astuple, replace
from fractions import Fraction
from math import ceil, exp, floor, log

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from benchmarks.papers._no_rows import NO_ROWS
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.door import require_paid
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.price import Ask, AskScan, price
from dpduck.kernel.queries.operators import CentredFactor, IdentityFactor, KroneckerQuery
from dpduck.kernel.queries.quantiles import Quantiles
from dpduck.strategies.ranges.buckets import BucketChoice, bucket_choices
from dpduck.values.accounting import rho_of_pure
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.privacy import Charge
from tests.kernel.doors import door_over, price_of
from tests.kernel.queries.test_distinct import JOB, VALUES

FALSE_ALARM = 1e-9
BY_CELL = KroneckerQuery((0,), (IdentityFactor(2),))
MEDIAN = Quantiles(BY_CELL, 4, 1, 1, Fraction(1, 4), 8)
DECILE = Quantiles(BY_CELL, 4, 1, 9, Fraction(1, 40), 60)
LOWER_END = Quantiles(BY_CELL, 4, 3, 1, Fraction(1, 12), 9, 5)
UPPER_END = Quantiles(BY_CELL, 4, 3, 1, Fraction(1, 12), 9, -5)
QUERIES = [MEDIAN, DECILE, LOWER_END, UPPER_END]
NAMES = ["median", "decile", "lower end", "upper end"]
CELLS = ([[0, 3, 0, 2], [0, 0, 0, 0]], [[9, 1, 1, 0], [0, 0, 1, 6]])


def counts_of(table: list[list[int]], bound: int = 1) -> ExactCounts:
    """Returns counts of rows by cell and bucket."""
    counts = np.array(table, np.int64)
    places = tuple(one.astype(np.int64) for one in np.indices(counts.shape).reshape(2, -1))
    return ExactCounts(places, counts.reshape(1, -1), counts.shape, (bound,))


def law(rows: list[int], query: Quantiles | BucketChoice, rate: float) -> NDArray[np.float64]:
    """Probabilities of each bucket and of no answer, by the definition of a quantile over a list of single values.

    A bucket's distance counts weighted rows. So many would have to change sides for the bucket to hold the quantile, or
    the value `shift` before or after it.
    """
    values = [bucket for bucket, count in enumerate(rows) for _ in range(count)]
    weights = []
    for bucket in range(len(rows)):
        before, after = sum(value < bucket for value in values), sum(value > bucket for value in values)
        late = query.below * before - query.above * (len(values) - before) + query.shift
        early = query.above * after - query.below * (len(values) - after) - query.shift
        weights.append(exp(-rate * max(late, early, 0)))
    weights.append(exp(-rate * (max(query.below, query.above) * len(values) - query.nothing)))
    return np.array(weights) / sum(weights)


def rejected(drawn: NDArray[np.int64], expected: NDArray[np.float64]) -> bool:
    """Tells whether Pearson's test rejects draws at the stated false-alarm rate. Rare outcomes are merged."""
    seen = np.bincount(drawn, minlength=len(expected))
    rare = expected * len(drawn) < 10
    seen, wanted = np.append(seen[~rare], seen[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    seen, wanted = (seen, wanted) if wanted[-1] * len(drawn) >= 10 else (seen[:-1], wanted[:-1])
    return bool(
        ((seen - wanted * len(drawn)) ** 2 / (wanted * len(drawn))).sum() > chi2.isf(FALSE_ALARM, len(seen) - 1)
    )


@pytest.mark.sampled
@pytest.mark.parametrize("query", QUERIES, ids=NAMES)
@pytest.mark.parametrize("table", CELLS, ids=["empty", "skewed"])
def test_the_law_is_the_claimed_one(query: Quantiles, table: list[list[int]]) -> None:
    """The right rate fits (false alarms 1e-9 a cell), and 2/3 and 3/2 of the rate are rejected in some cell."""
    counts, entropy = counts_of(table), operating_system_entropy()
    drawn = np.array([query.draw(counts, Ask(AskScan(NO_ROWS, 1), query), entropy, None) for _ in range(4000)])
    for wrong in (Fraction(2, 3), Fraction(3, 2)):
        rate = float(query.rate * wrong)
        assert any(rejected(drawn[:, cell], law(rows, query, rate)) for cell, rows in enumerate(table))
    for cell, rows in enumerate(table):
        assert not rejected(drawn[:, cell], law(rows, query, float(query.rate)))


@pytest.mark.parametrize("query", QUERIES, ids=NAMES)
def test_the_law_costs_what_is_charged(query: Quantiles) -> None:
    """On neighbouring cells no probability changes by more than epsilon, and no divergence exceeds rho.

    Some of the cells refute half of epsilon.
    """
    random, cost, worst = np.random.default_rng(5), price_of(query, None), 0.0
    for _ in range(400):
        rows = [int(count) for count in random.integers(0, 6, 4) * random.integers(0, 2, 4)]
        more = list(rows)
        more[int(random.integers(4))] += 1
        without, with_one = law(rows, query, float(query.rate)), law(more, query, float(query.rate))
        worst = max(worst, float(np.abs(np.log(without / with_one)).max()))
        for first, second in ((without, with_one), (with_one, without)):
            for alpha in (1.01, 2.0, 8.0, 64.0):
                divergence = log(float((first**alpha * second ** (1 - alpha)).sum())) / (alpha - 1)
                assert divergence <= alpha * float(cost.rho) * (1 + 1e-9)
    assert cost.epsilon is not None and 0.5 * float(cost.epsilon) < worst <= float(cost.epsilon) * (1 + 1e-9)


def test_prices_of_choices() -> None:
    """Epsilon is 2 rate max(below, above) rows, rho an eighth of its square, but at most the rho of the pure price."""
    scan = AskScan(NO_ROWS, 3)
    assert price([Ask(scan, MEDIAN), Ask(scan, MEDIAN)]).epsilon == 2 * Fraction(2 * 3, 4)
    assert price_of(MEDIAN, None) == Charge(Fraction(1, 2), Fraction(1, 32))
    assert price_of(DECILE, None, 4).epsilon == Fraction(2 * 9 * 4, 40)
    dear = Quantiles(BY_CELL, 4, 1, 1, Fraction(10), 1)
    assert price_of(dear, None).rho == rho_of_pure(Fraction(20)) < Fraction(400, 8)
    for wrong in (
        Quantiles(BY_CELL, 4, 1, 1, Fraction(0), 1),
        Quantiles(KroneckerQuery((0,), (CentredFactor(2),)), 4, 1, 1, Fraction(1), 1),
    ):
        with pytest.raises(InternalError, match=r"a choice without chance|values of several cells"):
            price_of(wrong, None)


@pytest.mark.parametrize("noise", list(NoiseKind))
@pytest.mark.parametrize("fraction", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 1000)])
def test_plans_cost_their_price(noise: NoiseKind, fraction: Fraction) -> None:
    """The choices of three grouping sets together cost the paid amount, up to rounding down."""
    paid = Fraction(1, 3)
    plans = bucket_choices(fraction, 100, noise, paid, 5, 3)
    queries = [Quantiles(BY_CELL, *astuple(plan)) for plan in plans]
    cost = price([Ask(AskScan(NO_ROWS, 5), query) for query in queries for _ in range(3)])
    amount = cost.epsilon if noise is NoiseKind.LAPLACE else cost.rho
    assert amount is not None and paid * Fraction(999_999, 1_000_000) < amount <= paid
    assert plans[0].nothing == ceil(log(2000) / plans[0].rate)


@pytest.mark.parametrize("noise", list(NoiseKind))
@pytest.mark.parametrize("fraction", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 20)])
def test_an_end_is_on_the_wrong_side_once_in_forty_times(noise: NoiseKind, fraction: Fraction) -> None:
    """An end is on the wrong side with probability 1/40 at most. A third of the shift is not enough for some cells.

    The cells are random, of 1 to 400 rows. Right is before, or after, all values that are called the quantile.
    """
    random, worst, narrower = np.random.default_rng(8), 0.0, 0.0
    _, low, high = bucket_choices(fraction, 64, noise, Fraction(1), 1, 1)
    for size in (1, 2, 5, 20, 60, 150, 400) * 6:
        place = int(random.integers(0, 64))  # values near one place: they show an end that is too near
        spread = random.choice([0, 0, 1, 20])
        values = sorted(int(value) for value in np.clip(place + spread * random.normal(size=size), 0, 63))
        rows = [values.count(bucket) for bucket in range(64)]
        middle = fraction * (size - 1)
        first, last = values[floor(middle)], values[ceil(middle)]
        for part, name in ((Fraction(1), "whole"), (Fraction(1, 3), "third")):
            for end, wrong in ((low, slice(first + 1, 64)), (high, slice(0, last))):
                tried = replace(end, shift=int(end.shift * part), nothing=int(end.nothing * part))
                missed = float(law(rows, tried, float(end.rate))[wrong].sum())
                worst, narrower = (max(worst, missed), narrower) if name == "whole" else (worst, max(narrower, missed))
    assert worst <= 1 / 40 < narrower


def test_other_buckets_are_refused() -> None:
    """Counts of other buckets, rows or cells, a job with other buckets, and impossible choices are refused."""
    entropy = operating_system_entropy()
    for query, bound in (
        (Quantiles(BY_CELL, 5, 1, 1, Fraction(1), 1), 1),
        (Quantiles(KroneckerQuery((1,), (IdentityFactor(4),)), 4, 1, 1, Fraction(1), 1), 1),
        (MEDIAN, 2),
    ):
        with pytest.raises(InternalError, match="and the counts disagree"):
            query.draw(counts_of(CELLS[0]), Ask(AskScan(NO_ROWS, bound), query), entropy, None)
    scan, all_rows = AskScan(JOB, 5), KroneckerQuery((), ())
    paid = Charge.pure(Fraction(100))
    require_paid([Ask(scan, Quantiles(all_rows, VALUES, 1, 1, Fraction(1), 1))], paid)
    with pytest.raises(InternalError, match="disagree about the values"):
        require_paid([Ask(scan, Quantiles(all_rows, VALUES + 1, 1, 1, Fraction(1), 1))], paid)
    with pytest.raises(InternalError, match="no rows"):
        Quantiles(BY_CELL, 4, 0, 1, Fraction(1), 1)
    with pytest.raises(Refusal, match="chance alone"):
        Quantiles(BY_CELL, 4, 1, 1, Fraction(1, 10**20), 1 << 60)


def test_a_choice_is_made_once() -> None:
    """A door answers a choice as often as it was declared, and not once more."""
    ask = Ask(AskScan(NO_ROWS, 1), MEDIAN)
    door = door_over(counts_of(CELLS[0]), [ask])
    assert door.answer(ask).shape == (2,)
    with pytest.raises(InternalError, match="used up"):
        door.answer(ask)


@pytest.mark.parametrize("fraction", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 100)])
@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(1, 10), Fraction(1, 10**6)])
def test_the_stated_error_is_that_of_even_rows(fraction: Fraction, epsilon: Fraction) -> None:
    """The error that dp_errors states equals the sum over all buckets, from one row to half a million."""
    choice = bucket_choices(fraction, 4096, NoiseKind.LAPLACE, epsilon, 4, 1)[0]
    places = (np.arange(4096) + 0.5) / 4096
    for rows in (1.0, 20.0, 2000.0, 500_000.0):
        off = np.abs(choice.below * places * rows - choice.above * (1 - places) * rows)
        weights = np.exp(-float(choice.rate) * off)
        summed = np.sqrt((weights * (places - float(fraction)) ** 2).sum() / weights.sum())
        assert choice.deviation(rows) == pytest.approx(summed, rel=1e-3, abs=1 / 4096)
