"""Noisy binary search for norms, the answers at these norms, and totals beside them."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np

from dpduck.kernel.contributions import FULL, Contribution
from dpduck.kernel.door import Door
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.operators import KroneckerQuery, MatrixFactor
from dpduck.kernel.queries.tables import Table
from dpduck.mechanisms.cubes.measure import scan_of
from dpduck.mechanisms.cubes.measures import Measure
from dpduck.mechanisms.cubes.plan import CubePlan, recover_table
from dpduck.mechanisms.cubes.recover import answers_of, covariances_text, error_laws, wholes
from dpduck.mechanisms.jobs import bind_contributions
from dpduck.mechanisms.mechanism import Tools
from dpduck.mechanisms.norms.centers import center_found
from dpduck.mechanisms.norms.plan import NoisySum, NormMeasurements, NormProposal, NormSearch, TotalAsks, at_norms
from dpduck.mechanisms.norms.totals import widen_intervals
from dpduck.mechanisms.release import ReleasedTable
from dpduck.mechanisms.released_rows import release_columns, release_rows
from dpduck.strategies.budgets import noise_for
from dpduck.strategies.plan import noisy_queries
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

WHOLE = Table(KroneckerQuery((), ()))


def measure_norms(proposal: NormProposal, door: Door, tools: Tools) -> NormMeasurements:
    """Finds the norms, and measures the tables at these norms."""
    centers = {part.operand: center_found(part, door) for part in proposal.centers}
    about = at_norms(proposal.request, centers=centers)
    rows = proposal.request.rows
    beside = bind_contributions([replace(part.measure.contribution, norm=0) for part in about.measures], rows)
    measured = zip(proposal.searches, about.measures, strict=False)
    searches = [_about(search, part.measure, beside) for search, part in measured]
    plan = at_norms(proposal.request, tuple(1 << found_level(search, door) for search in searches), centers)
    job = replace(
        proposal.job, aggregates=bind_contributions([part.measure.contribution for part in plan.measures], rows)
    )
    tables = []
    for number, part in enumerate(plan.measures):
        scan = scan_of(part, job, number)
        asks = [Ask(scan, Table(query), noise) for query, noise in noisy_queries(part.plan)]
        for ask in asks:
            door.admit(ask, proposal.answers)
        tables.append(tuple(door.tables(asks)))
    totals = {place: _total(part, door) for place, part in proposal.totals.items()}
    sums = {place: _of_one_cell(ask, door) for place, ask in proposal.sums.items()}
    return NormMeasurements(plan, tuple(tables), totals, sums)


def _about(search: NormSearch, measure: Measure, beside: tuple[Contribution, ...]) -> NormSearch:
    """Moves a search to the centre of its measure. beside: all measures about their centres."""
    (aggregate,) = search.job.aggregates
    about = replace(aggregate, centre=measure.contribution.centre)
    return replace(search, job=replace(search.job, aggregates=(about,), beside=beside))


def _total(asked: TotalAsks, door: Door) -> NoisySum:
    norm = 1 << found_level(asked.search, door)
    job = replace(asked.job, aggregates=(replace(asked.job.aggregates[0], norm=norm),))
    (bound,) = job.unit_bounds
    ask = Ask(AskScan(job, bound), WHOLE, noise_for(NoiseKind.GAUSSIAN, door.left(asked.answer), bound))
    door.admit(ask, asked.answer)
    return _of_one_cell(ask, door)


def _of_one_cell(ask: Ask[tuple[IntegerArray, ...]], door: Door) -> NoisySum:
    if ask.noise is None:
        raise InternalError("a sum without noise")
    (answers,) = door.tables([ask])
    return NoisySum(int(answers[0].ravel()[0]), ask.noise.variance)


def found_level(search: NormSearch, door: Door) -> int:
    """Returns the level at which a binary search ends: by noisy counts, the least level with few units above it.

    It never asks about the last level: no unit is above it, or noise for a larger norm could not be drawn.
    """
    low, high, scan = 0, search.levels, AskScan(search.job, search.job.spread)
    while low < high:
        middle = (low + high) // 2
        ask = Ask(scan, Table(_above(middle, search.levels)), Noise(NoiseKind.GAUSSIAN, search.noise))
        door.admit(ask, search.ask)
        if int(door.answer(ask)[0][0]) <= search.threshold(high - low):
            high = middle
        else:
            low = middle + 1
    return low


def _above(level: int, levels: int) -> KroneckerQuery:
    row = (np.arange(levels + 1) > level).astype(np.int64)
    return KroneckerQuery((0,), (MatrixFactor(row[None, :]),))


def recover_norms(proposal: NormProposal, outcome: NormMeasurements, tools: Tools) -> ReleasedTable:
    """Computes the answers of every aggregate, with the error laws at the final norms."""
    request, whole, treatment = proposal.request, wholes(outcome.plan), proposal.request.question.treatment
    measured = zip(outcome.plan.measures, outcome.tables, strict=True)
    tables = [[recover_table(part.plan, [answer[0] for answer in noisy], treatment)] for part, noisy in measured]
    answers = answers_of(outcome.plan, tables)
    if treatment.widens:
        answers = [widen_intervals(outcome, number, answer) for number, answer in enumerate(answers)]
    rows = release_rows(request, answers, whole, tools.box)
    norms = ", ".join(f"{_in_units(outcome.plan, number):.6g}" for number in range(len(outcome.plan.measures)))
    columns = release_columns(request, whole)
    together = covariances_text(outcome.plan)
    return ReleasedTable(columns, rows, together, laws=error_laws(outcome.plan), strategy=f"I, norms {norms}")


def _in_units(plan: CubePlan, number: int) -> float:
    """Returns a measure's norm, in rows or in the units of a summed column. It is at most what MAX ROWS allows."""
    measured = plan.measures[number]
    return sqrt(measured.bounds.squared) / FULL * float(measured.measure.contribution.unit)
