"""Both forms of the SQL that bounds keep the same rows, whatever the unit's type, and whichever unit has too many."""

from __future__ import annotations

import duckdb
import pytest

from dpduck.kernel.rows import bounding
from dpduck.kernel.rows.bounding import ORDER, UNIT, bound_rows_sql

UNITS = {
    "INTEGER": "n",
    "VARCHAR": "'unit ' || n",
    "VARCHAR COLLATE NOCASE": "['a', 'A', 'b', 'B', 'c'][n % 5 + 1] || n // 10",
    "DOUBLE": "['NaN', '0.0', '-0.0', 'inf', '1'][n % 5 + 1]::DOUBLE + n // 20",
    "STRUCT(a INTEGER, b VARCHAR)": "{'a': n // 2, 'b': CASE WHEN n % 2 = 1 THEN 'x' END}",
    "INTERVAL": "[INTERVAL 1 MONTH, INTERVAL 30 DAYS, INTERVAL 2 MONTHS][n % 3 + 1] + n // 9 * INTERVAL 1 HOUR",
}
# unit n has about n rows, and few hashes, so that outputs decide ties
ROWS = f"SELECT u AS {UNIT}, hash(i, n) % 16 AS {ORDER}, hash(i) % 7 AS cell, hash(n, i) % 3 AS flag FROM t"
OUTPUTS = ["cell", "flag"]


def kept(connection: duckdb.DuckDBPyConnection, max_rows: int) -> list[tuple[int, ...]]:
    return sorted(connection.execute(bound_rows_sql(ROWS, OUTPUTS, max_rows)).fetchall())


@pytest.mark.parametrize("unit", UNITS)
def test_both_forms_keep_the_same_rows(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting a unit's rows first changes none of the kept rows, and both forms treat the same units as equal."""
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute(f"CREATE TABLE t (u {unit}, n INTEGER, i INTEGER)")
        connection.execute(
            f"INSERT INTO t SELECT {UNITS[unit]}, n, i FROM range(60) AS a(n), range(60) AS b(i) WHERE i <= n"
        )
        for max_rows in (1, 5, 20, 59, 200):
            monkeypatch.setattr(bounding, "COUNTED_FIRST", 1 << 60)
            expected = kept(connection, max_rows)
            monkeypatch.setattr(bounding, "COUNTED_FIRST", 1)
            assert kept(connection, max_rows) == expected
            most = "SELECT sum(least(n, ?)) FROM (SELECT count(*) AS n FROM t GROUP BY u)"
            assert connection.execute(most, [max_rows]).fetchall() == [(len(expected),)]


def test_a_unit_with_too_many_rows_does_not_touch_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept rows of a unit are the same with and without another unit's rows, however many those are."""
    monkeypatch.setattr(bounding, "COUNTED_FIRST", 1)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT n AS u, n, i FROM range(40) AS a(n), range(9) AS b(i)")
        alone = kept(connection, 4)
        connection.execute("INSERT INTO t SELECT 99, 99, i FROM range(5000) AS b(i)")
        more = kept(connection, 4)
        for row in alone:
            more.remove(row)
        assert len(more) == 4


def test_few_rows_a_unit_are_not_counted_first() -> None:
    """The public bound alone decides the form."""
    assert "dpduck_crowded" not in bound_rows_sql(ROWS, OUTPUTS, bounding.COUNTED_FIRST - 1)
    assert "dpduck_crowded" in bound_rows_sql(ROWS, OUTPUTS, bounding.COUNTED_FIRST)
