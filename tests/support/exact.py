"""Notes the exact counts that trusted code hides, as plain text: the numbers just before noise is added.

Noted counts reach a release: those that a door or a session holds, groups with private keys that a door would read, and
counts for the file of a stream. Counts of a rehearsal are not noted. The way of counting does not show, so that two
ways can be compared. When these classes move, this file alone has to follow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.counting.exact import GROUP
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.door import Door
from dpduck.kernel.queries.key_counts import KeyCounts
from dpduck.kernel.queries.keys import KeyStream, _tables, read_groups
from dpduck.kernel.queries.sessions import SessionGate
from dpduck.kernel.queries.stream_state import StreamState
from dpduck.kernel.stage import UNITS

FEW = 12
"""Cells that are written out; of more there are sums and a hash."""


@contextmanager
def noted_counts() -> Iterator[list[str]]:
    """Lends a list to which every exact count is written, in the order of counting."""
    seen: list[str] = []
    held, asked, added = Door._count_scan, SessionGate.__init__, StreamState.add

    def hold(door: Door, scan: Any) -> Any:
        known = id(scan.job) in door._counts
        counts = held(door, scan)
        seen.extend([] if known else [written(counts)])
        return counts

    def ask(gate: SessionGate, law: Any, thresholds: Any, counts: Any, entropy: Any) -> None:
        seen.append(written(counts))
        asked(gate, law, thresholds, counts, entropy)

    def add(state: StreamState, closed: int, counts: ExactCounts, answers: Any) -> Any:
        seen.append(f"{closed} closed; {written(counts)}")
        return added(state, closed, counts, answers)

    with ExitStack() as stack:
        for kind, name, noting in (
            (Door, "_count_scan", hold),
            (SessionGate, "__init__", ask),
            (StreamState, "add", add),
        ):
            stack.enter_context(patch.object(kind, name, noting))
        yield seen


def written(counts: object) -> str:
    """Writes exact counts of any kind. Equal counts give equal texts whatever the order of rows."""
    if isinstance(counts, ExactCounts):
        bounds = " ".join(map(str, counts._unit_bounds))
        sizes = " x ".join(map(str, counts._sizes)) or "1"
        cells = _cells(list(zip(*counts._exact_coordinates, strict=True)), counts._exact_counts)
        return f"cells {sizes}, bounds {bounds}: {cells}"
    if isinstance(counts, KeyCounts):
        keys = list(zip(counts._exact_high.tolist(), counts._exact_low.tolist(), strict=True))
        return f"keys: {_cells(keys, counts._exact_counts[None, :])}"
    if isinstance(counts, KeyStream):
        return f"groups: {_groups(counts)}"
    raise TypeError(type(counts).__name__)


def _groups(stream: KeyStream) -> str:
    """Writes the groups of private keys, each with its units and its tables."""
    keys: list[tuple[Any, ...]] = []
    tables: list[NDArray[np.int64]] = []
    with read_groups(stream._cursor, stream._job, stream._bounding_key, stream._workers) as batches:
        for batch in batches:
            names = [name for name in batch.column_names if name.startswith(GROUP)]
            keys += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            exact = [batch.column(UNITS).to_numpy(), *_tables(batch, stream._job)]
            tables.append(np.array(exact, np.int64))
    return _cells(keys, np.concatenate(tables, axis=1))


def _cells(keys: Sequence[tuple[Any, ...]], tables: NDArray[np.int64]) -> str:
    """Writes occupied cells in order, each with its integers, or sums and a hash where there are many cells."""
    found: dict[str, NDArray[np.int64]] = {}
    with np.errstate(over="ignore"):
        for number, column in enumerate(tables.T):
            key = " ".join(map(_text, keys[number])) if keys else ""
            found[key] = found[key] + column if key in found else column
    lines = [f"({key}) {_numbers(of)}" for key, of in sorted(found.items()) if of.any()]
    if len(lines) <= FEW:
        return ", ".join(lines) or "nothing"
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
    return f"{len(lines)} occupied, sums {_numbers(tables.sum(axis=1))}, hash {digest}"


def _numbers(integers: NDArray[np.int64]) -> str:
    return "/".join(map(str, integers.tolist()))


def _text(code: object) -> str:
    return repr(bytes(code)) if isinstance(code, bytes | bytearray) else str(code)
