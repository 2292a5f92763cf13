"""The keyed hash covers every field, and no two rows are written alike."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpduck.kernel.ledger.entries import (
    GENESIS,
    LedgerRow,
    datetime_of,
    microseconds_of,
    require_next,
    row_hash,
    seal_row,
)
from dpduck.values.errors import StoreError

KEY = b"k" * 32
ROW = LedgerRow(1, 0, "p", "u", "t", "s", "m", None, "1/2", "0/1", None, GENESIS, "")
TEXTS = st.text(max_size=3)
ROWS = st.builds(
    LedgerRow,
    *(st.integers(0, 3), st.integers(0, 3), TEXTS, TEXTS, TEXTS, TEXTS, TEXTS),
    *(st.none() | TEXTS, TEXTS, TEXTS, st.none() | TEXTS, TEXTS, st.just("")),
)


@given(ROWS, ROWS)
def test_different_rows_have_different_hashes(one: LedgerRow, other: LedgerRow) -> None:
    """Rows that differ in where a field ends, or in an absent and an empty field, have different hashes."""
    assert (row_hash(KEY, "store", one) == row_hash(KEY, "store", other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ROW._replace(principal="ab", unit_key="c"), ROW._replace(principal="a", unit_key="bc")),
        (ROW._replace(epsilon=None), ROW._replace(epsilon="")),
        (ROW._replace(epsilon=None), ROW._replace(epsilon="n")),
        (ROW._replace(principal="1:u"), ROW._replace(principal="1", unit_key="u1:u")),
    ],
)
def test_rows_that_look_alike_do_not_hash_alike(one: LedgerRow, other: LedgerRow) -> None:
    assert row_hash(KEY, "store", one) != row_hash(KEY, "store", other)


def test_the_key_and_the_store_are_part_of_the_hash() -> None:
    """A row of one store is no row of another, and without the key there is no hash."""
    hashes = {row_hash(KEY, "one", ROW), row_hash(KEY, "two", ROW), row_hash(b"other", "one", ROW)}
    assert len(hashes) == 3


@pytest.mark.parametrize("field", [name for name in LedgerRow._fields if name != "id"])
def test_every_field_is_verified(field: str) -> None:
    """A sealed row is accepted as it is, and refused with any one field changed."""
    row = seal_row(KEY, "store", ROW)
    require_next(KEY, "store", row, 0, GENESIS)
    changed = [(7 if name == "at" else "x") if name == field else kept for name, kept in row._asdict().items()]
    with pytest.raises(StoreError, match="ledger entry 1 is not what was written"):
        require_next(KEY, "store", LedgerRow._make(changed), 0, GENESIS)


def test_the_order_is_verified() -> None:
    """A sealed row is refused at another place of the chain."""
    row = seal_row(KEY, "store", ROW)
    with pytest.raises(StoreError, match="ledger entry 2 is missing"):
        require_next(KEY, "store", row, 1, GENESIS)
    with pytest.raises(StoreError, match="ledger entry 1 is not"):
        require_next(KEY, "store", row, 0, "1" * 64)


def test_moments_are_exact_to_the_microsecond() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert datetime_of(microseconds_of(moment)) == moment
