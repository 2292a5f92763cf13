"""Questions about people with several rows, their errors, and bounds chosen in hindsight, with numpy and pandas alone.

Bounds of a peer are chosen by a simulation: rows are kept as the peer keeps them, its noise is added, and the bounds
with the least error are taken. The table shows answers of the peer itself, at these bounds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

RHO_NOISE, ANALYTIC_NOISE, LAPLACE_NOISE = 4.53, 4.23, 2**0.5
"""Standard errors at (1, 1e-6) for a norm of 1: of rho, of the exact normal law, of Laplace noise at epsilon 1."""

GROUPS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300)
ROWS = (1, 2, 3, 5, 8, 12, 20, 50)
CLIPS = (1, 2, 5, 10, 20, 50, 100, 200)
"""Of a person's sum in a group, in units of the public guess of the average."""

WIDTHS = (2, 3, 4, 8, 16)
"""Of a clamp of single values, in the same unit."""

FEW = (1, 3, 10, 30)
"""Of OpenDP's averages, which have a bound more: rows of a person in a group, and clips."""

DRAWS, FINALISTS = (3, 12), 12
"""Draws of all bounds, and of the best."""


@dataclass(frozen=True)
class Question:
    """A statement. kind: counts, persons, averages or sums. cells: the first value of each key, and one past the last.

    guess: of the average, which is public. width: the policy's clamp of values, from 0.
    """

    table: str
    kind: str
    keys: tuple[str, ...]
    cells: tuple[tuple[int, int], ...]
    guess: int
    width: int

    @property
    def name(self) -> str:
        return f"{self.table}: {self.kind} by {', '.join(self.keys)}"

    def groups(self) -> list[tuple[int, ...]]:
        return list(product(*(range(first, past) for first, past in self.cells)))


@dataclass(frozen=True)
class Bounds:
    """How a peer bounds a person. order: how it keeps rows. groups, rows: L0, Linf. clip: of a sum, or a clamp.

    order: "random" keeps at most `rows` random rows of a group, then at most `groups` random groups. "first" and "last"
    keep groups by the order of their keys, one less than is paid. "rows" keeps at most `rows` rows of a group, then
    `groups` rows in all. "all" does only the latter.
    """

    order: str
    groups: int
    rows: int = 1
    clip: int = 0

    def norms(self) -> tuple[float, float]:
        """A person's counts over all groups, in L1 and in L2."""
        if self.order == "all":
            return float(self.groups), float(self.groups)
        return float(self.groups * self.rows), float(self.groups**0.5 * self.rows)

    def text(self) -> str:
        kept = {"random": f"{self.groups} groups", "all": f"{self.groups} rows in all"}
        kept |= {"rows": f"{self.groups} rows in all", "first": f"{self.groups} groups, first ones"}
        kept["last"] = f"{self.groups} groups, last ones"
        rows = f", {self.rows} row{'s' if self.rows > 1 else ''} a group" if self.order != "all" and self.rows else ""
        return f"{kept[self.order]}{rows}{f', clip {self.clip}' if self.clip else ''}"


def questions(folder: Path) -> list[Question]:
    """Reads the questions of a folder."""
    return [
        Question(one["table"], one["kind"], tuple(one["keys"]), tuple(map(tuple, one["cells"])), one["guess"],
                 one["width"])
        for one in json.loads((folder / "questions.json").read_text())["questions"]
    ]  # fmt: skip


def settings(folder: Path) -> dict[str, list[int]]:
    """Reads how often, and over which bounds of dpduck's."""
    return json.loads((folder / "questions.json").read_text())["settings"]


def write(folder: Path, asked: Iterable[Question], given: dict[str, object]) -> None:
    (folder / "questions.json").write_text(json.dumps({"questions": [asdict(one) for one in asked], "settings": given}))


class Rows:
    """The rows of a question by person and group, with its truths, and the errors of answers."""

    def __init__(self, question: Question, folder: Path) -> None:
        self.question = question
        table = pd.read_parquet(folder / f"{question.table}.parquet")
        shape = [past - first for first, past in question.cells]
        codes = [table[key].to_numpy() - first for key, (first, _) in zip(question.keys, question.cells, strict=True)]
        self.table, self.size = table, int(np.prod(shape))
        self.ids, self.value = table["id"].to_numpy(), table["value"].to_numpy()
        self.cell = np.ravel_multi_index(codes, shape)
        self.pair = np.unique(self.ids * self.size + self.cell, return_inverse=True)[1]
        place = np.unique(self.pair, return_index=True)[1]
        self.pair_id, self.pair_cell = self.ids[place], self.cell[place]
        self.truth, self.weight = self._truth(), np.bincount(self.cell, minlength=self.size).astype(float)

    def _truth(self) -> np.ndarray:
        rows = np.bincount(self.cell, minlength=self.size)
        if self.question.kind == "counts":
            return rows.astype(float)
        if self.question.kind == "persons":
            return np.bincount(self.pair_cell, minlength=self.size).astype(float)
        sums = np.bincount(self.cell, self.value, minlength=self.size)
        return sums if self.question.kind == "sums" else sums / np.maximum(rows, 1)

    def error(self, answers: dict[tuple[int, ...], float | None]) -> float:
        """The error of answers by group. A missing answer counts as 0."""
        found = [answers.get(group) for group in self.question.groups()]
        return self.error_of(np.array([np.nan if one is None else float(one) for one in found]))

    def error_of(self, found: np.ndarray) -> float:
        """The median over groups, weighted by rows, of the error over the truth, and of averages of the error."""
        some = self.weight > 0
        off = np.abs(np.where(np.isnan(found), 0.0, found) - self.truth)[some]
        truth, weight = np.abs(self.truth[some]), self.weight[some]
        if self.question.kind != "averages":
            off = np.where(truth > 0, off / np.where(truth > 0, truth, 1), 1.0)
        order = np.argsort(off)
        place = int(np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2))
        return float(off[order][min(place, len(off) - 1)])


def ranks(group: np.ndarray, priority: np.ndarray) -> np.ndarray:
    """The place of each within its group, from 0, by its priority."""
    order = np.lexsort((priority, group))
    of = group[order]
    starts = np.flatnonzero(np.r_[True, of[1:] != of[:-1]])
    places = np.arange(len(of)) - np.repeat(starts, np.diff(np.r_[starts, len(of)]))
    found = np.empty(len(of), np.int64)
    found[order] = places
    return found


class Draw:
    """One draw of which rows and groups of a person are kept."""

    def __init__(self, rows: Rows, rng: np.random.Generator) -> None:
        self.rows, self.rng = rows, rng
        self.chance, pairs = rng.random(len(rows.ids)), rng.random(len(rows.pair_id))
        self.of_pair = ranks(rows.pair, self.chance)
        self.of_id = {"random": ranks(rows.pair_id, pairs), "first": ranks(rows.pair_id, rows.pair_cell),
                      "last": ranks(rows.pair_id, -rows.pair_cell)}  # fmt: skip
        self.in_all: dict[int, np.ndarray] = {}

    def kept(self, bounds: Bounds) -> np.ndarray:
        """Marks the rows that are kept. Where rows are 0, groups have no limit of their own."""
        if bounds.order in ("random", "first", "last"):
            limit = bounds.groups - (bounds.order != "random")
            within = self.of_id[bounds.order][self.rows.pair] < limit
            return within & (self.of_pair < bounds.rows) if bounds.rows else within
        limit = bounds.rows if bounds.order == "rows" else 0
        if limit not in self.in_all:
            some = self.of_pair < limit if limit else np.ones(len(self.of_pair), bool)
            places = np.full(len(some), np.iinfo(np.int64).max)
            places[some] = ranks(self.rows.ids[some], self.rng.random(int(some.sum())))
            self.in_all[limit] = places
        return self.in_all[limit] < bounds.groups

    def by_pair(self, kept: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """Adds up the kept rows, by person and group."""
        pairs = len(self.rows.pair_id)
        return np.bincount(self.rows.pair[kept], None if values is None else values[kept], minlength=pairs)

    def by_cell(self, pairs: np.ndarray) -> np.ndarray:
        return np.bincount(self.rows.pair_cell, pairs, minlength=self.rows.size)


Simulated = Callable[[Draw, Bounds, Callable[[float, float], np.ndarray]], np.ndarray]
"""Answers of a peer. Its last argument draws noise of norms of L1 and L2."""


def best(rows: Rows, grid: Iterable[Bounds], simulated: Simulated, gaussian: float | None) -> tuple[Bounds, float]:
    """The bounds of the least error over draws, and that error. gaussian: its standard error, None for Laplace."""
    rng = np.random.default_rng(5)

    def noise(l1: float, l2: float) -> np.ndarray:
        return rng.laplace(0, l1, rows.size) if gaussian is None else rng.normal(0, gaussian * l2, rows.size)

    def found(tried: Iterable[Bounds], number: int) -> dict[Bounds, float]:
        draws = [Draw(rows, rng) for _ in range(number)]
        errors = {one: [rows.error_of(simulated(draw, one, noise)) for draw in draws] for one in tried}
        return {one: float(np.mean(of)) for one, of in errors.items()}

    first = found(grid, DRAWS[0])
    second = found(sorted(first, key=lambda one: first[one])[:FINALISTS], DRAWS[1])
    chosen = min(second, key=lambda one: second[one])
    return chosen, second[chosen]


def counted(draw: Draw, bounds: Bounds, noise: Callable[[float, float], np.ndarray]) -> np.ndarray:
    """Counts, and persons where a group has one row of a person."""
    return draw.by_cell(draw.by_pair(draw.kept(bounds))) + noise(*bounds.norms())


def summed(draw: Draw, bounds: Bounds, noise: Callable[[float, float], np.ndarray]) -> np.ndarray:
    """Sums of a person's rows in each group, clipped."""
    pairs = np.minimum(draw.by_pair(draw.kept(bounds), draw.rows.value), bounds.clip)
    return draw.by_cell(pairs) + bounds.clip * noise(float(bounds.groups), bounds.groups**0.5)


def limits(sizes: Iterable[int], most: int) -> Iterator[int]:
    """Those of a grid that are at most so many, and that number."""
    yield from sorted({min(size, most) for size in sizes})


def tell(question: Question, system: str, bounds: str, errors: list[float], simulated: float | None = None) -> None:
    """Prints one line of JSON: the mean error, and its relative standard error."""
    mean, spread = float(np.mean(errors)), float(np.std(errors, ddof=1)) if len(errors) > 1 else 0.0
    told = {"workload": f"{question.name}|{system}", "bounds": bounds, "error": mean}
    told["sure"] = spread / len(errors) ** 0.5 / mean if mean else 0.0
    sys.stdout.write(json.dumps({**told, "repeats": len(errors), "simulated": simulated}) + "\n")
    sys.stdout.flush()
