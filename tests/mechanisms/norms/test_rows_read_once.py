"""A statement with norms reads its rows once, and the tables that hold their sums are gone before an answer is seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.kernel import loss
from dpduck.kernel.counting import unit_cells
from dpduck.kernel.counting.unit_cells import CELLS, SUMS, UnitCells
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.rows import reader
from tests.support.clinics import REHEARSED, Clinic

POLICY = (
    "CREATE PRIVACY POLICY ON trips (PRIVACY UNIT person MAX ROWS 200, BUDGET (rho = 1000), "
    "DOMAIN month RANGE 0 TO 24 STEP 1, CLAMP price BETWEEN -10 AND 90 STEP 1)"
)
ROWS = (
    "CREATE TABLE trips AS SELECT (range * range) % 1510 AS person, CAST(range * 31 % 24 AS INTEGER) AS month, "
    "range * 13 % 120 - 15 AS price FROM range(20000)"
)
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = {}) month, {} FROM trips{} GROUP BY month"
TABLES = "SELECT count(*) FROM duckdb_tables() WHERE temporary"
SELECTS = (
    "count(*) AS n",
    "count(*) AS n, sum(abs(price), contribution_bounds_per_row => (0, 90)) AS s",
    "count(DISTINCT person) AS p",
    "count(*) AS n, avg(price) AS a",
)


class Seen:
    """Cursors that count, their SQL over private rows, and the number of tables when an answer was stored."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.cursors: list[duckdb.DuckDBPyConnection] = []
        self.sent: list[str] = []
        self.kept: list[Any] = []
        made, end = UnitCells.__init__, Ledger.end

        def init(cells: UnitCells, cursor: duckdb.DuckDBPyConnection, key: bytes, workers: Any) -> None:
            self.cursors += [cursor] if key != REHEARSED else []
            made(cells, cursor, key, workers)

        def ended(ledger: Ledger, *given: Any) -> None:
            self.kept += [tables(cursor) for cursor in self.cursors]
            end(ledger, *given)

        patch.setattr(UnitCells, "__init__", init)
        patch.setattr(Ledger, "end", ended)
        for name in ("run", "columns", "record_batches"):
            patch.setattr(reader, name, self._noted(getattr(reader, name)))

    def _noted(self, work: Any) -> Any:
        def read(cursor: duckdb.DuckDBPyConnection, sql: str, *more: Any) -> Any:
            self.sent += [sql] if any(cursor is one for one in self.cursors) else []
            return work(cursor, sql, *more)

        return read


def tables(cursor: duckdb.DuckDBPyConnection) -> int:
    """The temporary tables of a cursor, none where it was closed."""
    try:
        ((found,),) = cursor.execute(TABLES).fetchall()
    except duckdb.ConnectionException:
        return 0
    return int(found)


@pytest.fixture(params=["live", "prepared"])
def trips(request: pytest.FixtureRequest) -> Iterator[Clinic]:
    with dpduck.connect() as connection:
        made = Clinic(connection)
        made.con.execute(ROWS)
        made.dp(POLICY)
        if request.param == "prepared":
            made.dp("ALTER PRIVACY POLICY ON trips PREPARE")
        yield made


def test_rows_are_read_once(trips: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are read once for any answers and norms, after the centres. Tables are gone when an answer is stored."""
    for select in SELECTS:
        with monkeypatch.context() as patch:
            seen = Seen(patch)
            assert len(trips.dp(ASK.format(1, select, " WHERE price > -5"))) == 24
        readings = [sql for sql in seen.sent if '"r0".' in sql]
        made = [sql.partition(" AS ")[0] for sql in seen.sent if sql.startswith("CREATE")]
        assert len(readings) == 1, readings
        assert sorted(made) == [f"CREATE OR REPLACE TEMP TABLE {table}" for table in (CELLS, SUMS)]
        assert seen.kept and set(seen.kept) == {0}


def test_no_table_is_left_of_a_count_that_failed(trips: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error tells nothing of what failed, and the cursor of the count is closed."""
    before = trips.charges()
    with monkeypatch.context() as patch:
        seen = Seen(patch)
        plain, fails = loss.level_counts_sql, "SELECT error('a row') FROM range(1)"
        patch.setattr(unit_cells, "level_counts_sql", lambda *given: fails if seen.cursors else plain(*given))
        with pytest.raises(duckdb.Error) as caught:
            trips.dp(ASK.format(2, "count(*) AS n", ""))
    assert "a row" not in str(caught.value) and "aborted" not in str(caught.value)
    assert trips.charges() == before + 1
    assert {tables(cursor) for cursor in seen.cursors} == {0}
    assert len(trips.dp(ASK.format(3, "count(*) AS n", ""))) == 24


def test_nothing_is_added_up_of_a_refused_statement(trips: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the budget no row is read."""
    seen = Seen(monkeypatch)
    trips.refused(ASK.format(10**6, "count(*) AS n", ""))
    assert not any("TEMP TABLE" in sql for sql in seen.sent)
    assert {tables(cursor) for cursor in seen.cursors} <= {0}
