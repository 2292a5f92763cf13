"""GROUP BY: plain lists, ALL, CUBE, ROLLUP, GROUPING SETS and MARGINALS as sets of key expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import comb

from sqlglot import exp

from dpduck.frontend.rows.expressions import sql_of
from dpduck.frontend.text.positions import refusal

MAX_GROUPING_SETS = 200_000
MAX_KEYS = 60
RANGE_SHAPES = ("prefixes", "ranges")
RANGE_END = "range_end"
Sets = list[tuple[str, ...]]


def range_text(function: str, column: str) -> str:
    """Returns canonical SQL of a key over ranges, or of range_end, from that of its column."""
    return f"{function}({column})"


@dataclass(frozen=True)
class Grouping:
    """keys: distinct key expressions by canonical SQL, in order of appearance. sets: each a tuple of those texts.

    Sets keep their repetitions, as SQL does: GROUPING SETS ((a), (a)) answers every cell twice.
    """

    keys: tuple[tuple[str, exp.Expr], ...]
    sets: tuple[tuple[str, ...], ...]


class _Reader:
    """Collects the keys while the sets are built."""

    def __init__(self, key_of: Callable[[exp.Expr], exp.Expr]) -> None:
        self.key_of = key_of
        self.keys: dict[str, exp.Expr] = {}

    def key(self, node: exp.Expr) -> str:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Anonymous) and str(node.this).lower() in RANGE_SHAPES:
            return self.range_key(node)
        expression = self.key_of(node)
        while isinstance(expression, exp.Paren):
            expression = expression.this
        text = sql_of(expression)
        if any(range_text(shape, text) in self.keys for shape in RANGE_SHAPES):
            raise refusal(node, f"{text} is grouped in two ways", "one of them in a statement")
        self.keys.setdefault(text, expression)
        return text

    def range_key(self, node: exp.Anonymous) -> str:
        """PREFIXES(column) or RANGES(column): one column with an ordered domain."""
        shape = str(node.this).lower()
        column = self.key_of(node.expressions[0]) if len(node.expressions) == 1 else None
        if not isinstance(column, exp.Column):
            raise refusal(node, f"{shape.upper()} takes one column", f"{shape.upper()}(column with a RANGE domain)")
        text = range_text(shape, sql_of(column))
        others = {sql_of(column), *(range_text(other, sql_of(column)) for other in RANGE_SHAPES)} - {text}
        if others & self.keys.keys():
            raise refusal(node, f"{column.name!r} is grouped in two ways", "one of them in a statement")
        self.keys.setdefault(text, exp.Anonymous(this=shape, expressions=[column]))
        return text

    def element(self, node: exp.Expr) -> Sets:
        """Returns the grouping sets of one element of GROUP BY or of GROUPING SETS."""
        if isinstance(node, exp.Cube):
            return self.cube(self.composites(node.expressions), node)
        if isinstance(node, exp.Rollup):
            parts = self.composites(node.expressions)
            return [_union(parts[:length]) for length in range(len(parts), -1, -1)]
        if isinstance(node, exp.GroupingSets):
            return [grouping_set for inner in node.expressions for grouping_set in self.element(inner)]
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "marginals":
            return self.marginals(node)
        return [self.composite(node)]

    def composite(self, node: exp.Expr) -> tuple[str, ...]:
        if isinstance(node, exp.Tuple):
            return _union([self.composite(inner) for inner in node.expressions])
        return (self.key(node),)

    def composites(self, nodes: Sequence[exp.Expr]) -> Sets:
        return [self.composite(node) for node in nodes]

    def cube(self, parts: Sets, node: exp.Expr) -> Sets:
        if 2 ** len(parts) > MAX_GROUPING_SETS:
            raise refusal(node, f"CUBE of {len(parts)} columns has {2 ** len(parts)} grouping sets", _LIMIT)
        sizes = range(len(parts), -1, -1)
        return [_union(list(chosen)) for size in sizes for chosen in combinations(parts, size)]

    def marginals(self, node: exp.Anonymous) -> Sets:
        accepted = "MARGINALS (k, a, b, c, ..) with k at most the number of columns"
        first = node.expressions[0] if node.expressions else None
        if (
            not isinstance(first, exp.Literal)
            or not first.is_int
            or len(first.name) > 6
            or not 0 <= int(first.name) < len(node.expressions)
        ):
            raise refusal(node, "MARGINALS starts with the number of columns in a marginal", accepted)
        order, columns = int(first.name), node.expressions[1:]
        if comb(len(columns), order) > MAX_GROUPING_SETS:
            raise refusal(node, f"there are {comb(len(columns), order)} such marginals", _LIMIT)
        parts = self.composites(columns)
        return [_union(list(chosen)) for chosen in combinations(parts, order)]


_LIMIT = f"at most {MAX_GROUPING_SETS} grouping sets"


def read_grouping(
    group: exp.Group | None, all_keys: Sequence[exp.Expr], key_of: Callable[[exp.Expr], exp.Expr]
) -> Grouping:
    """Returns the grouping of a SELECT. all_keys: what GROUP BY ALL stands for. key_of: resolves aliases, ordinals,
    columns.
    """
    reader = _Reader(key_of)
    if group is None:
        return Grouping((), ((),))
    if group.args.get("all"):
        elements: Sequence[Sets] = [[reader.composite(node)] for node in all_keys]
    else:
        elements = [reader.element(node) for node in group.expressions]
    total = 1
    for sets in elements:
        total *= len(sets)
    if total > MAX_GROUPING_SETS:
        raise refusal(group, f"{total} grouping sets", _LIMIT)
    if len(reader.keys) > MAX_KEYS:
        raise refusal(group, f"{len(reader.keys)} grouping columns", f"at most {MAX_KEYS}")
    combined = tuple(_union(list(chosen)) for chosen in product(*elements))
    return Grouping(tuple(reader.keys.items()), combined)


def _union(parts: Sets) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for part in parts for key in part))
