"""SQL of row expressions that cannot raise: the content of a private row must never decide whether a query fails."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from dpduck.kernel.columns.expressions import LONGEST_NUMBER, NotPlain
from dpduck.language.rows.compiled import literal_of
from dpduck.language.rows.functions import CAST_TYPES, check_row_local
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
    """Writes a condition that yields NULL in place of an error. This includes an error in its cast to BOOLEAN.

    types: DuckDB's type of each column, by the column's SQL. A conjunct that cannot raise stays unchanged, so that
    DuckDB can push it down. Every other conjunct is wrapped in TRY, which the binder refuses around volatile functions.
    """
    conjuncts = list(expression.flatten()) if isinstance(expression, exp.And) else [expression]
    return " AND ".join(_safe_conjunct(part, types) for part in conjuncts)


def _safe_conjunct(part: exp.Expr, types: Mapping[str, str]) -> str:
    if _cannot_raise(part, types):
        return f"({sql_of(part)})"
    sql = sql_of(part) if isinstance(part.unnest(), BOOLEAN) else f"CAST(({sql_of(part)}) AS BOOLEAN)"
    return f"try({sql})"


def _cannot_raise(node: exp.Expr, types: Mapping[str, str]) -> bool:
    """Tells whether a node is a BOOLEAN condition over columns and literals of types that compare without an error."""
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
    """Tells whether DuckDB compares the column and the literal without a cast of either side that could fail."""
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


# Words that are copied from a statement into SQL must be plain words, whatever the parser took them for.


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_ ]*")
_NUMBER = re.compile(r"[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?")


MOST_LISTED, MOST_SETS = 1_000, 20_000
_OF_CONSTANTS = (exp.In, exp.Values, exp.Tuple, exp.Array)


def check_atoms(tree: exp.Expr) -> None:
    """Refuses a long list, and an atom that is no plain word, number, allowed type, quoted name or quoted text."""
    for node in tree.walk():
        if any(isinstance(value, list) and len(value) > MOST_LISTED for value in node.args.values()):
            _check_lists(node)
        if isinstance(node, exp.DataType):
            _check_type(node)
        elif isinstance(node, exp.DataTypeParam):
            _check_parameter(node)
        elif isinstance(node, exp.Literal):
            if not node.is_string and not _NUMBER.fullmatch(node.name):
                raise refusal(node, f"{node.name[:20]!r} is no plain number", "digits, a point, an exponent")
        elif isinstance(node, exp.Var):
            if not _WORD.fullmatch(node.name):
                raise refusal(node, f"{node.name[:20]!r} is no plain word", "a word such as DAY or month")
        elif isinstance(node, (exp.Placeholder, exp.Parameter)):
            check_row_local(node)
        elif not isinstance(node, exp.Identifier):
            _check_texts(node)


def _check_lists(node: exp.Expr) -> None:
    """Refuses a list with too many parts that are planned one by one. Constants in IN, VALUES, .. do not count."""
    most = MOST_SETS if isinstance(node, exp.GroupingSets) else MOST_LISTED
    for listed in node.args.values():
        if not isinstance(listed, list) or len(listed) <= most:
            continue
        planned = listed
        if isinstance(node, _OF_CONSTANTS):
            planned = [part for part in listed if isinstance(part, exp.Expr) and part.find(exp.Column) is not None]
        if len(planned) > most:
            raise refusal(node, f"a list of {len(planned)} parts", f"at most {most}, or constants in x IN (1, 2, ..)")


def _check_type(node: exp.DataType) -> None:
    parameters = node.args.get("expressions") or []
    plain = all(isinstance(parameter, exp.DataTypeParam) for parameter in parameters)
    if node.this not in CAST_TYPES or not plain or node.args.get("nested") or node.args.get("kind"):
        written = node.sql(dialect="duckdb")[:40]
        raise refusal(node, f"a cast to {written} is refused", "numbers, BOOLEAN, VARCHAR, DATE, TIMESTAMP, INTERVAL")


def _check_parameter(node: exp.DataTypeParam) -> None:
    if not isinstance(node.this, exp.Literal) or not node.this.is_int or node.args.get("expression"):
        raise refusal(node, "the parameter of a type is no whole number", "DECIMAL(18, 3)")


def _check_texts(node: exp.Expr) -> None:
    for value in node.args.values():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and text and not _WORDS.fullmatch(text):
                raise refusal(node, f"{text[:20]!r} is no plain word", "plain words outside quotes")
