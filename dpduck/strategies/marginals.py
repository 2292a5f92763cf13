"""Q: each marginal of the workload is measured itself; its cells are one group with C = 1 (paper, section 3.2)."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.workload.marginals import MarginalWorkload


def measured_marginals(workload: MarginalWorkload) -> tuple[tuple[tuple[int, ...], ...], NDArray[np.float64]]:
    """The distinct marginals and, for each, s_r: the summed weight of its cells."""
    weights: dict[tuple[int, ...], float] = {}
    for marginal, weight in zip(workload.marginals, workload.weights, strict=True):
        cells = prod([workload.sizes[attribute] for attribute in marginal])
        weights[marginal] = weights.get(marginal, 0.0) + weight * cells
    return tuple(weights), np.fromiter(weights.values(), dtype=np.float64, count=len(weights))
