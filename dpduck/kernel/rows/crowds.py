"""Search for the privacy units with more rows than are kept, so that their rows alone are ranked.

Ranking every row takes three times as long as this plan. It reads the hash of each row's unit and sorts these numbers.
Rows of units that are not found are all counted. The plan reads a table twice, and needs the same rows in both reads.
One transaction of DuckDB guarantees that. So all rows are ranked if they come from other databases, joins or workers.

The list has at least all units with too many rows: equal units have one hash, and units that share a hash are treated
as one. The kept rows of a unit are the same with both plans. So the list decides how long a count takes, and nothing
else. Both plans compute the same expressions of a row, which never raise.
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
"""Name of the registered table with the hashes of units that have too many rows."""

FEW = 1 << 17
"""Number of rows of a table below which all rows are ranked."""

LOOKED_AT = 1 << 16
"""Approximate number of rows in the sample from which are_many estimates how many rows meet the conditions."""

BATCH, PART, MOST_PARTS = 1 << 17, 1 << 25, 8
"""Hashes that are read at a time, hashes of 4 bytes that are held at a time, and the most parts of a table."""

SAMPLE = 64
"""One unit in SAMPLE is counted first, to estimate how many rows belong to units with too many rows."""

MOST_SHARE = 4
"""All rows are ranked if over 1/MOST_SHARE of them belong to units with too many, or if fewer meet the conditions."""


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
    """Registers the hashes of units with more than max_rows rows as CROWDS, and returns their number.

    Returns None if ranking all rows is faster. units_sql: SQL of the unit of each row. rows: bound of the number of
    rows of that SQL. parameters: values of parameters, also of some that units_sql does not use.
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
    """Returns the numbers that occur more than `times` times, each once."""
    hashes.sort()
    extra = hashes[times:][hashes[times:] == hashes[: max(len(hashes) - times, 0)]]
    first = np.ones(len(extra), dtype=bool)
    first[1:] = extra[1:] != extra[:-1]
    once: NDArray[np.uint32] = extra[first]
    return once


def _parameters_in(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, object]) -> dict[str, object]:
    """Returns those parameters that the SQL names, since DuckDB refuses others."""
    names = cursor.extract_statements(sql)[0].named_parameters
    return {name: value for name, value in parameters.items() if name in names}
