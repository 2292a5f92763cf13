"""Turbo's cache in front of one table: private multiplicative weights with bypass (Kostopoulou et al., SOSP 2023).

A public histogram over the whole domain starts uniform. A query is tried on it if all its bins were updated often
enough. Then the sparse vector technique tells whether the histogram's answer is within half of the accuracy alpha. A
first check costs 3 epsilon, and so does the next one after a failure. A failure costs one answer more and raises the
bins' thresholds. All other queries bypass the histogram: they pay for a noisy answer. The histogram learns from it
where the two differ by more than tau alpha. Constants are those of the authors' own evaluation on one block.

Where the paper leaves a choice it is made in Turbo's favour. A table is one query, of sensitivity 1. Its check is on
its largest error, and its failure updates all its cells. The size of the data is public. A direct answer costs what
ours costs alone. Alpha is the bound that Gaussian noise at the target's standard error keeps with probability 0.95.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, tanh
from typing import Any, Protocol

import numpy as np

BETA = 0.05
ALPHA = 1.96
"""Of the target's standard error."""
RATES = ((100, 0.2), (50, 0.5), (0, 2.0))
"""The learning rate from so many updates of a query's bins on; an eighth of it is the step."""
READY, PENALTY = 100, 5
"""Updates of a bin before the histogram is tried, and how many more after a failure."""
TAU = 0.05


class Asked(Protocol):
    """The part of a query that concerns one column."""

    @property
    def column(self) -> int: ...
    @property
    def grouped(self) -> bool: ...
    @property
    def kept(self) -> tuple[int, ...] | None: ...


class Turbo:
    """One cache and the sum of its charges so far. exact: the table. price: of a direct answer."""

    def __init__(self, exact: np.ndarray, target: float, price: float, pure: bool) -> None:
        self.charged, self.direct, self.free, self.failed, self.checks, self.hits = 0.0, 0, 0, 0, 0, 0
        self._exact, self._price, self._target, self._rows = exact, price, target, float(exact.sum())
        self._alpha = ALPHA * target / self._rows
        self._epsilon = 4 * log(1 / BETA) / (self._rows * self._alpha)
        check = 3 * self._epsilon
        self._check_price = check if pure else check * tanh(check / 2)
        self._histogram = np.full(exact.shape, 1 / exact.size)
        self._updates = np.zeros(exact.shape, np.int32)
        self._thresholds = np.full(exact.shape, READY, np.int32)
        self._noise = np.random.default_rng()
        self._threshold: float | None = None
        self._seen: set[tuple[Asked, ...]] = set()

    def said(self) -> str:
        """Says how many queries were answered in which way."""
        return f"{self.hits} in the cache, {self.direct} bypassed, {self.free} from the histogram, {self.failed} failed"

    def answer(self, parts: tuple[Asked, ...]) -> None:
        """Answers one query, and adds its price to the sum of charges."""
        if parts in self._seen:
            self.hits += 1
            return
        where = self._where(parts)
        if np.any(self._updates[where] < self._thresholds[where]):
            self._pay(parts, where, TAU * self._alpha, self._rate(where))
            self.direct += 1
        elif self._passes(parts):
            self.free += 1
        else:
            self.failed, self._threshold = self.failed + 1, None
            self._pay(parts, where, 0.0, self._alpha)
            self._thresholds[where] = int(self._updates[where].min()) + PENALTY

    def _pay(self, parts: tuple[Asked, ...], where: tuple[Any, ...], margin: float, rate: float) -> None:
        """Pays for a noisy answer, keeps it, and brings the histogram towards it."""
        self.charged += self._price
        self._seen.add(parts)
        own = self._sums(self._histogram, parts)
        noisy = (self._sums(self._exact, parts) + self._noise.normal(0, self._target, own.shape)) / self._rows
        way = np.where(noisy > own + margin, 1.0, np.where(noisy < own - margin, -1.0, 0.0))
        steps = self._spread(way, parts)
        self._histogram[where] *= np.exp(steps * rate / 8)
        self._histogram /= self._histogram.sum()
        self._updates[where] += steps != 0

    def _passes(self, parts: tuple[Asked, ...]) -> bool:
        """The sparse vector technique on the largest error of a table."""
        scale = 1 / (self._rows * self._epsilon)
        if self._threshold is None:
            self.charged, self.checks = self.charged + self._check_price, self.checks + 1
            self._threshold = self._alpha / 2 + self._noise.laplace(0, scale)
        off = np.abs(self._sums(self._exact, parts) / self._rows - self._sums(self._histogram, parts)).max()
        return bool(off + self._noise.laplace(0, scale) < self._threshold)

    def _rate(self, where: tuple[Any, ...]) -> float:
        least = int(self._updates[where].min())
        return next(rate for updates, rate in RATES if least >= updates)

    def _where(self, parts: Sequence[Asked]) -> tuple[Any, ...]:
        """The bins of a query."""
        named = {one.column: one.kept for one in parts}
        codes = [named.get(axis) for axis in range(self._exact.ndim)]
        if all(one is None or one == tuple(range(one[0], one[-1] + 1)) for one in codes):
            return tuple(slice(None) if one is None else slice(one[0], one[-1] + 1) for one in codes)
        sizes = zip(self._exact.shape, codes, strict=True)
        return np.ix_(*(range(size) if one is None else one for size, one in sizes))

    def _sums(self, table: np.ndarray, parts: Sequence[Asked]) -> np.ndarray:
        grouped = {one.column for one in parts if one.grouped}
        return table[self._where(parts)].sum(axis=tuple(axis for axis in range(table.ndim) if axis not in grouped))

    def _spread(self, cells: np.ndarray, parts: Sequence[Asked]) -> np.ndarray:
        """Cells of a query, repeated over its bins."""
        named = {one.column: one for one in parts}
        shape = [
            (size if (kept := named[axis].kept) is None else len(kept)) if axis in named and named[axis].grouped else 1
            for axis, size in enumerate(self._exact.shape)
        ]
        return cells.reshape(shape)
