"""SQL of row expressions that cannot raise: the content of a private row must never decide whether a query fails."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from dpduck.kernel.columns.comparisons import LONGEST_NUMBER
from dpduck.kernel.columns.expressions import NotPlain
from dpduck.language.rows.compiled import literal_of
from dpduck.language.text.dialect import PrivateDuckDB
from dpduck.language.text.positions import refusal
from dpduck.values.sqltypes import sql_type

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
BOOLEAN = (
    *_COMPARISONS, exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Boolean,
    exp.Like, exp.ILike, exp.Escape, exp.SimilarTo, exp.Glob, exp.RegexpLike,
)  # fmt: skip
"""Nodes of BOOLEAN type, whatever their operands are."""


def sql_of(expression: exp.Expr) -> str:
    """Writes an expression as canonical DuckDB SQL, without comments."""
    try:
        return expression.sql(
            dialect=PrivateDuckDB,
            identify=True,
            comments=False,
            normalize_functions="lower",
            unsupported_level=ErrorLevel.RAISE,
        )
    except (SqlglotError, ValueError):
        raise refusal(
            expression, "DuckDB has no function of this form", "the arguments that DuckDB documents"
        ) from None


def safe_sql(expression: exp.Expr, types: Mapping[str, str]) -> str:
    """Writes a condition that is NULL if it raises an error, or if its cast to BOOLEAN does.

    types: DuckDB's type of each column, by the column's SQL. A conjunct that cannot raise stays unchanged, so that
    DuckDB can push it down. Every other conjunct is wrapped in TRY, which DuckDB refuses around volatile functions.
    """
    conjuncts = list(expression.flatten()) if isinstance(expression, exp.And) else [expression]
    return " AND ".join(_safe_conjunct(part, types) for part in conjuncts)


def _safe_conjunct(part: exp.Expr, types: Mapping[str, str]) -> str:
    if _cannot_raise(part, types):
        return f"({sql_of(part)})"
    sql = sql_of(part) if isinstance(part.unnest(), BOOLEAN) else f"CAST(({sql_of(part)}) AS BOOLEAN)"
    return f"try({sql})"


def _cannot_raise(node: exp.Expr, types: Mapping[str, str]) -> bool:
    """Tells whether a node is a BOOLEAN condition over columns and literals that DuckDB compares without an error."""
    if isinstance(node, exp.Boolean):
        return True
    if isinstance(node, exp.Column):
        return types.get(sql_of(node)) == "BOOLEAN"
    if isinstance(node, (exp.Paren, exp.Not)):
        return _cannot_raise(node.this, types)
    if isinstance(node, (exp.And, exp.Or)):
        return all(_cannot_raise(part, types) for part in node.flatten())
    if isinstance(node, exp.Is):
        subject = node.this.unnest()
        if not isinstance(subject, exp.Column):
            return False
        boolean = isinstance(node.expression, exp.Boolean) and types.get(sql_of(subject)) == "BOOLEAN"
        return boolean or isinstance(node.expression, exp.Null)
    if isinstance(node, exp.In):
        return bool(node.expressions) and all(_same_family(node.this, value, types) for value in node.expressions)
    if isinstance(node, exp.Between):
        return all(_same_family(node.this, node.args[bound], types) for bound in ("low", "high"))
    if isinstance(node, _COMPARISONS):
        return _same_family(node.left, node.right, types) or _same_family(node.right, node.left, types)
    return False


def _same_family(column: exp.Expr, literal: exp.Expr, types: Mapping[str, str]) -> bool:
    """Tells whether DuckDB can compare the column and the literal without a cast that could fail."""
    if not isinstance(column, exp.Column) or isinstance(literal, exp.Boolean):
        return False
    type_name = types.get(sql_of(column), "")
    number = literal.this if isinstance(literal, exp.Neg) else literal
    if sql_type(type_name).is_float and isinstance(number, exp.Literal) and not number.is_string:
        return len(number.name) <= LONGEST_NUMBER  # also with an exponent, which the kernel leaves to a worker
    try:
        return literal_of(literal).is_like(type_name)
    except NotPlain:
        return False
