"""Quantiles without an option: the mechanism with the smaller error, answers in order, and paid answers stay paid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import sqrt
from pathlib import Path
from statistics import fmean

import pytest

import dpduck
from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.select.request import Aggregate, Operand
from dpduck.mechanisms.cubes.quantiles import QuantileRule, choice_error, tree_error
from tests.support.clinics import Clinic

GROUPS, ROWS = 200, 400
ASKED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({}) g, {} FROM visits GROUP BY g ORDER BY g"
BARE = ", quantile_intervals = FALSE"
QUARTILES = "quantile_cont(x, 0.25), median(x), quantile_cont(x, 0.75)"
FIVE = "approx_quantiles(x, 4)"


@pytest.fixture(scope="module")
def visits() -> Iterator[Clinic]:
    """GROUPS groups of ROWS rows, each a person. x is skewed, in a far wider range. few: groups of 10 rows."""
    with dpduck.connect(":memory:") as connection:
        clinic = Clinic(connection)
        clinic.con.execute(
            f"CREATE TABLE visits AS SELECT i AS who, i // {ROWS} AS g, exp(4.5 * ((i * 7919) % {ROWS}) / {ROWS}) AS x "
            f"FROM range({GROUPS * ROWS}) AS r(i)"
        )
        clinic.con.execute(f"CREATE TABLE few AS FROM visits WHERE who % {ROWS} < 10")
        for table in ("visits", "few"):
            clinic.dp(
                f"CREATE PRIVACY POLICY ON {table} (PRIVACY UNIT who MAX ROWS 1, "
                f"BUDGET (epsilon = 100000, delta = 1e-6), DOMAIN g RANGE 0 TO {GROUPS} STEP 1, "
                "CLAMP x BETWEEN 0 AND 1000 STEP 0.25)"
            )
        yield clinic


def error(clinic: Clinic, price: str, items: str, fractions: tuple[float, ...]) -> float:
    """The root mean square error of the rank, in rows, over all groups, which hold the same values."""
    exact = [row[0] for row in clinic.rows("SELECT x FROM visits WHERE g = 0 ORDER BY x")]
    rows = clinic.dp(ASKED.format(price, items))
    off = [
        sum(one < value for one in exact) - fraction * ROWS
        for row in rows
        for value, fraction in zip(row[1:], fractions, strict=True)
    ]
    return sqrt(fmean(one * one for one in off))


@pytest.mark.sampled
@pytest.mark.parametrize("price", ["epsilon = 1", "rho = 0.5"])
@pytest.mark.parametrize(
    ("items", "fractions"), [("median(x)", (0.5,)), (QUARTILES, (0.25, 0.5, 0.75))], ids=["median", "quartiles"]
)
def test_the_default_errs_as_little_as_either(
    visits: Clinic, price: str, items: str, fractions: tuple[float, ...]
) -> None:
    """With an interval and without, over 200 groups: at most 1.1 times the tree, and 1.4 for their own chance.

    Without an interval a median's rank errs at most 0.8 times as far as a tree's (0.2 to 0.4 here), those of quartiles
    at most 1.1 times (0.5 to 0.8). Squares of 200 and 600 ranks differ by the rest with a chance below 1e-9.
    """
    tree = error(visits, f"{price}, quantiles = 'tree', refresh = 'a'", items, fractions)
    assert error(visits, price, items, fractions) < 1.1 * 1.4 * tree
    assert error(visits, price + BARE, items, fractions) < (1.1 if len(fractions) > 1 else 0.8) * tree


def aggregates(*fractions: Fraction, high: int = 1000) -> list[Aggregate]:
    operand = Operand("x", Fraction(0), Fraction(high), Fraction(1))
    return [Aggregate("", str(one), "quantile", operand, one) for one in fractions]


HALF, QUARTER, LAST = Fraction(1, 2), Fraction(1, 4), Fraction(3, 4)


@pytest.mark.parametrize("noise", list(NoiseKind))
def test_the_rule_is_what_is_predicted(noise: NoiseKind) -> None:
    """One median of many values is chosen, one of few values is counted. Many share a tree, as do min and max.

    The first two assertions are about the errors that the rule compares.
    """
    rule = QuantileRule("auto")

    def chosen(asked: list[Aggregate], rule: QuantileRule = rule) -> int:
        return len(rule.choose(asked, [1.0] * len(asked), noise))

    assert choice_error(HALF, noise, HALF) < tree_error(HALF, 1001, noise)
    assert choice_error(HALF, noise, HALF) > tree_error(HALF, 3, noise)
    assert chosen(aggregates(HALF)) == 1 and chosen(aggregates(HALF, high=2)) == 0
    assert chosen(aggregates(*(Fraction(place, 20) for place in range(1, 20)))) == 0
    assert chosen(aggregates(QUARTER, HALF, LAST), QuantileRule("auto", intervals=False)) == 3
    assert chosen(aggregates(Fraction(0), Fraction(1))) == 0
    assert chosen(aggregates(Fraction(1, 9973))) == 0
    assert chosen(aggregates(HALF), QuantileRule("auto", cells=1 << 15)) == 0
    assert chosen(aggregates(QUARTER, HALF), QuantileRule("choice")) == 0 < chosen(aggregates(QUARTER))
    assert chosen(aggregates(HALF), QuantileRule("tree")) == 0


@pytest.mark.parametrize("options", ["", ", quantiles = 'tree'", BARE])
def test_quantiles_of_one_answer_are_in_order(visits: Clinic, options: str) -> None:
    """min <= q1 <= median <= q3 <= max in 200 groups of 10 rows, where noise is larger. Intervals hold their answers.

    Without the ordering, 80 of 200 groups and more were out of order. Ordered answers always pass.
    """
    bars = ", ".join(f"dp_interval_low(q{n}), dp_interval_high(q{n})" for n in range(5))
    parts = ("min(x)", "quantile_cont(x, 0.25)", "median(x)", "quantile_cont(x, 0.75)", "max(x)")
    items = ", ".join(f"{part} AS q{n}" for n, part in enumerate(parts))
    statement = ASKED.format(f"epsilon = 1{options}", f"{items}, {bars}").replace("visits", "few")
    answered = 0
    for row in visits.dp(statement):
        told = [value for value in row[1:6] if value is not None]
        answered += len(told)
        assert told == sorted(told)
        for value, low, high in zip(row[1:6], row[6::2], row[7::2], strict=True):
            assert low <= high and (value is None or low <= value <= high)
    assert answered > GROUPS
    listed = ASKED.format(f"epsilon = 1{options}", FIVE).replace("visits", "few")
    assert all(row[1] == sorted(row[1]) for row in visits.dp(listed) if None not in row[1])


def test_what_was_paid_for_as_a_tree_is_still_that(open_clinic: Callable[..., Clinic], tmp_path: Path) -> None:
    """The statement without an option has the answer of its tree where there is one, and is not charged again.

    The digest of a tree is that of the statement before there was another default (tests/database/test_pinned.py).
    """
    clinic = open_clinic(tmp_path / "clinic.duckdb")
    clinic.fill()
    clinic.protect()
    asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1{}) sex, median(age) AS m FROM visits GROUP BY sex"
    before = clinic.dp(asked.format(", quantiles = 'tree'"))
    assert clinic.dp(asked.format("")) == before and clinic.charges() == 1
    plan = clinic.con.execute("SELECT note FROM dp_plan(?)", [asked.format("")]).fetchall()
    assert "free" in plan[0][0] or "known" in plan[0][0]
    clinic.dp(asked.format("").replace("epsilon = 1", "epsilon = 1, refresh = 'a'"))
    assert clinic.charges() == 2
    other = asked.format("").replace("epsilon = 1", "epsilon = 0.5")
    chosen = clinic.dp(other)
    clinic.dp(other.replace("0.5", "0.5, quantiles = 'tree'"))
    assert clinic.dp(other) == chosen and clinic.charges() == 4


def test_an_interval_is_paid_for_or_not(visits: Clinic) -> None:
    """Without one all of the price is the value's: its rho is an eighth of the square of epsilon."""
    bars = "median(x) AS m, dp_interval_low(m), dp_interval_high(m), dp_stderr(m)"
    rows = visits.dp(ASKED.format("epsilon = 1, refresh = 'bare'" + BARE, bars))
    assert {row[2:] for row in rows} == {(0, 1000, None)}
    assert visits.value("SELECT rho FROM dp_ledger() ORDER BY id DESC LIMIT 1") == 1 / 8
    note = visits.value(f"SELECT note FROM dp_explain($${ASKED.format('epsilon = 1', 'median(x)')}$$)")
    assert "quantile_intervals = FALSE errs 2 times less" in note and "19 of 20" in note
    bare = visits.value(f"SELECT note FROM dp_explain($${ASKED.format('epsilon = 1' + BARE, 'median(x)')}$$)")
    assert "ends of its interval" not in bare and "quantile_intervals" not in bare
    assert "cost nothing, so quantile_intervals changes nothing" in visits.refused(
        ASKED.format("epsilon = 1, quantiles = 'tree'" + BARE, "median(x)")
    )
    assert "needs a quantile, and the statement has none" in visits.refused(
        ASKED.format("epsilon = 1" + BARE, "count(*)")
    )
