"""Exact counts by keys of an unbounded universe, as opaque as all exact counts: only trusted code opens them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpduck.errors import InternalError
from dpduck.frontend.row_parts import Source
from dpduck.frontend.unit_lookup import UnitLookup
from dpduck.trusted import reader
from dpduck.trusted.bounding_sql import KEY, ORDER, UNIT, bounded_rows_sql, key_integer
from dpduck.trusted.row_program import Division
from dpduck.trusted.scan import Scan, read_rows, rows_sql, scan_of
from dpduck.trusted.workers import Workers

LOW = "18446744073709551615"
LARGEST_TOTAL = 1 << 50  # rows: sums of counts stay exact in a double


@dataclass(frozen=True)
class KeyJob:
    """One scan over private rows, counted by key (see counting_job for the fields of the same names).

    key_sql: the canonical text of stored columns, SQL of our own; rows for which it is NULL are dropped.
    """

    from_sql: str
    filters: tuple[str, ...]
    unit_sql: str | None
    max_rows: int
    content_sql: tuple[str, ...]
    key_sql: str
    source: Source | None = None
    unit_type: str = ""
    lookup: UnitLookup | None = None


@dataclass(frozen=True, eq=False)
class KeyDigests:
    """The 128-bit digests (MD5) of public keys, as halves; shape (keys,) each."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]


class KeyCounts:
    """Counts by 128-bit digest of the key, sorted by it; hidden, because even their number is private.

    Two keys of one digest are one key everywhere: in counts, in questions and under the keyed noise.
    """

    __slots__ = ("_exact_counts", "_exact_high", "_exact_low")

    def __init__(self, high: NDArray[np.uint64], low: NDArray[np.uint64], counts: NDArray[np.int64]) -> None:
        order = np.lexsort((low, high))
        self._exact_high, self._exact_low, self._exact_counts = high[order], low[order], counts[order]

    def __repr__(self) -> str:
        return "KeyCounts(hidden)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise InternalError("exact counts cannot be copied or written")

    def __getstate__(self) -> NoReturn:
        raise InternalError("exact counts cannot be copied or written")


def count_keys(
    cursor: duckdb.DuckDBPyConnection, job: KeyJob, bounding_key: bytes, workers: Workers | None = None
) -> KeyCounts:
    """Exact counts by key; its only error has one fixed text, since DuckDB's texts may quote data.

    workers: as of count_exactly.
    """
    columns = _columns(cursor, job, bounding_key, workers)
    high, low, counts = (np.ma.getdata(column) for column in columns)
    if counts.sum(dtype=object) >= LARGEST_TOTAL:
        raise InternalError(reader.FAILED)
    return KeyCounts(high.astype(np.uint64), low.astype(np.uint64), counts.astype(np.int64))


def _rows(job: KeyJob, scan: Scan, division: Division) -> str:
    """Rows of integers: the halves of the key's digest; so no collation has a say."""
    others = [*division.inputs(), *([] if job.unit_sql is None else [UNIT, ORDER])]
    listed = "".join(f", {name}" for name in others)
    keys = rows_sql(scan, {"dpduck_key": job.key_sql}, [], division)
    hashed = f"SELECT md5_number(dpduck_key) AS dpduck_cell{listed} FROM ({keys}) WHERE dpduck_key IS NOT NULL"
    return (
        f"SELECT CAST(dpduck_cell >> 64 AS UBIGINT) AS dpduck_high, CAST(dpduck_cell & {LOW} AS UBIGINT) AS dpduck_low"
        f"{listed} FROM ({hashed})"
    )


def _columns(
    cursor: duckdb.DuckDBPyConnection, job: KeyJob, bounding_key: bytes, workers: Workers | None
) -> list[NDArray[np.generic]]:
    scan = scan_of(job, job.lookup)
    division = Division({}, scan.moved, scan.types or {})
    parameters = {} if job.unit_sql is None else {KEY: key_integer(bounding_key)}
    cells = ["dpduck_high", "dpduck_low"]
    with read_rows(cursor, scan, _rows(job, scan, division), parameters, division, workers) as found:
        rows, second, given = found
        if job.unit_sql is not None:
            rows = bounded_rows_sql(f"SELECT * FROM ({rows}) WHERE {UNIT} IS NOT NULL", cells, job.max_rows)
        sql = f"SELECT dpduck_high, dpduck_low, count(*) FROM ({rows}) GROUP BY dpduck_high, dpduck_low"
        return reader.columns(second, sql, given)


def find(counts_high: NDArray[np.uint64], counts_low: NDArray[np.uint64], keys: KeyDigests) -> NDArray[np.intp]:
    """Positions of keys among sorted digests, -1 where a key is absent."""
    if not len(counts_high):
        return np.full(len(keys.high), -1, dtype=np.intp)
    start = np.searchsorted(counts_high, keys.high, side="left")
    end = np.searchsorted(counts_high, keys.high, side="right")
    positions = np.where(start < end, start, -1)
    for place in np.flatnonzero(end - start > 1):  # 64 bits alike by chance: the other 64 decide
        positions[place] = start[place] + np.searchsorted(counts_low[start[place] : end[place]], keys.low[place])
    inside = (positions >= 0) & (positions < end)
    found = np.where(inside, positions, 0)
    return np.where(inside & (counts_low[found] == keys.low), found, -1)


def exact_answers(
    counts: KeyCounts, keys: KeyDigests, weights: NDArray[np.int64], lengths: Sequence[int]
) -> NDArray[np.int64]:
    """Weighted sums of exact counts, one for each run of `lengths` keys; for trusted code alone."""
    places = find(counts._exact_high, counts._exact_low, keys)
    values = np.where(places < 0, 0, counts._exact_counts[places] if len(counts._exact_counts) else 0) * weights
    sums = np.concatenate([[0], np.cumsum(values)])
    ends = np.cumsum(lengths)
    result: NDArray[np.int64] = sums[ends] - sums[ends - np.asarray(lengths)]
    return result
