"""Contribution bounding in SQL: a unit's first m rows in the order of a keyed hash of the row's own content.

Neighbouring databases differ by one unit's rows, at most m of which are kept, and what is kept of a unit depends on
that unit's rows alone: not on other units, physical order, threads or chance. The window over rows that have been
narrowed to their cell, unit and hash was the fastest of the plans that were measured; counting the rows of each
unit first, top-m aggregates per unit and sorting were all slower (docs in benchmarks/counting_speed.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

UNIT, ORDER, KEY = "dpduck_unit", "dpduck_order", "dpduck_bounding_key"


def bounded_rows_sql(rows_sql: str, outputs: Sequence[str], max_rows: int) -> str:
    """At most `max_rows` of each unit's rows from `rows_sql`, which has columns UNIT, ORDER and `outputs`.

    Rows with equal hashes are ordered by their outputs, all that is used of them afterwards: rows that are still
    tied are interchangeable.
    """
    kept = ", ".join(outputs) or "1"
    order = ", ".join((ORDER, *outputs))
    window = f"row_number() OVER (PARTITION BY {UNIT} ORDER BY {order})"
    return f"SELECT {kept} FROM ({rows_sql}) QUALIFY {window} <= {int(max_rows)}"


def order_sql(content_sql: Sequence[str]) -> str:
    """The keyed hash of a row; the key is a prepared parameter, so that it is in no text, plan or error."""
    return f"hash({', '.join((f'CAST(${KEY} AS UBIGINT)', *content_sql))})"


def key_integer(bounding_key: bytes) -> int:
    """The key that DuckDB's hash takes, from a secret of any length."""
    return int.from_bytes(blake2b(bounding_key, digest_size=8, person=b"dpduck bounding").digest(), "big")
