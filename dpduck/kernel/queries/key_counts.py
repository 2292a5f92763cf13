"""Exact counts by keys of an unbounded universe, as opaque as all exact counts: only trusted code opens them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.columns.conditions import where_sql
from dpduck.kernel.columns.expressions import Column
from dpduck.kernel.columns.keys import KeyText
from dpduck.kernel.contributions import KEY, Contribution, Crowds, key_integer
from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.counting.jobs import KeyJob
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.scan import Ranked, Scan, counted, rows_sql, scan_of
from dpduck.kernel.stage import cut_sql, stage_sql
from dpduck.kernel.worker.program import LONGEST_REPEATED, Division
from dpduck.kernel.worker.workers import Workers
from dpduck.values.errors import InternalError

LOW = "18446744073709551615"
CELLS = {"dpduck_high": None, "dpduck_low": None}
LARGEST_TOTAL = 1 << 50  # rows: sums of counts stay exact in a double


@dataclass(frozen=True, eq=False)
class KeyDigests:
    """The 128-bit digests (MD5) of public keys, as halves; shape (keys,) each."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]


class KeyCounts(Hidden):
    """Counts by 128-bit digest of the key, sorted by it; hidden, because even their number is private.

    Two keys of one digest are one key everywhere: in counts, in questions and under the keyed noise.
    """

    __slots__ = ("_exact_counts", "_exact_high", "_exact_low")

    def __init__(self, high: NDArray[np.uint64], low: NDArray[np.uint64], counts: NDArray[np.int64]) -> None:
        order = np.lexsort((low, high))
        self._exact_high, self._exact_low, self._exact_counts = high[order], low[order], counts[order]


def keys_of(counts: Hidden) -> KeyCounts:
    """Returns counts by key; refuses others."""
    if not isinstance(counts, KeyCounts):
        raise InternalError("a query of other counts")
    return counts


def count_keys(
    cursor: duckdb.DuckDBPyConnection, job: KeyJob, bounding_key: bytes, workers: Workers | None = None
) -> KeyCounts:
    """Returns exact counts by key; its only error has one fixed text, since DuckDB's texts may quote data.

    workers: as of count_exactly.
    """
    scan, unit = scan_of(job.rows, (job.key,)), job.rows.unit
    division = Division({}, scan.moved, copies=scan.copies)
    parameters = {} if unit is None or job.rows.prepared is not None else {KEY: key_integer(bounding_key)}
    known, most = scan.known(None, division.needed), None if unit is None else job.rows.max_rows

    def stage(rows: str, crowds: Crowds | None) -> str:
        return stage_sql(rows, CELLS, (Contribution(),), most, known=known, crowds=crowds)

    def cut(rows: str) -> tuple[str, str]:
        return cut_sql(rows, CELLS, (Contribution(),), job.rows.max_rows)

    sql, ranked = _rows(job, scan, division), Ranked(job.rows, lambda other: _rows(job, other, division))
    with counted(cursor, scan, sql, parameters, division, workers, stage, {}, cut, ranked=ranked) as found:
        sql, second, given = found
        high, low, counts = (np.ma.getdata(column) for column in reader.columns(second, sql, given))
    if counts.sum(dtype=object) >= LARGEST_TOTAL:
        raise InternalError(reader.FAILED)
    return KeyCounts(high.astype(np.uint64), low.astype(np.uint64), counts.astype(np.int64))


def _rows(job: KeyJob, scan: Scan, division: Division) -> str:
    """Returns rows of integers: the halves of the key's digest; so no collation has a say."""
    others = [*division.inputs(), *scan.bounding]
    listed = "".join(f", {name}" for name in others)
    hashed = rows_sql(scan, {"dpduck_cell": f"md5_number({_short_key(job, scan)})"}, [], division)
    high, low = CELLS
    return (
        f"SELECT CAST(dpduck_cell >> 64 AS UBIGINT) AS {high}, CAST(dpduck_cell & {LOW} AS UBIGINT) AS {low}"
        f"{listed} FROM ({hashed}){where_sql(['dpduck_cell IS NOT NULL'])}"
    )


def _short_key(job: KeyJob, scan: Scan) -> str:
    """Returns the key, NULL where its texts are too long: they are put together in steps, for some thousand rows at a
    time, of which one person's may all be.
    """
    parts = Counter(part.column for part in job.key.parts) if isinstance(job.key, KeyText) else Counter[Column]()
    texts = {column.quoted: times for column, times in parts.items() if column.type_name == "VARCHAR"}
    if not texts:
        return job.key.sql
    longest = max(LONGEST_REPEATED, scan.longest_key // sum(parts.values()))
    length = " + ".join(f"ifnull(strlen({name}), 0) * {times}" for name, times in texts.items())
    return f"CASE WHEN {length} <= {longest} THEN {job.key.sql} END"


def find(counts_high: NDArray[np.uint64], counts_low: NDArray[np.uint64], keys: KeyDigests) -> NDArray[np.intp]:
    """Returns positions of keys among sorted digests, -1 where a key is absent."""
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
    """Returns weighted sums of exact counts, one for each run of `lengths` keys; for trusted code alone."""
    places = find(counts._exact_high, counts._exact_low, keys)
    values = np.where(places < 0, 0, counts._exact_counts[places] if len(counts._exact_counts) else 0) * weights
    sums = np.concatenate([[0], np.cumsum(values)])
    ends = np.cumsum(lengths)
    result: NDArray[np.int64] = sums[ends] - sums[ends - np.asarray(lengths)]
    return result
