"""Conditions on private rows, in a form that DuckDB evaluates on rows and hands to no scan.

A scan leaves out parts of a table by their statistics: minima, maxima, NULLs and Bloom filters. Other people's rows
would then decide whether your row is counted. So would every defect of that code. For `score = 1 OR score IS DISTINCT
FROM 0`, DuckDB 1.5 left out a part of NULLs alone. Each of its rows meets that condition: one patient decided whether
5,000 others were counted.

So each condition is compared with a volatile expression that is always true. For all that an optimizer may assume,
this could be true, false or NULL for any row, so every row could meet the whole. So no statistics can leave out a row.
DuckDB also hands no volatile expression to a scan. The expression is one constant for a batch of rows, and DuckDB
compares two columns of Booleans at little cost. `tests/kernel/rows/test_no_scan_filters.py` reads the plans.
"""

from __future__ import annotations

from collections.abc import Iterable

ALWAYS = "current_transaction_id() >= 0"
"""A volatile comparison that is always true: the numbers of transactions have no sign."""


def beyond_scans(condition: str) -> str:
    """Writes a condition in a form that DuckDB gives to no scan.

    >>> beyond_scans('"t"."age" > 17')
    '(("t"."age" > 17) IS NOT DISTINCT FROM (current_transaction_id() >= 0))'
    """
    return f"(({condition}) IS NOT DISTINCT FROM ({ALWAYS}))"


def where_sql(conditions: Iterable[str]) -> str:
    """Writes WHERE with all conditions, beyond scans, or nothing where there are none.

    >>> where_sql(["a"])
    ' WHERE ((a) IS NOT DISTINCT FROM (current_transaction_id() >= 0))'
    """
    listed = [beyond_scans(condition) for condition in conditions]
    return f" WHERE {' AND '.join(listed)}" if listed else ""
