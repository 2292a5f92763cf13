"""Names of options that nobody knows, refused with the nearest known one first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from sqlglot import exp

from dpduck.errors import Refusal
from dpduck.frontend.positions import refusal

NEAREST = 0.6
"""The least similarity (difflib's ratio, from 0 to 1) of a name that may have been meant."""


def nearest(name: str, known: Sequence[str]) -> str:
    """The names that there are, the one that may have been meant first.

    >>> nearest("carier", ["origin", "carrier"])
    'carrier (did you mean that?); all are origin, carrier'
    """
    near = get_close_matches(name.lower(), [one.lower() for one in known], n=1, cutoff=NEAREST)
    meant = next((one for one in known if near and one.lower() == near[0]), "")
    shown = ", ".join(known[:20]) + (", .." if len(known) > 20 else "")
    return f"{meant} (did you mean that?); all are {shown}" if meant and meant != name else shown


def unknown_option(
    place: exp.Expr, name: str, known: Sequence[str], whose: str = "", older: Mapping[str, str] | None = None
) -> Refusal:
    """The refusal of a name: the modern name of an older one, else the nearest, and all there are."""
    modern, near = (older or {}).get(name), get_close_matches(name, known, n=1, cutoff=NEAREST)
    first = f"{modern}; all are " if modern else f"{near[0]} (did you mean that?); all are " if near else ""
    return refusal(place, f"the option {name!r} is unknown{whose}", first + ", ".join(known))
