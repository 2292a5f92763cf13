"""From a range plan's noisy integers to the answers of its queries, as the strategy's structure allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from dpduck.arrays import FloatArray, IntegerArray
from dpduck.planning.product_plan import ProductPlan
from dpduck.planning.range_plan import RangePlan
from dpduck.planning.range_sets_plan import RangeSetsPlan
from dpduck.recovery.least_squares import solve_least_squares
from dpduck.recovery.tree_recovery import recover_haar, recover_hierarchy
from dpduck.strategies.haar import Haar
from dpduck.strategies.hierarchy import Hierarchy
from dpduck.strategies.range_strategy import RangeStrategy


def recover_ranges(plan: RangePlan, noisy: Sequence[IntegerArray]) -> FloatArray:
    """One answer per query, consistent with each other, from one array per measurement."""
    return plan.groups.buckets.answers(recover_buckets(plan.groups, plan.noise_variances, noisy))


def recover_buckets(
    strategy: RangeStrategy, variances: Sequence[float] | FloatArray, noisy: Sequence[IntegerArray | FloatArray]
) -> FloatArray:
    """Least-squares counts of the buckets; leading axis of `noisy` the rows of a group, further axes are kept."""
    if isinstance(strategy.structure, Hierarchy):
        precisions = np.zeros(strategy.structure.levels)
        precisions[list(strategy.groups)] = 1 / np.asarray(variances)
        return recover_hierarchy(strategy.structure, precisions, dict(zip(strategy.groups, noisy, strict=True)))
    if isinstance(strategy.structure, Haar):
        return recover_haar(strategy.structure, dict(zip(strategy.groups, noisy, strict=True)))
    return solve_least_squares(strategy.bucket_matrices, variances, [np.asarray(z, dtype=np.float64) for z in noisy])


def recover_product(plan: ProductPlan, noisy: Sequence[IntegerArray]) -> FloatArray:
    """Answers of a product of range workloads, one axis per attribute: each axis is recovered by its own strategy.

    Least squares for a Kronecker product is the Kronecker product of the least squares, as variances multiply.
    """
    pieces: Mapping[tuple[int, ...], FloatArray] = {
        key: np.asarray(answers, dtype=np.float64) for key, answers in zip(plan.choices, noisy, strict=True)
    }
    for axis, (strategy, spreads) in enumerate(zip(plan.strategies, plan.unit_variances, strict=True)):
        later = [range(len(other.factors)) for other in plan.strategies[axis + 1 :]]
        recovered = {}
        for rest in product(*later):
            rows = [np.moveaxis(pieces[(group, *rest)], axis, 0) for group in range(len(strategy.factors))]
            answers = strategy.buckets.answers(recover_buckets(strategy, spreads, rows))
            recovered[rest] = np.moveaxis(answers, 0, axis)
        pieces = recovered
    return pieces[()]


def recover_sets(plan: RangeSetsPlan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Answers of every grouping set, one axis per attribute, from the arrays of all parts in order."""
    answers, first = [], 0
    for part in plan.parts:
        own = noisy[first : first + len(part.measurements)]
        first += len(own)
        found = recover_ranges(part, own) if isinstance(part, RangePlan) else recover_product(part, own)
        answers.append(found)
    return tuple(answers)
