"""Columns that give the period of a row, by a policy's PER, and conditions that two rows are of one period.

Privacy does not depend on this module: the kernel itself compares the periods of joined rows, and groups by periods.
A statement must name the period, because its answer would otherwise differ from what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpduck.kernel.relations import Units
from dpduck.kernel.units import Referenced
from dpduck.language.rows.relation import PrivateRelation
from dpduck.values.quoting import fold


@dataclass(frozen=True)
class MomentColumn:
    """Column that gives the period of a row."""

    alias: str
    name: str
    days: bool = False  # whether it is a DATE, so that moments of one day are equal
    begins: bool = False  # whether each value is the first moment of its row's period

    def is_column(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Column) and (node.table, node.name) == (self.alias, self.name)


def moment_of(relation: PrivateRelation) -> MomentColumn | None:
    """Returns the period column of a relation. None if it has none, or if references lead to the unit."""
    period = relation.policy.unit.period
    matches = (item for item in relation.columns if period is not None and fold(item.name) == fold(period.column))
    column = next(matches, None)
    if column is None or isinstance(relation.person, Referenced):
        return None
    begins = isinstance(relation.subquery_node, Units) and not relation.subquery_node.windowed
    return MomentColumn(relation.alias, column.name, column.type_name == "DATE", begins)


def moments_of(relations: Iterable[PrivateRelation]) -> list[MomentColumn]:
    """Lists the columns that give the periods of rows in some relations, at most one for each relation."""
    return [moment for moment in map(moment_of, relations) if moment is not None]


def split_truncation(node: exp.Expr) -> tuple[exp.Expr, str]:
    """Splits date_trunc('month', x) or CAST(x AS DATE) into x and MONTH or DAY. Others stay whole, with ""."""
    node = node.unnest()
    if isinstance(node, exp.Cast) and node.args["to"].this is exp.DataType.Type.DATE:
        return node.this.unnest(), "DAY"
    unit = node.args.get("unit") if isinstance(node, (exp.TimestampTrunc, exp.DateTrunc)) else None
    word = unit.name.upper() if isinstance(unit, exp.Expr) else ""
    return (node.this.unnest(), word) if word else (node, "")


def says_one_period(
    condition: exp.Expr, ours: Sequence[MomentColumn], theirs: Sequence[MomentColumn], word: str
) -> bool:
    """Tells whether a condition implies that two rows are of one period: their moments, days or periods are equal."""
    node = condition.unnest()
    if not isinstance(node, exp.EQ):
        return False
    sides = [_inner(side, word) for side in (node.left, node.right)]
    return any(
        any(moment.is_column(left) for moment in ours) and any(moment.is_column(right) for moment in theirs)
        for left, right in (sides, sides[::-1])
    )


def is_exactly(condition: exp.Expr, ours: Sequence[MomentColumn], theirs: Sequence[MomentColumn], word: str) -> bool:
    """Tells whether a condition says exactly that two rows are of one period, and nothing else."""
    node = condition.unnest()
    if not isinstance(node, exp.EQ) or not says_one_period(condition, ours, theirs, word):
        return False
    return all(names_period(side, [*ours, *theirs], word) for side in (node.left, node.right))


def names_period(node: exp.Expr, moments: Sequence[MomentColumn], word: str) -> bool:
    """Tells whether an expression is the period of a row: a moment truncated to `word`, or its first moment."""
    inner, to = split_truncation(node)
    return any(moment.is_column(inner) and (to == word or (moment.begins and not to)) for moment in moments)


def _inner(node: exp.Expr, word: str) -> exp.Expr:
    """Removes a truncation to a day or to the period `word`, and brackets."""
    inner, to = split_truncation(node)
    return inner if to in ("DAY", word) else node.unnest()
