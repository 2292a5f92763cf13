"""The only door: each answer is exact plus integer noise of the planned parameter, at the compiled price."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import combinations, product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.queries import marginals as module
from dpduck.kernel.queries.operators import CentredFactor, IdentityFactor, KroneckerQuery, MatrixFactor
from dpduck.strategies.measurements import Measurement
from dpduck.strategies.plan import Plan, marginal_query, noisy_queries
from dpduck.strategies.ranges.strategy import matrix_of
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge
from tests.kernel.doors import measure, price_of_plans

SILENT = Fraction(1, 10**6)  # noise of this scale is zero but with probability exp(-10^6)


class Seeded:
    """Entropy with a seed, for tests."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.bytes(count)


def plan_of(
    sizes: tuple[int, ...],
    queries: list[KroneckerQuery],
    noise: NoiseKind = NoiseKind.LAPLACE,
    parameters: list[Fraction] | None = None,
) -> Plan:
    chosen = parameters or [SILENT] * len(queries)
    measurements = tuple(Measurement(query, parameter) for query, parameter in zip(queries, chosen, strict=True))
    return Plan("test", noise, MarginalWorkload(sizes, ((),), (1.0,)), measurements, (1.0,))


def sparse(table: NDArray[np.int64], aggregates: int = 1, unit_bound: int = 1, repeat: bool = False) -> ExactCounts:
    """Returns the sparse counts of a dense table. `repeat` splits every cell in two."""
    flat = table.reshape(-1)
    cells = np.flatnonzero(flat)
    values = flat[cells]
    if repeat:
        cells, values = np.concatenate([cells, cells]), np.concatenate([values - 1, np.ones_like(values)])
    coordinates = tuple(codes.astype(np.int64) for codes in np.unravel_index(cells, table.shape))
    counts = np.stack([values * (number + 1) for number in range(aggregates)])
    return ExactCounts(coordinates, counts, table.shape, (unit_bound,) * len(counts))


FACTORS = (
    IdentityFactor,
    CentredFactor,
    lambda size: MatrixFactor(np.arange(-3, 2 * size - 3, dtype=np.int64).reshape(2, size)),
)


@st.composite
def queries_of(draw: st.DrawFn, sizes: tuple[int, ...]) -> KroneckerQuery:
    attributes = tuple(sorted(draw(st.sets(st.sampled_from(range(len(sizes)))))))
    return KroneckerQuery(attributes, tuple(draw(st.sampled_from(FACTORS))(sizes[a]) for a in attributes))


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], list[KroneckerQuery]]:
    sizes = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    return sizes, draw(st.lists(queries_of(sizes), min_size=1, max_size=6))


def dense_matrix(query: KroneckerQuery, sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """The oracle: the whole query as one matrix over the cells of the domain."""
    factors = dict(zip(query.attributes, query.factors, strict=True))
    parts = [
        matrix_of(factors[a]) if a in factors else np.ones((1, size), dtype=np.int64) for a, size in enumerate(sizes)
    ]
    return reduce(np.kron, parts, np.ones((1, 1), dtype=np.int64))


@settings(max_examples=150)
@given(case=cases(), seed=st.integers(0, 2**32), repeat=st.booleans(), small=st.booleans())
def test_answers_are_those_of_the_dense_matrix(
    case: tuple[tuple[int, ...], list[KroneckerQuery]], seed: int, repeat: bool, small: bool
) -> None:
    """With silent noise every answer is the dense matrix times the dense table, however marginals are added up."""
    sizes, queries = case
    table = np.random.default_rng(seed).integers(0, 3, sizes)
    counts = sparse(table, aggregates=3, repeat=repeat)
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(module, "LARGEST_DENSE", 1)
            patch.setattr(module, "LARGEST_SHARED", 6)
            patch.setattr(module, "OPEN_GROUPS", 2)
        answers = measure(counts, noisy_queries(plan_of(sizes, queries)), 2, 1, Seeded(0))
    for query, answer in zip(queries, answers, strict=True):
        assert answer.shape == query.shape
        assert answer.dtype == np.int64
        assert answer.reshape(-1).tolist() == (3 * dense_matrix(query, sizes) @ table.reshape(-1)).tolist()


def test_counts_beyond_floating_point() -> None:
    """Totals above 2^53 are exact: nothing passes through floating point."""
    large = 2**53 + 1
    table = np.array([[large, 0, 3], [0, large, 1]])
    plan = plan_of((2, 3), [KroneckerQuery((), ()), marginal_query((1,), (2, 3))])
    total, columns = measure(sparse(table), noisy_queries(plan), 0, 1, Seeded(0))
    assert int(total) == 2 * large + 4
    assert columns.tolist() == [large, large, 4]


@pytest.mark.parametrize("noise", list(NoiseKind))
def test_noise_has_the_planned_parameter(noise: NoiseKind) -> None:
    """The noise of each measurement has the planned variance. 2/3 or 3/2 of the scale would be noticed."""
    size = 40_000
    parameters = [Fraction(3), Fraction(20)] if noise is NoiseKind.LAPLACE else [Fraction(9), Fraction(400)]
    plan = plan_of((size,), [marginal_query((0,), (size,))] * 2, noise, parameters)
    answers = measure(sparse(np.full(size, 7)), noisy_queries(plan), 0, 1, Seeded(1))
    for answer, parameter in zip(answers, parameters, strict=True):
        deviations = answer - 7
        ratio = np.exp(-1 / float(parameter))
        variance = 2 * ratio / (1 - ratio) ** 2 if noise is NoiseKind.LAPLACE else float(parameter)
        assert abs(deviations.mean()) < 5 * (variance / size) ** 0.5
        # The standard error of the variance is at most sqrt(5 / size), which is 1.2 %; 2/3 and 3/2 are far away.
        assert 0.93 < deviations.var() / variance < 1.07
    assert not np.array_equal(answers[0], answers[1])


def test_noise_is_fresh_for_every_cell_and_call() -> None:
    """Two calls, and two cells of one call, draw from the entropy source anew."""
    plan = plan_of((1000,), [marginal_query((0,), (1000,))], parameters=[Fraction(5)])
    counts, entropy = sparse(np.ones(1000, dtype=np.int64)), Seeded(2)
    first, second = (measure(counts, noisy_queries(plan), 0, 1, entropy)[0] for _ in range(2))
    assert (first != second).mean() > 0.8
    assert (first[1:] != first[:-1]).mean() > 0.8


def test_weights_that_could_overflow_are_refused_before_looking() -> None:
    """The query alone decides the refusal, and counts are never read."""

    class Untouchable(ExactCounts):
        _exact_counts = property(lambda self: pytest.fail("looked"))

    counts = object.__new__(Untouchable)
    counts._sizes, counts._unit_bounds = (2,), (1,)
    query = KroneckerQuery((0,), (MatrixFactor(np.array([[1 << 22, 0]])),))
    with pytest.raises(InternalError, match="too large for 64-bit"):
        measure(counts, noisy_queries(plan_of((2,), [query])), 0, 1, Seeded(0))


def test_largest_allowed_weights_are_exact() -> None:
    """2^40 rows under the largest weights fit 64 bits, though sums on the way may wrap."""
    weight = (1 << 22) - 1
    query = KroneckerQuery((0,), (MatrixFactor(np.array([[weight, -weight], [-weight, 0]]) // 2),))
    (answer,) = measure(sparse(np.array([1 << 40, 0])), noisy_queries(plan_of((2,), [query])), 0, 1, Seeded(0))
    assert answer.tolist() == [(weight // 2) << 40, (-weight // 2) << 40]


def test_a_plan_for_other_counts_is_refused() -> None:
    """Counts over another domain than the plan's, or with another bound, also a smaller one, are refused."""
    plan = plan_of((2,), [marginal_query((0,), (2,))])
    table = np.array([1, 2])
    measure(sparse(table, unit_bound=2), noisy_queries(plan), 0, 2, Seeded(0))
    with pytest.raises(InternalError, match="disagree"):
        measure(sparse(table, unit_bound=3), noisy_queries(plan), 0, 2, Seeded(0))
    with pytest.raises(InternalError, match="disagree"):
        measure(sparse(table, unit_bound=1), noisy_queries(plan), 0, 2, Seeded(0))
    with pytest.raises(InternalError, match="disagree"):
        measure(sparse(np.array([1, 2, 3])), noisy_queries(plan), 0, 1, Seeded(0))


@settings(max_examples=150)
@given(case=cases(), unit_bound=st.integers(1, 4), noise=st.sampled_from(NoiseKind), data=st.data())
def test_price_is_never_below_the_true_price(
    case: tuple[tuple[int, ...], list[KroneckerQuery]], unit_bound: int, noise: NoiseKind, data: st.DataObject
) -> None:
    """In exact rationals no placing of up to m rows of a unit costs more on the dense matrices than the price."""
    sizes, queries = case
    amounts = st.fractions(Fraction(1, 50), 50)
    parameters = [data.draw(amounts) for _ in queries]
    plan = plan_of(sizes, queries, noise, parameters)
    charge = price_of_plans([plan], unit_bound)
    price = charge.epsilon if noise is NoiseKind.LAPLACE else charge.rho
    assert price is not None
    matrices = [dense_matrix(query, sizes).astype(object) for query in queries]
    cells = prod(sizes)
    worst = Fraction(0)
    places = data.draw(st.permutations(range(cells)))[:6]
    for rows in product(places, repeat=min(unit_bound, 2)):
        change = np.zeros(cells, dtype=object)
        for number in range(unit_bound):
            change[rows[number % len(rows)]] += 1
        moved = [matrix @ change for matrix in matrices]
        if noise is NoiseKind.LAPLACE:
            parts = [
                Fraction(int(np.abs(move).sum())) / parameter for move, parameter in zip(moved, parameters, strict=True)
            ]
        else:
            parts = [Fraction(int((move * move).sum())) / (2 * s) for move, s in zip(moved, parameters, strict=True)]
        worst = max(worst, sum(parts, Fraction(0)))
    assert price >= worst
    if len(queries) == 1 and cells <= 6:
        assert price == worst, "the price of one query is exact"


def test_price_adds_up_over_aggregates() -> None:
    """The noise of every aggregate is separate, and is paid for."""
    sizes = (3, 4)
    queries = [marginal_query((0,), sizes), KroneckerQuery((0, 1), (CentredFactor(3), CentredFactor(4)))]
    laplace = plan_of(sizes, queries, NoiseKind.LAPLACE, [Fraction(2), Fraction(24)])
    assert price_of_plans([laplace, laplace], 5).epsilon == 2 * 5 * (Fraction(1, 2) + 1)
    gaussian = plan_of(sizes, queries, NoiseKind.GAUSSIAN, [Fraction(2), Fraction(72)])
    assert price_of_plans([gaussian], 5).rho == 25 * (Fraction(1, 4) + Fraction(1, 2))
    assert price_of_plans([gaussian], 5).epsilon is None


def test_mixed_noise_is_paid_in_rho_and_no_noise_is_refused() -> None:
    """Laplace beside Gaussian noise has no epsilon, and each costs its rho. A noise parameter of 0 is refused."""
    sizes, query = (2,), marginal_query((0,), (2,))
    plans = [plan_of(sizes, [query], noise, [Fraction(1)]) for noise in NoiseKind]
    laplace = price_of_plans([plan for plan in plans if plan.noise is NoiseKind.LAPLACE], 1)
    assert price_of_plans(plans, 1) == Charge.zcdp(Fraction(1, 2) + laplace.rho) and laplace.epsilon == 1
    for parameter in (Fraction(0), Fraction(-1)):
        with pytest.raises(InternalError, match="without noise"):
            price_of_plans([plan_of(sizes, [query], parameters=[parameter])], 1)


def test_many_marginals_share_roll_ups() -> None:
    """The 56 three-way marginals of Adult's eight attributes, rolled up from one table, are the sums of its cells."""
    sizes = (9, 16, 7, 15, 6, 5, 2, 2)
    table = np.random.default_rng(0).integers(0, 20, sizes)
    threes = [marginal_query(attributes, sizes) for attributes in combinations(range(8), 3)]
    answers = measure(sparse(table), noisy_queries(plan_of(sizes, threes)), 0, 1, Seeded(0))
    for query, answer in zip(threes, answers, strict=True):
        others = tuple(a for a in range(8) if a not in query.attributes)
        assert np.array_equal(answer, table.sum(axis=others))
