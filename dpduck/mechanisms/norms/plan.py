"""Plans a statement before its norms are known: the price of the search, and the rest for the answers.

Each measure has its own norm, which is looked for among powers of two of squared norms. SEARCH of its price pays for
the search: a binary search asks how many units are above a norm, each time with the same noise. The rest pays for the
answers at the norm that was found. Both prices are known before the charge, and the norm is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor, inf, prod, sqrt
from typing import Any

from dpduck.database.tables import EXPLAINED, Value, rows_sql
from dpduck.frontend.select.request import Request
from dpduck.mechanisms.cubes.describe import foreseen, shortened
from dpduck.mechanisms.cubes.measure import CubeProposal, scans_of
from dpduck.mechanisms.cubes.measures import Measure, contribution_of
from dpduck.mechanisms.cubes.plan import CubePlan, amount_of, plans_at
from dpduck.mechanisms.cubes.recover import error_laws, wholes
from dpduck.mechanisms.cubes.weighed import bounds, weighed_measures
from dpduck.mechanisms.mechanism import Columns
from dpduck.mechanisms.prices import AggregateError
from dpduck.mechanisms.release import ReleaseHeader
from dpduck.mechanisms.released_rows import released_columns
from dpduck.trusted.ask import Ask, Scan, Table, Within
from dpduck.trusted.noise.integers import LARGEST_VARIANCE
from dpduck.trusted.noise.law import NoiseKind
from dpduck.trusted.private.contributions import FULL
from dpduck.trusted.private.jobs import CountingJob
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError, Refusal

SEARCH = Fraction(1, 20)
"""The part of a measure's price that pays for its norm."""

UNITS = 0.8
"""At the best norm, units above it count for so much, times cells over the root of twice the price. A larger norm would
save less bias than its noise adds. A unit counts for its loss with each step of the norm, and sqrt(2/pi), about 0.8, is
the mean size of noise in its standard errors."""

LARGEST_SPREAD = 8
"""A unit counts for the fourth root of the cells at most, and for no more than this: noise of the search goes by it."""

FAR, FEW_LEVELS = 3, 4
"""Standard errors of the search's noise that are added while more levels than these few are left."""

OF_AVERAGES = 3
"""So many times more units may be above a norm of an average: the same rows are missing in its count and its sum."""


@dataclass(frozen=True)
class Search:
    """The search for the norm of one measure. levels: powers of two of the squared norm, from 1 to the most of a unit.

    steps: of the binary search, at most. price: of all steps. most: units above the norm may count for so much, where
    there is no noise.
    """

    measure: Measure
    job: CountingJob
    ask: Ask[None]
    levels: int
    steps: int
    price: Fraction
    most: float

    @property
    def noise(self) -> Fraction:
        """Returns the variance parameter of each answer."""
        return self.steps * self.job.spread**2 / (2 * self.price)

    def threshold(self, levels: int) -> float:
        """Returns how much units above a norm may seem to count for, where so many levels are left.

        A norm that is far too large costs without bound: while many levels are left, noise alone shall not lead there.
        """
        return self.most + (FAR if levels > FEW_LEVELS else 1) * sqrt(self.noise)


@dataclass(frozen=True)
class NormProposal:
    """A plan without its norms. shape: the plan at some norm, which has the columns and the shares of all others.

    job: of the answers, without norms. answers: the family of their asks.
    """

    shape: CubePlan
    searches: tuple[Search, ...]
    job: CountingJob
    answers: Ask[None]

    @property
    def request(self) -> Request:
        """Returns the request."""
        return self.shape.request


@dataclass(frozen=True)
class Found:
    """The norms that were found, and the noisy tables at these norms, a list for each measure."""

    plan: CubePlan
    squared: tuple[int, ...]
    tables: tuple[tuple[tuple[IntegerArray, ...], ...], ...]


def propose_norms(request: Request) -> NormProposal:
    """Returns the searches of a request, and the family of its answers."""
    shape = at_norms(request)
    (scan,) = scans_of(shape)
    bare = [replace(contribution_of(one.measure), norm=0) for one in shape.measures]
    job, amount = replace(scan.job, aggregates=tuple(bare)), amount_of(request)
    searches = tuple(_search(request, shape, number, job) for number in range(len(shape.measures)))
    rest = sum((one.measure.share for one in shape.measures), Fraction(0)) * amount * (1 - SEARCH)
    answers = Ask(Scan(job, job.unit_bounds[0], range(0)), Within(rest, pure=False, kinds=(Table,), weighed=True))
    return NormProposal(shape, searches, job, answers)


def at_norms(request: Request, squared: Sequence[int] = ()) -> CubePlan:
    """Returns the plan of the answers at squared norms in integers, or at the least ones."""
    question = request.question
    found = weighed_measures(question.aggregates, question.treatment)
    if squared:
        pairs = zip(found.measures, squared, strict=True)
        found = replace(found, measures=tuple(replace(one, squared_norm=norm) for one, norm in pairs))
    return plans_at(request, NoiseKind.GAUSSIAN, amount_of(request) * (1 - SEARCH), measures=found)


def _search(request: Request, shape: CubePlan, number: int, job: CountingJob) -> Search:
    measure, rows = shape.measures[number].measure, request.rows.unit_bound
    bare = job.aggregates[number]
    rest = amount_of(request) * measure.share * (1 - SEARCH)
    levels = min(2 * (bare.unit_bound(rows, _cells(request)) - 1).bit_length() or 1, _largest_level(rest))
    steps, price = levels.bit_length(), amount_of(request) * measure.share * SEARCH
    spread = max(1, min(LARGEST_SPREAD, round(_cells(request) ** 0.25)))
    usual = UNITS * _cells(request) / sqrt(2 * float(rest))
    averaged = any(use.also is not None and not use.weights for use in shape.uses)
    leveled = replace(job, aggregates=(replace(bare, shared=False),), levels=levels, spread=spread)
    ask = Ask(Scan(leveled, spread), Within(price, pure=False, kinds=(Table,)))
    return Search(measure, leveled, ask, levels, steps, price, usual * (OF_AVERAGES if averaged else 1))


def _largest_level(rho: Fraction) -> int:
    """Returns the level of the largest norm with noise that can be drawn at a price: no larger one is looked for."""
    most = floor(LARGEST_VARIANCE * 2 * rho / (FULL * FULL))
    if most < 2:
        raise Refusal("at this price the noise would not fit 64-bit numbers", accepted="a larger epsilon or rho")
    return most.bit_length() - 1


def _cells(request: Request) -> int:
    return prod(source.domain.size for source in request.question.sources)


def norm_asks(proposal: NormProposal) -> Sequence[Ask[Any]]:
    """Returns a family of asks for each search, and one for the answers."""
    return [*(search.ask for search in proposal.searches), proposal.answers]


def norm_header(proposal: NormProposal) -> ReleaseHeader:
    """Describes the release before anything is counted. Its laws are those of the shape, until norms are found."""
    question = proposal.request.question
    rows = sum(prod(question.released_sizes[key] for key in chosen) for chosen in question.grouping_sets)
    mechanism = f"{proposal.shape.chance}, norms found in the statement"
    return ReleaseHeader(proposal.request, mechanism, "I, norms not found yet", error_laws(proposal.shape), rows)


def norm_columns(proposal: NormProposal) -> Columns:
    """Returns the columns of the released table."""
    return released_columns(proposal.request, wholes(proposal.shape))


def describe(request: Request, proposal: NormProposal) -> str:
    """Returns the one way that there is. Its error follows from the norms, which nobody knows before."""
    if not proposal.searches:
        raise InternalError("a search for nothing")
    cells = sum(request.question.cells)
    part = float(sum((one.price for one in proposal.searches), Fraction(0)) / amount_of(request))
    note = (
        f"identity: every cell of all keys together; units are weighed down to norms that are found in the statement, "
        f"for {part:.0%} of its price, among {max(one.levels for one in proposal.searches) + 1} of each measure; "
        f"privacy unit {request.rows.unit_sql}, at most {request.rows.max_rows} rows; the error is the norm over "
        f"the root of twice the rest of the price, and is known with the answer{_foretold(request)}"
    )
    charge = request.price.charge
    row: list[Value] = [
        "I",
        True,
        None,
        None,
        None,
        None,
        float(charge.rho),
        cells,
        len(request.question.grouping_sets),
        note,
        None,
    ]
    return rows_sql(EXPLAINED, [row])


def _foretold(request: Request) -> str:
    """Says what the error of counts is at several norms."""
    if any(one.function != "count" for one in request.question.aggregates):
        return ""
    tried, bare, rows = bounds(Fraction(1), inf, Fraction(request.rows.max_rows)), at_norms(request), []
    for norm in tried:
        plan = at_norms(request, [int(norm * one.measure.bound) ** 2 for one in bare.measures])
        lines = foreseen(CubeProposal(plan, ()), None)
        rows.append(max(line.worst or 0.0 for line in lines))
    listed = ", ".join(f"{float(norm):g}" for norm in tried)
    return f"; at a norm of {listed} it is {', '.join(map(shortened, rows))}"


def errors_of(proposal: NormProposal, expect_rows: int | None) -> list[AggregateError]:
    """Returns a line for each aggregate, whose error is not known before."""
    cells = sum(proposal.request.question.cells)
    return [AggregateError(one.text, cells, None, None, None) for one in proposal.request.question.aggregates]
