"""Noisy counts above the threshold decide which groups are published, by an exact rule, at the planned price."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chi2

from benchmarks.papers.joint_threshold import calibrate_jointly
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries import keys as module
from dpduck.kernel.queries.keys import KeyStream, PublishedKeys, Threshold, key_delta
from dpduck.mechanisms.keys.plan import KeyPlan
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge
from tests.kernel.doors import door_over, key_ask
from tests.kernel.queries.keyed import Row, job_of, load, plan_of

FALSE_ALARM = 1e-10
GAUSSIAN, LAPLACE = NoiseKind.GAUSSIAN, NoiseKind.LAPLACE


def published(rows: list[Row], job: CountingJob, plan: KeyPlan) -> PublishedKeys:
    """Returns one release over these rows."""
    ask = key_ask(job, plan)
    stream = KeyStream(load(rows).cursor(), job, b"key")
    published: PublishedKeys = door_over(stream, [ask]).answer(ask)
    return published


def silence(monkeypatch: pytest.MonkeyPatch, noise: int = 0) -> None:
    """Replaces noise by the same number everywhere."""

    def constant(law: Noise, count: int, entropy: object) -> NDArray[np.int64]:
        return np.full(count, noise, np.int64)

    monkeypatch.setattr(module, "draw", constant)


def crowd(reason: str | None, units: int, first: int) -> list[Row]:
    """Rows of so many units, one for each."""
    return [(first + number, reason, "FM"[number % 2]) for number in range(units)]


@pytest.mark.parametrize("noise", [0, 3, -3])
def test_the_comparison_is_exact(monkeypatch: pytest.MonkeyPatch, noise: int) -> None:
    """A group is published if and only if its units plus noise exceed the threshold, in integers."""
    silence(monkeypatch, noise)
    job = job_of(1, 4)
    plan = plan_of(job, Fraction(1), other=True)
    at = plan.threshold - noise
    rows = crowd("at", at, 0) + crowd("above", at + 1, 10**4) + crowd(None, at + 5, 2 * 10**4) + crowd("b", 1, 10**6)
    found = published(rows, job, plan)
    assert found.keys[0].to_pylist() == [b"above", None]
    assert found.answers[0].tolist() == [at + 1 + noise, at + 5 + noise]
    assert found.answers[1].tolist() == [(at + 2) // 2 + noise, (at + 6) // 2 + noise]
    assert found.other == (at + 1 + noise, (at + 1) // 2 + 1 + noise)


def test_fewer_units_than_the_minimum_are_never_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below min_privacy_units_per_group = n no noise publishes a group, and the threshold moves up by n - 1."""
    job = job_of(1, 1)
    plan = plan_of(job, Fraction(1), least=7)
    assert plan.threshold == plan_of(job, Fraction(1)).threshold + 6
    silence(monkeypatch, 10**6)
    found = published(crowd("six", 6, 0) + crowd("seven", 7, 100), job, plan)
    assert found.keys[0].to_pylist() == [b"seven"]


def test_the_selecting_count_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one row per unit count(*) is the same number that was compared: no second noise, no second price."""
    job = job_of(1, 1)
    plan = plan_of(job, Fraction(1, 10))
    assert plan.reused == (0,)
    found = published([row for group in range(50) for row in crowd(f"g{group}", 30, 100 * group)], job, plan)
    assert all(answer > plan.threshold for answer in found.answers[0])
    assert key_ask(job, plan).cost.rho == Fraction(1, 10)


def test_the_order_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Published groups are in the order of their keys, whatever the order of rows or of hashes."""
    silence(monkeypatch)
    job = job_of(1, 1, by_sex=True)
    rows = [row for number in range(40) for row in crowd(f"g{number * 7 % 40:02}", 60, 1000 * number)]
    plan = plan_of(job, Fraction(1))
    first, second = published(rows, job, plan), published(rows[::-1], job, plan)
    assert [key.to_pylist() for key in first.keys] == [key.to_pylist() for key in second.keys]
    pairs = list(zip(*(key.to_pylist() for key in first.keys), strict=True))
    assert len(pairs) == 80 and pairs == sorted(pairs)


def published_singles(job: CountingJob, plan: KeyPlan, groups: int) -> int:
    """Returns how many of so many groups with a single unit are published."""
    rows: list[Row] = [(number, f"g{number}", "F") for number in range(groups)]
    return len(published(rows, job, plan).answers[0])


def accepts(found: int, groups: int, low: float, high: float) -> bool:
    """Tells whether a count fits a probability between the bounds. It is wrong with FALSE_ALARM at most."""
    return bool(binom.sf(found - 1, groups, high) > FALSE_ALARM and binom.cdf(found, groups, low) > FALSE_ALARM)


@pytest.mark.parametrize("noise", NoiseKind, ids=lambda noise: str(noise.value))
def test_single_units_are_published_as_often_as_claimed(noise: NoiseKind) -> None:
    """Of 100,000 groups of one unit the published rate fits the law, and is at most delta for each group. A threshold
    one lower and two thirds of the scale are rejected. False alarm 2e-10, and as little chance to miss."""
    groups, job = 100_000, job_of(1, 1, conditions=("",))
    amount = Fraction(1, 50) if noise is GAUSSIAN else Fraction(2, 5)
    plan = plan_of(job, amount, Fraction(1, 50), noise=noise)
    rate = plan.publication_chance(1)
    assert rate <= Fraction(1, 50)
    low, high = rate * (1 - 1e-6), rate * (1 + 1e-6)
    assert accepts(published_singles(job, plan, groups), groups, low, high)
    assert not accepts(published_singles(job, replace(plan, excess=plan.excess - 1), groups), groups, low, high)
    smaller = replace(plan, selection=Noise(noise, plan.selection.parameter * Fraction(2, 3)))
    assert not accepts(published_singles(job, smaller, groups), groups, low, high)


def likelihoods(job: CountingJob, plan: KeyPlan, units: int, groups: int) -> NDArray[np.int64]:
    """Probabilities that groups of so many units are hidden, or shown with each count from the threshold on."""
    rows: list[Row] = [(number, f"g{number // units}", "F") for number in range(units * groups)]
    answers = published(rows, job, plan).answers[0] - plan.threshold - 1
    shown = np.bincount(np.minimum(answers, 15), minlength=16)
    return np.array([groups - len(answers), *shown])


@pytest.mark.audit
def test_neighbours_are_told_apart_no_better_than_claimed() -> None:
    """For groups of u and of u + 1 units, over every set of outcomes, P' - e^epsilon P stays within delta. With two
    thirds of sigma it does not. 60,000 groups each, of one unit and of numbers near the threshold."""
    job = job_of(1, 1, conditions=("",))
    epsilon, delta, groups = 1.0, 0.01, 60_000
    joint = alone(epsilon, delta)
    plan = replace(plan_of(job), selection=Noise(GAUSSIAN, joint[0]), excess=joint[1])

    def worst(plan: KeyPlan) -> float:
        found = []
        for units in (1, plan.threshold - 1, plan.threshold + 2):
            before, after = (likelihoods(job, plan, count, groups) / groups for count in (units, units + 1))
            found += [np.maximum(a - np.exp(epsilon) * b, 0).sum() for a, b in ((before, after), (after, before))]
        return float(max(found))

    # 17 outcomes, each off by at most 8 standard deviations of at most (1 + e) sqrt(p / 60,000): 0.009 in all
    assert worst(plan) <= delta + 0.009
    assert worst(replace(plan, selection=Noise(GAUSSIAN, joint[0] * Fraction(4, 9)))) > delta + 0.009


def alone(epsilon: float, delta: float) -> tuple[Fraction, int]:
    """Variance and threshold of a release by itself."""
    joint = calibrate_jointly(Fraction(str(epsilon)), Fraction(str(delta)), 1)
    return joint.variance, joint.excess


def test_answers_have_the_noise_that_is_claimed() -> None:
    """Answers beside the selection have exactly their noise: 20,000 groups fit it by a chi-square test, and reject two
    thirds of its parameter. False alarm 1e-10: every cell expects 90 groups or more."""
    job = job_of(1, 2, conditions=("t.sex = 'F'",))
    plan = plan_of(job, Fraction(4), Fraction(1, 100))
    rows: list[Row] = [(number, f"g{number // 12}", "F") for number in range(12 * 20_000)]
    errors = published(rows, job, plan).answers[0] - 12
    assert len(errors) > 18_000

    def distance(variance: float) -> float:
        places = np.arange(-60, 61)
        weights = np.exp(-places * places / (2 * variance))
        wanted = np.zeros(7)
        np.add.at(wanted, np.clip(places, -3, 3) + 3, weights / weights.sum() * len(errors))
        seen = np.bincount(np.clip(errors, -3, 3) + 3, minlength=7)
        return float(((seen - wanted) ** 2 / wanted).sum())

    limit = float(chi2.isf(FALSE_ALARM, 6))
    assert distance(float(plan.answers.parameter)) < limit < distance(float(plan.answers.parameter) * 2 / 3)


def test_what_is_drawn_is_what_was_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Selection, answers and the suppressed rest draw as often as they have numbers, with the plan's parameters.

    Each draw is added to its number.
    """
    job = job_of(1, 4, conditions=("t.sex = 'F'", "t.sex = 'M'"))
    plan = plan_of(job, Fraction(1), other=True)
    drawn: list[tuple[Fraction, int]] = []

    def recorded(law: Noise, count: int, entropy: object) -> NDArray[np.int64]:
        assert law.kind is GAUSSIAN
        drawn.extend([(law.parameter, count)] if count else [])
        return np.full(count, 1000 * (law.parameter == plan.answers.parameter), np.int64)

    monkeypatch.setattr(module, "draw", recorded)
    rows = crowd("few", 2, 0) + crowd("many", plan.threshold + 1, 10**4)
    found = published(rows, job, plan)
    assert (plan.selection.kind, found.keys[0].to_pylist(), plan.aggregates) == (GAUSSIAN, [b"many"], 2)
    assert plan.selection.parameter != plan.answers.parameter
    answered = [(plan.answers.parameter, 1)] * (plan.aggregates - len(plan.reused))
    others = [(plan.answers.parameter, 1)] * plan.aggregates
    assert drawn == [(plan.selection.parameter, 2), *answered, *others]
    assert found.other == (1001, 1001)
    assert sum(int(answer[0]) for answer in found.answers) == plan.threshold + 1 + 2000


def test_published_groups_and_the_other_row_are_one_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the same groups are published, a unit's rows move these and the other row together by their number.

    One share of the price for both rests on this: the L1 norm is 4 here, and not 4 for each.
    """
    silence(monkeypatch)
    job = job_of(4, 4)
    plan = plan_of(job, Fraction(1), other=True)
    query = key_ask(job, plan).query
    assert isinstance(query, Threshold) and len(query.paid) == plan.aggregates == 2
    rows = crowd("many", plan.threshold + 5, 0) + crowd("more", plan.threshold + 5, 10**4) + crowd("rare", 1, 10**5)
    unit: list[Row] = [(-1, reason, "F") for reason in ("many", "more", "rare", "alone")]
    without, together = published(rows, job, plan), published(rows + unit, job, plan)
    assert [one.to_pylist() for one in without.keys] == [one.to_pylist() for one in together.keys]
    for number in range(plan.aggregates):
        assert without.other is not None and together.other is not None
        moved = np.abs(together.answers[number] - without.answers[number]).sum()
        assert moved + abs(together.other[number] - without.other[number]) == 4 == job.max_rows


@pytest.mark.parametrize("noise", NoiseKind, ids=lambda noise: str(noise.value))
@pytest.mark.parametrize("unit_sql", ["t.unit", None])
@pytest.mark.parametrize("groups", [1, 3, 1000])
@pytest.mark.parametrize("amount", [Fraction(1, 10**7), Fraction(1, 30), Fraction(40)])
@pytest.mark.parametrize("delta", [Fraction(1, 100), Fraction(1, 10**12)])
def test_the_price_is_the_same_twice(
    noise: NoiseKind, unit_sql: str | None, groups: int, amount: Fraction, delta: Fraction
) -> None:
    """The release costs exactly the planned epsilon or rho, and at most the delta. Less noise would cost more."""
    job = job_of(groups, 1000, unit_sql=unit_sql)
    plan = plan_of(job, amount, delta, noise=noise, other=True)
    cost = key_ask(job, plan).cost
    assert (cost.epsilon if noise is LAPLACE else cost.rho) == amount
    assert cost.delta <= delta
    lower = plan.excess - 1 - plan.excess // 10**6  # rounding moves very wide noise by more than one place
    assert lower < 0 or key_ask(job, replace(plan, excess=lower)).cost.delta > delta
    selection, answers = (Noise(noise, law.parameter * Fraction(2, 3)) for law in (plan.selection, plan.answers))
    for louder in (replace(plan, selection=selection), replace(plan, answers=answers)):
        assert key_ask(job, louder).cost.rho > cost.rho


def test_the_price_without_a_unit_grows_with_its_rows() -> None:
    """A row that joins repeat three times moves one count by three, or three by one: the squared L2 norm is nine."""
    job = job_of(3, 1, unit_sql=None, conditions=("",))
    plan = plan_of(job, Fraction(1), Fraction(1, 100))
    assert plan.selection.parameter == Fraction(9, 2) and plan.threshold == 3 + plan.excess
    assert key_ask(job, plan).cost == Charge.zcdp(
        Fraction(1), key_delta(Noise(GAUSSIAN, Fraction(9, 2)), plan.excess, 3)
    )


@pytest.mark.parametrize(
    "noise", [Noise(LAPLACE, Fraction(3)), Noise(GAUSSIAN, Fraction(9)), Noise(GAUSSIAN, Fraction(10**8))]
)
def test_a_threshold_below_nothing_costs_everything(noise: Noise) -> None:
    """A threshold below 0 would publish most absent keys: the door refuses it, whatever a planner says."""
    assert key_delta(noise, -1, 1) == 1 == key_delta(noise, -100, 3)
    assert key_delta(noise, 10**6, 1) < Fraction(1, 100)


def test_bounds_that_disagree_are_an_error() -> None:
    """A plan for other bounds than those of the SQL is refused before anything is counted."""
    with pytest.raises(InternalError, match="disagree"):
        published([], job_of(3, 4), plan_of(job_of(2, 4)))


def test_a_failure_quotes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of DuckDB's becomes one fixed text without its cause."""
    job = job_of(1, 1, texts=("CAST(error(t.reason) AS VARCHAR)",))
    with pytest.raises(InternalError, match=r"^counting failed$") as caught:
        published([(1, "canary", "F")], job, plan_of(job))
    assert caught.value.__context__ is None
