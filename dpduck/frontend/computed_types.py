"""Columns that something is computed with have a plain type, public columns included.

For others DuckDB raises what TRY does not catch, by what a row holds: CASE over an ARRAY is not implemented where rows
take different branches, and an error of ICU over a TIMESTAMP WITH TIME ZONE ends the whole database. A column as it
stands, as a key, a unit, in IS NULL or count(column), may have any type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot import exp

from dpduck.frontend.conditions import sql_of
from dpduck.frontend.positions import refusal
from dpduck.frontend.private_relation import comparable
from dpduck.frontend.row_sql import base, column_types
from dpduck.frontend.row_tree import RowSource

_PLAIN = re.compile(
    r"BOOLEAN|U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|VARCHAR|DATE|TIME|"
    r"TIMESTAMP(_S|_MS|_NS)?|INTERVAL|UUID|ENUM\(.*\)",
    re.DOTALL,
)
_ACCEPTED = "numbers, texts, BOOLEAN, dates, times, INTERVAL, ENUM and UUID; any column as it stands, and IS NULL"


def check_types(written: Sequence[exp.Expr], source: RowSource, keys: Sequence[exp.Expr]) -> None:
    """Refuses the first column of another type that an expression, or a cast for a join, computes with.

    keys: those of what is written that are groups, as they stand; a condition or a number is cast.
    """
    types, pairs = column_types(source), [(join, pair) for join in source.public_joins for pair in join.pairs]
    alone = {id(one) for one in (*keys, *source.counted, *(private for _, (private, _) in pairs))}
    for expression in written:
        for column in () if _compares_keys(expression.unnest(), types) else expression.find_all(exp.Column):
            if not _is_asked_for_null(column) and not (id(expression) in alone and expression.unnest() is column):
                _require_plain(column, types[sql_of(column)])
    for join, (private, name) in pairs:
        public, own = types[base(join.alias, name)], types.get(sql_of(private))
        if own != public:  # the one is cast to the other
            _require_plain(private, own or public)
            _require_plain(private, public)


def _compares_keys(node: exp.Expr, types: Mapping[str, str]) -> bool:
    """Whether it is an equality of two columns of one type that keys may have."""
    sides = [node.left.unnest(), node.right.unnest()] if isinstance(node, exp.EQ) else [node]
    known = [types[sql_of(side)] for side in sides if isinstance(side, exp.Column)]
    return len(sides) == len(known) == 2 and comparable(*known)


def _is_asked_for_null(column: exp.Column) -> bool:
    node: exp.Expr | None = column.parent
    while isinstance(node, exp.Paren):
        node = node.parent
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)


def _require_plain(place: exp.Expr, type_name: str) -> None:
    if not _PLAIN.fullmatch(type_name):
        raise refusal(place, f"an expression over {type_name.partition('(')[0]} is refused", _ACCEPTED)
