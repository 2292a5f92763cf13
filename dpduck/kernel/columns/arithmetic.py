"""Numbers that the database's own process computes: sums, differences and products that cannot overflow.

A number is made of stored DECIMAL and integer columns and constants. Each operand is cast to a DECIMAL that is wide
enough, whatever a row holds. A sum has one digit more than its wider operand, and a product has the digits of both. A
number is refused if its type would need more than 38 digits. So it has its value even if the types in the analyst's
text would overflow. A column that is clamped to public bounds has as many digits as the bounds.

Prepared rows hold columns with a CLAMP as whole numbers of small types (Cut). A number over such columns alone gives
the same double in a fraction of the time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpduck.kernel.columns.comparisons import LONGEST_NUMBER, Comparison, Literal, require_conditions
from dpduck.kernel.columns.expressions import MOST_HEIGHT, Expression, Names, RelationColumn, column_sql, require
from dpduck.kernel.columns.stored import digits_fit
from dpduck.kernel.columns.whole_numbers import Cut, WholeNumber, bigint_sql, in_one_unit, units_of, without_overflow
from dpduck.values.sqltypes import decimal_name, sql_type

MOST_DIGITS, FAST_DIGITS = 38, 18
"""Most digits of a DECIMAL, and of a DECIMAL in 64 bits. If a product needs more than 64 bits, DuckDB multiplies with a
check that can raise, unless an operand itself has more. For a decimal of more than 64 bits, DuckDB 2.0 raises on the
least value that storage can hold."""


class Number(Expression):
    """A DECIMAL(digits, scale) that is computed from one row. Each subclass defines `places` and `write`."""

    @cached_property
    @abstractmethod
    def places(self) -> tuple[int, int]:
        """Returns the number of digits of the type before the decimal point, and after it."""

    @property
    def whole(self) -> int:
        return self.places[0]

    @property
    def scale(self) -> int:
        return self.places[1]

    @property
    def digits(self) -> int:
        return self.whole + self.scale

    def units(self, cuts: Sequence[Cut]) -> WholeNumber | None:
        """Returns the number as a BIGINT over `cuts`, columns of prepared rows. None if they cannot give the number."""
        return None

    def widen(self, digits: int, scale: int, names: Names) -> str:
        """Writes the number as DECIMAL(digits, scale), with at least the number's digits on each side of the point."""
        written = self.write(names)
        same = (digits, scale) == (self.digits, self.scale)
        return written if same else f"CAST({written} AS {decimal_name(digits, scale)})"

    def __post_init__(self) -> None:
        require(self.height <= MOST_HEIGHT and self.digits <= MOST_DIGITS)


@dataclass(frozen=True)
class StoredNumber(Number):
    """Stored column of a type that bounds the digits of every value."""

    column: RelationColumn

    def __post_init__(self) -> None:
        kind = sql_type(self.column.type_name)
        require((kind.is_integer and kind.is_signed) or kind.is_decimal)  # without a sign, DuckDB wraps values below 0

    @cached_property
    def places(self) -> tuple[int, int]:
        kind = sql_type(self.column.type_name)
        return kind.digits - kind.scale, kind.scale

    def write(self, names: Names) -> str:
        name, kind = names(self.column), sql_type(self.column.type_name)
        if kind.is_integer:
            return f"CAST({name} AS {decimal_name(kind.digits, 0)})"
        return f"CASE WHEN {digits_fit(name, kind.name)} THEN {name} END"


@dataclass(frozen=True)
class LiteralNumber(Number):
    """A constant without a sign."""

    literal: Literal

    def __post_init__(self) -> None:
        require(self.literal.kind == "number" and not self.literal.sign and len(self.literal.text) <= LONGEST_NUMBER)

    @cached_property
    def places(self) -> tuple[int, int]:
        return self.literal.places

    def write(self, names: Names) -> str:
        return f"CAST({self.literal.text} AS {decimal_name(self.digits, self.scale)})"

    def units(self, cuts: Sequence[Cut]) -> WholeNumber | None:
        number = int(self.literal.text.replace(".", ""))
        return without_overflow(bigint_sql(number), self.scale, number, number)


@dataclass(frozen=True)
class Negated(Number):
    """A number with the other sign."""

    number: Number

    @cached_property
    def places(self) -> tuple[int, int]:
        return self.number.places

    def write(self, names: Names) -> str:
        return f"(- {self.number.write(names)})"

    def units(self, cuts: Sequence[Cut]) -> WholeNumber | None:
        number = self.number.units(cuts)
        return (
            None if number is None else without_overflow(f"(- {number.sql})", number.scale, number.most, number.bound)
        )


@dataclass(frozen=True)
class Sum(Number):
    """A sum or a difference. Both operands get one digit more than either needs, so the type has room for the sum."""

    left: Number
    sign: str
    right: Number

    def __post_init__(self) -> None:
        require(self.sign in ("+", "-"))
        super().__post_init__()

    @cached_property
    def places(self) -> tuple[int, int]:
        return max(self.left.whole, self.right.whole) + 1, max(self.left.scale, self.right.scale)

    def write(self, names: Names) -> str:
        left, right = (operand.widen(self.digits, self.scale, names) for operand in (self.left, self.right))
        return f"CAST(({left} {self.sign} {right}) AS {decimal_name(self.digits, self.scale)})"

    def units(self, cuts: Sequence[Cut]) -> WholeNumber | None:
        both = in_one_unit([self.left.units(cuts), self.right.units(cuts)])
        if both is None:
            return None
        left, right = both
        sql = f"({left.sql} {self.sign} {right.sql})"
        return without_overflow(sql, left.scale, left.most + right.most, left.bound + right.bound)


@dataclass(frozen=True)
class Product(Number):
    """A product. If both operands fit 64 bits and the product does not, the left operand is widened to 128 bits."""

    left: Number
    right: Number

    @property
    def _wide(self) -> bool:
        digits = self.left.digits, self.right.digits
        return sum(digits) > FAST_DIGITS >= max(digits)

    @cached_property
    def places(self) -> tuple[int, int]:
        digits = (FAST_DIGITS + 1 if self._wide else self.left.digits) + self.right.digits
        scale = self.left.scale + self.right.scale
        return digits - scale, scale

    def write(self, names: Names) -> str:
        wide = self._wide
        left = self.left.widen(FAST_DIGITS + 1, self.left.scale, names) if wide else self.left.write(names)
        return f"({left} * {self.right.write(names)})"

    def units(self, cuts: Sequence[Cut]) -> WholeNumber | None:
        left, right = self.left.units(cuts), self.right.units(cuts)
        if left is None or right is None:
            return None
        sql, scale = f"({left.sql} * {right.sql})", left.scale + right.scale
        return without_overflow(sql, scale, left.most * right.most, left.bound * right.bound)


@dataclass(frozen=True)
class CaseNumber(Number):
    """CASE with plain conditions. The last value is that of ELSE if there are more values than conditions."""

    conditions: tuple[Expression, ...]
    values: tuple[Number, ...]

    def __post_init__(self) -> None:
        more = len(self.values) - len(self.conditions)
        require(more in (0, 1))
        require_conditions(self.conditions)
        super().__post_init__()

    @cached_property
    def places(self) -> tuple[int, int]:
        return max(value.whole for value in self.values), max(value.scale for value in self.values)

    def _case_sql(self, names: Names, values: Sequence[str]) -> str:
        branches = [f"WHEN {condition.write(names)} THEN" for condition in self.conditions]
        branches += ["ELSE"] if len(values) > len(branches) else []
        return f"CASE {' '.join(map(' '.join, zip(branches, values, strict=True)))} END"

    def write(self, names: Names) -> str:
        return self._case_sql(names, [value.widen(self.digits, self.scale, names) for value in self.values])

    def units(self, cuts: Sequence[Cut]) -> WholeNumber | None:
        values = in_one_unit([value.units(cuts) for value in self.values])
        if values is None:
            return None
        most, bound = max(value.most for value in values), max(value.bound for value in values)
        return without_overflow(
            self._case_sql(column_sql, [number.sql for number in values]), values[0].scale, most, bound
        )


@dataclass(frozen=True)
class Clamped(Number):
    """A column that is clamped to two constants. Its type has no more digits before the point than the constants."""

    column: StoredNumber
    low: Literal
    high: Literal

    def __post_init__(self) -> None:
        require(all(end.kind == "number" and len(end.text) <= LONGEST_NUMBER for end in (self.low, self.high)))
        super().__post_init__()

    @property
    def case(self) -> CaseNumber:
        column = self.column.column
        conditions = Comparison(column, "<=", self.low), Comparison(column, ">=", self.high)
        return CaseNumber(conditions, (_literal_number(self.low), _literal_number(self.high), self.column))

    @cached_property
    def places(self) -> tuple[int, int]:
        case = self.case
        return min(case.whole, max(_literal_number(end).whole for end in (self.low, self.high))), case.scale

    def write(self, names: Names) -> str:
        case = self.case
        written = case.write(names)
        return (
            written if case.digits == self.digits else f"TRY_CAST({written} AS {decimal_name(self.digits, self.scale)})"
        )

    def units(self, cuts: Sequence[Cut]) -> WholeNumber | None:
        ends = self.column.column, Fraction(self.low.sql), Fraction(self.high.sql)
        return next((units_of(cut) for cut in cuts if (cut.column, cut.low, cut.high) == ends), None)


def _literal_number(literal: Literal) -> Number:
    number = LiteralNumber(Literal("number", literal.text))
    return Negated(number) if literal.sign else number


@dataclass(frozen=True)
class Double(Expression):
    """A number, or an integer or floating column, as a DOUBLE."""

    number: Number | RelationColumn

    def __post_init__(self) -> None:
        require(isinstance(self.number, Number) or _is_machine(self.number))

    @property
    def column(self) -> RelationColumn | None:
        if isinstance(self.number, RelationColumn):
            return self.number
        return self.number.column if isinstance(self.number, StoredNumber) else None

    def write(self, names: Names) -> str:
        column = self.column if self.is_narrow else None
        return f"CAST({self.number.write(names) if column is None else names(column)} AS DOUBLE)"

    @property
    def is_narrow(self) -> bool:
        """Tells whether this is a column that can be cast directly. For a wide decimal, DuckDB 2.0 may raise."""
        narrow = isinstance(self.number, RelationColumn) or self.number.digits <= FAST_DIGITS
        return self.column is not None and (narrow or sql_type(self.columns[0].type_name).is_integer)

    def computation(self, cuts: Sequence[Cut]) -> Computed:
        """Writes the number over the clamped columns of prepared rows if possible, otherwise over stored columns."""
        units = self.number.units(cuts) if isinstance(self.number, Number) else None
        double = None if units is None else units.double
        return Computed(self.sql) if units is None or double is None else Computed(double, units.reach)


def _is_machine(column: RelationColumn) -> bool:
    return sql_type(column.type_name).is_integer or sql_type(column.type_name).is_float


@dataclass(frozen=True)
class Computed:
    """SQL of a DOUBLE that the database computes. reach: bound of its absolute value, if known."""

    sql: str
    reach: Fraction | None = None
