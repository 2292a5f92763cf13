"""Frozen, public description of a count over private rows. Trusted code turns it into SQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.columns.comparisons import Comparison
from dpduck.kernel.columns.expressions import AnalystSql, Expression, Lookup, Own, RelationColumn
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
class GroupKey:
    """Expression by which rows are grouped, with the public domain of its values."""

    value: Expression
    domain: Domain


@dataclass(frozen=True, eq=False)
class Attribute:
    """Released attribute: the image of some key columns under a public map of their codes.

    sources: positions in CountingJob.keys. codes: the attribute's code for each combination of their codes, -1 if the
    combination is dropped. A plain column has sources (i,) and codes 0..n-1.
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
    filters: further conditions. A row must meet them, and the conditions of the source.
    unit: privacy unit of a row, None for PRIVACY UNIT ROW. Rows with a NULL unit are dropped.
    max_rows: m, the most rows that are kept of one unit after filters and joins (only with a unit).
    content: all columns of the rows. A keyed hash of them orders a unit's rows, and the first are kept.
    aggregates: contributions of every kept row to tables of integers.
    copies: without a unit, the most rows that joins with public tables may turn one row into.
    place: place that holds the rows. Joins never repeat a row of a prepared table.
    periods: for units by period, the periods of the rows that are read. A unit is one person's rows of one period.
    levels: if above 0, units are counted in place of rows, each at one level. The level is the number of powers of two
    from 1 to 2^(levels - 1) below the unit's squared L2 norm. The job has one aggregate.
    spread: with levels, the most times that a unit is counted. It is counted as often as its L2 norm fits into its L1
    norm, and at least once.
    groups: C, the most cells of all keys in which a unit's rows are kept, 0 for any number.
    selected: whether groups are private until they are published. Then each group comes with its number of units, and
        each aggregate has one table. The attributes are the keys with a public domain.
    texts: the other keys of selected groups, as VARCHAR.
    digest: the only key, of an unbounded universe, as one canonical text. Rows with a NULL digest are dropped.
    cell_key: columns of a unique key of the stored table: the unit's column, and columns of `keys`. With such a key, no
    two rows of a unit are in one cell. () for none. The door checks before the charge that the table has this key.
    together: whether norms and levels are of a unit's sum over all cells. Then there are no attributes.
    beside: aggregates of this job and of other jobs over the same rows, without norms. Rows are added up once for all
    these jobs (unit_cells.py). () if this job is counted alone.
    """

    source: Source
    filters: tuple[Expression, ...]
    unit: Expression | None
    max_rows: int
    content: tuple[Expression, ...]
    keys: tuple[GroupKey, ...]
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
        if any(isinstance(item, AnalystSql) for item in (*self.content, self.digest)):
            raise InternalError("an order, or a digest, of an analyst's SQL")
        if any(item.stepped or item.reach is not None for item in (*self.aggregates, *self.beside)):
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
        """Refuses attributes without one code for each combination of their keys, and keys without a type of DuckDB."""
        for attribute in self.attributes:
            sizes = [self.keys[source].domain.size for source in attribute.sources if 0 <= source < len(self.keys)]
            if attribute.codes.shape != tuple(sizes) or len(sizes) != len(attribute.sources):
                raise InternalError("an attribute of other keys than those of the job")
        for key in self.keys:
            type_name = key.value.type_name if isinstance(key.value, RelationColumn) else ""
            if key.domain.type_name != type_name and not sql_type(key.domain.type_name).is_named:
                raise InternalError("a key of no type")

    def _require_selectable(self) -> None:
        """Refuses groups that cannot be published by their numbers of units."""
        if not self.selected or self.groups < 1:
            raise InternalError("private keys of groups that nobody selects")
        if any(aggregate.form not in ("count", "valued", "sum") for aggregate in self.aggregates):
            raise InternalError("groups are selected for counts and sums alone")
        if self.together or self.levels:
            raise InternalError("groups that are counted as one, or units of no group")
        if len({aggregate.norm > 0 for aggregate in self.aggregates}) > 1:
            raise InternalError("weights of some aggregates of a group")
        if self.cell_key:
            raise InternalError("two bounds of a unit's groups")

    @property
    def row_values(self) -> list[Expression]:
        """Lists all values that a job reads from a row, besides those of its source, its unit and its periods."""
        values = [aggregate.value for aggregate in (*self.aggregates, *self.beside) if aggregate.value is not None]
        digest = [] if self.digest is None else [self.digest]
        return [*self.content, *(key.value for key in self.keys), *self.texts, *digest, *values]

    @property
    def conditions(self) -> list[Expression]:
        """Lists all conditions that a job reads from a row, besides those of its source."""
        aggregates = (*self.aggregates, *self.beside)
        return [*self.filters, *(aggregate.condition for aggregate in aggregates if aggregate.condition is not None)]

    @property
    def unit_type(self) -> str:
        return unit_type(self.unit)

    @property
    def _has_groups(self) -> bool:
        """Tells whether `groups` can limit a unit's cells: attributes tell cells apart, and no unit has a weight."""
        plain = not self.levels and not any(aggregate.norm for aggregate in self.aggregates)
        return self.groups > 0 and plain and self.unit is not None and bool(self.keys) and self.tells_keys_apart

    @property
    def _has_cell_key(self) -> bool:
        """Tells whether cell_key proves that a unit has one row in a cell: such rows are equal in all its columns."""
        source = self.source
        if self.place != LIVE or source.joins or not isinstance(source.first, Stored):
            return False
        unit = person_of(self.unit)
        alias, values = source.first.alias, (unit, *(key.value for key in self.keys))
        stored = {
            value.name: value for value in values if isinstance(value, RelationColumn) and value.relation == alias
        }
        columns = {stored.get(name) for name in self.cell_key}
        key_values = {
            key.value
            for key in self.keys
            if isinstance(key.value, RelationColumn) and tells_values_apart(key.domain, key.value.type_name)
        }
        exact = all(column is not None and sql_type(column.type_name).has_one_form for column in columns)
        return unit in columns and exact and {unit, *key_values} >= columns

    @property
    def cell_rows(self) -> int:
        return 1 if self.cell_key else self.row_bound

    @property
    def row_bound(self) -> int:
        return self.copies if self.unit is None else self.max_rows

    @property
    def unit_bounds(self) -> tuple[int, ...]:
        """Bounds a unit's L1 norm over each aggregate's tables, or over the numbers of units of selected groups."""
        if self.selected:
            return (self.group_bound,) * len(self.aggregates)
        if self.levels:  # a unit is at one level
            return (self.spread,)
        cells = prod(key.domain.size for key in self.keys)
        if any(item.norm for item in self.aggregates) and self.merges:
            cells = prod(item.size for item in self.attributes)
        cells = min(cells, self.groups or cells)
        if self.together:
            return tuple(aggregate.together_bound(self.row_bound, cells) for aggregate in self.aggregates)
        return tuple(aggregate.unit_bound(self.row_bound, cells) for aggregate in self.aggregates)

    @property
    def cell_bounds(self) -> tuple[int, ...]:
        """Bounds a unit's contribution to one cell of all attributes, for each aggregate's tables."""
        if self.levels or not (self.tells_keys_apart or self.merges):  # one cell may get all rows of a unit
            return self.unit_bounds
        one_cell = (aggregate.unit_bound(self.cell_rows, 1) for aggregate in self.aggregates)
        return tuple(map(min, one_cell, self.unit_bounds))

    @property
    def squares_bounds(self) -> tuple[int, ...]:
        """Bounds one unit's squared L2 norm over all cells of the attributes, for each aggregate's tables."""
        if self.levels or not (self.tells_keys_apart or self.merges):
            return tuple(bound * bound for bound in self.unit_bounds)
        cells = prod([axis.size for axis in self.attributes] if self.merges else [key.domain.size for key in self.keys])
        bounds = self.row_bound, min(cells, self.groups or cells), self.cell_rows
        return tuple(aggregate.squared_bound(*bounds) for aggregate in self.aggregates)

    @property
    def group_bound(self) -> int:
        """Bounds the number of selected groups in which a unit has rows."""
        return min(self.groups, self.max_rows) if self.unit is not None else self.copies

    def norms_beside(self, merged: bool) -> tuple[Norms, ...]:
        """Returns each aggregate's norms over selected groups. merged: whether one number may add all a unit's rows."""
        rows, groups, norms = self.row_bound, self.group_bound, list[Norms]()
        for aggregate in self.aggregates:
            l1 = aggregate.unit_bound(rows, groups)
            split = aggregate.squared_bound(rows, groups, rows), aggregate.unit_bound(rows, 1)
            norms.append((l1, *((l1 * l1, l1) if merged else split)))
        return tuple(norms)

    @property
    def merges(self) -> bool:
        """Tells whether norms or levels of units are computed over cells that several key values share."""
        weighed = self.levels > 0 or any(aggregate.norm for aggregate in self.aggregates)
        return weighed and not self.together and not self.tells_keys_apart

    @property
    def tells_keys_apart(self) -> bool:
        """Tells whether any two combinations of key values that are not dropped differ in some attribute."""
        sources: set[int] = set()
        for attribute in self.attributes:
            codes = attribute.codes[attribute.codes >= 0]
            if len(np.unique(codes)) == len(codes):
                sources.update(attribute.sources)
        return sources >= set(range(len(self.keys)))


def row_copies(source: Source) -> int:
    """Bounds the rows into which joins turn one row. Refuses all but one table that is joined by keys with limits."""
    joined = [join.right for join in source.joins]
    whole = isinstance(source.first, Stored | Grouped)
    stored = all(isinstance(right.first, Stored) and not right.joins for right in joined)
    bounded = all(join.kind in LOOKING or (join.copies > 0 and _by_keys(join)) for join in source.joins)
    if not whole or not stored or not bounded:
        raise InternalError("rows that are units are those of one table, joined by keys")
    return prod(1 if join.kind in LOOKING else join.copies for join in source.joins)


def _by_keys(join: Join) -> bool:
    """Tells whether a join's conditions are exactly one equality for each of its keys, with at least one key."""
    equal = [_is_key(condition, key) for condition, key in zip(join.on, join.keys, strict=False)]
    return bool(join.keys) and len(join.on) == len(join.keys) and all(equal) and join.kind in ("JOIN", "LEFT JOIN")


def _is_key(condition: Expression, key: RelationColumn) -> bool:
    """Tells whether a condition sets a key equal to a value, and GROUP BY finds the same keys equal."""
    # 1 equals '1' and '01', two groups of texts. Equal values of one type are one group (test_rows.py).
    kind = sql_type(key.type_name)
    if isinstance(condition, Lookup):
        if any(column.relation == key.relation for column in condition.value.columns):
            return False
        return kind.is_grouped_as_compared and condition.column == key
    if not isinstance(condition, Comparison) or condition.sign != "=" or condition.other != key:
        return False
    if condition.column.relation == key.relation:
        return False
    other = sql_type(condition.column.type_name)
    return kind.is_grouped_as_compared and (kind == other or (kind.is_integer and other.is_integer))
