"""Plans a statement before its norms are known: the prices of searches and totals, and the rest for the answers.

Each measure has its own norm, which is looked for among powers of two of squared norms. SEARCH of its price pays for
the search: a binary search asks how many units are above a norm, each time with the same noise. The rest pays for the
answers at the norm that was found. All prices are known before the charge, and the norm is not.

total = TRUE measures the sum of all cells as well, at a norm of its own. One number can have a far larger norm than
many cells. left_out = TRUE measures the same sum of all rows that MAX ROWS leaves: what it has beyond the cells is left
out by their norm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp, floor, inf, log, prod, sqrt
from statistics import fmean
from typing import Any

from dpduck.kernel.contributions import FULL
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.noise.integers import LARGEST_VARIANCE
from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.price import Ask, Scan
from dpduck.kernel.queries.later import Within
from dpduck.kernel.queries.operators import KroneckerQuery
from dpduck.kernel.queries.tables import Table
from dpduck.language.select.request import VARIANCES, Operand, Question, Request, Treatment
from dpduck.mechanisms.cubes.describe import foreseen, shortened
from dpduck.mechanisms.cubes.measure import scans_of
from dpduck.mechanisms.cubes.measures import Measure, Use, contribution_of
from dpduck.mechanisms.cubes.plan import CubePlan, amount_of, measured_plan, plans_at
from dpduck.mechanisms.cubes.recover import error_laws, wholes
from dpduck.mechanisms.cubes.weighed import bounds, weighed_measures
from dpduck.mechanisms.jobs import resolved
from dpduck.mechanisms.mechanism import Columns
from dpduck.mechanisms.norms.centers import CenterSearch, center_search
from dpduck.mechanisms.prices import AggregateError
from dpduck.mechanisms.release import ReleaseHeader
from dpduck.mechanisms.released_rows import released_cells, released_columns
from dpduck.store.tables import EXPLAINED, Value, rows_sql
from dpduck.strategies.budgets import noise_for
from dpduck.strategies.plan import noisy_queries
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import Refusal

SEARCH = Fraction(1, 20)
"""The part of a measure's price that pays for its norm."""

UNITS = 0.8
"""At the best norm, units above it count for so much, times cells over the root of twice the price (`_usual_cells`).

A larger norm would save less bias than its noise adds. A unit counts for its loss with each step of the norm, and
sqrt(2/pi), about 0.8, is the mean size of noise in its standard errors.
"""

LARGEST_SPREAD = 8
"""A unit counts for the fourth root of the cells at most, and for no more than this: noise of the search goes by it."""

FAR, FEW_LEVELS = 3, 4
"""Standard errors of the search's noise that are added while more levels than these few are left."""

TOTAL_SEARCH, TOTAL, LEFT_OUT = Fraction(1, 25), Fraction(3, 25), Fraction(1, 20)
"""The parts of a measure's price for the norm of its total, for this total, and for the sum of all rows."""

CENTERS = Fraction(3, 100)
"""The part of the statement's price for the centres of its averages."""

WITHOUT_TOTAL = 1 / 2
"""So many times fewer may be above a norm where no total brings cells back: large cells lose most of it."""

OF_AVERAGES = 3
"""So many times more units may be above a norm of an average: the same rows are missing in its count and its sum."""


@dataclass(frozen=True)
class Search:
    """The search for the norm of one measure, or of its total.

    levels: powers of two of the squared norm, from 1 to the most of a unit.

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
class TotalAsks:
    """The total of one measure. search: for its norm. job: at some norm. answer: the family of the total at one."""

    search: Search
    job: CountingJob
    answer: Ask[None]


@dataclass(frozen=True)
class NormProposal:
    """A plan without its norms. shape: the plan at some norm, which has the columns and the shares of all others.

    searches: for each measure, none where the statement says its norm. job: of the answers, without norms. answers: the
    family of their asks. totals, sums: by measure, of those that are counts and sums, where they are asked for. A sum
    is of all rows, without norms. centers: of averages, where the statement says none.
    """

    shape: CubePlan
    searches: tuple[Search, ...]
    job: CountingJob
    answers: Ask[None]
    totals: Mapping[int, TotalAsks]
    sums: Mapping[int, Ask[tuple[IntegerArray, ...]]]
    centers: tuple[CenterSearch, ...] = ()

    @property
    def request(self) -> Request:
        """Returns the request."""
        return self.shape.request


@dataclass(frozen=True)
class NoisySum:
    """A noisy sum over all cells in integers, and the variance of its noise."""

    answer: int
    variance: float


@dataclass(frozen=True)
class Found:
    """The plan at the norms that were found, and the noisy tables at these norms, a list for each measure.

    totals: in parts of 1/FULL. sums: of all rows. Both are by measure.
    """

    plan: CubePlan
    tables: tuple[tuple[tuple[IntegerArray, ...], ...], ...]
    totals: Mapping[int, NoisySum]
    sums: Mapping[int, NoisySum]


def propose_norms(request: Request) -> NormProposal:
    """Returns the searches of a request, and the family of its answers.

    Noise at norms that are stated has to be drawn: it is refused here, before the charge, where it cannot be.
    """
    shape = at_norms(request)
    if not request.question.treatment.finds_norm:
        for one in shape.measures:
            noisy_queries(measured_plan(one.plan))
    (scan,) = scans_of(shape)
    bare = resolved([replace(contribution_of(one.measure), norm=0) for one in shape.measures], request.rows)
    job, amount = replace(scan.job, aggregates=bare, beside=bare), amount_of(request)
    treatment, every, averaged = request.question.treatment, range(len(shape.measures)), averaged_measures(shape)
    rest = sum((one.measure.share for one in shape.measures), Fraction(0)) * amount
    prices = [
        amount * one.measure.share / part_of(shape.uses, place, request.question)
        for place, one in enumerate(shape.measures)
    ]
    added = _added(shape.uses)
    return NormProposal(
        shape,
        tuple(_search_cells(shape, place, job, prices[place]) for place in every if treatment.finds_norm),
        job,
        _family(job, rest),
        {place: _total(shape, place, job, prices[place]) for place in every if treatment.total and place in added},
        {place: _sum(place, job, prices[place]) for place in every if treatment.left_out and place in added},
        centers=tuple(center_search(one, job, amount * CENTERS / len(averaged), request.rows) for one in averaged),
    )


def averaged_measures(plan: CubePlan) -> list[Measure]:
    """Returns the sums about centres that nobody has said."""
    if not _finds_centers(plan.request.question):
        return []
    places = dict.fromkeys(use.also.measure for use in plan.uses if use.also is not None)
    return [plan.measures[place].measure for place in places]


def _finds_centers(question: Question) -> bool:
    centred = {"avg", *VARIANCES}
    found = any(one.function in centred and not one.operand_by_group for one in question.aggregates)
    return found and question.treatment.finds_norm and not question.treatment.centers


def _added(uses: Sequence[Use]) -> set[int]:
    """Returns the measures that answer a count or a sum by themselves."""
    return {use.measure for use in uses if use.weights and use.also is None}


def part_of(uses: Sequence[Use], place: int, question: Question) -> Fraction:
    """Returns the part of a measure's price that is left for its answers. place: of the measure."""
    treatment, part = question.treatment, Fraction(1)
    part -= SEARCH if treatment.finds_norm else Fraction(0)
    part -= CENTERS if _finds_centers(question) else Fraction(0)
    if place in _added(uses):
        part -= TOTAL_SEARCH + TOTAL if treatment.total else Fraction(0)
        part -= LEFT_OUT if treatment.left_out else Fraction(0)
    return part


def _family(job: CountingJob, price: Fraction) -> Ask[None]:
    """Returns the family of asks of this job with norms, which are not known yet."""
    return Ask(Scan(job, job.unit_bounds[0]), Within(price, pure=False, kinds=(Table,), weighed=True))


def at_norms(
    request: Request, squared: Sequence[int] = (), centers: Mapping[Operand, Fraction] | None = None
) -> CubePlan:
    """Returns the plan of the answers at squared norms in integers, or at the least ones, about centres.

    Beside a total each cell is measured by itself, whatever the norm is: its sum is compared with the total.
    """
    question = request.question
    found = weighed_measures(question.aggregates, question.treatment, centers)
    if squared:
        pairs = zip(found.measures, squared, strict=True)
        found = replace(found, measures=tuple(replace(one, squared_norm=norm) for one, norm in pairs))
    parts = [part_of(found.uses, place, question) for place in range(len(found.measures))]
    priced = [replace(one, share=one.share * part) for one, part in zip(found.measures, parts, strict=True)]
    treatment = replace(question.treatment, strategy="I") if question.treatment.widens else question.treatment
    asked = replace(request, question=replace(question, treatment=treatment))
    plan = plans_at(asked, NoiseKind.GAUSSIAN, amount_of(request), measures=replace(found, measures=tuple(priced)))
    return replace(plan, request=request)


def _search_cells(shape: CubePlan, place: int, job: CountingJob, price: Fraction) -> Search:
    request, measure = shape.request, shape.measures[place].measure
    cells = _cells(request)
    spread = max(1, min(LARGEST_SPREAD, round(cells**0.25)))
    averaged = any(use.also is not None and not use.weights for use in shape.uses)
    alone = replace(job, aggregates=(replace(job.aggregates[place], shared=False),))
    prices = price * SEARCH, price * part_of(shape.uses, place, request.question)
    times = OF_AVERAGES if averaged else 1 if request.question.treatment.total else WITHOUT_TOTAL
    usual = UNITS * times * _usual_cells(request) / sqrt(2 * float(prices[1]))
    return _search(request, measure, alone, prices, spread, usual)


def _usual_cells(request: Request) -> float:
    """Returns the cells by which units above a norm are weighed against noise, of all grouping sets in the mean.

    A margin of m cells adds up C / m of all C cells. All that a norm leaves out is divided among its m cells, and their
    noises together grow with sqrt(C m). For the finest cells that is C.
    """
    cells = _cells(request)
    return exp(fmean(log(cells * min(cells, asked)) / 2 for asked in request.question.cells))


def _total(shape: CubePlan, place: int, job: CountingJob, price: Fraction) -> TotalAsks:
    measure = shape.measures[place].measure
    alone = replace(job, attributes=(), aggregates=(replace(job.aggregates[place], shared=False),), together=True)
    prices = price * TOTAL_SEARCH, price * TOTAL
    search = _search(shape.request, measure, alone, prices, 1, UNITS / sqrt(2 * float(prices[1])))
    weighed = replace(alone, aggregates=(replace(alone.aggregates[0], norm=1),))
    return TotalAsks(search, weighed, _family(weighed, price * TOTAL))


def _sum(place: int, job: CountingJob, price: Fraction) -> Ask[tuple[IntegerArray, ...]]:
    """Returns the ask for the sum of all rows, whatever their units: its noise goes by MAX ROWS."""
    bound, scan = job.unit_bounds[place], Scan(job, job.unit_bounds[place], range(place, place + 1))
    return Ask(scan, Table(KroneckerQuery((), ())), noise_for(NoiseKind.GAUSSIAN, price * LEFT_OUT, bound))


def _search(
    request: Request,
    measure: Measure,
    job: CountingJob,
    prices: tuple[Fraction, Fraction],
    spread: int,
    usual: float,
) -> Search:
    """Returns a search over units of a job. prices: of the search, and of the answers at the norm that it finds.

    spread: the most that a unit counts for. usual: units above the norm may count for so much.
    """
    price, rest = prices
    most = job.aggregates[0].unit_bound(request.rows.unit_bound, _cells(request))
    if measure.form in ("sum", "squares") and _finds_centers(request.question):
        most *= 4 if measure.form == "squares" else 2  # about another centre than the middle
    levels = min(2 * (most - 1).bit_length() or 1, _largest_level(rest))
    leveled = replace(job, levels=levels, spread=spread)
    ask = Ask(Scan(leveled, spread), Within(price, pure=False, kinds=(Table,), weighed=True))
    return Search(measure, leveled, ask, levels, levels.bit_length(), price, usual)


def _largest_level(rho: Fraction) -> int:
    """Returns the level of the largest norm with noise that can be drawn at a price: no larger one is looked for."""
    most = floor(LARGEST_VARIANCE * 2 * rho / (FULL * FULL))
    if most < 2:
        raise Refusal("at this price the noise would not fit 64-bit numbers", accepted="a larger epsilon or rho")
    return most.bit_length() - 1


def _cells(request: Request) -> int:
    return prod(request.question.sizes)


def norm_asks(proposal: NormProposal) -> Sequence[Ask[Any]]:
    """Returns a family of asks for each search, and one for the answers."""
    totals = [ask for one in proposal.totals.values() for ask in (one.search.ask, one.answer)]
    centers, searches = [one.ask for one in proposal.centers], [one.ask for one in proposal.searches]
    return [*centers, *searches, proposal.answers, *totals, *proposal.sums.values()]


def norm_header(proposal: NormProposal) -> ReleaseHeader:
    """Describes the release before anything is counted. Its laws are those of the shape, until norms are found."""
    rows = sum(released_cells(proposal.request.question))
    found = "norms found in the statement" if proposal.searches else "norms and totals"
    mechanism = f"{proposal.shape.chance}, {found}"
    return ReleaseHeader(proposal.request, mechanism, "I, norms not found yet", error_laws(proposal.shape), rows)


def norm_columns(proposal: NormProposal) -> Columns:
    """Returns the columns of the released table."""
    return released_columns(proposal.request, wholes(proposal.shape))


def describe(request: Request, proposal: NormProposal) -> str:
    """Returns the one way that there is. Its error follows from the norms, which nobody knows before."""
    cells, treatment = sum(request.question.cells), request.question.treatment
    said = ["identity: every cell of all keys together"]
    if treatment.usual:
        rows = request.rows.max_rows
        said += [
            f"the statement says no bound, and units have up to {rows} rows: norms are looked for; "
            f"max_rows_contributed = {rows} says that noise goes by rows{_by_rows(request)}"
        ]
    if proposal.searches:
        levels = max(one.levels for one in proposal.searches) + 1
        said += [
            f"units are weighed down to norms that are found in the statement, for {float(SEARCH):.0%} of its price, "
            f"among {levels} of each measure",
        ]
    else:
        said += ["units are weighed down to the norm that the statement says"]
    if proposal.centers:
        said += [f"centres of values are found for {float(CENTERS):.0%}"]
    if treatment.total:
        part = float(TOTAL_SEARCH + TOTAL)
        said += [f"cells are brought to a total, which costs {part:.0%} of the price with a norm of its own"]
    if treatment.left_out:
        said += [
            f"a sum of all rows costs {float(LEFT_OUT):.0%}, and upper ends of intervals hold what norms leave out"
        ]
    said += [
        f"privacy unit {request.rows.unit_sql}, at most {request.rows.max_rows} rows",
        "the error is the norm over the root of twice the rest of the price, and is known with the answer",
    ]
    note = "; ".join(said) + _foretold(request)
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


def _by_rows(request: Request) -> str:
    """Names the standard errors of the same answers where noise goes by rows, if none depends on the rows."""
    question = replace(request.question, treatment=Treatment())
    plan = plans_at(replace(request, question=question), NoiseKind.GAUSSIAN, amount_of(request))
    lines = foreseen(plan, None)
    known = [shortened(error) for line in lines if (error := line.worst or line.typical)]
    return f", with errors of {', '.join(known)}" if len(known) == len(lines) else ""


def _foretold(request: Request) -> str:
    """Names the error of counts at several norms."""
    if any(one.function != "count" for one in request.question.aggregates):
        return ""
    tried, bare, rows = bounds(Fraction(1), inf, Fraction(request.rows.max_rows)), at_norms(request), []
    for norm in tried:
        plan = at_norms(request, [int(norm * one.measure.bound) ** 2 for one in bare.measures])
        lines = foreseen(plan, None)
        rows.append(max(line.worst or 0.0 for line in lines))
    listed = ", ".join(f"{float(norm):g}" for norm in tried)
    return f"; at a norm of {listed} it is {', '.join(map(shortened, rows))}"


def errors_of(proposal: NormProposal, expect_rows: int | None) -> list[AggregateError]:
    """Returns a line for each aggregate, whose error is not known before."""
    cells = sum(proposal.request.question.cells)
    return [AggregateError(one.text, cells, None, None, None) for one in proposal.request.question.aggregates]
