"""Incremental, cached and factored MWEM equals the naive algorithm. Fits converge. Marginals are exact."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

from dpduck.algebra.margin_tree import margin_tree
from dpduck.kernel.queries.operators import Family
from dpduck.mechanisms.synthetic import multiplicative
from dpduck.mechanisms.synthetic.distribution import Component, Distribution, uniform
from dpduck.mechanisms.synthetic.fit import fit
from dpduck.mechanisms.synthetic.junction import junction_tree
from dpduck.mechanisms.synthetic.mwem import Method, Run, State, _estimates, _step_towards, synthesise
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.mechanisms.synthetic.pool import Estimates, Pool, interval_products, parities
from dpduck.mechanisms.synthetic.schedule import Schedule
from tests.mechanisms.synthetic.oracles import SeededOracle, naive, queries_of

SIZES = (3, 2, 4, 2)
SCHEDULE = Schedule(True, Fraction(1), 1, 12, Fraction(1, 2))


def shape_of(attributes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(SIZES[attribute] for attribute in attributes)


def workloads() -> dict[str, tuple[Family, ...]]:
    pairs = list(combinations(range(len(SIZES)), 2))
    masks = (np.arange(12).reshape(1, 3, 4) % 5 == 2).astype(np.int64)
    return {
        "marginals": tuple(Family(pair, shape_of(pair)) for pair in pairs),
        "parities": tuple(parities(pair, shape_of(pair)) for pair in pairs),
        "ranges": (interval_products((2,), (4,)), interval_products((0, 2), (3, 4))),
        "predicates": (Family((0, 2), (3, 4), masks=masks), Family((1, 3), (2, 2))),
    }


def table() -> np.ndarray:
    return np.random.default_rng(5).poisson(np.random.default_rng(6).exponential(6.0, SIZES))


@pytest.mark.parametrize("kind", sorted(workloads()))
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "factored"])
@pytest.mark.parametrize(("rearranged", "bits"), [(1 << 17, 11.0), (1 << 17, 3.7), (0, 3.7)])
def test_cached_and_incremental_is_naive(
    kind: str, dense: bool, rearranged: int, bits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same draws give the same choices and the same distribution to 1e-9: on one table or on factors, in one block
    or in several, with axes moved or not (as in a large table)."""
    monkeypatch.setattr(multiplicative, "REARRANGED", rearranged)
    monkeypatch.setattr(multiplicative, "LARGEST_BITS", bits)
    monkeypatch.setattr(multiplicative, "FARTHEST", 1.2)
    pool = Pool(SIZES, workloads()[kind], (), whole=False)
    slow, asked = naive(pool, SCHEDULE, SeededOracle(pool, table(), 1), passes=3)
    method = Method(fits=False, passes=3, dense=dense)
    fast = synthesise(pool, SCHEDULE, method, SeededOracle(pool, table(), 1))
    joined, place = fast.distribution.join(range(len(SIZES)))
    assert list(fast.chosen) == asked
    assert np.abs(joined.components[place].table.reshape(-1) - slow).max() < 1e-9


@pytest.mark.parametrize("kind", sorted(workloads()))
def test_families_are_dense_queries(kind: str) -> None:
    """Answers of a family from its marginal equal those of its coefficients over the universe."""
    pool = Pool(SIZES, workloads()[kind], (), whole=False)
    oracle = SeededOracle(pool, table(), 1)
    assert np.array_equal(oracle.exact, queries_of(pool) @ table().reshape(-1))


def test_margin_tree_is_sums_and_its_adjoint() -> None:
    """Every marginal equals numpy's sum, and <margins, t> = <table, lifted t>."""
    members = (1, 2, 5, 7)
    wanted = [(), (1,), (2, 7), (1, 2, 5), members]
    tree = margin_tree(members, SIZES, [*wanted, (2, 7)])
    draws = np.random.default_rng(2)
    weights = draws.normal(size=SIZES)
    found = tree.margins(weights)
    duals = {target: draws.normal(size=found[target].shape) for target in wanted}
    for target in wanted:
        absent = tuple(axis for axis, member in enumerate(members) if member not in target)
        assert np.allclose(found[target], weights.sum(axis=absent))
    kept = {target: dual.copy() for target, dual in duals.items()}
    inner = sum(float((found[target] * duals[target]).sum()) for target in wanted)
    assert float((weights * tree.lift(duals)).sum()) == pytest.approx(inner)
    assert all(np.array_equal(duals[target], kept[target]) for target in wanted)


def test_binary_marginals_are_sums() -> None:
    """Marginals of mixed orders of a binary table, in any order, equal numpy's sums, in integers exactly."""
    draws = np.random.default_rng(8)
    members = tuple(range(3, 10))
    wanted = [axes for size in (3, 0, 2, 1) for axes in combinations(members, size)][::-1]
    tree = margin_tree(members, (2,) * 7, wanted)
    weights, counts = draws.normal(size=(2,) * 7), draws.integers(0, 1 << 40, (2,) * 7)
    flat, start = tree.flat(counts), 0
    for target, found in tree.margins(weights).items():
        absent = tuple(axis for axis, member in enumerate(members) if member not in target)
        assert np.allclose(found, weights.sum(axis=absent))
        assert np.array_equal(flat[start : start + found.size], counts.sum(axis=absent).reshape(-1))
        start += found.size
    assert start == flat.size and tree._binary is not None


def test_marginals_of_factors_are_marginals_of_their_product() -> None:
    """A factored distribution answers like the dense table it stands for."""
    factored = uniform(SIZES, dense=False)
    draws = np.random.default_rng(3)
    for pair in ((0, 2), (1, 3)):
        factored, place = factored.join(pair)
        weights = draws.exponential(size=factored.components[place].table.shape)
        factored = factored.with_table(place, weights / weights.sum())
    dense, _ = factored.join(range(4))
    wanted = [(), (0,), (0, 1), (0, 2, 3), (0, 1, 2, 3)]
    for target, found in factored.marginals(wanted).items():
        assert np.allclose(found, dense.marginals([target])[target])


@pytest.mark.slow
def test_a_fit_converges_to_the_optimum() -> None:
    """Mirror descent reaches the value that a general solver finds, with and without a prior; weights by variance."""
    draws = np.random.default_rng(4)
    observations = [
        Observation((0,), draws.normal(30, 9, 3), 2.0),
        Observation((0, 2), draws.normal(8, 9, (3, 4)), 7.0),
        Observation((1, 3), np.array(55.0), 3.0, np.array([[1.0, 0.0], [0.0, 1.0]])),
    ]
    for strength in (0.0, 5.0):

        def value(logits: np.ndarray, strength: float = strength) -> float:
            weights = np.exp(logits - logits.max()).reshape(SIZES)
            weights /= weights.sum()
            tree = margin_tree((0, 1, 2, 3), SIZES, [one.attributes for one in observations])
            found = tree.margins(weights)
            misfit = sum(
                float(((90 * one.predict(found[one.attributes]) - one.value) ** 2).sum()) / (2 * one.variance)
                for one in observations
            )
            return misfit + strength * float((weights * np.log(np.maximum(weights, 1e-300) * 48)).sum())

        best = minimize(value, np.zeros(48), method="L-BFGS-B", options={"maxiter": 2000, "maxfun": 10**6}).fun
        for cliques in (((0, 1, 2, 3),), ((0, 2), (1, 3))):
            tree = junction_tree(cliques)
            fitted = fit(
                tree, SIZES, observations, 90.0, steps=3000, strength=strength, tolerance=1e-12, start={}, prior={}
            )
            parts = tuple(Component(clique, table) for clique, table in zip(cliques, fitted.tables, strict=True))
            joined, place = Distribution(SIZES, parts).join(range(4))
            found = joined.components[place].table
            assert value(np.log(np.maximum(found, 1e-300)).reshape(-1)) <= best * (1 + 1e-4)


def test_whole_marginals_beat_chance() -> None:
    """Fitting chosen marginals approaches the table: the better, the less noise. The average is a distribution."""
    pool = Pool(SIZES, workloads()["marginals"], (Family((0,), (3,)),), whole=True)
    errors = []
    for amount, noise in ((Fraction(100), 0.1), (Fraction(1), 40.0)):
        schedule = Schedule(False, amount, 1, 6, Fraction(1, 10), first=1, first_share=Fraction(1, 10))
        found = synthesise(pool, schedule, Method(), SeededOracle(pool, table(), 1, noise)).distribution
        exact = SeededOracle(pool, table(), 1, 0.0).exact[:-4]
        marginals = found.marginals([family.attributes for family in pool.workload])
        answers = np.concatenate([family.answers(marginals[family.attributes]) for family in pool.workload])
        errors.append(float(np.abs(answers - exact / table().sum()).sum()))
    assert errors[0] < 0.02 < errors[1]
    average = synthesise(pool, schedule, Method(averages=True), SeededOracle(pool, table(), 1)).distribution
    assert average.components[0].table.shape == SIZES
    assert float(average.components[0].table.sum()) == pytest.approx(1)


def test_many_attributes_are_factored() -> None:
    """40 attributes of 10 values, all pairs: no table grows beyond its bound, and pairs that were asked are right."""
    sizes = (10,) * 40
    pairs = tuple(combinations(range(40), 2))
    pool = Pool(sizes, tuple(Family(pair, (10, 10)) for pair in pairs), (), whole=True)
    exact = {pair: np.full((10, 10), 10) for pair in pairs}
    exact[3, 17] = 100 * np.eye(10, dtype=np.int64)
    oracle = SeededOracle.__new__(SeededOracle)
    oracle.pool, oracle.noise, oracle.left = pool, 0.5, Fraction(1)
    oracle.exact = np.concatenate([*(exact[pair].reshape(-1) for pair in pairs), [1000]])
    oracle.draws = np.random.default_rng(7)
    schedule = Schedule(False, Fraction(1), 1, 5, Fraction(1, 10))
    found = synthesise(pool, schedule, Method(), oracle)
    assert max(component.table.size for component in found.distribution.components) <= 1 << 24
    assert pairs[found.chosen[0]] == (3, 17)
    assert np.abs(1000 * found.distribution.marginals([(3, 17)])[3, 17] - exact[3, 17]).max() < 3


@pytest.mark.parametrize(("noise", "least", "most"), [(1.0, 0.0, 0.35), (1e4, 0.99, 1.01)])
def test_an_annealed_fit_begins_near_its_answer(noise: float, least: float, most: float) -> None:
    """Before a step of the fit, a clear answer lies within a third of its distance. A drowned one moves nothing."""
    counts = np.array([[90.0, 60.0, 30.0, 20.0], [40.0, 50.0, 60.0, 50.0], [20.0, 30.0, 60.0, 90.0]])
    newest = Observation((0, 2), counts, noise**2)
    start = _step_towards(newest, State(uniform(SIZES, dense=False), {}, {}, 600.0))[0, 2].reshape(3, 4)
    begun = 600 * np.exp(start) / np.exp(start).sum()
    left = float(np.abs(begun - counts).sum() / np.abs(50 - counts).sum())
    assert least <= left <= most


def test_a_cell_far_below_its_answer_is_not_raised_beyond_it() -> None:
    """A clear answer that puts all records into one cell of twelve is met before a step of the fit: Newton's step
    in the logarithm would raise that cell by a factor of e^11."""
    counts = np.full((3, 4), 1.0)
    counts[1, 2] = 589.0
    start = _step_towards(Observation((0, 2), counts, 0.01), State(uniform(SIZES, dense=False), {}, {}, 600.0))
    begun = 50 * np.exp(start[0, 2].reshape(3, 4))
    assert begun[1, 2] == pytest.approx(589, rel=0.01)
    assert begun.max() == begun[1, 2] and begun[0, 0] < 5


@pytest.mark.parametrize(("rounds", "anneals"), [(12, True), (8, True), (12, False)])
def test_which_candidates_are_estimated_anew(rounds: int, anneals: bool) -> None:
    """Between every eighth answer: candidates with a column of the last question, and newly allowed ones. After an
    eighth answer, and where rounds do not anneal: all. The rest keep the values of the choice before."""
    sets = [one for order in (1, 2, 3) for one in combinations(range(6), order)]
    families = tuple(Family(one, (2,) * len(one)) for one in sets)
    pool = Pool((2,) * 6, families, (), True)
    asked = np.array([*(one != (2, 4) for one in sets), False])
    known = asked & np.array([*(one != (4, 5) for one in sets), False])
    last = Observation((0, 1, 3), np.zeros((2, 2, 2)), 1.0)
    seen = (Observation((0, 2), np.zeros((2, 2)), 1.0),) * (rounds - 1) + (last,)
    kept = Estimates(np.full(int(pool.starts[-1]), -1.0), known)
    state = State(uniform(pool.sizes, dense=False), {}, {}, 80.0, seen, kept)
    schedule = Schedule(False, Fraction(1), 1, 5, Fraction(1, 10))
    found = _estimates(Run(pool, schedule, Method(anneals=anneals), SeededOracle.__new__(SeededOracle)), state, asked)
    assert found.known is asked
    for number, one in enumerate(sets):
        values = found.values[pool.starts[number] : pool.starts[number + 1]]
        anew = rounds == 8 or not anneals or not {0, 1, 3}.isdisjoint(one) or one == (4, 5)
        if asked[number]:
            assert (values == (80 / len(values) if anew else -1)).all(), one
