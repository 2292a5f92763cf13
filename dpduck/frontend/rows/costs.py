"""What one row may cost: how long a text may become, and how long it takes to look for something in it.

Without bounds one row, chosen by CASE, is read from the time or the memory that a statement takes. A text is at most
a times as long as the longest text of its row, and b characters longer: literals are counted in b. Looking for a
pattern of m characters takes a fixed number of passes over it: LIKE with _ or ESCAPE, ILIKE and GLOB try every place
for each wildcard but a last one, so that they may have one; a regular expression has m states, once its repetitions
are written out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil

from sqlglot import exp

from dpduck.frontend.text.positions import refusal

MAX_GROWTH = 64
MAX_NODES = 20_000
MAX_BUILT = 1 << 16
"""Characters that literals may add to a text."""

MAX_STATES = 10_000
"""States of a regular expression, characters of another pattern."""

MAX_STEPS = 1 << 20
"""Characters that literals add to a text, times those of what is looked for in it."""

_SPECIFIER = 32  # characters that two of a format may become
_REPEATED = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_CLASS = 10  # states of a class of characters; of those of Unicode
_UNICODE_CLASS = 300

MATCHES = (exp.Like, exp.ILike, exp.Glob)
REGULAR = (
    exp.SimilarTo, exp.RegexpLike, exp.RegexpILike, exp.RegexpFullMatch, exp.RegexpExtract, exp.RegexpReplace,
)  # fmt: skip
_SEARCHES = (*MATCHES, *REGULAR, exp.Replace, exp.Contains, exp.StrPosition, exp.SplitPart)
_SOUGHT: dict[type[exp.Expr], str] = {exp.StrPosition: "substr", exp.SplitPart: "delimiter"}

Length = tuple[int, int]


def check_size(expression: exp.Expr) -> None:
    """Refuses an expression of too many parts, or one that makes texts too long or takes too long to search them."""
    if sum(1 for _ in expression.walk()) > MAX_NODES:
        raise refusal(expression, "the expression is too long", f"at most {MAX_NODES} parts")
    times, more = _length(expression)
    if times > MAX_GROWTH:
        raise refusal(
            expression,
            f"this makes texts more than {MAX_GROWTH} times as long",
            "fewer concatenations, shorter replacements",
        )
    if more > MAX_BUILT:
        raise refusal(expression, f"literals make a text of more than {MAX_BUILT} characters", "shorter literals")


def check_pattern(node: exp.Expr) -> None:
    """Refuses a pattern that takes more than a few passes over a text, or parts of characters out of it."""
    pattern = node.args["expression"].name
    if isinstance(node, MATCHES):
        _check_wildcards(node, pattern)
    elif "\\C" in pattern:
        raise refusal(node, "\\C in a pattern: it takes characters apart", ". for any character")
    states = _states(pattern) if isinstance(node, REGULAR) else len(pattern)
    if states > MAX_STATES:
        raise refusal(node, f"a pattern of {states} states", f"at most {MAX_STATES}: shorter ones, fewer repetitions")


def _check_wildcards(node: exp.Expr, pattern: str) -> None:
    """DuckDB matches % alone in linear time; with _, ESCAPE, ILIKE or GLOB it tries every way to split the text."""
    if isinstance(node, exp.Like) and "_" not in pattern and not isinstance(node.parent, exp.Escape):
        return
    wildcard = "*" if isinstance(node, exp.Glob) else "%"
    if len(re.findall(f"[{wildcard}]+(?!$)[^{wildcard}]", pattern)) > 1:
        raise refusal(
            node,
            "a pattern with more than one wildcard before its end, whose time would depend on private rows",
            "LIKE with % alone, of lower(column) in place of ILIKE; or one wildcard, and one at the end",
        )


def _length(node: exp.Expr) -> Length:
    """a and b: the text is at most a times as long as the longest of the row's columns, and b characters more."""
    if isinstance(node, exp.Column):
        return 1, 0
    if isinstance(node, exp.Literal):
        return 0, len(node.name)
    parts = list(node.flatten() if isinstance(node, exp.Connector) else node.iter_expressions())
    inner = [_length(part) for part in parts]
    times, more = max((one for one, _ in inner), default=0), max((one for _, one in inner), default=0)
    if isinstance(node, _SEARCHES) or (isinstance(node, exp.Anonymous) and str(node.this).lower() == "contains"):
        _check_steps(node, {id(part): one for part, (_, one) in zip(parts, inner, strict=True)})
    if isinstance(node, (exp.DPipe, exp.Concat)):
        return sum(one for one, _ in inner), sum(one for _, one in inner)
    if isinstance(node, exp.Replace):
        added, removed = _characters(node.args.get("replacement")), _characters(node.args.get("expression"))
        factor = max(1, ceil(added / max(1, removed)))
        return times * factor, more * factor
    if isinstance(node, exp.RegexpReplace):
        added = _characters(node.args.get("replacement"))
        return times * (1 + added), more * (1 + added) + added
    if isinstance(node, exp.TimeToStr):
        return times, more + _SPECIFIER * _characters(node.args.get("format"))
    return times, more


def _check_steps(node: exp.Expr, more: Mapping[int, int]) -> None:
    """Refuses to look for something long in a text that literals make long. more: b of each part, by its identity."""
    within, sought = node.this, node.args.get(_SOUGHT.get(type(node), "expression"))
    if isinstance(node, exp.Anonymous):
        within, sought = [*node.expressions, None, None][:2]
    size = _states(sought.name) if isinstance(node, REGULAR) and sought is not None else more.get(id(sought), 0)
    steps = more.get(id(within), 0) * size
    if steps > MAX_STEPS:
        raise refusal(node, f"the literals alone make this take {steps} steps", f"shorter ones: at most {MAX_STEPS}")


def _characters(literal: object) -> int:
    return len(literal.name) if isinstance(literal, exp.Expr) else 0


def _states(pattern: str) -> int:
    """States of a regular expression with its repetitions written out, roughly."""
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
