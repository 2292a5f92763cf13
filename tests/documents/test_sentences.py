"""Figures and phrases of the documents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from dpduck.database.connection import verify_store
from dpduck.documents.facts import DocumentFacts, read_facts
from dpduck.documents.label import label_page
from dpduck.documents.record import record_text
from dpduck.documents.sentences import (
    budget_text,
    epsilon_amounts,
    figure,
    guesses,
    left_out,
    loss_text,
    mechanisms_of,
    rows_counted,
    spent_percent,
    whole_of,
)
from dpduck.publish.published_views import open_store
from dpduck.values.accounting import rho_of
from dpduck.values.privacy import Budget, Charge
from tests.support.documented import PATIENT, Kind, make_store

PURE = Budget(Fraction(10), Fraction(0), Fraction(0), None)
APPROXIMATE = Budget(Fraction(1), Fraction(1, 10**6), Fraction(0), rho_of(Fraction(1), Fraction(1, 10**6)))


@pytest.mark.parametrize(
    "amount", [Fraction(1, 3), Fraction(2, 3), Fraction(1, 7 * 10**6), Fraction(123_456_789, 10**5)]
)
def test_figures_are_rounded_up(amount: Fraction) -> None:
    """A stated figure is above the amount by less than one in the sixth digit."""
    stated = Fraction(figure(amount))
    assert amount < stated < amount * (1 + Fraction(1, 10**5))


def test_exact_amounts_are_stated_exactly() -> None:
    """Six digits are enough for what people type."""
    for text in ("0.5", "0.3", "10", "1e-06", "0.015", "12345"):
        assert figure(Fraction(text)) == text


def test_a_loss_is_in_the_measure_of_its_budget() -> None:
    """Epsilon under a pure budget, rho under any other, with the delta of selected groups."""
    charge = Charge(Fraction(1), Fraction(1, 2), Fraction(0))
    assert loss_text(charge, PURE) == "epsilon = 1" and loss_text(charge, APPROXIMATE) == "rho = 0.5"
    keys = Charge(None, Fraction(1, 2), Fraction(1, 10**6))
    assert loss_text(keys, APPROXIMATE) == "rho = 0.5, and delta = 1e-06 for selected groups"
    assert "without a bound" in loss_text(Charge(None, Fraction(1), Fraction(1)), APPROXIMATE)
    assert (
        budget_text(APPROXIMATE)
        == f"epsilon = 1, delta = 1e-06 (held as rho = {figure(APPROXIMATE.rho or Fraction(0))})"
    )


def test_a_spent_budget_implies_its_own_epsilon() -> None:
    """The epsilon of the whole rho, at the budget's delta, is the declared one. The guesses are those of the rho."""
    whole = whole_of(APPROXIMATE)
    epsilon, delta = epsilon_amounts(whole, APPROXIMATE)
    assert float(epsilon) == pytest.approx(1.0, rel=1e-6) and epsilon <= 1 and delta == Fraction(1, 10**6)
    assert guesses(whole, APPROXIMATE) == 56 < guesses(whole_of(Budget(Fraction(1), delta * 0, delta * 0, None)), PURE)


def test_a_percentage_is_of_the_fuller_measure() -> None:
    """Rounded up. A delta for groups may be nearer to its end than the rho."""
    assert spent_percent(Charge(Fraction(1, 1000), Fraction(1)), PURE) == 1
    both = Budget(Fraction(1), Fraction(1, 10**5), Fraction(1, 10**6), Fraction(1))
    assert spent_percent(Charge(None, Fraction(1, 10), Fraction(9, 10**7)), both) == 90


def test_mechanisms_are_those_of_the_plans(stores: Mapping[str, Path]) -> None:
    """The noise of the answers and the selection of groups. An older release without a plan says so."""
    with open_store(stores["keys"].with_name("clinic_private.duckdb")) as store:
        facts = read_facts(store, 3)
    laplace, threshold = mechanisms_of(facts.views)
    assert laplace == "discrete Laplace noise" and threshold.startswith("a threshold for groups")
    assert {part["query"] for view in facts.views for part in view.plan or ()} == {"Threshold"}


def documented(folder: Path, *statements: str) -> DocumentFacts:
    """The facts of a store with a policy of 3 rows and some statements."""
    database = make_store(folder, Kind(f"{PATIENT}, BUDGET (epsilon = 10)", statements))
    entries = verify_store(database, None)
    with open_store(database.with_name("clinic_private.duckdb")) as store:
        return read_facts(store, entries)


VIEW = "CREATE PRIVATE VIEW {} OPTIONS (epsilon = {}) AS SELECT ward, {} AS n FROM visits GROUP BY ward"
ONE_ROW = "ALTER PRIVACY POLICY ON visits SET PRIVACY UNIT patient_id MAX ROWS 1"


def test_bounds_are_those_of_the_numbers(state: Path) -> None:
    """A policy that was altered or dropped later does not change the sentences. Two policies are both named."""
    first, last = VIEW.format("a", 0.5, "count(*)"), VIEW.format("b", 0.4, "count(*)")
    clamp = "ALTER PRIVACY POLICY ON visits SET CLAMP age BETWEEN 0 AND 10"
    before = documented(state / "plain", first)
    assert rows_counted(before) == [
        "At most 3 rows of one patient are counted in visits.", "Further rows are left out.",
    ]  # fmt: skip
    for name, later in (("altered", (ONE_ROW, clamp)), ("dropped", ("DROP PRIVACY POLICY ON visits",))):
        facts = documented(state / name, first, *later)
        assert left_out(facts) == left_out(before), name
        assert "No row is left out" not in label_page(facts, "Visits")
    assert rows_counted(documented(state / "both", first, ONE_ROW, last)) == [
        "At most 1 row of one patient is counted in visits.",
        "At most 3 rows of one patient are counted in visits.",
        "Further rows are left out.",
        "The policy of visits was changed between these releases: each bound is of some of them.",
    ]
    gone = replace(before, policies=())
    assert "The policy is no longer in force." in label_page(gone, "Visits")
    assert "No row is left out" not in label_page(gone, "Visits")


def test_bounds_of_a_statement_are_told(state: Path) -> None:
    """An option or an argument of an aggregate that bounds less is told of, by the names of the views."""
    plain = VIEW.format("plain", 0.5, "count(*)")
    rows = VIEW.format("rows", "0.4, max_rows_contributed = 1", "count(*)")
    values = VIEW.format("ages", 0.5, "sum(age, contribution_bounds_per_row => (0, 10))")
    told = "Statements of rows and ages have bounds of their own, which hold there."
    assert rows_counted(documented(state / "own", plain, rows, values))[-1] == told
    assert "of their own" not in " ".join(left_out(documented(state / "none", plain)))


def test_offset_hides_groups(state: Path) -> None:
    """The groups before an OFFSET are left out by their noisy numbers, too."""
    facts = documented(state, f"{VIEW.format('rest', 0.5, 'count(*)')} ORDER BY n OFFSET 1")
    assert "Some groups of rest are not shown, because of their noisy numbers." in left_out(facts)


def test_an_answer_under_several_names_has_one_price(state: Path) -> None:
    """Views of one ledger entry, and their samples, were paid for once."""
    same = (VIEW.format(name, 0.5, "count(*)") for name in ("a", "b"))
    sample = "CREATE PRIVATE TABLE few AS SAMPLE 5 FROM a"
    record = record_text(documented(state, *same, sample, VIEW.format("c", 0.25, "count(*)")))
    assert re.findall("- ([ac]\\b.* cost .*)[.]", record) == [
        "a, b and few cost epsilon = 0.5 together",
        "c cost epsilon = 0.25",
    ]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for stores, with their counters."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path
