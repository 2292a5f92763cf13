"""Search for the privacy units with more rows than are kept, so that their rows alone are ranked.

Ranking every row takes three times as long as this plan. It reads the hash of each row's unit and sorts these numbers.
It counts the rows of all other units as they are. The rows of a table are the same in each read if one transaction of
DuckDB's reads them. So all rows are ranked if they come from other databases, from joins or from workers.

The list has at least all units with too many rows: by their types, equal units have one hash, and units that share a
hash count as one. The kept rows of a unit are the same either way. So the list decides how long a count takes, and
nothing else. Both plans compute the same expressions of a row, which never raise.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpduck.kernel.columns.conditions import where_sql
from dpduck.kernel.contributions import UNIT, UNIT_HASH, unit_hash_sql
from dpduck.kernel.rows import reader
from dpduck.values.quoting import quote_text

CROWDS = "dpduck_crowds"
"""The name under which hashes of units with too many rows are put beside the tables."""

FEW = 1 << 17
"""Smaller tables have no such plan: their rows are all ranked."""

LOOKED_AT = 1 << 16
"""Approximate number of rows of a sample, which tells how many rows of a table take part."""

BATCH, PART, MOST_PARTS = 1 << 17, 1 << 25, 8
"""Hashes, of 4 bytes, that are read at a time, and held at a time. A table is read in MOST_PARTS parts at most."""

SAMPLE = 64
"""One unit in SAMPLE is looked at, to tell whether many rows belong to units with too many."""

MOST_SHARE = 4
"""All rows are ranked if units with too many have over 1/MOST_SHARE of them, or if less than this share takes part."""


def rows_of(cursor: duckdb.DuckDBPyConnection, table_sql: str) -> int:
    """Returns the number of rows of a table. It is 0 below FEW, and for a database that is not DuckDB's own kind."""
    ((rows,),) = reader.columns(cursor, f"SELECT count(*) FROM {table_sql}", {})
    if rows < FEW:
        return 0
    prefix = """'"' || replace(lower(database_name), '"', '""') || '".'"""
    foreign = f"type <> 'duckdb' AND starts_with(lower({quote_text(table_sql)}), {prefix})"
    ((others,),) = reader.columns(cursor, f"SELECT count(*) FROM duckdb_databases(){where_sql([foreign])}", {})
    return 0 if others else int(rows)


def sample_sql(table_sql: str, rows: int) -> str:
    """Writes a sample of a table, which tells whether conditions leave many rows."""
    return f"(SELECT * FROM {table_sql} TABLESAMPLE SYSTEM ({_percent(rows)} PERCENT) REPEATABLE (1))"


def _percent(rows: int) -> int:
    return min(100, -(-100 * LOOKED_AT // rows))


def are_many(cursor: duckdb.DuckDBPyConnection, sampled: str, rows: int, parameters: Mapping[str, object]) -> bool:
    """Tells whether many rows of a table take part. sampled: SQL of the rows of the sample that take part."""
    ((count,),) = reader.columns(
        cursor, f"SELECT count(*) FROM ({sampled})", _parameters_in(cursor, sampled, parameters)
    )
    return int(count) * MOST_SHARE * 100 >= rows * _percent(rows)


def put_crowds(
    cursor: duckdb.DuckDBPyConnection, units_sql: str, rows: int, max_rows: int, parameters: Mapping[str, object]
) -> int | None:
    """Puts the hashes of units with more than max_rows rows under CROWDS, and returns their number.

    Returns None if all rows are to be ranked. units_sql: SQL of the unit of each row. rows: the most rows of that SQL.
    parameters: values for units_sql, and perhaps others.
    """
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
    """Tells by a sample of the units whether many rows belong to units with too many."""
    sample = f"SELECT {UNIT} FROM ({units_sql}){where_sql([f'hash({UNIT}) & {SAMPLE - 1} = 0'])}"
    counted = f"SELECT count(*) AS dpduck_n FROM ({sample}) GROUP BY {UNIT}"
    many = f"ifnull(sum(CASE WHEN dpduck_n > {int(max_rows)} THEN dpduck_n END), 0)"
    asked = f"SELECT CAST(ifnull(sum(dpduck_n), 0) AS BIGINT), CAST({many} AS BIGINT) FROM ({counted})"
    (rows,), (crowded,) = reader.columns(cursor, asked, parameters)
    return int(crowded) * MOST_SHARE > int(rows) or not rows


def _hashes(
    cursor: duckdb.DuckDBPyConnection, units_sql: str, part: int, parts: int, parameters: Mapping[str, object]
) -> NDArray[np.uint32]:
    """Returns the hash of the unit of each row, for one part of all hashes."""
    asked = f"SELECT {unit_hash_sql(UNIT)} AS {UNIT_HASH} FROM ({units_sql})"
    if parts > 1:
        asked = f"SELECT {UNIT_HASH} FROM ({asked}){where_sql([f'{UNIT_HASH} % {parts} = {part}'])}"
    batches = reader.batches(cursor, asked, parameters, BATCH)
    return np.concatenate([batch.column(0).to_numpy() for batch in batches])


def _find_repeats(hashes: NDArray[np.uint32], times: int) -> NDArray[np.uint32]:
    """Returns the numbers that occur more than `times` times, each once."""
    hashes.sort()
    extra = hashes[times:][hashes[times:] == hashes[: max(len(hashes) - times, 0)]]
    first = np.ones(len(extra), dtype=bool)
    first[1:] = extra[1:] != extra[:-1]
    once: NDArray[np.uint32] = extra[first]
    return once


def _parameters_in(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, object]) -> dict[str, object]:
    """Returns the parameters that the SQL names: DuckDB refuses others."""
    names = cursor.extract_statements(sql)[0].named_parameters
    return {name: value for name, value in parameters.items() if name in names}
