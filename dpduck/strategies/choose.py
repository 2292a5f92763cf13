"""Choice of a strategy for marginals: every candidate is planned, and the smallest predicted error wins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from time import perf_counter

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.marginals.clustering import MOST_MARGINALS, plan_clustering
from dpduck.strategies.marginals.planners import SHARES, plan_fourier, plan_identity, plan_marginals, plan_residual
from dpduck.strategies.marginals.weights import base_attributes
from dpduck.strategies.plan import CONSISTENCIES, Plan, PlanningProblem
from dpduck.strategies.views.planner import plan_optimised_views
from dpduck.values.errors import Refusal

MOST_CELLS = 100_000_000

LARGEST_RESIDUAL = 1 << 44
"""Squared column norms of queries of strategy R stay below this, so that exact answers fit 64 bits."""

LARGEST_WEIGHTED = 1 << 30
"""Query weights times the contribution of a row stay below this, so that answers about 2^32 rows fit 64 bits."""

MOST_PROGRAM_CELLS = 25_000
"""With more released cells, the linear programs of consistency 'l1' and 'linf' take minutes."""

TIE = 1e-8
"""Predicted errors this close (relative) are equal. The candidate that is earlier in CANDIDATES wins."""


@dataclass(frozen=True)
class Strategy:
    """Strategy that may be chosen, with a planner, which takes the problem and 'optimal' or 'uniform' budgets.

    names: values of the option `strategy`, the short name first. says: the measurements in words. applies: whether the
    strategy can serve a problem. uniform: whether 'auto' also tries the strategy with uniform budgets.
    """

    names: tuple[str, ...]
    says: str
    plan: Callable[[PlanningProblem, str], Plan]
    applies: Callable[[PlanningProblem], bool] = lambda problem: True
    uniform: bool = True


def _laplace(problem: PlanningProblem) -> bool:
    several = len(set(problem.workload.marginals)) > 1
    return problem.noise is NoiseKind.LAPLACE and problem.consistency == "l2" and several and problem.few_subsets


def _few_cells(problem: PlanningProblem) -> bool:
    base = base_attributes(problem.workload)
    return prod([problem.workload.sizes[attribute] for attribute in base]) <= MOST_CELLS


def _few_subsets(problem: PlanningProblem) -> bool:
    return problem.few_subsets


def _few_marginals(problem: PlanningProblem) -> bool:
    return len(set(problem.workload.marginals)) <= MOST_MARGINALS and problem.few_subsets


def _gaussian(problem: PlanningProblem) -> bool:
    if problem.noise is not NoiseKind.GAUSSIAN or not problem.few_subsets:
        return False
    norms = problem.lattice.products([float(size * (size - 1)) for size in problem.lattice.sizes])
    return float(norms.max()) < min(LARGEST_RESIDUAL, (LARGEST_WEIGHTED / problem.row_bound) ** 2)


def _best_as_it_is(problem: PlanningProblem) -> bool:
    """Tells whether the identity is sure to have the least error: one marginal is asked, and its table is measured.

    Take n cells, any integer queries a_ij and noise variances v_i. The total variance of least squares is
    `tr (A' V^-1 A)^-1 >= n^2 / (sum_ij a_ij^2 / v_i)`. Laplace: `1/v = 2 sinh(eta/2)^2` with
    `sum_i |a_ij| eta_i <= epsilon`. Because `a sinh(x) <= sinh(a x)` and `sinh(x)^2 + sinh(y)^2 <= sinh(x + y)^2`, a
    column adds at most 2 sinh(epsilon/2)^2. So the bound is the variance of the identity. Gaussian noise has this bound
    by `1/v <= 1/sigma^2` (up to the discrete law's last digits) and `sum_i a_ij^2 / sigma_i^2 <= 2 rho`.
    """
    return len(set(problem.workload.marginals)) == 1 and _few_cells(problem)


CANDIDATES: tuple[Strategy, ...] = (
    Strategy(("I", "identity"), "every cell of all keys together", plan_identity, _few_cells, uniform=False),
    Strategy(("R", "residual"), "what each table adds to its margins", plan_residual, _gaussian, uniform=False),
    Strategy(("O", "views"), "tables that were searched for", plan_optimised_views, _laplace, uniform=False),
    Strategy(("Q", "marginals"), "each table that is asked", plan_marginals, _few_subsets),
    Strategy(("C", "clustering"), "tables merged while that helps", plan_clustering, _few_marginals),
    Strategy(("F", "fourier"), "Fourier coefficients", plan_fourier, _few_subsets),
)


def spell_out(strategy: str) -> str:
    """Returns the meaning of a strategy's short name in words, or "" for a strategy with a long name.

    >>> spell_out("Q+"), spell_out("hierarchy")
    ('marginals: each table that is asked, with the price shared out as each needs', '')
    """
    for candidate in CANDIDATES:
        short, name = candidate.names
        if strategy == short:
            return f"{name}: {candidate.says}"
        if strategy == f"{short}+":
            return f"{name}: {candidate.says}, with the price shared out as each needs"
    return ""


def plan_workload(
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    strategy: str = "auto",
    budgets: str = "optimal",
    consistency: str = "l2",
    planning_seconds: float = 2.0,
    row_bound: int = 1,
    rivals: bool = True,
    squared_bound: int | None = None,
) -> tuple[Plan, ...]:
    """Returns every candidate's plan, the chosen one first, then by predicted total variance.

    strategy: 'auto', or the name of the only candidate to plan. budgets: 'optimal' or 'uniform' noise. Only
    the strategy 'marginals' takes 'shares': each marginal's weight is then its share of the price. rivals: whether
    other candidates are planned too where the identity is sure to win. For other parameters see PlanningProblem.
    """
    _require_known(workload, strategy, budgets, consistency)
    problem = PlanningProblem(
        workload, noise, Fraction(amount), unit_bound, consistency, planning_seconds, row_bound, squared_bound
    )
    if strategy != "auto":
        return (_plan_by_name(strategy, problem, budgets),)
    candidates = CANDIDATES if rivals or not _best_as_it_is(problem) else CANDIDATES[:1]
    plans = [
        _time_plan(candidate, problem, kind)
        for candidate in candidates
        if candidate.applies(problem)
        for kind in ((budgets, "uniform") if candidate.uniform and budgets == "optimal" else (budgets,))
    ]
    if not plans:
        raise Refusal(
            f"no strategy can serve {len(workload.marginals)} grouping sets with {workload.cells} cells",
            accepted="fewer columns in a grouping set, or fewer grouping sets",
        )
    errors = [plan.total_variance for plan in plans]
    chosen = next(number for number, error in enumerate(errors) if error <= min(errors) * (1 + TIE))
    ranking = sorted(range(len(plans)), key=lambda number: (number != chosen, errors[number]))
    return tuple(plans[number] for number in ranking)


def _require_known(workload: MarginalWorkload, strategy: str, budgets: str, consistency: str) -> None:
    if budgets not in {"optimal", "uniform"} and not (budgets == SHARES and strategy.casefold() == "marginals"):
        raise Refusal(f"budgets = '{budgets}' is not known", accepted="budgets = 'optimal' or 'uniform'")
    if consistency not in CONSISTENCIES:
        raise Refusal(f"consistency = '{consistency}' is not known", accepted="one of " + ", ".join(CONSISTENCIES))
    if consistency in {"l1", "linf"} and workload.cells > MOST_PROGRAM_CELLS:
        raise Refusal(
            f"consistency = '{consistency}' solves a linear program over {workload.cells} cells",
            accepted=f"at most {MOST_PROGRAM_CELLS} cells, or consistency = 'l2'",
        )


def _time_plan(candidate: Strategy, problem: PlanningProblem, budgets: str) -> Plan:
    """Returns the candidate's plan with its planning time. Shared work counts for the candidate that needs it first."""
    begin = perf_counter()
    plan = candidate.plan(problem, budgets)
    return replace(plan, planning_seconds=perf_counter() - begin)


def _plan_by_name(strategy: str, problem: PlanningProblem, budgets: str) -> Plan:
    wanted = strategy.casefold()
    for candidate in CANDIDATES:
        names = [name.casefold() for name in candidate.names]
        if wanted.removesuffix("+") not in names:
            continue
        if not candidate.applies(problem):
            pure = candidate.applies is _gaussian and problem.noise is NoiseKind.LAPLACE
            why = "takes a price with a delta or in rho" if pure else "cannot serve this workload"
            others = ", ".join(other.names[0] for other in CANDIDATES if other.applies(problem))
            raise Refusal(f"strategy = '{strategy}' {why}", accepted=f"strategy = 'auto', or one of {others}")
        return _time_plan(candidate, problem, "optimal" if wanted.endswith("+") else budgets)
    choices = ", ".join(["auto", *(name for candidate in CANDIDATES for name in candidate.names)])
    raise Refusal(f"strategy = '{strategy}' is not known without PREFIXES or RANGES", accepted=f"one of {choices}")
