"""Prices of pairs of statements for each period, by an oracle that enumerates days with Python's dates alone.

A condition is random, of comparisons that public facts decide and of others. The oracle tries each day and keeps the
first and the last one that may meet the condition, as docs/monthly.md says of WHERE. Days of long ago and of far off
stand for periods without an end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import count

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import dpduck
from tests.support.clinics import Clinic

FIRST, LAST = date(2023, 12, 1), date(2025, 2, 28)
LONG_AGO, FAR_OFF = date(1, 1, 1), date(9998, 12, 31)
DAYS = [LONG_AGO, *(FIRST + timedelta(days=day) for day in range((LAST - FIRST).days + 1)), FAR_OFF]
STARTS: dict[str, Callable[[date], date]] = {
    "DAY": lambda day: day,
    "WEEK": lambda day: date.fromisocalendar(*day.isocalendar()[:2], 1),
    "MONTH": lambda day: day.replace(day=1),
    "QUARTER": lambda day: date(day.year, 3 * ((day.month - 1) // 3) + 1, 1),
    "YEAR": lambda day: date(day.year, 1, 1),
}
SIGNS: dict[str, Callable[[date, date], bool]] = {
    "=": lambda one, other: one == other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
Span = tuple[date, date] | None
EVERY: Span = (LONG_AGO, FAR_OFF)
PRICES = (2, 3)


@dataclass(frozen=True)
class Condition:
    """SQL of a condition, with the first and the last day that may meet it, or None where no day does."""

    sql: str
    span: Span


def met(sql: str, holds: Callable[[date], bool]) -> Condition:
    """Returns a condition that periods decide, with the days for which it holds."""
    found = [day for day in DAYS if holds(day)]
    return Condition(sql, (found[0], found[-1]) if found else None)


def both(one: Span, other: Span) -> Span:
    if one is None or other is None:
        return None
    first, last = max(one[0], other[0]), min(one[1], other[1])
    return (first, last) if first <= last else None


def either(one: Span, other: Span) -> Span:
    found = [span for span in (one, other) if span is not None]
    return (min(span[0] for span in found), max(span[1] for span in found)) if found else None


def compared(sign: str, day: date, turned: bool) -> Condition:
    sql = f"DATE '{day}' {TURNED[sign]} came" if turned else f"came {sign} '{day}'"
    return met(sql, lambda one: SIGNS[sign](one, day))


def truncated(word: str, sign: str, day: date) -> Condition:
    start = STARTS[word](day)
    sql = f"date_trunc('{word.lower()}', came) {sign} DATE '{start}'"
    return met(sql, lambda one: SIGNS[sign](STARTS[word](one), start))


def between(low: date, high: date) -> Condition:
    return met(f"came BETWEEN '{low}' AND '{high}'", lambda one: low <= one <= high)


def among(days: list[date]) -> Condition:
    listed = ", ".join(f"DATE '{day}'" for day in days)
    return met(f"came IN ({listed})", lambda one: one in days)


def of_year(sign: str, year: int) -> Condition:
    return met(f"year(came) {sign} {year}", lambda one: SIGNS[sign](date(one.year, 1, 1), date(year, 1, 1)))


NEAR = st.dates(date(2024, 1, 1), date(2024, 12, 31))
UNDECIDED = [
    Condition(sql, EVERY)
    for sql in (
        "ward = 'a'", "month(came) = 3", "came <> '2024-03-01'", "NOT came >= '2024-03-01'", "came <= left_at",
        "came + INTERVAL 1 DAY < DATE '2024-03-01'", "came IS NOT NULL",
    )
]  # fmt: skip
CONDITIONS = st.recursive(
    st.one_of(
        st.builds(compared, st.sampled_from(sorted(SIGNS)), NEAR, st.booleans()),
        st.builds(truncated, st.sampled_from(sorted(STARTS)), st.sampled_from(sorted(SIGNS)), NEAR),
        st.builds(between, NEAR, NEAR),
        st.builds(among, st.lists(NEAR, min_size=1, max_size=3)),
        st.builds(of_year, st.sampled_from(sorted(SIGNS)), st.just(2024)),
        st.sampled_from(UNDECIDED),
    ),
    lambda inner: st.one_of(
        st.builds(lambda a, b: Condition(f"({a.sql} AND {b.sql})", both(a.span, b.span)), inner, inner),
        st.builds(lambda a, b: Condition(f"({a.sql} OR {b.sql})", either(a.span, b.span)), inner, inner),
    ),
    max_leaves=4,
)
OF_DOMAIN: Span = (date(2024, 1, 1), date(2024, 12, 31))
KEYS = {"ward": EVERY, "came": OF_DOMAIN, "came, ward": OF_DOMAIN}
ASKED = st.tuples(CONDITIONS, st.sampled_from(sorted(KEYS)))
TABLES = count()


@pytest.fixture(scope="module")
def clinic() -> Iterator[Clinic]:
    found = Clinic(dpduck.connect(config={"threads": 1}))
    found.con.execute(
        "CREATE TABLE source AS SELECT i % 9 AS person, DATE '2023-12-01' + CAST(i * 11 % 450 AS INTEGER) AS came, "
        "DATE '2024-06-01' AS left_at, ['a', 'b'][i % 2 + 1] AS ward FROM range(300) AS r(i)"
    )
    yield found
    found.con.close()


def spent(clinic: Clinic, table: str, word: str) -> dict[date, float]:
    """Returns the spent amounts by dp_budget() for the period of each day."""
    found = dict.fromkeys(DAYS, 0.0)
    for label, amount in clinic.rows(f"SELECT period, spent FROM dp_budget() WHERE table_name = '{table}'"):
        if label.startswith("any other"):
            continue
        ends = [date.fromisoformat((text + "-01-01")[:10]) for text in label.split(" to ") if label[:5] != "every"]
        low, high = (ends[0], ends[-1]) if ends else (LONG_AGO, FAR_OFF)
        for day in DAYS:
            if low <= STARTS[word](day) <= high:
                assert found[day] == 0, "a period is listed twice"
                found[day] = amount
    return found


@pytest.mark.slow
@settings(
    max_examples=15, deadline=None, phases=[Phase.generate]
)  # a failure is shown as it is: to shrink it takes minutes
@given(word=st.sampled_from(sorted(STARTS)), pair=st.tuples(ASKED, ASKED))
def test_random_pairs_of_conditions(
    clinic: Clinic, word: str, pair: tuple[tuple[Condition, str], tuple[Condition, str]]
) -> None:
    """Two statements cost the larger price in a period that one reads, and the sum in a common period. An undecided
    condition costs every period. A condition that no row can meet is refused, and costs nothing."""
    table = f"t{next(TABLES)}"
    clinic.con.execute(f"CREATE TABLE {table} AS FROM source")
    clinic.dp(
        f"CREATE PRIVACY POLICY ON {table} (PRIVACY UNIT person PER {word} OF came MAX ROWS 2, "
        f"BUDGET (epsilon = 5) PER {word}, DOMAIN ward IN ('a', 'b'), "
        "DOMAIN came RANGE 2024-01-01 TO 2025-01-01 STEP MONTH)"
    )
    expected, costs = dict.fromkeys(DAYS, 0), []
    for price, (condition, key) in zip(PRICES, pair, strict=True):
        text = (
            f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {price}) {key}, count(*) AS n FROM {table} "
            f"WHERE {condition.sql} GROUP BY {key}"
        )
        span = both(condition.span, KEYS[key])
        if span is None:
            assert "no row could meet the conditions" in clinic.refused(text)
            continue
        clinic.dp(text)
        first, last = map(STARTS[word], span)
        costs.append({day for day in DAYS if first <= STARTS[word](day) <= last})
        for day in costs[-1]:
            expected[day] += price
    found = spent(clinic, table, word)
    assert found == expected
    if len(costs) == 2:
        assert max(found.values()) == (sum(PRICES) if costs[0] & costs[1] else max(PRICES))
    clinic.dp(f"DROP PRIVACY POLICY ON {table}")
    clinic.con.execute(f"DROP TABLE {table}")
