"""A job that relies on one row of a unit in each cell: its form, and the catalog's answer when rows are counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import numpy as np
import pytest

from dpduck.kernel.counting.jobs import Attribute, CountingJob
from dpduck.kernel.door import require_cell_key
from dpduck.kernel.places.engine import EnginePlace, EngineRows
from dpduck.kernel.places.live import LIVE_PLACE
from dpduck.kernel.places.prepared import PreparedPlace, PreparedTable
from dpduck.kernel.relations import Join, Source, Stored
from dpduck.values.domain import Domain, RangeDomain, ValueDomain
from dpduck.values.errors import InternalError, Refusal
from tests.support.nodes import adds, counts, key

TABLE, KEY, DAY = '"memory"."main"."t ""1"', ("u", "d"), '"r0"."d"'
DAYS = ValueDomain("INTEGER", ("1", "2", "3"))
TYPES = {'"r0"."u"': "VARCHAR", DAY: "INTEGER", '"r0"."x"': "INTEGER"}
SOURCE = Source(Stored(TABLE, "r0"))


def job_of(
    columns: tuple[str, ...] = KEY, domain: Domain = DAYS, source: Source = SOURCE, sql: str = DAY, **types: str
) -> CountingJob:
    """A job that counts rows by day, of units with at most six rows."""
    attribute = Attribute((0,), np.arange(domain.size), domain.size)
    known = TYPES | {f'"r0"."{name}"': kind for name, kind in types.items()}
    made = counts(source, (), '"r0"."u"', 6, (DAY,), (key(sql, domain),), (attribute,), (adds(""),), known)
    return replace(made, cell_key=columns)


def test_one_row_a_cell_is_the_root() -> None:
    """At one row in each cell, six rows have a squared norm of 6."""
    job = job_of()
    assert (job.unit_bounds, job.cell_bounds, job.squares_bounds) == ((6,), (1,), (6,))
    assert (job_of(()).cell_bounds, job_of(()).squares_bounds) == ((6,), (36,))


BINS = RangeDomain("INTEGER", ("1", "2"), "3", "1", "", 1)
WRONG = {
    "a column that is no key": job_of(()), "two columns, of which one is no key": job_of(()),
    "without the unit": job_of(()), "bins": job_of((), BINS),
    "NULL": job_of((), replace(DAYS, with_null=True)), "others": job_of((), replace(DAYS, other="x")),
    "another type": job_of((), replace(DAYS, type_name="BIGINT")), "an expression": job_of((), sql=f"abs({DAY})"),
    "a long label": job_of((), ValueDomain("INTEGER", ("1", "2" * 5000))),
    "a join": job_of((), source=replace(SOURCE, joins=(Join("JOIN", SOURCE, (), 2),))),
    "a column with two zeros": job_of((), d="DOUBLE"),
    "a unit with two zeros": job_of((), u="DOUBLE"),
}  # fmt: skip
KEYS = {
    "a column that is no key": ("u", "x"),
    "two columns, of which one is no key": ("u", "d", "x"),
    "without the unit": ("d",),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_jobs_are_refused(name: str) -> None:
    """A planner cannot declare as a key the columns of what may hold two rows of a unit."""
    with pytest.raises(InternalError, match="by a key that does not say so"):
        replace(WRONG[name], cell_key=KEYS.get(name, KEY))


def test_no_engine_has_such_keys() -> None:
    """A job over an engine's table cannot rely on keys, since engines promise none."""
    with pytest.raises(InternalError, match="by a key that does not say so"):
        replace(job_of(), place=EngineRows((), lambda order: ()))


@pytest.fixture
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@pytest.mark.parametrize(
    ("columns", "kept"),
    [
        ("u VARCHAR, d INTEGER, PRIMARY KEY (u, d)", True), ("u VARCHAR, d INTEGER, x INTEGER, UNIQUE (u, d)", True),
        ("u VARCHAR, d INTEGER", False), ("u VARCHAR, d INTEGER, UNIQUE (d, u)", False),
        ("u VARCHAR, d INTEGER, x INTEGER, UNIQUE (u, d, x)", False), ("u VARCHAR UNIQUE, d INTEGER", False),
        ("u VARCHAR COLLATE NOCASE, d INTEGER, UNIQUE (u, d)", False),
    ],
)  # fmt: skip
def test_the_catalog_is_asked_when_rows_are_counted(
    cursor: duckdb.DuckDBPyConnection, columns: str, kept: bool
) -> None:
    """The table's own key is looked up by its exact columns, whatever other tables have. A dropped table has no key."""
    cursor.execute("CREATE SCHEMA other")
    cursor.execute('CREATE TABLE other."t ""1" (u VARCHAR, d INTEGER, UNIQUE (u, d))')
    with pytest.raises(Refusal, match="a key changed meanwhile"):
        require_cell_key(cursor, job_of(), LIVE_PLACE)
    cursor.execute(f'CREATE TABLE "t ""1" ({columns})')
    if kept:
        require_cell_key(cursor, job_of(), LIVE_PLACE)
        return
    with pytest.raises(Refusal, match="a key changed meanwhile"):
        require_cell_key(cursor, job_of(), LIVE_PLACE)


def test_of_a_prepared_table_its_own_record_is_asked(cursor: duckdb.DuckDBPyConnection) -> None:
    """Of a prepared table the record in the store is asked, not the table's keys of today. Engines have no record."""
    cursor.execute('CREATE TABLE "t ""1" (u VARCHAR, d INTEGER, UNIQUE (u, d))')

    def twins(*keys: tuple[str, ...]) -> PreparedPlace:
        table = PreparedTable("twin", (), "u", "VARCHAR", keys=keys)
        return PreparedPlace({TABLE: table}, None, lambda: None)  # type: ignore[arg-type]

    require_cell_key(cursor, job_of(), twins(("x",), KEY))
    for other in (twins(), twins(("u", "x")), EnginePlace(lambda place: EngineRows((), lambda order: ()))):
        with pytest.raises(Refusal, match="a key changed meanwhile"):
            require_cell_key(cursor, job_of(), other)
