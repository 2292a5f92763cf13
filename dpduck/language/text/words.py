"""Positions of words in a text without a parser, and suggestions for misspelt names.

A server's process parses no statement of dpduck, so it uses this module alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from dpduck.values.errors import Position


def position_in(text: str, offset: int) -> Position:
    """Returns the line and column, from 1, of a character offset in the text."""
    before = text[:offset]
    return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def meant(name: str, names: Sequence[str]) -> str:
    """Returns the known name nearest to a misspelt name, "" if none is near.

    >>> meant("coutn", ["sum", "count"])
    'count'
    """
    spelled = {candidate.lower(): candidate for candidate in names}
    near = get_close_matches(name.lower(), list(spelled), n=1, cutoff=0.75)
    return spelled[near[0]] if near and near[0] != name.lower() else ""


def meant_or(name: str, names: Sequence[str], otherwise: str) -> str:
    """Returns the accepted forms in place of a name: the nearest known name, if one is near, and `otherwise`.

    >>> meant_or("cubee", ["cube"], "a name of dp_releases()")
    'cube (did you mean that?), or a name of dp_releases()'
    """
    near = meant(name, names)
    return f"{near} (did you mean that?), or {otherwise}" if near else otherwise
