"""Releases with private keys, which a noisy threshold publishes, through FROM dp(..)."""

from __future__ import annotations

from collections.abc import Iterator
from math import tanh

import duckdb
import pytest

from tests.mechanisms.keys.selected_keys import (
    DELTA,
    KEY_DELTA,
    POLICY,
    PRICE,
    RHO,
    ask,
    charges,
    open_calls,
    statement,
)

BY_REASON = "reason, count(*) AS n, dp_stderr(n) AS s FROM calls GROUP BY reason ORDER BY reason"
COMMON = [f"common {number}" for number in range(4)]
UNIT_OF_ROWS = (
    f"CREATE PRIVACY POLICY ON calls (PRIVACY UNIT ROW, BUDGET ({PRICE}, delta = {DELTA}, delta_keys = 5e-17))"
)


@pytest.fixture
def calls() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_calls() as connection:
        yield connection


def test_common_keys_are_published_and_rare_ones_are_not(calls: duckdb.DuckDBPyConnection) -> None:
    """A key of 1,200 callers is shown with its count, NULL as a value of its own. A key of a single caller is not.

    The answers' noise has a standard deviation of 12: it exceeds 12 deviations with probability below 1e-30.
    """
    rows = ask(calls, statement(BY_REASON))
    assert [row[0] for row in rows] == [*COMMON, None]
    exact = [1200, 1200, 1200, 1200, 600]
    for row, count in zip(rows, exact, strict=True):
        assert isinstance(row[1], int) and isinstance(row[2], float)
        assert abs(row[1] - count) < 12 * row[2] < 400


def test_the_charge_is_rho_and_the_share_of_delta(calls: duckdb.DuckDBPyConnection) -> None:
    """Keys cost the share of delta that the budget keeps for them, the rest buys rho. Asking again is free."""
    first = ask(calls, statement(BY_REASON))
    assert ask(calls, statement(BY_REASON)) == first
    price = pytest.approx(float(RHO)), pytest.approx(float(KEY_DELTA), abs=0)
    assert charges(calls) == [(None, *price)]
    spent = calls.execute("SELECT measure, spent FROM dp_budget()").fetchall()
    assert dict(spent) == dict(zip(("rho", "delta"), price, strict=True))


def test_a_whole_budget_is_one_statement() -> None:
    """Epsilon and delta of the budget buy exactly its rho and its delta for keys, and nothing is left."""
    with open_calls() as calls:
        ask(calls, statement(BY_REASON, price="epsilon = 40", delta="1e-15"))
        left = calls.execute("SELECT remaining FROM dp_budget()").fetchall()
        assert left == [(0.0,), (0.0,)]
        with pytest.raises(duckdb.Error, match="left; accepted: a budget widened by the owner"):
            ask(calls, statement(BY_REASON, "refresh = 'again'"))


def test_laplace_thresholds_charge_epsilon_and_the_whole_delta(calls: duckdb.DuckDBPyConnection) -> None:
    """LAPLACE_THRESHOLD is paid as epsilon tanh(epsilon/2) of rho, and its delta is for keys alone."""
    rows = ask(calls, statement(BY_REASON, "max_rows_contributed = 1", strategy="LAPLACE_THRESHOLD"))
    assert [row[0] for row in rows] == [*COMMON, None]
    assert charges(calls) == [(3.0, pytest.approx(3 * tanh(1.5), rel=1e-15), pytest.approx(1e-16, abs=0))]


def test_a_rho_beside_a_delta(calls: duckdb.DuckDBPyConnection) -> None:
    """rho = .. takes a delta that is for keys alone."""
    ask(calls, statement(BY_REASON, price="rho = 0.05"))
    assert charges(calls) == [(None, 0.05, pytest.approx(1e-16, abs=0))]


def test_no_key_is_published(calls: duckdb.DuckDBPyConnection) -> None:
    """A release in which nothing passes is an empty table at the same price."""
    assert ask(calls, statement("caller, count(*) AS n FROM calls GROUP BY caller")) == []
    assert ask(calls, statement(BY_REASON, "min_privacy_units_per_group = 100000")) == []
    first, second = charges(calls)
    assert first == second


def test_an_answer_that_can_have_no_rows_is_refused_before_its_charge() -> None:
    """A group has at most all rows. If EXPECT ROWS is below the threshold, a free refusal names what would help."""
    small = POLICY.replace("DOMAIN sex", "EXPECT ROWS 20, DOMAIN sex", 1)
    with open_calls(small) as few:
        with pytest.raises(duckdb.InvalidInputException, match="EXPECT ROWS is 20: an answer would have no rows; acc"):
            few.execute("FROM dp(?)", [statement("reason, count(*) AS n FROM calls GROUP BY reason")]).fetchall()
        assert charges(few) == []
        few.execute("FROM dp('ALTER PRIVACY POLICY ON calls SET EXPECT ROWS 6000')").fetchall()
        assert len(ask(few, statement("reason, count(*) AS n FROM calls GROUP BY reason"))) == 5


def test_a_view_says_what_max_groups_contributed_leaves_out(calls: duckdb.DuckDBPyConnection) -> None:
    """Rows of a unit in further groups are in no count: the comment of the view says that counts are too low."""
    for name, groups in (("first_group", "1"), ("all_groups", "3")):
        select = statement("reason, count(*) AS n FROM calls GROUP BY reason", f"max_groups_contributed = {groups}")
        clause, _, rest = select.removeprefix("SELECT WITH DIFFERENTIAL_PRIVACY ").partition(") ")
        ask(calls, f"CREATE PRIVATE VIEW {name} {clause}) AS SELECT {rest}")
    said = "SELECT table_name FROM duckdb_tables() WHERE comment LIKE '%left out, so counts are too low%'"
    assert calls.execute(said).fetchall() == [("first_group",)]


def test_an_empty_table_has_no_keys() -> None:
    """No row at all: no key, the same price, and an other row on request."""
    with open_calls() as calls:
        calls.execute("DELETE FROM calls")
        assert ask(calls, statement(BY_REASON)) == []
        (row,) = ask(
            calls, statement("reason, count(*) AS n, grouping(reason) FROM calls GROUP BY ALL", "other = TRUE")
        )
        assert row[0] is None and isinstance(row[1], int) and abs(row[1]) < 400 and row[2] == 1
        assert len(charges(calls)) == 2


def test_the_row_for_all_others(calls: duckdb.DuckDBPyConnection) -> None:
    """other = TRUE adds one row for the suppressed keys, with keys NULL and GROUPING 1. It shares the price."""
    rows = ask(
        calls,
        statement(
            "reason, count(*) AS n, dp_stderr(n) AS s, grouping(reason) AS g FROM calls GROUP BY ALL", "other = TRUE"
        ),
    )
    (other,) = [row for row in rows if row[3] == 1]
    (null,) = [row for row in rows if row[0] is None and row[3] == 0]
    assert isinstance(other[1], int) and isinstance(other[2], float) and isinstance(null[1], int)
    assert abs(other[1] - 600) < 12 * other[2] and abs(null[1] - 600) < 12 * other[2]
    alone = ask(calls, statement(BY_REASON))
    assert other[2] == pytest.approx(float(str(alone[0][2]))), "one share for published groups and the others"


def test_several_aggregates_and_declared_keys(calls: duckdb.DuckDBPyConnection) -> None:
    """Keys with a domain keep its bins and drop rows outside. Aggregates share one selection."""
    rows = ask(
        calls,
        statement(
            "age, reason, sex, count(*) AS n, count(*) FILTER (WHERE day = DATE '2024-01-01') AS first_day FROM calls "
            "GROUP BY age, reason, sex ORDER BY ALL"
        ),
    )
    assert {(row[0], row[2]) for row in rows} == {(0, "F"), (0, "M"), (20, "F"), (20, "M")}
    assert {row[1] for row in rows} == {*COMMON, None}
    counts = {row[:3]: row[3:] for row in rows}
    exact = calls.execute(
        "SELECT age // 20 * 20, reason, sex, count(*), count(*) FILTER (WHERE day = DATE '2024-01-01') FROM calls "
        "WHERE age < 40 AND reason IS NULL OR age < 40 AND reason LIKE 'common%' GROUP BY ALL"
    ).fetchall()
    for row in exact:
        if row[:3] in counts:
            n, first_day = counts[row[:3]]
            assert isinstance(n, int) and isinstance(first_day, int)
            assert abs(n - row[3]) < 400 and abs(first_day - row[4]) < 400


def test_expressions_over_private_text_cannot_fail(calls: duckdb.DuckDBPyConnection) -> None:
    """A key that does not convert is NULL: no row's content decides whether the release fails."""
    text = (
        "CAST(digits AS INTEGER) AS d, count(*) AS n, count(*) FILTER (WHERE CAST(digits AS INTEGER) > 0) AS p "
        "FROM calls WHERE CAST(digits AS INTEGER) >= 0 OR digits = 'x' GROUP BY 1 ORDER BY 1"
    )
    rows = ask(calls, statement(text))
    assert [row[0] for row in rows] == [0, 1, 2]
    rows = ask(
        calls, statement("substr(reason, 1, 4) AS k, day, count(*) AS n FROM calls GROUP BY k, day ORDER BY ALL")
    )
    assert {row[0] for row in rows} == {"comm", "rare", None} and str(rows[0][1]) == "2024-01-01"


def test_a_view_keeps_the_published_keys(calls: duckdb.DuckDBPyConnection) -> None:
    """A private view holds the published rows and nothing else, under a comment that names its delta."""
    body = "reason, count(*) AS n FROM calls GROUP BY reason"
    options = f"{PRICE}, delta = {DELTA}, group_selection_strategy = GAUSSIAN_THRESHOLD"
    ask(calls, f"CREATE PRIVATE VIEW reasons OPTIONS ({options}) AS SELECT {body}")
    rows = calls.execute("SELECT reason FROM private.reasons ORDER BY reason").fetchall()
    assert [row[0] for row in rows] == [*COMMON, None]
    comment = calls.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'reasons'").fetchall()
    assert "delta = 5e-17 for selected keys" in str(comment)


def test_explain_shows_threshold_noise_and_chances(calls: duckdb.DuckDBPyConnection) -> None:
    """dp_explain: the threshold, the noise, chances that groups of 1, 10, 50, 100, 500 units are published. Free."""
    body = "reason, count(*) FROM calls GROUP BY reason"
    text = statement(body, "max_groups_contributed = 2", price="epsilon = 1", delta="1e-6")
    rows = calls.execute(
        "SELECT strategy, chosen, threshold, selection_stderr, published_1, published_10, published_50, published_100, "
        "published_500, cells FROM dp_explain(?)",
        [text],
    ).fetchall()
    chosen, other = rows
    assert chosen[:2] == ("gaussian_threshold", True) and other[:2] == ("laplace_threshold", False)
    assert chosen[2] == 48 and chosen[3] == pytest.approx(9.338, abs=0.001)
    assert 0 < chosen[4] < 2.5e-7 < chosen[5] < chosen[6] < chosen[7] <= chosen[8] <= 1
    assert chosen[6] == pytest.approx(0.5638, abs=0.0005) and chosen[9] is None
    assert charges(calls) == []


def test_units_of_single_rows() -> None:
    """PRIVACY UNIT ROW: every row is in one group, and its count answers count(*) itself: one query is paid."""
    with open_calls(UNIT_OF_ROWS) as calls:
        rows = ask(calls, statement(BY_REASON))
        assert [row[0] for row in rows] == [*COMMON, None]
        assert rows[0][2] == pytest.approx(float(1 / (2 * RHO)) ** 0.5)


def test_a_row_that_a_join_repeats() -> None:
    """PRIVACY UNIT ROW: a row that a join makes three is paid as three, in one group or in three."""
    with open_calls(UNIT_OF_ROWS) as calls:
        calls.execute("CREATE TABLE offers AS SELECT i % 2 AS day, 'offer ' || (i // 2) AS offer FROM range(6) AS r(i)")
        ask(calls, "DECLARE PUBLIC TABLE offers")
        body = "reason, offer, count(*) AS n, dp_stderr(n) FROM calls JOIN offers ON calls.age % 2 = offers.day"
        rows = ask(calls, statement(f"{body} GROUP BY ALL ORDER BY ALL"))
        assert {row[:2] for row in rows} == {(reason, f"offer {n}") for reason in (*COMMON, None) for n in range(3)}
        assert rows[0][3] == pytest.approx(3 * float(1 / (2 * RHO)) ** 0.5)
        assert all(abs(int(str(row[2])) - (600 if row[0] is None else 1200)) < 300 for row in rows)


def test_images_of_public_domains_beside_private_text(calls: duckdb.DuckDBPyConnection) -> None:
    """An expression over columns with a domain is its image over the bins, of one column or of two, also where no key
    is private. Its groups are selected as a whole."""
    exact = "FROM calls WHERE age < 40 GROUP BY ALL ORDER BY ALL"
    two = "CASE WHEN sex = 'F' AND age >= 20 THEN 'older' WHEN sex = 'M' THEN 'man' END AS k, count(*) AS n "
    rows = ask(calls, statement(two + "FROM calls GROUP BY k ORDER BY k"))
    assert [row[0] for row in rows] == ["man", "older", None]
    for row, (_, count) in zip(rows, calls.execute(f"SELECT {two} {exact}").fetchall(), strict=True):
        assert abs(int(str(row[1])) - count) < 300
    rows = ask(calls, statement("age // 20 AS decade, reason, count(*) AS n FROM calls GROUP BY ALL ORDER BY ALL"))
    assert [row[:2] for row in rows] == [(decade, reason) for decade in (0, 1) for reason in (*COMMON, None)]


def test_a_nul_and_long_texts_are_released_as_they_are() -> None:
    """A published key is the text itself, whatever characters it has."""
    with open_calls() as calls:
        calls.execute("UPDATE calls SET reason = repeat('ß', 20000) WHERE reason = 'common 1'")
        calls.execute("UPDATE calls SET reason = 'a' || chr(0) || 'b' WHERE reason = 'common 2'")
        rows = ask(calls, statement(BY_REASON))
        assert [row[0] for row in rows] == ["a\0b", "common 0", "common 3", "ß" * 20000, None]


@pytest.mark.parametrize("counted", ["count(DISTINCT caller)", "count(*, contribution_bounds_per_group => (0, 1))"])
def test_the_number_of_units_costs_nothing_beside_the_selection(calls: duckdb.DuckDBPyConnection, counted: str) -> None:
    """The number of units in a published group is the number that the threshold was compared with. One query is paid,
    with the noise of a unit in C groups, not of its rows."""
    text = f"reason, {counted} AS n, dp_stderr(n) AS s FROM calls GROUP BY reason ORDER BY reason"
    rows = ask(calls, statement(text, "max_groups_contributed = 2"))
    assert [row[0] for row in rows] == [*COMMON, None]
    assert rows[0][2] == pytest.approx(float(1 / RHO) ** 0.5)
    threshold = calls.execute("SELECT threshold, groups FROM dp_explain(?)", [statement(text)]).fetchone()
    assert threshold is not None and threshold[1] == 1
    assert all(int(str(row[1])) > 20 for row in rows)


def test_units_before_rows_are_answered(calls: duckdb.DuckDBPyConnection) -> None:
    """The number of units has a column of its own for intervals, wherever it stands in the select list."""
    text = "reason, count(DISTINCT caller) AS units, count(*) AS n FROM calls GROUP BY reason ORDER BY reason"
    rows = ask(calls, statement(text))
    assert [row[0] for row in rows] == [*COMMON, None]
    assert all(isinstance(row[1], int) and isinstance(row[2], int) and row[1] < row[2] + 400 for row in rows)


def test_what_is_no_count_sum_or_average_is_refused(calls: duckdb.DuckDBPyConnection) -> None:
    """Quantiles of selected keys are refused, and units of several groups beside a row for all others."""
    with pytest.raises(duckdb.Error, match="counts, sums and averages alone"):
        ask(calls, statement("reason, median(age) FROM calls GROUP BY reason"))
    with pytest.raises(duckdb.Error, match="units of several groups"):
        ask(calls, statement("reason, count(DISTINCT caller) FROM calls GROUP BY reason", "other = TRUE"))
    assert charges(calls) == []
