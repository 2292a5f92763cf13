"""Plans an analyst's own strategy: integer rows over all cells, with a budget for each row and least squares over all.

The paper's program (1)-(3) finds the best budgets for a given recovery, and least squares the best recovery for given
budgets. In turns, both lower the total variance until a joint optimum. Budgets are then rounded to integer multiples of
the rows. Privacy is accounted for these integers, so rounding costs a little accuracy and no privacy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from time import monotonic

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.algebra.cells import CellWorkload
from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.kernel.queries.operators import KroneckerQuery, MatrixFactor
from dpduck.strategies.budgets import safe_parameters
from dpduck.strategies.convex_budgets import convex_budgets
from dpduck.strategies.measurements import Measurement
from dpduck.strategies.ranges.groups import greedy_groups
from dpduck.strategies.ranges.hierarchy import LARGEST_DENSE
from dpduck.strategies.ranges.least_squares import solve_least_squares
from dpduck.strategies.ranges.normal_matrix import cholesky_factor
from dpduck.strategies.ranges.product import LARGEST_NORM_BITS, TIE, norm_of
from dpduck.strategies.threads import one_thread
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import Refusal

NULL = 1e-10
"""Singular values below this part of the largest count as 0."""

MISSED = 1e-7
"""The rows determine a query if the query's part outside their row space is shorter than this."""

SINGULAR = 1e-13
"""A triangular matrix counts as singular if its smallest diagonal entry is below this part of the largest."""

MOST_GROUPS = 64

GAP = 1e-6
"""The convex program stops at this relative distance from its optimum, in each turn."""

POLISHES = 300

GAIN = 1e-5
"""The turns end with the first turn that gains less than this part of the total variance."""

TURNS = 500

STARTS = 16
SPREAD = 2.0
LEAST_PLACE = 1e-3
"""Least place of a normal quantile. Logarithms of uneven starts are such quantiles, at multiples of a root modulo 1."""

ROUNDED = 1e-3
"""Budgets become the smallest integers that raise the total variance by less than this part."""

FEWEST_BITS = 3
MOST_BITS = 20
"""Most bits of the largest norm of a column of integers. Noise is drawn at scales of up to 2^40."""


@dataclass(frozen=True, eq=False)
class OwnStrategy:
    """Measurements of an analyst's strategy (integer rows in `blocks`), and the predicted variance of every answer."""

    workload: CellWorkload
    noise: NoiseKind
    blocks: tuple[IntegerArray, ...]
    measurements: tuple[Measurement, ...]
    noise_variances: tuple[float, ...]
    variances: tuple[FloatArray, ...]
    note: str = ""

    @property
    def total_variance(self) -> float:
        pairs = zip(self.workload.weights, self.variances, strict=True)
        return sum(weight * float(variances.sum()) for weight, variances in pairs)

    def recover(self, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
        answers = [np.asarray(rows, dtype=np.float64) for rows in noisy]
        return self.workload.answers(solve_least_squares(self.blocks, self.noise_variances, answers))


@dataclass(frozen=True, eq=False)
class StrategyRows:
    """Nonzero rows of a strategy, and the same rows in coordinates of their row space, with full column rank.

    entries: shape (rows, cells). basis: of the row space, shape (cells, rank). inside: entries times basis.
    gram: the workload's Gram matrix in these coordinates. norm: 1 for Laplace, 2 for Gaussian noise.
    """

    entries: IntegerArray
    basis: FloatArray
    inside: FloatArray
    gram: FloatArray
    norm: int

    @property
    def costs(self) -> FloatArray:
        """Returns the cost of each row in each column at a budget of 1: |entry| (Laplace) or its square (Gaussian)."""
        return np.abs(self.entries).astype(np.float64) ** self.norm

    def precisions(self, budgets: FloatArray) -> FloatArray:
        """Returns 1/variance of each row's noise from its budget eta: eta^2 / 2 for Laplace, eta for Gaussian noise."""
        return budgets**2 / 2 if self.norm == 1 else budgets

    def covariance(self, precisions: FloatArray) -> FloatArray | None:
        """Returns the covariance of least squares, or None if the covariance is singular."""
        rank = self.inside.shape[1]
        factor = cholesky_factor(self.inside.T @ (self.inside * precisions[:, None]))
        if factor is not None:
            inverse: FloatArray = scipy.linalg.cho_solve(factor, np.eye(rank))
            return inverse
        _, upper = np.linalg.qr(self.inside * np.sqrt(precisions)[:, None])
        sizes = np.abs(upper.diagonal())
        if len(upper) < rank or sizes.min() <= SINGULAR * sizes.max():
            return None
        root = scipy.linalg.solve_triangular(upper, np.eye(rank))
        square: FloatArray = root @ root.T
        return square

    def total(self, precisions: FloatArray) -> float:
        covariance = self.covariance(precisions)
        return np.inf if covariance is None else float((self.gram * covariance).sum())

    def weights(self, precisions: FloatArray) -> tuple[float, FloatArray] | None:
        covariance = self.covariance(precisions)
        if covariance is None:
            return None
        half = self.inside @ covariance
        summed = precisions**2 * ((half @ self.gram) * half).sum(axis=1)
        return float((self.gram * covariance).sum()), summed


def plan_own(
    workload: CellWorkload,
    entries: NDArray[np.int64],
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    budgets: str = "optimal",
    seconds: float = 2.0,
    bits: int = LARGEST_NORM_BITS,
) -> OwnStrategy:
    """Returns the plan with the least total variance for the rows `entries`, shape (rows, cells).

    budgets: 'optimal', or 'uniform' for equal noise on every row. bits: the most bits of a column's norm. Refuses rows
    that leave answers undetermined, and names up to three such answers.
    """
    if entries.ndim != 2 or entries.shape[1] != workload.cells or not entries.any():
        raise Refusal(f"the strategy's matrix must have {workload.cells} columns and an entry that is not 0")
    if workload.cells > LARGEST_DENSE:
        raise Refusal(
            f"a strategy over {workload.cells} cells", accepted=f"at most {LARGEST_DENSE} cells for strategy_table"
        )
    with one_thread():
        deadline = monotonic() + seconds
        nonzero = entries[entries.any(axis=1)]
        basis = _row_space(workload, nonzero)
        gram = basis.T @ workload.gram @ basis

        def of(matrix: IntegerArray) -> StrategyRows:
            return StrategyRows(matrix, basis, matrix @ basis, gram, norm_of(noise))

        equal = _build_plan(workload, of(nonzero), [nonzero], np.ones(1), noise, amount, unit_bound)
        if budgets == "uniform":
            return equal
        reduced = nonzero // np.gcd.reduce(nonzero, axis=1)[:, None]
        plans = [equal]
        for blocks, parameters in _candidates(of(reduced), min(bits, MOST_BITS), deadline):
            plans.append(_build_plan(workload, of(np.vstack(blocks)), blocks, parameters, noise, amount, unit_bound))
    least = min(plan.total_variance for plan in plans)
    chosen = next(plan for plan in plans if plan.total_variance <= least * (1 + TIE))
    part = chosen.total_variance / equal.total_variance
    return chosen if chosen is equal else replace(chosen, note=f"{part:.3g} of the variance of equal budgets")


def _row_space(workload: CellWorkload, entries: IntegerArray) -> FloatArray:
    """Returns an orthonormal basis of the row space, shape (cells, rank). Refuses rows that leave an answer open."""
    if cholesky_factor((entries.T @ entries.astype(np.float64)).astype(np.float64)) is not None:
        return np.eye(entries.shape[1])
    _, singular, rows = np.linalg.svd(entries.astype(np.float64), full_matrices=len(entries) < entries.shape[1])
    rank = int((singular > NULL * singular.max()).sum())
    if rank == entries.shape[1]:
        return np.eye(rank)
    names: list[str] = []
    missed = 0
    for marginal, outside in zip(workload.sets, workload.answers(rows[rank:].T), strict=True):
        places = np.argwhere((outside**2).sum(axis=-1) > MISSED**2)
        missed += len(places)
        names += [_answer_name(workload, marginal, place) for place in places[: 3 - len(names)].tolist()]
    if missed:
        raise Refusal(
            f"the strategy's rows do not determine {missed} of the {workload.queries} intervals: "
            f"{', '.join(names)}{', ..' if missed > len(names) else ''}",
            accepted="a matrix whose rows span every interval asked",
        )
    return rows[:rank].T


def _answer_name(workload: CellWorkload, marginal: Sequence[int], place: Sequence[int]) -> str:
    """Names an answer by its interval along each attribute. An attribute outside the set has all its values."""
    spans = [(0, size) for size in workload.sizes]
    for attribute, query in zip(marginal, place, strict=True):
        queries = workload.attributes[attribute]
        spans[attribute] = int(queries.starts[query]), int(queries.stops[query])
    return " x ".join(f"[{low}, {high})" for low, high in spans)


def _candidates(rows: StrategyRows, bits: int, deadline: float) -> Iterator[tuple[list[IntegerArray], FloatArray]]:
    """Yields blocks of rows with equal noise, and noise parameters at a budget of 1: first by groups, then by rows."""
    groups = greedy_groups(rows.entries)
    if 1 < len(groups) <= MOST_GROUPS:
        members = np.empty(len(rows.entries), dtype=np.intp)
        for number, group in enumerate(groups):
            members[list(group.rows)] = number
        norms = np.array([[group.norm**rows.norm] for group in groups], dtype=np.float64)
        _, budgets = joint_budgets(rows, norms, members, deadline)
        yield [rows.entries[list(group.rows)] for group in groups], 1 / budgets
    if len(groups) == 1:
        return  # no two rows share a column
    total, budgets = joint_budgets(rows, rows.costs, np.arange(len(rows.entries)), deadline)
    scaled = scale_rows(rows, budgets, total, bits)
    if scaled is not None:
        yield [scaled], np.ones(1)


def joint_budgets(
    rows: StrategyRows, costs: FloatArray, members: NDArray[np.intp], deadline: float
) -> tuple[float, FloatArray]:
    """Searches for the least total variance at a budget of 1. Returns the variance and each group's budget.

    costs: of each group, in each column. members: the group of each row. Least squares and the convex program take
    turns, from unweighted least squares as in the paper. Under Gaussian noise the variance is convex in the budgets, so
    the optimum is global. Under Laplace noise there are several optima, and more starts follow while there is time.
    """
    unweighted = rows.weights(np.ones(len(members)))
    start = np.ones(len(members)) if unweighted is None else unweighted[1]
    best = _in_turns(rows, costs, members, _best_budgets(rows, costs, members, start), deadline)
    steps = np.sqrt(np.arange(STARTS) + 2.5)[:, None] * np.arange(1.0, len(costs) + 1)
    uneven = np.exp(SPREAD * scipy.special.ndtri(np.clip(steps % 1, LEAST_PLACE, 1 - LEAST_PLACE)))
    for begin in [np.ones(len(costs)), *uneven] if rows.norm == 1 else ():
        if monotonic() > deadline:
            break
        candidate = _in_turns(rows, costs, members, begin / (costs.T @ begin).max(), deadline)
        best = min(best, candidate, key=lambda pair: pair[0])
    return best


def _best_budgets(rows: StrategyRows, costs: FloatArray, members: NDArray[np.intp], weights: FloatArray) -> FloatArray:
    summed = np.bincount(members, weights).astype(np.float64)
    return convex_budgets(costs, summed, 3 - rows.norm, GAP, POLISHES)


def _in_turns(
    rows: StrategyRows, costs: FloatArray, members: NDArray[np.intp], begin: FloatArray, deadline: float
) -> tuple[float, FloatArray]:
    best: tuple[float, FloatArray] = (np.inf, begin)
    budgets = begin
    for _ in range(TURNS):
        result = rows.weights(rows.precisions(budgets[members]))
        if result is None:
            break
        total, weights = result
        gained = total < best[0] * (1 - GAIN)
        best = min(best, (total, budgets), key=lambda pair: pair[0])
        if not gained or (monotonic() > deadline):
            break
        budgets = _best_budgets(rows, costs, members, weights)
    return best


def scale_rows(rows: StrategyRows, budgets: FloatArray, total: float, bits: int) -> IntegerArray | None:
    """Returns each row times an integer, nearly proportional to the budget (Laplace) or to its root (Gaussian).

    total: the variance at the exact budgets. bits: the most bits of a column's norm. Returns None if all such integers
    cost too much or leave answers undetermined.
    """
    parts = budgets if rows.norm == 1 else np.sqrt(budgets)
    best: tuple[float, IntegerArray | None] = (np.inf, None)
    for size in range(FEWEST_BITS, bits + 1):
        times = np.rint(np.ldexp(parts, size)).astype(np.int64)
        cost = int((rows.costs.astype(np.int64) * (times**rows.norm)[:, None]).sum(axis=0).max())
        if cost == 0 or cost > 1 << (size if rows.norm == 1 else 2 * size) + 1:
            continue
        squares = times.astype(np.float64) ** 2
        variance = rows.total(squares / (2.0 * cost * cost if rows.norm == 1 else cost))
        if variance < best[0]:
            nonzero = times > 0
            lowest = times[nonzero] // np.gcd.reduce(times[nonzero])
            best = (variance, rows.entries[nonzero] * lowest[:, None])
        if best[0] <= total * (1 + ROUNDED):
            break
    return best[1]


def _build_plan(
    workload: CellWorkload,
    rows: StrategyRows,
    blocks: Sequence[IntegerArray],
    units: FloatArray,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
) -> OwnStrategy:
    """Returns the plan with exact parameters that cost at most `amount`. units: ratios of the parameters."""
    factors = [MatrixFactor(np.ascontiguousarray(block)) for block in blocks]
    norms = [factor.norms[rows.norm - 1] for factor in factors]
    allowed = float(amount) * rows.norm  # epsilon, or 2 rho
    wanted = units * (float((np.array(norms, dtype=np.float64) / units).sum()) / allowed)
    parameters = safe_parameters(noise, wanted, norms, amount, unit_bound)
    measurements = tuple(
        Measurement(KroneckerQuery((0,), (factor,)), parameter)
        for factor, parameter in zip(factors, parameters, strict=True)
    )
    spread = tuple(noise_variance(noise, parameter) for parameter in parameters)
    sizes = [len(block) for block in blocks]
    inner = rows.covariance(1 / np.repeat(spread, sizes))
    if inner is None:  # least squares needs rows with hardly any budget, so this plan must not be chosen
        variances = tuple(np.full(shape, np.inf) for shape in workload.shapes)
    else:
        variances = workload.variances(rows.basis @ inner @ rows.basis.T)
    return OwnStrategy(workload, noise, tuple(blocks), measurements, spread, variances)
