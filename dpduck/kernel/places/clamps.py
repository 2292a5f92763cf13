"""Copies of a column with a CLAMP in prepared rows: one clamped, in whole numbers, and one as a number of steps.

UNITS holds the column clamped to its bounds, in units of its last decimal place. STEPS holds the number of the step to
which a value rounds. Each has the smallest integer type with room for the bounds (used by columns/whole_numbers.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpduck.kernel.columns.arithmetic import Clamped, Double, LiteralNumber, Product, StoredNumber
from dpduck.kernel.columns.comparisons import Literal
from dpduck.kernel.columns.expressions import NotPlain, Own, RelationColumn
from dpduck.kernel.columns.whole_numbers import Cut
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.contribution_sql import steps
from dpduck.values.errors import InternalError
from dpduck.values.sqltypes import integer_name, sql_type

UNITS, STEPS = "dpduck_units_{}", "dpduck_steps_{}"
"""Names of a column's two clamped copies in prepared rows, in units and in steps, by the number of the CLAMP."""

MOST_SCALE, MOST_UNITS = 6, 1 << 31


@dataclass(frozen=True)
class ClampedColumn:
    """A column of a private table. Its prepared rows have this CLAMP, in decimal texts."""

    name: str
    type_name: str
    low: str
    high: str
    step: str

    @property
    def scale(self) -> int:
        return sql_type(self.type_name).scale

    @property
    def steps(self) -> int | None:
        """Returns the number of steps between the bounds. None if prepared rows do not hold the step of a row."""
        number = (Fraction(self.high) - Fraction(self.low)) / Fraction(self.step)
        return int(number) if number.denominator == 1 and 1 <= number < MOST_UNITS else None

    @property
    def alike(self) -> bool:
        """Tells whether the copies in units and in steps are equal: a step is one unit, and the lower bound is 0."""
        return Fraction(self.low) == 0 and Fraction(self.step) == Fraction(1, 10**self.scale)

    def clamped_columns(self, number: int, column: RelationColumn) -> Cut:
        """Returns the clamped copies of a column. number: the CLAMP's number. column: the column in prepared rows."""
        units = RelationColumn(column.relation, UNITS.format(number), "BIGINT").quoted_name
        stepped = RelationColumn(column.relation, STEPS.format(number), "BIGINT").quoted_name
        steps = "" if self.steps is None else units if self.alike else stepped
        low, high, step = map(Fraction, (self.low, self.high, self.step))
        return Cut(column, low, high, step, self.scale, units, steps)


def clamp_column(name: str, type_name: str, low: str, high: str, step: str) -> ClampedColumn | None:
    """Returns a column with its CLAMP. None unless it is a short decimal or a signed integer, with short bounds."""
    clamped = ClampedColumn(name, type_name, low, high, step)
    kind = sql_type(type_name)
    if not (kind.fits_64_bits and (kind.is_signed or kind.is_decimal)) or kind.scale > MOST_SCALE:
        return None
    units = [Fraction(bound) * 10**clamped.scale for bound in (low, high)]
    fitting = all(unit.denominator == 1 and abs(unit) < MOST_UNITS for unit in units)
    try:
        Clamped(StoredNumber(RelationColumn("c", name, type_name)), literal_of(low), literal_of(high))
    except NotPlain:
        return None
    return clamped if fitting and units[0] < units[1] else None


def literal_of(number: str) -> Literal:
    """Returns a decimal text as a constant."""
    sign = "-" if number[0] == "-" else ""
    return Literal("number", number[len(sign) :], sign)


def units_sql(clamped: ClampedColumn, column: RelationColumn) -> str:
    """Writes a column clamped to its bounds, in units of its last decimal place."""
    factor = 10**clamped.scale
    cut = Clamped(StoredNumber(column), literal_of(clamped.low), literal_of(clamped.high))
    units = Product(cut, LiteralNumber(Literal("number", str(factor))))
    bound = int(max(abs(Fraction(clamped.low)), abs(Fraction(clamped.high))) * factor)
    return f"TRY_CAST({units.sql} AS {integer_name(bound)})"


def steps_sql(clamped: ClampedColumn, column: RelationColumn) -> str:
    """Writes the number of a value's step, as contribution_sql.steps computes it for a sum."""
    most = clamped.steps
    if most is None:
        raise InternalError("a CLAMP without whole steps")
    value = Double(StoredNumber(column)).sql
    added = Contribution(None, "sum", Own((value,)), Fraction(clamped.low), Fraction(clamped.high), most)
    cut = f"CASE WHEN {value} IS NOT NULL THEN least(greatest({steps(added, value)}, 0), {most}) END"
    return f"TRY_CAST({cut} AS {integer_name(most)})"
