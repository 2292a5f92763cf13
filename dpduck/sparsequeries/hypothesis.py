"""Sparse multiplicative weights over an infinite universe: what a session believes, from public answers alone.

The hypothesis is a distribution of `total` rows over `slots` keys, assigned when they are first updated, and one place
for the mass of all keys that never are. It begins with half of the mass there and the rest even over the slots, so
that its relative entropy to the truth is at most ln(2 slots) at first. docs/sparse_queries.md bounds the updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, log, sqrt

STEP = 2 / 3  # of the way to a measurement: then it never passes the exact answer, see updates_needed
NARROW = 1e-12


@dataclass(frozen=True)
class Change:
    """An update: new raw weights of the question's keys, and the factor that all weights share from now on."""

    weights: Mapping[int, float]
    scale: float


class Hypothesis:
    """Raw weights by key (its digest as one integer), all to be multiplied by `scale`."""

    def __init__(self, total: float, slots: int, weights: Mapping[int, float], scale: float) -> None:
        self.total = total
        self.slots = slots
        self.scale = scale
        self._weights = dict(weights)
        self._unassigned = total / (2 * slots)

    def answer(self, keys: Sequence[int], weights: Sequence[float]) -> float:
        """The hypothesis's answer: assigned keys by their weight, others by that of an unused slot."""
        get, unused = self._weights.get, self._unassigned
        return self.scale * sum(weight * get(key, unused) for key, weight in zip(keys, weights, strict=True))

    def towards(self, keys: Sequence[int], weights: Sequence[float], measured: float) -> Change:
        """The multiplicative update h_i exp(eta w_i) / Z with which the answer moves STEP of the way to `measured`.

        eta solves one increasing equation, by bisection between bounds that hold it.
        """
        held = [self.scale * self._weights.get(key, self._unassigned) for key in keys]
        rest = max(self.total - sum(held), NARROW * self.total)
        now = sum(weight * mass for weight, mass in zip(weights, held, strict=True))
        most = max(weights, default=0.0)
        goal = now + STEP * (measured - now)
        goal = min(max(goal, NARROW * self.total), (1 - 1e-6) * most * self.total)
        low, high = -60.0, 60.0
        for _ in range(200):
            eta = (low + high) / 2
            grown = [mass * exp(eta * weight) for mass, weight in zip(held, weights, strict=True)]
            whole = rest + sum(grown)
            reached = self.total * sum(w * mass for w, mass in zip(weights, grown, strict=True)) / whole
            low, high = (eta, high) if reached < goal else (low, eta)
        factor = self.total / whole
        return Change({key: mass / self.scale for key, mass in zip(keys, grown, strict=True)}, self.scale * factor)

    def apply(self, change: Change) -> None:
        """Takes an update over."""
        self._weights.update(change.weights)
        self.scale = change.scale


def updates_needed(total: float, gap: float, slots: int) -> float:
    """The most updates there can be if each finds a gap of at least `gap` rows, measured to within half of it.

    Each takes at least (10/9) (gap / total)^2 from a relative entropy of at most ln(2 slots).
    """
    return 0.9 * (total / gap) ** 2 * log(2 * slots)


def slots_for(total: float, updates: int, sparsity: int, alpha: float) -> int:
    """Slots for every key that updates can touch, and so many that no question begins with more than alpha / 20."""
    return max(updates * sparsity, ceil(10 * sparsity * total / alpha))


def gap_for(total: float, updates: int, sparsity: int) -> float:
    """A gap with which so many updates always suffice: twice the fixed point's step, as alpha is at least the gap."""
    first = total * sqrt(0.9 * log(2 * updates * sparsity) / updates)
    return total * sqrt(0.9 * log(2 * slots_for(total, updates, sparsity, first)) / updates)
