"""Quantiles chosen by the exponential mechanism: they beat a tree's, tell their rank, and are NULL for too few rows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from math import sqrt
from statistics import fmean

import pytest
from scipy.stats import binom

from tests.support.clinics import Clinic

GROUPS, ROWS, EMPTY = 200, 400, 8
SHOWN = 40
"""Of the groups, where each is looked at and few would do."""
ASKED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({}) g, {} FROM visits GROUP BY g ORDER BY g"
CHOSEN = "quantiles = 'choice'"


@pytest.fixture
def visits(open_clinic: Callable[..., Clinic]) -> Clinic:
    """GROUPS groups of ROWS rows, each a person, and groups without rows. x is skewed, in a far wider range.

    few: the first groups and those without rows. The steps of x leave 4,000 buckets, in which choices take less time.
    """
    clinic = open_clinic()
    clinic.con.execute(
        f"CREATE TABLE visits AS SELECT i AS who, i // {ROWS} AS g, (i * 7919) % {ROWS} AS place, "
        f"exp(4.5 * ((i * 7919) % {ROWS}) / {ROWS}) AS x FROM range({GROUPS * ROWS}) AS r(i)"
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT who MAX ROWS 1, BUDGET (epsilon = 100000, delta = 1e-6), "
        f"DOMAIN g RANGE 0 TO {GROUPS} STEP 1, CLAMP x BETWEEN 0 AND 1000 STEP 0.25, CLAMP place BETWEEN 0 AND 1000)"
    )
    clinic.con.execute(f"CREATE TABLE few AS FROM visits WHERE g < {SHOWN}")
    clinic.dp(
        "CREATE PRIVACY POLICY ON few (PRIVACY UNIT who MAX ROWS 1, BUDGET (epsilon = 100000), "
        f"DOMAIN g RANGE 0 TO {SHOWN + EMPTY} STEP 1, CLAMP x BETWEEN 0 AND 1000 STEP 0.25)"
    )
    return clinic


def ranks(clinic: Clinic, price: str, item: str, tag: str) -> list[float]:
    """Returns by how many ranks each group's answer is off. All groups hold the same values."""
    found = clinic.dp(ASKED.format(f"{price}, refresh = '{tag}'", item))[:GROUPS]
    column, share = ("x", 0.5) if "median" in item else ("place", 0.9)
    values = sorted(row[0] for row in clinic.rows(f"SELECT {column} FROM visits WHERE g = 0"))
    return [
        max(bisect_left(values, value) - share * ROWS, share * ROWS - bisect_right(values, value), 0)
        for _, value in found
    ]


@pytest.mark.slow
@pytest.mark.parametrize("price", ["epsilon = 1", "rho = 0.5"])
def test_a_chosen_quantile_is_nearer_than_a_trees(visits: Clinic, price: str) -> None:
    """At equal charge the rank's error is less than 0.7 of the tree's (0.3 to 0.5, 800 groups each).

    Were both alike, so small a ratio of two such means would have a chance below 1e-9.
    """
    for item in ("median(x)", "quantile_cont(place, 0.9)"):
        tree, chosen = (
            sqrt(fmean(off * off for tag in "1234" for off in ranks(visits, price + options, item, tag)))
            for options in (", quantiles = 'tree'", f", {CHOSEN}")
        )
        assert chosen < 0.7 * tree, (item, chosen, tree)


@pytest.mark.parametrize(("item", "column", "share"), [("median(place)", "place", 0.5)])
def test_the_rank_is_within_what_is_told(visits: Clinic, item: str, column: str, share: float) -> None:
    """dp_explain's figure holds in 19 of 20 groups at least (false alarms 1e-9), and is not far too large."""
    statement = ASKED.format(f"epsilon = 1, {CHOSEN}", item)
    note = visits.value(f"SELECT note FROM dp_explain($${statement}$$)")
    told = float(note.split("within ")[1].split(" ")[0])
    assert 18 < told < 22 and "exponential mechanism" in note
    off = [abs(value - share * ROWS) for _, value in visits.dp(statement)[:GROUPS]]
    assert binom.cdf(sum(one <= told + 1 for one in off), GROUPS, 0.95) > 1e-9
    assert max(off) < 80  # a chance of exp(-30) for each of 200


def test_too_few_rows_have_no_answer(visits: Clinic) -> None:
    """A group without rows is NULL 19 times of 20. Those of 400 have an interval, and no standard error."""
    items = "median(x) AS m, dp_stderr(m), dp_interval_low(m), dp_interval_high(m)"
    asked = ASKED.replace("visits", "few")
    found = visits.dp(asked.format(f"epsilon = 1, {CHOSEN}", items))
    assert any(row[1] is None for row in found[SHOWN:])  # false alarms 20^-8, for noise is drawn for each group
    assert {row[2] for row in found} == {None}
    assert all(0 < low <= m <= high < 1000 for _, m, _, low, high in found[:SHOWN])
    assert (0, 1000) in {row[3:] for row in found}
    sure = asked.format(f"epsilon = 1, {CHOSEN}, confidence = 0.99", items)
    assert {row[3:] for row in visits.dp(sure)} == {(0, 1000)}  # ends are chosen for 0.95


@pytest.mark.slow
def test_a_choice_is_for_a_single_quantile(visits: Clinic) -> None:
    """Several quantiles of one column share a tree, and so do min and max. Other statements keep their mechanism."""
    explained = "SELECT bounds FROM dp_explain($${}$$)"
    price = f"epsilon = 1, {CHOSEN}"
    for items, choices, trees in (
        ("median(x), median(place)", 2, 0),
        ("median(x), max(place)", 1, 1),
        ("median(x), max(x)", 0, 1),
        ("quantile_cont(x, [0.1, 0.9]), median(place), avg(place)", 1, 1),
        ("median(x) FILTER (WHERE place > 3), median(x)", 2, 0),
        ("quantile_cont(x, 0.12345)", 0, 1),
    ):
        bounds = visits.value(explained.format(ASKED.format(price, items)))
        assert (bounds.count("choices of a value"), bounds.count("a tree of counts")) == (choices, trees), items
    tree = ASKED.format("epsilon = 1, quantiles = 'tree'", "median(x)")
    assert "a choice errs less" in visits.value(f"SELECT note FROM dp_explain($${tree}$$)")
    assert "the statement has none; accepted: median(column)" in visits.refused(ASKED.format(price, "count(*)"))
    assert "accepted: 'auto', 'tree', 'choice'" in visits.refused(
        ASKED.format("epsilon = 1, quantiles = 'both'", "median(x)")
    )


def test_a_tree_is_another_release(visits: Clinic) -> None:
    """Either form is released and charged once. The ledger names the mechanism."""
    plain, chosen = (
        ASKED.format("epsilon = 1, quantiles = 'tree'", "median(x)"),
        ASKED.format(f"epsilon = 1, {CHOSEN}", "median(x)"),
    )
    answers = [visits.dp(text) for text in (plain, chosen, plain, chosen)]
    assert answers[:2] == answers[2:] and visits.charges() == 2
    ledger = visits.rows("SELECT mechanism, rho FROM dp_ledger() ORDER BY id DESC LIMIT 2")
    assert ledger[0] == ("exponential mechanism, choice", 3 / 64)  # a half, and two quarters: (1/4 + 1/16 + 1/16) / 8
    assert ledger[1][0] == "discrete Laplace, hierarchy" and ledger[1][1] > 0.125
