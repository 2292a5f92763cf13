"""Contribution bounding in SQL: a unit's first m rows in the order of a keyed hash of the row's own content.

Neighbouring databases differ by one unit's rows, at most m of which are kept, and what is kept of a unit depends on
that unit's rows alone: not on other units, physical order, threads or chance. The window over rows that have been
narrowed to their cell, unit and hash was the fastest of the plans that were measured for a few rows a unit; counting
the rows of each unit first, top-m aggregates per unit and sorting were all slower (benchmarks/counting_speed.py).
Where m is large, most units have fewer rows than m and there are few units to count: their rows need no sorting.
That is decided by m, which is public; what is read, and computed of a row, is the same whatever the counts are.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

COUNTED_FIRST = 32
"""From so many rows a unit on, each unit's rows are counted first and only those of units with too many are sorted.

Of 6 M rows of 100,000 units (TPC-H query 1): 1.9 times faster at 128 rows a unit, which few exceed; at 32, which half
of them exceed, 1.1 times slower.
"""

UNIT, ORDER, KEY = "dpduck_unit", "dpduck_order", "dpduck_bounding_key"


def bounded_rows_sql(rows_sql: str, outputs: Sequence[str], max_rows: int) -> str:
    """At most `max_rows` of each unit's rows from `rows_sql`, which has columns UNIT, ORDER and `outputs`.

    Rows with equal hashes are ordered by their outputs, all that is used of them afterwards: rows that are still
    tied are interchangeable.
    """
    kept = ", ".join(outputs) or "1"
    order = ", ".join((ORDER, *outputs))
    window = f"row_number() OVER (PARTITION BY {UNIT} ORDER BY {order})"
    if max_rows < COUNTED_FIRST:
        return f"SELECT {kept} FROM ({rows_sql}) QUALIFY {window} <= {int(max_rows)}"
    crowded = f"SELECT {UNIT} FROM dpduck_rows GROUP BY {UNIT} HAVING count(*) > {int(max_rows)}"
    return (
        f"WITH dpduck_rows AS MATERIALIZED ({rows_sql}), dpduck_crowded AS MATERIALIZED ({crowded}) "
        f"SELECT {kept} FROM dpduck_rows ANTI JOIN dpduck_crowded USING ({UNIT}) UNION ALL "
        f"SELECT {kept} FROM (FROM dpduck_rows SEMI JOIN dpduck_crowded USING ({UNIT})) "
        f"QUALIFY {window} <= {int(max_rows)}"
    )


def order_sql(content_sql: Sequence[str]) -> str:
    """The keyed hash of a row; the key is a prepared parameter, so that it is in no text, plan or error."""
    return f"hash({', '.join((f'CAST(${KEY} AS UBIGINT)', *content_sql))})"


def key_integer(bounding_key: bytes) -> int:
    """The key that DuckDB's hash takes, from a secret of any length."""
    return int.from_bytes(blake2b(bounding_key, digest_size=8, person=b"dpduck bounding").digest(), "big")
