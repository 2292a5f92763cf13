"""Facts about a job's rows from the place that they lie in, besides the facts of their table.

A job has rows of one of three kinds: those of a table itself, those of a prepared table, or those in an engine
(places/engine.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from dpduck.kernel.columns.expressions import Expression
from dpduck.kernel.contributions import NOTHING_KNOWN, OF_UNIT, OPEN, ORDER, BoundingFacts


@dataclass(frozen=True)
class LiveRows:
    """Rows of the tables themselves. A keyed hash orders the rows of a unit.

    codes: columns that are codes of a domain. Only rows outside of the domain have none. repeats: whether joins may
    repeat a row of a unit. Such copies break no known fact about its rows.
    """

    is_numbered: ClassVar[bool] = False
    """Whether each row has its number among those of its unit."""
    in_engine: ClassVar[bool] = False
    codes: frozenset[Expression] = field(default=frozenset(), kw_only=True)
    repeats: bool = field(default=True, kw_only=True)

    def ordering(self, order: str) -> dict[str, str]:
        """Returns the columns by which a unit's rows are bounded. order: SQL of their keyed hash."""
        return {ORDER: order}

    def known(self, once: bool, keys: Sequence[Expression] | None) -> BoundingFacts:
        """Returns the known facts about units. once: whether rows are read only once.

        keys: the only expressions by which rows are left out. None if anything else may leave out rows.
        """
        return NOTHING_KNOWN


LIVE = LiveRows()
"""Rows of the tables themselves."""


@dataclass(frozen=True)
class NumberedRows(LiveRows):
    """Rows of a prepared table, and SQL of values stored beside each (twin_writer.py). A row is there at most once.

    rows_sql: number of rows of the row's unit in the table. open_sql: number of such rows outside of some domain.
    order_sql: the row's number among them in keyed order. repeats: whether a statement keeps fewer rows of a unit than
    its policy has room for. Then most units are expected to have too many, and all are ranked.
    """

    is_numbered: ClassVar[bool] = True
    rows_sql: str
    open_sql: str
    order_sql: str

    def ordering(self, order: str) -> dict[str, str]:
        return {ORDER: self.order_sql, OF_UNIT: self.rows_sql, OPEN: self.open_sql}

    def known(self, once: bool, keys: Sequence[Expression] | None) -> BoundingFacts:
        placed = keys is not None and self.codes.issuperset(keys)
        return BoundingFacts(once, placed, self.repeats and not placed)
