"""Names that a query may use, with the expression of each name over the row source's own columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpduck.language.rows.functions import refuse_subqueries
from dpduck.language.text.positions import copy_position, refusal
from dpduck.language.text.unknown_options import nearest
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold, quote_text

MAX_SUBSTITUTED = 20_000


@dataclass(frozen=True)
class Relation:
    """Relation in FROM: its alias and its columns as expressions over base columns (r0."x", p1."y").

    merged: lower-case names of columns that a join USING has merged into a column of another relation.
    """

    alias: str
    columns: tuple[tuple[str, exp.Expr], ...]
    merged: frozenset[str] = frozenset()

    def find(self, name: str) -> list[exp.Expr]:
        """Returns the columns of this name. Names are compared without case, as in DuckDB."""
        return [expression for column, expression in self.columns if fold(column) == fold(name)]

    def rename_columns(self, names: Sequence[str], place: exp.Expr) -> Relation:
        """Returns the relation under AS t (a, b): the first columns get these names."""
        if len(names) > len(self.columns):
            raise refusal(
                place, f"{len(names)} names for {len(self.columns)} columns", "a name for each column at most"
            )
        shown = (*names, *(name for name, _ in self.columns[len(names) :]))
        pairs = zip(shown, (expression for _, expression in self.columns), strict=True)
        return Relation(self.alias, tuple(pairs), self.merged)


@dataclass(frozen=True)
class Scope:
    """Relations that are visible at one place of the statement."""

    relations: tuple[Relation, ...]

    def columns(self, table: str = "") -> Iterator[tuple[str, exp.Expr]]:
        """Yields the columns that * lists, or with `table` the columns of one table."""
        for relation in self.relations:
            if not table or fold(relation.alias) == fold(table):
                yield from (pair for pair in relation.columns if table or fold(pair[0]) not in relation.merged)

    def find(self, column: exp.Column) -> list[exp.Expr]:
        """Returns the expressions that a column reference may stand for. An ambiguous reference has several."""
        table, name = fold(column.table), fold(column.name)
        relations = [
            relation
            for relation in self.relations
            if (fold(relation.alias) == table if table else name not in relation.merged)
        ]
        return [expression for relation in relations for expression in relation.find(name)]

    def name_of(self, column: exp.Column) -> str:
        """Returns the column's name as its relation spells it."""
        names = [name for name, _ in self.columns(column.table) if fold(name) == fold(column.name)]
        return names[0] if names else column.name

    def lookup(self, column: exp.Column) -> exp.Expr:
        """Resolves a column reference. Refuses an unknown or ambiguous reference."""
        if inner := self._nesting(column):
            accepted = f"a column of its own for {inner}.{column.name} (docs/how_to/table_shapes.md)"
            raise refusal(column, f"{inner} is a column, and {column.name!r} would be a field of it", accepted)
        if column.args.get("db") or column.args.get("catalog"):
            raise self._refuse(column, "a column is named with at most its table")
        if column.table and not any(fold(relation.alias) == fold(column.table) for relation in self.relations):
            raise self._refuse(column, f"there is no table {column.table!r} in FROM")
        matches = self.find(column)
        if not matches and fold(column.name) == "rowid":
            raise self._refuse(column, "rowid depends on other rows")
        if not matches:
            names = [name for name, _ in self.columns()]
            accepted = nearest(column.name, names) or "a column of FROM"
            if not column.table and isinstance(column.parent, (exp.EQ, exp.NEQ, exp.In)):
                accepted += f"; or the text {quote_text(column.name[:60])} in single quotes"
            raise refusal(column, f"there is no column {column.name!r}", accepted)
        if len(matches) > 1:
            raise self._refuse(column, f"the column {column.name!r} is in more than one place")
        return matches[0]

    def _nesting(self, column: exp.Column) -> str:
        """Returns the column that a reference takes a field of, as address.city does of a STRUCT. "" for others."""
        nested, place = fold(column.table), fold(column.db)
        aliases = {fold(relation.alias) for relation in self.relations}
        if not nested or (place not in aliases if place else nested in aliases):
            return ""
        return next((name for name, _ in self.columns(place) if fold(name) == nested), "")

    def _refuse(self, column: exp.Column, what: str) -> Refusal:
        names = [name for name, _ in self.columns()]
        shown = ", ".join(names[:20]) + (", .." if len(names) > 20 else "")
        return refusal(column, what, shown or "a column of FROM")


def resolve(expression: exp.Expr, scope: Scope) -> exp.Expr:
    """Returns a copy of the expression with each column name replaced by its expression over base columns."""
    # transform() visits its own replacements, so columns are replaced from a list made beforehand
    refuse_subqueries(expression)
    root = exp.Paren(this=expression.copy())
    size = 0
    for column in list(root.find_all(exp.Column)):
        replacement = _replacement(column, scope)
        size += 0 if isinstance(replacement, exp.Column) else sum(1 for _ in replacement.walk())
        if size > MAX_SUBSTITUTED:
            raise refusal(column, "the columns of the subqueries make this too long", "fewer levels of expressions")
        column.replace(replacement)
    resolved = root.this
    if not isinstance(resolved, exp.Expr):
        raise Refusal("the expression is empty", accepted="an expression over columns")
    return resolved.pop() if resolved.parent is not None else resolved


def _replacement(column: exp.Column, scope: Scope) -> exp.Expr:
    expression = scope.lookup(column).copy()
    if not isinstance(expression, exp.Column):
        return exp.Paren(this=expression)
    copy_position(column, expression)
    return expression


def base_column(alias: str, name: str) -> exp.Column:
    """Returns the quoted column of a table in FROM, under dpduck's alias such as r0 or p1."""
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))
