"""How rows that hold no privacy unit find it: by a reference, and joins that do nothing else."""

from __future__ import annotations

from dataclasses import dataclass

ROWS, REFERENCE = "dpduck_rows", "dpduck_reference"
"""What joins_sql calls the rows, and the column of theirs that holds the reference."""


@dataclass(frozen=True)
class UnitLookup:
    """A row source in two parts: its rows, and the hidden joins along the references of one of its relations.

    rows_sql: what follows FROM without those joins. reference_sql: the first reference, an expression over the rows.
    joins_sql: the joins of ROWS, by their REFERENCE. A parent's column is a key: a row finds one unit, or is dropped.
    """

    rows_sql: str
    reference_sql: str
    joins_sql: str
