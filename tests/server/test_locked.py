"""Released tables of the owner's session: what counts as one query, on DuckDB 1.5 and 2.0."""

from __future__ import annotations

import pytest

from dpduck.server.locked import ReleasedTables

PIVOTED = "PIVOT ages ON sex USING first(n)"

QUERIES = (
    "FROM ages", "FROM ages;", "WITH w AS (FROM ages) FROM w", "VALUES (1)", "SUMMARIZE ages", PIVOTED, f"{PIVOTED} ; ",
    f"FROM ({PIVOTED}) -- a comment", "WITH w AS (FROM ages) FROM (PIVOT w ON sex USING first(n))",
)  # fmt: skip
"""Texts of one query. A PIVOT without IN is two statements in DuckDB 1.5, and one of several parts in 2.0."""

OTHERS = (
    "", "PIVOT", "DROP TABLE ages", "FROM ages; DROP TABLE ages", f"{PIVOTED}; DROP TABLE ages",
    f"DROP TABLE ages; {PIVOTED}", f"CREATE TABLE t AS ({PIVOTED})", f"CREATE TABLE t AS FROM ({PIVOTED})",
    f"INSERT INTO ages FROM ({PIVOTED})", f"COPY ({PIVOTED}) TO 'file.csv'", f"FROM ages) AS a, ({PIVOTED}",
)  # fmt: skip


@pytest.mark.parametrize(("texts", "expected"), [(QUERIES, True), (OTHERS, False)])
def test_one_query_and_nothing_else(texts: tuple[str, ...], expected: bool) -> None:
    """A statement that creates, changes or writes something is no query, even if a part is a PIVOT."""
    tables = ReleasedTables()
    try:
        assert [text for text in texts if tables.is_query(text) != expected] == []
    finally:
        tables.close()
