"""The rows of a statement as frozen nodes: stored tables, their joins, and the conditions of a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from dpduck.kernel.columns.arithmetic import Cut
from dpduck.kernel.columns.expressions import Column, Comparison, Expression
from dpduck.kernel.units import Referenced, person_of
from dpduck.values.quoting import quote_identifier

LOOKING = ("SEMI JOIN", "ANTI JOIN")
"""Joins that keep rows of the left side and add no columns to them."""

EXTENDING = frozenset(("RIGHT JOIN", "FULL JOIN"))
"""After these a condition of an earlier join is no condition of the joined row."""


MOST_LEVELS = 128
"""Sources inside of each other: at most 64 tables of a statement, with a row for each unit around each of them."""

UNIT_COLUMN = "dpduck_unit"
"""The column that holds the privacy unit of each row of a UNION ALL, and of features of units."""

PERIOD_COLUMN, NUMBER_TYPE = "dpduck_period", "BIGINT"
"""The column beside it, and its type: by periods it holds the number of the row's period."""

LOOKED_UP = "dpduck_value"
"""The column of a public table that IN (SELECT ..) looks into. The kernel adds none of this name."""


@dataclass(frozen=True)
class Stored:
    """A table under an alias. table: its name in SQL. numbered: whether rowid tells rows apart.

    selected: names that are shown, and its own columns; () for all as they are. distinct: whether equal rows are one.
    moment: where units are by periods, the column that says of which period a row is.
    """

    table: str
    alias: str
    numbered: bool = True
    selected: tuple[tuple[str, str], ...] = ()
    distinct: bool = False
    moment: Column | None = None

    @property
    def sql(self) -> str:
        """Writes the table, or the SELECT of its columns."""
        if not self.selected:
            return self.table
        listed = ", ".join(f"{quote_identifier(own)} AS {quote_identifier(shown)}" for shown, own in self.selected)
        return f"(SELECT {'DISTINCT ' if self.distinct else ''}{listed} FROM {self.table})"


@dataclass(frozen=True)
class Grouped:
    """Rows of SQL that the kernel wrote, such as DuckDB's own groups of other rows."""

    sql: str
    alias: str = ""


@dataclass(frozen=True)
class Join:
    """A join of a source. kind: JOIN, or LEFT, RIGHT, FULL, SEMI or ANTI before it. on: all conditions, as written.

    Between private rows, one of these is an equality by which both are of one unit (check.py).
    copies: of a table that rows are repeated by, the most rows that are joined for one key; else 0.
    keys: its columns that rows are joined by. content: of a private table, by which columns' keyed order its rows are
    chosen. first: whether it is the first table of the source that is cut so, in place of the joined one.
    """

    kind: str
    right: Source
    on: tuple[Expression, ...]
    copies: int = 0
    keys: tuple[Column, ...] = ()
    content: tuple[Column, ...] = ()
    first: bool = False


@dataclass(frozen=True)
class Source:
    """A FROM with its WHERE. cuts: columns that prepared rows hold cut, too."""

    first: First
    joins: tuple[Join, ...] = ()
    filters: tuple[Expression, ...] = ()
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class Branch:
    """One SELECT of a UNION ALL. outputs: stored columns or constants, with the names of the relation's columns.

    unit: the privacy unit of its rows, which stands beside them under the name UNIT_COLUMN, its period under
    PERIOD_COLUMN.
    """

    source: Source
    unit: Expression
    outputs: tuple[tuple[Expression, str], ...]

    @property
    def rows(self) -> Source:
        """Returns the rows with the joins that find their unit."""
        return with_unit(self.source, self.unit)


@dataclass(frozen=True)
class Union:
    """A UNION ALL under an alias."""

    branches: tuple[Branch, ...]
    alias: str


@dataclass(frozen=True)
class RowValue:
    """A value that a feature is made of: a column, or an analyst's expression. type_name: its type in DuckDB."""

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
    """A column that is made of the rows of one privacy unit, and of no others. name: as written in SQL.

    form: a name of kernel/rows/features.py. condition: of the rows that take part, None for all. order: of them;
    rows that are tied are in keyed order. distance: of lag and lead, in rows.
    """

    form: str
    name: str
    operand: RowValue | None = None
    condition: Expression | None = None
    order: tuple[OrderItem, ...] = ()
    distance: int = 1

    @property
    def operands(self) -> tuple[RowValue, ...]:
        """Returns all values of rows that it is made of."""
        own = () if self.operand is None else (self.operand,)
        return (*own, *(place.operand for place in self.order))


@dataclass(frozen=True)
class Units:
    """One row for each privacy unit, under an alias. outputs: columns and names. counts: conditions and names.

    The unit stands beside them under the name UNIT_COLUMN. A condition None counts every row. features: what else is
    made of a unit's rows. windowed: whether every row is there, with the features beside it, in place of one row of the
    unit.
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
        """Returns the rows with the joins that find their unit."""
        return with_unit(self.source, self.unit)

    @property
    def conditions(self) -> tuple[Expression, ...]:
        """Returns the conditions of rows that are counted, or that a feature is made of."""
        found = (*(condition for condition, _ in self.counts), *(one.condition for one in self.features))
        return tuple(condition for condition in found if condition is not None)

    @property
    def operands(self) -> tuple[RowValue, ...]:
        """Returns the values of rows that features are made of, once each."""
        return tuple(dict.fromkeys(operand for one in self.features for operand in one.operands))


First = Stored | Grouped | Union | Units


def _rows_inside(first: First) -> list[Source]:
    """Returns the sources inside of one each row of which is there as one row."""
    if isinstance(first, Union):
        return [branch.rows for branch in first.branches]
    return [first.rows] if isinstance(first, Units) and first.windowed else []


def with_unit(source: Source, unit: Expression | None) -> Source:
    """Returns rows with the joins that find their unit: along its references, where it is found by these."""
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
    """Returns the most rows that joins, inner ones too, make of one row; of a UNION ALL those of all its tables."""
    inside = sum(map(most_copies, _rows_inside(source.first))) or 1
    joined = (one for one in source.joins if one.kind not in LOOKING)
    return inside * prod(max(1, one.copies) * most_copies(one.right) for one in joined)


def repeats(source: Source) -> bool:
    """Tells whether a stored row may stand beside very many others: of a private table that is joined, whatever by."""
    if any(map(repeats, _rows_inside(source.first))):
        return True
    joined = [one for one in source.joins if one.kind not in LOOKING]
    return any(one.copies == 0 or one.content or repeats(one.right) for one in joined)


def tables_of(source: Source) -> list[Stored]:
    """Lists the stored tables of a level."""
    found = [source.first] if isinstance(source.first, Stored) else []
    for join in source.joins:
        found += tables_of(join.right)
    return found


def every_source(source: Source) -> Iterator[tuple[Source, int]]:
    """Yields a source and all that stand inside of it, each with its level. A loop: there may be very many levels."""
    left = [(source, 1)]
    while left:
        one, level = left.pop()
        yield one, level
        first, inside = one.first, [join.right for join in one.joins]
        if isinstance(first, Union | Units):
            inside[:0] = [first.source] if isinstance(first, Units) else [branch.source for branch in first.branches]
        left += [(other, level + 1) for other in reversed(inside)]


def every_table(source: Source) -> list[str]:
    """Lists the names of all stored tables that rows are made of."""
    return [one.first.table for one, _ in every_source(source) if isinstance(one.first, Stored)]


def conditions_of(source: Source) -> list[Expression]:
    """Lists the conditions of a level: of its rows and of its joins."""
    found = list(source.filters)
    for join in source.joins:
        found += [*join.on, *conditions_of(join.right)]
    return found


def adds_nulls(source: Source) -> bool:
    """Tells whether some join adds rows of NULLs."""
    return any(join.kind in ("LEFT JOIN", *EXTENDING) for join in source.joins)
