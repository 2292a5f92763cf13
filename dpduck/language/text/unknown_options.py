"""Refusal of unknown names of options, with the nearest known name first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from sqlglot import exp

from dpduck.language.text.positions import refusal
from dpduck.values.errors import Refusal

NEAREST = 0.6  # least similarity (difflib's ratio, from 0 to 1) of a name that a refusal suggests


def nearest(name: str, names: Sequence[str]) -> str:
    """Lists names for a refusal. The name that was probably meant comes first.

    >>> nearest("carier", ["origin", "carrier"])
    'carrier (did you mean that?); all are origin, carrier'
    """
    near = get_close_matches(name.lower(), [candidate.lower() for candidate in names], n=1, cutoff=NEAREST)
    first = next((candidate for candidate in names if near and candidate.lower() == near[0]), "")
    shown = ", ".join(names[:20]) + (", .." if len(names) > 20 else "")
    return f"{first} (did you mean that?); all are {shown}" if first and first != name else shown


MOST_OPTIONS = 24  # most options that a refusal lists


def unknown_option(
    place: exp.Expr, name: str, names: Sequence[str], suffix: str = "", older: Mapping[str, str] | None = None
) -> Refusal:
    """Returns the refusal of an unknown option. It suggests the modern or the nearest name, and lists all names."""
    modern, near = (older or {}).get(name), get_close_matches(name, names, n=1, cutoff=NEAREST)
    first = f"{modern}, of " if modern else f"{near[0]} (did you mean that?), or " if near else ""
    others = [option for option in names if modern or option not in near]
    return refusal(place, f"the option {name!r} is unknown{suffix}", first + some_of(others, len(names)))


def some_of(options: Sequence[str], total: int | None = None) -> str:
    """Lists options for a refusal, the first 24 of a long list. total: the number of all options."""
    listed = list(options)
    if len(listed) > MOST_OPTIONS:
        listed = [*listed[:MOST_OPTIONS], f".. (docs/sql.md has all {len(listed) if total is None else total})"]
    return ", ".join(listed)
