"""Nothing is charged but the price that the button names, whatever happens between the look and the press."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

from dpduck.server.clients.desk import Prices
from dpduck.server.local_vault import LocalVault
from dpduck.server.web import asking
from dpduck.server.web.asking import Offers, is_offer
from dpduck.store.cursors import DEARER, FREE_OF_CHARGE, Caller
from dpduck.values.errors import Refusal
from dpduck.values.odds import best_guess, guesses_of_100
from dpduck.values.privacy import Charge
from tests.server.served import Served, ask
from tests.server.web.client import Browser
from tests.support.clinics import by

CHANGED = "not what you were shown. Nothing was charged"


def paid(served: Served) -> list[int]:
    """Numbers of the charges. Changes of policies are in the ledger, too, and cost nothing."""
    return [entry for entry, _, epsilon in served.spent() if epsilon]


@pytest.fixture
def owner(served: Served) -> Iterator[LocalVault]:
    """The owner's way into the vault. The policy is as it was afterwards."""
    vault = served.service.vault
    assert isinstance(vault, LocalVault)
    yield vault
    vault.owner("run", "ALTER PRIVACY POLICY ON visits SET PRIVACY UNIT patient MAX ROWS 4")


@pytest.mark.slow
def test_a_price_that_rose_is_shown_before_it_is_paid(served: Served, alice: Browser, owner: LocalVault) -> None:
    """A new policy makes a target dearer, and a free statement costs again: the old buttons name the new price."""
    target = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 40) sex, count(*) AS n FROM visits GROUP BY sex"
    free = by("ward", "0.021")
    assert "The answer" in alice.pay(alice.ask(free)).words
    dear, again = alice.form(alice.ask(target)), alice.ask(free)
    assert "Run: nothing is charged" in again.words
    before = paid(served)
    owner.owner("run", "ALTER PRIVACY POLICY ON visits SET PRIVACY UNIT patient MAX ROWS 8")
    for form, words in ((dear, "(epsilon = 0.28"), (alice.form(again), "(epsilon = 0.021), and run")):
        shown = alice.post("/run", form)
        assert CHANGED in shown.words and words in shown.words and paid(served) == before
    assert "The answer" in alice.pay(shown).words and len(paid(served)) == len(before) + 1


def test_a_page_that_is_loaded_again_pays_nothing(served: Served, alice: Browser, owner: LocalVault) -> None:
    """A paid answer sent again is answered while it is kept, and priced once it is not, at the same price even."""
    form = alice.form(alice.ask(by("sex", "0.023")))
    for _ in range(2):
        assert "The answer" in alice.post("/run", form).words
    before = paid(served)
    owner.owner("run", "ALTER PRIVACY POLICY ON visits NEW EPOCH")
    assert "of your budget (epsilon = 0.023), and run" in alice.post("/run", form).words and paid(served) == before


def test_odds_are_beside_the_button(alice: Browser, owner: LocalVault) -> None:
    """The odds of a guess from the answer alone are computed from its price. What is free has none."""
    shown = alice.ask(by("age", "0.13"))
    right = guesses_of_100(best_guess(0.13))
    assert f"is right at most {right} of 100 times, not 50." in shown.words and right == 54
    assert shown.words.index("not 50.") < shown.words.index("Nothing is charged before you press")
    alice.pay(shown)
    assert "not 50." not in alice.ask(by("age", "0.13")).words


def test_the_vault_itself_keeps_to_the_price(
    served: Served, alice: Browser, owner: LocalVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the price rises after the last look, between plan and charge, nothing is charged, either."""
    priced = alice.ask(by("age", "0.019"))
    before = paid(served)
    with monkeypatch.context() as patch:  # as if it had been free at the last look
        patch.setattr(Prices, "ceilings", lambda prices: {})
        shown = alice.pay(priced)
    assert CHANGED in shown.words and "of your budget (epsilon = 0.019)" in shown.words and paid(served) == before
    assert "The answer" in alice.pay(shown).words


def test_a_ceiling_is_compared_as_it_was_shown() -> None:
    """The very price fits, whatever digits it has. Anything above, and the other kind of price, does not."""
    third, small = Fraction(1, 3), Fraction(1, 10**6)
    shown = (float(third), float(third * third / 2), 0.0)
    alice = Caller("alice", owner=False, ceiling=shown)
    alice.require_within(Charge.pure(third))
    Caller("alice", owner=False).require_within(Charge.pure(third))
    for charge in (Charge.pure(third + small), Charge.zcdp(Fraction(1)), Charge.zcdp(small, small)):
        with pytest.raises(Refusal, match=DEARER):
            alice.require_within(charge)
    for charge in (Charge.pure(small), Charge.zcdp(small)):
        with pytest.raises(Refusal, match=DEARER):
            Caller("alice", owner=False, ceiling=FREE_OF_CHARGE).require_within(charge)
    Caller("alice", owner=False, ceiling=(None, 1.0, 0.0)).require_within(Charge.zcdp(Fraction(1)))
    with pytest.raises(Refusal, match=DEARER):
        Caller("alice", owner=False, ceiling=(None, 1.0, 0.0)).require_within(Charge.pure(small))


def test_offers_are_for_one_press(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one principal, session, text and price. The oldest of a principal's own make room, and no other's."""
    monkeypatch.setattr(asking, "MOST_OFFERS", 3)
    offers, prices = Offers(), Prices()
    bobs = offers.add("bob", "session", "text", prices)
    tickets = [offers.add("alice", "session", "text", prices) for _ in range(4)]
    assert offers.take("alice", tickets[0]) is None and offers.take("alice", bobs) is None
    kept = offers.take("alice", tickets[3])
    assert kept is not None and offers.take("alice", tickets[3]) is None
    assert is_offer(kept, "session", "text", prices) and offers.take("bob", bobs) is not None
    for session, text, now in (
        ("other", "text", prices), ("session", "other", prices), ("session", "text", Prices(policies=(("t", 1, 2),))),
    ):  # fmt: skip
        assert not is_offer(kept, session, text, now)


def test_several_prices_are_added_up(served: Served, alice: Browser) -> None:
    """Two that fit alone and not together have no button. The same twice costs once. dp_ask beside it hides nothing."""
    before = paid(served)
    both = "SELECT count(*) FROM dp($a$ {} $a$) AS a, dp($b$ {} $b$) AS b"
    dear = alice.ask(both.format(by("sex", "2.4"), by("ward", "2.7")))
    assert "In all" in dear.words and "more than is left to you" in dear.words and 'class="pay"' not in dear.body
    twice = alice.ask(both.format(by("sex", "0.029"), by("sex", "0.029")))
    assert "of your budget (epsilon = 0.029), and run" in twice.words and "paid for with the one above" in twice.words
    assert "The answer" in alice.pay(twice).words and len(paid(served)) == len(before) + 1
    two = alice.ask(both.format(by("sex", "0.031"), by("ward", "0.033")))
    assert "of your budget (epsilon = 0.064), and run" in two.words
    assert "The answer" in alice.pay(two).words and len(paid(served)) == len(before) + 3
    asks = alice.ask(f"SELECT * FROM {ask(by('sex', '0.035'))[5:]} AS a, dp_ask('nothing', ['K0']) AS b")
    assert (
        "of your budget (epsilon = 0.035), and ask the session" in asks.words and len(paid(served)) == len(before) + 3
    )


def test_prices_are_never_shown_lower_than_they_are(alice: Browser) -> None:
    """A price is rounded up, the rest of a budget is rounded down."""
    shown = alice.ask(by("ward", "0.0123449991")).words
    assert "of your budget (epsilon = 0.01235), and run" in shown


def test_what_fails_after_the_charge_says_that_it_is_paid(
    served: Served, alice: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong with the rows on their way to the page: paid for, and free when it is asked again."""
    priced = alice.ask(by("age", "0.037"))
    before = len(paid(served))

    def broken(*_: object) -> None:
        raise OverflowError

    with monkeypatch.context() as patch:
        patch.setattr("dpduck.server.web.pages.answer_shape", broken)
        failed = alice.pay(priced).words
    assert len(paid(served)) == before + 1 and "paid for: the same statement again is free" in failed
    assert "The answer" in alice.pay(alice.ask(by("age", "0.037"))).words and len(paid(served)) == before + 1
