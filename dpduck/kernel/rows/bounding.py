"""Contribution bounding in SQL: it keeps the first m rows of a unit in the order of a keyed hash of each row's content.

Neighbouring databases differ by one unit's rows, and at most m of these rows are kept. Which rows of a unit are kept
depends on that unit's rows alone: not on other units, physical order, threads or chance. Rows are reduced to their
cell, unit and hash, and a window ranks each unit's rows.

Most tables have few units with more rows than m. If rows can be read twice, these units are listed first, by sorted
hashes of the units, and only their rows are ranked. Ranking every row takes three times as long. Both reads need the
same rows, which one transaction of DuckDB guarantees. So all rows are ranked if they come from other databases, joins
or workers. The list has at least all units with too many rows, since equal units have one hash. The kept rows of a unit
are the same with both plans, so the list decides how long a count takes, and nothing else. Both plans compute the same
expressions of a row, which never raise.

If rows are read once and m is large, each unit's rows are counted first. Two other ways were slower: top-m aggregates
for each unit, and for small m to count each unit's rows (benchmarks/speed/counting.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpduck.kernel.columns.conditions import where_sql
from dpduck.kernel.rows import reader
from dpduck.values.quoting import quote_text

COUNTED_FIRST = 32
"""Smallest m for which each unit's rows are counted first, if rows can be read only once.

For 6 M rows of 100,000 units, counting first was 1.9 times as fast at m = 128, and took 1.1 times as long at m = 32."""

UNIT, ORDER, KEY, UNIT_HASH = "dpduck_unit", "dpduck_order", "dpduck_bounding_key", "dpduck_unit_hash"
"""Columns: a row's unit, the keyed order of the unit's rows, and the unit's hash. KEY: parameter of the order."""
OF_UNIT, OPEN = "dpduck_of_unit", "dpduck_open"
"""Columns of prepared rows: the unit's number of rows, and its number of rows outside some domain."""


@dataclass(frozen=True)
class BoundingFacts:
    """Facts that rows hold about their units. A unit of prepared rows (prepared_writer.py) has at most OF_UNIT rows.

    once: whether the rows can be read only once. placed: whether all rows are counted except rows outside a domain.
    Then ORDER numbers a unit's counted rows from 1, if OPEN is 0. crowded: whether most units are expected to have too
    many rows. Then such units are not listed. counted: whether the column OF_UNIT exists.
    """

    once: bool
    placed: bool
    crowded: bool = False
    counted: bool = True

    @property
    def columns(self) -> list[str]:
        if self.crowded or not self.counted:
            return []
        return [OF_UNIT, OPEN] if self.placed else [OF_UNIT]

    @property
    def of_anybody(self) -> bool:
        """Tells whether rows without a unit need a filter. If not, OF_UNIT is NULL there, and no comparison holds."""
        return self.crowded or not self.counted

    def weaken_for_groups(self) -> BoundingFacts:
        """Returns the facts that still hold after a grouping leaves out some more rows."""
        return replace(self, once=True, placed=False)


NO_FACTS = BoundingFacts(once=False, placed=False, counted=False)


def unit_hash_sql(unit: str) -> str:
    """Writes the hash of a unit. A hash of 32 bits takes half the time of one of 64 bits to read and sort."""
    return f"CAST(hash({unit}) >> 32 AS UINTEGER)"


@dataclass(frozen=True)
class Crowds:
    """List of units that may have too many rows. All other units have at most the allowed number of rows.

    table: a table with the units' hashes in its column UNIT_HASH, "" for an empty list. rows_sql: SQL of the listed
    units' rows alone, with the columns of all rows.
    """

    table: str = ""
    rows_sql: str = ""


def bound_rows_sql(
    rows_sql: str, outputs: Sequence[str], max_rows: int, facts: BoundingFacts = NO_FACTS,
    crowds: Crowds | None = None,
) -> str:  # fmt: skip
    """Writes SQL that keeps at most `max_rows` rows of each unit. rows_sql: rows with UNIT, ORDER and `outputs`.

    Rows with equal hashes are ordered by `outputs`. Nothing else is used later, so rows that are still equal may be
    exchanged. Only units with too many rows are ranked: by `facts` of prepared rows, or by `crowds` if rows are read
    twice. If most units have too many rows (facts.crowded), all rows are sorted. A row is left out if the row
    `max_rows` places before it has the same unit. That takes a tenth less time than a rank, and needs units that are
    not NULL.
    """
    columns = ", ".join(outputs) or "1"
    order = ", ".join((ORDER, *outputs))
    if facts.crowded:
        before = f"lag({UNIT}, {int(max_rows)}) OVER (ORDER BY {UNIT}, {order})"
        return f"SELECT {columns} FROM ({rows_sql}) QUALIFY {before} IS DISTINCT FROM {UNIT}"
    window = rank_sql([UNIT], [ORDER, *outputs])
    if facts.counted:
        most = int(max_rows)
        rows, first = (
            (f"({rows_sql})", "")
            if not facts.once
            else ("dpduck_rows", f"WITH dpduck_rows AS MATERIALIZED ({rows_sql}) ")
        )
        few, many, by_order = f"{OF_UNIT} <= {most}", f"{OF_UNIT} > {most}", ""
        if facts.placed:
            by_order = f"SELECT {columns} FROM {rows} WHERE {many} AND {OPEN} = 0 AND {ORDER} <= {most} UNION ALL "
            many += f" AND {OPEN} > 0"
        return (
            f"{first}SELECT {columns} FROM {rows} WHERE {few} UNION ALL {by_order}"
            f"SELECT {columns} FROM (SELECT * FROM {rows} WHERE {many}) QUALIFY {window} <= {most}"
        )
    if crowds is not None:
        few = f"SELECT {columns} FROM ({rows_sql})"
        if not crowds.table:
            return few
        few = f"{few} ANTI JOIN {crowds.table} ON {unit_hash_sql(UNIT)} = {UNIT_HASH}"
        return f"{few} UNION ALL SELECT {columns} FROM ({crowds.rows_sql}) QUALIFY {window} <= {int(max_rows)}"
    if max_rows < COUNTED_FIRST:
        return f"SELECT {columns} FROM ({rows_sql}) QUALIFY {window} <= {int(max_rows)}"
    crowded = f"SELECT {UNIT} FROM dpduck_rows GROUP BY {UNIT} HAVING count(*) > {int(max_rows)}"
    return (
        f"WITH dpduck_rows AS MATERIALIZED ({rows_sql}), dpduck_crowded AS MATERIALIZED ({crowded}) "
        f"SELECT {columns} FROM dpduck_rows ANTI JOIN dpduck_crowded USING ({UNIT}) UNION ALL "
        f"SELECT {columns} FROM (FROM dpduck_rows SEMI JOIN dpduck_crowded USING ({UNIT})) "
        f"QUALIFY {window} <= {int(max_rows)}"
    )


def rank_sql(alike: Sequence[str], order: Sequence[str]) -> str:
    """Writes a row's number, from 1, in an order of the rows that are equal in the columns `alike`."""
    parts = [f"{word} BY {', '.join(listed)}" for word, listed in (("PARTITION", alike), ("ORDER", order)) if listed]
    return f"row_number() OVER ({' '.join(parts)})"


def order_sql(content_sql: Sequence[str]) -> str:
    """Writes the keyed hash of a row. The key is a prepared parameter, so that no text, plan or error contains it."""
    return f"hash({', '.join((f'CAST(${KEY} AS UBIGINT)', *content_sql))})"


def key_integer(bounding_key: bytes) -> int:
    """Returns the key for DuckDB's hash, derived from a secret of any length."""
    return int.from_bytes(blake2b(bounding_key, digest_size=8, person=b"dpduck bounding").digest(), "big")


CROWDS = "dpduck_crowds"
"""Name of the registered table with the hashes of units that have too many rows."""

FEW = 1 << 17
"""Number of rows of a table below which all rows are ranked."""

LOOKED_AT = 1 << 16
"""Approximate number of rows in the sample from which are_many makes its estimate."""

BATCH, PART, MOST_PARTS = 1 << 17, 1 << 25, 8
"""Number of hashes that are read at a time, number of 4-byte hashes held at a time, and most parts of a table."""

SAMPLE = 64
"""One unit in SAMPLE is counted first, to estimate how many rows belong to units with too many rows."""

MOST_SHARE = 4
"""All rows are ranked if over 1/MOST_SHARE of them belong to units with too many rows, or if fewer meet conditions."""


def rows_of(cursor: duckdb.DuckDBPyConnection, table_sql: str) -> int:
    """Returns the number of rows of a table. It is 0 below FEW, and for tables of databases that are not DuckDB's."""
    ((rows,),) = reader.columns(cursor, f"SELECT count(*) FROM {table_sql}", {})
    if rows < FEW:
        return 0
    prefix = """'"' || replace(lower(database_name), '"', '""') || '".'"""
    foreign = f"type <> 'duckdb' AND starts_with(lower({quote_text(table_sql)}), {prefix})"
    ((others,),) = reader.columns(cursor, f"SELECT count(*) FROM duckdb_databases(){where_sql([foreign])}", {})
    return 0 if others else int(rows)


def sample_sql(table_sql: str, rows: int) -> str:
    """Writes a sample of a table, for an estimate of how many rows meet the conditions."""
    return f"(SELECT * FROM {table_sql} TABLESAMPLE SYSTEM ({_percent(rows)} PERCENT) REPEATABLE (1))"


def _percent(rows: int) -> int:
    return min(100, -(-100 * LOOKED_AT // rows))


def are_many(cursor: duckdb.DuckDBPyConnection, sampled: str, rows: int, parameters: Mapping[str, object]) -> bool:
    """Tells whether many rows of a table meet the conditions. sampled: SQL of the sample's rows that meet them."""
    ((count,),) = reader.columns(
        cursor, f"SELECT count(*) FROM ({sampled})", _parameters_in(cursor, sampled, parameters)
    )
    return int(count) * MOST_SHARE * 100 >= rows * _percent(rows)


def put_crowds(
    cursor: duckdb.DuckDBPyConnection, units_sql: str, rows: int, max_rows: int, parameters: Mapping[str, object]
) -> int | None:
    """Registers hashes of units with more than max_rows rows as CROWDS. Returns how many, None if a rank is faster."""
    parts, parameters = -(-rows // PART), _parameters_in(cursor, units_sql, parameters)
    if parts > MOST_PARTS or _are_crowded(cursor, units_sql, max_rows, parameters):
        return None
    hashes = [_find_repeats(_hashes(cursor, units_sql, part, parts, parameters), max_rows) for part in range(parts)]
    crowded = np.concatenate(hashes)
    cursor.register(CROWDS, pa.Table.from_pydict({UNIT_HASH: crowded}))
    return len(crowded)


def _are_crowded(
    cursor: duckdb.DuckDBPyConnection, units_sql: str, max_rows: int, parameters: Mapping[str, object]
) -> bool:
    """Estimates from a sample of the units whether many rows belong to units with more than max_rows rows."""
    sample = f"SELECT {UNIT} FROM ({units_sql}){where_sql([f'hash({UNIT}) & {SAMPLE - 1} = 0'])}"
    counted = f"SELECT count(*) AS dpduck_n FROM ({sample}) GROUP BY {UNIT}"
    many = f"ifnull(sum(CASE WHEN dpduck_n > {int(max_rows)} THEN dpduck_n END), 0)"
    query = f"SELECT CAST(ifnull(sum(dpduck_n), 0) AS BIGINT), CAST({many} AS BIGINT) FROM ({counted})"
    (rows,), (crowded,) = reader.columns(cursor, query, parameters)
    return int(crowded) * MOST_SHARE > int(rows) or not rows


def _hashes(
    cursor: duckdb.DuckDBPyConnection, units_sql: str, part: int, parts: int, parameters: Mapping[str, object]
) -> NDArray[np.uint32]:
    """Returns the hash of the unit of each row, if the hash is in one of several equal parts of all hashes."""
    query = f"SELECT {unit_hash_sql(UNIT)} AS {UNIT_HASH} FROM ({units_sql})"
    if parts > 1:
        query = f"SELECT {UNIT_HASH} FROM ({query}){where_sql([f'{UNIT_HASH} % {parts} = {part}'])}"
    batches = reader.batches(cursor, query, parameters, BATCH)
    return np.concatenate([batch.column(0).to_numpy() for batch in batches])


def _find_repeats(hashes: NDArray[np.uint32], times: int) -> NDArray[np.uint32]:
    hashes.sort()
    extra = hashes[times:][hashes[times:] == hashes[: max(len(hashes) - times, 0)]]
    first = np.ones(len(extra), dtype=bool)
    first[1:] = extra[1:] != extra[:-1]
    once: NDArray[np.uint32] = extra[first]
    return once


def _parameters_in(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, object]) -> dict[str, object]:
    """Returns those parameters that the SQL names, since DuckDB refuses all others."""
    names = cursor.extract_statements(sql)[0].named_parameters
    return {name: value for name, value in parameters.items() if name in names}
