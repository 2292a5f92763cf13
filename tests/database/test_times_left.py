"""How often a price still fits, and what a statement costs at four prices, compared with what is charged."""

from __future__ import annotations

import io
import re
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.commands.answering import explain_in_words
from dpduck.database.database import Database
from dpduck.database.functions import answer, database_of
from dpduck.database.progress import Progress
from dpduck.database.registered import find_database
from dpduck.language.select.request import Price
from dpduck.mechanisms.batch import MOST_BESIDE
from dpduck.mechanisms.other_prices import price_at
from dpduck.store.cursors import Caller
from dpduck.values.accounting import rho_of
from dpduck.values.privacy import Charge
from tests.support.clinics import Clinic, by

BUDGETS = {
    "pure": "epsilon = 2",
    "approximate": "epsilon = 2, delta = 1e-6",
    "with keys": "epsilon = 2, delta = 1e-6, delta_keys = 5e-7",
    "rho": "rho = 0.05",
}
PRICES = {"epsilon": "epsilon = 0.3", "delta": "epsilon = 0.3, delta = 1e-7", "rho": "rho = 0.004"}
POLICY = "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET ({}), DOMAIN sex IN (0, 1){})"
KEYS = "group_selection_strategy = GAUSSIAN_THRESHOLD"


def clinic(budget: str, more: str = "") -> Clinic:
    one = Clinic(dpduck.connect())
    one.fill()
    one.dp("DECLARE PUBLIC TABLE wards")
    one.dp(POLICY.format(budget, more))
    return one


def asked(price: str, more: str = "", column: str = "sex") -> str:
    options = f"OPTIONS ({price}{more})"
    return f"SELECT WITH DIFFERENTIAL_PRIVACY {options} {column}, count(*) AS n FROM visits GROUP BY {column}"


def told(one: Clinic, statement: str, caller: Caller | None = None) -> Any:
    """Returns times_left and other_prices of dp_explain. Those of dp_plan must be the same."""
    started = find_database(one.con)
    assert started is not None
    who = caller or Caller("owner", owner=True)
    explained = f"SELECT times_left, other_prices FROM ({answer(started, who, 'explain', statement)}) WHERE chosen"
    ((times, others),) = one.rows(explained)
    planned = (
        f"SELECT times_left, other_prices FROM ({answer(started, who, 'plan', statement)}) WHERE number IS NOT NULL"
    )
    assert one.rows(planned) == [(times, others)]
    return times, others


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("price", PRICES.values(), ids=PRICES)
def test_it_fits_so_often_and_no_more(budget: str, price: str) -> None:
    """The statement is charged as often as was said, and is then refused."""
    one = clinic(budget)
    if budget == BUDGETS["pure"] and price != PRICES["epsilon"]:
        return
    times, _ = told(one, asked(price))
    assert 0 < times < 400
    for number in range(times):
        if number in (1, times - 1):
            assert told(one, asked(price))[0] == times - number
        one.dp(asked(price, f", refresh = '{number}'"))
    assert told(one, asked(price, ", refresh = 'last'"))[0] == 0
    assert "left" in one.refused(asked(price, ", refresh = 'last'"))


def test_a_delta_for_keys_may_be_what_ends() -> None:
    """Of a budget for keys and for counts, the one that ends first decides."""
    one = clinic(BUDGETS["with keys"])
    statement = asked("epsilon = 0.01, delta = 3e-7", f", {KEYS}", "ward")
    times, _ = told(one, statement)
    assert times == 3, "each takes 1.5e-7 of 5e-7"
    for number in range(times):
        one.dp(asked("epsilon = 0.01, delta = 3e-7", f", {KEYS}, refresh = '{number}'", "ward"))
    one.refused(asked("epsilon = 0.01, delta = 3e-7", f", {KEYS}, refresh = 'x'", "ward"))


def test_periods_and_their_lifetime() -> None:
    """Of a unit by months, a statement fits as often as its fullest month and LIFETIME have room."""
    with dpduck.connect() as connection:
        one = Clinic(connection)
        connection.execute("CREATE TABLE visits (patient INTEGER, sex INTEGER, day DATE)")
        one.dp(
            "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient PER MONTH OF day MAX ROWS 2, "
            "BUDGET (epsilon = 3) PER MONTH, LIFETIME (epsilon = 10), DOMAIN sex IN (0, 1))"
        )
        text = (
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1{}) sex, count(*) AS n FROM visits "
            "WHERE day >= '{}' AND day < '{}' GROUP BY sex"
        )
        january = text.format("{}", "2024-01-01", "2024-02-01")
        spring = text.format("{}", "2024-01-01", "2024-05-01")
        for statement, times in ((january, 3), (spring, 2)):
            assert told(one, statement.format(""))[0] == times
        one.dp(spring.format(""))
        one.dp(spring.format(", refresh = 'b'"))
        assert told(one, spring.format(", refresh = 'c'"))[0] == 0
        assert told(one, january.format(""))[0] == 1
        endless = asked("epsilon = 1")
        assert told(one, endless)[0] == 0, "LIFETIME refuses it"


def test_a_principal_has_a_share() -> None:
    """A principal's times follow from the share, and from what is left of all."""
    one = clinic("epsilon = 2")
    bob = Caller("bob", owner=False, share=Fraction(1, 4))
    assert told(one, by("sex", "0.1"), bob)[0] == 5
    one.dp(by("sex", "1.7"))
    assert told(one, by("sex", "0.1"), bob)[0] == 3


LINE = re.compile(r"(epsilon|rho) = (\S+): (\S+) %, (\S+) times?")


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("price", PRICES.values(), ids=PRICES)
def test_four_prices_side_by_side(budget: str, price: str) -> None:
    """Half, once, twice and four times a price are told as statements with these prices would tell theirs."""
    one = clinic(budget)
    if budget == BUDGETS["pure"] and price != PRICES["epsilon"]:
        return
    _, others = told(one, asked(price))
    lines = others.split("; ")
    assert len(lines) == 4
    measure, amount = price.split(",", maxsplit=1)[0].split(" = ")
    rest = price[len(f"{measure} = {amount}") :]
    for factor, line in zip((0.5, 1, 2, 4), lines, strict=True):
        stated = f"{measure} = {float(amount) * factor:g}"
        assert line.startswith(f"{stated}: ")
        ((part, times),) = one.con.execute(
            "SELECT price, times_left FROM dp_explain(?) WHERE chosen", [asked(stated + rest)]
        ).fetchall()
        words = {0: "too dear", 1: "once"}.get(times, f"{times:,} times")
        assert line == f"{stated}: {part.partition(' %')[0]} %, {words}"


def test_a_long_batch_shows_only_prices_without_a_plan() -> None:
    """An epsilon in a budget of rho needs a plan for each other price. A rho needs none."""
    one = clinic(BUDGETS["approximate"])
    for price, shown in ((PRICES["epsilon"], False), (PRICES["rho"], True)):
        for number in (MOST_BESIDE, MOST_BESIDE + 1):
            text = "; ".join(asked(price, f", refresh = '{tag}'") for tag in range(number))
            rows = one.rows(f"SELECT other_prices FROM dp_plan($${text}$$) WHERE number IS NOT NULL")
            assert [said is not None for (said,) in rows] == [shown or number == MOST_BESIDE] * number
            assert len(set(rows)) == 1


def test_limits_of_a_price_are_said() -> None:
    """A price that the policy refuses is told so, and no number."""
    one = clinic("epsilon = 2", ", MAX EPSILON 0.5, MIN EPSILON 0.2")
    _, others = told(one, asked("epsilon = 0.3"))
    assert [line.partition(": ")[2] for line in others.split("; ")] == [
        "below MIN EPSILON", "15 %, 6 times", "above MAX EPSILON", "above MAX EPSILON",
    ]  # fmt: skip


def test_statements_without_such_prices() -> None:
    """A target and a free answer have no other prices. A free answer is not counted either."""
    one = clinic("epsilon = 2")
    assert told(one, asked("target_stderr = 50"))[1] is None
    one.dp(asked("epsilon = 0.5"))
    started = find_database(one.con)
    assert started is not None
    plan = answer(started, Caller("owner", owner=True), "plan", asked("epsilon = 0.5"))
    assert one.rows(f"SELECT times_left, note FROM ({plan}) WHERE number = 1") == [(None, "answered already: free")]
    for who, told_free in ((Caller("owner", owner=True), True), (Caller("bob", owner=False), False)):
        explained = answer(started, who, "explain", asked("epsilon = 0.5"))
        ((note,),) = one.rows(f"SELECT note FROM ({explained}) WHERE chosen")
        assert note.endswith("answered already: free") is told_free, "bob does not learn what others asked"


def test_prices_by_a_factor() -> None:
    """An epsilon, an epsilon with a delta, and a rho are multiplied as they are stated."""
    third, delta = Fraction(1, 3), Fraction(1, 10**6)
    pure = Price(Charge.pure(third), third, None, "", None, Fraction(0))
    assert price_at(pure, Fraction(2)) == Price(Charge.pure(2 * third), 2 * third, None, "", None, Fraction(0))
    both = Price(Charge.zcdp(rho_of(third, delta)), third, delta, "", None, Fraction(0))
    doubled = price_at(both, Fraction(2))
    assert doubled is not None and doubled.charge == Charge.zcdp(rho_of(2 * third, delta))
    rho = Price(Charge.zcdp(third), None, None, "", None, Fraction(0))
    assert price_at(rho, Fraction(4)) == Price(Charge.zcdp(4 * third), None, None, "", None, Fraction(0))


def test_a_person_is_warned_at_80_percent() -> None:
    """The line at a terminal warns before the charge that brings a budget to 80 %, and dp_budget afterwards.

    A statement that the budget refuses has no warning.
    """
    one = clinic("epsilon = 2")
    database = database_of(one.con)
    assert isinstance(database, Database)
    stream = io.StringIO()
    database.foresight = type(database.foresight)(
        database._policies, database.ledger, lambda step: None, Progress(stream)
    )
    one.dp(by("sex", "1.5"))
    assert stream.getvalue() == ""
    assert one.value("SELECT warning FROM dp_budget()") is None
    one.dp(by("sex", "0.1"))
    assert "this answer brings memory.main.visits.patient to 80 % of its budget" in stream.getvalue()
    assert one.value("SELECT warning FROM dp_budget()") == "80 % is spent"
    said = stream.getvalue()
    with pytest.raises(duckdb.Error, match="budget"):
        one.dp(by("sex", "0.5"))
    assert stream.getvalue() == said
    one.dp(by("sex", "0.4"))
    assert one.value("SELECT warning FROM dp_budget()") == "all of it is spent"


def test_explain_in_words_says_both(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    """`dpduck explain` says how often a statement can still be asked, and the other prices."""
    path = tmp_path / "clinic.duckdb"
    with dpduck.connect(path) as connection:
        one = Clinic(connection)
        one.fill()
        one.dp(POLICY.format("epsilon = 2", ""))
    explain_in_words(path, None, asked("epsilon = 0.3"))
    said = " ".join(capsys.readouterr().out.split())
    assert "left: you can still ask this 6 times" in said
    assert re.search(r"rows with NULL( or other values)? of sex are not counted", said)
    assert "at other prices: epsilon = 0.15: 7.5 %, 13 times; epsilon = 0.3: 15 %, 6 times;" in said
