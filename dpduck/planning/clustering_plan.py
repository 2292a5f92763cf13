"""Plans of the clustering strategy C: the unions of greedy clusters, uniform or optimal noise (C+)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpduck.planning.budgets import optimal_spreads, safe_spreads, uniform_spreads
from dpduck.planning.direct import direct_sources
from dpduck.planning.marginal_variance import workload_variances
from dpduck.planning.measurement_list import FamilyMeasurements, Spreads
from dpduck.planning.plan import Plan
from dpduck.strategies.clustering import cluster
from dpduck.strategies.marginals import measured_marginals
from dpduck.trusted.noise import NoiseKind
from dpduck.trusted.operators import IdentityFactor
from dpduck.workload.lattice import Lattice, close_downward
from dpduck.workload.marginals import MarginalWorkload


def plan_clustering(
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    budgets: str = "optimal",
    consistency: str = "l2",
    *,
    lattice: Lattice | None = None,
) -> Plan:
    """C or C+: the same clusters, whose budgets are equal or optimal for their members' recovery weights.

    The closed form is optimal before least squares; where equal budgets are better after it, C+ takes those.
    """
    marginals, weights = measured_marginals(workload)
    cells = np.array([np.prod([float(workload.sizes[i]) for i in marginal]) for marginal in marginals])
    power = 2 if noise is NoiseKind.LAPLACE else 1
    weight_of: dict[tuple[int, ...], float] = {}
    for union, members in cluster(workload.sizes, marginals, weights / cells, power):
        summed = float((weights / cells)[list(members)].sum()) * float(np.prod([workload.sizes[i] for i in union]))
        weight_of[union] = weight_of.get(union, 0.0) + summed
    closed = (lattice or close_downward(workload.marginals, workload.sizes)) if consistency == "l2" else None
    norms = [1] * len(weight_of)
    equal = uniform_spreads(noise, norms, amount, unit_bound)
    plan = _plan(workload, noise, tuple(weight_of), equal, consistency, closed)
    if budgets == "uniform":
        return plan
    wanted = optimal_spreads(noise, np.fromiter(weight_of.values(), np.float64), np.ones(len(norms)), float(amount))
    spreads = safe_spreads(noise, wanted, norms, amount, unit_bound)
    weighted = _plan(workload, noise, tuple(weight_of), spreads, consistency, closed)
    best = min(weighted, plan, key=lambda candidate: candidate.total_variance)
    return replace(best, strategy="C+")


def _plan(
    workload: MarginalWorkload,
    noise: NoiseKind,
    unions: tuple[tuple[int, ...], ...],
    spreads: Spreads,
    consistency: str,
    lattice: Lattice | None,
) -> Plan:
    """The plan that measures these unions; least squares where there is a lattice."""
    measurements = FamilyMeasurements(unions, [IdentityFactor(size) for size in workload.sizes], spreads)
    if lattice is not None:
        variances = workload_variances(lattice, measurements, noise)
    else:
        _, variances = direct_sources(workload, measurements, noise)
    return Plan(
        strategy="C",
        noise=noise,
        workload=workload,
        measurements=measurements,
        variances=variances,
        consistency=consistency,
        note=f"measures {len(unions)} unions of marginals",
    )
