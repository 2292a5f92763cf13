"""Check that a column inside an expression has a plain type, even if the column is public."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.sql import base, equality_keys
from dpduck.language.rows.tree import RowSource
from dpduck.language.text.positions import refusal
from dpduck.values.sqltypes import sql_type

_ACCEPTED = "numbers, texts, BOOLEAN, dates, times, INTERVAL, ENUM and UUID; any column as it stands, and IS NULL"


def check_types(written: Sequence[exp.Expr], source: RowSource, keys: Sequence[exp.Expr]) -> None:
    """Refuses the first column without a plain type inside an expression, or inside a cast for a join.

    keys: the grouping expressions. A key may have any type. Conditions and operands may not, because they are cast.
    """
    types, pairs = source.types, [(join, pair) for join in source.public_joins for pair in join.pairs]
    alone = {id(node) for node in (*keys, *source.counted, *(private for _, (private, _) in pairs))}
    for expression in written:
        for column in () if equality_keys(expression, types) else expression.find_all(exp.Column):
            if not _is_asked_for_null(column) and not (id(expression) in alone and expression.unnest() is column):
                _require_plain(column, types[sql_of(column)])
    for join, (private, name) in pairs:
        public, own = types[base(join.alias, name)], types.get(sql_of(private))
        if own != public:  # one column is cast to the other's type
            _require_plain(private, own or public)
            _require_plain(private, public)


def _is_asked_for_null(column: exp.Column) -> bool:
    node: exp.Expr | None = column.parent
    while isinstance(node, exp.Paren):
        node = node.parent
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)


def _require_plain(place: exp.Expr, type_name: str) -> None:
    if not sql_type(type_name).is_plain:
        raise refusal(place, f"an expression over {sql_type(type_name).word} is refused", _ACCEPTED)
