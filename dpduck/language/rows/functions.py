"""Allowlist of functions over one row. They are deterministic, see no other row, and have no side effects.

The list covers the parsed tree. A node of any other class is refused by name, so that a function without a review
never runs over private rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil

from sqlglot import exp

from dpduck.language.text.positions import refusal, word_of
from dpduck.language.text.words import meant
from dpduck.values.errors import Refusal
from dpduck.values.functions import ROW_LOCAL_FUNCTIONS, is_date_format

STRUCTURE: tuple[type[exp.Expr], ...] = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Tuple, exp.Var, exp.Interval,
    exp.DataType, exp.DataTypeParam, exp.Cast, exp.TryCast, exp.Case, exp.If,
)  # fmt: skip
OPERATOR_NAMES: Mapping[type[exp.Expr], str] = {
    exp.And: "", exp.Or: "", exp.Not: "", exp.EQ: "", exp.NEQ: "", exp.GT: "", exp.GTE: "", exp.LT: "", exp.LTE: "",
    exp.Is: "", exp.In: "", exp.Between: "", exp.NullSafeEQ: "", exp.NullSafeNEQ: "",
    exp.Like: "~~ !~~", exp.ILike: "~~* !~~*",
    exp.Escape: "like_escape not_like_escape ilike_escape not_ilike_escape", exp.SimilarTo: "regexp_full_match",
    exp.Glob: "~~~", exp.RegexpLike: "regexp_matches", exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/",
    exp.IntDiv: "//", exp.Mod: "%", exp.Neg: "-", exp.Pow: "power", exp.DPipe: "||", exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|", exp.BitwiseXor: "xor", exp.BitwiseNot: "~", exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}  # fmt: skip
"""Functions in DuckDB's own parse of an operator, "" for operators that DuckDB does not parse as functions."""

FUNCTION_NAMES: Mapping[type[exp.Expr], str] = {
    exp.Abs: "abs", exp.Ceil: "ceil", exp.Floor: "floor", exp.Round: "round", exp.Trunc: "trunc", exp.Sign: "sign",
    exp.Sqrt: "sqrt", exp.Ln: "ln", exp.Log: "log", exp.Exp: "exp", exp.Cbrt: "cbrt", exp.Sin: "sin", exp.Cos: "cos",
    exp.Tan: "tan", exp.Asin: "asin", exp.Acos: "acos", exp.Atan: "atan", exp.Atan2: "atan2", exp.IsNan: "isnan",
    exp.IsInf: "isinf", exp.Upper: "upper", exp.Lower: "lower", exp.Length: "length", exp.Substring: "substring",
    exp.Left: "left", exp.Right: "right", exp.Trim: "trim ltrim rtrim", exp.Concat: "concat", exp.Replace: "replace",
    exp.Reverse: "reverse", exp.StartsWith: "starts_with", exp.EndsWith: "ends_with", exp.Contains: "contains",
    exp.StrPosition: "strpos", exp.Coalesce: "", exp.Nullif: "nullif", exp.Greatest: "greatest", exp.Least: "least",
    exp.Extract: "date_part", exp.Year: "year", exp.Month: "month", exp.Day: "day", exp.DayOfWeek: "dayofweek",
    exp.DayOfYear: "dayofyear", exp.WeekOfYear: "weekofyear", exp.Quarter: "quarter", exp.Hour: "hour",
    exp.Minute: "minute", exp.Second: "second", exp.DateTrunc: "date_trunc", exp.TimestampTrunc: "date_trunc",
    exp.DateDiff: "date_diff", exp.TsOrDsToDate: "", exp.TimeToStr: "strftime", exp.RegexpExtract: "regexp_extract",
    exp.RegexpReplace: "regexp_replace", exp.RegexpILike: "regexp_matches", exp.RegexpFullMatch: "regexp_full_match",
    exp.SplitPart: "split_part", exp.Unicode: "unicode", exp.Ascii: "ascii", exp.Week: "week",
    exp.Monthname: "monthname", exp.Dayname: "dayname", exp.DayOfWeekIso: "isodow", exp.LastDay: "last_day",
    exp.DateFromParts: "make_date", exp.DateAdd: "+",
}  # fmt: skip
"""DuckDB's names of functions with a class in sqlglot, "" if DuckDB parses the call as an operator or a cast."""

_NAMES = (
    "isfinite isnan isinf even gcd lcm strip_accents prefix suffix contains hour minute second dayofweek isodow "
    "weekday week quarter decade century dayname monthname date_part date_trunc date_diff make_date len strlen "
    "ltrim rtrim trim log2 log10 ln signbit try_strptime"
)
"""Functions that sqlglot may leave without a class."""

_ALLOWED = frozenset(function.name for function in ROW_LOCAL_FUNCTIONS if function.row_local)


def _row_local(names: Mapping[type[exp.Expr], str]) -> tuple[type[exp.Expr], ...]:
    """Returns the node classes with functions that are all on the kernel's list of row-local functions."""
    return tuple(kind for kind, written in names.items() if _ALLOWED.issuperset(written.split()))


OPERATORS, FUNCTIONS = _row_local(OPERATOR_NAMES), _row_local(FUNCTION_NAMES)
NAMED_FUNCTIONS = _ALLOWED.intersection(_NAMES.split()) | {"ifnull", "try"}
"""Allowed functions without a class in sqlglot. ifnull and try are words of DuckDB's grammar, not functions."""

VOLATILE = frozenset(
    ("random", "uuid", "nextval", "currval", "now", "current_timestamp", "write_log", "sleep_ms", "getvariable",
     "current_setting", "txid_current", "gen_random_uuid", "setseed", "pg_typeof")
)  # fmt: skip
OFTEN_MEANT = (
    "count", "count_if", "sum", "avg", "min", "max", "median", "stddev", "stddev_pop", "stddev_samp", "var_pop",
    "var_samp", "quantile_cont", "approx_quantiles", "upper", "lower", "length", "substring", "coalesce", "round",
    "replace", "dp_stderr", "dp_interval_low", "dp_interval_high", *sorted(NAMED_FUNCTIONS),
)  # fmt: skip
"""Functions that a user may have meant by an unknown name."""
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
    (
        exp.Exists,
        "EXISTS is refused",
        "a join with a declared public table, or a SEMI JOIN or ANTI JOIN of a table with the same privacy unit",
    ),
    (exp.Query, "a subquery in an expression is refused", "a join with a declared public table, or literals"),
    (exp.Star, "* inside an expression is refused", "count(*) or a column"),
    (exp.Placeholder, "a placeholder is refused", "a literal: the statement itself may be a bound parameter of dp(?)"),
    (exp.Parameter, "a parameter is refused", "a literal"),
    (exp.CurrentDate, "current_date changes by itself", "a date literal"),
    (exp.CurrentTimestamp, "the current time changes by itself", "a timestamp literal"),
    (exp.Rand, "random() is not deterministic", "a deterministic expression"),
    (exp.StrToTime, "strptime fails for a text that is no date", "try_strptime(came, '%d.%m.%Y'), else NULL"),
    (exp.Lambda, "a lambda is refused", "an expression over columns"),
    (exp.Distinct, "DISTINCT is refused", "count(*), count(column) and count(*) FILTER (WHERE ..)"),
    (exp.AggFunc, "an aggregate inside a row expression is refused", "aggregates in the select list or HAVING"),
)  # fmt: skip


def check_row_local(expression: exp.Expr) -> None:
    """Refuses an expression that is too large, has costly arguments, or has a node that is not on the allowlist."""
    check_size(expression)
    for node in expression.walk(bfs=False):
        check_arguments(node)
        # DuckDB casts tuples to texts and texts to tuples. Each cast to a text doubles the quotes in it.
        beside = node.parent.iter_expressions() if isinstance(node.parent, exp.Predicate) else [None]
        if isinstance(node, exp.Tuple) and not all(isinstance(part, exp.Tuple) for part in beside):
            raise refusal(node, "a tuple is refused where it is not compared with tuples", "(ward, sex) IN ((1, 'F'))")
        if type(node) in ROW_LOCAL or (isinstance(node, exp.Anonymous) and _call_name(node) in NAMED_FUNCTIONS):
            _check_in(node)
            continue
        for node_type, what, accepted in _SPECIFIC:
            if isinstance(node, node_type):
                raise refusal(node, what, accepted)
        raise _unknown(node)


def refuse_subqueries(expression: exp.Expr) -> None:
    """Refuses a query inside an expression. It must run before columns are resolved."""
    for node in expression.walk(bfs=False):
        _check_in(node)
        if isinstance(node, (exp.Exists, exp.Subquery, exp.Query)):
            check_row_local(node)


def _check_in(node: exp.Expr) -> None:
    if isinstance(node, exp.In) and (node.args.get("query") or node.args.get("unnest") or node.args.get("field")):
        raise refusal(node, "IN over anything but a list is refused", "IN (literal, ..), or a SEMI JOIN of tables")


def _call_name(node: exp.Anonymous) -> str:
    return str(node.this).lower()


def _unknown(node: exp.Expr) -> Refusal:
    name = _call_name(node) if isinstance(node, exp.Anonymous) else _function_name(node)
    if name in VOLATILE:
        return refusal(node, f"{name} is volatile or has side effects", "deterministic functions of the row alone")
    near = meant(name, OFTEN_MEANT) if isinstance(node, exp.Anonymous) else ""
    if near:
        return refusal(node, f"there is no function {name[:60]!r}", f"{near} (did you mean that?)")
    return refusal(
        node,
        f"{name} is not on the list of deterministic row functions",
        "arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc",
    )


def _function_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Func):
        return word_of(node) or node.sql_name().lower()
    return type(node).__name__.upper()


# Limits on the arguments of row functions, so that no private row decides the time or the error of a query.
#
# A pattern or a specifier from a row would decide that, so both must be literals. Their cost is bounded below.

_LITERAL_PARTS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Replace: ("expression", "replacement"),
    exp.RegexpReplace: ("replacement", "modifiers"),
    exp.RegexpLike: ("flag",),
    exp.RegexpFullMatch: ("options",),
    exp.RegexpExtract: ("group", "parameters"),
    exp.TimeToStr: ("format",),
}
_SPECIFIED = frozenset(("date_part", "date_trunc", "date_diff"))
DATE_PARTS = frozenset(
    ("year", "month", "day", "decade", "century", "millennium", "quarter", "week", "dayofweek", "weekday", "dow",
     "isodow", "dayofyear", "doy", "dayofmonth", "hour", "minute", "second", "millisecond", "microsecond", "epoch",
     "isoyear", "yearweek", "weekofyear")
)  # fmt: skip
_TEMPORAL = (
    exp.Extract, exp.DateTrunc, exp.TimestampTrunc, exp.DateDiff, exp.Year, exp.Month, exp.Day, exp.DayOfWeek,
    exp.DayOfWeekIso, exp.DayOfYear, exp.WeekOfYear, exp.Week, exp.Quarter,
)  # fmt: skip
_NAMED_TEMPORAL = _SPECIFIED | {"decade", "century", "weekday"}


def check_arguments(node: exp.Expr) -> None:
    """Refuses a function or operator with arguments that could make a row expensive."""
    if isinstance(node, (*MATCHES, *REGULAR)):
        _require_literal(node, node.args.get("expression"), "the pattern")
        check_pattern(node)
    if isinstance(node, exp.Escape):
        _check_escape(node)
    for part in _LITERAL_PARTS.get(type(node), ()):
        _require_literal(node, node.args.get(part), f"the {part}")
    if isinstance(node, exp.Anonymous) and _call_name(node) in _SPECIFIED:
        _require_literal(node, node.expressions[0] if node.expressions else None, "the part of a date")
        _check_part(node, node.expressions[0] if node.expressions else None)
    if isinstance(node, exp.Anonymous) and _call_name(node) == "try_strptime":
        _check_format(node)
    if isinstance(node, (exp.DateTrunc, exp.TimestampTrunc, exp.DateDiff)):
        _check_part(node, node.args.get("unit"))
    if isinstance(node, exp.Extract):
        _check_part(node, node.this)


def temporal_arguments(expression: exp.Expr) -> list[exp.Expr]:
    """Lists the arguments of date functions. TRY does not catch all errors of a date function of INTERVAL or TIME."""
    arguments: list[exp.Expr] = []
    for node in expression.walk():
        if isinstance(node, exp.Extract):
            arguments.append(node.expression)
        elif isinstance(node, _TEMPORAL):
            arguments += [part for part in (node.this, node.args.get("expression")) if isinstance(part, exp.Expr)]
        elif isinstance(node, exp.Anonymous) and _call_name(node) in _NAMED_TEMPORAL:
            arguments += [part for part in node.expressions if not isinstance(part, exp.Literal)]
    return arguments


def _check_part(node: exp.Expr, part: exp.Expr | None) -> None:
    """Refuses unlisted parts of a date. DuckDB refuses such a part for some types, but only once it reads a row."""
    name = part.name.lower() if isinstance(part, (exp.Var, exp.Literal, exp.Column)) else ""
    if name not in DATE_PARTS and name.removesuffix("s") not in DATE_PARTS:
        raise refusal(node, "this part of a date is not on the list", ", ".join(sorted(DATE_PARTS)))


def _require_literal(node: exp.Expr, part: exp.Expr | None, what: str) -> None:
    if part is not None and not isinstance(part, exp.Literal):
        raise refusal(node, f"{what} is not a literal: it would be read from private rows", "a quoted text")


def _check_format(node: exp.Anonymous) -> None:
    """Refuses a format of dates that is no literal, or for which a text could raise or have a time zone."""
    pattern = node.expressions[1] if len(node.expressions) == 2 else None
    if not isinstance(pattern, exp.Literal) or not pattern.is_string or not is_date_format(pattern.name):
        raise refusal(
            node,
            "try_strptime takes a text and a format of dates",
            "a quoted format of %Y %y %m %d %b %B %H %I %p %M %S %f, as in try_strptime(came, '%d.%m.%Y')",
        )


def _check_escape(node: exp.Escape) -> None:
    """Refuses an ESCAPE for which DuckDB can raise an error that TRY does not catch.

    DuckDB raises if a text matches up to an escape at the pattern's end. A multi-byte ESCAPE raises for each text.
    """
    escape, matched = node.expression, node.this
    if not isinstance(escape, exp.Literal) or not escape.is_string or len(escape.name) != 1:
        raise refusal(node, "ESCAPE takes one character", "LIKE 'pattern' ESCAPE '\\'")
    if not escape.name.isascii():
        raise refusal(node, "ESCAPE takes one ASCII character", "LIKE 'pattern' ESCAPE '\\'")
    if not isinstance(matched, (exp.Like, exp.ILike)):
        raise refusal(node, "ESCAPE belongs to LIKE and ILIKE", "LIKE 'pattern' ESCAPE '\\'")
    pattern, place = matched.args["expression"].name, 0
    while place < len(pattern):
        place += 2 if pattern[place] == escape.name else 1
    if place > len(pattern):
        raise refusal(node, "the pattern ends with its ESCAPE", "a character behind it, or the escape twice")


# Cost of one row: bounds on the length of a text, and on the time of a search in it.
#
# Without bounds, the time or the memory of a statement reveals one row, chosen by CASE. A text is at most a times as
# long as the longest text of its row, and b bytes longer. Literals are counted in b. A search for a pattern of m
# characters takes a fixed number of passes over the text. LIKE with _ or ESCAPE, ILIKE and GLOB try every place for
# each wildcard that is not at the end, so only one such wildcard is allowed. A regular expression has m states, once
# its repetitions are written out.


MAX_GROWTH = 64
MAX_NODES = 20_000
MAX_BUILT = 1 << 16
"""Most bytes that literals may add to a text."""

MAX_STATES = 10_000
"""Most states of a regular expression, or characters of another pattern."""

MAX_STEPS = 1 << 20
"""Largest product of the bytes that literals add to a text and the size of the sought pattern."""

_SPECIFIER = 32  # characters that a specifier of two characters may become
_REPEATED = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_CLASS = 10  # states of a character class, and below of a Unicode class
_UNICODE_CLASS = 300

MATCHES = (exp.Like, exp.ILike, exp.Glob)
REGULAR = (
    exp.SimilarTo, exp.RegexpLike, exp.RegexpILike, exp.RegexpFullMatch, exp.RegexpExtract, exp.RegexpReplace,
)  # fmt: skip
_SEARCHES = (*MATCHES, *REGULAR, exp.Replace, exp.Contains, exp.StrPosition, exp.SplitPart)
_SOUGHT: dict[type[exp.Expr], str] = {exp.StrPosition: "substr", exp.SplitPart: "delimiter"}

Length = tuple[int, int]


def check_size(expression: exp.Expr) -> None:
    """Refuses an expression that has too many parts, makes texts too long, or takes too long to search them."""
    if sum(1 for _ in expression.walk()) > MAX_NODES:
        raise refusal(expression, "the expression is too long", f"at most {MAX_NODES} parts")
    times, more = length_of(expression)
    if times > MAX_GROWTH:
        raise refusal(
            expression,
            f"this makes texts more than {MAX_GROWTH} times as long",
            "fewer concatenations, shorter replacements",
        )
    if more > MAX_BUILT:
        raise refusal(expression, f"literals make a text of more than {MAX_BUILT} bytes", "shorter literals")


def check_pattern(node: exp.Expr) -> None:
    """Refuses a pattern that takes more than a few passes over a text, or that splits characters."""
    pattern = node.args["expression"].name
    if isinstance(node, MATCHES):
        _check_wildcards(node, pattern)
    elif "\\C" in pattern:
        raise refusal(node, "\\C in a pattern: it takes characters apart", ". for any character")
    states = _states(pattern) if isinstance(node, REGULAR) else len(pattern)
    if states > MAX_STATES:
        raise refusal(node, f"a pattern of {states} states", f"at most {MAX_STATES}: shorter ones, fewer repetitions")


def _check_wildcards(node: exp.Expr, pattern: str) -> None:
    """Refuses several wildcards with _, ESCAPE, ILIKE or GLOB: DuckDB tries all splits of the text."""
    if isinstance(node, exp.Like) and "_" not in pattern and not isinstance(node.parent, exp.Escape):
        return
    wildcard = "*" if isinstance(node, exp.Glob) else "%"
    if len(re.findall(f"[{wildcard}]+(?!$)[^{wildcard}]", pattern)) > 1:
        raise refusal(
            node,
            "a pattern with more than one wildcard before its end, whose time would depend on private rows",
            "LIKE with % alone, of lower(column) in place of ILIKE; or one wildcard, and one at the end",
        )


def length_of(node: exp.Expr) -> Length:
    """Returns a and b: the text has at most a times the bytes of the row's longest column, plus b bytes."""
    if isinstance(node, exp.Column):
        return 1, 0
    if isinstance(node, exp.Literal):
        return 0, _bytes(node)
    parts = list(node.flatten() if isinstance(node, exp.Connector) else node.iter_expressions())
    inner = [length_of(part) for part in parts]
    times, more = max((size for size, _ in inner), default=0), max((size for _, size in inner), default=0)
    if isinstance(node, _SEARCHES) or (isinstance(node, exp.Anonymous) and _call_name(node) == "contains"):
        _check_steps(node, {id(part): size for part, (_, size) in zip(parts, inner, strict=True)})
    if isinstance(node, (exp.DPipe, exp.Concat)):
        return sum(size for size, _ in inner), sum(size for _, size in inner)
    if isinstance(node, exp.Replace):
        added, removed = _bytes(node.args.get("replacement")), _bytes(node.args.get("expression"))
        factor = max(1, ceil(added / max(1, removed)))
        return times * factor, more * factor
    if isinstance(node, exp.RegexpReplace):
        added = _bytes(node.args.get("replacement"))
        return times * (1 + added), more * (1 + added) + added
    if isinstance(node, exp.TimeToStr):
        return times, more + _SPECIFIER * _bytes(node.args.get("format"))
    return times, more


def _check_steps(node: exp.Expr, more: Mapping[int, int]) -> None:
    """Refuses a search for a long pattern in a long text. more: the bytes that literals add to a node, by its id()."""
    within, sought = node.this, node.args.get(_SOUGHT.get(type(node), "expression"))
    if isinstance(node, exp.Anonymous):
        within, sought = [*node.expressions, None, None][:2]
    size = _states(sought.name) if isinstance(node, REGULAR) and sought is not None else more.get(id(sought), 0)
    steps = more.get(id(within), 0) * size
    if steps > MAX_STEPS:
        raise refusal(node, f"the literals alone make this take {steps} steps", f"shorter ones: at most {MAX_STEPS}")


def _bytes(literal: object) -> int:
    return len(literal.name.encode()) if isinstance(literal, exp.Expr) else 0


def _states(pattern: str) -> int:
    """Estimates the number of states of a regular expression after its repetitions are written out."""
    totals, last, place = [0], [0], 0
    while place < len(pattern):
        sign = pattern[place]
        repeated = _REPEATED.match(pattern, place)
        if repeated is not None:
            most = max(int(number) for number in (repeated[1], repeated[2] or "0"))
            totals[-1] += last[-1] * max(0, most - 1)
            last[-1] *= max(1, most)
            place = repeated.end()
            continue
        if sign == "(":
            totals.append(0)
            last.append(0)
        elif sign == ")" and len(totals) > 1:
            inside = totals.pop() + 1
            last.pop()
            totals[-1] += inside
            last[-1] = inside
        elif sign not in "*+?|^$)":
            size = 1 if sign.isalnum() else _CLASS
            if pattern[place : place + 2] in ("\\p", "\\P"):
                size = _UNICODE_CLASS
            place += sign == "\\"
            totals[-1] += size
            last[-1] = size
        place += 1
    return sum(totals)
