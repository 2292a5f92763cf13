"""Statements over every kind of privacy unit have the requests, prices and counts of before the kernel was rebuilt."""

from __future__ import annotations

import duckdb
import pytest

from tests.database.corpus import KEYS, STATEMENTS, opened
from tests.database.corpus_pins import Pin, changed, pinned, pins

FIELDS = ("digest", "ledger", "columns", "sql")
ORDER_IS_THAT_OF_THE_PINS = duckdb.__version__.startswith("1.")
"""Another DuckDB hashes otherwise, so that it keeps other rows of a unit with more than MAX ROWS."""


def require_counts(found: dict[str, Pin], expected: dict[str, Pin]) -> None:
    """Requires the pinned counts. With another order of rows, compares only statements that no key moves."""
    compared = {text: pin for text, pin in found.items() if ORDER_IS_THAT_OF_THE_PINS or expected[text]["any key"]}
    assert changed(compared, expected, ["counts"]) == []


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_is_as_it_was(name: str) -> None:
    """Digests, rows of the ledger, columns, SQL over answers and exact counts are those that are pinned."""
    with opened() as connection:
        found = pins(connection, STATEMENTS[name])
    expected = pinned(name)
    assert list(found) == STATEMENTS[name] and set(found) == set(expected)
    assert changed(found, expected, FIELDS) == []
    require_counts(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", STATEMENTS)
def test_prepared_tables_count_the_same(name: str) -> None:
    """Exact counts of prepared rows equal those of the tables, also where rows are left out. Streams read tables."""
    statements = [text for text in STATEMENTS[name] if "PRIVATE STREAM" not in text]
    with opened(prepared=True) as connection:
        found = pins(connection, statements)
    assert len(found) == len(statements) > 15
    require_counts(found, pinned(name))


def test_another_order_of_rows_is_noticed() -> None:
    """Another key keeps other rows of the same units: that is seen in the counts, and marked in the pins."""
    with opened(KEYS[1]) as connection:
        found = pins(connection, STATEMENTS["bounds"])
    expected = pinned("bounds")
    moved = {text for text, pin in found.items() if pin["counts"] != expected[text]["counts"]}
    assert moved == {text for text, pin in expected.items() if not pin["any key"]} or not ORDER_IS_THAT_OF_THE_PINS
    assert len(moved) > 10


def test_the_corpus_is_broad() -> None:
    """At least 220 statements, and nearly all count rows. Some keep a part of a unit's rows."""
    every = [pin for name in STATEMENTS for pin in pinned(name).values()]
    assert len(every) >= 220
    assert sum(bool(pin["counts"]) for pin in every) >= 215
    assert sum(not pin["any key"] for pin in every) > 20
    assert sum(bool(pin["digest"]) for pin in every) >= 215
