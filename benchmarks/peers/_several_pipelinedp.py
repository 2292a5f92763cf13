"""PipelineDP 0.3 (local) about people with several rows: python -m benchmarks.peers._several_pipelinedp FOLDER."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pipeline_dp as pdp

from benchmarks.peers._asked_data import DELTA, EPSILON
from benchmarks.peers._several_data import (
    ANALYTIC_NOISE,
    CLIPS,
    GROUPS,
    ROWS,
    WIDTHS,
    Bounds,
    Draw,
    Question,
    Rows,
    best,
    counted,
    limits,
    questions,
    settings,
    summed,
    tell,
)

KINDS = {"Gaussian": (pdp.NoiseKind.GAUSSIAN, ANALYTIC_NOISE), "Laplace": (pdp.NoiseKind.LAPLACE, None)}
METRICS = {"counts": pdp.Metrics.COUNT, "persons": pdp.Metrics.PRIVACY_ID_COUNT, "averages": pdp.Metrics.MEAN,
           "sums": pdp.Metrics.SUM}  # fmt: skip


def grid(question: Question, cells: int) -> Iterator[Bounds]:
    """L0 and Linf, and for sums a clip of a person's sum in a group, for averages a clamp of values."""
    groups = list(limits(GROUPS, cells))
    if question.kind == "persons":
        yield from (Bounds("random", one) for one in groups)
    elif question.kind == "counts":
        yield from (Bounds("random", *one) for one in product(groups, ROWS))
        yield from (Bounds("all", most) for most in GROUPS)
    elif question.kind == "sums":
        yield from (Bounds("random", one, 0, clip * question.guess) for one, clip in product(groups, CLIPS))
    else:
        widths = sorted({min(width * question.guess, question.width) for width in WIDTHS})
        yield from (Bounds("random", *one) for one in product(groups, ROWS, widths))


def averaged(draw: Draw, bounds: Bounds, noise: Callable[[float, float], np.ndarray]) -> np.ndarray:
    """Distances from the middle of the clamp over counts, each for a half of the price."""
    kept, middle, (l1, l2) = draw.kept(bounds), bounds.clip / 2, bounds.norms()
    off = draw.by_cell(draw.by_pair(kept, np.minimum(draw.rows.value, bounds.clip) - middle))
    half = 2.0, 2**0.5
    sums = off + middle * noise(half[0] * l1, half[1] * l2)
    counts = draw.by_cell(draw.by_pair(kept)) + noise(half[0] * l1, half[1] * l2)
    found = middle + sums / np.maximum(counts, 1)
    return np.clip(found, 0, bounds.clip)


def answered(rows: Rows, given: list[tuple], bounds: Bounds, noise: pdp.NoiseKind) -> dict[tuple[int, ...], float]:
    """Asks once, for the whole price."""
    kind, shares = rows.question.kind, find_spec("dp_accounting") is not None and rows.question.kind == "averages"
    accountant = (pdp.PLDBudgetAccountant if shares else pdp.NaiveBudgetAccountant)(EPSILON, DELTA)
    kept = {"max_partitions_contributed": bounds.groups, "max_contributions_per_partition": max(bounds.rows, 1)}
    if bounds.order == "all":
        kept = {"max_contributions": bounds.groups}
    if kind == "sums":
        kept |= {"min_sum_per_partition": 0, "max_sum_per_partition": bounds.clip}
    if kind == "averages":
        kept |= {"min_value": 0, "max_value": bounds.clip}
    extract = pdp.DataExtractors(lambda row: row[0], lambda row: row[1], lambda row: row[2])
    asked = pdp.AggregateParams(metrics=[METRICS[kind]], noise_kind=noise, **kept)
    engine = pdp.DPEngine(accountant, pdp.LocalBackend())
    found = engine.aggregate(given, asked, extract, public_partitions=rows.question.groups())
    accountant.compute_budgets()
    return {key: float(value[0]) for key, value in found}


def main() -> None:
    """Asks every question with both kinds of noise, at the best bounds of each."""
    folder = Path(sys.argv[1])
    for question in questions(folder):
        rows = Rows(question, folder)
        keys = list(zip(*(rows.table[key].tolist() for key in question.keys), strict=True))
        given = list(zip(rows.ids.tolist(), keys, rows.value.tolist(), strict=True))
        how = {"averages": averaged, "sums": summed}.get(question.kind, counted)
        for name, (noise, error) in KINDS.items():
            bounds, simulated = best(rows, grid(question, rows.size), how, error)
            repeats = settings(folder)["repeats"]
            errors = [rows.error(answered(rows, given, bounds, noise)) for _ in range(repeats)]
            tell(question, name, f"{name}, {bounds.text()}", errors, simulated)


main()
