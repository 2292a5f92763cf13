"""A cursor over tokens for the statements that are ours alone (policies, views); each complaint has a position."""

from __future__ import annotations

from fractions import Fraction

from sqlglot.tokens import Token, TokenType

from dpduck.frontend.text.limits import position_in
from dpduck.frontend.text.names import TableName, quote_text
from dpduck.values.errors import Position, Refusal

SMALLEST_AMOUNT = Fraction(1, 10**100)
LARGEST_AMOUNT = Fraction(10**6)
MAX_DIGITS, MAX_EXPONENT_DIGITS = 40, 3


def exact_number(text: str) -> Fraction:
    """Returns a decimal literal as an exact rational, digits and exponent bounded."""
    mantissa, _, exponent = text.lower().replace("_", "").partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent.lstrip("+-")) > MAX_EXPONENT_DIGITS:
        raise ValueError("too many digits")
    return Fraction(text.replace("_", ""))


class TokenReader:
    """Reads words, names, numbers and literals one after the other."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.index = 0

    @property
    def position(self) -> Position:
        offset = self.tokens[self.index].start if self.index < len(self.tokens) else len(self.text)
        return position_in(self.text, offset)

    @property
    def current(self) -> Token | None:
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    def refuse(self, what: str, accepted: str, position: Position | None = None) -> Refusal:
        return Refusal(what, accepted=accepted, position=position or self.position)

    def unexpected(self, accepted: str) -> Refusal:
        token = self.current
        found = f"{token.text[:40]!r} is not expected here" if token else "the statement ends too early"
        return self.refuse(found, accepted)

    def at_words(self, *words: str) -> bool:
        following = self.tokens[self.index : self.index + len(words)]
        return len(following) == len(words) and all(
            token.text.upper() == word and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
            for token, word in zip(following, words, strict=True)
        )

    def take_words(self, *words: str) -> bool:
        if not self.at_words(*words):
            return False
        self.index += len(words)
        return True

    def expect_words(self, *words: str) -> None:
        if not self.take_words(*words):
            raise self.unexpected(" ".join(words))

    def at(self, token_type: TokenType) -> bool:
        return self.current is not None and self.current.token_type == token_type

    def take(self, token_type: TokenType) -> bool:
        if not self.at(token_type):
            return False
        self.index += 1
        return True

    def expect(self, token_type: TokenType, shown: str) -> None:
        if not self.take(token_type):
            raise self.unexpected(shown)

    def expect_end(self) -> None:
        if self.current is not None:
            raise self.unexpected("the end of the statement")

    def name(self, what: str) -> str:
        token = self.current
        is_word = token is not None and (
            token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
            or (token.token_type not in (TokenType.STRING, TokenType.NUMBER) and token.text.isidentifier())
        )
        if not is_word or token is None:
            raise self.unexpected(what)
        self.index += 1
        return token.text

    def table_name(self, most: int = 3) -> TableName:
        parts = [self.name("a table name; a file is a table after CREATE TABLE t AS FROM 'file'")]
        while self.take(TokenType.DOT):
            parts.append(self.name("a name after the dot"))
        if len(parts) > most:
            raise self.refuse("a table name has at most three parts", "database.schema.table")
        return TableName(tuple(parts))

    def number_text(self, what: str) -> str:
        sign = "-" if self.take(TokenType.DASH) else ""
        if not self.at(TokenType.NUMBER) or self.current is None:
            raise self.unexpected(what)
        text = sign + self.current.text
        try:
            exact_number(text)
        except ValueError:
            raise self.unexpected(f"{what} of at most 40 digits") from None
        self.index += 1
        return text

    def amount(self, what: str) -> Fraction:
        """Returns a number that is a budget or a part of one: positive and sane."""
        position = self.position
        value = exact_number(self.number_text(f"a number for {what}"))
        if not SMALLEST_AMOUNT <= value <= LARGEST_AMOUNT:
            most = "below 0.01; or no delta, as in (epsilon = 1)" if what == "delta" else "at most 1000000"
            raise self.refuse(f"{what} is out of range", f"a number above 0, {most}", position)
        return value

    def count(self, what: str, largest: int) -> int:
        position = self.position
        value = exact_number(self.number_text(f"a number for {what}"))
        if value.denominator != 1 or not 1 <= value <= largest:
            raise self.refuse(f"{what} is out of range", f"a whole number from 1 to {largest}", position)
        return int(value)

    def string(self, what: str) -> str:
        if not self.at(TokenType.STRING) or self.current is None:
            raise self.unexpected(what)
        text = self.current.text
        self.index += 1
        return text

    def literal(self) -> str:
        """Returns a literal of a domain or clamp as text; the column's type gives it meaning."""
        for type_word in ("DATE", "TIMESTAMP"):
            if self.at_words(type_word) and self.index + 1 < len(self.tokens):
                self.index += 1
                return self.string(f"a quoted {type_word.lower()}")
        if self.at(TokenType.STRING):
            return self.string("a literal")
        for word in ("TRUE", "FALSE"):
            if self.take_words(word):
                return word.lower()
        if self.at(TokenType.IDENTIFIER) and self.current is not None:
            text = self.current.text[:40]
            raise self.refuse(f'"{text}" in double quotes is a name, not a text', f"single quotes: {quote_text(text)}")
        return self.number_text("a quoted text, a number, TRUE or FALSE")

    def rest(self) -> tuple[str, int]:
        """Returns the text from here to the end, and where it starts."""
        if self.current is None:
            raise self.unexpected("a SELECT")
        start = self.current.start
        end = self.tokens[-1].end + 1
        self.index = len(self.tokens)
        return self.text[start:end], start
