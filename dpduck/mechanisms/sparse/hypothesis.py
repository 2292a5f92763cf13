"""Sparse multiplicative weights over an infinite universe: a session's hypothesis, from public answers alone.

The hypothesis is a distribution of `total` rows over `slots` keys and one remainder. A key gets a slot at its first
update. The remainder has the mass of all keys without a slot. docs/sparse_queries.md bounds the updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, log, sqrt

STEP = 2 / 3  # of the way to a measurement: no move passes the exact answer then (docs/sparse_queries.md)
NARROW = 1e-12


@dataclass(frozen=True)
class Change:
    """Update of a hypothesis: new raw weights of the question's keys, and the new common factor of all weights."""

    weights: Mapping[int, float]
    scale: float


class Hypothesis:
    """Raw weights by key (its digest as one integer), with a common factor `scale`."""

    def __init__(self, total: float, slots: int, weights: Mapping[int, float], scale: float) -> None:
        self.total = total
        self.slots = slots
        self.scale = scale
        self._weights = dict(weights)
        self._unassigned = total / (2 * slots)

    def answer(self, keys: Sequence[int], weights: Sequence[float]) -> float:
        """Returns the hypothesis's answer. Unassigned keys have the weight of an unused slot."""
        get, unused = self._weights.get, self._unassigned
        return self.scale * sum(weight * get(key, unused) for key, weight in zip(keys, weights, strict=True))

    def towards(self, keys: Sequence[int], weights: Sequence[float], measured: float) -> Change:
        """Returns the multiplicative update that moves the answer STEP of the way to `measured`."""
        masses = [self.scale * self._weights.get(key, self._unassigned) for key in keys]
        rest = max(self.total - sum(masses), NARROW * self.total)
        now = sum(weight * mass for weight, mass in zip(weights, masses, strict=True))
        most = max(weights, default=0.0)
        goal = now + STEP * (measured - now)
        goal = min(max(goal, NARROW * self.total), (1 - 1e-6) * most * self.total)
        low, high = -60.0, 60.0
        for _ in range(200):
            eta = (low + high) / 2
            grown = [mass * exp(eta * weight) for mass, weight in zip(masses, weights, strict=True)]
            whole = rest + sum(grown)
            reached = self.total * sum(w * mass for w, mass in zip(weights, grown, strict=True)) / whole
            low, high = (eta, high) if reached < goal else (low, eta)
        factor = self.total / whole
        return Change({key: mass / self.scale for key, mass in zip(keys, grown, strict=True)}, self.scale * factor)

    def apply(self, change: Change) -> None:
        self._weights.update(change.weights)
        self.scale = change.scale


def slots_for(total: float, updates: int, sparsity: int, alpha: float) -> int:
    """Counts slots: one for each key that updates can touch, and enough that first answers are below alpha / 20."""
    return max(updates * sparsity, ceil(10 * sparsity * total / alpha))


def gap_for(total: float, updates: int, sparsity: int) -> float:
    """Returns a gap with which `updates` updates always suffice, by two steps towards a fixed point."""
    first = total * sqrt(0.9 * log(2 * updates * sparsity) / updates)
    return total * sqrt(0.9 * log(2 * slots_for(total, updates, sparsity, first)) / updates)
