"""Counts the words, long sentences and long lines of a page of the docs."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_WORDS = 25
"""Words of a sentence."""

MOST_CHARACTERS = 120
"""Characters of a line, in blocks of code as well."""

_FENCED = re.compile(r"^```.*?^```[^\n]*$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]+`")
_EMPHASIS = re.compile(r"[*_]{1,2}(?=\w)|(?<=[\w.:!?])[*]{1,2}")
_RULE = re.compile(r"^\|[\s:|-]+\|$")
_ITEM = re.compile(r"^\s*(?:[*-]|\d+\.|>|#+)\s+")
_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"')])\s+")


def _parts(text: str) -> Iterator[str]:
    """Yields paragraphs, items of lists, headings and cells of tables."""
    part: list[str] = []
    for line in [*text.splitlines(), ""]:
        row = line.strip().startswith("|")
        if part and (row or not line.strip() or _ITEM.match(line)):
            yield " ".join(part)
            part = []
        if row:
            yield from () if _RULE.match(line.strip()) else line.strip().strip("|").split("|")
        elif line.strip():
            part.append(_ITEM.sub("", line).strip())


def sentences(page: str) -> list[str]:
    """The sentences of a page, without blocks of code. A piece of code within a sentence is one word."""
    text = _LINK.sub(r"\1", _COMMENT.sub("", _FENCED.sub("", page)))
    parts = (_EMPHASIS.sub("", part) for part in _parts(_CODE.sub("code", text)))
    return [sentence.strip() for part in parts for sentence in _END.split(part) if sentence.strip()]


def words(sentence: str) -> int:
    """Counts the words of a sentence, which have a letter or a digit."""
    return sum(any(character.isalnum() for character in word) for word in sentence.split())


def words_of(page: str) -> int:
    """The words of a whole page, without blocks of code."""
    return sum(map(words, sentences(page)))


def long_sentences(page: str, most: int = MOST_WORDS) -> list[str]:
    """Returns the sentences of a page that have more than `most` words."""
    return [sentence for sentence in sentences(page) if words(sentence) > most]


def long_lines(page: str, most: int = MOST_CHARACTERS) -> list[str]:
    """Returns the lines of a page that have more than the allowed characters."""
    return [line for line in page.splitlines() if len(line) > most]
