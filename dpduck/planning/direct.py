"""Which measured table answers each marginal where there is no least squares, and with what variance."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from dpduck.planning.marginal_variance import direct_variance
from dpduck.planning.plan import Measurement
from dpduck.trusted.noise import NoiseKind, noise_variance
from dpduck.workload.marginals import MarginalWorkload


def direct_sources(
    workload: MarginalWorkload, measurements: Sequence[Measurement], noise: NoiseKind
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """For each marginal: its own measurement, else the containing one of least variance; and a cell's variance.

    Only for measurements of marginals. A marginal inside none of them has no source: an error of the planner.
    """
    tables = [measurement.query.attributes for measurement in measurements]
    variances = [noise_variance(noise, measurement.spread) for measurement in measurements]
    own = {members: number for number, members in enumerate(tables)}
    holders = [frozenset(members) for members in tables]
    sources, predicted = [], []
    for marginal in workload.marginals:
        best, least = own.get(marginal, -1), inf
        if best >= 0:
            least = variances[best]
        else:
            for number, holder in enumerate(holders):
                if holder.issuperset(marginal):
                    here = direct_variance(workload.sizes, tables[number], marginal, variances[number])
                    best, least = (number, here) if here < least else (best, least)
        if best < 0:
            raise ValueError(f"no measured table contains the marginal {marginal}")
        sources.append(best)
        predicted.append(least)
    return tuple(sources), tuple(predicted)
