"""Whole numbers in place of decimals: columns of prepared rows that a CLAMP cuts, and what is computed of them.

A twin holds each such column twice: cut to its bounds, in units of its last decimal place (UNITS), and as the step of
its CLAMP that it rounds to (STEPS), each in the smallest integer type that has room for the bounds. Sums, differences
and products of units are BIGINT, and cannot overflow for any values of these types: so nothing rests on what a file
holds. Where the bounds keep a result below 2^53 units, which a double holds exactly, it is the double that a DECIMAL
of the same value becomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpduck.frontend.rows.parts import Cut
from dpduck.trusted.private.contribution_sql import steps
from dpduck.trusted.private.contributions import Contribution
from dpduck.trusted.rows.plain import LONGEST_NUMBER, is_plain
from dpduck.values.errors import InternalError
from dpduck.values.sqltypes import integer_name, sql_type

UNITS, STEPS = "dpduck_units_{}", "dpduck_steps_{}"
"""Columns of a twin, by the number of the cut."""

EXACT, ROOM = 1 << 53, 1 << 63
MOST_SCALE = 6
_FARTHEST = 1 << 31
"""Units and steps are nearer to 0: INTEGER has room for them."""


@dataclass(frozen=True)
class Whole:
    """A number as units of 10^-scale. sql: of type BIGINT. most: how far from 0 types let it be; bound: its bounds."""

    sql: str
    scale: int
    most: int
    bound: int

    @property
    def double(self) -> str | None:
        """Returns SQL of the number as a DOUBLE; None where that might not be the one that a DECIMAL becomes."""
        if self.bound > EXACT:
            return None
        whole = f"CAST({self.sql} AS DOUBLE)"
        return f"{whole} / CAST(1e{self.scale} AS DOUBLE)" if self.scale else whole

    @property
    def reach(self) -> Fraction:
        """Tells how far from 0 the number is at most."""
        return Fraction(self.bound, 10**self.scale)

    def at(self, scale: int) -> Whole | None:
        """Returns the number in smaller units."""
        factor = 10 ** (scale - self.scale)
        if factor == 1:
            return self
        return _fitting(f"({self.sql} * {_literal(factor)})", scale, self.most * factor, self.bound * factor)


def literal_units(text: str) -> Whole | None:
    """Returns a literal without a sign."""
    whole, _, part = text.partition(".")
    number = int(whole + part)
    return _fitting(_literal(number), len(part), number, number)


def negative(number: Whole | None) -> Whole | None:
    """Returns the number below 0 as far as it was above."""
    return None if number is None else _fitting(f"(- {number.sql})", number.scale, number.most, number.bound)


def total(left: Whole | None, sign: str, right: Whole | None) -> Whole | None:
    """Returns a sum or a difference."""
    if left is None or right is None:
        return None
    scale = max(left.scale, right.scale)
    left, right = left.at(scale), right.at(scale)
    if left is None or right is None:
        return None
    return _fitting(f"({left.sql} {sign} {right.sql})", scale, left.most + right.most, left.bound + right.bound)


def product(left: Whole | None, right: Whole | None) -> Whole | None:
    """Returns a product."""
    if left is None or right is None:
        return None
    sql, scale = f"({left.sql} * {right.sql})", left.scale + right.scale
    return _fitting(sql, scale, left.most * right.most, left.bound * right.bound)


def chosen(branches: list[str], values: list[Whole | None]) -> Whole | None:
    """CASE with these branches before its values."""
    if any(value is None for value in values):
        return None
    scale = max(value.scale for value in values if value is not None)
    found = [value.at(scale) for value in values if value is not None]
    parts = [value for value in found if value is not None]
    if len(parts) < len(values):
        return None
    sql = " ".join(f"{branch} {value.sql}" for branch, value in zip(branches, parts, strict=True))
    return _fitting(f"CASE {sql} END", scale, max(value.most for value in parts), max(value.bound for value in parts))


def units_of(cut: Cut) -> Whole:
    """Returns a cut column."""
    bound = int(max(abs(cut.low), abs(cut.high)) * 10**cut.scale)
    return Whole(f"CAST({cut.units_sql} AS BIGINT)", cut.scale, sql_type(integer_name(bound)).most + 1, bound)


def _fitting(sql: str, scale: int, most: int, bound: int) -> Whole | None:
    return Whole(sql, scale, most, bound) if most < ROOM else None


def _literal(number: int) -> str:
    return f"CAST({number} AS BIGINT)"


@dataclass(frozen=True)
class Clamped:
    """A column of a private table with its CLAMP, in decimal texts, as a twin was written with it."""

    name: str
    type_name: str
    low: str
    high: str
    step: str

    @property
    def scale(self) -> int:
        """Tells how many decimal places the column has."""
        return sql_type(self.type_name).scale

    @property
    def steps(self) -> int | None:
        """Tells how many steps there are between the bounds; None where the twin does not hold the step of a row."""
        number = (Fraction(self.high) - Fraction(self.low)) / Fraction(self.step)
        return int(number) if number.denominator == 1 and 1 <= number < _FARTHEST else None

    @property
    def alike(self) -> bool:
        """Tells whether steps are units."""
        return Fraction(self.low) == 0 and Fraction(self.step) == Fraction(1, 10**self.scale)

    def cut(self, number: int, alias: str, column_sql: str) -> Cut:
        """Returns the column in a twin's rows under a quoted alias."""
        units = f'{alias}."{UNITS.format(number)}"'
        steps = "" if self.steps is None else units if self.alike else f'{alias}."{STEPS.format(number)}"'
        low, high, step = map(Fraction, (self.low, self.high, self.step))
        return Cut(column_sql, low, high, step, self.scale, units, steps)


def clamped_column(name: str, type_name: str, low: str, high: str, step: str) -> Clamped | None:
    """Returns a column as a twin holds it; None for types but decimals and integers, and bounds too wide, too long."""
    found = Clamped(name, type_name, low, high, step)
    kind = sql_type(type_name)
    if not (kind.fits_64_bits and (kind.is_signed or kind.is_decimal)) or kind.scale > MOST_SCALE:
        return None
    units = [Fraction(bound) * 10**found.scale for bound in (low, high)]
    fitting = all(one.denominator == 1 and abs(one) < _FARTHEST for one in units)
    read = all(len(one) <= LONGEST_NUMBER and is_plain(f'"c" <= {one}', {'"c"': type_name}) for one in (low, high))
    return found if fitting and read and units[0] < units[1] else None


def steps_sql(clamped: Clamped, value: str) -> str:
    """Returns SQL of the step of a row, as the counting of a sum computes it."""
    most = clamped.steps
    if most is None:
        raise InternalError("a CLAMP without whole steps")
    added = Contribution("", "sum", value, Fraction(clamped.low), Fraction(clamped.high), most)
    cut = f"CASE WHEN {value} IS NOT NULL THEN least(greatest({steps(added, value)}, 0), {most}) END"
    return f"TRY_CAST({cut} AS {integer_name(most)})"
