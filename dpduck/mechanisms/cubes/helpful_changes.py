"""The changes that reduce the errors of all aggregates most, relative to the rows of a cell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.select.request import Key, Question, SelectRequest
from dpduck.mechanisms.cubes.error_forecast import foreseen
from dpduck.mechanisms.cubes.plan import CubePlan, amount_of, plans_at
from dpduck.values.domain import RangeDomain
from dpduck.values.errors import Refusal

MOST_SECONDS = 2.0
"""Most seconds of a search for helpful changes. The time that the statement's own plan took gives an estimate."""

MOST_HELPS = 3
FEWEST_BINS = 4

WORTHWHILE = 1.2
"""Least factor by which a change must reduce errors to be called a help."""


@dataclass(frozen=True)
class Help:
    """Change of the statement or policy, and the least factor by which errors fall (errors relative to rows)."""

    change: str
    times: float


def helps(cube: CubePlan, same_cost: Fraction | None, expect_rows: int | None) -> list[Help]:
    """Returns the most helpful changes, best first. same_cost: the charged rho, None if the budget is not in rho."""
    before = relative_errors(cube, expect_rows)
    if not any(before):
        return []
    offers = []
    for change, changed in _changes(cube, same_cost):
        pairs = zip(before, relative_errors(changed, expect_rows), strict=True)
        times = [base / error for base, error in pairs if base and error]
        offers += [Help(change, min(times))] if times else []
    worth = sorted((offer for offer in offers if offer.times >= WORTHWHILE), key=lambda offer: -offer.times)
    return worth[:MOST_HELPS]


def relative_errors(cube: CubePlan, expect_rows: int | None) -> list[float | None]:
    """Returns each aggregate's error in dp_errors, relative to the rows of a cell, or None if there is no figure."""
    question, figures = cube.request.question, list[float | None]()
    for line, use in zip(foreseen(cube, expect_rows), cube.uses, strict=True):
        cells = 1 if question.intervals else max(question.cells)
        if use.weights and line.typical is not None:
            figures.append(line.typical * cells)
        elif line.typical is not None:
            figures.append(line.typical)
        else:
            by_cell = line.by_rows if line.by_rows is not None else line.rank
            figures.append(None if by_cell is None else by_cell * cells)
    return figures


def _changes(cube: CubePlan, same_cost: Fraction | None) -> Iterator[tuple[str, CubePlan]]:
    """Yields changes of the statement, each with the plan that it leads to, if planning is quick."""
    took = sum(measure.plan.planning_seconds for measure in cube.measures)
    if took > MOST_SECONDS / 2:
        return
    rows, charge, noise, amount = cube.request.rows, cube.request.price.charge, cube.noise, amount_of(cube.request)
    offers = [*_offers(cube.request)]
    if took * (len(offers) + 1) > MOST_SECONDS:
        offers = []
    if rows.unit_sql is not None and rows.max_rows > 1:
        fewer = rows.max_rows // 2
        bounded = replace(rows, max_rows=fewer, unit_bound=fewer)
        offers.append((f"MAX ROWS {fewer} in the policy, which leaves rows out,", replace(cube.request, rows=bounded)))
    for change, request in offers:
        with suppress(Refusal):
            yield change, plans_at(request, noise, amount)
    if charge.epsilon is not None and same_cost is not None:
        with suppress(Refusal):
            change = f"OPTIONS (rho = {float(same_cost):.4g}), at the same cost,"
            yield change, plans_at(cube.request, NoiseKind.GAUSSIAN, same_cost)


def _offers(request: SelectRequest) -> Iterator[tuple[str, SelectRequest]]:
    question = request.question
    if question.has_ranges:
        return
    for place, key in enumerate(question.keys):
        if len(key.labels) < 2:
            continue
        other_keys = tuple(part for number, part in enumerate(question.keys) if number != place)
        sets = (tuple(key - (key > place) for key in part if key != place) for part in question.grouping_sets)
        treatment = replace(question.treatment, weights=())
        fewer = replace(_of_keys(question, other_keys), grouping_sets=tuple(dict.fromkeys(sets)), treatment=treatment)
        yield f"no {key.name} ({len(key.labels)} values)", replace(request, question=fewer)
        binned = any(isinstance(question.sources[source].domain, RangeDomain) for source in key.sources)
        if binned and len(key.labels) >= FEWEST_BINS:
            coarser = replace(key, labels=key.labels[::2])
            keys = tuple(coarser if part is key else part for part in question.keys)
            yield f"bins of {key.name} twice as wide", replace(request, question=replace(question, keys=keys))


def _of_keys(question: Question, subset: tuple[Key, ...]) -> Question:
    used = sorted({source for key in subset for source in key.sources})
    keys = tuple(replace(key, sources=tuple(used.index(source) for source in key.sources)) for key in subset)
    return replace(question, keys=keys, sources=tuple(question.sources[source] for source in used))
