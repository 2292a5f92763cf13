"""Plans for numbers of distinct values: they do not add up over cells, so every grouping set is measured by itself."""

from __future__ import annotations

from fractions import Fraction

from dpduck.planning.budgets import uniform_spread
from dpduck.planning.plan import Measurement, Plan, marginal_query
from dpduck.trusted.noise import NoiseKind, noise_variance
from dpduck.workload.marginals import MarginalWorkload

DISTINCT = "distinct"


def plan_distinct(workload: MarginalWorkload, noise: NoiseKind, amount: Fraction, unit_bound: int) -> Plan:
    """A row adds at most one value to one cell of every grouping set, as it adds one to a count."""
    spread = uniform_spread(noise, len(workload.marginals), amount, unit_bound)
    return Plan(
        strategy=DISTINCT,
        noise=noise,
        workload=workload,
        measurements=tuple(
            Measurement(marginal_query(marginal, workload.sizes), spread) for marginal in workload.marginals
        ),
        variances=(noise_variance(noise, spread),) * len(workload.marginals),
        consistency="none",
        note="every grouping set is measured by itself",
    )
