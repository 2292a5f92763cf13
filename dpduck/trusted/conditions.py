"""Conditions on private rows, written so that DuckDB evaluates them on rows and hands none to a scan.

A scan leaves out parts of a table by their statistics: minima, maxima, NULLs and Bloom filters. Whether your row is
counted would then depend on other people's rows, and on every defect of that code. In DuckDB 1.5 a part of NULLs alone
was left out by `score = 1 OR score IS DISTINCT FROM 0`, which each of its rows meets.

So each condition is OR-ed with a volatile comparison that is never true. For all that an optimizer may assume, every
row could meet the whole, so that no statistics can leave out a row, and DuckDB hands no volatile expression to a scan.
The comparison is one constant a batch of rows. `tests/trusted/rows/test_no_scan_filters.py` reads the plans.
"""

from __future__ import annotations

from collections.abc import Iterable

NEVER = "current_transaction_id() < 0"
"""A volatile comparison that is never true: the numbers of transactions have no sign."""


def beyond_scans(condition: str) -> str:
    """Writes a condition that no scan is given.

    >>> beyond_scans('"t"."age" > 17')
    '("t"."age" > 17 OR current_transaction_id() < 0)'
    """
    return f"({condition} OR {NEVER})"


def where_sql(conditions: Iterable[str]) -> str:
    """Writes WHERE with all of the conditions, beyond scans; nothing where there is none.

    >>> where_sql(["a", "b"])
    ' WHERE ((a) OR current_transaction_id() < 0) AND ((b) OR current_transaction_id() < 0)'
    """
    listed = [beyond_scans(f"({condition})") for condition in conditions]
    return f" WHERE {' AND '.join(listed)}" if listed else ""
