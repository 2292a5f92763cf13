"""Sparse multiplicative weights: an update meets the assumption of the bound on updates, lazily as densely."""

from math import log

import numpy as np
import pytest

from dpduck.mechanisms.sparse.hypothesis import STEP, Hypothesis, gap_for, slots_for


def updates_needed(total: float, gap: float, slots: int) -> float:
    """The most updates there can be if each finds a gap of at least `gap` rows, measured to within half the gap.

    Each takes at least (10/9) (gap / total)^2 from a relative entropy of at most ln(2 slots).
    """
    return 0.9 * (total / gap) ** 2 * log(2 * slots)


def fresh(total: float = 1000.0, slots: int = 40) -> Hypothesis:
    return Hypothesis(total, slots, {}, 1.0)


def divergence(truth: np.ndarray, belief: np.ndarray) -> float:
    kept = truth > 0
    return float((truth[kept] * np.log(truth[kept] / belief[kept])).sum())


def masses(hypothesis: Hypothesis, keys: list[int]) -> np.ndarray:
    """The hypothesis as a distribution over these keys, the unused slots as one place, and the rest."""
    each = [hypothesis.answer([key], [1.0]) for key in keys]
    unused = (hypothesis.slots - len(keys)) * hypothesis.answer([-1], [1.0])
    return np.array([*each, hypothesis.total - sum(each)]) / hypothesis.total + 0 * unused


def test_an_update_moves_two_thirds_of_the_way() -> None:
    """The new answer lies STEP of the way from the old one to the measurement, whatever the weights; mass is kept."""
    for weights in ([1.0, 1.0, 1.0], [0.2, 1.0, 0.0], [0.5]):
        hypothesis = fresh()
        keys = list(range(len(weights)))
        before = hypothesis.answer(keys, weights)
        for measured in (400.0, 20.0, 90.0):
            hypothesis.apply(hypothesis.towards(keys, weights, measured))
            after = hypothesis.answer(keys, weights)
            goal = min(before + STEP * (measured - before), max(weights) * 1000)
            assert after == pytest.approx(goal, rel=1e-6)
            before = after


def test_lazily_assigned_keys_are_dense_multiplicative_weights() -> None:
    """Oracle: the same updates on a dense vector with every slot and the rest, keys assigned to slots as they come."""
    generator = np.random.default_rng(3)
    hypothesis, total, slots = fresh(), 1000.0, 40
    dense = np.array([total / 2, *[total / (2 * slots)] * slots])
    assigned: dict[int, int] = {}
    for _ in range(12):
        keys = generator.choice(25, 3, replace=False).tolist()
        weights = generator.uniform(0.1, 1, 3).tolist()
        for key in keys:
            assigned.setdefault(key, len(assigned) + 1)
        places = [assigned[key] for key in keys]
        query = np.zeros(slots + 1)
        query[places] = weights
        assert hypothesis.answer(keys, weights) == pytest.approx(float(query @ dense), rel=1e-9)
        change = hypothesis.towards(keys, weights, float(generator.uniform(0, 700)))
        eta = log(change.weights[keys[0]] * hypothesis.scale / dense[places[0]]) / weights[0]
        dense *= np.exp(eta * query)
        dense *= total / dense.sum()
        hypothesis.apply(change)


def test_every_update_makes_the_progress_of_the_bound() -> None:
    """docs: an update with a gap g, measured to within g/2, takes at least (10/9) (g/n)^2 from the divergence."""
    generator = np.random.default_rng(5)
    truth = generator.dirichlet(np.ones(8) * 0.3)
    keys = list(range(7))
    exact, total = truth * 1000.0, 1000.0
    hypothesis, updates = fresh(total, 7), 0
    for _ in range(2000):
        chosen = generator.choice(7, 3, replace=False).tolist()
        gap = sum(exact[key] for key in chosen) - hypothesis.answer(chosen, [1.0] * 3)
        if abs(gap) < 20:
            continue
        before = divergence(truth, masses(hypothesis, keys))
        measured = float(sum(exact[key] for key in chosen)) + float(generator.uniform(-0.5, 0.5)) * abs(gap)
        hypothesis.apply(hypothesis.towards(chosen, [1.0] * 3, measured))
        after = divergence(truth, masses(hypothesis, keys))
        assert before - after >= 10 / 9 * (gap / total) ** 2 - 1e-9
        updates += 1
    assert 0 < updates <= updates_needed(total, 20, 7)


def test_gap_and_updates_are_inverse() -> None:
    """With the gap of gap_for the bound on updates is met, and not by much. No question begins far from nothing."""
    gap = gap_for(1e6, 500, 64)
    slots = slots_for(1e6, 500, 64, gap)
    assert 490 < updates_needed(1e6, gap, slots) <= 500
    assert 64 * 1e6 / (2 * slots) <= gap / 20
