"""The additivity oracle: exact counts of a table are the sums of the exact counts of each privacy unit alone.

It covers rows, steps of sums, values of count(DISTINCT ..), buckets of quantiles, groups and their units, cell by cell.
A unit's own rows decide which of its rows count (MAX ROWS, max_groups_contributed), so all of these add up. Results
that are computed from counts do not add up, and are not compared: how many values are present, which bucket holds the
median, which groups are above a threshold.

Tables are laid out (dpduck.auditor.few_units) with a few units: one with NULL in every column, one with the same row
again and again, one with values or NULL. Each alone is a row group. A scan may leave out rows by the least and largest
values, the NULLs or the Bloom filters of a part of a table. It leaves out others of all units together than of each
alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pytest

from dpduck.auditor.few_units import Policies, lay_out, policies_of, units_sql
from dpduck.auditor.neighbours import require_database
from dpduck.kernel import door
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.queries.key_counts import KeyCounts
from dpduck.kernel.queries.keys import KeyStream, read_groups
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.kernel.worker.workers import Workers
from dpduck.language.text.names import TableName
from dpduck.values.quoting import quote_identifier
from tests.support.clinics import REHEARSED

MOST_PARTS = 8
"""Units beyond so many are counted together with others."""

Cells = Counter[tuple[object, ...]]


@dataclass
class Alone:
    """Databases with the public tables and, of the private tables, the rows of one privacy unit in each database.

    compared: for each counted job the counts of all units together, and the sums of the counts of each unit alone.
    """

    parts: list[duckdb.DuckDBPyConnection]
    compared: list[tuple[Cells, Cells]] = field(default_factory=list)

    def differing(self) -> list[tuple[Cells, Cells]]:
        """Returns the jobs counted so far that do not add up, and forgets all jobs."""
        found = [(whole, parts) for whole, parts in self.compared if whole != parts]
        self.compared.clear()
        return found

    def close(self) -> None:
        for part in self.parts:
            part.close()


def cells(counts: object) -> Cells:
    """Returns every number of exact counts that is not 0, by its place."""
    found: Cells = Counter()
    if isinstance(counts, ExactCounts):
        places = list(zip(*(codes.tolist() for codes in counts._exact_coordinates), strict=True))
        for number, values in enumerate(counts._exact_counts.T.tolist()):
            for table, value in enumerate(values):
                found[(*(places[number] if places else ()), table)] += value
    elif isinstance(counts, KeyCounts):
        columns = (counts._exact_high.tolist(), counts._exact_low.tolist(), counts._exact_counts.tolist())
        for high, low, value in zip(*columns, strict=True):
            found[high, low] += value
    else:
        assert isinstance(counts, KeyStream)
        with read_groups(counts._cursor, counts._job, counts._bounding_key, counts._workers) as batches:
            for row in (row for batch in batches for row in batch.to_pylist()):
                group = tuple(value for name, value in row.items() if name.startswith("dpduck_group_"))
                for name, value in row.items():
                    if not name.startswith("dpduck_group_"):
                        found[(*group, name)] += value
    return _reduced(found)


def added(parts: Sequence[Cells]) -> Cells:
    """Returns the sum of counts, which wrap at 64 bits as exact counts do."""
    total: Cells = Counter()
    for part in parts:
        for place, value in part.items():
            total[place] += value
    return _reduced(total)


def _reduced(found: Cells) -> Cells:
    return Counter({place: value % (1 << 64) for place, value in found.items() if value % (1 << 64)})


def compare(found: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares all counts behind the door from now on, except those of made-up rows in a rehearsal."""
    counting = door.counting

    def counting_twice(
        place: duckdb.DuckDBPyConnection,
        key: bytes,
        workers: Workers | None,
        *prepared: Callable[[CountingJob], CountingJob],
    ) -> Callable[[CountingJob], object]:
        counted = counting(place, key, workers, *prepared)

        def both(job: CountingJob) -> object:
            counts = counted(job)
            if key != REHEARSED:
                each = [cells(counting(part, key, workers)(job)) for part in found.parts]
                found.compared.append((cells(counts), added(each)))
            return counts

        return both

    monkeypatch.setattr(door, "counting", counting_twice)


def parts_of(
    whole: duckdb.DuckDBPyConnection, folder: Path, rows_in: duckdb.DuckDBPyConnection
) -> list[duckdb.DuckDBPyConnection]:
    """Opens databases of the same names with the public tables, and of private ones the rows of a unit or of nobody.

    rows_in: where the rows are.
    """
    private, public = policies_of(whole), require_database(whole).about.policies.public_tables()
    numbers = _numbers(rows_in, private)
    rows_in.execute(f"ATTACH '{folder}/rows.duckdb' AS dpduck_rows")
    stored = {}
    for number, table in enumerate((*private, *public)):
        rows = units_sql(private, table) if table in private else f"SELECT *, NULL AS unit_of_row FROM {table.sql}"
        stored[table] = f"dpduck_rows.rows_{number}"
        rows_in.execute(f"CREATE TABLE {stored[table]} AS {rows}")
    rows_in.execute("DETACH dpduck_rows")
    parts = []
    for number in range(max(numbers.values(), default=0) + 2):
        units = [unit for unit, of in numbers.items() if of == number]
        kept = f"unit_of_row IN ({', '.join(units)})" if units else "unit_of_row IS NULL"
        part = duckdb.connect(config={"threads": 1})
        part.execute(f"ATTACH '{folder}/rows.duckdb' AS dpduck_rows (READ_ONLY)")
        for table, rows in stored.items():
            part.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quote_identifier(table.parts[0])}")
            part.execute(f"CREATE SCHEMA IF NOT EXISTS {TableName(table.parts[:2]).sql}")
            where = f" WHERE {kept}" if table in private else ""
            part.execute(f"CREATE TABLE {table.sql} AS SELECT * EXCLUDE (unit_of_row) FROM {rows}{where}")
        part.execute("DETACH dpduck_rows")
        keep_plans_plain(part)
        parts.append(part)
    return parts


def _numbers(rows_in: duckdb.DuckDBPyConnection, private: Policies) -> dict[str, int]:
    """Numbers the units by their texts as literals. Above MOST_PARTS units share numbers."""
    found: dict[str, int] = {}
    for table in private:
        listed = (
            f"SELECT DISTINCT unit_of_row FROM ({units_sql(private, table)}) WHERE unit_of_row IS NOT NULL ORDER BY 1"
        )
        for (unit,) in rows_in.execute(listed).fetchall():
            literal = "'" + unit.replace("'", "''") + "'"
            found.setdefault(literal, len(found) % MOST_PARTS)
    return found


def plain_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants the weakness that the oracle is for: plain conditions, which DuckDB gives to a scan."""
    if not duckdb.__version__.startswith("1."):
        pytest.skip("DuckDB 2.0 counts rows of NULL by a condition that its scan is given, so that nothing is wrong")
    monkeypatch.setattr("dpduck.kernel.columns.conditions.beyond_scans", lambda condition: f"({condition})")


TAGS = count()


def tagged(statement: str) -> str:
    """Returns the statement with a fresh tag, since a repeated statement would get its earlier answer."""
    return statement.replace("OPTIONS (", f"OPTIONS (refresh = 't{next(TAGS)}', ", 1)


def in_dp(statement: str) -> str:
    """Returns SQL that asks dpduck a statement."""
    quoted = statement.replace("'", "''")
    return f"FROM dp('{quoted}')"


class Counted:
    """A connection on which everything is counted twice: over all units together, and over each unit alone.

    rows: where the rows of private tables are, if they are in an engine.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyConnection | None = None) -> None:
        self.connection, self.found = connection, Alone([])
        self.rows = connection if rows is None else rows
        self.counted, self.changed, self.done = 0, True, set[TableName]()

    def lay_out(self) -> None:
        """Lays out the tables that have a policy by now, as the docstring of this file describes."""
        lay_out(self.connection, self.done)
        self.changed = True

    def run(self, statement: str, *, tables: bool = False) -> None:
        """Runs a statement, and requires that its counts add up. tables: whether it may change tables."""
        if self.changed and not tables:
            self.found.close()
            with TemporaryDirectory() as folder:
                self.found.parts[:] = parts_of(self.connection, Path(folder), self.rows)
            self.changed = False
        self.connection.execute(statement).fetchall()
        if tables:
            self.lay_out()
        self.counted += len(self.found.compared)
        assert self.found.differing() == [], statement

    def ask(self, select: str, options: str = "") -> None:
        """Asks an annotated SELECT, given without its clause."""
        self.run(in_dp(tagged(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.001{options}) {select}")))

    def close(self) -> None:
        self.found.close()
        self.connection.close()
