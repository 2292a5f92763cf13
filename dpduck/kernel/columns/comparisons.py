"""Plain conditions: constants, comparisons of stored columns with them, and what NOT, AND and OR make of these.

Nothing in a plain condition is cast or computed. So no value of a row can make it raise, allocate memory, or take long.
The database's own process evaluates it. LIKE with % as its only wildcard is plain, too: DuckDB matches it in one pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime

from dpduck.kernel.columns.expressions import (
    MOST_HEIGHT,
    Expression,
    Names,
    Own,
    RelationColumn,
    column_sql,
    columns_of,
    require,
)
from dpduck.values.quoting import quote_text
from dpduck.values.sqltypes import SqlType, sql_type

_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}:\d{2}(\.\d{6}|\.\d{3})?)?", re.ASCII)
_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
LONGEST_INTEGER, LONGEST_NUMBER, LONGEST_PATTERN = 9, 16, 100
"""Most digits of a constant beside an integer, and beside a floating number. Most characters of a quoted pattern."""

JOINING, OF_NULLS = ("=", "<", ">", "<=", ">="), ("IS DISTINCT FROM", "IS NOT DISTINCT FROM")
SIGNS = (*JOINING, "<>", *OF_NULLS)


@dataclass(frozen=True)
class Literal(Expression):
    """A constant. kind: text, number, boolean, DATE or TIMESTAMP. text: unquoted text. sign: "-" or nothing."""

    kind: str
    text: str
    sign: str = ""

    def __post_init__(self) -> None:
        if self.kind == "number":
            require(_NUMBER.fullmatch(self.text) is not None and self.sign in ("", "-"))
            return
        rules = {"text": True, "boolean": self.text in ("TRUE", "FALSE")}
        require(rules.get(self.kind, is_moment(self.text, self.kind)) and not self.sign)

    @property
    def places(self) -> tuple[int, int]:
        whole, _, part = self.text.partition(".")
        return len(whole), len(part)

    def write(self, names: Names) -> str:
        if sql_type(self.kind).is_moment:
            return f"CAST({quote_text(self.text)} AS {self.kind})"
        return quote_text(self.text) if self.kind == "text" else self.sign + self.text

    def is_like(self, type_name: str) -> bool:
        """Tells whether DuckDB compares a column of this type with the constant without a cast of the column."""
        # For a number that is too long for HUGEINT, DuckDB 2.0 casts a floating column, and raises for NaN.
        kind = sql_type(type_name)
        if sql_type(self.kind).is_moment:
            return self.kind == type_name
        if self.kind == "text":
            return kind.is_text or (kind.is_moment and is_moment(self.text, type_name))
        if self.kind == "boolean":
            return kind.is_boolean
        if kind.is_integer:
            return self.text.isdigit() and len(self.text) <= LONGEST_INTEGER
        return len(self.text) <= LONGEST_NUMBER if kind.is_float else kind.is_decimal and self._fits(kind)

    def _fits(self, decimal: SqlType) -> bool:
        """Tells whether a decimal type has a place for each digit, so that a column is compared without a cast."""
        whole, part = self.places
        return part <= decimal.scale and whole <= decimal.digits - decimal.scale


Operand = RelationColumn | Literal


def is_moment(text: str, type_name: str) -> bool:
    """Tells whether a text is a date, or a date with a time, that converts to DATE or TIMESTAMP without an error."""
    if not sql_type(type_name).is_moment or not _MOMENT.fullmatch(text):
        return False
    try:
        (date if type_name == "DATE" else datetime).fromisoformat(text)
    except ValueError:
        return False
    return True


def compares(column: RelationColumn, other: Operand) -> bool:
    """Tells whether DuckDB compares a column with another operand without casting a stored value."""
    if isinstance(other, Literal):
        return other.is_like(column.type_name)
    require(isinstance(other, RelationColumn))
    first, second = sql_type(column.type_name), sql_type(other.type_name)
    return (first.is_integer and second.is_integer) or (first == second and first.is_comparable)


def _has_null(column: RelationColumn) -> bool:
    """Tells whether IS NULL of a column depends on its own row alone. For a VARIANT, other rows may decide it."""
    return not sql_type(column.type_name).mentions("VARIANT")


class RowCondition(Expression):
    """An expression that is TRUE, FALSE or NULL. DuckDB would cast any other expression to BOOLEAN, which can raise."""


def require_conditions(conditions: tuple[Expression, ...]) -> None:
    """Refuses an empty list, conditions that are not plain, and trees so high that one more level is too much."""
    require(bool(conditions) and all(isinstance(node, RowCondition | Own) and node.plain for node in conditions))
    require(all(node.height < MOST_HEIGHT for node in conditions))


@dataclass(frozen=True)
class Constant(RowCondition):
    """TRUE, FALSE or NULL, as a condition."""

    text: str

    def __post_init__(self) -> None:
        require(self.text in ("TRUE", "FALSE", "NULL"))

    def write(self, names: Names) -> str:
        return self.text


@dataclass(frozen=True)
class Truth(RowCondition):
    """A BOOLEAN column as a condition."""

    column: RelationColumn

    def __post_init__(self) -> None:
        require(sql_type(self.column.type_name).is_boolean)

    def write(self, names: Names) -> str:
        return names(self.column)


@dataclass(frozen=True)
class Comparison(RowCondition):
    """A column compared with a constant of its kind, or with a column of its type. sign: one of SIGNS."""

    column: RelationColumn
    sign: str
    other: Operand

    def __post_init__(self) -> None:
        require(self.sign in SIGNS and compares(self.column, self.other))
        require(self.sign not in OF_NULLS or _has_null(self.column))

    def write(self, names: Names) -> str:
        return f"{names(self.column)} {self.sign} {self.other.write(names)}"

    @property
    def is_join(self) -> bool:
        """Tells whether columns of two relations are compared. DuckDB never pushes such a comparison into a scan."""
        two = isinstance(self.other, RelationColumn) and self.other.relation != self.column.relation
        return two and self.sign in JOINING


@dataclass(frozen=True)
class Listed(RowCondition):
    """A column IN operands."""

    column: RelationColumn
    values: tuple[Operand, ...]

    def __post_init__(self) -> None:
        require(bool(self.values) and all(compares(self.column, value) for value in self.values))

    def write(self, names: Names) -> str:
        values = ", ".join(value.write(names) for value in self.values)
        return f"{names(self.column)} IN ({values})"


@dataclass(frozen=True)
class Between(RowCondition):
    """A column BETWEEN two operands."""

    column: RelationColumn
    low: Operand
    high: Operand

    def __post_init__(self) -> None:
        require(compares(self.column, self.low) and compares(self.column, self.high))

    def write(self, names: Names) -> str:
        return f"{names(self.column)} BETWEEN {self.low.write(names)} AND {self.high.write(names)}"


@dataclass(frozen=True)
class Like(RowCondition):
    """A text LIKE a short pattern. The wildcard _ is refused, since DuckDB would try it at every position."""

    column: RelationColumn
    pattern: Literal

    def __post_init__(self) -> None:
        written = self.pattern.sql
        require(sql_type(self.column.type_name).is_text and self.pattern.kind == "text")
        require("_" not in written and len(written) <= LONGEST_PATTERN)

    def write(self, names: Names) -> str:
        return f"{names(self.column)} LIKE {self.pattern.sql}"


@dataclass(frozen=True)
class Is(RowCondition):
    """A column IS NULL, TRUE or FALSE."""

    column: RelationColumn
    value: str

    def __post_init__(self) -> None:
        truth = self.value in ("TRUE", "FALSE") and sql_type(self.column.type_name).is_boolean
        require(_has_null(self.column) and (self.value == "NULL" or truth))

    def write(self, names: Names) -> str:
        return f"{names(self.column)} IS {self.value}"


@dataclass(frozen=True)
class Not(RowCondition):
    """NOT of a plain condition."""

    condition: Expression

    def __post_init__(self) -> None:
        require_conditions((self.condition,))

    def write(self, names: Names) -> str:
        return f"NOT ({self.condition.write(names)})"


@dataclass(frozen=True)
class Junction(RowCondition):
    """Plain conditions joined by AND or by OR."""

    word: str
    conditions: tuple[Expression, ...]

    def __post_init__(self) -> None:
        require(self.word in ("AND", "OR"))
        require_conditions(self.conditions)

    def write(self, names: Names) -> str:
        return f" {self.word} ".join(f"({condition.write(names)})" for condition in self.conditions)


@dataclass(frozen=True)
class Coded(RowCondition):
    """A condition that prepared rows evaluate on their codes: `test`.

    outside: condition that a row has a value without a code, None if no row has one. `written`, the condition on
    values, is evaluated on these rows.
    """

    written: Expression
    outside: Own | None
    test: Own

    @property
    def plain(self) -> bool:
        return self.outside is None or self.written.plain

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        written = () if self.outside is None else (self.written, self.outside)
        return columns_of((*written, self.test))

    def write(self, names: Names) -> str:
        return self.condition_sql(self.written.write(names), names)

    def condition_sql(self, written: str, names: Names = column_sql) -> str:
        """Writes the condition. written: SQL of the condition for rows that meet `outside`."""
        test = self.test.write(names)
        if self.outside is None:
            return f"({test})"
        return f"CASE WHEN {self.outside.write(names)} THEN {written} ELSE {test} END"
