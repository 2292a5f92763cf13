"""Words of a text that no parser has read: where they stand, and which known one was meant.

A server's process, which parses nothing of dpduck's, needs these without the parser.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from dpduck.values.errors import Position


def position_in(text: str, offset: int) -> Position:
    """Returns the line and column, from 1, of a character offset in the text."""
    before = text[:offset]
    return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def meant(name: str, known: Sequence[str]) -> str:
    """Returns the known name that a name is a slip of, "" where none is near.

    >>> meant("coutn", ["sum", "count"])
    'count'
    """
    spelled = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), list(spelled), n=1, cutoff=0.75)
    return spelled[near[0]] if near and near[0] != name.lower() else ""


def meant_or(name: str, known: Sequence[str], otherwise: str) -> str:
    """Says what is accepted in place of a name: the known one that may have been meant, and what else there is.

    >>> meant_or("cubee", ["cube"], "a name of dp_releases()")
    'cube (did you mean that?), or a name of dp_releases()'
    """
    near = meant(name, known)
    return f"{near} (did you mean that?), or {otherwise}" if near else otherwise
