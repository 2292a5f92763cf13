"""Plan of a statement before its norms are known: the prices of searches and totals, and the rest for the answers.

A binary search asks how many units are above a norm, among squared norms that are powers of two. All prices are known
before the charge, and the norms are not.
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
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.later import Within
from dpduck.kernel.queries.operators import KroneckerQuery
from dpduck.kernel.queries.tables import Table
from dpduck.language.select.request import VARIANCES, Operand, Question, SelectRequest, Treatment
from dpduck.mechanisms.cubes.describe import format_figure
from dpduck.mechanisms.cubes.error_forecast import foreseen
from dpduck.mechanisms.cubes.measure import scans_of
from dpduck.mechanisms.cubes.measures import Measure, Use
from dpduck.mechanisms.cubes.plan import CubePlan, amount_of, plans_at
from dpduck.mechanisms.cubes.recover import error_laws, wholes
from dpduck.mechanisms.cubes.weighed import bounds, measures_with_norm
from dpduck.mechanisms.forecast import AggregateError, Forecast
from dpduck.mechanisms.jobs import bind_contributions
from dpduck.mechanisms.mechanism import Columns
from dpduck.mechanisms.norms.centers import CenterSearch, center_search
from dpduck.mechanisms.release import ReleaseHeader
from dpduck.mechanisms.released_rows import release_columns, rows_per_set
from dpduck.strategies.budgets import noise_for
from dpduck.strategies.plan import noisy_queries
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import Refusal

SEARCH = Fraction(1, 20)

UNITS = 0.8
"""A norm is best if the weight of units above it is UNITS times the cells (`_usual_cells`) over sqrt(2 price).

The weight of a unit is its loss with each step of the norm. A larger norm would save less bias than its noise adds. The
mean absolute value of noise in standard errors is sqrt(2/pi), about 0.8."""

LARGEST_SPREAD = 8
"""Largest weight of a unit in a search, or the fourth root of the cells if that is less. Noise scales with it."""

FAR, FEW_LEVELS = 3, 4
"""The threshold adds FAR standard errors of the search's noise, but only one if at most FEW_LEVELS levels are left."""

TOTAL_SEARCH, TOTAL, LEFT_OUT = Fraction(1, 25), Fraction(3, 25), Fraction(1, 20)
"""The parts of a measure's price for the norm of its total, for the total itself, and for the sum of all rows."""

CENTERS = Fraction(3, 100)

WITHOUT_TOTAL = 1 / 2
"""Factor on the weight of units above a norm if no total corrects the cells. Large cells lose most of this weight."""

OF_AVERAGES = 3
"""Factor on the weight of units above an average's norm: the same rows are missing in its count and in its sum."""


@dataclass(frozen=True)
class NormSearch:
    """Search for the norm of one measure, or of its total, in at most `steps` steps at one price for all.

    levels: the last level. Level k stands for the squared norm 2^k.
    most: the weight that all units above a good norm may have together, without noise.
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
        return self.steps * self.job.spread**2 / (2 * self.price)

    def threshold(self, levels: int) -> float:
        """Returns the threshold on the noisy weight of units above a norm. It is higher with many levels left."""
        return self.most + (FAR if levels > FEW_LEVELS else 1) * sqrt(self.noise)


@dataclass(frozen=True)
class TotalAsks:
    """Asks for a measure's total. job: at some norm. answer: the family of asks for the total at any norm."""

    search: NormSearch
    job: CountingJob
    answer: Ask[None]


@dataclass(frozen=True)
class NormProposal:
    """Plan without its norms. shape: the plan at some norm, with the columns and shares that any norm has.

    searches: one for each measure, none if the statement gives its norm.
    job, answers: the job of the answers without norms, and the family of asks for the answers.
    totals, sums: by measure, asks for the total at a larger norm, and for the sum of all rows without a norm.
    """

    shape: CubePlan
    searches: tuple[NormSearch, ...]
    job: CountingJob
    answers: Ask[None]
    totals: Mapping[int, TotalAsks]
    sums: Mapping[int, Ask[tuple[IntegerArray, ...]]]
    centers: tuple[CenterSearch, ...] = ()

    @property
    def request(self) -> SelectRequest:
        return self.shape.request


@dataclass(frozen=True)
class NoisySum:
    """Noisy sum over all cells in integers, and the variance of its noise."""

    answer: int
    variance: float


@dataclass(frozen=True)
class NormMeasurements:
    """Plan at the final norms, and for each measure the noisy tables at these norms.

    totals: noisy totals by measure, in multiples of 1/FULL. Noisy `sums` are in integers.
    """

    plan: CubePlan
    tables: tuple[tuple[tuple[IntegerArray, ...], ...], ...]
    totals: Mapping[int, NoisySum]
    sums: Mapping[int, NoisySum]


def propose_norms(request: SelectRequest) -> NormProposal:
    """Plans the searches of a request, and the family of its answers. Refuses stated norms if noise cannot be drawn."""
    shape = at_norms(request)
    if not request.question.treatment.finds_norm:
        for part in shape.measures:
            noisy_queries(part.plan)
    (scan,) = scans_of(shape)
    bare = bind_contributions([replace(part.measure.contribution, norm=0) for part in shape.measures], request.rows)
    job, amount = replace(scan.job, aggregates=bare, beside=bare), amount_of(request)
    treatment, every, averaged = request.question.treatment, range(len(shape.measures)), measures_of_averages(shape)
    rest = sum((part.measure.share for part in shape.measures), Fraction(0)) * amount
    prices = [
        amount * part.measure.share / part_of(shape.uses, place, request.question)
        for place, part in enumerate(shape.measures)
    ]
    added = _counts_and_sums(shape.uses)
    return NormProposal(
        shape,
        tuple(_search_cells(shape, place, job, prices[place]) for place in every if treatment.finds_norm),
        job,
        _family(job, rest),
        {place: _total(shape, place, job, prices[place]) for place in every if treatment.total and place in added},
        {place: _sum(place, job, prices[place]) for place in every if treatment.left_out and place in added},
        centers=tuple(center_search(part, job, amount * CENTERS / len(averaged), request.rows) for part in averaged),
    )


def measures_of_averages(plan: CubePlan) -> list[Measure]:
    """Returns the measures of sums that need a search for their centre."""
    if not _finds_centers(plan.request.question):
        return []
    places = dict.fromkeys(use.also.measure for use in plan.uses if use.also is not None)
    return [plan.measures[place].measure for place in places]


def _finds_centers(question: Question) -> bool:
    centred = {"avg", *VARIANCES}
    averages = any(agg.function in centred and not agg.operand_by_group for agg in question.aggregates)
    return averages and question.treatment.finds_norm and not question.treatment.centers


def _counts_and_sums(uses: Sequence[Use]) -> set[int]:
    """Returns the measures that answer a count or a sum by themselves."""
    return {use.measure for use in uses if use.weights and use.also is None}


def part_of(uses: Sequence[Use], place: int, question: Question) -> Fraction:
    """Returns the part of a measure's price that is left for its answers. place: the measure's position."""
    treatment, part = question.treatment, Fraction(1)
    part -= SEARCH if treatment.finds_norm else Fraction(0)
    part -= CENTERS if _finds_centers(question) else Fraction(0)
    if place in _counts_and_sums(uses):
        part -= TOTAL_SEARCH + TOTAL if treatment.total else Fraction(0)
        part -= LEFT_OUT if treatment.left_out else Fraction(0)
    return part


def _family(job: CountingJob, price: Fraction) -> Ask[None]:
    return Ask(AskScan(job, job.unit_bounds[0]), Within(price, pure=False, kinds=(Table,), weighed=True))


def at_norms(
    request: SelectRequest, squared: Sequence[int] = (), centers: Mapping[Operand, Fraction] | None = None
) -> CubePlan:
    """Plans answers about `centers`, at squared norms in integers. Without `squared`, takes the stated or least norms.

    With a total or left_out, each cell is measured by itself, since the sum of the cells is compared with another sum.
    """
    question = request.question
    basis = measures_with_norm(question.aggregates, question.treatment, centers)
    if squared:
        pairs = zip(basis.measures, squared, strict=True)
        basis = replace(basis, measures=tuple(measure.with_norm(norm) for measure, norm in pairs))
    parts = [part_of(basis.uses, place, question) for place in range(len(basis.measures))]
    priced = [replace(measure, share=measure.share * part) for measure, part in zip(basis.measures, parts, strict=True)]
    treatment = replace(question.treatment, strategy="I") if question.treatment.widens else question.treatment
    asked = replace(request, question=replace(question, treatment=treatment))
    plan = plans_at(asked, NoiseKind.GAUSSIAN, amount_of(request), measures=replace(basis, measures=tuple(priced)))
    return replace(plan, request=request)


def _search_cells(shape: CubePlan, place: int, job: CountingJob, price: Fraction) -> NormSearch:
    request, measure = shape.request, shape.measures[place].measure
    cells = _cells(request)
    spread = max(1, min(LARGEST_SPREAD, round(cells**0.25)))
    averaged = any(use.also is not None and not use.weights for use in shape.uses)
    alone = replace(job, aggregates=(replace(job.aggregates[place], shared=False),))
    prices = price * SEARCH, price * part_of(shape.uses, place, request.question)
    times = OF_AVERAGES if averaged else 1 if request.question.treatment.total else WITHOUT_TOTAL
    usual = UNITS * times * _usual_cells(request) / sqrt(2 * float(prices[1]))
    return _search(request, measure, alone, prices, spread, usual)


def _usual_cells(request: SelectRequest) -> float:
    """Returns the number of cells for comparing loss with noise: a geometric mean over grouping sets.

    A margin with m cells divides the whole loss of a norm among its cells. The sum of their noises grows with sqrt(C
    m), where C is the number of finest cells.
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
    """Returns the ask for the sum over all rows, without weights of units. Its noise scales with MAX ROWS."""
    bound, scan = job.unit_bounds[place], AskScan(job, job.unit_bounds[place], range(place, place + 1))
    return Ask(scan, Table(KroneckerQuery((), ())), noise_for(NoiseKind.GAUSSIAN, price * LEFT_OUT, bound))


def _search(
    request: SelectRequest,
    measure: Measure,
    job: CountingJob,
    prices: tuple[Fraction, Fraction],
    spread: int,
    usual: float,
) -> NormSearch:
    """Plans a search for the norm of a job's units. prices: of the search, and of the answers at that norm.

    spread: the largest weight of a unit. usual: the weight that all units above the norm may have together.
    """
    price, rest = prices
    most = job.aggregates[0].unit_bound(request.rows.unit_bound, _cells(request))
    if measure.form in ("sum", "squares") and _finds_centers(request.question):
        most *= 4 if measure.form == "squares" else 2  # the centre may not be the middle
    levels = min(2 * (most - 1).bit_length() or 1, _largest_level(rest))
    leveled = replace(job, levels=levels, spread=spread)
    ask = Ask(AskScan(leveled, spread), Within(price, pure=False, kinds=(Table,), weighed=True))
    return NormSearch(measure, leveled, ask, levels, levels.bit_length(), price, usual)


def _largest_level(rho: Fraction) -> int:
    """Returns the level of the largest norm with noise that can be drawn at a price. The search goes no further."""
    most = floor(LARGEST_VARIANCE * 2 * rho / (FULL * FULL))
    if most < 2:
        raise Refusal("at this price the noise would not fit 64-bit numbers", accepted="a larger epsilon or rho")
    return most.bit_length() - 1


def _cells(request: SelectRequest) -> int:
    return prod(request.question.sizes)


def norm_asks(proposal: NormProposal) -> Sequence[Ask[Any]]:
    """Lists the asks for centres and sums, and the families of asks of searches, answers and totals."""
    totals = [ask for part in proposal.totals.values() for ask in (part.search.ask, part.answer)]
    centers, searches = [part.ask for part in proposal.centers], [part.ask for part in proposal.searches]
    return [*centers, *searches, proposal.answers, *totals, *proposal.sums.values()]


def norm_header(proposal: NormProposal) -> ReleaseHeader:
    """Describes the release before anything is counted. The error laws at the final norms replace its laws later."""
    rows = sum(rows_per_set(proposal.request.question))
    description = "norms found in the statement" if proposal.searches else "norms and totals"
    mechanism = f"{proposal.shape.chance}, {description}"
    return ReleaseHeader(proposal.request, mechanism, "I, norms not found yet", error_laws(proposal.shape), rows)


def norm_columns(proposal: NormProposal) -> Columns:
    """Returns the columns of the released table."""
    return release_columns(proposal.request, wholes(proposal.shape))


def describe(request: SelectRequest, proposal: NormProposal) -> list[Forecast]:
    """Returns the forecast of the only strategy. Its error follows from norms that nobody knows before the release."""
    cells, treatment = sum(request.question.cells), request.question.treatment
    notes = ["identity: every cell of all keys together"]
    if treatment.usual:
        rows = request.rows.max_rows
        notes += [
            f"the statement says no bound, and units have up to {rows} rows: norms are looked for; "
            f"max_rows_contributed = {rows} says that noise goes by rows{_by_rows(request)}"
        ]
    if proposal.searches:
        levels = max(search.levels for search in proposal.searches) + 1
        notes += [
            f"units are weighed down to norms that are found in the statement, for {float(SEARCH):.0%} of its price, "
            f"among {levels} of each measure",
        ]
    else:
        notes += ["units are weighed down to the norm that the statement says"]
    if proposal.centers:
        notes += [f"centres of values are found for {float(CENTERS):.0%}"]
    if treatment.total:
        part = float(TOTAL_SEARCH + TOTAL)
        notes += [f"cells are brought to a total, which costs {part:.0%} of the price with a norm of its own"]
    if treatment.left_out:
        notes += [
            f"a sum of all rows costs {float(LEFT_OUT):.0%}, and upper ends of intervals hold what norms leave out"
        ]
    notes += [
        f"privacy unit {request.rows.unit_text}",
        "the error is the norm over the root of twice the rest of the price, and is known with the answer",
    ]
    return [Forecast("I", True, cells, len(request.question.grouping_sets), (*notes, _foretold(request)))]


def _by_rows(request: SelectRequest) -> str:
    """Names the standard errors of the same answers with noise by rows, if no error depends on the rows."""
    question = replace(request.question, treatment=Treatment())
    plan = plans_at(replace(request, question=question), NoiseKind.GAUSSIAN, amount_of(request))
    lines = foreseen(plan, None)
    errors = [format_figure(error) for line in lines if (error := line.worst or line.typical)]
    return f", with errors of {', '.join(errors)}" if len(errors) == len(lines) else ""


def _foretold(request: SelectRequest) -> str:
    if any(part.function != "count" for part in request.question.aggregates):
        return ""
    tried, bare, rows = bounds(Fraction(1), inf, Fraction(request.rows.max_rows)), at_norms(request), []
    for norm in tried:
        plan = at_norms(request, [int(norm * part.measure.contribution.bound) ** 2 for part in bare.measures])
        lines = foreseen(plan, None)
        rows.append(max(line.worst or 0.0 for line in lines))
    listed = ", ".join(f"{float(norm):g}" for norm in tried)
    return f"at a norm of {listed} it is {', '.join(map(format_figure, rows))}"


def errors_of(proposal: NormProposal, expect_rows: int | None) -> list[AggregateError]:
    """Returns a line without figures for each aggregate, since no error is known before the release."""
    cells = sum(proposal.request.question.cells)
    return [AggregateError(agg.text, cells, None, None, None) for agg in proposal.request.question.aggregates]
