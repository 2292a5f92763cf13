"""The checker's sums and verdicts about ledgers with periods agree with the ledger's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.kernel.ledger.budgets import LedgerState
from dpduck.kernel.ledger.chain import LedgerChain
from dpduck.kernel.ledger.entries import LedgerRow, amounts_text, budget_text
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.ledger.secrets import SecretsInMemory, no_step
from dpduck.publish import checker
from dpduck.values.errors import Refusal
from dpduck.values.periods import WORDS, Periods, charge_key, every, last_number
from dpduck.values.privacy import NOTHING, ZERO, Budget, Charge

HASH = "00" * 32
FIRST, WINDOW = 700, 5
"""Most runs are of these periods, so that they overlap."""


class Chain:
    """Stands for a store: the ledger's rules ask its state, and nothing is written."""

    def __init__(self) -> None:
        self.state = LedgerState()

    def read_on(self) -> None:
        """Reads nothing: there is no store."""

    def row(self, *_: object) -> None:
        """Makes no row."""

    def write(self, prepare: Callable[[], None]) -> None:
        """Runs the rules, which may refuse."""
        prepare()


Step = tuple[Periods | None, Charge] | Budget
"""A charge of a run of periods, None for one by a version that knew none, or a declaration."""


@st.composite
def runs(draw: st.DrawFn, word: str) -> Periods | None:
    """Draws a run of periods near others, one without a beginning or an end, or none."""
    low, high = sorted(draw(st.tuples(*[st.integers(FIRST, FIRST + WINDOW)] * 2)))
    kinds = [Periods(word, low, high)] * 6
    return draw(
        st.sampled_from([*kinds, None, every(word), Periods(word, 0, high), Periods(word, low, last_number(word))])
    )


def charges() -> st.SearchStrategy[Charge]:
    """Draws prices of every kind: pure, pure with keys, concentrated, concentrated with keys."""
    amount, keys = st.integers(1, 8).map(lambda n: Fraction(n, 8)), st.sampled_from([ZERO, ZERO, Fraction(1, 1000)])
    pure = st.builds(lambda a, d: Charge(a, a * a / 2, d), amount, keys)
    return st.one_of(pure, st.builds(lambda a, d: Charge(None, a * a / 2, d), amount, keys))


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    """Draws a budget of either measure, with a LIFETIME of the same or without."""
    amount = st.integers(1, 8).map(lambda n: Fraction(n, 2))
    pure, many = draw(st.booleans()), draw(amount)
    delta, keys = (ZERO, ZERO) if pure else (Fraction(1, 100), Fraction(2, 1000))

    def of(most: Fraction, lifetime: Budget | None) -> Budget:
        return Budget(most if pure else None, delta, keys, None if pure else most, lifetime)

    return of(many, draw(st.one_of(st.none(), amount.map(lambda more: of(many * (1 + more), None)))))


@st.composite
def ledgers(draw: st.DrawFn) -> tuple[str, list[Step]]:
    """Draws the word of a unit, and charges for its ledger. A budget comes first."""
    word = draw(st.sampled_from(WORDS))
    steps = st.lists(st.one_of(*[st.tuples(runs(word), charges())] * 4, budgets()), min_size=3, max_size=9)
    return word, [draw(budgets()), *draw(steps)]


def entry_of(number: int, unit: str, step: Step) -> dict[str, Any]:
    """Writes a step as the ledger does."""
    run, charge = (None, NOTHING) if isinstance(step, Budget) else step
    epsilon, rho, delta = amounts_text(charge)
    declared = budget_text(step) if isinstance(step, Budget) else None
    key = charge_key(unit, run)
    return {"id": number, "unit": key, "epsilon": epsilon, "rho": rho, "delta": delta, "text": declared}


def absorbed(state: LedgerState, entry: dict[str, Any]) -> None:
    """Books an entry in the ledger's own state."""
    amounts = entry["epsilon"], entry["rho"], entry["delta"]
    state.absorb(LedgerRow(entry["id"], 0, "p", entry["unit"], "t", "s", "m", *amounts, entry["text"], HASH, HASH))


def is_refused(ledger: Ledger, unit: str, word: str, step: Step) -> bool:
    """Asks the ledger's own rules."""
    try:
        if isinstance(step, Budget):
            ledger.declare_budget(unit, "t", step, "p", "s")
        else:
            ledger.check(unit, step[1], periods=step[0] or every(word))
    except Refusal:
        return True
    return False


def found_in(entries: list[dict[str, Any]]) -> list[str]:
    """Returns the checker's findings."""
    return list(checker.check_budgets([{**one, "budget": json.loads(one["text"] or "null")} for one in entries]))


@settings(max_examples=80, deadline=None)
@given(ledgers())
def test_the_checker_refuses_what_the_ledger_refuses(drawn: tuple[str, list[Step]]) -> None:
    """Of any ledger the checker finds nothing wrong, and with an entry more where the ledger refuses it, only there."""
    word, steps = drawn
    unit, chain = f"c.main.visits.person PER {word}", Chain()
    ledger = Ledger(cast(LedgerChain, chain), SecretsInMemory(), no_step)
    entries: list[dict[str, Any]] = []
    for step in steps:
        entry = entry_of(len(entries) + 1, unit, step)
        refused = is_refused(ledger, unit, word, step)
        assert bool(found := found_in([*entries, entry])) == refused, found
        if not refused:
            entries.append(entry)
            absorbed(chain.state, entry)


@settings(max_examples=80, deadline=None)
@given(ledgers())
def test_the_checker_adds_up_what_the_ledger_does(drawn: tuple[str, list[Step]]) -> None:
    """In each period, and for a person with rows in all periods, the checker's sums are those of the ledger."""
    word, steps = drawn
    unit, state = f"c.main.visits.person PER {word}", LedgerState()
    sums: dict[int, checker.Price] = {}
    person = checker.NOTHING
    for number, step in enumerate(steps, 1):
        entry = entry_of(number, unit, step)
        absorbed(state, entry)
        name, _, run = checker.run_of(entry["unit"])
        assert name == unit
        if (price := checker.amounts(entry)) != checker.NOTHING:
            checker.add_charge(sums, run, price)
            person = checker.plus(person, checker.of_person(price, len(run)))
    for one in (0, FIRST - 1, *range(FIRST, FIRST + WINDOW + 2), last_number(word)):
        own = state.of(unit, None, Periods(word, one, one))
        mine = sums[max(before)] if (before := [start for start in sums if start <= one]) else checker.NOTHING
        assert mine == (own.epsilon, own.rho, own.delta), one
    own = state.of_person(unit)
    assert (person[0], person[2]) == (own.epsilon, own.delta)
    assert own.rho * (1 - checker.SMALL) <= person[1] <= own.rho


@pytest.mark.parametrize("word", WORDS)
def test_a_run_of_whole_periods_alone_is_read(word: str) -> None:
    """Runs that the ledger cannot have written are none: empty ones, and such that begin or end within a period."""
    whole = str(Periods(word, 100, 101))
    assert checker.run_of(f"u PER {word} {whole}") == (f"u PER {word}", False, range(100, 102))
    first, end = (date.fromisoformat(text) for text in whole.split()[1::2])
    day = date.resolution
    wrong = [(first, first), (end, first), (first, date(9999, 12, 31))]
    if word != "DAY":
        wrong += [(first + day, end), (first - day, end), (first, end + day), (first, end - day)]
    for one, other in wrong:
        with pytest.raises(ValueError, match="run"):
            checker.run_of(f"u PER {word} FROM {one} TO {other}")
