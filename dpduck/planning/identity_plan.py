"""Plans of the identity strategy: one table, one group, an exact simple rational for its noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpduck.planning.budgets import uniform_spread
from dpduck.planning.marginal_variance import direct_variance
from dpduck.planning.plan import Measurement, Plan, marginal_query
from dpduck.strategies.identity import base_attributes
from dpduck.trusted.noise import NoiseKind, noise_variance
from dpduck.workload.marginals import MarginalWorkload


def plan_identity(
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    budgets: str = "optimal",
    consistency: str = "l2",
) -> Plan:
    """I: the table over every attribute used, whose sums are consistent as they are, whatever `consistency` asks."""
    base = base_attributes(workload)
    spread = uniform_spread(noise, 1, amount, unit_bound)
    variance = noise_variance(noise, spread)
    cells = np.prod([workload.sizes[attribute] for attribute in base], dtype=object)
    return Plan(
        strategy="I",
        noise=noise,
        workload=workload,
        measurements=(Measurement(marginal_query(base, workload.sizes), spread),),
        variances=tuple(direct_variance(workload.sizes, base, asked, variance) for asked in workload.marginals),
        consistency=consistency,
        note=f"measures one table of {cells} cells",
    )
