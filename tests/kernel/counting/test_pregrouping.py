"""Counts by long lists of labels, looked up once for each group, are those of DuckDB's own join."""

from __future__ import annotations

import duckdb
import numpy as np

from dpduck.kernel.counting.exact import count_exactly, group_first
from dpduck.kernel.counting.jobs import Attribute
from dpduck.values.domain import ValueDomain
from tests.support.nodes import adds, counts, key


def test_long_lists() -> None:
    """Counts with other values, NULL and a filter are those of a plain query over the listed values."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT 'v' || (i * 7 % 400) AS a, CASE WHEN i % 9 > 0 THEN 'w' || (i % 350) END AS b, "
            "i % 5 AS c FROM range(20000) AS r(i)"
        )
        domains = (
            ValueDomain("VARCHAR", tuple(f"v{i}" for i in range(300))),
            ValueDomain("VARCHAR", tuple(f"w{i}" for i in range(200)), with_null=True),
        )
        job = counts(
            "t", ("t.c > 1",), None, 1, ("t.a",), (key("t.a", domains[0]), key("t.b", domains[1])),
            tuple(Attribute((i,), np.arange(of.size), of.size) for i, of in enumerate(domains)), (adds(""),),
        )  # fmt: skip
        assert group_first(job) is not None
        found = count_exactly(connection, job, b"")
        cells = {
            (int(a), int(b)): int(n) for a, b, n in zip(*found._exact_coordinates, found._exact_counts[0], strict=True)
        }
        rows = connection.execute(
            "SELECT CAST(a[2:] AS INTEGER), ifnull(CAST(b[2:] AS INTEGER), 200), count(*) FROM t WHERE c > 1 AND "
            "CAST(a[2:] AS INTEGER) < 300 AND (b IS NULL OR CAST(b[2:] AS INTEGER) < 200) GROUP BY ALL"
        ).fetchall()
        assert cells == {(a, b): n for a, b, n in rows}


def test_a_collation_does_not_mix_labels() -> None:
    """One 'V0' and 1,000 'v0' in a column under NOCASE are two labels, whatever DuckDB groups by there.

    By the column's name DuckDB groups both together, and shows the spelling of the row that it met first.
    """
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (a VARCHAR COLLATE NOCASE, b INTEGER)")
        connection.execute("INSERT INTO t SELECT CASE WHEN i = 0 THEN 'V0' ELSE 'v0' END, 7 FROM range(1001) AS r(i)")
        merged = connection.execute("SELECT a AS g, count(*) FROM t GROUP BY g").fetchall()
        assert merged == [("V0", 1001)]
        for labels in (("V0", *(f"w{i}" for i in range(300))), ("v0", *(f"w{i}" for i in range(300)))):
            domains = ValueDomain("VARCHAR", labels), ValueDomain("INTEGER", tuple(map(str, range(300))))
            job = counts(
                "t", (), None, 1, ("t.a",), (key("t.a", domains[0]), key("t.b", domains[1])),
                tuple(Attribute((i,), np.arange(of.size), of.size) for i, of in enumerate(domains)),
                (adds(""),),
            )  # fmt: skip
            assert group_first(job) is not None
            found = count_exactly(connection, job, b"")._exact_counts[0]
            assert found.tolist() == [1 if labels[0] == "V0" else 1000]
