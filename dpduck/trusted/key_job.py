"""What is to be counted by group where groups are selected by a noisy threshold: a frozen, public description."""

from __future__ import annotations

from dataclasses import dataclass

from dpduck.trusted.counting_job import CountingJob


@dataclass(frozen=True)
class KeyedJob:
    """One scan over private rows, by groups whose values are private until they are published.

    rows: as for other counts; its attributes are the keys that have a public domain.
    texts: SQL of the other keys as VARCHAR, row-local and unable to raise.
    groups: C, the most groups of one unit (only with rows.unit_sql, and where it is below rows.max_rows).
    """

    rows: CountingJob
    texts: tuple[str, ...]
    groups: int
