"""Private search for the centre of an average, in the same statement: about the median of one value of each unit.

Each unit counts once, so the choice of a bucket costs as much as a count of units. An average is right for any centre,
but distances from a near centre have a small norm, and so little noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import log2

import numpy as np

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.jobs import Attribute, CountingJob, GroupKey
from dpduck.kernel.door import Door
from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.operators import KroneckerQuery
from dpduck.kernel.queries.quantiles import Quantiles
from dpduck.language.rows.compiled import condition_of, value_of
from dpduck.language.rows.facts import RequestRows
from dpduck.language.select.request import Operand
from dpduck.mechanisms.cubes.measures import Measure
from dpduck.strategies.ranges.buckets import MOST_CHOICES, WITHOUT_ENDS, Buckets, bucket_choices, buckets_for
from dpduck.values.arrays import IntegerArray
from dpduck.values.domain import RangeDomain
from dpduck.values.errors import InternalError

AN_OCTAVE = 16
"""Buckets between a number and its double, if a column has no bounds of its own."""


@dataclass(frozen=True)
class CenterSearch:
    """Search for one centre. buckets: of the values, or of their logarithms (_logarithms) without a CLAMP."""

    operand: Operand
    buckets: Buckets
    ask: Ask[IntegerArray]


def center_search(measure: Measure, job: CountingJob, price: Fraction, rows: RequestRows) -> CenterSearch:
    """Plans the private choice of an average's centre, at a price in rho. job: counts the rows of the average."""
    operand = measure.operand
    if operand is None:
        raise InternalError("a centre of nothing")
    buckets = _logarithms(operand) if operand.is_open else _plain(operand)
    edges = tuple(repr(float(edge)) for edge in buckets.edges)
    domain = RangeDomain("DOUBLE", edges[:-1], edges[-1], repr(float(buckets.width)), "", 1, with_edges=True)
    unit_job = replace(
        job,
        filters=(*job.filters, *((condition_of(measure.condition, rows.columns),) if measure.condition else ())),
        max_rows=1,
        keys=(GroupKey(value_of(_logarithm_sql(operand) if operand.is_open else operand.sql, rows.columns), domain),),
        attributes=(Attribute((0,), np.arange(buckets.count, dtype=np.int64), buckets.count),),
        aggregates=(Contribution(),),
        cell_key=(),  # the cell key of `job` is about other keys
        beside=(),
    )
    (choice,) = bucket_choices(Fraction(1, 2), buckets.count, NoiseKind.GAUSSIAN, price, 1, 1, WITHOUT_ENDS)
    query = Quantiles(KroneckerQuery((), ()), choice.buckets, choice.below, choice.above, choice.rate, choice.nothing)
    return CenterSearch(operand, buckets, Ask(AskScan(unit_job, 1), query))


def center_found(search: CenterSearch, door: Door) -> Fraction:
    """Returns the middle of the chosen bucket, or of the bounds if there are too few units to choose."""
    chosen = int(door.answer(search.ask).ravel()[0])
    operand, buckets = search.operand, search.buckets
    if chosen >= buckets.count:
        return (operand.low + operand.high) / 2
    middle = buckets.start + buckets.width * (2 * chosen + 1) / 2
    if not operand.is_open:
        return middle
    steps = int(np.rint(np.exp2(abs(float(middle))))) - 1
    return operand.step * (steps if middle > 0 else -steps)


def _plain(operand: Operand) -> Buckets:
    return buckets_for(operand.low, operand.high, operand.step, 1, MOST_CHOICES)


def _logarithms(operand: Operand) -> Buckets:
    """Returns buckets of log2(1 + |x| / step), with the sign of x. The middle bucket holds 0."""
    width = Fraction(1, AN_OCTAVE)
    octaves = int(log2(operand.high / operand.step)) + 1
    return Buckets(-octaves - width / 2, width, 2 * octaves * AN_OCTAVE + 1, False)


def _logarithm_sql(operand: Operand) -> str:
    """Renders SQL of log2(1 + |x| / step) with the sign of x, NULL if x is not finite. It never raises an error."""
    number, step = operand.sql, repr(float(operand.step))
    return f"CASE WHEN isfinite({number}) THEN sign({number}) * log2(1 + abs({number}) / {step}) END"
