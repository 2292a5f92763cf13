"""Conditions on private rows, in a form that DuckDB evaluates on rows and pushes into no scan.

A scan skips parts of a table by their statistics: minima, maxima, NULLs and Bloom filters. With any defect of that code
other people's rows decide whether your row is counted. For `score = 1 OR score IS DISTINCT FROM 0`, DuckDB 1.5 skipped
a part with only NULLs, although each of its rows meets that condition. One patient decided over 5,000 others.

So each condition is compared with a volatile expression that is always true. DuckDB pushes no volatile expression into
a scan. Its optimizer must assume that the expression could be true, false or NULL for any row, so no statistics can
leave out a row. The expression is one constant for a batch of rows, and costs little.
`tests/kernel/rows/test_no_scan_filters.py` reads the plans.
"""

from __future__ import annotations

from collections.abc import Iterable

ALWAYS = "current_transaction_id() >= 0"
"""Volatile comparison that is always true, since transaction numbers are unsigned."""


def beyond_scans(condition: str) -> str:
    """Writes a condition in a form that DuckDB pushes into no scan.

    >>> beyond_scans('"t"."age" > 17')
    '(("t"."age" > 17) IS NOT DISTINCT FROM (current_transaction_id() >= 0))'
    """
    return f"(({condition}) IS NOT DISTINCT FROM ({ALWAYS}))"


def where_sql(conditions: Iterable[str]) -> str:
    """Writes WHERE with all conditions, each in the form of beyond_scans, or nothing without conditions.

    >>> where_sql(["a"])
    ' WHERE ((a) IS NOT DISTINCT FROM (current_transaction_id() >= 0))'
    """
    listed = [beyond_scans(condition) for condition in conditions]
    return f" WHERE {' AND '.join(listed)}" if listed else ""
