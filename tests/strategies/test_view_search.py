"""The search for views reaches the best known figures and serves whatever it is given."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import combinations, count
from math import prod, sqrt

import numpy as np
import pytest

from dpduck.algebra.lattice import Lattice, close_downward
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.marginals.clustering import plan_clustering
from dpduck.strategies.marginals.planners import plan_marginals
from dpduck.strategies.plan import Plan, PlanningProblem
from dpduck.strategies.views import planner
from dpduck.strategies.views.annealing import views_of
from dpduck.strategies.views.objective import ViewObjective
from dpduck.strategies.views.planner import plan_optimised_views
from dpduck.strategies.views.search import FoundViews, search_views
from dpduck.values.errors import Refusal

ADULT8 = (9, 16, 7, 15, 6, 5, 2, 2)
BIN16 = (2,) * 16
UP_TO_3 = (0, 1, 2, 3)
SMALL = Fraction(1, 1000)

# Best-known root mean squared error per released cell at epsilon = 1 before this search.
BEST_KNOWN = [
    (ADULT8, (1,), 9.16),
    (ADULT8, (2,), 24.92),
    (ADULT8, (3,), 37.01),
    (ADULT8, UP_TO_3, 38.76),
    (BIN16, (1,), 12.00),
    (BIN16, (2,), 34.06),
    (BIN16, (3,), 60.43),
    (BIN16, UP_TO_3, 61.00),
]


def all_marginals(sizes: tuple[int, ...], orders: tuple[int, ...]) -> MarginalWorkload:
    marginals = tuple(members for order in orders for members in combinations(range(len(sizes)), order))
    return MarginalWorkload(sizes, marginals, (1.0,) * len(marginals))


def per_cell(plan: Plan) -> float:
    """Root mean squared error per released cell, brought to epsilon = 1."""
    return sqrt(plan.total_variance / plan.workload.cells) * float(SMALL)


def planned(workload: MarginalWorkload, seconds: float = 2.0) -> Plan:
    return plan_optimised_views(PlanningProblem(workload, NoiseKind.LAPLACE, SMALL, 1, planning_seconds=seconds))


@pytest.mark.parametrize(("sizes", "expected"), [(ADULT8, 131.5), (BIN16, 985.7)])
def test_up_to_three_way_counts_the_grand_total(sizes: tuple[int, ...], expected: float) -> None:
    """Requirement: the workload's reading is the one under which Q uniform prints its published figure."""
    workload = all_marginals(sizes, UP_TO_3)
    plan = plan_marginals(PlanningProblem(workload, NoiseKind.LAPLACE, SMALL, 1, "none"), "uniform")
    assert per_cell(plan) == pytest.approx(expected, rel=5e-4)


@pytest.mark.parametrize("sizes", [(5, 4, 3, 2, 2), (19, 2, 7, 3, 4, 2)])
@pytest.mark.parametrize("orders", [(1, 2), (2,), (1, 3)])
def test_views_never_lose_to_clusters(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], orders: tuple[int, ...]
) -> None:
    """Clusters answer where a search ends above them: here a search that finds only the asked marginals."""
    workload = all_marginals(sizes, orders)
    rival = plan_clustering(PlanningProblem(workload, NoiseKind.LAPLACE, SMALL, 1))
    assert planned(workload, 0.2).total_variance <= rival.total_variance * (1 + 1e-9)

    def asked(workload: MarginalWorkload, closed: Lattice, _: float) -> FoundViews:
        views = views_of(closed, workload.marginals)
        return FoundViews(views, np.full(len(views), 1 / len(views)), 0.0, "the asked marginals")

    monkeypatch.setattr(planner, "_find_views", asked)
    found = planned(workload)
    assert found.strategy == "O" and found.total_variance <= rival.total_variance


@pytest.mark.sampled
@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize(("sizes", "orders", "best"), [case for case in BEST_KNOWN if case[1] in {(1,), (2,)}])
def test_one_and_two_way_marginals(sizes: tuple[int, ...], orders: tuple[int, ...], best: float) -> None:
    """Requirement: within 2 % of the best known."""
    assert per_cell(planned(all_marginals(sizes, orders), 4.0)) <= 1.02 * best


@pytest.mark.audit
@pytest.mark.parametrize(("sizes", "orders", "best"), BEST_KNOWN)
def test_best_known_figures(sizes: tuple[int, ...], orders: tuple[int, ...], best: float) -> None:
    """Requirement: within 2 % of the best known on all eight workloads in under 10 s."""
    assert per_cell(planned(all_marginals(sizes, orders), 8.0)) <= 1.02 * best


def test_the_papers_figure_1() -> None:
    """Requirement: for the marginals on A and AB the one view AB: total variance 16."""
    plan = planned(MarginalWorkload((2, 2, 2), ((0,), (0, 1)), (1.0, 1.0)))
    assert [measurement.query.attributes for measurement in plan.measurements] == [(0, 1)]
    assert plan.total_variance * float(SMALL) ** 2 == pytest.approx(16, rel=1e-6)


CASES = [
    MarginalWorkload((3, 4), ((),), (1.0,)),
    MarginalWorkload((3, 4, 1), ((0,), (1, 2), (2,)), (1.0, 0.0, 2.0)),
    MarginalWorkload((3000, 4000, 5000), ((0, 1), (1, 2), (0, 2), (0,)), (1.0,) * 4),
    all_marginals((9, 4, 3, 2), (0, 1, 2, 3, 4)),
    all_marginals((10,) * 70, (1, 2)),
    MarginalWorkload((7, 5, 4, 3, 2), ((), (0,), (0, 1), (0, 1, 2), (0, 1, 2, 4)), (1.0,) * 5),
]


@pytest.mark.parametrize("workload", CASES, ids=lambda workload: f"{len(workload.marginals)} marginals")
@pytest.mark.parametrize("amount", [Fraction(1, 3), Fraction(7)])
def test_plans_of_any_workload(workload: MarginalWorkload, amount: Fraction) -> None:
    """Requirement: never worse than Q+ with least squares, never over the budget, hardly under it, views bounded."""
    plan = plan_optimised_views(PlanningProblem(workload, NoiseKind.LAPLACE, amount, 3, planning_seconds=0.3))
    cost = sum((3 / measurement.parameter for measurement in plan.measurements), Fraction(0))
    assert amount * (1 - Fraction(1, 10**9)) <= cost <= amount
    assert all(0 < variance < float("inf") for variance in plan.variances)
    assert max(prod(measurement.query.shape) for measurement in plan.measurements) <= 1 << 24 or workload is CASES[2]
    if amount < 1:  # the search takes noise at its continuous limit
        other = plan_marginals(PlanningProblem(workload, NoiseKind.LAPLACE, amount, 3))
        assert plan.total_variance <= other.total_variance * (1 + 1e-6)


def test_the_same_request_has_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requirement: steps follow from counts. The price of a target is the same on a machine that has no time for it."""
    workload = all_marginals((16, 2, 5, 9, 3, 3, 13, 20), (2,))
    objective, found = ViewObjective.of(workload, close_downward(workload.marginals, workload.sizes)), []
    for late in (0.0, 1.0):
        clock = partial(next, count(0.0, late))
        for module in ("objective", "search"):
            monkeypatch.setattr(f"dpduck.strategies.views.{module}.monotonic", clock, raising=False)
        found.append(search_views(objective, workload, 0.5))
    assert (found[0].error, found[0].views.tolist()) == (found[1].error, found[1].views.tolist())
    workload = all_marginals((5, 3, 2, 4), (2,))
    first, second = planned(workload, 20.0), planned(workload, 20.0)
    assert first.variances == second.variances
    assert list(first.measurements) == list(second.measurements)


def test_gaussian_noise_is_refused() -> None:
    """Requirement: under zCDP the residual basis is optimal. The refusal says so."""
    with pytest.raises(Refusal, match="strategy = 'R'"):
        plan_optimised_views(PlanningProblem(all_marginals((2, 3), (1,)), NoiseKind.GAUSSIAN, SMALL, 1))
