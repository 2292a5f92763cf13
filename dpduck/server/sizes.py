"""How large released rows are."""

from __future__ import annotations

from dataclasses import dataclass

from dpduck.server.vault import ReleasedRows


@dataclass(frozen=True)
class Size:
    """Of a table of released rows."""

    rows: int
    columns: int
    bytes: int


NOTHING = Size(0, 0, 0)


def size_of(rows: ReleasedRows) -> Size:
    """The size of these rows."""
    return Size(rows.table.num_rows, len(rows.columns), rows.table.nbytes)
