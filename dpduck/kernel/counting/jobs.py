"""What is to be counted over private rows: a frozen, public description that trusted code turns into SQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.columns.expressions import Column, Comparison, Expression, Lookup, Own, Program
from dpduck.kernel.columns.keys import KeyText
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.places.rows import LIVE, LiveRows
from dpduck.kernel.queries.operators import Norms
from dpduck.kernel.relations import LOOKING, Grouped, Join, Source, Stored
from dpduck.kernel.units import InPeriod, person_of, unit_type
from dpduck.values.domain import Domain, tells_values_apart
from dpduck.values.errors import InternalError
from dpduck.values.periods import Periods
from dpduck.values.sqltypes import sql_type


@dataclass(frozen=True)
class KeyColumn:
    """A value of a row that is grouped by, with its public domain."""

    value: Expression
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

    def __post_init__(self) -> None:
        self.codes.setflags(write=False)
        if self.codes.size and not (self.codes.min() >= -1 and self.codes.max() < self.size):
            raise InternalError("codes beyond the size of an attribute")


@dataclass(frozen=True)
class CountingJob:
    """One scan over private rows: integer contributions of every row, added up by released attribute.

    source: the private tables and their joins.
    filters: conditions beside those of the source. A row must meet all of them.
    unit: the privacy unit of a row; None for PRIVACY UNIT ROW. Rows of which it is NULL are dropped.
    max_rows: m, rows kept of one unit after filters and joins (only with a unit).
    content: every column of the row source, for the keyed order in which a unit's rows are kept.
    aggregates: what every kept row adds to each table of integers.
    copies: without a unit, the most rows that the joins with public tables make of one.
    place: of the rows. Joins repeat those of prepared tables no more than once.
    periods: where units are by period, those of which rows are read. A unit is one person's rows of one of them.
    levels: where it is above 0, units are counted in place of rows, each at one level. The level is the number of
        powers of two from 1 to 2^(levels - 1) below the unit's squared L2 norm. There is one aggregate.
    spread: with levels, the most that a unit counts for. It counts as often as its L2 norm fits into its L1 norm, and
        at least once.
    groups: C, the most cells of all keys in which a unit's rows are kept, 0 for any number.
    selected: whether groups are private until they are published. Each group comes with its number of units then, and
        each aggregate has one table. The attributes are the keys with a public domain.
    texts: the other keys of selected groups, as VARCHAR.
    digest: a key of an unbounded universe, in one canonical text, by which rows are counted. Rows for which it is NULL
        are dropped. There are no other keys then.
    cell_key: columns of a key of the stored table, () for none. They are the unit and columns that are keys here. No
        two rows of a unit are in one cell then. The door looks the key up before it charges (places/prepared.py).
    together: whether norms and levels are of all cells of a unit, as if they were one. There are no attributes then.
    beside: its aggregates and those of other jobs over the same rows, without norms. Rows are added up once for these
        jobs (unit_cells.py). (): this job is counted alone.
    """

    source: Source
    filters: tuple[Expression, ...]
    unit: Expression | None
    max_rows: int
    content: tuple[Expression, ...]
    keys: tuple[KeyColumn, ...]
    attributes: tuple[Attribute, ...] = field(repr=False)
    aggregates: tuple[Contribution, ...]
    copies: int = 1
    place: LiveRows = field(default=LIVE, repr=False)
    periods: Periods | None = None
    levels: int = 0
    spread: int = 1
    groups: int = 0
    cell_key: tuple[str, ...] = ()
    together: bool = False
    selected: bool = False
    texts: tuple[Expression, ...] = ()
    digest: KeyText | Own | None = None
    beside: tuple[Contribution, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.selected or self.texts:
            self._require_selectable()
        if self.digest is not None and (self.keys or self.groups or self.aggregates != (Contribution(),)):
            raise InternalError("groups of a unit where each value is one")
        if any(isinstance(one, Program) for one in (*self.content, self.digest)):
            raise InternalError("an order, or a digest, of an analyst's SQL")
        if any(one.stepped or one.reach is not None for one in (*self.aggregates, *self.beside)):
            raise InternalError("an aggregate that says what its values are")
        self._require_codes()
        if self.together and (self.attributes or self.unit is None):
            raise InternalError("cells together that are told apart, or of no unit")
        if self.levels and (self.unit is None or len(self.aggregates) != 1 or self.aggregates[0].norm):
            raise InternalError("levels of no units, or of several aggregates")
        if self.spread < 1 or (self.spread > 1 and not self.levels):
            raise InternalError("units that count for no number of times")
        if self.periods is not None and self.place != LIVE:
            raise InternalError("periods of rows that are not read as they are stored")
        if self.periods is None and isinstance(self.unit, InPeriod):
            raise InternalError("units by periods of which none is read")
        if self.unit is None and row_copies(self.source) > self.copies:
            raise InternalError("joins repeat a row more often than its price says")
        if self.unit is None and any(aggregate.norm for aggregate in self.aggregates):
            raise InternalError("a norm needs a privacy unit with several rows")
        if self.place.is_numbered and row_copies(self.source) > 1:
            raise InternalError("joins repeat rows whose units were counted")
        if self.groups and not (self.selected or self._has_groups):
            raise InternalError("groups of no units, or of keys that merge values")
        if self.cell_key and not self._has_cell_key:
            raise InternalError("a unit with one row a cell, by a key that does not say so")

    def _require_codes(self) -> None:
        """Refuses attributes with other codes than of all combinations of their keys, and keys of no type of DuckDB."""
        for one in self.attributes:
            sizes = [self.keys[source].domain.size for source in one.sources if 0 <= source < len(self.keys)]
            if one.codes.shape != tuple(sizes) or len(sizes) != len(one.sources):
                raise InternalError("an attribute of other keys than those of the job")
        for key in self.keys:
            own = key.value.type_name if isinstance(key.value, Column) else ""
            if key.domain.type_name != own and not sql_type(key.domain.type_name).is_named:
                raise InternalError("a key of no type")

    def _require_selectable(self) -> None:
        """Refuses groups that are published by no number of units."""
        if not self.selected or self.groups < 1:
            raise InternalError("private keys of groups that nobody selects")
        if any(one.form not in ("count", "valued", "sum") for one in self.aggregates):
            raise InternalError("groups are selected for counts and sums alone")
        if self.together or self.levels:
            raise InternalError("groups that are counted as one, or units of no group")
        if len({one.norm > 0 for one in self.aggregates}) > 1:
            raise InternalError("weights of some aggregates of a group")
        if self.cell_key:
            raise InternalError("two bounds of a unit's groups")

    @property
    def read(self) -> list[Expression]:
        """Returns all values that are read of a row, beside its source, its unit and its periods."""
        values = [one.value for one in (*self.aggregates, *self.beside) if one.value is not None]
        digest = [] if self.digest is None else [self.digest]
        return [*self.content, *(key.value for key in self.keys), *self.texts, *digest, *values]

    @property
    def conditions(self) -> list[Expression]:
        """Returns all conditions that are read of a row, beside those of its source."""
        aggregates = (*self.aggregates, *self.beside)
        return [*self.filters, *(one.condition for one in aggregates if one.condition is not None)]

    @property
    def unit_type(self) -> str:
        """Returns DuckDB's type of the unit, "" for rows that are units."""
        return unit_type(self.unit)

    @property
    def _has_groups(self) -> bool:
        """Tells whether a unit's groups are the cells of its keys, of which each is told from the others."""
        plain = not self.levels and not any(one.norm for one in self.aggregates)
        return self.groups > 0 and plain and self.unit is not None and bool(self.keys) and self.tells_keys_apart

    @property
    def _has_cell_key(self) -> bool:
        """Tells whether rows of one unit in one cell are alike in every column of the cell's key.

        Rows are those of the stored table, each once. A key of the job has one value in a cell, which is not NULL.
        """
        source = self.source
        if self.place != LIVE or source.joins or not isinstance(source.first, Stored):
            return False
        unit = person_of(self.unit)
        alias, values = source.first.alias, (unit, *(key.value for key in self.keys))
        stored = {one.name: one for one in values if isinstance(one, Column) and one.relation == alias}
        columns = {stored.get(name) for name in self.cell_key}
        told = {
            key.value
            for key in self.keys
            if isinstance(key.value, Column) and tells_values_apart(key.domain, key.value.type_name)
        }
        exact = all(column is not None and sql_type(column.type_name).has_one_form for column in columns)
        return unit in columns and exact and {unit, *told} >= columns

    @property
    def cell_rows(self) -> int:
        """Returns the most rows of one unit in one cell of all keys."""
        return 1 if self.cell_key else self.row_bound

    @property
    def row_bound(self) -> int:
        """Returns the most rows of one unit that are counted."""
        return self.copies if self.unit is None else self.max_rows

    @property
    def unit_bounds(self) -> tuple[int, ...]:
        """Returns the most that one unit's kept rows add to all tables of each aggregate together (L1).

        Of selected groups it is what a unit adds to their numbers of units.
        """
        if self.selected:
            return (self.group_bound,) * len(self.aggregates)
        if self.levels:  # a unit is at one level
            return (self.spread,)
        cells = prod(key.domain.size for key in self.keys)
        if any(one.norm for one in self.aggregates) and self.merges:
            cells = prod(one.size for one in self.attributes)
        cells = min(cells, self.groups or cells)
        if self.together:
            return tuple(aggregate.together_bound(self.row_bound, cells) for aggregate in self.aggregates)
        return tuple(aggregate.unit_bound(self.row_bound, cells) for aggregate in self.aggregates)

    @property
    def cell_bounds(self) -> tuple[int, ...]:
        """Returns the most that one unit's kept rows add to one cell of all attributes, of each aggregate's tables.

        A bound by group is of a cell of the keys. It holds for a cell of the attributes where these tell all keys
        apart. Elsewhere a cell may hold as much as all cells together.
        """
        if self.levels or not (self.tells_keys_apart or self.merges):
            return self.unit_bounds
        one_cell = (aggregate.unit_bound(self.cell_rows, 1) for aggregate in self.aggregates)
        return tuple(map(min, one_cell, self.unit_bounds))

    @property
    def squared_bounds(self) -> tuple[int, ...]:
        """Returns one unit's largest squared L2 norm over all cells of the attributes, of each aggregate's tables."""
        if self.levels or not (self.tells_keys_apart or self.merges):
            return tuple(bound * bound for bound in self.unit_bounds)
        cells = prod([one.size for one in self.attributes] if self.merges else [key.domain.size for key in self.keys])
        bounds = self.row_bound, min(cells, self.groups or cells), self.cell_rows
        return tuple(aggregate.squared_bound(*bounds) for aggregate in self.aggregates)

    @property
    def group_bound(self) -> int:
        """Returns the most selected groups in which a unit has rows."""
        return min(self.groups, self.max_rows) if self.unit is not None else self.copies

    def norms_beside(self, merged: bool) -> tuple[Norms, ...]:
        """Returns for each aggregate how far a unit moves its table by selected group (L1, squared L2, any one number).

        merged: whether groups may be added up to one row, so that a unit has all in one number.
        """
        rows, groups, found = self.row_bound, self.group_bound, list[Norms]()
        for one in self.aggregates:
            l1 = one.unit_bound(rows, groups)
            split = one.squared_bound(rows, groups, rows), one.unit_bound(rows, 1)
            found.append((l1, *((l1 * l1, l1) if merged else split)))
        return tuple(found)

    @property
    def merges(self) -> bool:
        """Tells whether units are weighed by cells of the attributes, which put several values of keys into one."""
        weighed = self.levels > 0 or any(one.norm for one in self.aggregates)
        return weighed and not self.together and not self.tells_keys_apart

    @property
    def tells_keys_apart(self) -> bool:
        """Tells whether any two combinations of keys differ in some attribute, or are dropped."""
        told: set[int] = set()
        for attribute in self.attributes:
            kept = attribute.codes[attribute.codes >= 0]
            if len(np.unique(kept)) == len(kept):
                told.update(attribute.sources)
        return told >= set(range(len(self.keys)))


def row_copies(source: Source) -> int:
    """Returns the most rows that joins make of one row, each with a stored table by equality with its keys
    (rows/held.cut_sql).

    Another relation is none of a row of its own, and rows of a joined table that nobody cuts have no bound.
    """
    joined = [join.right for join in source.joins]
    whole = isinstance(source.first, Stored | Grouped)
    stored = all(isinstance(one.first, Stored) and not one.joins for one in joined)
    bounded = all(join.kind in LOOKING or (join.copies > 0 and _by_keys(join)) for join in source.joins)
    if not whole or not stored or not bounded:
        raise InternalError("rows that are units are those of one table, joined by keys")
    return prod(1 if join.kind in LOOKING else join.copies for join in source.joins)


def _by_keys(join: Join) -> bool:
    """Tells whether its conditions are equalities with its keys, of which there is one, and nothing else."""
    equal = [_is_key(one, key) for one, key in zip(join.on, join.keys, strict=False)]
    return bool(join.keys) and len(join.on) == len(join.keys) and all(equal) and join.kind in ("JOIN", "LEFT JOIN")


def _is_key(condition: Expression, key: Column) -> bool:
    """Tells whether values that are equal to one value are one group of the key: not so of INTEGER = VARCHAR, 1 and 01.

    Of one type DuckDB groups by what it compares (tests/kernel/rows/test_rows.py).
    """
    own = sql_type(key.type_name)
    if isinstance(condition, Lookup):
        if any(one.relation == key.relation for one in condition.value.columns):
            return False
        return own.is_grouped_as_compared and condition.column == key
    if not isinstance(condition, Comparison) or condition.sign != "=" or condition.other != key:
        return False
    if condition.column.relation == key.relation:
        return False
    other = sql_type(condition.column.type_name)
    return own.is_grouped_as_compared and (own == other or (own.is_integer and other.is_integer))
