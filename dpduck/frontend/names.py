"""Names of tables, and the one way to quote an identifier or a text into SQL."""

from __future__ import annotations

from dataclasses import dataclass


def quote_identifier(name: str) -> str:
    """The name as a quoted SQL identifier.

    >>> quote_identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """The text as an SQL string literal.

    >>> quote_text("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def fold(name: str) -> str:
    """The name as DuckDB compares names: capitals of ASCII alone are folded.

    >>> fold("Visits"), fold("\u212a") == "k"
    ('visits', False)
    """
    return "".join(character.lower() if character.isascii() else character for character in name)


@dataclass(frozen=True)
class TableName:
    """A table as written, one to three parts; `resolved` names have all three.

    >>> TableName(("clinic", "main", "visits")).sql
    '"clinic"."main"."visits"'
    """

    parts: tuple[str, ...]

    @property
    def sql(self) -> str:
        return ".".join(quote_identifier(part) for part in self.parts)

    @property
    def table(self) -> str:
        return self.parts[-1]

    def __str__(self) -> str:
        return ".".join(self.parts)
