"""Expressions over bins: accepted where each bin is in one group as a whole, or only its label changes."""

from __future__ import annotations

import duckdb
import pytest

from dpduck.language.rows.facts import ImageInput
from dpduck.language.select.bin_probes import misplaces, values_to_try
from dpduck.store.sandbox import Sandbox
from dpduck.values.domain import Domain, RangeDomain, ValueDomain

WEEKS = tuple(f"2024-01-{day:02d}" for day in range(1, 30, 7))
AGES = RangeDomain("INTEGER", tuple(map(str, range(0, 100, 5))), "100", "5", "", 1, with_null=True)
DAYS = RangeDomain("DATE", WEEKS, "2024-02-05", "", "day", 7)
HOURS = RangeDomain(
    "TIMESTAMP", tuple(f"2024-01-31 {hour:02d}:00:00" for hour in range(12, 24)), "2024-02-01 00:00:00", "", "hour", 1
)
PRICES = RangeDomain("DECIMAL(6,2)", ("0.00", "2.50", "5.00", "7.50"), "10.00", "2.5", "", 1)
LENGTHS = RangeDomain("DOUBLE", ("-1.0", "-0.5", "0.0", "0.5"), "1.0", "0.5", "", 1)
SEX = ValueDomain("VARCHAR", ("f", "m"))


def refused(expression: str, **domains: Domain) -> bool:
    values = values_to_try(list(domains.values()))
    inputs = [
        ImageInput("t", name, domain.type_name, tuple(label for one in column for label in one))
        for (name, domain), column in zip(domains.items(), values, strict=True)
    ]
    with Sandbox() as box:
        return misplaces(list(domains.values()), values, box.image(expression, inputs))


@pytest.mark.parametrize(
    ("expression", "domain", "expected"),
    [
        ("t.x // 10", AGES, False),
        ("t.x // 4", AGES, True),
        ("t.x + 1", AGES, False),
        ("t.x % 2 = 0", AGES, True),
        ("CASE WHEN t.x < 50 THEN 'young' ELSE 'old' END", AGES, False),
        ("CASE WHEN t.x < 52 THEN 'young' ELSE 'old' END", AGES, True),
        ("coalesce(t.x, 0)", AGES, False),
        ("t.x IS NULL", AGES, False),
        ("date_trunc('month', t.x)", DAYS, True),
        ("dayofweek(t.x)", DAYS, True),
        ("date_trunc('week', t.x)", DAYS, False),
        ("date_trunc('year', t.x)", DAYS, False),
        ("date_trunc('day', t.x)", HOURS, False),
        ("hour(t.x) // 6", HOURS, False),
        ("minute(t.x) < 30", HOURS, True),
        ("floor(t.x / 5)", PRICES, False),
        ("round(t.x)", PRICES, True),
        ("t.x >= 0", LENGTHS, False),
        ("t.x >= 0.3", LENGTHS, True),
    ],
)
def test_a_bin_is_in_one_group(expression: str, domain: Domain, expected: bool) -> None:
    """A group that begins or ends inside a bin is refused. A new label for each bin is accepted."""
    assert refused(expression, x=domain) == expected


def test_two_columns() -> None:
    """The values of other columns are tried as they are."""
    assert not refused("t.s || (t.x // 10)", s=SEX, x=AGES)
    assert refused("t.s || (t.x // 4)", s=SEX, x=AGES)
    assert refused("t.x * 10 + t.y", x=AGES, y=AGES)


def test_probes_lie_in_their_bins() -> None:
    """Every tried value is in its bin by DuckDB, and the last value is next to the end of the bin."""
    for domain in (AGES, DAYS, HOURS, PRICES, LENGTHS):
        (column,) = values_to_try([domain])
        ends = (*domain.edges[1:], domain.upper)
        for values, low, high in zip(column, domain.edges, ends, strict=False):
            casts = ", ".join(f"CAST('{value}' AS {domain.type_name})" for value in values)
            found = duckdb.execute(f"SELECT min(v) = '{low}', max(v) < '{high}' FROM (SELECT unnest([{casts}]) AS v)")
            assert found.fetchall() == [(True, True)]
    assert values_to_try([DAYS])[0][0] == tuple(f"2024-01-{day:02d}" for day in range(1, 8))
