"""Exact counts by keys of an unbounded universe. Only trusted code reads them, as with all exact counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.counting.exact import counting_cells, read_job
from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.rows import reader
from dpduck.kernel.worker.workers import Workers
from dpduck.values.errors import InternalError

LARGEST_TOTAL = 1 << 50  # rows: sums of counts stay exact in a double


@dataclass(frozen=True, eq=False)
class KeyDigests:
    """128-bit digests (MD5) of public keys, in two halves of shape (keys,) each."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]


class KeyCounts(Hidden):
    """Counts by the 128-bit digest of the key, sorted. Even their number is private. Equal digests are one key."""

    __slots__ = ("_exact_counts", "_exact_high", "_exact_low")

    def __init__(self, high: NDArray[np.uint64], low: NDArray[np.uint64], counts: NDArray[np.int64]) -> None:
        order = np.lexsort((low, high))
        self._exact_high, self._exact_low, self._exact_counts = high[order], low[order], counts[order]


def keys_of(counts: Hidden) -> KeyCounts:
    """Returns counts by key. Refuses other counts."""
    if not isinstance(counts, KeyCounts):
        raise InternalError("a query of other counts")
    return counts


def count_keys(
    cursor: duckdb.DuckDBPyConnection, job: CountingJob, bounding_key: bytes, workers: Workers | None = None
) -> KeyCounts:
    """Returns exact counts by key. Its only error has one fixed text. workers: see count_exactly."""
    with counting_cells(cursor, read_job(job), bounding_key, workers) as (sql, second, given):
        high, low, counts = (np.ma.getdata(column) for column in reader.columns(second, sql, given))
    if counts.sum(dtype=object) >= LARGEST_TOTAL:
        raise InternalError(reader.FAILED)
    return KeyCounts(high.astype(np.uint64), low.astype(np.uint64), counts.astype(np.int64))


def find(counts_high: NDArray[np.uint64], counts_low: NDArray[np.uint64], keys: KeyDigests) -> NDArray[np.intp]:
    """Returns the positions of keys among the sorted digests, -1 for an absent key."""
    if not len(counts_high):
        return np.full(len(keys.high), -1, dtype=np.intp)
    start = np.searchsorted(counts_high, keys.high, side="left")
    end = np.searchsorted(counts_high, keys.high, side="right")
    positions = np.where(start < end, start, -1)
    for place in np.flatnonzero(end - start > 1):  # equal high halves by chance: the low halves decide
        positions[place] = start[place] + np.searchsorted(counts_low[start[place] : end[place]], keys.low[place])
    inside = (positions >= 0) & (positions < end)
    candidates = np.where(inside, positions, 0)
    return np.where(inside & (counts_low[candidates] == keys.low), candidates, -1)


def exact_answers(
    counts: KeyCounts, keys: KeyDigests, weights: NDArray[np.int64], lengths: Sequence[int]
) -> NDArray[np.int64]:
    """Returns weighted sums of exact counts, one for each run of consecutive keys. lengths: the runs' lengths."""
    places = find(counts._exact_high, counts._exact_low, keys)
    values = np.where(places < 0, 0, counts._exact_counts[places] if len(counts._exact_counts) else 0) * weights
    sums = np.concatenate([[0], np.cumsum(values)])
    ends = np.cumsum(lengths)
    result: NDArray[np.int64] = sums[ends] - sums[ends - np.asarray(lengths)]
    return result
