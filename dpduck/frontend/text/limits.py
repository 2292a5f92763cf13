"""Bounds on a statement's text, checked before anything is parsed: a parser is never given more than it can bear."""

from __future__ import annotations

import re
import unicodedata

from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from dpduck.frontend.text.dialect import PrivateDuckDB
from dpduck.frontend.text.names import HOLE
from dpduck.values.errors import Position, Refusal

MAX_CHARACTERS = 200_000
MAX_DEPTH = 40
MAX_LITERAL = 20_000
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_PARTS = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$|[^'"/$-]+|/\*|\$\$|.""", re.DOTALL
)
_QUOTED = {
    kind for kind in TokenType if kind.name == "IDENTIFIER" or kind.name.endswith("STRING")
}  # everything else is a word or a sign, which DuckDB may split where sqlglot does not
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.TILDE, TokenType.PLUS}


def position_in(text: str, offset: int) -> Position:
    """Line and column, from 1, of a character offset in the text."""
    before = text[:offset]
    return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def bounded_tokens(text: str) -> list[Token]:
    """Returns the tokens of a statement whose length, depth and literals are within bounds."""
    if len(text) > MAX_CHARACTERS:
        raise Refusal(
            f"the statement has {len(text)} characters",
            accepted=f"at most {MAX_CHARACTERS} (long lists go in a table)",
        )
    if "\x00" in text:
        raise Refusal("the statement has a NUL character", accepted="text without it")
    try:
        tokens = PrivateDuckDB().tokenize(text)
    except SqlglotError:
        raise Refusal(
            "a quote or a comment that never closes", accepted="closed quotes and comments", position=_unclosed(text)
        ) from None
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise Refusal("the statement is empty", accepted="a statement such as SELECT WITH DIFFERENTIAL_PRIVACY ..")
    _check_each(text, tokens)
    return tokens


def _is_invisible(character: str) -> bool:
    """Control, format, blank and unassigned characters."""
    return unicodedata.category(character)[0] in "CZ" and character not in " \t\r\n"


def _unclosed(text: str) -> Position | None:
    """Finds the start of the first quote or comment that does not end."""
    for part in _PARTS.finditer(text):
        if part[0] in ("'", '"', "/*", "$$"):
            return position_in(text, part.start())
    return None


def _check_each(text: str, tokens: list[Token]) -> None:
    depth = prefixes = 0
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise Refusal(
                "two statements in one text", accepted="one statement", position=position_in(text, token.start)
            )
        if token.token_type not in _QUOTED and "`" in token.text:
            raise Refusal(
                "DuckDB has no backticks",
                accepted='double quotes around a name: "name"',
                position=position_in(text, token.start),
            )
        if token.token_type not in _QUOTED and any(map(_is_invisible, token.text)):
            raise Refusal(
                "an invisible character outside quotes",
                accepted="blanks, tabs and line ends between words",
                position=position_in(text, token.start),
            )
        if HOLE in token.text.lower():
            raise Refusal(
                f"the name {HOLE} is dpduck's own", accepted="another name", position=position_in(text, token.start)
            )
        if len(token.text) > MAX_LITERAL:
            raise Refusal(
                f"a literal of {len(token.text)} characters",
                accepted=f"at most {MAX_LITERAL}",
                position=position_in(text, token.start),
            )
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
        if depth > MAX_DEPTH or prefixes > MAX_DEPTH:
            raise Refusal(
                "the statement is nested too deeply",
                accepted=f"at most {MAX_DEPTH} levels",
                position=position_in(text, token.start),
            )
