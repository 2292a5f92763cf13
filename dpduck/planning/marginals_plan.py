"""Plans of the strategy Q: every marginal of the workload is measured, with uniform or optimal noise (Q+)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpduck.planning.budgets import optimal_spreads, safe_spreads, uniform_spreads
from dpduck.planning.marginal_variance import workload_variances
from dpduck.planning.measurement_list import FamilyMeasurements
from dpduck.planning.plan import Plan
from dpduck.strategies.marginals import measured_marginals
from dpduck.trusted.noise import NoiseKind, noise_variance
from dpduck.trusted.operators import IdentityFactor
from dpduck.workload.lattice import Lattice, close_downward
from dpduck.workload.marginals import MarginalWorkload


def plan_marginals(
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    budgets: str = "optimal",
    consistency: str = "l2",
    *,
    lattice: Lattice | None = None,
) -> Plan:
    """Q (uniform) or Q+ (optimal budgets, DESIGN 4.2), recovered as `consistency` says.

    lattice: the workload's closure where the caller has it already.
    """
    sets, weights = measured_marginals(workload)
    norms = [1] * len(sets)
    if budgets == "optimal":
        wanted = optimal_spreads(noise, weights, np.ones(len(sets)), float(amount))
        spreads = safe_spreads(noise, wanted, norms, amount, unit_bound)
    else:
        spreads = uniform_spreads(noise, norms, amount, unit_bound)
    measurements = FamilyMeasurements(sets, [IdentityFactor(size) for size in workload.sizes], spreads)
    if consistency == "l2":
        closed = lattice or close_downward(workload.marginals, workload.sizes)
        variances = workload_variances(closed, measurements, noise)
    else:
        by_set = dict(zip(sets, (noise_variance(noise, spread) for spread in spreads), strict=True))
        variances = tuple(by_set[marginal] for marginal in workload.marginals)
    return Plan(
        strategy="Q+" if budgets == "optimal" else "Q",
        noise=noise,
        workload=workload,
        measurements=measurements,
        variances=variances,
        consistency=consistency,
        note=f"measures each of the {len(sets)} marginals",
    )
