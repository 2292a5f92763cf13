"""What is known of a job's rows by the place that they lie in, besides what their table says.

A job has rows of one of three kinds: those of a table itself, those of a prepared table, or those in an engine
(places/engine.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from dpduck.kernel.columns.expressions import Expression
from dpduck.kernel.contributions import NOTHING_KNOWN, OF_UNIT, OPEN, ORDER, Known


@dataclass(frozen=True)
class LiveRows:
    """Rows of the tables themselves. A keyed hash orders those of a unit.

    codes: columns that are codes of a domain, of which only rows outside of it have none. repeats: whether joins may
    repeat a row of a unit: nothing that is known of its rows is lost by that.
    """

    is_numbered: ClassVar[bool] = False
    """Whether each row has its number among those of its unit."""
    in_engine: ClassVar[bool] = False
    codes: frozenset[Expression] = field(default=frozenset(), kw_only=True)
    repeats: bool = field(default=True, kw_only=True)

    def ordering(self, order: str) -> dict[str, str]:
        """Returns columns by which a unit's rows are bounded. order: SQL of their keyed hash."""
        return {ORDER: order}

    def known(self, once: bool, keys: Sequence[Expression] | None) -> Known:
        """Returns what is known of units. once: whether rows are read only once.

        keys: by which alone rows are left out; None where anything else may leave out rows.
        """
        return NOTHING_KNOWN


LIVE = LiveRows()
"""Rows of the tables themselves."""


@dataclass(frozen=True)
class NumberedRows(LiveRows):
    """Rows of a prepared table, with what is stored beside each (twin_writer.py), as SQL. A row is there once at most.

    rows_sql: how many rows the row's unit has in the table. open_sql: how many of these are outside of some domain.
    order_sql: the row's number among them in keyed order. repeats: whether a statement keeps fewer rows of a unit than
    its policy has room for, so that most units can be expected to have too many, and all are ranked.
    """

    is_numbered: ClassVar[bool] = True
    rows_sql: str
    open_sql: str
    order_sql: str

    def ordering(self, order: str) -> dict[str, str]:
        return {ORDER: self.order_sql, OF_UNIT: self.rows_sql, OPEN: self.open_sql}

    def known(self, once: bool, keys: Sequence[Expression] | None) -> Known:
        placed = keys is not None and self.codes.issuperset(keys)
        return Known(once, placed, self.repeats and not placed)
