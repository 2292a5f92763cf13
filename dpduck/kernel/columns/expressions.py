"""Expressions over the columns of one row, as frozen nodes.

The database's own process evaluates plain expressions: comparisons (comparisons.py), and sums and products
(arithmetic.py). An `AnalystSql` is the text of an analyst's expression. A worker evaluates it. `Own` is SQL that the
kernel wrote. Each constructor checks its rule and raises `NotPlain`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from dpduck.values.errors import InternalError
from dpduck.values.quoting import quote_identifier

MOST_HEIGHT = 100
"""Largest height of a condition or a number. Functions descend a tree with three nested calls for each node, and Python
allows 1,000. A worker evaluates a higher expression as text."""


class NotPlain(InternalError):
    """Refusal of an expression that the database's process may not evaluate over private rows."""


def require(holds: bool) -> None:
    """Refuses an expression unless the rule of its class holds."""
    if not holds:
        raise NotPlain("an expression that the database may not evaluate")


class Expression(ABC):
    """An expression over one row."""

    @property
    def plain(self) -> bool:
        """Tells whether the database's own process may evaluate the expression. Otherwise a worker must do so."""
        return True

    @cached_property
    def height(self) -> int:
        """Returns the height of the tree, from this node down to a column or a constant."""
        return 1 + max((node.height for node in nodes_inside(self)), default=0)

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        return columns_of(nodes_inside(self))

    @abstractmethod
    def write(self, names: Names) -> str:
        """Writes the expression as SQL. names: function from a column to its name in that SQL."""

    @property
    def sql(self) -> str:
        """Writes the expression as SQL with the columns' own names."""
        return self.write(column_sql)


@dataclass(frozen=True)
class RelationColumn(Expression):
    """A stored column of a relation. relation: its alias. type_name: DuckDB's type."""

    relation: str
    name: str
    type_name: str

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        return (self,)

    def write(self, names: Names) -> str:
        return names(self)

    @cached_property
    def quoted_name(self) -> str:
        return f"{quote_identifier(self.relation)}.{quote_identifier(self.name)}"

    def of(self, relation: str) -> str:
        return f"{relation}.{quote_identifier(self.name)}"


Names = Callable[[RelationColumn], str]


def column_sql(column: RelationColumn) -> str:
    """Returns the name of a stored column in SQL."""
    return column.quoted_name


def nodes_inside(expression: Expression) -> list[Expression]:
    """Lists the child nodes of a node: its fields, and the members of fields that are tuples."""
    fields = [value if isinstance(value, tuple) else (value,) for value in vars(expression).values()]
    return [node for field in fields for node in field if isinstance(node, Expression)]


def nodes_of(expression: Expression) -> Iterator[tuple[Expression, int]]:
    """Yields a node and all nodes below it, each with its depth. It is a loop, since recursion could run too deep."""
    left = [(expression, 1)]
    while left:
        node, level = left.pop()
        yield node, level
        left += [(inside, level + 1) for inside in nodes_inside(node)]


def columns_of(expressions: Iterable[Expression]) -> tuple[RelationColumn, ...]:
    """Lists the columns of expressions, each once."""
    return tuple(dict.fromkeys(column for expression in expressions for column in expression.columns))


@dataclass(frozen=True)
class Own(Expression):
    """SQL that the kernel wrote. It raises for no values of its columns. type_name: its type, if a caller needs it."""

    pieces: tuple[str | RelationColumn, ...]
    type_name: str = ""

    def write(self, names: Names) -> str:
        return "".join(piece if isinstance(piece, str) else names(piece) for piece in self.pieces)


@dataclass(frozen=True)
class AnalystSql(Own):
    """SQL of an analyst's expression. DuckDB parses it, the kernel checks that parse, and a worker evaluates it."""

    @property
    def plain(self) -> bool:
        return False

    def cast(self, type_name: str) -> AnalystSql:
        return AnalystSql(("CAST(", *self.pieces, f" AS {type_name})"))


@dataclass(frozen=True)
class Lookup(Expression):
    """An equality of an analyst's expression and a column. The expression is cast to the column's type if possible."""

    value: Expression
    column: RelationColumn

    @property
    def plain(self) -> bool:
        return False

    def write(self, names: Names) -> str:
        raise NotPlain("an equality that a worker computes")
