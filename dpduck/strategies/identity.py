"""I: the one table over every attribute that the workload uses; all its marginals are sums of it."""

from __future__ import annotations

from dpduck.workload.marginals import MarginalWorkload


def base_attributes(workload: MarginalWorkload) -> tuple[int, ...]:
    """Every attribute that some marginal uses, increasing.

    >>> base_attributes(MarginalWorkload((2, 3, 4), ((2,), (0, 2)), (1.0, 1.0)))
    (0, 2)
    """
    return tuple(sorted(set().union(*workload.marginals)))
