"""Statements of streams: CREATE, REFRESH and DROP PRIVATE STREAM, from text to frozen values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from dpduck.frontend.text.tokens import TokenReader

WHAT = "the name of a private stream"


@dataclass(frozen=True)
class CreateStream:
    """CREATE PRIVATE STREAM name OPTIONS (..) AS SELECT .. GROUP BY .."""

    name: str
    query: exp.Query
    text: str
    options: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class RefreshStream:
    """REFRESH PRIVATE STREAM name [UNTIL 'day']. until: the text of a day before which all periods are whole, or ""."""

    name: str
    until: str


@dataclass(frozen=True)
class DropStream:
    """DROP PRIVATE STREAM [IF EXISTS] name."""

    name: str
    if_exists: bool


StreamStatement = CreateStream | RefreshStream | DropStream


def read_stream(
    reader: TokenReader,
    parse_query: Callable[[str, list[Token]], exp.Query],
    read_options: Callable[[TokenReader], tuple[exp.Expr, ...]],
) -> StreamStatement | None:
    """Returns the statement, None for any other."""
    if reader.take_words("DROP", "PRIVATE", "STREAM"):
        if_exists = reader.take_words("IF", "EXISTS")
        name = reader.name(WHAT)
        reader.expect_end()
        return DropStream(name, if_exists)
    if reader.take_words("REFRESH", "PRIVATE", "STREAM"):
        name, until = reader.name(WHAT), ""
        if reader.take_words("UNTIL"):
            reader.take_words("DATE")
            until = reader.string("a day, such as '2025-01-01'")
        reader.expect_end()
        return RefreshStream(name, until)
    if reader.take_words("CREATE", "OR", "REPLACE", "PRIVATE", "STREAM"):
        raise reader.refuse("a stream is not replaced", "DROP PRIVATE STREAM first, or another name")
    if not reader.take_words("CREATE", "PRIVATE", "STREAM"):
        return None
    name = reader.name("a name for the stream")
    options = read_options(reader) if reader.at_words("OPTIONS") else ()
    if not options:
        raise reader.unexpected("OPTIONS (epsilon = .., periods = ..)")
    if not reader.take(TokenType.ALIAS):
        raise reader.unexpected("AS SELECT ..")
    return CreateStream(name, parse_query(reader.text, reader.tokens[reader.index :]), reader.text, options)
