"""Reader of OPTIONS (..) for every statement. Tables list the options with their types and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from sqlglot import exp

from dpduck.language.text.dialect import exact_number
from dpduck.language.text.positions import refusal
from dpduck.language.text.unknown_options import some_of, unknown_option

Kind = Literal["number", "whole", "numbers", "choice", "flag", "text", "name", "words"]
Value = Fraction | int | tuple[Fraction, ...] | tuple[str, ...] | bool | str | None
_WORDS = (exp.Literal, exp.Column)
SMALLEST, LARGEST_WHOLE = Fraction(1, 10**9), 10**9


@dataclass(frozen=True)
class Option:
    """Option of a statement."""

    name: str
    kind: Kind
    says: str  # a line of documentation
    least: Fraction = SMALLEST  # a value must be above `least` if `least` is 0
    most: Fraction = Fraction(LARGEST_WHOLE)
    choices: tuple[str, ...] = ()  # the allowed words. The first word is the default
    accepted: str = ""  # the text that a refusal shows in place of the bounds
    what: str = ""  # name of the value in a refusal, "" for the option's name
    quoted: bool = False  # whether a word must be a quoted text
    longest: int = 100  # the most characters of each text of kind 'words'

    def value(self, node: exp.Expr) -> Value:
        """Reads a value from an expression. Refuses other expressions with the accepted form."""
        if self.kind == "numbers":
            listed = node.expressions if isinstance(node, exp.Tuple) else [node.unnest()]
            return tuple(self._number(item) for item in listed)
        if self.kind == "words":
            listed = node.expressions if isinstance(node, exp.Tuple) else [node.unnest()]
            return tuple(self._words(item) for item in listed)
        if self.kind == "number":
            worded = self.choices and isinstance(node, exp.Literal) and node.is_string
            return self._word(node) if worded else self._number(node)
        if self.kind == "whole":
            return int(self._number(node))
        if self.kind == "choice":
            return self._word(node)
        if self.kind == "flag":
            if not isinstance(node, exp.Boolean):
                raise refusal(node, f"{self.name} is TRUE or FALSE", "TRUE or FALSE")
            return bool(node.this)
        if self.kind == "name":
            if not isinstance(node, (exp.Column, exp.Literal)):
                raise refusal(node, f"{self.name} is not a name", "a column")
            return str(node.name)
        if not isinstance(node, exp.Literal) or not node.is_string or not 1 <= len(node.name) <= 100:
            raise refusal(node, f"{self.name} is not a tag", "a quoted text of at most 100 characters")
        return str(node.name)

    def _number(self, node: exp.Expr) -> Fraction:
        what, whole = self.what or self.name, "a whole number " if self.kind == "whole" else ""
        above = "above 0" if self.least == 0 else f"from {float(self.least):g}"
        wanted = self.accepted or f"{self.name}{' = ' if whole else ' '}{whole}{above} to {float(self.most):.6g}"
        signed = self.least < 0
        digits = node.this if signed and isinstance(node, exp.Neg) else node
        if not isinstance(digits, exp.Literal) or digits.is_string:
            kind = (whole or "a number" if signed else whole or "a positive number").strip()
            raise refusal(node, f"{what} is not {kind}", wanted)
        try:
            value = exact_number(digits.name) * (1 if digits is node else -1)
        except (ValueError, ZeroDivisionError):
            raise refusal(node, f"{what} is not a plain number of at most 40 digits", wanted) from None
        if not self.least <= value <= self.most or (value == 0 and not signed) or (whole and value.denominator != 1):
            raise refusal(node, f"{what} is out of range", wanted)
        return value

    def _words(self, node: exp.Expr) -> str:
        """Reads a text for readers of a view. It becomes part of a comment, in which a semicolon ends each part."""
        text = node.name if isinstance(node, exp.Literal) and node.is_string else ""
        if not 1 <= len(text) <= self.longest or not text.isprintable() or ";" in text:
            wanted = f"a quoted text of at most {self.longest} characters, without line breaks and semicolons"
            raise refusal(node, f"{self.name} is not a text for readers", wanted)
        return text.strip()

    def _word(self, node: exp.Expr) -> str:
        word = isinstance(node, exp.Literal) and node.is_string if self.quoted else isinstance(node, _WORDS)
        value = str(node.name).lower() if word else ""
        if not value or value not in self.choices:
            accepted = self.accepted or ", ".join(repr(choice) for choice in self.choices if choice)
            raise refusal(node, f"{self.name} has no such value", accepted)
        return value


@dataclass(frozen=True)
class StatementOptions:
    """Options of a statement."""

    nodes: Mapping[str, exp.Expr]  # the values as written
    table: Mapping[str, Option]  # the options that the statement accepts

    def __contains__(self, name: str) -> bool:
        return name in self.nodes

    def __getitem__(self, name: str) -> exp.Expr:
        return self.nodes[name]

    def value(self, name: str) -> Value:
        option, node = self.table[name], self.nodes.get(name)
        return None if node is None else option.value(node)

    def number(self, name: str) -> Fraction | None:
        value = self.value(name)
        return value if isinstance(value, Fraction) else None

    def whole(self, name: str) -> int | None:
        value = self.value(name)
        return value if isinstance(value, int) else None

    def numbers(self, name: str) -> tuple[Fraction, ...]:
        value = self.value(name)
        return tuple(number for number in value if isinstance(number, Fraction)) if isinstance(value, tuple) else ()

    def words(self, name: str) -> tuple[str, ...]:
        value = self.value(name)
        return tuple(word for word in value if isinstance(word, str)) if isinstance(value, tuple) else ()

    def flag(self, name: str) -> bool:
        return self.value(name) is True

    def text(self, name: str) -> str:
        return str(self.value(name) or "")

    def choice(self, name: str) -> str:
        """Returns the chosen word of an option, the first choice if the option is absent."""
        return self.text(name) if name in self.nodes else self.table[name].choices[0]


def read_given(
    expressions: Sequence[exp.Expr], options: Sequence[Option], suffix: str = "", older: Mapping[str, str] | None = None
) -> StatementOptions:
    """Reads the options of a statement. Refuses other expressions, repeated options and unknown options.

    suffix: words in the refusal of an unknown option, such as " for a stream".
    older: the modern names of options, by their older names.
    """
    table = {option.name: option for option in options}
    nodes: dict[str, exp.Expr] = {}
    for expression in expressions:
        if not isinstance(expression, exp.EQ) or not isinstance(expression.left, exp.Column):
            bare = table.get(expression.name.lower()) if isinstance(expression, exp.Column) else None
            flag = bare is not None and bare.kind == "flag"
            accepted = f"{expression.name.lower()} = TRUE" if flag else some_of(tuple(table))
            raise refusal(expression, "an option is written name = value", accepted)
        name = expression.left.name.lower()
        if name not in table:
            raise unknown_option(expression, name, tuple(table), suffix, older)
        if name in nodes:
            raise refusal(expression, f"the option {name} is given twice", "each option once")
        nodes[name] = expression.right
    return StatementOptions(nodes, table)


PRICE_OPTIONS = (
    Option("epsilon", "number", "the price of the whole statement", most=Fraction(100)),
    Option("delta", "number", "beside an epsilon: the price is a rho", Fraction(0), Fraction(1, 100)),
    Option("rho", "number", "the price in zCDP, in their place", most=Fraction(100)),
    Option("privacy_unit_column", "name", "the unit's column, as a check"),
    Option("max_rows_contributed", "whole", "rows kept of one unit", Fraction(1), accepted="a whole number above 0"),
    Option("refresh", "text", "a tag: a fresh release, which pays again"),
)
"""Options of every statement with a price."""

CAPTIONS = (
    Option("title", "words", "the title of a private view, for its readers"),
    Option("description", "words", "a sentence about a private view", longest=500),
    Option("answer_units", "words", "the unit of each answer of a private view, in their order", longest=40),
)
"""Options with texts of a private view for its readers. They change no answer and no price."""
