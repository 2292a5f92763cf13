"""Columns that say of which period of a policy's PER a row is, and conditions that say so of two rows.

Nothing rests on it but the meaning of a statement: the kernel compares the periods of joined rows itself, and groups
by them. A statement that does not say so would mean something else than what is answered, and is refused.
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
class Moment:
    """A column that says of which period a row is. days: whether it holds whole days, so that all of one compare alike.

    begins: whether it holds the first moment of a period.
    """

    alias: str
    name: str
    days: bool = False
    begins: bool = False

    def is_column(self, node: exp.Expr) -> bool:
        """Tells whether a resolved expression is this column."""
        return isinstance(node, exp.Column) and (node.table, node.name) == (self.alias, self.name)


def moment_of(relation: PrivateRelation) -> Moment | None:
    """Returns the column of a relation that says of which period a row is; None where it shows no such column."""
    period = relation.policy.unit.period
    found = (one for one in relation.columns if period is not None and fold(one.name) == fold(period.column))
    column = next(found, None)
    if column is None or isinstance(relation.person, Referenced):
        return None
    begins = isinstance(relation.nested, Units) and not relation.nested.windowed
    return Moment(relation.alias, column.name, column.type_name == "DATE", begins)


def moments_of(relations: Iterable[PrivateRelation]) -> list[Moment]:
    """Lists the columns of relations that say of which period a row is."""
    return [one for one in map(moment_of, relations) if one is not None]


def truncated(node: exp.Expr) -> tuple[exp.Expr, str]:
    """Returns an expression without the period that it is truncated to, and the word of that; "" for none."""
    node = node.unnest()
    if isinstance(node, exp.Cast) and node.args["to"].this is exp.DataType.Type.DATE:
        return node.this.unnest(), "DAY"
    unit = node.args.get("unit") if isinstance(node, (exp.TimestampTrunc, exp.DateTrunc)) else None
    word = unit.name.upper() if isinstance(unit, exp.Expr) else ""
    return (node.this.unnest(), word) if word else (node, "")


def says_one_period(condition: exp.Expr, ours: Sequence[Moment], theirs: Sequence[Moment], word: str) -> bool:
    """Tells whether a condition holds only of two rows of one period: equal moments, or their equal days or periods."""
    node = condition.unnest()
    if not isinstance(node, exp.EQ):
        return False
    sides = [_inner(side, word) for side in (node.left, node.right)]
    return any(
        any(of.is_column(one) for of in ours) and any(of.is_column(other) for of in theirs)
        for one, other in (sides, sides[::-1])
    )


def is_exactly(condition: exp.Expr, ours: Sequence[Moment], theirs: Sequence[Moment], word: str) -> bool:
    """Tells whether a condition says no more than that two rows are of one period."""
    node = condition.unnest()
    if not isinstance(node, exp.EQ) or not says_one_period(condition, ours, theirs, word):
        return False
    return all(names_period(side, [*ours, *theirs], word) for side in (node.left, node.right))


def names_period(node: exp.Expr, moments: Sequence[Moment], word: str) -> bool:
    """Tells whether an expression is the period of a row: a moment that is truncated to it."""
    inner, to = truncated(node)
    return any(of.is_column(inner) and (to == word or (of.begins and not to)) for of in moments)


def _inner(node: exp.Expr, word: str) -> exp.Expr:
    """Returns what is truncated to a day or a period of a word; anything else as it is."""
    inner, to = truncated(node)
    return inner if to in ("DAY", word) else node.unnest()
