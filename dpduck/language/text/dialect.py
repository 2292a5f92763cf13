"""Dialect of sqlglot: DuckDB's SQL with SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..), and a cursor over tokens.

The length and depth of a text are checked before it is parsed, because a parser fails on a text that is too deep.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokens import Token, TokenType

from dpduck.language.text.names import HOLE, TableName
from dpduck.language.text.words import position_in
from dpduck.values.errors import Position, Refusal
from dpduck.values.quoting import quote_text

T = TypeVar("T")
MISSPELT = "expected DIFFERENTIAL_PRIVACY after SELECT WITH"
BOUNDS = "dpduck_bounds"  # in an aggregate's meta: its named arguments, such as contribution_bounds_per_row
START = "dpduck_start"  # in a node's meta: the offset of its first token in the text


class DifferentialPrivacy(exp.Expression):
    """Privacy clause after SELECT. Its expressions are the options as written."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}


def _note_start(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a parser's rule so that it notes the start of its node, unless an inner rule has noted one."""

    def place(self: Any, *arguments: Any, **options: Any) -> Any:
        first = self._curr
        node = rule(self, *arguments, **options)
        target = node[1] if isinstance(node, tuple) and len(node) == 2 else node
        target = target[0] if isinstance(target, list) and target else target
        if isinstance(target, exp.Expr) and first:
            target.meta.setdefault(START, first.start)
        return node

    return place


def _separate_bounds(build: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the builder of an aggregate, so that its named arguments, which are bounds, go to the node's meta."""

    def build_bounded(arguments: list[Any]) -> Any:
        bounds = [argument for argument in arguments if isinstance(argument, exp.Kwarg)]
        arguments[:] = [argument for argument in arguments if not isinstance(argument, exp.Kwarg)]
        node = build(arguments)
        node.meta[BOUNDS] = bounds
        return node

    return build_bounded


_AGGREGATES: dict[str, Callable[..., Any]] = {
    **{name: DuckDBParser.FUNCTIONS[name] for name in (
        "SUM", "AVG", "VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "MIN", "MAX", "MEDIAN",
        "QUANTILE_CONT", "QUANTILE_DISC", "QUANTILE", "PERCENTILE_CONT", "PERCENTILE_DISC", "APPROX_QUANTILE",
        "APPROX_QUANTILES", "COUNT",
    )},
    "MEAN": DuckDBParser.FUNCTIONS["AVG"],
}  # fmt: skip


class PrivateParser(DuckDBParser):
    """Parser of DuckDB's SQL. It reads the privacy clause where other dialects have hints."""

    QUERY_MODIFIER_PARSERS: ClassVar[Any] = {
        token: _note_start(rule) for token, rule in DuckDBParser.QUERY_MODIFIER_PARSERS.items()
    }
    FUNCTIONS: ClassVar[Any] = {
        **DuckDBParser.FUNCTIONS,
        **{name: _separate_bounds(build) for name, build in _AGGREGATES.items()},
    }
    FUNCTION_PARSERS: ClassVar[Any] = {
        name: rule for name, rule in DuckDBParser.FUNCTION_PARSERS.items() if name not in _AGGREGATES
    }
    _parse_primary = _note_start(DuckDBParser._parse_primary)
    _parse_unary = _note_start(DuckDBParser._parse_unary)
    _parse_type = _note_start(DuckDBParser._parse_type)
    _parse_function_call = _note_start(DuckDBParser._parse_function_call)
    _parse_select_query = _note_start(DuckDBParser._parse_select_query)
    _parse_with = _note_start(DuckDBParser._parse_with)
    _parse_cte = _note_start(DuckDBParser._parse_cte)
    _parse_join = _note_start(DuckDBParser._parse_join)
    _parse_table = _note_start(DuckDBParser._parse_table)
    _parse_table_sample = _note_start(DuckDBParser._parse_table_sample)
    _parse_lateral = _note_start(DuckDBParser._parse_lateral)
    _parse_pivot = _note_start(DuckDBParser._parse_pivot)

    def expression(self, instance: Any, token: Any = None, comments: Any = None) -> Any:
        if isinstance(instance, exp.Distinct) and self._prev and self._prev.token_type in self.DISTINCT_TOKENS:
            instance.meta[START] = self._prev.start
        return super().expression(instance, token, comments)

    def _parse_hint(self) -> Any:
        if not (self._curr and self._curr.token_type == TokenType.WITH):
            return super()._parse_hint()
        start = self._curr
        self._advance()
        if not self._match_text_seq("DIFFERENTIAL_PRIVACY"):
            self.raise_error(MISSPELT)
        options: list[Any] = []
        if self._match_text_seq("OPTIONS"):
            options = self._parse_wrapped_csv(self._parse_assignment, optional=False) or []
        if self._match_text_seq("PUBLIC", "TOTALS", "FROM"):
            options.append(self._public_totals())
        clause = self.expression(DifferentialPrivacy(expressions=options))
        clause.meta[START] = start.start
        return clause

    def _public_totals(self) -> Any:
        """Reads the table after PUBLIC TOTALS FROM, as the option public_totals."""
        first = self._curr
        named = self._parse_table_parts()
        parts = named.parts if isinstance(named, exp.Table) else []
        name = exp.Literal.string(".".join(part.name for part in parts))
        option = exp.EQ(this=exp.column("public_totals"), expression=name)
        for node in (option, option.left, name):
            node.meta[START] = first.start
        return option


class PrivateDuckDB(DuckDB):
    """Dialect of DuckDB's SQL with the differential privacy clause."""

    Parser = PrivateParser


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


def tokenize_statement(text: str) -> list[Token]:
    """Tokenizes a statement. Refuses a statement with a length, depth or literal out of bounds."""
    if len(text) > MAX_CHARACTERS:
        raise Refusal(
            f"the statement has {len(text)} characters", accepted=f"at most {MAX_CHARACTERS} (long lists go in a table)"
        )
    if "\x00" in text:
        raise Refusal("the statement has a NUL character", accepted="text without it")
    try:
        tokens = PrivateDuckDB().tokenize(text)
    except SqlglotError:
        what, position = "a quote or a comment that never closes", _open_quote_position(text)
        raise Refusal(what, accepted="closed quotes and comments", position=position) from None
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise Refusal("the statement is empty", accepted="a statement such as SELECT WITH DIFFERENTIAL_PRIVACY ..")
    _check_each(text, tokens)
    return tokens


def _is_invisible(character: str) -> bool:
    """Tells whether a character is invisible, and no plain space, tab or line end."""
    return unicodedata.category(character)[0] in "CZ" and character not in " \t\r\n"


def _open_quote_position(text: str) -> Position | None:
    """Finds the start of the first quote or comment that does not end."""
    for part in _PARTS.finditer(text):
        if part[0] in ("'", '"', "/*", "$$"):
            return position_in(text, part.start())
    return None


def _check_each(text: str, tokens: list[Token]) -> None:
    depth = prefixes = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
        refused = _token_problem(token)
        if not refused and (depth > MAX_DEPTH or prefixes > MAX_DEPTH):
            refused = "the statement is nested too deeply", f"at most {MAX_DEPTH} levels"
        if refused:
            raise Refusal(refused[0], accepted=refused[1], position=position_in(text, token.start))


def _token_problem(token: Token) -> tuple[str, str] | None:
    """Returns the reason to refuse a token and the accepted form, None for a good token."""
    if token.token_type == TokenType.SEMICOLON:
        return "two statements in one text", "one statement"
    if token.token_type not in _QUOTED and "`" in token.text:
        return "DuckDB has no backticks", 'double quotes around a name: "name"'
    if token.token_type not in _QUOTED and any(map(_is_invisible, token.text)):
        return "an invisible character outside quotes", "blanks, tabs and line ends between words"
    if HOLE in token.text.lower():
        return f"the name {HOLE} is dpduck's own", "another name"
    if len(token.text) > MAX_LITERAL:
        return f"a literal of {len(token.text)} characters", f"at most {MAX_LITERAL}"
    return None


SMALLEST_AMOUNT = Fraction(1, 10**100)
LARGEST_AMOUNT = Fraction(10**6)
MAX_DIGITS, MAX_EXPONENT_DIGITS = 40, 3


def exact_number(text: str) -> Fraction:
    """Parses a decimal literal to an exact rational. Refuses too many digits, which would take too long."""
    mantissa, _, exponent = text.lower().replace("_", "").partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent.lstrip("+-")) > MAX_EXPONENT_DIGITS:
        raise ValueError("too many digits")
    return Fraction(text.replace("_", ""))


class TokenReader:
    """Cursor over the tokens of a text. It reads words, names, numbers and literals."""

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

    def refuse_token(self, accepted: str) -> Refusal:
        token = self.current
        problem = f"{token.text[:40]!r} is not expected here" if token else "the statement ends too early"
        return self.refuse(problem, accepted)

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
            raise self.refuse_token(" ".join(words))

    def at(self, token_type: TokenType) -> bool:
        return self.current is not None and self.current.token_type == token_type

    def take(self, token_type: TokenType) -> bool:
        if not self.at(token_type):
            return False
        self.index += 1
        return True

    def expect(self, token_type: TokenType, shown: str) -> None:
        if not self.take(token_type):
            raise self.refuse_token(shown)

    def expect_end(self) -> None:
        if self.current is not None:
            raise self.refuse_token("the end of the statement")

    def comma_separated(self, read: Callable[[], T]) -> list[T]:
        items = [read()]
        while self.take(TokenType.COMMA):
            items.append(read())
        return items

    def name(self, what: str) -> str:
        token = self.current
        is_word = token is not None and (
            token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
            or (token.token_type not in (TokenType.STRING, TokenType.NUMBER) and token.text.isidentifier())
        )
        if not is_word or token is None:
            raise self.refuse_token(what)
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
            raise self.refuse_token(what)
        text = sign + self.current.text
        try:
            exact_number(text)
        except ValueError:
            raise self.refuse_token(f"{what} of at most 40 digits") from None
        self.index += 1
        return text

    def amount(self, what: str) -> Fraction:
        """Reads a budget or a part of one: a positive number within bounds."""
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
            raise self.refuse_token(what)
        text = self.current.text
        self.index += 1
        return text

    def literal(self) -> str:
        """Reads a literal of a domain or clamp as text. The column's type gives it meaning."""
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
        """Takes the rest of the text. Returns the rest, and its offset in the text."""
        if self.current is None:
            raise self.refuse_token("a SELECT")
        start = self.current.start
        end = self.tokens[-1].end + 1
        self.index = len(self.tokens)
        return self.text[start:end], start
