"""Grouping sets with ranges as one plan: exact charges, no bias, dense variances, sets that agree, known figures."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import chain, combinations
from math import isqrt

import numpy as np
import pytest

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.algebra.ranges import RangeWorkload, all_ranges, identity, prefixes
from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.kernel.queries.tables import require_weights
from dpduck.strategies.plan import Plan
from dpduck.strategies.ranges.product import RangeProduct
from dpduck.strategies.ranges.sets import plan_range_sets
from dpduck.strategies.ranges.strategy import matrix_of
from dpduck.strategies.ranges.together import Residuals
from dpduck.strategies.recovery.recover import recover
from tests.strategies.test_range_plan import exact_cost

LAPLACE, GAUSSIAN = NoiseKind.LAPLACE, NoiseKind.GAUSSIAN
MAKERS = {"R": all_ranges, "P": prefixes, "I": identity}


def some_sets(attributes: int, orders: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(chain.from_iterable(combinations(range(attributes), order) for order in orders))


def plans_of(
    kinds: str,
    sizes: tuple[int, ...],
    sets: tuple[tuple[int, ...], ...],
    noise: NoiseKind,
    strategy: str = "auto",
    budgets: str = "optimal",
    weights: tuple[float, ...] = (),
    amount: Fraction | None = None,
) -> tuple[Plan, ...]:
    attributes = [MAKERS[kind](size) for kind, size in zip(kinds, sizes, strict=True)]
    workload = MarginalWorkload(sizes, sets, weights or (1.0,) * len(sets))
    amount = amount or (Fraction(1, 2) if noise is GAUSSIAN else Fraction(1))
    return plan_range_sets(attributes, workload, noise, amount, 1, strategy, budgets)


def joint(plans: tuple[Plan, ...], kind: type) -> Plan:
    return next(plan for plan in plans if len(plan.parts) == 1 and isinstance(plan.parts[0], kind))


def dense(factors: list[np.ndarray]) -> np.ndarray:
    return reduce(np.kron, factors, np.ones((1, 1)))


def measured_matrix(plan: Plan, sizes: tuple[int, ...]) -> np.ndarray:
    """All that is measured, over all cells."""
    blocks = []
    for measurement in plan.measurements:
        own = dict(zip(measurement.query.attributes, measurement.query.factors, strict=True))
        parts = [matrix_of(own[one]) if one in own else np.ones((1, size)) for one, size in enumerate(sizes)]
        blocks.append(dense([part.astype(np.float64) for part in parts]))
    return np.concatenate(blocks)


def asked_matrices(kinds: str, sizes: tuple[int, ...], sets: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    own: list[RangeWorkload] = [MAKERS[kind](size) for kind, size in zip(kinds, sizes, strict=True)]
    return [
        dense(
            [
                one.matrix().astype(np.float64) if place in members else np.ones((1, one.size))
                for place, one in enumerate(own)
            ]
        )
        for members in sets
    ]


def estimators(plan: Plan) -> list[np.ndarray]:
    """Recovery from each measured number alone: a linear map, by set."""
    shapes = [measurement.query.shape for measurement in plan.measurements]
    columns: list[list[np.ndarray]] = []
    for place, shape in enumerate(shapes):
        for cell in np.ndindex(*shape):
            noisy = [np.zeros(other, dtype=np.int64) for other in shapes]
            noisy[place][cell] = 1
            columns.append([one.ravel() for one in recover(plan, noisy)])
    return [np.stack([column[number] for column in columns], axis=1) for number in range(len(columns[0]))]


CASES = [
    ("RI", (6, 3), ((0,), (0, 1)), {}),
    ("RI", (5, 4), ((), (0,), (1,), (0, 1)), {}),
    ("PR", (4, 5), ((0,), (1,), (0, 1)), {"weights": (1.0, 5.0, 2.0)}),
    ("RII", (4, 3, 2), ((0, 1), (0, 2), (1, 2)), {}),
    ("PII", (4, 1, 2), ((0, 1, 2), (0,), (2,)), {}),
    ("RI", (6, 3), ((0,), (0, 1)), {"strategy": "hierarchy", "budgets": "uniform"}),
    ("IP", (7, 3), ((1,), (0, 1)), {"strategy": "haar"}),
]


@pytest.mark.parametrize(("kinds", "sizes", "sets", "options"), CASES)
@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
def test_joint_plans_are_unbiased_and_err_as_predicted(
    kinds: str, sizes: tuple[int, ...], sets: tuple[tuple[int, ...], ...], options: dict, noise: NoiseKind
) -> None:
    """Dense matrices confirm: recovery reproduces exact answers, and the noise has the predicted variance."""
    whole = Fraction(1, 200)
    plans = plans_of(kinds, sizes, sets, noise, amount=whole, **options)
    kinds_of_parts = {type(plan.parts[0]) for plan in plans if len(plan.parts) == 1}
    assert RangeProduct in kinds_of_parts and (Residuals in kinds_of_parts) == (noise is GAUSSIAN)
    for plan in plans:
        assert exact_cost(tuple(plan.measurements), noise, 1) <= whole
        variances = np.concatenate(
            [
                np.full(int(np.prod(one.query.shape, dtype=int)), noise_variance(noise, one.parameter))
                for one in plan.measurements
            ]
        )
        matrix = measured_matrix(plan, sizes)
        for asked, estimator, predicted in zip(
            asked_matrices(kinds, sizes, sets), estimators(plan), plan.cell_variances, strict=True
        ):
            np.testing.assert_allclose(estimator @ matrix, asked, atol=1e-7)
            found = (estimator**2) @ variances
            np.testing.assert_allclose(found, predicted.ravel(), rtol=1e-3)
            assert np.all(found <= predicted.ravel() * (1 + 1e-9))
        assert plan.worst_stderr == max(float(predicted.max()) for predicted in plan.cell_variances) ** 0.5
        assert plan.cells == sum(predicted.size for predicted in plan.cell_variances)


def test_grouping_sets_of_joint_plans_agree() -> None:
    """A sum of the finer set's answers is the answer of the coarser, whatever the noise was."""
    for kind in (RangeProduct, Residuals):
        plan = joint(plans_of("RI", (6, 3), ((0,), (0, 1), (1,), ()), GAUSSIAN), kind)
        generator = np.random.default_rng(3)
        noisy = [generator.integers(-99, 99, one.query.shape) for one in plan.measurements]
        ranges, both, groups, total = recover(plan, noisy)
        np.testing.assert_allclose(both.sum(axis=1), ranges, atol=1e-6)
        np.testing.assert_allclose(both[5], groups, atol=1e-6)  # the fifth range is all values
        np.testing.assert_allclose(groups.sum(), total, atol=1e-6)


def test_the_figures_of_ranges_inside_cubes() -> None:
    """The finer set alone answers ranges of 16 bins, with and without a group of three, with 9,792 at epsilon = 1.

    Each set by itself has 23,638. Under rho, cubes gain, and pairs of columns by residuals.
    """

    def figures(kinds: str, sizes: tuple[int, ...], sets: tuple[tuple[int, ...], ...], noise: NoiseKind) -> list[float]:
        plans = plans_of(kinds, sizes, sets, noise)
        apart = [plan.total_variance for plan in plans if len(plan.parts) > 1]
        return [plans[0].total_variance, min(apart)]

    assert [round(one) for one in figures("RI", (16, 3), ((0,), (0, 1)), LAPLACE)] == [9792, 23638]
    for kinds, sizes, orders, gain in (("RII", (16, 6, 4), (0, 1, 2, 3), 0.6), ("RRRRR", (10,) * 5, (2,), 0.65)):
        together, apart = figures(kinds, sizes, some_sets(len(sizes), orders), GAUSSIAN)
        assert together < gain * apart


@pytest.mark.parametrize(
    ("strategy", "budgets", "figure"),
    [
        ("hierarchy_2", "optimal", 1632.0),
        ("hierarchy_2", "uniform", 6576.0),
        ("haar", "optimal", 4752.24),
        ("haar", "uniform", 5140.6),
    ],
)
def test_uniform_budgets_are_those_of_all_levels(strategy: str, budgets: str, figure: float) -> None:
    amount = Fraction(1, 1000)
    plan = plans_of("R", (16,), ((0,),), LAPLACE, strategy, budgets, amount=amount)[0]
    assert plan.total_variance * float(amount) ** 2 == pytest.approx(figure, rel=1e-4)


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("strategy", ["auto", "p_identity", "haar", "hierarchy", "gaussian_optimum"])
@pytest.mark.parametrize("budgets", ["optimal", "uniform"])
@pytest.mark.parametrize(
    ("kinds", "sizes", "sets"),
    [
        ("RI", (8, 4), ((0, 1), (0,))),
        ("RI", (8, 4), ((0,), (1,))),
        ("RII", (8, 4, 3), ((0, 1, 2), ())),
        ("RIII", (8, 4, 3, 5), some_sets(4, (0, 1, 2, 3, 4))),
        ("RP", (2, 2), ((0,), (1,))),
    ],
)
def test_all_queries_leave_room_for_rows(
    kinds: str, sizes: tuple[int, ...], sets: tuple[tuple[int, ...], ...], noise: NoiseKind, strategy: str, budgets: str
) -> None:
    """Trusted code refuses columns longer than 2^22, after the charge. No candidate has such a column."""
    if (strategy == "p_identity") != (noise is LAPLACE) and strategy in ("p_identity", "gaussian_optimum"):
        return
    for plan in plans_of(kinds, sizes, sets, noise, strategy, budgets, amount=Fraction(1, 3)):
        assert max(isqrt(measurement.query.norms[1]) for measurement in plan.measurements) < 1 << 22
        for measurement in plan.measurements:
            require_weights(measurement.query)


@pytest.mark.parametrize(
    ("kinds", "sizes", "sets", "weights", "strategy", "noise"),
    [
        ("RP", (2, 2), ((0, 1), (1,)), (1e-6, 1e6), "p_identity", LAPLACE),
        ("RP", (4, 3), ((0, 1), ()), (1e-6, 1e6), "p_identity", LAPLACE),
        ("RPRR", (1, 4, 7, 1), ((2, 3), (1, 3), (0, 2, 3)), (5.0, 1e-6, 1e6), "haar", GAUSSIAN),
        ("RP", (4, 3), ((), ()), (1.0, 1.0), "auto", GAUSSIAN),
    ],
)
def test_uneven_weights_leave_no_bias(
    kinds: str,
    sizes: tuple[int, ...],
    sets: tuple[tuple[int, ...], ...],
    weights: tuple[float, ...],
    strategy: str,
    noise: NoiseKind,
) -> None:
    """However little a set counts, its answers are right: of all candidates."""
    for plan in plans_of(kinds, sizes, sets, noise, strategy, weights=weights, amount=Fraction(1, 200)):
        matrix = measured_matrix(plan, sizes)
        for asked, estimator in zip(asked_matrices(kinds, sizes, sets), estimators(plan), strict=True):
            np.testing.assert_allclose(estimator @ matrix, asked, atol=1e-4)
