"""Quoting of names and texts for SQL and for terminals, and comparison of names as DuckDB does it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_UNSEEN = frozenset(("Cc", "Cf", "Cs"))
"""Categories of characters that a terminal obeys or hides: controls, formats, and halves of pairs."""

_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def quote_identifier(name: str) -> str:
    """Returns the name as a quoted SQL identifier.

    >>> quote_identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def plain_name(name: str) -> str:
    """Returns the name as SQL, with quotes only if it needs them.

    >>> plain_name("ward"), plain_name("date of birth")
    ('ward', '"date of birth"')
    """
    return name if _PLAIN.fullmatch(name) else quote_identifier(name)


def quote_text(text: str) -> str:
    """Returns the text as an SQL string literal.

    >>> quote_text("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def written_values(values: Iterable[object]) -> tuple[str, list[object]]:
    """Writes values as an SQL list. Returns the list, and the values of its parameter marks.

    Texts, whole numbers and NULL are literals. A parameter would take 0.1 ms if pandas is not installed, because
    DuckDB searches for pandas. A text with a NUL character is a parameter: DuckDB would stop reading the SQL there.

    >>> written_values([7, "it's", None, 0.5])
    ("7, 'it''s', NULL, ?", [0.5])
    """
    marks, parameters = list[str](), list[object]()
    for value in values:
        if value is None:
            marks.append("NULL")
        elif type(value) is int:
            marks.append(str(value))
        elif isinstance(value, str) and "\0" not in value:
            marks.append(quote_text(value))
        else:
            marks.append("?")
            parameters.append(value)
    return ", ".join(marks), parameters


def unquote_identifier(name: str) -> str:
    """Returns the name that an SQL identifier stands for, without its quotes.

    >>> unquote_identifier('"a""b"'), unquote_identifier("day")
    ('a"b', 'day')
    """
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def fold(name: str) -> str:
    """Returns a name in small letters, so that names are equal if DuckDB takes them as equal. Only ASCII changes.

    >>> fold("Visits"), fold("\u212a") == "k"
    ('visits', False)
    """
    if name.isascii():
        return name.lower()
    return "".join(character.lower() if character.isascii() else character for character in name)


def printable(text: str) -> str:
    r"""Returns a text in which each character that a terminal obeys or hides is written out. Lines and tabs stay.

    >>> print(printable("n" + chr(27) + "]0;title" + chr(7)))
    n\x1b]0;title\x07
    """
    if text.isprintable():
        return text
    return "".join(
        repr(character)[1:-1] if unicodedata.category(character) in _UNSEEN and character not in "\n\t" else character
        for character in text
    )
