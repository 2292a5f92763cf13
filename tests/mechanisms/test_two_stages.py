"""Two stages count what one did: the SQL of before, an analyst's expressions under TRY in it, gives the same cells.

For every accepted golden statement, at its own MAX ROWS and where it cuts: what a worker computes over batches is what
DuckDB computes in one query, down to which rows of a unit are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest

from dpduck.frontend.select.request import Request
from dpduck.mechanisms.cubes.measure import scans_of
from dpduck.mechanisms.cubes.plan import planned
from dpduck.mechanisms.jobs import counting_job
from dpduck.trusted.private.contributions import order_sql
from dpduck.trusted.private.counting import count_exactly
from dpduck.trusted.private.jobs import CountingJob
from dpduck.values.errors import InternalError
from tests.frontend.facts import analysed
from tests.frontend.full_clinic import open_full_clinic
from tests.frontend.golden_files import Golden, read_golden

Cells = dict[tuple[int, ...], list[int]]
ACCEPTED = [
    golden
    for golden in read_golden("accepted_*.sql")
    if "THRESHOLD" not in golden.statement and "summary" not in golden.statement  # those are counted by other jobs
]
COMPUTED = [golden for golden in ACCEPTED if "try(" in golden.text]
"""Statements with something that a worker computes."""


@pytest.fixture(scope="module")
def clinic() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_full_clinic() as connection:
        yield connection


def cells(connection: duckdb.DuckDBPyConnection, job: CountingJob) -> Cells:
    """The tables of every occupied cell."""
    with connection.cursor() as cursor:
        counts = count_exactly(cursor, job, b"key")
    found: Cells = {}
    for place, values in enumerate(counts._exact_counts.T.tolist()):
        cell = tuple(int(codes[place]) for codes in counts._exact_coordinates)
        known = found.setdefault(cell, [0] * len(values))
        found[cell] = [first + second for first, second in zip(known, values, strict=True)]
    return {cell: values for cell, values in found.items() if any(values)}


def in_one_stage(job: CountingJob, request: Request) -> CountingJob:
    """The job as it was before: all of it one query in the database's process.

    A unit's rows are ordered by the hash of each table's own content, where there are several: NULL where an outer
    join found no row of it.
    """
    tables: dict[str, list[str]] = {}
    for column in job.content_sql:
        tables.setdefault(column.partition(".")[0], []).append(column)
    there = (f"CASE WHEN coalesce({', '.join(f'CAST({one} AS VARCHAR)' for one in own)}) IS NOT NULL "
             f"THEN {order_sql(own)} END" for own in tables.values())  # fmt: skip
    content = tuple(there) if len(tables) > 1 else job.content_sql
    rows = request.rows
    return replace(job, source=None, from_sql=rows.from_sql, filters=rows.filters, content_sql=content)


@pytest.mark.parametrize(
    "golden",
    [*COMPUTED, *(pytest.param(one, marks=pytest.mark.audit) for one in ACCEPTED if one not in COMPUTED)],
    ids=str,
)
def test_both_ways_count_alike(golden: Golden, clinic: duckdb.DuckDBPyConnection) -> None:
    """Cell by cell, for m as it is and for one row of a unit."""
    analysis = analysed(clinic, golden.statement)
    assert analysis is not None
    request = analysis.request
    assert request.question.selection is None and request.question.summary is None
    for bound in {request.rows.max_rows, 1} if request.rows.unit_sql is not None else {request.rows.max_rows}:
        unit_bound = bound if request.rows.unit_sql else request.rows.unit_bound
        bounded = replace(request, rows=replace(request.rows, max_rows=bound, unit_bound=unit_bound))
        for scan in scans_of(planned(bounded)):
            assert cells(clinic, scan.job) == cells(clinic, in_one_stage(scan.job, bounded))


def test_some_go_through_a_worker() -> None:
    """The comparison is of two ways: many of the golden statements have something for a worker to compute."""
    assert len(COMPUTED) >= 15


def test_nothing_that_was_written_is_counted_as_it_stands(clinic: duckdb.DuckDBPyConnection) -> None:
    """Without the parts of its rows a job is taken for trusted code's own SQL: a request always has them."""
    analysis = analysed(clinic, COMPUTED[0].statement)
    assert analysis is not None and analysis.request.rows.source is not None
    with pytest.raises(InternalError, match="own SQL"):
        counting_job(replace(analysis.request, rows=replace(analysis.request.rows, source=None)), ())
