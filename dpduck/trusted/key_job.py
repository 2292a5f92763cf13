"""What is to be counted by group where groups are selected by a noisy threshold: a frozen, public description."""

from __future__ import annotations

from dataclasses import dataclass

from dpduck.trusted.counting_job import CountingJob


@dataclass(frozen=True)
class KeyedJob:
    """One scan over private rows, by groups whose values are private until they are published.

    rows: as for other counts, without aggregates; its attributes are the keys that have a public domain.
    texts: SQL of the other keys as VARCHAR, row-local and unable to raise.
    conditions: SQL; aggregate j counts the kept rows for which condition j is true, "" counts all; unable to raise.
    groups: C, the most groups of one unit; without rows.unit_sql the most rows that one row becomes through joins.
    """

    rows: CountingJob
    texts: tuple[str, ...]
    conditions: tuple[str, ...]
    groups: int

    @property
    def counts_units(self) -> bool:
        """Whether the number of rows in a group is that of its units, or where units are unknown, stands for it."""
        return self.rows.unit_sql is None or self.rows.max_rows == 1
