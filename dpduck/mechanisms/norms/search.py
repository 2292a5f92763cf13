"""Finds norms by a noisy binary search, and answers at the norms that were found."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np

from dpduck.mechanisms.cubes.measure import scan_of
from dpduck.mechanisms.cubes.measures import contribution_of
from dpduck.mechanisms.cubes.plan import measured_plan, recovered
from dpduck.mechanisms.cubes.recover import answers_of, error_laws, wholes
from dpduck.mechanisms.mechanism import Tools
from dpduck.mechanisms.norms.plan import Found, NormProposal, Search, at_norms
from dpduck.mechanisms.release import ReleasedTable
from dpduck.mechanisms.released_rows import released_columns, released_rows
from dpduck.planning.plan import noisy_queries
from dpduck.trusted.ask import Ask, Table
from dpduck.trusted.noise.law import Noise, NoiseKind
from dpduck.trusted.operators import KroneckerQuery, MatrixFactor
from dpduck.trusted.private.contributions import FULL
from dpduck.trusted.private.door import Door


def measure_norms(proposal: NormProposal, door: Door, tools: Tools) -> Found:
    """Returns the norms that were found, and the tables at them."""
    squared = tuple(1 << found_level(search, door) for search in proposal.searches)
    plan = at_norms(proposal.request, squared)
    job = replace(proposal.job, aggregates=tuple(contribution_of(one.measure) for one in plan.measures))
    tables = []
    for number, one in enumerate(plan.measures):
        scan = scan_of(one, job, number)
        asks = [Ask(scan, Table(query), noise) for query, noise in noisy_queries(measured_plan(one.plan))]
        for ask in asks:
            door.admit(ask, proposal.answers)
        tables.append(tuple(door.tables(asks)))
    return Found(plan, squared, tuple(tables))


def found_level(search: Search, door: Door) -> int:
    """Returns the level that a binary search ends at: the least that seems to have few units above it.

    It asks at most `steps` times, whatever it hears. At the last level there are no units above, or noise for a larger
    norm could not be drawn.
    """
    low, high = 0, search.levels
    while low < high:
        middle = (low + high) // 2
        ask = Ask(search.ask.scan, Table(_above(middle, search.levels)), Noise(NoiseKind.GAUSSIAN, search.noise))
        door.admit(ask, search.ask)
        if int(door.answer(ask)[0][0]) <= search.threshold(high - low):
            high = middle
        else:
            low = middle + 1
    return low


def _above(level: int, levels: int) -> KroneckerQuery:
    """Asks how many units are above a level."""
    row = (np.arange(levels + 1) > level).astype(np.int64)
    return KroneckerQuery((0,), (MatrixFactor(row[None, :]),))


def recover_norms(proposal: NormProposal, found: Found, tools: Tools) -> ReleasedTable:
    """Returns the answers of every aggregate, with the laws of the norms that were found."""
    request, whole, treatment = proposal.request, wholes(found.plan), proposal.request.question.treatment
    measured = zip(found.plan.measures, found.tables, strict=True)
    tables = [[recovered(one.plan, [answer[0] for answer in noisy], treatment)] for one, noisy in measured]
    rows = released_rows(request, answers_of(found.plan, tables), whole, tools.box)
    norms = ", ".join(f"{_in_units(found, number):.6g}" for number in range(len(found.squared)))
    laws, columns = error_laws(found.plan), released_columns(request, whole)
    return ReleasedTable(columns, rows, laws=laws, strategy=f"I, norms {norms}")


def _in_units(found: Found, number: int) -> float:
    """Returns a norm in rows, or in the units of a summed column: no more than MAX ROWS allows."""
    measured = found.plan.measures[number]
    return sqrt(measured.bounds.squared) / FULL * float(measured.measure.operand_step)
