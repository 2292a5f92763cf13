"""What a row function may be given, so that no private row decides how long a query takes or which error it raises.

Patterns and specifiers that were read from a row would decide that: they are literals. What they may cost is in
row_costs.
"""

from __future__ import annotations

from sqlglot import exp

from dpduck.frontend.positions import refusal
from dpduck.frontend.row_costs import MATCHES, REGULAR, check_pattern

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
    if isinstance(node, (*MATCHES, *REGULAR)):
        _require_literal(node, node.args.get("expression"), "the pattern")
        check_pattern(node)
    if isinstance(node, exp.Escape):
        _check_escape(node)
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


def _check_escape(node: exp.Escape) -> None:
    """DuckDB raises what TRY does not catch where a text is matched up to an escape with nothing behind it.

    So it does for each row with a text where the escape is longer than one byte.
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
