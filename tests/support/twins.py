"""Prepared tables beside the tables themselves: counts over twins, the prepared copies, equal counts over tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pytest

from dpduck.kernel import door
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.places.live import LivePlace
from dpduck.kernel.places.place import Opened, Over
from dpduck.kernel.places.prepared import PreparedPlace
from dpduck.kernel.queries.key_counts import KeyCounts, count_keys
from dpduck.kernel.queries.keys import KeyStream, read_groups
from dpduck.kernel.worker.workers import Workers
from dpduck.language.text.names import in_sql


def told(counts: object) -> object:
    """Returns the numbers of exact counts of any kind, in a fixed order."""
    if isinstance(counts, ExactCounts):
        return by_cell(counts)
    if isinstance(counts, KeyCounts):
        parts = (counts._exact_high, counts._exact_low, counts._exact_counts)
        return sorted(zip(*(part.tolist() for part in parts), strict=True))
    assert isinstance(counts, KeyStream) and counts._workers is not None
    return groups(counts._cursor, counts._job, counts._bounding_key, counts._workers)


def cells(cursor: duckdb.DuckDBPyConnection, job: CountingJob, key: bytes, workers: Workers | None) -> object:
    """Returns exact tables by cell, without cells that are empty."""
    return by_cell(count_exactly(cursor, job, key, workers))


def by_cell(counts: ExactCounts) -> object:
    places = list(zip(*(codes.tolist() for codes in counts._exact_coordinates), strict=True))
    found: dict[tuple[int, ...], list[int]] = {}
    for number, values in enumerate(counts._exact_counts.T.tolist()):
        place = places[number] if places else ()
        known = found.setdefault(place, [0] * len(values))
        found[place] = [(one + more) % (1 << 64) for one, more in zip(known, values, strict=True)]
    return {place: values for place, values in found.items() if any(values)}


def groups(cursor: duckdb.DuckDBPyConnection, job: CountingJob, key: bytes, workers: Workers) -> object:
    """Returns exact counts by groups with private keys."""
    with read_groups(cursor, job, key, workers) as batches:
        return sorted((tuple(row.values()) for batch in batches for row in batch.to_pylist()), key=repr)


def digests(cursor: duckdb.DuckDBPyConnection, job: CountingJob, key: bytes, workers: Workers | None) -> object:
    """Returns exact counts by the digest of a key."""
    return told(count_keys(cursor, job, key, workers))


def exactly(cursor: duckdb.DuckDBPyConnection, job: object, key: bytes, workers: Workers | None) -> object:
    """Returns exact counts of a job of any kind, in a fixed order."""
    assert isinstance(job, CountingJob)
    if job.selected:
        assert workers is not None
        return groups(cursor, job, key, workers)
    return (cells if job.digest is None else digests)(cursor, job, key, workers)


def watch_twins(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, object]]:
    """Returns a list for the counts of every job over twins from now on, each over the tables and over the twins."""
    compared: list[tuple[object, object]] = []
    counting, tables = door.counting, list[duckdb.DuckDBPyConnection]()

    def note(kind: type[LivePlace] | type[PreparedPlace], *, is_prepared: bool) -> None:
        original = kind.open_rows

        @contextmanager
        def opened(place: Any, cursor: duckdb.DuckDBPyConnection, workers: Workers) -> Iterator[Opened]:
            with original(place, cursor, workers) as found:
                tables[:] = [cursor] if is_prepared else []
                yield found

        monkeypatch.setattr(kind, "open_rows", opened)

    note(LivePlace, is_prepared=False)
    note(PreparedPlace, is_prepared=True)

    def count(
        place: duckdb.DuckDBPyConnection,
        key: bytes,
        workers: Workers,
        over: Over | None = None,
    ) -> Callable[[CountingJob], object]:
        if over is None or not tables:  # a rehearsal, or tables that are not prepared
            return counting(place, key, workers)

        def compare(job: CountingJob) -> CountingJob:
            twin = over(job)
            compared.append((exactly(tables[0], job, key, workers), exactly(place, twin, key, workers)))
            return twin

        return counting(place, key, workers, compare)

    monkeypatch.setattr(door, "counting", count)
    return compared


def prepare_all(connection: duckdb.DuckDBPyConnection, besides: tuple[str, ...] = ()) -> None:
    """Prepares every table that has a policy and is not prepared."""
    rows = connection.execute("SELECT table_name FROM dp_policies() WHERE prepared_at IS NULL").fetchall()
    for (table,) in rows:
        if table not in besides:
            connection.execute("FROM dp(?)", [f"ALTER PRIVACY POLICY ON {in_sql(table)} PREPARE"]).fetchall()
