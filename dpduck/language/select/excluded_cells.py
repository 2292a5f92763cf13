"""Cells that WHERE rules out by public facts: no row can be in them, so the answer leaves them out.

Only conditions on one key column are read: its comparisons with literals, joined by AND and OR. The release itself has
all cells of the domain, whatever WHERE says, and keeps its name and its price.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import SourceColumn
from dpduck.language.rows.scope import Scope, resolve
from dpduck.language.select.answers import column_of_release, rolled_up_bit
from dpduck.language.select.label_spans import label_reader
from dpduck.language.select.request import Key

MOST_LISTED = 1_000
"""Most labels that the answer's SQL lists. If more are possible and more are impossible, all are shown."""


def possible_cells(
    where: exp.Expr, keys: Sequence[Key], sources: Sequence[SourceColumn], scope: Scope, collated: bool
) -> exp.Expr | None:
    """Returns a condition for the released cells that may hold rows. None if all cells may."""
    conjuncts = list(where.flatten()) if isinstance(where, exp.And) else [where]
    combined: exp.Expr | None = None
    for position, key in enumerate(keys):
        if not is_plain(key, sources):
            continue
        reader = label_reader(sources[key.sources[0]].domain, collated, reads_not=False)
        mine = [part for part in conjuncts if columns_of(part, scope) == {key.expression}]
        if reader is None or not mine:
            continue
        possible = reduce(reader.both, map(reader.read_condition, mine))
        condition = _label_condition(key, position, possible.tolist())
        if condition is not None:
            combined = condition if combined is None else exp.And(this=combined, expression=condition)
    return combined


def is_plain(key: Key, sources: Sequence[SourceColumn]) -> bool:
    """Tells whether a key is an unchanged column with a domain."""
    return not key.shape and len(key.sources) == 1 and key.expression == sources[key.sources[0]].sql


def columns_of(part: exp.Expr, scope: Scope) -> set[str]:
    """Returns the resolved columns of a condition as SQL. The set is empty if a column is ambiguous or unknown."""
    columns = list(part.find_all(exp.Column))
    if any(len(scope.find(column)) != 1 for column in columns):
        return set()
    return {sql_of(resolve(column, scope)) for column in columns}


def _label_condition(key: Key, position: int, possible: Sequence[bool]) -> exp.Expr | None:
    """Writes the condition that the key is rolled up or has a possible label. None if it is always met, or too long."""
    if all(possible):
        return None
    pairs = list(zip(key.labels, possible, strict=True))
    shown = [label for label, keep in pairs if keep]
    hidden = [label for label, keep in pairs if not keep]
    listed = shown if len(shown) <= len(hidden) else hidden
    if len(listed) > MOST_LISTED:
        return None
    values = [
        exp.cast(exp.Literal.string(label), key.type_name, dialect="duckdb") for label in listed if label is not None
    ]
    column = column_of_release(key.name)
    is_shown: exp.Expr = exp.In(this=column, expressions=values) if values else exp.Boolean(this=False)
    if None in listed:
        is_shown = exp.Paren(this=exp.Or(this=is_shown, expression=exp.Is(this=column.copy(), expression=exp.Null())))
    is_shown = exp.Is(this=exp.Paren(this=is_shown), expression=exp.Boolean(this=True))
    if listed is hidden:
        is_shown = exp.Not(this=exp.Paren(this=is_shown))
    rolled_up = exp.EQ(this=rolled_up_bit(position), expression=exp.Literal.number(1))
    return exp.Paren(this=exp.Or(this=rolled_up, expression=is_shown))
