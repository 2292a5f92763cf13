"""Whole numbers in place of decimals, for numbers over columns that prepared rows also hold clamped.

Sums, differences and products of units are BIGINT, and cannot overflow for any values of the types that hold them. If
bounds keep a result within 2^53 units, which a double holds exactly, it equals the double of a DECIMAL of that value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpduck.kernel.columns.expressions import RelationColumn
from dpduck.values.sqltypes import integer_name, sql_type

EXACT, ROOM = 1 << 53, 1 << 63


@dataclass(frozen=True)
class Cut:
    """A column that prepared rows also hold clamped to bounds, as a whole number in units of 10^-scale.

    units_sql: the clamped column. steps_sql: the column with the number of steps from `low`, "" if there is none.
    """

    column: RelationColumn
    low: Fraction
    high: Fraction
    step: Fraction
    scale: int
    units_sql: str
    steps_sql: str


@dataclass(frozen=True)
class WholeNumber:
    """A BIGINT in units of 10^-scale. most, bound: bounds of its absolute value, by types and by the CLAMPs."""

    sql: str
    scale: int
    most: int
    bound: int

    @property
    def double(self) -> str | None:
        """Returns SQL of the number as a DOUBLE, None if it might differ from the double of a DECIMAL."""
        if self.bound > EXACT:
            return None
        whole = f"CAST({self.sql} AS DOUBLE)"
        return f"{whole} / CAST(1e{self.scale} AS DOUBLE)" if self.scale else whole

    @property
    def reach(self) -> Fraction:
        return Fraction(self.bound, 10**self.scale)

    def at(self, scale: int) -> WholeNumber | None:
        """Returns the number in smaller units, of 10^-scale. None if that could overflow."""
        factor = 10 ** (scale - self.scale)
        if factor == 1:
            return self
        return without_overflow(f"({self.sql} * {bigint_sql(factor)})", scale, self.most * factor, self.bound * factor)


def units_of(cut: Cut) -> WholeNumber:
    """Returns a clamped column of prepared rows as a number in units."""
    bound = int(max(abs(cut.low), abs(cut.high)) * 10**cut.scale)
    return WholeNumber(f"CAST({cut.units_sql} AS BIGINT)", cut.scale, sql_type(integer_name(bound)).most + 1, bound)


def in_one_unit(numbers: Sequence[WholeNumber | None]) -> list[WholeNumber] | None:
    """Returns all numbers in the smallest of their units, None if a number is missing or could overflow."""
    operands = [number for number in numbers if number is not None]
    scale = max((number.scale for number in operands), default=0)
    results = [number for number in (number.at(scale) for number in operands) if number is not None]
    return results if len(results) == len(numbers) else None


def without_overflow(sql: str, scale: int, most: int, bound: int) -> WholeNumber | None:
    """Returns the number, None if its type allows values that overflow a BIGINT."""
    return WholeNumber(sql, scale, most, bound) if most < ROOM else None


def bigint_sql(number: int) -> str:
    """Writes a whole number as a BIGINT."""
    return f"CAST({number} AS BIGINT)"
