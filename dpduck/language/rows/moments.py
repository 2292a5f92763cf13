"""Columns that give the period of a row, by a policy's PER, and conditions that two rows share a period.

Only the meaning of a statement rests on this module. The kernel itself compares the periods of joined rows, and groups
by them. A statement that leaves periods out would have another meaning than its answer, and is refused.
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
    """Column that gives the period of a row. days: whether it holds whole days, so that moments of one day are equal.

    begins: whether it holds the first moment of a period.
    """

    alias: str
    name: str
    days: bool = False
    begins: bool = False

    def is_column(self, node: exp.Expr) -> bool:
        """Tells whether a resolved expression is this column."""
        return isinstance(node, exp.Column) and (node.table, node.name) == (self.alias, self.name)


def moment_of(relation: PrivateRelation) -> MomentColumn | None:
    """Returns the moment column of a relation. None if it shows no such column, or if references lead to its unit."""
    period = relation.policy.unit.period
    matches = (item for item in relation.columns if period is not None and fold(item.name) == fold(period.column))
    column = next(matches, None)
    if column is None or isinstance(relation.person, Referenced):
        return None
    begins = isinstance(relation.nested, Units) and not relation.nested.windowed
    return MomentColumn(relation.alias, column.name, column.type_name == "DATE", begins)


def moments_of(relations: Iterable[PrivateRelation]) -> list[MomentColumn]:
    """Lists the moment columns of relations."""
    return [moment for moment in map(moment_of, relations) if moment is not None]


def split_truncation(node: exp.Expr) -> tuple[exp.Expr, str]:
    """Splits a truncation into its operand and the word of its period. The word is "" for any other expression."""
    node = node.unnest()
    if isinstance(node, exp.Cast) and node.args["to"].this is exp.DataType.Type.DATE:
        return node.this.unnest(), "DAY"
    unit = node.args.get("unit") if isinstance(node, (exp.TimestampTrunc, exp.DateTrunc)) else None
    word = unit.name.upper() if isinstance(unit, exp.Expr) else ""
    return (node.this.unnest(), word) if word else (node, "")


def says_one_period(
    condition: exp.Expr, ours: Sequence[MomentColumn], theirs: Sequence[MomentColumn], word: str
) -> bool:
    """Tells whether a condition holds only for two rows of one period: equal moments, days or periods."""
    node = condition.unnest()
    if not isinstance(node, exp.EQ):
        return False
    sides = [_inner(side, word) for side in (node.left, node.right)]
    return any(
        any(of.is_column(left) for of in ours) and any(of.is_column(right) for of in theirs)
        for left, right in (sides, sides[::-1])
    )


def is_exactly(condition: exp.Expr, ours: Sequence[MomentColumn], theirs: Sequence[MomentColumn], word: str) -> bool:
    """Tells whether a condition says that two rows are of one period, and no more."""
    node = condition.unnest()
    if not isinstance(node, exp.EQ) or not says_one_period(condition, ours, theirs, word):
        return False
    return all(names_period(side, [*ours, *theirs], word) for side in (node.left, node.right))


def names_period(node: exp.Expr, moments: Sequence[MomentColumn], word: str) -> bool:
    """Tells whether an expression is the period of a row: a truncated moment, or a column of first moments."""
    inner, to = split_truncation(node)
    return any(of.is_column(inner) and (to == word or (of.begins and not to)) for of in moments)


def _inner(node: exp.Expr, word: str) -> exp.Expr:
    """Returns the operand of a truncation to a day or to this period. Any other expression stays."""
    inner, to = split_truncation(node)
    return inner if to in ("DAY", word) else node.unnest()
