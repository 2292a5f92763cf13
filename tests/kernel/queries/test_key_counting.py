"""Counts by private keys: a bound and the unit's own rows decide what one unit adds, and texts are bytes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernel.queries.keyed import Group, Row, grouped, groups_in, job_of, load

REASONS = st.sampled_from(["a", "A", "b", "", "ä", "a\u0308", None, "x" * 5000, "nul\x00l", "nul"])
ROWS = st.lists(st.tuples(st.integers(0, 4), REASONS, st.sampled_from(["F", "M", "?", None])), max_size=24)


def added(parts: list[dict[Group, tuple[int, ...]]]) -> dict[Group, tuple[int, ...]]:
    """Returns the sum of tables, group by group."""
    total: dict[Group, Counter[int]] = {}
    for part in parts:
        for group, counts in part.items():
            total.setdefault(group, Counter()).update(dict(enumerate(counts)))
    return {group: tuple(counts[number] for number in range(3)) for group, counts in total.items()}


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, groups=st.integers(1, 4), max_rows=st.integers(1, 5), by_sex=st.booleans(), key=st.binary(min_size=1))
def test_units_add_up_and_are_bounded(rows: list[Row], groups: int, max_rows: int, by_sex: bool, key: bytes) -> None:
    """The counts of a table are the sums over its units alone, so neighbours differ by one unit. A unit is in at most C
    groups with at most m rows, and counts once in each."""
    job = job_of(groups, max_rows, by_sex=by_sex)
    units = {row[0] for row in rows}
    alone = [grouped([row for row in rows if row[0] == unit], job, key) for unit in units]
    assert grouped(rows, job, key) == added(alone)
    assert grouped(rows[::-1], job, key) == added(alone)
    for part in alone:
        assert len(part) <= min(groups, max_rows)
        assert sum(counts[1] for counts in part.values()) <= max_rows
        assert all(counts[0] == 1 and counts[2] <= counts[1] for counts in part.values())


@settings(max_examples=30, deadline=None)
@given(rows=ROWS)
def test_without_bounds_it_is_group_by(rows: list[Row]) -> None:
    """Without bounds, counts are those of GROUP BY over the bytes of the text, and NULL is a separate group."""
    found = grouped(rows, job_of(30, 30))
    expected = Counter(None if reason is None else reason.encode() for _, reason, _ in rows)
    units = {(reason, unit) for unit, reason, _ in rows}
    assert {group[0]: counts[1] for group, counts in found.items()} == expected
    assert {group[0]: counts[0] for group, counts in found.items()} == Counter(
        None if reason is None else reason.encode() for reason, _ in units
    )


def test_bounds_do_not_prefer_one_group_for_all() -> None:
    """The kept groups differ between units: each of four groups keeps its share of 2,000 units.

    A share is Binomial(2000, 1/2): it is 8 standard deviations off with probability below 1e-14.
    """
    rows: list[Row] = [(unit, reason, "F") for unit in range(2000) for reason in "abcd"]
    found = grouped(rows, job_of(2, 4))
    assert sum(counts[0] for counts in found.values()) == 4000
    assert all(abs(counts[0] - 1000) < 8 * 500**0.5 for counts in found.values())
    assert grouped(rows, job_of(2, 4), b"another key") != found


def test_bounds_on_groups_come_before_those_on_rows() -> None:
    """A unit's C groups are chosen among all groups of the unit, and its rows are cut within the chosen ones."""
    rows: list[Row] = [(1, reason, "F") for reason in "abc" for _ in range(10)]
    (counts,) = grouped(rows, job_of(1, 4)).values()
    assert counts == (1, 4, 4)


@pytest.mark.parametrize("collation", ["NOCASE", "NOACCENT", "NFC"])
def test_collations_do_not_mix_spellings(collation: str) -> None:
    """Texts that a collation calls equal are separate groups: else one person's spelling could be shown for all."""
    rows: list[Row] = [(1, "Smith", "F"), (2, "smith", "F"), (3, "smíth", "F"), (4, "smi\u0301th", "M")]
    load(rows)
    expected = grouped(rows, job_of())
    connection = load(rows, f"unit BIGINT, reason VARCHAR COLLATE {collation}, sex VARCHAR")
    found = groups_in(connection, job_of())
    assert found.keys() == expected.keys()
    assert len(found) == 4


def test_a_session_collation_does_not_mix_spellings() -> None:
    """A default collation of the connection merges no spellings either."""
    rows: list[Row] = [(1, "Smith", "F"), (2, "smith", "F")]
    connection = load(rows)
    connection.execute("SET default_collation = 'nocase'")
    try:
        assert len(grouped(rows, job_of())) == 2
    finally:
        connection.execute("RESET default_collation")


def test_rows_without_a_unit_or_outside_a_domain_are_dropped() -> None:
    """Rows without a unit are dropped, and rows outside a declared domain are dropped before bounding."""
    rows: list[Row] = [(None, "a", "F"), (1, "a", "?"), (1, "b", "M"), (2, "b", None)]
    assert grouped(rows, job_of(1, 1, by_sex=True)) == {(1, b"b"): (1, 1, 0)}


def test_rows_are_units() -> None:
    """Without a unit's column every row counts, NULL or not, and rows are not bounded."""
    rows: list[Row] = [(None, "a", "F"), (1, "a", "M"), (1, None, "M")]
    assert grouped(rows, job_of(1, 1, unit_sql=None)) == {(b"a",): (2, 2, 1), (None,): (1, 1, 0)}
