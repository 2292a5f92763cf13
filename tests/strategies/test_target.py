"""target_stderr: the smallest price that reaches a standard error."""

from fractions import Fraction

import pytest

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.plan import Plan
from dpduck.strategies.target import price_for

WORKLOAD = MarginalWorkload((2, 3, 4), ((0,), (0, 1), (1, 2)), (1.0, 1.0, 1.0))


@pytest.mark.parametrize("noise", list(NoiseKind))
@pytest.mark.parametrize("target", [0.8, 3.0, 50.0, 4000.0])
def test_reaches_the_target_and_is_the_smallest(noise: NoiseKind, target: float) -> None:
    """At the price the worst standard error is at most the target. At 0.5 % less it is above."""

    def plan_at(amount: Fraction) -> Plan:
        return plan_workload(WORKLOAD, noise, amount, 3, strategy="Q+")[0]

    price = price_for(target, noise, plan_at, searched=False)
    assert plan_at(price).worst_stderr <= target
    assert plan_at(price * Fraction(995, 1000)).worst_stderr > target


@pytest.mark.parametrize("noise", list(NoiseKind))
def test_a_searched_strategy_is_planned_once(noise: NoiseKind) -> None:
    """Where planning takes seconds the power law alone gives the price, on the safe side."""
    calls = []

    def plan_at(amount: Fraction) -> Plan:
        calls.append(amount)
        return plan_workload(WORKLOAD, noise, amount, 1, strategy="Q")[0]

    price = price_for(20.0, noise, plan_at, searched=True)
    assert len(calls) == 1
    assert 0.99 * 20 <= plan_at(price).worst_stderr <= 20
