"""How long noise and recovery of a plan would take, from public sizes alone: a guide for dp_explain."""

from __future__ import annotations

from math import prod

from dpduck.planning.plan import Plan

SECONDS_PER_DRAW = 1e-7
"""One exact draw of noise and its addition, measured on one core of 2020's making."""

SECONDS_PER_STEP = 5e-9
"""One cell along one axis in recovery."""

SECONDS_PER_QUERY = 5e-5
"""What every measurement and every grouping set costs whatever its size."""

SAMPLE = 1000
"""Of more measurements than twice this, about so many are looked at, evenly spread."""


def estimated_seconds(plan: Plan) -> float:
    """Seconds to draw one aggregate's noise and to recover its answers."""
    stride = max(1, len(plan.measurements) // SAMPLE)
    sampled = plan.measurements[::stride]
    measured = stride * sum(prod(measurement.query.shape) for measurement in sampled)
    axes = 1 + max((len(marginal) for marginal in plan.workload.marginals), default=0)
    fixed = SECONDS_PER_QUERY * (len(plan.measurements) + len(plan.workload.marginals))
    return fixed + SECONDS_PER_DRAW * measured + SECONDS_PER_STEP * axes * (measured + plan.workload.cells)
