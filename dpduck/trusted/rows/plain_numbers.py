"""Which numbers the database's own process may compute: sums, differences and products that fit their types.

A number is plain where it is made of +, -, *, CASE over plain conditions and brackets over stored DECIMAL and integer
columns and literals, if its decimal digits, counted as for any operands of these types, are at most 38. It is not the
analyst's text that runs, but SQL that is written here, in which every operand is cast to a DECIMAL that is wide enough:
so no addition or multiplication can overflow, whatever a row holds. A sum has the digits of its wider operand and one
more, a product those of both. A column that is cut to public bounds has the digits of these bounds; the cast to them is
TRY_CAST, so that nothing rests on the bounds. What overflows in the types of the analyst's text, and was left out of
answers for that, has its value here. Where prepared rows hold all columns of a number as whole numbers of small
types, it is computed of these (whole_numbers.py): the same double, in a fraction of the time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpduck.frontend.rows.parts import Cut, digits_fit
from dpduck.trusted.rows.plain import NotPlain, Reader, Types, tokens_of
from dpduck.trusted.rows.whole_numbers import (
    Clamped,
    Whole,
    chosen,
    literal_units,
    negative,
    product,
    total,
    units_of,
)
from dpduck.values.sqltypes import decimal_name, integer_name, sql_type

MOST_DIGITS, FAST_DIGITS = 38, 18
"""Of DuckDB's DECIMAL, and of one that it keeps in 64 bits: beyond these it multiplies with a check that can raise,
unless an operand is wider itself. Of longer decimals 2.0 cannot compute the least that storage holds."""

_LONGEST_LITERAL = 16
_OUTER = re.compile(r"(?:try\()?CAST\((?P<inside>.*) AS DOUBLE\)(?P<closed>\))?", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class _Number:
    """SQL of type DECIMAL(digits, scale). column: where it is a stored column as such; literal: the text of one.

    units: the same number of columns that prepared rows hold cut; None where some is held otherwise.
    """

    sql: str
    digits: int
    scale: int
    column: str = ""
    literal: str = ""
    units: Whole | None = None

    def __post_init__(self) -> None:
        if self.digits > MOST_DIGITS:
            raise NotPlain

    @property
    def whole(self) -> int:
        return self.digits - self.scale

    def widened(self, digits: int, scale: int) -> str:
        """Returns the same number with more digits on either side."""
        return (
            self.sql
            if (digits, scale) == (self.digits, self.scale)
            else f"CAST({self.sql} AS {decimal_name(digits, scale)})"
        )


@dataclass(frozen=True)
class Computed:
    """SQL of a DOUBLE that the database computes. reach: how far from 0 it is at most, where that is known."""

    sql: str
    reach: Fraction | None = None


def number_sql(value: str, types: Types) -> str | None:
    """Returns SQL by which the database computes a DOUBLE that an analyst wrote; None where it is left to a worker.

    >>> number_sql('CAST("r0"."age" AS DOUBLE)', {'"r0"."age"': "INTEGER"})
    'CAST("r0"."age" AS DOUBLE)'
    >>> number_sql('CAST("r0"."age" * 2 AS DOUBLE)', {'"r0"."age"': "TINYINT"})
    'CAST((CAST("r0"."age" AS DECIMAL(3,0)) * CAST(2 AS DECIMAL(1,0))) AS DOUBLE)'
    """
    found = computed(value, types)
    return None if found is None else found.sql


def computed(value: str, types: Types, cuts: Sequence[Cut] = ()) -> Computed | None:
    """Returns the number as `number_sql` has it. cuts: columns that prepared rows hold cut to bounds."""
    found = _OUTER.fullmatch(value)
    if found is None or (found["closed"] is not None) != value.lower().startswith("try("):
        return None
    inside = found["inside"]
    stored = sql_type(types.get(inside, ""))
    if stored.is_float or stored.is_integer:
        return Computed(f"CAST({inside} AS DOUBLE)")
    try:
        reader = _Numbers(tokens_of(inside), types, cuts)
        number = reader.number()
        reader.end()
    except (NotPlain, RecursionError):
        return None
    double = None if number.units is None else number.units.double
    if number.units is not None and double is not None:
        return Computed(double, number.units.reach)
    narrow = number.digits <= FAST_DIGITS or sql_type(types.get(number.column, "")).is_integer
    return Computed(f"CAST({number.column if number.column and narrow else number.sql} AS DOUBLE)")


def cut_units(column: str, clamped: Clamped) -> str:
    """Returns SQL of a column (a name in SQL) cut to its CLAMP, in units of its last decimal place."""
    low, high = clamped.low, clamped.high
    text = f"CASE WHEN {column} <= {low} THEN {low} WHEN {column} >= {high} THEN {high} ELSE {column} END"
    reader = _Numbers(tokens_of(text), {column: clamped.type_name})
    number = reader.number()
    factor = 10**clamped.scale
    units = _times(number, _Number(f"CAST({factor} AS {decimal_name(clamped.scale + 1, 0)})", clamped.scale + 1, 0))
    bound = int(max(abs(Fraction(low)), abs(Fraction(high))) * factor)
    return f"TRY_CAST({units.sql} AS {integer_name(bound)})"


def stored_column(value: str) -> str:
    """Returns the text inside of the cast to DOUBLE: a column's where the number is one as such; "" for other texts."""
    found = _OUTER.fullmatch(value)
    return "" if found is None else found["inside"]


class _Numbers(Reader):
    """Reads the tokens of one number."""

    def __init__(self, tokens: Sequence[tuple[str, str]], types: Types, cuts: Sequence[Cut] = ()) -> None:
        super().__init__(tokens, types)
        self._cuts = cuts

    def number(self) -> _Number:
        found = self._product()
        while True:
            sign = next((sign for sign in "+-" if self.sign(sign)), None)
            if sign is None:
                return found
            if sign == self.peek()[1] == "-":
                raise NotPlain
            found = _sum(found, sign, self._product())

    def _product(self) -> _Number:
        found = self._factor()
        while self.sign("*"):
            found = _times(found, self._factor())
        return found

    def _factor(self) -> _Number:
        if self.sign("-"):
            if self.peek()[1] == "-":  # of a comment
                raise NotPlain
            number = self._factor()
            literal = f"-{number.literal}" if number.literal else ""
            return replace(number, sql=f"(- {number.sql})", column="", literal=literal, units=negative(number.units))
        if self.sign("("):
            number = self.number()
            self.expect(")")
            return number
        if self.word("CASE"):
            return self._case()
        name = self.column()
        if name is not None:
            return _stored(name, self.types[name])
        kind, text = self.next()
        if kind != "number":
            raise NotPlain
        return _literal(text)

    def _case(self) -> _Number:
        """CASE with conditions; NULL where none of them holds and there is no ELSE."""
        conditions, values = [], []
        while self.word("WHEN"):
            start = self.place
            self.condition()
            conditions.append(self.tokens[start : self.place])
            if not self.word("THEN"):
                raise NotPlain
            values.append(self.number())
        if not conditions:
            raise NotPlain
        if self.word("ELSE"):
            values.append(self.number())
        if not self.word("END"):
            raise NotPlain
        scale = max(value.scale for value in values)
        digits = max(value.whole for value in values) + scale
        branches = [f"WHEN {' '.join(text for _, text in condition)} THEN" for condition in conditions]
        branches += ["ELSE"] if len(values) > len(conditions) else []
        pairs = zip(branches, values, strict=True)
        sql = " ".join(f"{branch} {value.widened(digits, scale)}" for branch, value in pairs)
        made = _Number(f"CASE {sql} END", digits, scale, units=chosen(branches, [value.units for value in values]))
        bounds = _bounds(conditions, values)
        return made if bounds is None else replace(_cut(made, bounds), units=self._held(values[2].column, *bounds))

    def _held(self, column: str, low: _Number, high: _Number) -> Whole | None:
        """Returns a column between two literals, where prepared rows hold it so."""
        ends = (column, Fraction(low.literal), Fraction(high.literal))
        return next((units_of(cut) for cut in self._cuts if (cut.column_sql, cut.low, cut.high) == ends), None)


def _stored(name: str, type_name: str) -> _Number:
    """Returns a stored column, of a type whose every value has so many digits."""
    kind = sql_type(type_name)
    if kind.is_integer and kind.is_signed:
        return _Number(f"CAST({name} AS {decimal_name(kind.digits, 0)})", kind.digits, 0, column=name)
    if not kind.is_decimal:  # whole numbers without a sign are left to a worker
        raise NotPlain
    return _Number(f"CASE WHEN {digits_fit(name, type_name)} THEN {name} END", kind.digits, kind.scale, column=name)


def _literal(text: str) -> _Number:
    whole, _, part = text.partition(".")
    if len(text) > _LONGEST_LITERAL:
        raise NotPlain
    digits, scale = len(whole) + len(part), len(part)
    return _Number(
        f"CAST({text} AS {decimal_name(digits, scale)})", digits, scale, literal=text, units=literal_units(text)
    )


def _sum(left: _Number, sign: str, right: _Number) -> _Number:
    """Gives both operands one more digit than either needs, so that DuckDB's own type has room for the sum."""
    scale = max(left.scale, right.scale)
    digits = max(left.whole, right.whole) + scale + 1
    operands = f"{left.widened(digits, scale)} {sign} {right.widened(digits, scale)}"
    sql = f"CAST(({operands}) AS {decimal_name(digits, scale)})"
    return _Number(sql, digits, scale, units=total(left.units, sign, right.units))


def _times(left: _Number, right: _Number) -> _Number:
    """Tells where the product does not fit 64 bits, the left operand is one that DuckDB keeps in 128."""
    digits, scale, units = left.digits + right.digits, left.scale + right.scale, product(left.units, right.units)
    if digits > FAST_DIGITS and max(left.digits, right.digits) <= FAST_DIGITS:
        wide = FAST_DIGITS + 1
        return _Number(f"({left.widened(wide, left.scale)} * {right.sql})", wide + right.digits, scale, units=units)
    return _Number(f"({left.sql} * {right.sql})", digits, scale, units=units)


def _bounds(
    conditions: Sequence[Sequence[tuple[str, str]]], values: Sequence[_Number]
) -> tuple[_Number, _Number] | None:
    """Returns the literals of CASE WHEN c <= low THEN low WHEN c >= high THEN high ELSE c END: a column's clamp."""
    if len(conditions) != 2 or len(values) != 3:
        return None
    low, high, column = values
    if not (low.literal and high.literal and column.column):
        return None
    written = ["".join(text for _, text in condition) for condition in conditions]
    wanted = [f"{column.column}<={low.literal}", f"{column.column}>={high.literal}"]
    return (low, high) if written == wanted else None


def _cut(made: _Number, bounds: tuple[_Number, _Number]) -> _Number:
    """Cuts a column between two literals: it has no more digits before the point than the longer of them."""
    digits = max(bound.whole for bound in bounds) + made.scale
    if digits >= made.digits:
        return made
    return _Number(f"TRY_CAST({made.sql} AS {decimal_name(digits, made.scale)})", digits, made.scale)
