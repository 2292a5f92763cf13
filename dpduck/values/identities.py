"""Identities of people as a login elsewhere states them, such as an address of mail: texts that a header can carry."""

from __future__ import annotations

import re

_IDENTITY = re.compile(r"[!-~]{1,254}")
_IN_LISTS = frozenset(",;\"'()<>\\")


def is_identity(text: str) -> bool:
    """Tells whether a text can be an identity: printable ASCII without blanks, and nothing that separates several.

    >>> [is_identity(text) for text in ("alice@example.org", "a@x,b@x", "a b", "")]
    [True, False, False, False]
    """
    return _IDENTITY.fullmatch(text) is not None and _IN_LISTS.isdisjoint(text)
