"""Where in the statement a parsed node stands."""

from __future__ import annotations

import re
from bisect import bisect_right

from sqlglot import exp

from dpduck.frontend.text.dialect import START
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
    """Returns the place of the node, else the earliest place inside it, else that of the nearest node around it."""
    own = _own(node)
    if own is not None and not isinstance(node, exp.Binary):
        return own
    inside = [_own(part) for part in node.walk()]
    known = [position for position in inside if position is not None]
    if known:
        return min(known, key=lambda position: (position.line, position.column))
    return position_of(node.parent) if node.parent is not None else None


def word_of(node: exp.Expr) -> str:
    """Returns the function as the analyst wrote it, where the parser knows it by another name; '' where there
    is none.
    """
    return str(node.meta.get(_WORD, ""))


def copy_position(source: exp.Expr, target: exp.Expr) -> None:
    """Makes one node say that it stands where another does."""
    place = position_of(source)
    if place is not None:
        target.meta[_LINE], target.meta[_COLUMN] = place.line, place.column


def _own(node: exp.Expr) -> Position | None:
    line, column = node.meta.get(_LINE), node.meta.get(_COLUMN)
    return Position(line, column) if isinstance(line, int) and isinstance(column, int) else None


def refusal(node: exp.Expr, what: str, accepted: str) -> Refusal:
    """Returns a refusal that points at a node of the statement."""
    return Refusal(what, accepted=accepted, position=position_of(node))
