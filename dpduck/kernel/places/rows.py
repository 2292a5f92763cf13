"""Facts about the rows of a job that follow from the place where the rows lie: stored, prepared, or in an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from dpduck.kernel.columns.expressions import Expression
from dpduck.kernel.rows.bounding import NO_FACTS, OF_UNIT, OPEN, ORDER, BoundingFacts


@dataclass(frozen=True)
class LiveRows:
    """Rows of the stored tables. A keyed hash orders the rows of a unit.

    codes: columns with codes of a domain, NULL only for rows outside of the domain. repeats: whether joins may repeat a
    row of a unit without making a known fact false.
    """

    is_numbered: ClassVar[bool] = False
    """Whether a column numbers the rows of each unit."""
    in_engine: ClassVar[bool] = False
    codes: frozenset[Expression] = field(default=frozenset(), kw_only=True)
    repeats: bool = field(default=True, kw_only=True)

    def ordering(self, order: str) -> dict[str, str]:
        """Returns, by name, the columns that decide which rows of a unit are kept. order: SQL of the keyed hash."""
        return {ORDER: order}

    def bounding_facts(self, once: bool, keys: Sequence[Expression] | None) -> BoundingFacts:
        """Returns the facts about units in the columns of `ordering`. once: whether rows can be read only once.

        keys: expressions for which a row without a code is left out. None if rows may be left out for other reasons.
        """
        return NO_FACTS


LIVE = LiveRows()
"""Rows of the stored tables, without any facts."""


@dataclass(frozen=True)
class NumberedRows(LiveRows):
    """Rows of a prepared table, each at most once, and SQL of facts that are stored in each row (prepared_writer.py).

    rows_sql: number of rows of the row's unit. open_sql: number of its rows outside some domain. order_sql: the row's
    number among the unit's rows in keyed order. repeats: whether a statement keeps fewer rows of a unit than MAX ROWS
    of its policy. Then most units are expected to have too many rows, and all rows are ranked.
    """

    is_numbered: ClassVar[bool] = True
    rows_sql: str
    open_sql: str
    order_sql: str

    def ordering(self, order: str) -> dict[str, str]:
        return {ORDER: self.order_sql, OF_UNIT: self.rows_sql, OPEN: self.open_sql}

    def bounding_facts(self, once: bool, keys: Sequence[Expression] | None) -> BoundingFacts:
        placed = keys is not None and self.codes.issuperset(keys)
        return BoundingFacts(once, placed, self.repeats and not placed)
