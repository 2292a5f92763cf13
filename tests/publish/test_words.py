"""Words for readers: guesses that are right, costs in sentences, and numbers with three digits."""

from __future__ import annotations

from math import exp

import pytest
from scipy.stats import norm

from dpduck.publish.words import (
    HOW_TO_READ,
    Cost,
    costs,
    guesses,
    number_text,
    percent,
    promise_sentences,
    right_guesses,
    right_guesses_rho,
    spent_sentences,
)
from dpduck.values.odds import times_of_100

POLICIES = [{"table_name": "visits", "guarantee": "all rows of one patient: epsilon = 10, over all statements"}]
BUDGET = {"table_name": "visits", "measure": "epsilon", "budget": 1.0, "spent": 0.4, "share": None, "period": None}


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 2.0, 4.0])
def test_guesses_are_those_of_the_best_test(epsilon: float) -> None:
    """Randomised response reaches the bound, which is rounded up by less than one in 100."""
    best = 100 * exp(epsilon) / (1 + exp(epsilon))
    assert best <= right_guesses(epsilon) < best + 1


@pytest.mark.parametrize("rho", [0.0001, 0.001, 0.02, 0.5, 2.0, 8.0])
def test_guesses_at_a_rho_are_no_fewer_than_gaussian_noise_allows(rho: float) -> None:
    """An attacker tells Gaussian noise of sensitivity 1, variance 1 / (2 rho), apart with chance Phi(sqrt(rho / 2))."""
    assert right_guesses_rho(rho) >= 100 * norm.cdf((rho / 2) ** 0.5)
    assert right_guesses_rho(rho, 0.01) >= right_guesses_rho(rho)


def test_extremes_are_told() -> None:
    """Nothing spent is a blind guess. A huge budget promises nothing, and says so."""
    assert guesses({"epsilon": 0.0}) == guesses({"rho": 0.0}) == 50
    assert guesses({"epsilon": 5_000.0}) == 100 and times_of_100(100) == "up to 100 of 100 times"
    assert times_of_100(guesses({"epsilon": 0.4})) == "at most 60 of 100 times"


def test_a_cost_is_told_in_plain_words() -> None:
    """Short sentences, the unit of the policy, and per cent that are rounded up."""
    (cost,) = costs([BUDGET], POLICIES)
    said = spent_sentences(cost)
    assert said[0] == "40% of the budget is spent." and "whether one patient is in the data" in said[1]
    assert "at most 60 of 100" in said[2] and "at most 74 of 100" in said[3]
    assert all(len(part.split()) <= 25 for one in (*said, *HOW_TO_READ) for part in one.split(". "))
    assert percent(0.0001) == "1%"


def test_a_share_does_not_hide_the_budget() -> None:
    """The promise to one person is that of the whole budget, whatever the reader's own share is."""
    (cost,) = costs([BUDGET | {"budget": 0.5, "share": 0.5}], POLICIES)
    assert cost.whole == {"epsilon": 1.0} and "at most 74 of 100 times" in promise_sentences(cost)[-1]


def test_measures_of_one_table_are_one_cost() -> None:
    """A rho and a delta of one table count together. Budgets by periods and rows without a budget do not."""
    rows = [
        BUDGET | {"measure": "rho", "budget": 0.5, "spent": 0.1}, BUDGET | {"measure": "delta", "budget": 0.2},
        BUDGET | {"period": "2024"}, BUDGET | {"table_name": "other", "budget": None},
    ]  # fmt: skip
    found = costs(rows, POLICIES)
    assert [(cost.table, cost.period) for cost in found] == [("visits", ""), ("visits", "2024")]
    assert found[0].spent == {"rho": 0.1, "delta": 0.4} and found[0].part == 2.0
    assert Cost("t", "", "one row", {}, {}).part == 0.0


def test_numbers_have_three_digits() -> None:
    """And all digits before the point."""
    values = (34.15927, 123_456.789, 0.0, -0.00001234, 1e20, float("nan"), float("inf"))
    assert [number_text(value) for value in values] == [
        "34.2", "123,457", "0", "-1.23e-05", "1e+20", "nan", "inf",
    ]  # fmt: skip
