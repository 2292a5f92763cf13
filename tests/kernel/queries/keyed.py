"""Tables and jobs for tests of selected keys."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import duckdb
import numpy as np
import pyarrow as pa

from dpduck.kernel.counting.jobs import Attribute, CountingJob
from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.queries.keys import GroupBounds, read_groups
from dpduck.mechanisms.keys.plan import KeyPlan, plan_keys
from dpduck.values.domain import ValueDomain
from tests.support.nodes import adds, counts, key, own, selected

Row = tuple[int | str | None, str | None, str | None]  # unit, reason, sex
Group = tuple[object, ...]

SEXES = ValueDomain("VARCHAR", ("F", "M"))
CONTENT = ("t.unit", "t.reason", "t.sex")
PLAIN = "CAST(t.reason AS VARCHAR)"


@cache
def database() -> duckdb.DuckDBPyConnection:
    """One database for all."""
    return duckdb.connect(config={"threads": 1})


def load(rows: Sequence[Row], columns: str = "unit BIGINT, reason VARCHAR, sex VARCHAR") -> duckdb.DuckDBPyConnection:
    """Opens the table t with these rows, in their order."""
    connection = database()
    connection.execute(f"CREATE OR REPLACE TABLE t ({columns})")
    if rows:
        units, reasons, sexes = (pa.array(list(column)) for column in zip(*rows, strict=True))
        connection.register("given", pa.table({"unit": units, "reason": reasons, "sex": sexes}))
        connection.execute("INSERT INTO t SELECT * FROM given")
        connection.unregister("given")
    return connection


def job_of(
    groups: int = 2,
    max_rows: int = 4,
    *,
    by_sex: bool = False,
    unit_sql: str | None = "t.unit",
    texts: tuple[str, ...] = (PLAIN,),
    conditions: tuple[str, ...] = ("", "t.sex = 'F'"),
    filters: tuple[str, ...] = (),
) -> CountingJob:
    """Returns a job over t. by_sex: with a key that has a public domain, before the text."""
    keys = (key("t.sex", SEXES),) if by_sex else ()
    attributes = (Attribute((0,), np.arange(2), 2),) if by_sex else ()
    aggregates = tuple(map(adds, conditions))
    rows = counts("t", filters, unit_sql, max_rows, CONTENT, keys, attributes, aggregates, copies=groups)
    return selected(rows, tuple(map(own, texts)), groups)


def grouped(rows: Sequence[Row], job: CountingJob, key: bytes = b"key") -> dict[Group, tuple[int, ...]]:
    """Returns exact units and aggregates by group, over a table of these rows."""
    return groups_in(load(rows), job, key)


def groups_in(
    connection: duckdb.DuckDBPyConnection, job: CountingJob, key: bytes = b"key"
) -> dict[Group, tuple[int, ...]]:
    """Returns exact units and aggregates by group, over the table t as it is."""
    with connection.cursor() as cursor, read_groups(cursor, job, key, None) as batches:
        found = pa.concat_tables(batches)
    place = len(job.attributes) + len(job.texts)
    rows = (tuple(row.values()) for row in found.to_pylist())
    return {row[:place]: (row[-1], *row[place:-1]) for row in rows}


def plan_of(
    job: CountingJob, amount: Fraction = Fraction(1, 2), delta: Fraction = Fraction(1, 100), *, least: int = 1,
    noise: NoiseKind = NoiseKind.GAUSSIAN, other: bool = False,
) -> KeyPlan:  # fmt: skip
    """Returns a plan for the job."""
    if job.unit is None:
        bounds = GroupBounds(job.groups, job.groups, job.groups, job.groups)
    else:
        groups = min(job.groups, job.max_rows)
        bounds = GroupBounds(groups, 1, groups, job.max_rows)
    of_units = job.unit is None or job.max_rows == 1
    conditions = [aggregate.condition for aggregate in job.aggregates]
    reused = tuple(number for number, when in enumerate(conditions) if of_units and not when)
    return plan_keys(noise, amount, delta, bounds, least=least, aggregates=len(conditions), reused=reused, other=other)
