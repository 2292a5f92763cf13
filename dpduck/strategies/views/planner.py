"""Plans of strategy O: a few measured views from a search, usually larger than the asked marginals (pure epsilon)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from dpduck.algebra.lattice import Lattice, close_downward
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.budgets import safe_parameters
from dpduck.strategies.marginals.clustering import MOST_MARGINALS, plan_clustering
from dpduck.strategies.plan import Plan, PlanningProblem
from dpduck.strategies.variance import workload_variances
from dpduck.strategies.views.annealing import sets_of
from dpduck.strategies.views.objective import ViewObjective
from dpduck.strategies.views.search import FoundViews, search_views
from dpduck.values.errors import Refusal

REMEMBERED_MARGINALS = 64
"""Most marginals of a workload for which the search's result is cached, by the workload and the seconds."""


def _find_views(workload: MarginalWorkload, closed: Lattice, seconds: float) -> FoundViews:
    if len(workload.marginals) > REMEMBERED_MARGINALS:
        return search_views(ViewObjective.of(workload, closed), workload, seconds)
    return _search_with_cache(workload, seconds)


@lru_cache(maxsize=128)
def _search_with_cache(workload: MarginalWorkload, seconds: float) -> FoundViews:
    closed = close_downward(workload.marginals, workload.sizes)
    return search_views(ViewObjective.of(workload, closed), workload, seconds)


def plan_optimised_views(problem: PlanningProblem, _: str = "optimal") -> Plan:
    """Plans strategy O: the views and budgets of least total variance in a search, or strategy C where that is better.

    The views depend on the workload and the allowed seconds, not on the amount, since the search takes the variance
    2/eta^2 of continuous noise.
    """
    workload, noise, amount, closed = problem.workload, problem.noise, problem.amount, problem.lattice
    if noise is not NoiseKind.LAPLACE:
        raise Refusal("strategy = 'O' is for pure epsilon budgets", accepted="strategy = 'R' or 'auto'")
    best = _find_views(workload, closed, problem.planning_seconds)
    sets = sets_of(closed, best.views)
    parameters = safe_parameters(noise, 1 / (best.budgets * float(amount)), [1] * len(sets), amount, problem.unit_bound)
    measurements = problem.tables(sets, parameters)
    note = f"measures {len(sets)} views: {best.origin}; searched for at most {problem.planning_seconds:g} s"
    plan = problem.plan("O", measurements, workload_variances(closed, measurements, noise), note)
    if len(workload.marginals) > MOST_MARGINALS or problem.consistency != "l2":
        return plan
    rival = plan_clustering(problem)
    return replace(rival, strategy="O") if rival.total_variance < plan.total_variance else plan
