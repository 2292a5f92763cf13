"""Plans of the strategy O: a few views found by search, usually larger than what is asked, under pure epsilon."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from time import monotonic

from dpduck.algebra.lattice import Lattice, MarginalWorkload, close_downward
from dpduck.planning.budgets import safe_parameters
from dpduck.planning.plan import FamilyMeasurements, Plan
from dpduck.planning.variance import workload_variances
from dpduck.planning.views.designs import sets_of
from dpduck.planning.views.objective import ViewObjective
from dpduck.planning.views.search import FoundViews, search_views
from dpduck.trusted.noise.law import NoiseKind
from dpduck.trusted.operators import IdentityFactor
from dpduck.values.errors import Refusal

REMEMBERED_MARGINALS = 64
"""Views of workloads of at most so many marginals are searched once and remembered: they depend on nothing else."""


class _CutShort(Exception):
    """A search that the clock may have ended: what it found is used, and not remembered."""

    def __init__(self, found: FoundViews) -> None:
        self.found = found


def _searched(workload: MarginalWorkload, closed: Lattice, seconds: float) -> FoundViews:
    if len(workload.marginals) > REMEMBERED_MARGINALS:
        return search_views(ViewObjective.of(workload, closed), workload, seconds)
    try:
        return _whole_search(workload, seconds)
    except _CutShort as cut:
        return cut.found


@lru_cache(maxsize=128)
def _whole_search(workload: MarginalWorkload, seconds: float) -> FoundViews:
    begin = monotonic()
    closed = close_downward(workload.marginals, workload.sizes)
    found = search_views(ViewObjective.of(workload, closed), workload, seconds)
    if monotonic() - begin >= seconds:
        raise _CutShort(found)
    return found


def plan_optimised_views(
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    planning_seconds: float = 2.0,
    *,
    lattice: Lattice | None = None,
) -> Plan:
    """O: views and budgets that minimise the total variance after least squares, as far as a search finds them.

    The views depend on the workload and the seconds allowed, not on the amount: the search takes the discrete noise
    at its continuous limit 2/eta^2. lattice: the workload's closure where the caller has it already.
    """
    if noise is not NoiseKind.LAPLACE:
        raise Refusal("strategy = 'O' is for pure epsilon budgets", accepted="strategy = 'R' or 'auto'")
    closed = lattice or close_downward(workload.marginals, workload.sizes)
    found = _searched(workload, closed, planning_seconds)
    sets = sets_of(closed, found.views)
    parameters = safe_parameters(noise, 1 / (found.budgets * float(amount)), [1] * len(sets), amount, unit_bound)
    measurements = FamilyMeasurements(sets, [IdentityFactor(size) for size in workload.sizes], parameters)
    return Plan(
        strategy="O",
        noise=noise,
        workload=workload,
        measurements=measurements,
        variances=workload_variances(closed, measurements, noise),
        note=f"measures {len(sets)} views: {found.origin}; searched for at most {planning_seconds:g} s",
    )
