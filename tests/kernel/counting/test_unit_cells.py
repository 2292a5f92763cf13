"""Rows are added up once by unit and cell. Each count over these sums equals the count that reads rows by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting import unit_cells
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.counting.jobs import Attribute, CountingJob
from dpduck.kernel.counting.unit_cells import CELLS, SUMS, UnitCells, drop_unit_cells, is_shared
from dpduck.kernel.relations import Source, Stored
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.kernel.worker.workers import Workers
from dpduck.values.domain import ValueDomain
from dpduck.values.errors import InternalError
from tests.kernel.rows.test_no_scan_filters import Watch
from tests.support.nodes import adds, columns_of, compiled, counts, key, own

TABLE = '"memory"."main"."visits"'
WARD, AGE = ValueDomain("VARCHAR", ("a", "b", "c"), with_null=True), ValueDomain("INTEGER", ("0", "1", "2", "3", "4"))
TYPES = {'"r0"."ward"': "VARCHAR", '"r0"."age"': "INTEGER", '"r0"."score"': "INTEGER"}
SCORE = '"r0"."score"'
SUM = adds("", "sum", SCORE, Fraction(-3), Fraction(9), 12)
WIDE = adds("", "sum", SCORE, Fraction(0), Fraction(1 << 36), 1 << 36)
WRITTEN = (
    adds(""),
    adds(f"{SCORE} > 3"),
    SUM,
    adds("", "valued", SCORE, Fraction(-3), Fraction(9), 12, shared=True),
    replace(SUM, centre=Fraction(4)),
    replace(SUM, form="squares", centre=Fraction(4)),
    replace(SUM, condition=own(f"{SCORE} > 1")),
    adds(f"{SCORE} > 5", "sum", per_group="sum"),
    WIDE,
)
EVERY = tuple(compiled(one, columns_of(TYPES)) for one in WRITTEN)
"""Counts, sums of both signs, three about a centre, persons, and numbers that need HUGEINT."""

WORKED = compiled(adds(f"sqrt(abs({SCORE})) < 2"), columns_of(TYPES))
"""A condition that a worker decides."""


def make_table(connection: duckdb.DuckDBPyConnection, unit: str, seed: int, longest: int) -> None:
    """Makes rows of units with a heavy tail, without a unit, without a score, and in and out of the domains."""
    connection.execute(
        f"CREATE OR REPLACE TABLE visits AS SELECT CAST(nullif(n, 7) AS {unit}) AS unit, "
        f"['a', 'b', 'c', 'd', NULL][1 + (hash(i, n, {seed}) % 5)::INTEGER] AS ward, "
        f"(hash(i, n, 1, {seed}) % 6)::INTEGER AS age, nullif((hash(i, {seed}) % 15)::INTEGER - 4, 2) AS score "
        f"FROM range(300) AS u(n), range({longest}) AS r(i) WHERE i < 1 + {longest} // (1 + hash(n, {seed}) % 100) "
        f"ORDER BY hash(i, n, {seed}, 2)"
    )


def job_of(
    unit: str, max_rows: int, aggregates: Sequence[Contribution] = EVERY, where: tuple[str, ...] = ()
) -> CountingJob:
    types = {**TYPES, '"r0"."unit"': unit}
    keys = key('"r0"."ward"', WARD), key('"r0"."age"', AGE)
    attributes = tuple(Attribute((n,), np.arange(one.domain.size), one.domain.size) for n, one in enumerate(keys))
    bare = tuple(replace(one, shared=False) for one in aggregates)
    return counts(
        Source(Stored(TABLE, "r0")), where, '"r0"."unit"', max_rows, tuple(types), keys, attributes,
        bare, types, beside=bare,
    )  # fmt: skip


def jobs_of(base: CountingJob, aggregates: Sequence[Contribution]) -> Iterator[CountingJob]:
    """Lists the counts of a statement: rows, levels and answers within norms, by cell and of all cells together."""
    yield base
    for one in base.aggregates:
        yield replace(base, aggregates=(one,), levels=60, spread=4)
    for norm in (1, 900, 1 << 41, 1 << 50):
        yield replace(base, aggregates=tuple(replace(one, norm=norm) for one in aggregates))
    for one in base.aggregates:
        together = replace(base, aggregates=(one,), attributes=(), together=True)
        yield replace(together, levels=60)
        for norm in (1, 900, 1 << 41):
            yield replace(together, aggregates=(replace(one, norm=norm),))


def cells(counts: ExactCounts) -> dict[tuple[int, ...], int]:
    """Returns the integers of all tables that are not 0, by table and cell."""
    codes, found = np.array(counts._exact_coordinates, np.int64), Counter[tuple[int, ...]]()
    for number, table in enumerate(counts._exact_counts):
        places = codes.T.tolist() if len(codes) else [[]] * len(table)
        for place, value in zip(places, table.tolist(), strict=True):
            found[number, *place] += value
    return {place: value for place, value in found.items() if value}


def told(counts: ExactCounts, job: CountingJob) -> dict[tuple[int, ...], int]:
    """Returns the counts by cell. Of levels it leaves out the first, which nobody reads."""
    found = cells(counts)
    return {place: value for place, value in found.items() if place[1]} if job.levels else found


@pytest.fixture(params=[1, 2, 8])
def connection(request: pytest.FixtureRequest) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": request.param}) as found:
        keep_plans_plain(found)
        yield found


@pytest.mark.parametrize("unit", ["BIGINT", "VARCHAR"])
def test_each_count_is_as_if_it_read_rows_alone(connection: duckdb.DuckDBPyConnection, unit: str) -> None:
    """The shared counts equal counts from rows cell by cell, for random tables, bounds and orders of counting."""
    for seed, max_rows, where in ((1, 1000, ()), (2, 40, (f"{SCORE} <> 0",)), (3, 3, ())):
        make_table(connection, unit, seed, 120)
        jobs = list(jobs_of(job_of(unit, max_rows, where=where), EVERY))
        for number in np.random.default_rng(seed).permutation(len(jobs)):
            jobs.append(jobs.pop(number))
        with connection.cursor() as cursor:
            reader.begin(cursor)
            shared = UnitCells(cursor, b"key", None)
            for job in jobs:
                assert shared.serves(job)
                alone = count_exactly(cursor, replace(job, beside=()), b"key")
                assert told(shared.counts(job), job) == told(alone, job), (seed, max_rows, job)


def test_the_order_of_rows_changes_no_count(connection: duckdb.DuckDBPyConnection) -> None:
    """Rows in another order have the same sums, since the sums of each unit are whole numbers."""
    jobs, found = list(jobs_of(job_of("BIGINT", 40), EVERY)), list[list[dict[tuple[int, ...], int]]]()
    make_table(connection, "BIGINT", 5, 200)
    for seed in range(2):
        connection.execute(f"CREATE OR REPLACE TABLE visits AS FROM visits ORDER BY hash(rowid, {seed})")
        with connection.cursor() as cursor:
            reader.begin(cursor)
            shared = UnitCells(cursor, b"key", None)
            found.append([cells(shared.counts(job)) for job in jobs])
    assert found[0] == found[1]


def test_rows_that_a_worker_answers_are_shared_too() -> None:
    """Rows that a worker answers are read once for all counts, and each count equals the one that reads them itself."""
    aggregates = (*EVERY[:3], WORKED)
    with duckdb.connect(config={"threads": 2}) as connection, closing(Workers()) as workers:
        keep_plans_plain(connection)
        make_table(connection, "BIGINT", 6, 60)
        with connection.cursor() as cursor:
            reader.begin(cursor)
            shared = UnitCells(cursor, b"key", workers)
            for job in jobs_of(job_of("BIGINT", 40, aggregates), aggregates):
                alone = count_exactly(cursor, replace(job, beside=()), b"key", workers)
                assert told(shared.counts(job), job) == told(alone, job)


def test_no_plan_gives_a_condition_to_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """No scan is given a condition, over the rows or over the tables of sums."""
    with duckdb.connect() as connection:
        keep_plans_plain(connection)
        make_table(connection, "BIGINT", 1, 60)
        watch = Watch(monkeypatch)
        with connection.cursor() as cursor:
            reader.begin(cursor)
            shared = UnitCells(cursor, b"key", None)
            for job in jobs_of(job_of("BIGINT", 40, where=(f"{SCORE} <> 0",)), EVERY):
                shared.counts(job)
        assert watch.plans > 40 and watch.given == []


def test_tables_are_dropped(connection: duckdb.DuckDBPyConnection) -> None:
    """Counting leaves two temporary tables. Dropping removes them, also where a count failed and rolled back."""
    make_table(connection, "BIGINT", 1, 60)
    job, listed = job_of("BIGINT", 40), "SELECT count(*) FROM duckdb_tables() WHERE temporary"
    for fails in (False, True):
        with connection.cursor() as cursor:
            reader.begin(cursor)
            shared = UnitCells(cursor, b"key", None)
            shared.counts(replace(job, aggregates=EVERY[:1], levels=8))
            assert cursor.execute(listed).fetchall() == [(2,)]
            assert connection.execute(listed).fetchall() == [(0,)], "no other cursor has them"
            if fails:
                with pytest.raises(InternalError, match=reader.FAILED):
                    reader.columns(cursor, f"SELECT error('x') FROM {CELLS}, {SUMS}", {})
            drop_unit_cells(cursor)
            if fails:
                cursor.execute("ROLLBACK")
            assert cursor.execute(listed).fetchall() == [(0,)]


def test_what_is_counted_alone() -> None:
    """Jobs that do not ask for it, merge values, have wide numbers, or count other rows are counted alone."""
    job = job_of("BIGINT", 40)
    assert is_shared(job)
    merging = replace(job.attributes[0], codes=np.array([0, 0, 1, 1]), size=2)
    far = replace(EVERY[-1], high=Fraction(1 << 42), steps=1 << 40)
    for other in (
        replace(job, beside=()),
        replace(job, aggregates=(replace(EVERY[0], norm=4),), attributes=(merging, job.attributes[1])),
        replace(job, aggregates=(far,), max_rows=100),
    ):
        assert not is_shared(other)
    with duckdb.connect() as connection:
        keep_plans_plain(connection)
        make_table(connection, "BIGINT", 1, 60)
        shared = UnitCells(connection, b"key", None)
        shared.counts(job)
        for other in (replace(job, max_rows=39), replace(job, filters=(own("TRUE"),)), replace(job, beside=EVERY[:2])):
            assert is_shared(other) and not shared.serves(replace(other, aggregates=EVERY[:2]))
    assert unit_cells.WIDE == 1 << 46
