"""Compiles canonical SQL of a row into the kernel's expressions.

What an expression's class refuses, and what this does not know, is a program: a worker evaluates it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from dpduck.kernel.columns.arithmetic import (
    Choice,
    Clamped,
    Double,
    LiteralNumber,
    Negated,
    Number,
    Product,
    StoredNumber,
    Sum,
)
from dpduck.kernel.columns.expressions import (
    SIGNS,
    TURNED,
    Between,
    Column,
    Comparison,
    Constant,
    Distinct,
    Expression,
    Is,
    Junction,
    Like,
    Listed,
    Literal,
    Not,
    NotPlain,
    Operand,
    Own,
    Program,
    Truth,
)
from dpduck.kernel.columns.stored import AsText
from dpduck.values.sqltypes import sql_type

Columns = Mapping[str, Column]
"""The columns that an expression may read, by their SQL."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")*"(?:\."(?:[^"]|"")*")*)|(?P<number>\d+(?:\.\d+)?)"""
    r"""|(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)|(?P<sign><=|>=|<>|!=|[=<>(),+*-]))""",
    re.ASCII,
)
_ANY_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")*"(?:\s*\.\s*"(?:[^"]|"")*")*)|(?P<other>[^'"]+)|(?P<odd>['"])""",
    re.ASCII,
)
_DOUBLE = re.compile(r"(?P<tried>try\()?CAST\((?P<inside>.*) AS DOUBLE\)(?P<closed>\))?", re.DOTALL | re.IGNORECASE)
_TEXT = re.compile(r"CAST\((?P<inside>.*) AS VARCHAR\)", re.DOTALL)
Node = TypeVar("Node")


def condition_of(text: str, columns: Columns) -> Expression:
    """Compiles a condition.

    >>> age = Column("r0", "age", "INTEGER")
    >>> condition_of('("r0"."age" BETWEEN 1 AND 9)', {age.quoted: age}).sql
    '"r0"."age" BETWEEN 1 AND 9'
    >>> condition_of('try(abs("r0"."age") > 1)', {age.quoted: age}).plain
    False
    """
    return _read(text, columns, lambda reader: reader.condition()) or program_of(text, columns)


def number_of(text: str, columns: Columns) -> Expression:
    """Compiles a DOUBLE."""
    found = _DOUBLE.fullmatch(text)
    if found is None or (found["closed"] is not None) != (found["tried"] is not None):
        return program_of(text, columns)
    column = columns.get(found["inside"])
    kind = None if column is None else sql_type(column.type_name)
    if column is not None and kind is not None and (kind.is_float or kind.is_integer):
        return Double(column)
    number = _read(found["inside"], columns, lambda reader: reader.number())
    return program_of(text, columns) if number is None else Double(number)


def value_of(text: str, columns: Columns) -> Expression:
    """Compiles a value that rows are grouped by: a column, a stored number as a DOUBLE, or a program."""
    column = columns.get(text)
    if column is not None:
        return column
    number = number_of(text, columns)
    return number if isinstance(number, Double) and number.is_narrow else program_of(text, columns)


def text_of(text: str, columns: Columns) -> Expression:
    """Compiles a VARCHAR."""
    found = _TEXT.fullmatch(text)
    column = columns.get(found["inside"]) if found is not None else None
    try:
        return program_of(text, columns) if column is None else AsText(column)
    except NotPlain:
        return program_of(text, columns)


def program_of(text: str, columns: Columns) -> Program:
    """Returns an expression as a program of its text and of the columns in it."""
    return Program(_pieces(text, columns))


def written(text: str) -> Program | None:
    """Returns an expression of which no column is known yet, None for no text. A worker refuses it as it stands."""
    return Program((text,)) if text else None


def own_of(text: str, columns: Columns) -> Own:
    """Returns SQL of dpduck's own over columns."""
    return Own(_pieces(text, columns))


def _pieces(text: str, columns: Columns) -> tuple[str | Column, ...]:
    """Splits SQL at its columns; literals are left alone."""
    pieces, left = list[str | Column](), ""
    for match in _ANY_TOKEN.finditer(text):
        column = columns.get(match[0]) if match["name"] else None
        if column is None:
            left += match[0]
            continue
        pieces += [left, column] if left else [column]
        left = ""
    return tuple([*pieces, left] if left else pieces)


def _read(text: str, columns: Columns, read: Callable[[_Reader], Node]) -> Node | None:
    """Returns what all tokens of a text are, None where they are nothing plain."""
    try:
        reader = _Reader(_tokens_of(text), columns)
        found = read(reader)
        reader.end()
    except (NotPlain, RecursionError):
        return None
    return found


def _refused() -> NotPlain:
    return NotPlain("an expression that is not plain")


def _tokens_of(text: str) -> list[tuple[str, str]]:
    """Returns kinds and texts of tokens."""
    tokens, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise _refused()
        tokens.append((match.lastgroup, match[match.lastgroup]))
        place = match.end()
    return tokens


class _Reader:
    """Reads the tokens of one condition or number."""

    def __init__(self, tokens: Sequence[tuple[str, str]], columns: Columns) -> None:
        self._tokens, self._columns, self._place = tokens, columns, 0

    def end(self) -> None:
        """Refuses tokens that are left."""
        if self._place != len(self._tokens):
            raise _refused()

    def condition(self) -> Expression:
        """Reads conditions joined by OR."""
        found = [self._conjunction()]
        while self._word("OR"):
            found.append(self._conjunction())
        return found[0] if len(found) == 1 else Junction("OR", tuple(found))

    def _conjunction(self) -> Expression:
        found = [self._negation()]
        while self._word("AND"):
            found.append(self._negation())
        return found[0] if len(found) == 1 else Junction("AND", tuple(found))

    def _negation(self) -> Expression:
        if self._word("NOT"):
            return Not(self._negation())
        return self._predicate()

    def _predicate(self) -> Expression:
        for constant in ("TRUE", "FALSE", "NULL"):
            if self._word(constant):
                return Constant(constant)
        column = self._column()
        if column is not None:
            return self._compared(column)
        if self._word("TRY") and self._peek()[1] != "(":
            raise _refused()
        if self._sign("("):
            found = self.condition()
            self._expect(")")
            return found
        literal, (_, sign) = self._literal(), self._next()
        column = self._column()
        if column is None:
            raise _refused()
        return Comparison(column, TURNED.get(sign, sign), literal)

    def _compared(self, column: Column) -> Expression:
        """Reads what follows a column: nothing after a BOOLEAN, else one comparison."""
        if self._word("IS"):
            return self._after_is(column)
        negated = self._word("NOT")
        if self._word("BETWEEN"):
            low = self._operand()
            if not self._word("AND"):
                raise _refused()
            return Between(column, low, self._operand(), negated)
        if self._word("IN"):
            self._expect("(")
            values = [self._operand()]
            while self._sign(","):
                values.append(self._operand())
            self._expect(")")
            return Listed(column, tuple(values), negated)
        if self._word("LIKE"):
            return Like(column, self._literal(), negated)
        if negated:
            raise _refused()
        if self._peek()[1] in SIGNS:
            return Comparison(column, self._next()[1], self._operand())
        return Truth(column)

    def _after_is(self, column: Column) -> Expression:
        negated = self._word("NOT")
        if self._word("DISTINCT"):
            if not self._word("FROM"):
                raise _refused()
            return Distinct(column, self._operand(), negated)
        value = next((word for word in ("NULL", "TRUE", "FALSE") if self._word(word)), "")
        return Is(column, value, negated)

    def _operand(self) -> Operand:
        """Reads a column or a literal."""
        column = self._column()
        return self._literal() if column is None else column

    def _literal(self) -> Literal:
        """Reads a text, a number, a boolean, DATE or TIMESTAMP."""
        kind, text = self._next()
        if kind == "text":
            return Literal("text", text[1:-1].replace("''", "'"))
        sign = text if text == "-" else ""
        if sign:
            kind, text = self._next()
        if kind == "number":
            return Literal("number", text, sign)
        if kind == "word" and text.upper() in ("TRUE", "FALSE") and not sign:
            return Literal("boolean", text.upper())
        if kind == "word" and text.upper() == "CAST" and not sign:
            return self._cast()
        raise _refused()

    def _cast(self) -> Literal:
        self._expect("(")
        kind, text = self._next()
        if kind != "text" or not self._word("AS"):
            raise _refused()
        _, named = self._next()
        self._expect(")")
        if not sql_type(named).is_moment:
            raise _refused()
        return Literal(named, text[1:-1])

    def number(self) -> Number:
        """Reads a sum."""
        found = self._product()
        while True:
            sign = next((sign for sign in "+-" if self._sign(sign)), None)
            if sign is None:
                return found
            if sign == self._peek()[1] == "-":
                raise _refused()
            found = Sum(found, sign, self._product())

    def _product(self) -> Number:
        found = self._factor()
        while self._sign("*"):
            found = Product(found, self._factor())
        return found

    def _factor(self) -> Number:
        if self._sign("-"):
            if self._peek()[1] == "-":  # of a comment
                raise _refused()
            return Negated(self._factor())
        if self._sign("("):
            number = self.number()
            self._expect(")")
            return number
        if self._word("CASE"):
            return self._case()
        column = self._column()
        if column is not None:
            return StoredNumber(column)
        kind, text = self._next()
        if kind != "number":
            raise _refused()
        return LiteralNumber(Literal("number", text))

    def _case(self) -> Number:
        conditions, values = list[Expression](), list[Number]()
        while self._word("WHEN"):
            conditions.append(self.condition())
            if not self._word("THEN"):
                raise _refused()
            values.append(self.number())
        if self._word("ELSE"):
            values.append(self.number())
        if not self._word("END"):
            raise _refused()
        return _clamped(conditions, values) or Choice(tuple(conditions), tuple(values))

    def _column(self) -> Column | None:
        """Reads a column, in brackets or not; nothing is read where there is none."""
        depth = 0
        while self._peek(depth)[1] == "(":
            depth += 1
        column = self._columns.get(self._peek(depth)[1])
        if column is None or any(self._peek(depth + 1 + closing)[1] != ")" for closing in range(depth)):
            return None
        self._place += 2 * depth + 1
        return column

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else ("", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._place += 1
        return token

    def _word(self, word: str) -> bool:
        kind, text = self._peek()
        found = kind == "word" and text.upper() == word
        self._place += found
        return found

    def _sign(self, sign: str) -> bool:
        found = self._peek() == ("sign", sign)
        self._place += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._sign(sign):
            raise _refused()


def _clamped(conditions: Sequence[Expression], values: Sequence[Number]) -> Clamped | None:
    """Returns CASE WHEN c <= low THEN low WHEN c >= high THEN high ELSE c END as a clamped column."""
    if len(conditions) != 2 or len(values) != 3 or not isinstance(values[2], StoredNumber):
        return None
    ends = []
    for condition, sign, value in zip(conditions, ("<=", ">="), values, strict=False):
        inner = value.number if isinstance(value, Negated) else value
        if not isinstance(inner, LiteralNumber) or not isinstance(condition, Comparison):
            return None
        end = Literal("number", inner.literal.text, "" if inner is value else "-")
        if (condition.column, condition.sign, condition.other) != (values[2].column, sign, end):
            return None
        ends.append(end)
    return Clamped(values[2], *ends)
