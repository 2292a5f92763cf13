"""Estimated seconds of a plan's noise and recovery, from public sizes alone: a guide for dp_explain."""

from __future__ import annotations

from math import prod

from dpduck.strategies.plan import Plan

SECONDS_PER_DRAW = 1e-7
"""Time of one exact draw of noise and its addition, measured on one core from 2020."""

SECONDS_PER_STEP = 5e-9
"""Time of one cell along one axis in recovery."""

SECONDS_PER_QUERY = 5e-5
"""Time of every measurement and every grouping set, whatever its size."""

SAMPLE = 1000
"""Number of measurements that are looked at, evenly spread, if there are more than twice as many."""


def estimate_seconds(plan: Plan) -> float:
    """Estimates the seconds to draw one aggregate's noise and to recover its answers."""
    stride = max(1, len(plan.measurements) // SAMPLE)
    sampled = plan.measurements[::stride]
    measured = stride * sum(prod(measurement.query.shape) for measurement in sampled)
    axes = 1 + max((len(marginal) for marginal in plan.workload.marginals), default=0)
    fixed = SECONDS_PER_QUERY * (len(plan.measurements) + len(plan.workload.marginals))
    return fixed + SECONDS_PER_DRAW * measured + SECONDS_PER_STEP * axes * (measured + plan.workload.cells)
