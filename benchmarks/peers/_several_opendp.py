"""OpenDP 0.16 (opendp[polars]) about people with several rows: python -m benchmarks.peers._several_opendp FOLDER.

It keeps the first or the last groups by key, one less than it charges. Its choice by chance fails, since polars finds
two fields of one name. By chance it keeps rows of a group, and rows in all, which are bounds as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import opendp.prelude as dp
import polars as pl
from opendp.measurements import make_private_lazyframe

from benchmarks.peers._asked_data import EPSILON
from benchmarks.peers._several_data import (
    CLIPS,
    FEW,
    GROUPS,
    RHO_NOISE,
    ROWS,
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


def grid(question: Question, cells: int) -> Iterator[Bounds]:
    """L0 in three orders, Linf, and a clip of a person's sum in a group."""
    orders = [(order, groups) for order in ("first", "last") for groups in limits(GROUPS[1:], cells + 1)]
    orders += [("rows", most) for most in GROUPS]
    if question.kind == "persons":
        yield from (Bounds(*one) for one in orders)
    elif question.kind == "counts":
        yield from (Bounds(*one, rows) for one, rows in product(orders, ROWS))
        yield from (Bounds("all", most) for most in GROUPS)
    elif question.kind == "sums":
        yield from (Bounds(*one, 0, clip * question.guess) for one, clip in product(orders, CLIPS))
    else:
        clips = [clip * question.guess for clip in FEW]
        yield from (Bounds(*one, rows, clip) for one, rows, clip in product(orders, FEW, clips))


def averaged(draw: Draw, bounds: Bounds, noise: Callable[[float, float], np.ndarray], guess: int,
             gaussian: bool) -> np.ndarray:  # fmt: skip
    """Distances from the guess over counts, a half of the price for each. A person's part of a group is clipped."""
    kept, groups = draw.kept(Bounds(bounds.order, bounds.groups, 0)), float(bounds.groups)
    counts = np.minimum(draw.by_pair(kept), bounds.rows)
    off = np.clip(draw.by_pair(kept, draw.rows.value - float(guess)), -bounds.clip, bounds.clip)
    half = 2**0.5 if gaussian else 2
    return guess + (draw.by_cell(off) + half * bounds.clip * noise(groups, groups**0.5)) / np.maximum(
        draw.by_cell(counts) + half * bounds.rows * noise(groups, groups**0.5), 1
    )


class Asked:
    """A table of a folder as a frame, and its measurements."""

    def __init__(self, rows: Rows, rho: float) -> None:
        self.rows, self.keys, self.guess = rows, list(rows.question.keys), rows.question.guess
        table = rows.table[["id", *self.keys, "value"]].assign(off=rows.table["value"] - self.guess)
        self.frame, self.rho = pl.from_pandas(table).lazy(), rho
        listed = {key: [group[place] for group in rows.question.groups()] for place, key in enumerate(self.keys)}
        schema = self.frame.collect_schema()
        self.cells = pl.LazyFrame(listed, schema={key: schema[key] for key in self.keys})

    def measurement(self, bounds: Bounds, gaussian: bool) -> Callable[[], object]:
        """Makes a measurement of the whole price: the scale follows from its own map at scale 1, and is checked."""
        loss = dp.loss_of(rho=self.rho) if gaussian else dp.loss_of(epsilon=EPSILON)
        margins = [dp.polars.Margin(by=by, max_length=len(self.rows.ids)) for by in (self.keys, [])]
        unit = dp.unit_of(contributions=1, identifier=pl.col("id"))
        context = dp.Context.compositor(data=self.frame, privacy_unit=unit, privacy_loss=loss, split_evenly_over=1,
                                        margins=margins)  # fmt: skip
        query = self.query(context.query(), bounds).with_keys(self.cells)
        plan, inner = object.__getattribute__(query, "polars_plan"), object.__getattribute__(query, "_query")
        domain, metric = inner._chain
        make = partial(make_private_lazyframe, input_domain=domain, input_metric=metric,
                       output_measure=inner._output_measure, lazyframe=plan)  # fmt: skip
        times = float(make(global_scale=1.0).map(inner._d_in)) / inner._d_out
        measured = make(global_scale=(times**0.5 if gaussian else times) * (1 + 1e-9))
        if not 0.999 * inner._d_out < measured.map(inner._d_in) <= inner._d_out:
            raise ValueError("a scale of another price")
        return lambda: measured(self.frame).collect()

    def query(self, query: object, bounds: Bounds) -> object:
        kind, clips = self.rows.question.kind, self.rows.question.kind in ("averages", "sums")
        if bounds.order in ("rows", "first", "last") and not clips:
            query = query.truncate_per_group(bounds.rows, by=self.keys)
        if bounds.order in ("first", "last"):
            query = query.truncate_num_groups(bounds.groups, by=self.keys, keep=bounds.order)
        else:
            query = query.truncate_per_group(bounds.groups)
        if not clips:
            return query.group_by(*self.keys).agg(dp.len())
        of = "value" if kind == "sums" else "off"
        parts = [pl.col(of).sum().alias("s"), *([pl.len().alias("n")] if kind == "averages" else [])]
        lowest = 0 if kind == "sums" else -bounds.clip
        sums = [pl.col("s").fill_null(0).dp.sum((lowest, bounds.clip))]
        sums += [pl.col("n").fill_null(0).dp.sum((0, bounds.rows))] if kind == "averages" else []
        return query.group_by("id", *self.keys).agg(*parts).group_by(*self.keys).agg(*sums)

    def answers(self, found: pl.DataFrame) -> dict[tuple[int, ...], float]:
        told = {tuple(row[: len(self.keys)]): row[len(self.keys) :] for row in found.iter_rows()}
        if self.rows.question.kind != "averages":
            return {key: float(row[0]) for key, row in told.items()}
        return {key: self.guess + row[0] / max(row[1], 1) for key, row in told.items()}


def main() -> None:
    """Asks every question with both kinds of noise, at the best bounds of each."""
    dp.enable_features("contrib")
    folder = Path(sys.argv[1])
    given = settings(folder)
    for question in questions(folder):
        rows = Rows(question, folder)
        asked = Asked(rows, float(Fraction(given["rho"])))
        for name in ("Gaussian", "Laplace"):
            gaussian = name == "Gaussian"
            how = {"averages": partial(averaged, guess=question.guess, gaussian=gaussian), "sums": summed}
            simulate = how.get(question.kind, counted)
            bounds, simulated = best(rows, grid(question, rows.size), simulate, RHO_NOISE if gaussian else None)
            release = asked.measurement(bounds, gaussian)
            errors = [rows.error(asked.answers(release())) for _ in range(given["repeats"])]
            tell(question, name, f"{name}, {bounds.text()}", errors, simulated)


main()
