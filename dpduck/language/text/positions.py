"""Refusals that point at a node of the statement, and refusals of deprecated forms of other dialects."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from dpduck.language.text.dialect import START
from dpduck.language.text.words import position_in
from dpduck.values.errors import Position, Refusal

_LINE, _COLUMN, _WORD = "dpduck_line", "dpduck_column", "dpduck_word"
_FIRST_WORD = re.compile(r"\w{1,60}")


def note_positions(root: exp.Expr, text: str) -> None:
    """Turns the offsets that the parser has left in every node into lines and columns of the text."""
    line_starts = [0, *(offset + 1 for offset, character in enumerate(text) if character == "\n")]
    for node in root.walk():
        start = node.meta.get(START, node.meta.get("start"))
        if isinstance(start, int):
            line = bisect_right(line_starts, start)
            node.meta[_LINE], node.meta[_COLUMN] = line, start - line_starts[line - 1] + 1
            word = _FIRST_WORD.match(text, start)
            if word is not None and isinstance(node, exp.Func):
                node.meta[_WORD] = word[0].lower()


def position_of(node: exp.Expr) -> Position | None:
    """Returns the position of a node, of its earliest part with a position, or otherwise of the nearest outer node."""
    own = _own(node)
    if own is not None and not isinstance(node, exp.Binary):
        return own
    inside = [_own(part) for part in node.walk()]
    positions = [position for position in inside if position is not None]
    if positions:
        return min(positions, key=lambda position: (position.line, position.column))
    return position_of(node.parent) if node.parent is not None else None


def word_of(node: exp.Expr) -> str:
    """Returns a function's name as the analyst wrote it, '' for other nodes. The parser may use another name."""
    return str(node.meta.get(_WORD, ""))


def copy_position(source: exp.Expr, target: exp.Expr) -> None:
    """Copies the position of one node to another."""
    place = position_of(source)
    if place is not None:
        target.meta[_LINE], target.meta[_COLUMN] = place.line, place.column


def _own(node: exp.Expr) -> Position | None:
    line, column = node.meta.get(_LINE), node.meta.get(_COLUMN)
    return Position(line, column) if isinstance(line, int) and isinstance(column, int) else None


def refusal(node: exp.Expr, what: str, accepted: str) -> Refusal:
    """Returns a refusal that points at a node of the statement."""
    return Refusal(what, accepted=accepted, position=position_of(node))


_MODERN: Mapping[str, str] = {
    "ANON_COUNT": "COUNT(*), or COUNT(*, contribution_bounds_per_group => (low, high))",
    "ANON_SUM": "SUM(x), or SUM(x, contribution_bounds_per_group => (low, high))",
    "ANON_AVG": "AVG(x), or AVG(x, contribution_bounds_per_group => (low, high))",
    "ANON_VAR_POP": "VAR_POP(x, contribution_bounds_per_row => (low, high))",
    "ANON_STDDEV_POP": "STDDEV_POP(x, contribution_bounds_per_row => (low, high))",
    "ANON_PERCENTILE_CONT": "PERCENTILE_CONT(x, 0.5, contribution_bounds_per_row => (low, high))",
    "ANON_QUANTILES": "APPROX_QUANTILES(x, 4, contribution_bounds_per_row => (low, high))",
}
_ANON = re.compile(r"ANON_[A-Z0-9_]+")
OPTIONS: Mapping[str, str] = {
    "kappa": "max_groups_contributed",
    "k_threshold": "min_privacy_units_per_group",
    "max_contributed_groups": "max_groups_contributed",
    "uid_column": "privacy_unit_column",
}
"""Older names of options, with their modern names."""


def refuse_deprecated(text: str, tokens: Sequence[Token]) -> None:
    """Refuses ANON_ functions, CLAMPED BETWEEN and SELECT WITH ANONYMIZATION, but not inside quotes."""
    words = [token.text.upper() if token.token_type != TokenType.STRING else "" for token in tokens]
    for number, (token, word) in enumerate(zip(tokens, words, strict=True)):
        if token.token_type == TokenType.IDENTIFIER:
            continue
        following = tokens[number + 1].token_type if number + 1 < len(tokens) else None
        if word == "ANONYMIZATION" and number and words[number - 1] == "WITH":
            raise _deprecation_refusal(
                text, token, "SELECT WITH ANONYMIZATION", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..)"
            )
        if _ANON.fullmatch(word) and following == TokenType.L_PAREN:
            modern = _MODERN.get(word, f"{word.removeprefix('ANON_')}(..)")
            raise _deprecation_refusal(text, token, f"{word}(..)", modern)
        if word == "CLAMPED" and words[number + 1 : number + 2] == ["BETWEEN"]:
            raise _deprecation_refusal(text, token, "CLAMPED BETWEEN", "contribution_bounds_per_group => (low, high)")


def _deprecation_refusal(text: str, token: Token, form: str, modern: str) -> Refusal:
    return Refusal(f"{form} is deprecated and refused", accepted=modern, position=position_in(text, token.start))
