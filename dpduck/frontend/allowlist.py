"""What may be computed row by row: deterministic, row-local functions without side effects (DESIGN section 5).

An allowlist over the parsed tree: a node of any other class is refused by name, so a function that nobody has looked
at is never run over private rows.
"""

from __future__ import annotations

from sqlglot import exp

from dpduck.errors import Refusal
from dpduck.frontend.argument_rules import check_arguments
from dpduck.frontend.positions import refusal, word_of
from dpduck.frontend.row_costs import check_size

STRUCTURE: tuple[type[exp.Expr], ...] = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Tuple, exp.Var, exp.Interval,
    exp.DataType, exp.DataTypeParam, exp.Cast, exp.TryCast, exp.Case, exp.If,
)  # fmt: skip
OPERATORS: tuple[type[exp.Expr], ...] = (
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.In, exp.Between,
    exp.NullSafeEQ, exp.NullSafeNEQ, exp.Like, exp.ILike, exp.Escape, exp.SimilarTo, exp.Glob, exp.RegexpLike,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Pow, exp.DPipe, exp.BitwiseAnd,
    exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot, exp.BitwiseLeftShift, exp.BitwiseRightShift,
)  # fmt: skip
FUNCTIONS: tuple[type[exp.Expr], ...] = (
    exp.Abs, exp.Ceil, exp.Floor, exp.Round, exp.Trunc, exp.Sign, exp.Sqrt, exp.Ln, exp.Log, exp.Exp, exp.Cbrt,
    exp.Sin, exp.Cos, exp.Tan, exp.Asin, exp.Acos, exp.Atan, exp.Atan2, exp.IsNan, exp.IsInf,
    exp.Upper, exp.Lower, exp.Length, exp.Substring, exp.Left, exp.Right, exp.Trim, exp.Concat, exp.Replace,
    exp.Reverse, exp.StartsWith, exp.EndsWith, exp.Contains, exp.StrPosition, exp.Coalesce, exp.Nullif,
    exp.Greatest, exp.Least, exp.Extract, exp.Year, exp.Month, exp.Day, exp.DayOfWeek, exp.DayOfYear, exp.WeekOfYear,
    exp.Quarter, exp.Hour, exp.Minute, exp.Second, exp.DateTrunc, exp.TimestampTrunc, exp.DateDiff, exp.TsOrDsToDate,
    exp.TimeToStr, exp.RegexpExtract, exp.RegexpReplace, exp.RegexpILike, exp.RegexpFullMatch,
    exp.SplitPart, exp.Unicode, exp.Ascii, exp.Week, exp.Monthname, exp.Dayname, exp.DayOfWeekIso, exp.LastDay,
    exp.DateFromParts, exp.DateAdd,
)  # fmt: skip
NAMED_FUNCTIONS = frozenset(
    ("isfinite", "isnan", "isinf", "even", "gcd", "lcm", "strip_accents", "prefix", "suffix", "contains", "hour",
     "minute", "second", "dayofweek", "isodow", "weekday", "week", "quarter", "decade", "century", "dayname",
     "monthname", "date_part", "date_trunc", "date_diff", "make_date", "len", "strlen", "ltrim", "rtrim", "trim",
     "log2", "log10", "ln", "signbit", "ifnull", "try")
)  # fmt: skip
VOLATILE = frozenset(
    ("random", "uuid", "nextval", "currval", "now", "current_timestamp", "write_log", "sleep_ms", "getvariable",
     "current_setting", "txid_current", "gen_random_uuid", "setseed", "pg_typeof")
)  # fmt: skip
_CAST_NAMES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "INT128", "UTINYINT", "USMALLINT", "UINT", "UBIGINT", "UINT128",
    "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "TEXT", "CHAR", "DATE", "TIMESTAMP", "TIMESTAMPNTZ", "DATETIME", "TIME",
    "INTERVAL",
)  # fmt: skip
CAST_TYPES = frozenset(exp.DataType.Type[name] for name in _CAST_NAMES if name in exp.DataType.Type.__members__)
ROW_LOCAL = STRUCTURE + OPERATORS + FUNCTIONS
_SPECIFIC: tuple[tuple[type[exp.Expr], str, str], ...] = (
    (exp.Dot, "a method call or a function of a schema is refused", "plain calls such as upper(ward)"),
    (exp.Struct, "a struct is refused", "numbers, texts, BOOLEAN, dates and times"),
    (exp.Array, "a list is refused", "numbers, texts, BOOLEAN, dates and times"),
    (exp.Bracket, "indexing by [..] is refused", "substring or split_part"),
    (exp.Any, "ANY is refused", "IN (literal, ..)"),
    (exp.Collate, "COLLATE is refused", "upper or lower of both sides"),
    (exp.Columns, "COLUMNS is refused", "a list of columns"),
    (exp.Lateral, "LATERAL is refused", "plain subqueries"),
    (exp.Pivot, "PIVOT is refused", "GROUP BY"),
    (exp.TableSample, "SAMPLE is refused", "all rows"),
    (exp.Unnest, "unnest is refused", "rows as they are"),
    (exp.Window, "a window over private rows is refused", "a window over the answers: rank() OVER (ORDER BY count(*))"),
    (exp.Exists, "EXISTS is refused", "a join with a declared public table"),
    (exp.Subquery, "a subquery in an expression is refused", "a join with a declared public table, or literals"),
    (exp.Query, "a subquery in an expression is refused", "a join with a declared public table, or literals"),
    (exp.Star, "* inside an expression is refused", "count(*) or a column"),
    (exp.Placeholder, "a placeholder is refused", "a literal: the statement itself may be a bound parameter of dp(?)"),
    (exp.Parameter, "a parameter is refused", "a literal"),
    (exp.CurrentDate, "current_date changes by itself", "a date literal"),
    (exp.CurrentTimestamp, "the current time changes by itself", "a timestamp literal"),
    (exp.Rand, "random() is not deterministic", "a deterministic expression"),
    (exp.Lambda, "a lambda is refused", "an expression over columns"),
    (exp.Distinct, "DISTINCT is refused", "count(*), count(column) and count(*) FILTER (WHERE ..)"),
    (exp.AggFunc, "an aggregate inside a row expression is refused", "aggregates in the select list or HAVING"),
)  # fmt: skip


def check_row_local(expression: exp.Expr) -> None:
    """Refuses the first node of the expression that is not on the list."""
    check_size(expression)
    for node in expression.walk(bfs=False):
        check_arguments(node)
        if isinstance(node, (exp.Cast, exp.TryCast)):
            _check_cast(node)
        if type(node) in ROW_LOCAL or (isinstance(node, exp.Anonymous) and _named(node) in NAMED_FUNCTIONS):
            _check_in(node)
            continue
        for node_type, what, accepted in _SPECIFIC:
            if isinstance(node, node_type):
                raise refusal(node, what, accepted)
        raise _unknown(node)


def refuse_subqueries(expression: exp.Expr) -> None:
    """Refuses a query inside an expression before its columns are looked for."""
    for node in expression.walk(bfs=False):
        _check_in(node)
        if isinstance(node, (exp.Exists, exp.Subquery, exp.Query)):
            check_row_local(node)


def _check_in(node: exp.Expr) -> None:
    if isinstance(node, exp.In) and (node.args.get("query") or node.args.get("unnest") or node.args.get("field")):
        raise refusal(node, "IN over anything but a list is refused", "IN (literal, ..) or a join with a public table")


def _named(node: exp.Anonymous) -> str:
    return str(node.this).lower()


def _check_cast(node: exp.Cast | exp.TryCast) -> None:
    target = node.to
    if not isinstance(target, exp.DataType) or target.this not in CAST_TYPES or target.args.get("nested"):
        written = target.sql(dialect="duckdb") if isinstance(target, exp.Expr) else "this type"
        raise refusal(node, f"a cast to {written} is refused", "numbers, BOOLEAN, VARCHAR, DATE, TIMESTAMP, INTERVAL")


def _unknown(node: exp.Expr) -> Refusal:
    name = _named(node) if isinstance(node, exp.Anonymous) else _function_name(node)
    if name in VOLATILE:
        return refusal(node, f"{name} is volatile or has side effects", "deterministic functions of the row alone")
    return refusal(
        node,
        f"{name} is not on the list of deterministic row functions",
        "arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc",
    )


def _function_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Func):
        return word_of(node) or node.sql_name().lower()
    return type(node).__name__.upper()
