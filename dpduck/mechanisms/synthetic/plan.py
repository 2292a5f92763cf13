"""Candidate mechanisms for a synthetic table, compared by predicted error from public facts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from math import hypot, prod

import numpy as np

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.families import WEIGHT
from dpduck.kernel.queries.operators import Family
from dpduck.language.select.request import SelectRequest
from dpduck.language.statements.synthetic_options import SyntheticOptions
from dpduck.mechanisms.forecast import Forecast
from dpduck.mechanisms.synthetic.cliques import LARGEST_TABLE, cells_for_fit, cliques_of, kept_zeros
from dpduck.mechanisms.synthetic.mwem import Method
from dpduck.mechanisms.synthetic.observations import records_for_plan
from dpduck.mechanisms.synthetic.pool import LARGEST_HISTOGRAM, LARGEST_ZEROS, Pool, candidates, pool_of
from dpduck.mechanisms.synthetic.prior import TRIED
from dpduck.mechanisms.synthetic.request import SyntheticRequest
from dpduck.mechanisms.synthetic.schedule import (
    RECORDS,
    TOTAL_SHARE,
    Schedule,
    aim_error,
    all_drowned,
    apart_error,
    drawn_error,
    error_after_rounds,
    largest_error,
    mean_absolute,
    queries_rounds,
    remaining,
    rounds_of,
    surviving,
    update_error,
    updates_of,
)
from dpduck.mechanisms.synthetic.seconds import aim_seconds, drawing_seconds, plan_seconds, rounds_seconds
from dpduck.strategies.budgets import kind_and_amount
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.plan import Plan
from dpduck.values.errors import InternalError, Refusal

MOST_ROUNDS = 64
"""Most rounds of MWEM if the statement does not say a number."""

LARGEST_MODEL = 1 << 18
"""Most cells of a candidate of annealed rounds, and about the most cells of their distribution's tables."""

QUIET = 0.03
"""Largest total variation of noise in 1-way marginals before annealed rounds. Above it, these get a larger share."""

QUIET_CUBE = 0.15
"""A cube is chosen if its error for equal cells is below this, else annealed rounds. The error of rounds depends on the
data. No prediction of that error chose as well (docs/decisions.md)."""

FIRST_SHARES = (Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
"""Shares of the price for 1-way marginals before annealed rounds. The least share with QUIET noise is taken."""

ROUNDS_BEGUN = {True: 1, False: 2}
"""Annealed rounds per attribute at equal prices, by whether these are pure. First rounds cost a quarter of the price.
"""


MOST_TRIED = 8.0
"""Most seconds of a fit, by the guess, at which several weights of the prior are tried."""


@dataclass(frozen=True)
class Fit:
    """Candidate mechanism for a synthetic table, with its plan and predicted error.

    plan: for a cube or Barak's coefficients. MWEM has a pool, a schedule and a method.
    seconds: a guess of the time after the rows are counted, None if unknown.
    by_total: whether everything but the number of records is planned again once that noisy number is known.
    tries: whether several weights of the prior are tried (prior.py).
    """

    name: str
    error: float
    note: str
    plan: Plan | None = None
    pool: Pool | None = None
    schedule: Schedule | None = None
    method: Method | None = None
    seconds: float | None = None
    by_total: bool = False
    tries: bool = False


def fits_of(request: SyntheticRequest) -> tuple[Fit, ...]:
    """Returns the mechanisms that can serve a request, the chosen one first, then by predicted error."""
    asked = request.options.mechanism
    fits = []
    if asked in ("auto", "mwem") or request.kind not in ("marginals", "sets", "parities"):
        fits.append(_mwem(request))
    if asked == "aim" or (asked == "auto" and not _of_mwem(request.options)):
        fits += _plan_annealing(request)
    if asked not in ("mwem", "aim") and request.kind in ("marginals", "sets", "parities"):
        fits += _tables(request, asked)
    if asked not in ("auto", "mwem"):
        fits = [item for item in fits if item.name == asked]
    if not fits:
        raise Refusal(f"mechanism = '{asked}' cannot serve this workload", accepted="mechanism = 'mwem'")
    shapes = [tuple(request.base.question.sizes[a] for a in item) for item in request.base.question.grouping_sets]
    rows = request.options.rows or _records(request)
    drawn = drawn_error(shapes, rows)
    plans = {item.name: item.plan for item in fits}
    cube, taken = plans.get("cube"), ""
    if cube is not None and "aim" in plans:
        taken = "cube" if is_quiet(cube, _records(request)) else "aim"
    fits = [replace(item, error=hypot(item.error, drawn), seconds=_with_rows(request, item, rows)) for item in fits]
    fits.sort(key=lambda item: (item.name != taken, item.error))
    if fits[0].name != "mwem":
        _require_none_of_mwem(request.options, fits[0].name)
    return tuple(fits)


def _with_rows(request: SyntheticRequest, fit: Fit, rows: int) -> float | None:
    """Returns the seconds of a fit and of drawing its rows. A fit without a plan counts as one clique per column."""
    if fit.seconds is None:
        return None
    sizes = request.base.question.sizes
    cliques = len(sizes) if fit.plan is None else len(cliques_of(sizes, fit.plan.workload.marginals))
    return fit.seconds + drawing_seconds(rows, len(sizes), cliques)


def _of_mwem(options: SyntheticOptions) -> list[str]:
    plain = SyntheticOptions(
        options.mechanism, options.rows, options.weights, options.bins, options.inside, key=options.key
    )
    return [field.name for field in fields(options) if getattr(options, field.name) != getattr(plain, field.name)]


def _require_none_of_mwem(options: SyntheticOptions, chosen: str) -> None:
    """Refuses options that the chosen mechanism does not read: with them, an equal statement would pay again."""
    given = _of_mwem(options)
    if given:
        names = f"{' and '.join(given)} {'have' if given[1:] else 'has'}"
        raise Refusal(
            f"{names} no effect with mechanism = '{chosen}', which is chosen here",
            accepted="mechanism = 'mwem', or the statement without it",
        )


def _records(request: SyntheticRequest) -> int:
    return request.expect_rows or RECORDS


def _tables(request: SyntheticRequest, asked: str) -> list[Fit]:
    """Returns the fits of the cube and of Barak et al., if the marginals' tables have at most LARGEST_TABLE cells."""
    base = request.base
    cells = cells_for_fit(base.question.sizes, base.question.grouping_sets)
    if cells > LARGEST_TABLE:
        if asked == "auto":
            return []
        raise Refusal(
            f"a table of {cells} cells would be fitted",
            accepted=f"at most {LARGEST_TABLE} cells, or mechanism = 'mwem'",
        )
    fits = []
    noise, amount = kind_and_amount(base.price.charge)
    workload = MarginalWorkload(
        base.question.sizes, base.question.grouping_sets, (1.0,) * len(base.question.grouping_sets)
    )
    for name, strategy, budgets in (("cube", "auto", "optimal"), ("barak", "F", "uniform")):
        if asked in ("auto", name):
            seconds = float(base.question.treatment.planning_seconds)
            plan = plan_workload(
                workload,
                noise,
                amount,
                base.rows.unit_bound,
                strategy=strategy,
                budgets=budgets,
                planning_seconds=seconds,
            )[0]
            _require_drawable(plan.noise is NoiseKind.LAPLACE, [measured.parameter for measured in plan.measurements])
            note, took = f"strategy {plan.strategy}", plan_seconds(plan, _records(request))
            tries = name == "cube" and took <= MOST_TRIED
            took *= TRIED if tries else 1
            fits.append(Fit(name, tables_error(plan, _records(request)), note, plan, seconds=took, tries=tries))
    return fits


def tables_error(plan: Plan, records: int) -> float:
    """Guesses the mean total variation over the marginals of a fitted cube, from public facts alone."""
    shapes = [tuple(plan.workload.sizes[a] for a in marginal) for marginal in plan.workload.marginals]
    noises = [mean_absolute(plan.noise is NoiseKind.LAPLACE, variance) for variance in plan.variances]
    return float(remaining(noises, shapes, records).mean())


def is_quiet(plan: Plan, records: int) -> bool:
    """Tells whether a cube is chosen over annealed rounds: its predicted error for equal cells is below QUIET_CUBE."""
    sizes, pure, marginals = plan.workload.sizes, plan.noise is NoiseKind.LAPLACE, plan.workload.marginals
    noise = [
        surviving(mean_absolute(pure, variance) * prod(sizes[a] for a in marginal) / (2 * records))
        for marginal, variance in zip(marginals, plan.variances, strict=True)
    ]
    return sum(noise) / len(noise) < QUIET_CUBE


def _mwem(request: SyntheticRequest) -> Fit:
    base, options = request.base, request.options
    pool = pool_of(request)
    largest = max(prod(family.shape) for family in pool.workload)
    dense = options.keep == "average" or options.first == "histogram"
    universe = prod(base.question.sizes)
    limit = LARGEST_HISTOGRAM if options.first == "histogram" else LARGEST_TABLE
    if largest > LARGEST_TABLE or (dense and universe > limit):
        cells = universe if dense else largest
        raise Refusal(
            f"the table of {cells} cells that this needs is too large",
            accepted=f"at most {limit if dense else LARGEST_TABLE} cells: fewer columns at a time, "
            "without keep = 'average' and first = 'histogram'",
        )
    noise, amount = kind_and_amount(base.price.charge)
    pure = noise is NoiseKind.LAPLACE
    share = options.choice_share or (Fraction(1, 2) if not pool.whole else Fraction(1, 4) if pure else Fraction(1, 10))
    first, first_share = len(pool.first), options.first_share if pool.first else Fraction(0)
    schedule = Schedule(pure, amount, base.rows.unit_bound, 1, share, first, first_share, options.adaptive)
    records, shapes = _records(request), [family.shape for family in pool.workload]
    rounds = options.rounds
    if rounds is None and pool.whole and options.update == "paper":
        rounds = updates_of(schedule, shapes, len(base.question.sizes), records, MOST_ROUNDS)
    elif rounds is None and pool.whole:
        rounds = rounds_of(schedule, shapes, len(base.question.sizes), records)
    elif rounds is None:
        rounds = queries_rounds(schedule, universe, pool.queries, records, MOST_ROUNDS)
    schedule = replace(schedule, rounds=rounds)
    least = schedule.round_price / (4 if options.adaptive else 1)
    parameters = [schedule.parameter(schedule.total_price), schedule.of_round(least)[1]]
    _require_drawable(pure, [*parameters, *([schedule.parameter(schedule.first_price)] if first else [])])
    asked = "marginals" if pool.whole else "queries"
    note = f"{rounds} rounds, {'more where noise is small, ' if options.adaptive else ''}each asks one of the {asked}"
    if options.update == "paper" and not options.adaptive:
        note += _worst(pool, schedule, universe, records)
    method = Method(options.update == "fit", options.replays, options.keep == "average", dense, request.expect_rows)
    predicted = update_error if pool.whole and options.update == "paper" else error_after_rounds
    error = predicted(schedule, shapes, len(base.question.sizes), records)
    took = rounds_seconds(pool, schedule, method)
    return Fit("mwem", error, note, pool=pool, schedule=schedule, method=method, seconds=took)


def _worst(pool: Pool, schedule: Schedule, universe: int, records: int) -> str:
    """States the paper's bound on the largest error, if the bound is below the number of rows."""
    if pool.whole or not schedule.pure:
        return ""
    bound, chance = largest_error(schedule, universe, pool.queries, records)
    if bound >= records or chance >= 1:
        return "; the paper's bound on the largest error is above all rows"
    said = f"of {records} rows no query errs by more than {bound:.6g}, but with a chance of {chance:.2g}"
    return f"; {said} (a theorem of the worst case)"


def _plan_annealing(request: SyntheticRequest) -> list[Fit]:
    base, sizes = request.base, request.base.question.sizes
    if request.kind not in ("marginals", "sets") or max(sizes) > LARGEST_MODEL or len(sizes) < 2:
        return []
    noise, amount = kind_and_amount(base.price.charge)
    pure = noise is NoiseKind.LAPLACE
    fit = plan_aim(sizes, base.question.grouping_sets, pure, amount, base.rows.unit_bound, request.expect_rows)
    if fit.pool is None:
        return []
    zeros = kept_zeros(sizes, (), request.zeros, LARGEST_ZEROS)
    by_total = (not pure or request.pure_budget) and _always_drawable(fit)
    return [replace(fit, pool=replace(fit.pool, zeros=zeros), by_total=by_total)]


def _always_drawable(fit: Fit) -> bool:
    """Tells whether the samplers can draw the noise of annealed rounds for any number of records."""
    if fit.schedule is None or fit.pool is None:
        return False
    try:
        for share in (FIRST_SHARES[0], FIRST_SHARES[-1]):
            rounds = ROUNDS_BEGUN[fit.schedule.pure] * len(fit.pool.sizes)
            schedule = replace(fit.schedule, rounds=rounds, first_share=share, adaptive=True)
            least = schedule.of_round(schedule.round_price / 4)[1]
            _require_drawable(schedule.pure, [schedule.parameter(schedule.first_price), least])
    except Refusal:
        return False
    return True


def plan_by_total(request: SyntheticRequest, total: float, variance: float) -> Fit:
    """Plans annealed rounds again for a noisy number of records: post-processing of an answer that was paid for."""
    fit = _plan_annealing(replace(request, expect_rows=records_for_plan(total, variance, request.expect_rows)))[0]
    if fit.method is None:
        raise InternalError("annealed rounds without a method")
    return replace(fit, method=replace(fit.method, expected=request.expect_rows))


def plan_aim(
    sizes: Sequence[int],
    workload: Sequence[tuple[int, ...]],
    pure: bool,
    amount: Fraction,
    bound: int,
    expected: int | None,
) -> Fit:
    """Plans AIM (McKenna et al. 2022). A candidate weighs more if more marginals of the workload have its columns."""
    records = expected or RECORDS
    first = tuple(Family((place,), (size,)) for place, size in enumerate(sizes))
    share = _first_share(pure, amount, bound, sizes, records)
    choice_share = Fraction(1, 4) if pure else Fraction(1, 10)
    rounds = ROUNDS_BEGUN[pure] * len(sizes)
    schedule = Schedule(pure, amount, bound, rounds, choice_share, len(first), share, True)
    loudest = 2 * records / mean_absolute(pure, schedule.variance(schedule.parameter(amount)))
    drowned = all_drowned(schedule, sizes, records)
    if drowned:
        schedule, loudest = replace(schedule, rounds=0, first_share=1 - TOTAL_SHARE[pure], adaptive=False), 0.0
    chosen = candidates(sizes, workload, LARGEST_MODEL, loudest)
    counts = np.bincount([attribute for attributes in workload for attribute in attributes], minlength=len(sizes))
    means = [float(counts[list(attributes)].mean()) for attributes in chosen]
    weights = tuple(max(1, min(WEIGHT, int(WEIGHT * mean / max(means)))) for mean in means)
    families = tuple(Family(attributes, tuple(sizes[a] for a in attributes)) for attributes in chosen)
    least = [] if drowned else [schedule.of_round(schedule.round_price / 4)[1]]
    first_noise = schedule.parameter(schedule.first_price)
    _require_drawable(pure, [schedule.parameter(schedule.total_price), first_noise, *least])
    shapes = [tuple(sizes[attribute] for attribute in attributes) for attributes in workload]
    pool = Pool(tuple(sizes), families, first, True, weights)
    method = Method(expected=expected, anneals=not drowned, largest=LARGEST_MODEL)
    return Fit(
        "aim",
        aim_error(schedule, shapes, sizes, records),
        "1-way marginals alone"
        if drowned
        else f"1-way marginals, then annealed rounds among {len(families)} marginals",
        pool=pool,
        schedule=schedule,
        method=method,
        seconds=aim_seconds(pool, schedule, method, records),
    )


def _first_share(pure: bool, amount: Fraction, bound: int, sizes: Sequence[int], records: int) -> Fraction:
    """Returns the share of the price for 1-way marginals: the least that leaves their noise below QUIET."""
    for share in FIRST_SHARES[:-1]:
        tried = Schedule(pure, amount, bound, 1, Fraction(1, 10), len(sizes), share, True)
        noise = mean_absolute(pure, tried.variance(tried.parameter(tried.first_price)))
        if noise * sum(sizes) / (len(sizes) * 2 * records) <= QUIET:
            return share
    return FIRST_SHARES[-1]


def _require_drawable(pure: bool, parameters: list[Fraction]) -> None:
    """Refuses noise that the samplers cannot draw, here from public numbers."""
    Noise(NoiseKind.LAPLACE if pure else NoiseKind.GAUSSIAN, max(parameters))


def explain_synthetic(request: SyntheticRequest, fits: tuple[Fit, ...]) -> list[Forecast]:
    """Returns a forecast for every mechanism, the chosen first. predicted_error: mean total variation over marginals.

    MWEM and annealed rounds have no variance, since their errors depend on the data.
    """
    base, forecasts = request.base, list[Forecast]()
    for number, fit in enumerate(fits):
        note = _note(base, request, fits) if number == 0 else ""
        asked = fit.schedule.rounds if fit.schedule is not None else len(fit.plan.measurements) if fit.plan else 0
        total, worst = (fit.plan.total_variance, fit.plan.worst_stderr) if fit.plan is not None else (None, None)
        further = [("predicted_error", "DOUBLE", fit.error)]
        cells = sum(base.question.cells)
        way = Forecast(fit.name, number == 0, cells, asked, (fit.note, note), total, worst, fit.seconds, further)
        forecasts.append(way)
    return forecasts


def _note(base: SelectRequest, request: SyntheticRequest, fits: tuple[Fit, ...]) -> str:
    unit = base.rows.unit_text
    rows = f"EXPECT ROWS {request.expect_rows}" if request.expect_rows else f"no EXPECT ROWS, taken as {RECORDS}"
    better = ""
    if len(fits) > 1:
        said = "is predicted to be better than" if fits[0].error <= fits[1].error else "is taken, not"
        better = f"; {fits[0].name} {said} {fits[1].name}"
    noise = NoiseKind.GAUSSIAN if base.price.charge.epsilon is None else NoiseKind.LAPLACE
    warning = far_off(request, fits[0])
    return f"{noise.value} noise; privacy unit {unit}; {rows}{better}{'; ' if warning else ''}{warning}"


def far_off(request: SyntheticRequest, chosen: Fit) -> str:
    """Warns if synthetic rows may be no nearer to the data than independent columns usually are. Else returns ''."""
    apart = apart_error([tuple(marginal) for marginal in request.base.question.grouping_sets])
    if chosen.error < apart:
        return ""
    fewer = ", a smaller MAX ROWS" if request.base.rows.unit_bound > 1 else ""
    return (
        f"margins are predicted to be {chosen.error:.2g} off, and columns that are drawn apart are often "
        f"{apart:.2g} off: a larger epsilon or rho{fewer}, bins or fewer columns bring rows nearer to the data"
    )
