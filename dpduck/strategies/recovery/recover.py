"""Recovery of a plan's answers from noisy integers: one rule for each structure of measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.algebra.lattice import close_downward
from dpduck.kernel.queries.operators import Factor, HadamardFactor, IdentityFactor
from dpduck.strategies.plan import Measurement, Plan, code_count, factor_kinds
from dpduck.strategies.ranges.hierarchy import LARGEST_DENSE, Haar, Hierarchy, subtree_variances
from dpduck.strategies.ranges.own import OwnPlan
from dpduck.strategies.ranges.plan import ProductPlan, RangePlan
from dpduck.strategies.ranges.sets import RangeSetsPlan
from dpduck.strategies.ranges.strategy import RangeStrategy, cholesky_factor
from dpduck.strategies.ranges.together import JointProduct, Residuals
from dpduck.strategies.recovery.consistent import (
    integer_margins,
    integer_table,
    nearest_consistent,
    nonnegative_consistent,
    nonnegative_table,
)
from dpduck.strategies.variance import BALANCED, adjoint, direct_sources, margins, recover_least_squares, spread_evenly
from dpduck.values.arrays import FloatArray, IntegerArray

# consistency = 'none': each answer from the measurements of the paper's initial recovery, without least squares.


def recover_directly(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Returns marginals as sums of one noisy table, by the plain inverse transform (Fourier), or from residuals."""
    factors = factor_kinds(plan)
    if factors <= {IdentityFactor}:
        return _from_tables(plan, noisy)
    if factors <= {HadamardFactor}:
        return _inverse_transform(plan, noisy)
    return recover_least_squares(plan.workload, plan.measurements, plan.noise, noisy)


def _from_tables(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Returns every answer, summed from the table that predicts it best."""
    sources, _ = direct_sources(plan.workload, plan.measurements, plan.noise)
    wanted: dict[int, set[tuple[int, ...]]] = {}
    for source, marginal in zip(sources, plan.workload.marginals, strict=True):
        wanted.setdefault(source, set()).add(marginal)
    sums = {
        source: margins(noisy[source], plan.measurements[source].query.attributes, marginals)
        for source, marginals in wanted.items()
    }
    return tuple(
        np.array(sums[source][marginal], dtype=np.float64)
        for source, marginal in zip(sources, plan.workload.marginals, strict=True)
    )


def _inverse_transform(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Sums chi(cell) f / m_B over coefficients with support in B, for each cell of B (the paper, Theorem 4.1 (2))."""
    lattice = close_downward(plan.workload.marginals, plan.workload.sizes)
    sums = [np.zeros(tuple(plan.workload.sizes[attribute] for attribute in members)) for members in lattice.sets]
    for measurement, answers in zip(plan.measurements, noisy, strict=True):
        number = lattice.numbers[measurement.query.attributes]
        sums[number] = _back(measurement, answers)
    spread_evenly(lattice, sums, averaged=False)
    codes = lattice.products([code_count(size) for size in lattice.sizes])
    return tuple(sums[number] / codes[number] for number in lattice.family.tolist())


def _back(measurement: Measurement, answers: IntegerArray) -> FloatArray:
    """Computes F' z on the valid codes of the measurement's own attributes."""
    back: FloatArray = np.asarray(answers, dtype=np.float64)
    factors: Sequence[Factor] = measurement.query.factors
    for axis, factor in enumerate(factors):
        back = adjoint(factor, back, axis)
    return back


Recovery = Callable[[Plan, Sequence[IntegerArray]], tuple[FloatArray, ...]]


def recover(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Returns one array per marginal, with an axis per attribute, from one array of query.shape per measurement."""
    for accepts, answer in RECOVERIES:
        if accepts(plan):
            return answer(plan, noisy)
    raise TypeError(f"no recovery for the strategy {plan.strategy}")


def recover_linearly(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Recovers likewise, but by least squares if the plan has a linear program, because its errors have no formula."""
    return _least_squares(plan, noisy) if solves_program(plan) else recover(plan, noisy)


def _is_balanced(plan: Plan) -> bool:
    """Tells whether every factor's Gram matrix is alpha I + beta J."""
    return factor_kinds(plan) <= BALANCED


def _direct(plan: Plan) -> bool:
    """Tells whether each answer comes from its own measurements, without least squares."""
    return plan.consistency == "none" and _is_balanced(plan)


def solves_program(plan: Plan) -> bool:
    """Tells whether a linear program makes answers of separate tables consistent."""
    several = len(plan.measurements) > 1
    return plan.consistency in {"l1", "linf"} and several and factor_kinds(plan) <= {IdentityFactor}


def _least_squares(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    return recover_least_squares(plan.workload, plan.measurements, plan.noise, noisy)


def _nearest(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    deviations = [variance**0.5 for variance in plan.variances]
    direct, start = recover_directly(plan, noisy), _least_squares(plan, noisy)
    return nearest_consistent(plan.workload, direct, deviations, start, plan.consistency)


RECOVERIES: tuple[tuple[Callable[[Plan], bool], Recovery], ...] = (
    (_direct, recover_directly),
    (solves_program, _nearest),
    (_is_balanced, _least_squares),
)
"""Condition and recovery of each rule. The first rule that accepts a plan recovers it."""


# The options nonnegative and integer, applied after recovery. Both bias sums of many cells, and are never silent.


def apply_options(
    plan: Plan, answers: Sequence[FloatArray], *, nonnegative: bool, integer: bool
) -> tuple[FloatArray, ...]:
    """Applies the options. Tables stay consistent if they were, rounded tables if one table has all attributes.

    Totals are kept: a table's sum stays the same (0 if it was negative), rounded under `integer`.
    """
    tables = tuple(answers)
    if nonnegative and plan.consistency == "none":
        tables = tuple(nonnegative_table(table) for table in tables)
    elif nonnegative:
        tables = nonnegative_consistent(plan.workload, tables, plan.variances)
    if not integer:
        return tables
    if plan.consistency == "none":
        return tuple(integer_table(table) for table in tables)
    return integer_margins(plan.workload, tables)


# From a range plan's noisy integers to the answers of its queries, as the strategy's structure allows.


def recover_ranges(plan: RangePlan, noisy: Sequence[IntegerArray]) -> FloatArray:
    """Returns one answer per query, consistent with each other, from one array per measurement."""
    return plan.groups.buckets.answers(recover_buckets(plan.groups, plan.noise_variances, noisy))


def recover_buckets(
    strategy: RangeStrategy, variances: Sequence[float] | FloatArray, noisy: Sequence[IntegerArray | FloatArray]
) -> FloatArray:
    """Estimates the buckets' counts by least squares. The leading axis of `noisy` has a group's rows. Others remain."""
    if isinstance(strategy.structure, Hierarchy):
        precisions = np.zeros(strategy.structure.levels)
        precisions[list(strategy.groups)] = 1 / np.asarray(variances)
        return recover_hierarchy(strategy.structure, precisions, dict(zip(strategy.groups, noisy, strict=True)))
    if isinstance(strategy.structure, Haar):
        return recover_haar(strategy.structure, dict(zip(strategy.groups, noisy, strict=True)))
    return solve_least_squares(strategy.bucket_matrices, variances, [np.asarray(z, dtype=np.float64) for z in noisy])


def recover_product(plan: ProductPlan, noisy: Sequence[IntegerArray]) -> FloatArray:
    """Returns answers of a product of range workloads, one axis per attribute. Each axis has its own strategy.

    Least squares for a Kronecker product is the Kronecker product of the least squares, as variances multiply.
    """
    pieces: Mapping[tuple[int, ...], FloatArray] = {
        key: np.asarray(answers, dtype=np.float64) for key, answers in zip(plan.choices, noisy, strict=True)
    }
    for axis, (strategy, parameters) in enumerate(zip(plan.strategies, plan.unit_variances, strict=True)):
        later = [range(len(other.factors)) for other in plan.strategies[axis + 1 :]]
        recovered = {}
        for rest in product(*later):
            rows = [np.moveaxis(pieces[(group, *rest)], axis, 0) for group in range(len(strategy.factors))]
            answers = strategy.buckets.answers(recover_buckets(strategy, parameters, rows))
            recovered[rest] = np.moveaxis(answers, 0, axis)
        pieces = recovered
    return pieces[()]


def recover_sets(plan: RangeSetsPlan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Returns the answers of every grouping set, one axis per attribute, from the arrays of all parts in order."""
    answers, first = list[FloatArray](), 0
    for part in plan.parts:
        own = noisy[first : first + len(part.measurements)]
        first += len(own)
        if isinstance(part, OwnPlan):
            answers += recover_own(part, own)
        elif isinstance(part, Residuals):
            answers += part.answers(own)
        elif isinstance(part, JointProduct):
            whole = recover_product(part.product, own)
            answers += [whole[part.places(marginal)] for marginal in part.workload.marginals]
        else:
            answers.append(recover_ranges(part, own) if isinstance(part, RangePlan) else recover_product(part, own))
    return tuple(answers)


def recover_own(plan: OwnPlan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Returns the answers of every grouping set of an analyst's own strategy, one axis per attribute."""
    answers = [np.asarray(rows, dtype=np.float64) for rows in noisy]
    return plan.workload.answers(solve_least_squares(plan.blocks, plan.noise_variances, answers))


# Noisy levels of a tree, or noisy Haar rows, to values: two passes, exact least squares, linear time.

Noisy = Mapping[int, NDArray[np.int64] | FloatArray]


def recover_hierarchy(tree: Hierarchy, precisions: FloatArray, noisy: Noisy) -> FloatArray:
    """Solves weighted least squares from the measured levels, for n values. Further axes are solved side by side.

    precisions: 1/variance per level, 0 for a level that is not measured. noisy: answers by level, nodes first. See Hay
    et al. (2010), Theorem 3, with a_v and s_v of subtree_variances in place of the uniform weights:
    upwards y_v = a_v (w_l z_v + (sum of y_c)/s_v), downwards x_c = y_c + (a_c/s_v)(x_v - sum of y_c).
    """
    subtrees = subtree_variances(tree, precisions)
    last = tree.levels - 1
    upward: list[FloatArray] = [np.asarray(noisy[last], dtype=np.float64)]
    extra = (1,) * (upward[0].ndim - 1)
    sums: list[FloatArray] = []
    for level in range(last - 1, -1, -1):
        summed = np.add.reduceat(upward[0], tree.first_child[level][:-1], axis=0)
        best, below = (array[level].reshape(-1, *extra) for array in (subtrees.best, subtrees.from_children))
        own = precisions[level] * noisy[level] if precisions[level] > 0 else 0.0
        sums.insert(0, summed)
        upward.insert(0, best * (own + summed / below))
    values = upward[0]
    for level in range(last):
        parent = np.repeat(np.arange(len(values)), np.diff(tree.first_child[level]))
        shares = subtrees.best[level + 1] / subtrees.from_children[level][parent]
        values = upward[level + 1] + shares.reshape(-1, *extra) * (values - sums[level])[parent]
    return values


def recover_haar(haar: Haar, noisy: Noisy) -> FloatArray:
    """Returns the inverse transform: at every split left = (total + difference)/2, right = (total - difference)/2.

    noisy: answers by group, rows first. A group that was not measured counts as 0, and no query needs it.
    """
    shape = next(iter(noisy.values())).shape[1:]
    values = np.asarray(noisy.get(0, np.zeros((1, *shape))), dtype=np.float64)
    for level, split in enumerate(haar.split):
        first = haar.tree.first_child[level]
        parent = np.repeat(np.arange(len(values)), np.diff(first))
        difference = np.asarray(noisy.get(level + 1, np.zeros((len(split), *shape))), dtype=np.float64)
        below = values[parent]
        left = first[split]
        below[left] = (values[split] + difference) / 2
        below[left + 1] = (values[split] - difference) / 2
        values = below
    return values


# Generalised least squares for any strategy: a Cholesky factor of A'WA, or LSMR if it is singular or too large.

Matrix: TypeAlias = "NDArray[np.int64] | FloatArray | scipy.sparse.csr_array"

TOLERANCE = 1e-12
"""LSMR stops if its residuals are this small relative to the data. Errors are far below the noise, which is 1 there."""


def solve_least_squares(
    matrices: Sequence[Matrix], variances: Sequence[float] | FloatArray, noisy: Sequence[FloatArray]
) -> FloatArray:
    """Computes argmin_x sum_k |A_k x - z_k|^2 / v_k, of least norm if it is not unique.

    matrices: A_k, shape (rows_k, n). variances: v_k. noisy: z_k, leading axis rows_k. The result has the leading axis
    n. Other axes remain.
    """
    if matrices[0].shape[1] <= LARGEST_DENSE:
        solved = _solve_by_cholesky(matrices, variances, noisy)
        if solved is not None:
            return solved
    return solve_sparse(matrices, variances, noisy)


def _solve_by_cholesky(
    matrices: Sequence[Matrix], variances: Sequence[float] | FloatArray, noisy: Sequence[FloatArray]
) -> FloatArray | None:
    """Solves the normal equations with one step of refinement. Returns None if they are singular."""
    size = matrices[0].shape[1]
    whitened = scipy.sparse.vstack(_whiten(matrices, variances), format="csr")
    answers = np.concatenate([z.reshape(len(z), -1) / v**0.5 for z, v in zip(noisy, variances, strict=True)])
    factor = cholesky_factor((whitened.T @ whitened).toarray())
    if factor is None:
        return None
    values = scipy.linalg.cho_solve(factor, whitened.T @ answers)
    values += scipy.linalg.cho_solve(factor, whitened.T @ (answers - whitened @ values))
    solved: FloatArray = values.reshape(size, *noisy[0].shape[1:])
    return solved


def solve_sparse(
    matrices: Sequence[Matrix], variances: Sequence[float] | FloatArray, noisy: Sequence[FloatArray]
) -> FloatArray:
    """Solves the same by LSMR (Fong, Saunders 2011) on the whitened matrix, for rank-deficient strategies, too."""
    whitened = scipy.sparse.vstack(_whiten(matrices, variances), format="csr")
    rows, size = whitened.shape
    answers = np.concatenate([z.reshape(len(z), -1) / v**0.5 for z, v in zip(noisy, variances, strict=True)])
    columns = []
    for answer in answers.T:
        solution = scipy.sparse.linalg.lsmr(
            whitened, answer, atol=TOLERANCE, btol=TOLERANCE, conlim=0.0, maxiter=4 * (rows + size)
        )
        columns.append(solution[0])
    solved: FloatArray = np.stack(columns, axis=1).reshape(size, *noisy[0].shape[1:])
    return solved


def _whiten(matrices: Sequence[Matrix], variances: Sequence[float] | FloatArray) -> list[scipy.sparse.csr_array]:
    """Returns each matrix divided by its noise's standard deviation."""
    return [
        scipy.sparse.csr_array(matrix).astype(np.float64) / variance**0.5
        for matrix, variance in zip(matrices, variances, strict=True)
    ]
