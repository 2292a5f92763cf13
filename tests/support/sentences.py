"""Sentences of a page, and how many words each has: code, tables and addresses of links are no words."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^\|.*$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`")
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.|#+) )")
_END = re.compile(r"(?<=[.!?])[*)\"]*\s+")
_WORD = re.compile(r"\w[\w'.,-]*")


def sentences(page: str) -> list[str]:
    """Returns the sentences of a page; what stands in code is one word."""
    prose = _CODE.sub("code", _LINK.sub(r"\1", _TABLE.sub("", _FENCE.sub("\n\n", page))))
    found = (" ".join(one.split()) for part in _PARAGRAPH.split(prose) for one in _END.split(part))
    return [one for one in found if one]


def number_of_words(sentence: str) -> int:
    """Counts the words of a sentence."""
    return len(_WORD.findall(sentence))
