"""Counts by long lists of labels, looked up once for each group, are those of DuckDB's own join."""

from __future__ import annotations

import duckdb
import numpy as np

from dpduck.trusted.private.contributions import Contribution
from dpduck.trusted.private.counting import count_exactly, pregrouped
from dpduck.trusted.private.jobs import Attribute, CountingJob, KeyColumn
from dpduck.values.domain import ValueDomain


def test_long_lists() -> None:
    """Junk, NULL and a filter: the same cells and counts as a plain query over the listed values."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT 'v' || (i * 7 % 400) AS a, CASE WHEN i % 9 > 0 THEN 'w' || (i % 350) END AS b, "
            "i % 5 AS c FROM range(20000) AS r(i)"
        )
        domains = (
            ValueDomain("VARCHAR", tuple(f"v{i}" for i in range(300))),
            ValueDomain("VARCHAR", tuple(f"w{i}" for i in range(200)), with_null=True),
        )
        job = CountingJob(
            "t", ("t.c > 1",), None, 1, ("t.a",), (KeyColumn("t.a", domains[0]), KeyColumn("t.b", domains[1])),
            tuple(Attribute((i,), np.arange(of.size), of.size) for i, of in enumerate(domains)), (Contribution(""),),
        )  # fmt: skip
        assert pregrouped(job)[1] is not None
        found = count_exactly(connection, job, b"")
        cells = {
            (int(a), int(b)): int(n) for a, b, n in zip(*found._exact_coordinates, found._exact_counts[0], strict=True)
        }
        rows = connection.execute(
            "SELECT CAST(a[2:] AS INTEGER), ifnull(CAST(b[2:] AS INTEGER), 200), count(*) FROM t WHERE c > 1 AND "
            "CAST(a[2:] AS INTEGER) < 300 AND (b IS NULL OR CAST(b[2:] AS INTEGER) < 200) GROUP BY ALL"
        ).fetchall()
        assert cells == {(a, b): n for a, b, n in rows}
