"""What a row function may be given, so that no private row decides how long a query takes or how much it stores.

Matching by LIKE with several wildcards takes time exponential in their number, replacing one character by many
multiplies a text, and a specifier that is read from a row decides which error is raised. So patterns and specifiers
are literals, wildcards are few and texts grow by a small factor at most.
"""

from __future__ import annotations

from math import ceil

from sqlglot import exp

from dpduck.frontend.positions import refusal

MAX_WILDCARDS = 3
MAX_GROWTH = 64
MAX_NODES = 20_000
_MATCHES = (exp.Like, exp.ILike, exp.Glob)
_PATTERNS = (
    exp.Like, exp.ILike, exp.Glob, exp.SimilarTo, exp.RegexpLike, exp.RegexpILike, exp.RegexpFullMatch,
    exp.RegexpExtract, exp.RegexpReplace,
)  # fmt: skip
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
    """Refuses a function or operator whose arguments could make a row expensive."""
    if isinstance(node, _PATTERNS):
        _require_literal(node, node.args.get("expression"), "the pattern")
    if isinstance(node, _MATCHES):
        _check_wildcards(node)
    if isinstance(node, exp.Escape) and not (
        isinstance(node.expression, exp.Literal) and node.expression.is_string and len(node.expression.name) == 1
    ):
        raise refusal(node, "ESCAPE takes one character", "LIKE 'pattern' ESCAPE '\\'")
    for part in _LITERAL_PARTS.get(type(node), ()):
        _require_literal(node, node.args.get(part), f"the {part}")
    if isinstance(node, exp.Anonymous) and str(node.this).lower() in _SPECIFIED:
        _require_literal(node, node.expressions[0] if node.expressions else None, "the part of a date")
        _check_part(node, node.expressions[0] if node.expressions else None)
    if isinstance(node, (exp.DateTrunc, exp.TimestampTrunc, exp.DateDiff)):
        _check_part(node, node.args.get("unit"))
    if isinstance(node, exp.Extract):
        _check_part(node, node.this)


def temporal_arguments(expression: exp.Expr) -> list[exp.Expr]:
    """What functions of dates are applied to: for an INTERVAL or a TIME some of them raise what TRY does not catch."""
    found: list[exp.Expr] = []
    for node in expression.walk():
        if isinstance(node, exp.Extract):
            found.append(node.expression)
        elif isinstance(node, _TEMPORAL):
            found += [part for part in (node.this, node.args.get("expression")) if isinstance(part, exp.Expr)]
        elif isinstance(node, exp.Anonymous) and str(node.this).lower() in _NAMED_TEMPORAL:
            found += [part for part in node.expressions if not isinstance(part, exp.Literal)]
    return found


def _check_part(node: exp.Expr, part: exp.Expr | None) -> None:
    """Other parts exist that DuckDB refuses for some types, but only when it meets a row."""
    name = part.name.lower() if isinstance(part, (exp.Var, exp.Literal, exp.Column)) else ""
    if name not in DATE_PARTS and name.removesuffix("s") not in DATE_PARTS:
        raise refusal(node, "this part of a date is not on the list", ", ".join(sorted(DATE_PARTS)))


def _require_literal(node: exp.Expr, part: exp.Expr | None, what: str) -> None:
    if part is not None and not isinstance(part, exp.Literal):
        raise refusal(node, f"{what} is not a literal: it would be read from private rows", "a quoted text")


def _check_wildcards(node: exp.Expr) -> None:
    """DuckDB matches % alone in linear time; with _, ESCAPE, ILIKE or GLOB it tries every way to split the text."""
    pattern = node.args["expression"].name
    if isinstance(node, exp.Like) and "_" not in pattern and not isinstance(node.parent, exp.Escape):
        return
    if pattern.count("*" if isinstance(node, exp.Glob) else "%") > MAX_WILDCARDS:
        raise refusal(
            node,
            f"a pattern with more than {MAX_WILDCARDS} wildcards, whose time would depend on private rows",
            "LIKE with % alone, or fewer wildcards",
        )


def check_size(expression: exp.Expr) -> None:
    """Refuses an expression of too many parts, or one that multiplies the length of a text too often."""
    if sum(1 for _ in expression.walk()) > MAX_NODES:
        raise refusal(expression, "the expression is too long", f"at most {MAX_NODES} parts")
    if _growth(expression) > MAX_GROWTH:
        raise refusal(
            expression,
            f"this makes texts more than {MAX_GROWTH} times as long",
            "fewer concatenations, shorter replacements",
        )


def _growth(node: exp.Expr) -> float:
    """How many times as long as its longest column a text may become; literals count for little."""
    if isinstance(node, exp.Column):
        return 1
    parts = node.flatten() if isinstance(node, exp.Connector) else node.iter_expressions()
    inner = [_growth(part) for part in parts]
    if isinstance(node, (exp.DPipe, exp.Concat)):
        return sum(inner)
    longest = max(inner, default=0.0)
    if isinstance(node, exp.Replace):
        added, removed = _length(node.args.get("replacement")), _length(node.args.get("expression"))
        return longest * max(1, ceil(added / max(1, removed)))
    if isinstance(node, exp.RegexpReplace):
        return longest * (1 + _length(node.args.get("replacement")))
    return longest


def _length(literal: object) -> int:
    return len(literal.name) if isinstance(literal, exp.Expr) else 0
