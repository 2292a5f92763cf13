"""Plans of the residual basis R, the optimum of all Gaussian strategies for marginals (DESIGN 4.6)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpduck.errors import Refusal
from dpduck.planning.closure_plan import closure_measurements
from dpduck.planning.marginal_variance import cell_weights, workload_variances
from dpduck.planning.plan import Plan
from dpduck.strategies.residual import residual_weights
from dpduck.trusted.noise import NoiseKind
from dpduck.trusted.operators import CentredFactor
from dpduck.workload.lattice import Lattice, close_downward
from dpduck.workload.marginals import MarginalWorkload


def plan_residual(
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    budgets: str = "optimal",
    consistency: str = "l2",
    *,
    lattice: Lattice | None = None,
) -> Plan:
    """R; its components are measured apart, so its answers are consistent whatever `consistency` asks.

    budgets = 'uniform': the same sigma_A^2 for every set, which is what equal weights v_A = p_A give.
    """
    if noise is not NoiseKind.GAUSSIAN:
        raise Refusal("the residual basis needs Gaussian noise", accepted="a budget with delta, or strategy = 'auto'")
    closed = lattice or close_downward(workload.marginals, workload.sizes)
    sizes = np.asarray(closed.sizes, dtype=np.float64)
    if budgets == "optimal":
        weights = residual_weights(closed, cell_weights(closed, workload))
    else:  # sigma_A^2 = sqrt(p_A / v_A) * const is the same everywhere
        weights = closed.products((sizes - 1) / sizes) / closed.products(sizes) ** 2
    factors = [CentredFactor(size) for size in workload.sizes]
    measurements = closure_measurements(closed, factors, weights, noise, amount, unit_bound)
    return Plan(
        strategy="R" if budgets == "optimal" else "R uniform",
        noise=noise,
        workload=workload,
        measurements=measurements,
        variances=workload_variances(closed, measurements, noise),
        consistency=consistency,
        note=f"measures {len(measurements)} tables of residuals",
    )
