"""Two stages count like one: the earlier SQL, with an analyst's expressions under TRY, gives the same cells.

For every accepted golden statement, at its own MAX ROWS and at a lower one: a worker over batches counts what DuckDB
counts in one query, down to the same rows of each unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest

from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.rows.bounding import order_sql
from dpduck.kernel.units import Referenced
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.cubes.measure import scans_of
from dpduck.mechanisms.cubes.plan import plan_cube
from tests.language.facts import analysed
from tests.language.full_clinic import open_full_clinic
from tests.language.golden_files import Golden, read_golden
from tests.support.nodes import own, own_of, rows

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


def in_one_stage(request: SelectRequest) -> list[CountingJob]:
    """Returns the jobs as they once were: one query in the database's process, with each text as written.

    A unit's rows are ordered by the hash of each table's own content, where there are several: NULL where an outer join
    found no row.
    """
    compilers = ("jobs.condition_of", "jobs.number_of", "jobs.value_of", "cubes.measure.value_of")
    with pytest.MonkeyPatch.context() as patch:
        for name in compilers:
            patch.setattr(f"dpduck.mechanisms.{name}", own_of)
        jobs = [scan.job for scan in scans_of(plan_cube(request))]
    tables: dict[str, list[str]] = {}
    for column in request.rows.content_sql:
        tables.setdefault(column.partition(".")[0], []).append(column)
    there = (f"CASE WHEN coalesce({', '.join(f'CAST({one} AS VARCHAR)' for one in listed)}) IS NOT NULL "
             f"THEN {order_sql(listed)} END" for listed in tables.values())  # fmt: skip
    content = tuple(map(own, there)) if len(tables) > 1 else None
    source = rows(request.rows.from_sql)
    bare = (replace(job, unit=job.unit.unit) if isinstance(job.unit, Referenced) else job for job in jobs)
    return [replace(job, source=source, content=content or job.content) for job in bare]


@pytest.mark.parametrize(
    "golden",
    [*COMPUTED, *(pytest.param(one, marks=pytest.mark.audit) for one in ACCEPTED if one not in COMPUTED)],
    ids=str,
)
def test_both_ways_count_alike(golden: Golden, clinic: duckdb.DuckDBPyConnection) -> None:
    """Cell by cell, for the statement's own MAX ROWS and for one row of a unit."""
    analysis = analysed(clinic, golden.statement)
    assert analysis is not None
    request = analysis.request
    assert request.question.selection is None and request.question.summary is None
    for bound in {request.rows.max_rows, 1} if request.rows.unit_sql is not None else {request.rows.max_rows}:
        unit_bound = bound if request.rows.unit_sql else request.rows.unit_bound
        bounded = replace(request, rows=replace(request.rows, max_rows=bound, unit_bound=unit_bound))
        for scan, whole in zip(scans_of(plan_cube(bounded)), in_one_stage(bounded), strict=True):
            assert cells(clinic, scan.job) == cells(clinic, whole)


def test_some_go_through_a_worker() -> None:
    """The comparison is of two ways: many of the golden statements have something for a worker to compute."""
    assert len(COMPUTED) >= 15
