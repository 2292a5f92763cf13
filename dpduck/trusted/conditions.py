"""Conditions on private rows, in a form that DuckDB evaluates on rows and hands to no scan.

A scan leaves out parts of a table by their statistics: minima, maxima, NULLs and Bloom filters. Other people's rows
would then decide whether your row is counted. So would every defect of that code. For `score = 1 OR score IS DISTINCT
FROM 0`, DuckDB 1.5 left out a part of NULLs alone. Each of its rows meets that condition.

So each condition is OR-ed with a volatile comparison that is never true. For all that an optimizer may assume, every
row could meet the whole. So no statistics can leave out a row. DuckDB also hands no volatile expression to a scan. The
comparison is one constant for a batch of rows. `tests/trusted/rows/test_no_scan_filters.py` reads the plans.
"""

from __future__ import annotations

from collections.abc import Iterable

NEVER = "current_transaction_id() < 0"
"""A volatile comparison that is never true: the numbers of transactions have no sign."""


def beyond_scans(condition: str) -> str:
    """Writes a condition in a form that DuckDB gives to no scan.

    >>> beyond_scans('"t"."age" > 17')
    '("t"."age" > 17 OR current_transaction_id() < 0)'
    """
    return f"({condition} OR {NEVER})"


def where_sql(conditions: Iterable[str]) -> str:
    """Writes WHERE with all conditions, beyond scans, or nothing where there are none.

    >>> where_sql(["a", "b"])
    ' WHERE ((a) OR current_transaction_id() < 0) AND ((b) OR current_transaction_id() < 0)'
    """
    listed = [beyond_scans(f"({condition})") for condition in conditions]
    return f" WHERE {' AND '.join(listed)}" if listed else ""
