"""Plans of sessions: within the price, and true to their statements, also against an adaptive attacker."""

from fractions import Fraction

import numpy as np
import pytest

from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.price import price
from dpduck.kernel.queries.key_counts import KeyCounts, KeyDigests
from dpduck.kernel.queries.sessions import UNITS, SessionGate
from dpduck.mechanisms.sparse.hypothesis import Hypothesis
from dpduck.mechanisms.sparse.plan import SessionPlan, SparseWorkload, plan_session, total_margin
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Charge
from tests.kernel.doors import scan_of

ENTROPY = operating_system_entropy()
CHARGES = [Charge.zcdp(Fraction(1, 40)), Charge.pure(Fraction(1))]
RUNS = 200


@pytest.mark.parametrize("charge", CHARGES)
@pytest.mark.parametrize("bound", [1, 5])
@pytest.mark.parametrize(("updates", "alpha"), [(None, None), (1, None), (37, None), (None, 50_000.0), (4, 50_000.0)])
def test_plans_cost_at_most_their_price(charge: Charge, bound: int, updates: int | None, alpha: float | None) -> None:
    """The compiled gate costs at most the charge, and uses nearly all of the charge."""
    plan = plan_session(charge, bound, SparseWorkload(16, 500, 0.05, updates, alpha), 1e5)
    scan = scan_of(bound)
    cost = price([plan.law.total_ask(scan), plan.law.gate_ask(scan)])
    assert cost.rho <= charge.rho
    if charge.epsilon is not None:
        assert cost.epsilon is not None
        assert Fraction(98, 100) * charge.epsilon < cost.epsilon <= charge.epsilon
    else:
        assert cost.rho > Fraction(9, 10) * charge.rho
    assert plan.alpha <= (alpha or 1e9)


def test_what_is_given_is_met_or_refused() -> None:
    """A given alpha has the most updates that it allows. An alpha beyond this price is refused."""
    charge = CHARGES[0]
    fewer, more = (
        plan_session(charge, 1, SparseWorkload(16, 500, 0.05, None, alpha), 1e5) for alpha in (2000.0, 4000.0)
    )
    assert fewer.law.updates < more.law.updates
    assert plan_session(charge, 1, SparseWorkload(16, 500, 0.05, fewer.law.updates + 1, None), 1e5).alpha > 2000
    for updates in (None, 400):
        with pytest.raises(Refusal, match="alpha of at least"):
            plan_session(charge, 1, SparseWorkload(16, 500, 0.05, updates, 10.0), 1e5)
    assert total_margin(CHARGES[1], 1, 0.05) > 0


class Attacked:
    """A session in memory, asked by somebody who knows the data: all that matters here is how wrong it gets."""

    def __init__(self, plan: SessionPlan, exact: np.ndarray) -> None:
        numbers = np.arange(len(exact), dtype=np.uint64)
        self.digests = KeyDigests(numbers, numbers)
        self.exact, self.plan = exact, plan
        counts = KeyCounts(numbers, numbers, exact)
        ask = plan.law.gate_ask(scan_of(plan.law.unit_bound))
        self.gate = SessionGate(plan.law, ask.query.draw(counts, ask, ENTROPY, None), counts, ENTROPY)
        self.hypothesis = Hypothesis(plan.total, plan.slots, {}, 1.0)
        self.used, self.errors = 0, [0.0]

    def belief(self, keys: list[int]) -> float:
        return self.hypothesis.answer(keys, [1.0] * len(keys))

    def ask(self, keys: list[int]) -> None:
        """Asks one question and records the error of its answer."""
        chosen = KeyDigests(self.digests.high[keys], self.digests.low[keys])
        questions = self.gate.prepare(chosen, np.full(len(keys), UNITS), [len(keys)], 1)
        measured = self.gate.look(questions, 0, round(self.belief(keys) * UNITS), self.used)
        exact = float(self.exact[keys].sum())
        if measured is None:
            self.errors.append(abs(self.belief(keys) - exact))
            return
        self.used += 1
        assert self.plan.measured <= self.plan.alpha
        self.hypothesis.apply(self.hypothesis.towards(keys, [1.0] * len(keys), measured / UNITS))


def attack(charge: Charge, most: int) -> tuple[float, list[float]]:
    """Returns the stated alpha and the largest error of each run. Asks first the keys that seem most wrong."""
    generator = np.random.default_rng(11)
    largest: list[float] = []
    alpha = 0.0
    for _ in range(RUNS):
        exact = np.sort(generator.integers(0, most, 60))
        plan = plan_session(charge, 1, SparseWorkload(2, 60, 0.05, 6, None), float(exact.sum()))
        alpha, session = plan.alpha, Attacked(plan, exact)
        for _ in range(60):
            wrong = np.array([abs(session.belief([key]) - exact[key]) for key in range(60)])
            order = np.argsort(wrong)
            bearable = order[wrong[order] < plan.law.threshold / UNITS]
            keys = [int((bearable if len(bearable) and generator.random() < 0.8 else order)[-1])]
            session.ask(keys)
            if session.used == plan.law.updates:
                break
        largest.append(max(session.errors))
    return alpha, largest


@pytest.mark.slow
@pytest.mark.parametrize(("charge", "most"), [(Charge.zcdp(Fraction(2)), 80), (Charge.pure(Fraction(20)), 30)])
def test_an_adaptive_attacker_stays_within_the_statement(charge: Charge, most: int) -> None:
    """An attacker asks the most wrong keys. Alpha is exceeded in at most a beta fraction of 200 runs, and alpha is at
    most three times the largest error seen. The statement holds with room: a false alarm of the first is below 1e-9.
    """
    alpha, largest = attack(charge, most)
    assert sum(error > alpha for error in largest) <= 0.05 * RUNS
    assert alpha <= 3 * max(largest)
