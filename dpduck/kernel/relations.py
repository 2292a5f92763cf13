"""Frozen nodes for the rows of a statement: stored tables, their joins, and the conditions of a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from dpduck.kernel.columns.comparisons import Comparison
from dpduck.kernel.columns.expressions import Expression, RelationColumn
from dpduck.kernel.columns.whole_numbers import Cut
from dpduck.kernel.units import Referenced, person_of
from dpduck.values.quoting import quote_identifier

LOOKING = ("SEMI JOIN", "ANTI JOIN")
"""Joins that keep rows of the left side and add no columns to them."""

EXTENDING = frozenset(("RIGHT JOIN", "FULL JOIN"))
"""Joins that add rows with NULLs on the left side. The conditions of earlier joins need not hold in such a row."""


MOST_LEVELS = 128
"""Largest depth of nested sources. A statement has at most 64 tables, and each may lie inside a Units node."""

UNIT_COLUMN = "dpduck_unit"
"""Column with the privacy unit of each row, for a UNION ALL and for features of units."""

PERIOD_COLUMN, NUMBER_TYPE = "dpduck_period", "BIGINT"
"""Column next to UNIT_COLUMN, and its type. It holds the number of the row's period, for units by periods."""

LOOKED_UP = "dpduck_value"
"""Column of a public table that IN (SELECT ..) looks into. The kernel adds no column of this name."""


@dataclass(frozen=True)
class Stored:
    """Stored table under an alias. table: its name in SQL. numbered: whether rowid identifies a row.

    selected: output names with the table's columns, () for all columns as they are. distinct: whether equal rows are
    merged. moment: for units by periods, the column with the date or time of a row.
    """

    table: str
    alias: str
    numbered: bool = True
    selected: tuple[tuple[str, str], ...] = ()
    distinct: bool = False
    moment: RelationColumn | None = None

    @property
    def sql(self) -> str:
        if not self.selected:
            return self.table
        listed = ", ".join(f"{quote_identifier(column)} AS {quote_identifier(name)}" for name, column in self.selected)
        return f"(SELECT {'DISTINCT ' if self.distinct else ''}{listed} FROM {self.table})"


@dataclass(frozen=True)
class Grouped:
    """Rows that a query of the kernel itself returns, such as groups of other rows."""

    sql: str
    alias: str = ""


@dataclass(frozen=True)
class Join:
    """Join of a source. kind: JOIN, or LEFT, RIGHT, FULL, SEMI or ANTI before it. on: all conditions, as written.

    Between private rows, one condition is an equality by which both rows are of one unit (check.py).
    copies: largest number of rows of the table for one key, 0 for no limit. keys: the table's columns that rows are
    joined by. content: columns of a private table. A keyed hash of them orders its rows, and the limit keeps the first.
    first: whether the limit is on the first table of the source, and not on the joined table.
    """

    kind: str
    right: Source
    on: tuple[Expression, ...]
    copies: int = 0
    keys: tuple[RelationColumn, ...] = ()
    content: tuple[RelationColumn, ...] = ()
    first: bool = False


@dataclass(frozen=True)
class Source:
    """FROM with its WHERE. cuts: columns of prepared rows that are stored a second time, clamped."""

    first: First
    joins: tuple[Join, ...] = ()
    filters: tuple[Expression, ...] = ()
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class Branch:
    """One SELECT of a UNION ALL. outputs: stored columns or constants, with the names of the relation's columns.

    unit: privacy unit of the rows. The relation has it in UNIT_COLUMN, and the number of its period in PERIOD_COLUMN.
    """

    source: Source
    unit: Expression
    outputs: tuple[tuple[Expression, str], ...]

    @property
    def rows(self) -> Source:
        return with_unit(self.source, self.unit)


@dataclass(frozen=True)
class Union:
    """A UNION ALL under an alias."""

    branches: tuple[Branch, ...]
    alias: str


@dataclass(frozen=True)
class RowValue:
    """Input value of a feature: a column, or an analyst's expression. type_name: its type in DuckDB."""

    value: Expression
    type_name: str


@dataclass(frozen=True)
class OrderItem:
    """A value that a unit's rows are ordered by."""

    operand: RowValue
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Feature:
    """Column that is computed from the rows of one privacy unit, and from no others. name: its name in SQL.

    form: a name of kernel/rows/features.py. condition: predicate of the rows that take part, None for all rows. order:
    order of these rows. Tied rows are in keyed order. distance: distance of lag and lead, in rows.
    """

    form: str
    name: str
    operand: RowValue | None = None
    condition: Expression | None = None
    order: tuple[OrderItem, ...] = ()
    distance: int = 1

    @property
    def operands(self) -> tuple[RowValue, ...]:
        own = () if self.operand is None else (self.operand,)
        return (*own, *(place.operand for place in self.order))


@dataclass(frozen=True)
class Units:
    """One row for each privacy unit, under an alias. outputs: columns and names. counts: conditions and names.

    The unit is one more column, UNIT_COLUMN. A count is the number of rows that meet its condition. The condition None
    counts all rows. features: other columns that are computed from a unit's rows. windowed: whether the result has
    every row of the unit, with the features added to it, and not one row for the unit.
    """

    source: Source
    unit: Expression
    outputs: tuple[tuple[Expression, str], ...]
    counts: tuple[tuple[Expression | None, str], ...]
    alias: str
    features: tuple[Feature, ...] = ()
    windowed: bool = False

    @property
    def rows(self) -> Source:
        return with_unit(self.source, self.unit)

    @property
    def conditions(self) -> tuple[Expression, ...]:
        candidates = (*(condition for condition, _ in self.counts), *(feature.condition for feature in self.features))
        return tuple(condition for condition in candidates if condition is not None)

    @property
    def operands(self) -> tuple[RowValue, ...]:
        return tuple(dict.fromkeys(operand for feature in self.features for operand in feature.operands))


First = Stored | Grouped | Union | Units


def _rows_inside(first: First) -> list[Source]:
    """Lists the sources inside a UNION ALL or windowed Units, where each row of a source gives one row."""
    if isinstance(first, Union):
        return [branch.rows for branch in first.branches]
    return [first.rows] if isinstance(first, Units) and first.windowed else []


def with_unit(source: Source, unit: Expression | None) -> Source:
    """Adds the joins that lead from rows to their unit, if the unit is in another table (Referenced)."""
    unit = person_of(unit)
    if not isinstance(unit, Referenced):
        return source
    joins, reference = list[Join](), unit.reference
    for step in unit.steps:
        stored = Source(Stored(step.table, step.key.relation, False))
        joins.append(Join("JOIN", stored, (Comparison(reference, "=", step.key),)))
        reference = step.reference or reference
    return replace(source, joins=(*source.joins, *joins))


def most_copies(source: Source) -> int:
    """Bounds the number of joined rows that contain one stored row. A UNION ALL adds up the bounds of its branches."""
    inside = sum(map(most_copies, _rows_inside(source.first))) or 1
    joined = (join for join in source.joins if join.kind not in LOOKING)
    return inside * prod(max(1, join.copies) * most_copies(join.right) for join in joined)


def repeats(source: Source) -> bool:
    """Tells whether joins may repeat a stored row without a bound. A join of a private table may always do so."""
    if any(map(repeats, _rows_inside(source.first))):
        return True
    joined = [join for join in source.joins if join.kind not in LOOKING]
    return any(join.copies == 0 or join.content or repeats(join.right) for join in joined)


def tables_of(source: Source) -> list[Stored]:
    """Lists the stored tables of a FROM, without the tables inside a UNION ALL or Units."""
    tables = [source.first] if isinstance(source.first, Stored) else []
    for join in source.joins:
        tables += tables_of(join.right)
    return tables


def every_source(source: Source) -> Iterator[tuple[Source, int]]:
    """Yields a source and all sources nested in it, with their depths. It is a loop: recursion could run too deep."""
    left = [(source, 1)]
    while left:
        current, level = left.pop()
        yield current, level
        first, inside = current.first, [join.right for join in current.joins]
        if isinstance(first, Union | Units):
            inside[:0] = [first.source] if isinstance(first, Units) else [branch.source for branch in first.branches]
        left += [(other, level + 1) for other in reversed(inside)]


def every_table(source: Source) -> list[str]:
    """Lists the names of all stored tables that a source reads, at any depth."""
    return [inner.first.table for inner, _ in every_source(source) if isinstance(inner.first, Stored)]


def conditions_of(source: Source) -> list[Expression]:
    """Lists the conditions of a WHERE and of its joins, without those inside a UNION ALL or Units."""
    conditions = list(source.filters)
    for join in source.joins:
        conditions += [*join.on, *conditions_of(join.right)]
    return conditions


def adds_nulls(source: Source) -> bool:
    """Tells whether some join adds rows of NULLs."""
    return any(join.kind in ("LEFT JOIN", *EXTENDING) for join in source.joins)
