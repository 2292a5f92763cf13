"""What is to be counted over private rows: a frozen, public description that trusted code turns into SQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.domain import Domain
from dpduck.frontend.row_parts import Source
from dpduck.frontend.unit_lookup import UnitLookup
from dpduck.trusted.contribution import Contribution


@dataclass(frozen=True)
class KeyColumn:
    """A column of the row source that is grouped by, with its public domain.

    sql: an expression over the row source that has been proven row-local and unable to raise.
    """

    sql: str
    domain: Domain


@dataclass(frozen=True, eq=False)
class Attribute:
    """A released attribute: the image of some key columns under a public map of their codes.

    sources: positions in CountingJob.keys. codes: shape (sizes of the sources), the attribute's code for each
    combination, -1 where the combination is dropped. A plain column has sources (i,) and codes 0..n-1.
    """

    sources: tuple[int, ...]
    codes: NDArray[np.int64]
    size: int


@dataclass(frozen=True)
class CountingJob:
    """One scan over private rows: integer contributions of every row, added up by released attribute.

    from_sql: what follows FROM: the private table and its joins with public tables, identifiers quoted.
    filters: SQL conditions, all of which a row must meet; each is unable to raise.
    unit_sql: the privacy unit of a row; None for PRIVACY UNIT ROW. Rows whose unit is NULL are dropped.
    max_rows: m, rows kept of one unit after filters and joins (only with unit_sql).
    content_sql: every column of the row source, for the keyed order in which a unit's rows are kept.
    aggregates: what every kept row adds to each table of integers.
    lookup: from_sql in two parts, where its last joins do nothing but find the unit.
    source: what from_sql is, taken apart; None where all SQL here is trusted code's own. With a lookup, without the
        joins that find the unit. unit_type: DuckDB's type of the unit.
    copies: without unit_sql, the most rows that the joins with public tables make of one.
    """

    from_sql: str
    filters: tuple[str, ...]
    unit_sql: str | None
    max_rows: int
    content_sql: tuple[str, ...]
    keys: tuple[KeyColumn, ...]
    attributes: tuple[Attribute, ...] = field(repr=False)
    aggregates: tuple[Contribution, ...]
    lookup: UnitLookup | None = None
    source: Source | None = None
    unit_type: str = ""
    copies: int = 1

    @property
    def unit_bounds(self) -> tuple[int, ...]:
        """For each aggregate, the most that one unit's kept rows add to all of its tables together (L1)."""
        rows = self.copies if self.unit_sql is None else self.max_rows
        cells = prod(key.domain.size for key in self.keys)
        return tuple(aggregate.unit_bound(rows, cells) for aggregate in self.aggregates)
