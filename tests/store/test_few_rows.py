"""A small released table is written as SQL, with exactly its values."""

from __future__ import annotations

import math
from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest

from dpduck.store import layout
from dpduck.store import releases as module
from dpduck.store.releases import ReleaseStore, StoredRelease

COLUMNS = [("a", "DOUBLE"), ("b", "BIGINT"), ("c", "VARCHAR"), ("d", "HUGEINT"), ("e", "INTEGER")]
ROWS = pa.table({
    "a": pa.array([0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, None]),
    "b": pa.array([2**63 - 1, -(2**63), 0, 1, 2, 3, 4, None]),
    "c": pa.array(["it's", "a\0b", "", "7", "$1 ?", "nan", "\\", None]),
    "d": pa.array(["170141183460469231731687303715884105727", "-1", "0", "1", "2", "3", "4", None]),
    "e": pa.array([-(2**31), 2**31 - 1, 0, 1, 2, 3, 4, None], pa.int32()),
})  # fmt: skip


def stored(rows: pa.Table) -> list[tuple[object, ...]]:
    """Returns the release with these rows as it is read from the store."""
    release = StoredRelease(
        "release_1", "0", "", "I", Fraction(1), Fraction(0), Fraction(1), 0, "owner", 1, (), "answer"
    )
    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS private")
        store = ReleaseStore(connection.cursor, "private")
        layout.create_tables(connection.cursor(), "private")
        values = store.put_table(release, COLUMNS, rows)
        assert bool(values) == (0 < rows.num_rows < 8)
        if values:  # a SELECT of the same types and values, for transactions that began before
            for asked_of in ("DESCRIBE", "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM"):
                of_table = connection.execute(f"{asked_of} (FROM private.main.release_1)").fetchall()
                assert connection.execute(f"{asked_of} ({values})").fetchall() == of_table
        assert [found.rows for found, _ in store.all()] == [rows.num_rows]
        asked = store.find_outcome("0")
        assert asked.release is not None
        assert asked.there
        return connection.execute("FROM private.main.release_1").fetchall()


def test_rows_that_are_written_are_those_that_are_read_from_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubles keep every bit, and so do the ends of integers, texts with quotes, marks and NUL, and NULLs."""
    assert ROWS.num_rows * ROWS.num_columns <= module.FEW
    written = stored(ROWS)
    monkeypatch.setattr(module, "FEW", 0)
    assert [list(map(repr, row)) for row in written] == [list(map(repr, row)) for row in stored(ROWS)]
    assert [row[0] for row in written] == ROWS.column("a").to_pylist()
    assert math.copysign(1, float(str(written[2][0]))) == -1


def test_few_rows_without_a_nul_are_a_select_too() -> None:
    """Few rows without a NUL byte are a SELECT as well. A text with NUL has no literal."""
    assert len(stored(pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(2)]))) == 7


def test_no_row_and_many_rows_are_stored() -> None:
    """Tables without rows, and with more values than are written as SQL, are stored too."""
    assert stored(ROWS.slice(0, 0)) == []
    assert len(stored(pa.concat_tables([ROWS] * 40))) == 320
