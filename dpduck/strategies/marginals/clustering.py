"""Strategy C: unions of clusters of marginals, with uniform or optimal noise (C+).

The clustering is greedy (Ding, Winslett, Han, Li 2011), with the error of the datacubes paper as its cost. Each cluster
measures one marginal, the union A of its members, with n_A cells. A cell of member B sums n_A/n_B cells of A, with the
weight w_B. So with g clusters of equal noise the cost is

    g^p * sum over clusters of (sum of w_B) n_A,    p = 2 (Laplace), p = 1 (Gaussian).

The search starts from one cluster per marginal and merges the pair that raises the sum least, until one cluster is
left. The cheapest clustering on the way wins. (Ding et al. stop at the first merge that raises the cost.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.marginals.planners import parameters_of
from dpduck.strategies.marginals.weights import distinct_marginals
from dpduck.strategies.measurements import Parameters
from dpduck.strategies.plan import Plan, PlanningProblem
from dpduck.strategies.variance import direct_sources, workload_variances
from dpduck.values.arrays import FloatArray


def plan_clustering(problem: PlanningProblem, budgets: str = "optimal") -> Plan:
    """Plans strategy C (budgets 'uniform'), or C+ with noise by the clusters' recovery weights if that is better."""
    workload, noise = problem.workload, problem.noise
    marginals, weights = distinct_marginals(workload)
    cells = np.array([np.prod([float(workload.sizes[i]) for i in marginal]) for marginal in marginals])
    power = 2 if noise is NoiseKind.LAPLACE else 1
    weight_of: dict[tuple[int, ...], float] = {}
    for union, members in cluster(workload.sizes, marginals, weights / cells, power):
        summed = float((weights / cells)[list(members)].sum()) * float(np.prod([workload.sizes[i] for i in union]))
        weight_of[union] = weight_of.get(union, 0.0) + summed
    unions = tuple(weight_of)
    plan = _plan(problem, unions, parameters_of(problem, None, len(unions)))
    if budgets == "uniform":
        return plan
    summed_weights = np.fromiter(weight_of.values(), np.float64)
    weighted = _plan(problem, unions, parameters_of(problem, summed_weights, len(unions)))
    best = min(weighted, plan, key=lambda candidate: candidate.total_variance)
    return replace(best, strategy="C+")


def _plan(problem: PlanningProblem, unions: tuple[tuple[int, ...], ...], parameters: Parameters) -> Plan:
    measurements = problem.tables(unions, parameters)
    if problem.consistency == "l2":
        variances = workload_variances(problem.lattice, measurements, problem.noise)
    else:
        _, variances = direct_sources(problem.workload, measurements, problem.noise)
    return problem.plan(
        "C", measurements, variances, f"measures {len(unions)} union{'s'[: len(unions) > 1]} of marginals"
    )


MOST_MARGINALS = 2000
"""Largest number of marginals that are clustered. The search holds a square matrix of all pairs."""


def cluster(
    sizes: Sequence[int], marginals: Sequence[tuple[int, ...]], weights: FloatArray, power: int
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Returns clusters of marginals from a greedy search, as (attributes of the union, positions of the members).

    weights: those of a marginal's cells. power: p in the cost, (number of clusters)^p times the summed weighted cells.

    >>> cluster((2, 2, 9), [(0,), (1,), (2,)], np.ones(3), 2)
    (((0, 1), (0, 1)), ((2,), (2,)))
    """
    held = np.zeros((len(marginals), len(sizes)))
    for position, marginal in enumerate(marginals):
        held[position, list(marginal)] = 1.0
    merges, sums = _merge_all(np.log(np.asarray(sizes, dtype=np.float64)), held, np.asarray(weights, dtype=np.float64))
    left = np.arange(len(marginals), 0, -1, dtype=np.float64)
    best = int(np.argmin(power * np.log(left) + np.log(sums)))
    members: dict[int, list[int]] = {position: [position] for position in range(len(marginals))}
    for target, gone in merges[:best]:
        members[target] += members.pop(gone)
    return tuple(
        (tuple(sorted(set().union(*(marginals[position] for position in group)))), tuple(sorted(group)))
        for group in members.values()
    )


def _merge_all(logs: FloatArray, held: FloatArray, weights: FloatArray) -> tuple[list[tuple[int, int]], FloatArray]:
    """Returns all greedy merges in order, as (kept cluster, merged cluster), and the cost before each and at the end.

    held: 1 where a marginal has an attribute. Costs are without the factor g^p (see above). A merge updates one row of
    a matrix of union sizes, so the search takes a second, where the paper's takes hours.
    """
    held, weights = held.copy(), weights.copy()
    log_cells = held @ logs
    raised = np.full((len(weights), len(weights)), np.inf)
    for row in range(len(weights) - 1):
        raised[row, row + 1 :] = _raise(logs, held, weights, log_cells, row)[row + 1 :]
    best = raised.argmin(axis=1)
    least = raised[np.arange(len(weights)), best]
    alive = np.ones(len(weights), dtype=np.bool_)
    merges: list[tuple[int, int]] = []
    sums = [float(weights @ np.exp(log_cells))]
    for _ in range(len(weights) - 1):
        target = int(least.argmin())
        gone = int(best[target])
        merges.append((target, gone))
        sums.append(sums[-1] + float(least[target]))
        held[target] = np.maximum(held[target], held[gone])
        weights[target] += weights[gone]
        log_cells[target] = held[target] @ logs
        alive[gone] = False
        raised[gone], raised[:, gone], least[gone] = np.inf, np.inf, np.inf
        renewed = np.where(alive, _raise(logs, held, weights, log_cells, target), np.inf)
        raised[target, target + 1 :] = renewed[target + 1 :]
        raised[:target, target] = renewed[:target]
        stale = np.flatnonzero(alive & ((best == gone) | (best == target) | (np.arange(len(best)) == target)))
        best[stale] = raised[stale].argmin(axis=1)
        least[stale] = raised[stale, best[stale]]
        nearer = alive[:target] & (raised[:target, target] < least[:target])
        best[:target][nearer] = target
        least[:target][nearer] = raised[:target, target][nearer]
    return merges, np.array(sums)


def _raise(logs: FloatArray, held: FloatArray, weights: FloatArray, log_cells: FloatArray, row: int) -> FloatArray:
    union = log_cells + log_cells[row] - held @ (logs * held[row])
    grown: FloatArray = (
        (weights + weights[row]) * np.exp(union) - weights * np.exp(log_cells) - weights[row] * np.exp(log_cells[row])
    )
    return grown
