"""Which groups are published is decided here, by noisy counts alone; nothing else of a group leaves before that."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import erfc, exp, expm1, fsum, log1p, sqrt

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpduck.errors import InternalError
from dpduck.planning.key_selection import KeyPlan
from dpduck.planning.plan import NoiseKind
from dpduck.privacy import Charge
from dpduck.trusted.discrete_gaussian import discrete_gaussian
from dpduck.trusted.discrete_laplace import discrete_laplace
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.key_counting import UNITS, count_name, group_name, grouped_sql
from dpduck.trusted.key_job import KeyedJob

IntegerArray = NDArray[np.int64]

BATCH = 1 << 16
"""Groups that are looked at together; only published ones are kept."""

SUMMED = 9e6
"""Up to this sigma^2 a tail is summed term by term, when the price is computed a second time."""


@dataclass(frozen=True)
class PublishedKeys:
    """What is published. keys: an array per key, codes of public domains before texts, in an order of their own.

    answers: for each aggregate, one noisy integer per group. other: for each, what was suppressed in all, noisy.
    """

    keys: tuple[pa.Array, ...]
    answers: tuple[IntegerArray, ...]
    other: tuple[int, ...] | None


def publish_keys(
    cursor: duckdb.DuckDBPyConnection, job: KeyedJob, plan: KeyPlan, bounding_key: bytes, entropy: Entropy
) -> PublishedKeys:
    """Counts, adds noise, compares and answers; its only error has one fixed text, since DuckDB's texts may quote."""
    _require_same_bounds(job, plan)
    found = _selected(cursor, job, plan, bounding_key, entropy)
    if found is None:
        # Raised outside the handler: DuckDB's error, which may quote data, is not even this one's context.
        raise InternalError("counting failed")
    published, suppressed = found
    names = [group_name(number) for number in range(len(job.rows.attributes) + len(job.texts))]
    published = published.take(pc.sort_indices(published, sort_keys=[(name, "ascending") for name in names]))
    answers = []
    for number in range(plan.aggregates):
        exact = published.column(_answer_name(number, plan)).to_numpy()
        if number not in plan.reused:
            exact = exact + _noise(plan, plan.answer_spread, len(exact), entropy)
        answers.append(exact)
    other = None
    if plan.other:
        noise = _noise(plan, plan.answer_spread, plan.aggregates, entropy)
        other = tuple(exact + int(added) for exact, added in zip(suppressed, noise, strict=True))
    return PublishedKeys(tuple(published.column(name).combine_chunks() for name in names), tuple(answers), other)


def _answer_name(number: int, plan: KeyPlan) -> str:
    return UNITS if number in plan.reused else count_name(number)


def _selected(
    cursor: duckdb.DuckDBPyConnection, job: KeyedJob, plan: KeyPlan, bounding_key: bytes, entropy: Entropy
) -> tuple[pa.Table, list[int]] | None:
    """The published groups, their units noisy, and the exact sums of all others; None where DuckDB failed."""
    suppressed = [0] * plan.aggregates
    try:
        sql, parameters = grouped_sql(job, bounding_key)
        reader = cursor.sql(sql, params=parameters).to_arrow_reader(BATCH)
        kept = [reader.schema.empty_table()]
        for batch in reader:
            groups = pa.Table.from_batches([batch])
            units = groups.column(UNITS).to_numpy()
            noisy = units + _noise(plan, plan.selection_spread, len(units), entropy)
            chosen = (units >= plan.least) & (noisy > plan.threshold)
            for number in range(plan.aggregates):
                counts = groups.column(count_name(number)).to_numpy()
                suppressed[number] += int(counts[~chosen].sum())
            place = groups.schema.get_field_index(UNITS)
            kept.append(groups.set_column(place, UNITS, pa.array(noisy)).filter(pa.array(chosen)))
    except (duckdb.Error, pa.ArrowException):  # what fails while rows arrive comes as Arrow's error
        return None
    return pa.concat_tables(kept), suppressed


def _noise(plan: KeyPlan, spread: Fraction, count: int, entropy: Entropy) -> IntegerArray:
    draws = discrete_laplace if plan.noise is NoiseKind.LAPLACE else discrete_gaussian
    return draws(spread, count, entropy)


def _require_same_bounds(job: KeyedJob, plan: KeyPlan) -> None:
    if bounds_of(job) != (plan.bounds.groups, plan.bounds.per_group, plan.bounds.total, plan.bounds.rows):
        raise InternalError("the plan and the counts disagree about the contribution bounds")


def bounds_of(job: KeyedJob) -> tuple[int, int, int, int]:
    """C, k, the total and the rows of one unit, as the SQL that will run bounds them."""
    if job.rows.unit_sql is None:
        return job.groups, job.groups, job.groups, job.groups
    groups = min(job.groups, job.rows.max_rows)
    return groups, 1, groups, job.rows.max_rows


def selection_cost(job: KeyedJob, plan: KeyPlan) -> Charge:
    """The price of what will run, from the bounds of the SQL and the spreads of the noise; never below the true price.

    Laplace: L1 norm over scale; Gaussian: squared L2 norm over twice sigma^2; these add up. delta: see key_delta.
    """
    _require_same_bounds(job, plan)
    groups, per_group, total, rows = bounds_of(job)
    if min(plan.selection_spread, plan.answer_spread) <= 0:
        raise InternalError("a measurement without noise")
    answered = plan.aggregates - len(plan.reused) + (plan.aggregates if plan.other else 0)
    passes = plan.threshold - (plan.least - 1) - per_group
    delta = key_delta(plan.noise, plan.selection_spread, passes, groups)
    if plan.noise is NoiseKind.LAPLACE:
        epsilon = min(groups * per_group, total) / plan.selection_spread + answered * rows / plan.answer_spread
        return Charge(epsilon, epsilon * epsilon / 2, delta)
    moved = min(groups * per_group**2, total * per_group)
    return Charge.concentrated((moved / plan.selection_spread + answered * rows**2 / plan.answer_spread) / 2, delta)


def key_delta(noise: NoiseKind, spread: Fraction, excess: int, groups: int) -> Fraction:
    """1 - P(noise <= excess)^groups, rounded up: that a group is published which was not there.

    Gaussian, f(n) = exp(-n^2 / (2 sigma^2)): the sum of f from excess + 1 on over that of all; for large sigma f is
    convex there, so each term is at most the integral over the unit around it, and the sum of all is at least
    sqrt(2 pi) sigma (Poisson's formula has positive terms only).
    """
    first, scale = excess + 1, float(spread)
    if noise is NoiseKind.LAPLACE:
        one = exp(-first / scale) / (1 + exp(-1 / scale))
    elif scale > SUMMED:
        one = erfc((first - 0.5) / sqrt(2 * scale)) / 2 if (first - 0.5) ** 2 > scale else 1.0
    else:
        last = int(sqrt(first * first + 90 * scale)) + 2
        terms = fsum(exp(-n * n / (2 * scale)) for n in range(first, last))
        one = terms / (1 + 2 * fsum(exp(-n * n / (2 * scale)) for n in range(1, int(9 * sqrt(scale)) + 2)))
    share = -expm1(groups * log1p(-min(one * (1 + 1e-10), 0.5)))
    return Fraction(share) * (1 + Fraction(1, 10**10)) + Fraction(1, 10**290)
