"""What one row adds to tables of integers, and how much one privacy unit can add at most: public, exact, checked.

A value is clamped to [low, high] and rounded to one of `steps` equal steps: k = 0 .. K. From the cell's sums of 1, k
and k^2, which are exact, come the tables that are measured:

* `count`: 1 for every row that contributes;
* `sum`: the value itself in integer units u, the largest number that divides both low and the step: (low + k step)/u,
  or its distance from a public centre;
* `squares`: the square of that distance;
* `valued`: 1 for every row with a value;
* `moments` of degree d: the Bernstein basis C(d, i) k^i (K - k)^(d - i), i = 0 .. d. Its members are not negative and
  add up to K^d for every row, so that all d + 1 tables together cost no more than one. Their combinations give the
  number of rows, the sum and, for d = 2, the sum of squares. `rest`: one more table, K^d for rows without a value.

Sums are taken in 128-bit integers, which no number of rows can overflow, and then modulo 2^64. All later arithmetic
is modulo 2^64 too, where it commutes with adding noise: wrapping is post-processing of the noisy answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import blake2b
from math import gcd, isqrt

from dpduck.kernel.columns.expressions import Expression
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

MOST_STEPS = 1 << 40
LARGEST_BOUND = 1 << 45
SMALLEST_STEP = Fraction(1, 1 << 900)  # the arithmetic of steps stays far from what doubles round to 0
FULL = 1 << 10
"""The weight of a unit that is counted whole, where units are weighed."""

MOST_SQUARED_STEPS = 1 << 15  # squares of more would leave little room for rows in 64 bits


@dataclass(frozen=True)
class Contribution:
    """What every row adds; a plain Contribution(condition) counts the rows for which the condition is true.

    condition: None for every row. form: 'count', 'valued', 'sum', 'squares' or 'moments'.
    value: of a row, a DOUBLE; NULL, NaN and infinities do not contribute.
    low, high, steps: the value's public bounds and K. degree, rest: of moments.
    reach: how far from 0 the value is at most, where that is known. stepped: whether the value is in steps already.
    per_group: '' for rows; 'sum' or 'average': a unit's rows in a cell are first made one, whose value is clamped.
    norm: a unit's largest squared L2 norm over all cells, 0 for any. A unit above it is weighed down
        (loss.py), and all is counted in parts of 1/FULL.
    centre: of a sum or of squares, is subtracted from each value.
    shared: whether a unit has one weight for this and the next one.
    """

    condition: Expression | None = None
    form: str = "count"
    value: Expression | None = None
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(1)
    steps: int = 1
    degree: int = 0
    rest: bool = False
    per_group: str = ""
    reach: Fraction | None = None
    stepped: bool = False
    norm: int = 0
    centre: Fraction = Fraction(0)
    shared: bool = False

    def __post_init__(self) -> None:
        most = MOST_SQUARED_STEPS if self.degree == 2 or self.form == "squares" else MOST_STEPS
        if not (self.low < self.high and 1 <= self.steps <= most):
            raise InternalError("a contribution without bounds")
        known = self.form in ("count", "valued", "sum", "squares", "moments")
        if not known or (self.form == "moments") != (self.degree in (1, 2)):
            raise InternalError("a contribution of no known form")
        summed = self.form in ("sum", "squares") and self.value is not None
        if self.centre and not (summed and self.low <= self.centre <= self.high):
            raise InternalError("a centre of no sum of values")
        if self.per_group and (self.rest or self.form in ("count", "squares") or self.low % self.step != 0):
            raise InternalError("a contribution by group that does not fit its steps")
        if self.step < SMALLEST_STEP:
            raise InternalError("steps that a double cannot tell apart")
        if self.bound > LARGEST_BOUND or max(abs(self.low), abs(self.high)) > LARGEST_BOUND * self.step:
            raise InternalError("a contribution that would not fit 64 bits")
        if self.norm < 0 or (self.norm and self.form == "moments"):
            raise InternalError("a norm of several tables")

    @property
    def step(self) -> Fraction:
        """Returns the width of one step."""
        return (self.high - self.low) / self.steps

    @property
    def unit(self) -> Fraction:
        """Returns the worth of one integer of the tables: 1 of counts, u of sums, 1/K^d of moments."""
        if self.form in ("sum", "squares"):
            return common_divisor(self.low - self.centre, self.step) ** self._power
        return Fraction(1, self.steps**self.degree)

    @property
    def tables(self) -> int:
        """Tells how many tables of integers it fills."""
        return self.degree + 1 + self.rest if self.form == "moments" else 1

    @property
    def bound(self) -> int:
        """Returns the most that one row, or one unit in one cell, adds to all tables together."""
        if self.form in ("sum", "squares"):
            farthest = max(abs(self.low - self.centre), abs(self.high - self.centre))
            return int(farthest**self._power / self.unit)
        return int(self.steps**self.degree)

    @property
    def has_squares(self) -> bool:
        """Tells whether squares of steps are added up, too."""
        return self.form == "squares" or self.degree == 2

    @property
    def of_steps(self) -> tuple[int, int]:
        """Returns a and b, where a + b k is a row's distance from the centre in integers."""
        divisor = common_divisor(self.low - self.centre, self.step)
        return int((self.low - self.centre) / divisor), int(self.step / divisor)

    @property
    def _power(self) -> int:
        return 2 if self.form == "squares" else 1

    def unit_bound(self, rows: int, cells: int) -> int:
        """Returns the most that a unit with so many rows in a table of so many cells adds to all tables together (L1).

        By group, it is once in every cell where it has rows. A number of rows between bounds about 0 is no farther
        from 0 than it was, so that the rows bound it too.
        """
        if not self.norm:
            return self._whole_bound(rows, cells)
        squared = FULL * FULL * self.norm  # integers add up to no more than their squares do
        return min(FULL * self._whole_bound(rows, cells), isqrt(cells * squared - 1) + 1, squared)

    def squared_bound(self, rows: int, cells: int, cell_rows: int) -> int:
        """Returns the largest squared L2 norm of a unit over so many cells, with at most cell_rows rows in each.

        Squares add up to no more than the sum of all numbers times the largest number.
        """
        by_cells = self.unit_bound(rows, cells) * self.unit_bound(cell_rows, 1)
        return min(by_cells, FULL * FULL * self.norm) if self.norm else by_cells

    def together_bound(self, rows: int, cells: int) -> int:
        """Returns the most that a unit adds to the sum of all cells, where its norm is that of this sum."""
        whole = self._whole_bound(rows, cells)
        return min(FULL * whole, isqrt(FULL * FULL * self.norm)) if self.norm else whole

    def _whole_bound(self, rows: int, cells: int) -> int:
        if not self.per_group:
            return rows * self.bound
        by_group = min(rows, cells) * self.bound
        counts = self.value is None and self.form == "sum" and self.unit == 1 and self.low <= 0 <= self.high
        return min(by_group, rows) if counts else by_group

    def tables_of(
        self, rows: IntegerArray, valued: IntegerArray, sums: IntegerArray, squares: IntegerArray
    ) -> list[IntegerArray]:
        """Returns tables from a cell's rows that meet the condition, those with a value, and sums of k and k^2, modulo
        2^64.
        """
        if self.form == "count":
            return [rows]
        if self.form == "valued":
            return [valued]
        first, step = self.of_steps
        if self.form == "sum":
            return [valued * first + sums * step]
        if self.form == "squares":
            return [valued * first**2 + sums * (2 * first * step) + squares * step**2]
        most = self.steps
        if self.degree == 1:
            found = [most * valued - sums, sums]
        else:
            found = [most * most * valued - 2 * most * sums + squares, 2 * (most * sums - squares), squares]
        return [*found, most**self.degree * (rows - valued)] if self.rest else found


def common_divisor(first: Fraction, second: Fraction) -> Fraction:
    """Returns the largest number of which both are whole multiples.

    >>> common_divisor(Fraction(1, 2), Fraction(3))
    Fraction(1, 2)
    """
    numerator = gcd(first.numerator * second.denominator, second.numerator * first.denominator)
    return Fraction(numerator, first.denominator * second.denominator)


# Contribution bounding in SQL: a unit's first m rows in the order of a keyed hash of the row's own content.
#
# Neighbouring databases differ by one unit's rows, at most m of which are kept, and what is kept of a unit
# depends on that unit's rows alone: not on other units, physical order, threads or chance. Rows are narrowed
# to their cell, unit and hash, and each unit's are ranked by a window. Most tables have few units with more
# rows than m. Where rows can be read twice, those units are looked for first (rows/crowds.py), and only their
# rows are ranked. Where rows are read once, each unit's rows are counted first if m is large: most units then
# have fewer rows, and there are few units to count. Top-m aggregates for each unit, and counting each unit's
# rows with GROUP BY for small m, were slower (benchmarks/speed/counting.py).

COUNTED_FIRST = 32
"""From so many rows a unit on, each unit's rows are counted first where they can be read only once.

Of 6 M rows of 100,000 units (TPC-H query 1): 1.9 times faster at 128 rows a unit, which few exceed; at 32, which half
of them exceed, 1.1 times slower.
"""

UNIT, ORDER, KEY, UNIT_HASH = "dpduck_unit", "dpduck_order", "dpduck_bounding_key", "dpduck_unit_hash"
"""Columns of rows of integers: the privacy unit, and the keyed order of its rows. KEY: the parameter of that order."""
OF_UNIT, OPEN = "dpduck_of_unit", "dpduck_open"
"""Of prepared rows: how many rows their unit has in all, and how many of these are outside of some domain."""


@dataclass(frozen=True)
class Known:
    """What rows tell of their units. Prepared ones (places/twin_writer.py): none has more rows than OF_UNIT.

    once: whether the rows can be read only once. placed: whether no row but those outside of a domain is left out, so
    that ORDER is the row's number among its unit's rows that take part, from 1, wherever OPEN is 0. crowded: whether
    most units can be expected to have too many rows, so that none is set apart. counted: whether OF_UNIT is there.
    """

    once: bool
    placed: bool
    crowded: bool = False
    counted: bool = True

    @property
    def columns(self) -> list[str]:
        """Returns the columns of the rows besides UNIT and ORDER."""
        if self.crowded or not self.counted:
            return []
        return [OF_UNIT, OPEN] if self.placed else [OF_UNIT]

    @property
    def of_anybody(self) -> bool:
        """Tells whether rows of no unit must be left out: of few or many rows, those are not kept."""
        return self.crowded or not self.counted

    def regrouped(self) -> Known:
        """Returns what is known once rows of further groups are left out."""
        return replace(self, once=True, placed=False)


NOTHING_KNOWN = Known(once=False, placed=False, counted=False)


def unit_hash_sql(unit: str) -> str:
    """Returns SQL of a unit's UNIT_HASH. Numbers of 32 bits are read and sorted in half of the time of 64."""
    return f"CAST(hash({unit}) >> 32 AS UINTEGER)"


@dataclass(frozen=True)
class Crowds:
    """The units that may have too many rows: all others have no more than are kept.

    table: a table with the hashes of these units in its column UNIT_HASH, "" where there are no such units. Equal units
    have equal hashes. rows_sql: of their rows alone, with the columns of all rows.
    """

    table: str = ""
    rows_sql: str = ""


def bounded_rows_sql(
    rows_sql: str, outputs: Sequence[str], max_rows: int, known: Known = NOTHING_KNOWN, crowds: Crowds | None = None
) -> str:
    """Keeps at most `max_rows` of each unit's rows from `rows_sql`, which has columns UNIT, ORDER and `outputs`.

    Rows with equal hashes are ordered by their outputs, all that is used of them afterwards: rows that are still
    tied are interchangeable. known: of prepared rows; only those of units with too many are ranked. Where most have too
    many, rows are sorted by unit and rank, and the one `max_rows` before a row tells whether that is kept: to sort all
    takes a tenth less time than to rank each unit's. No unit is NULL then. crowds: of other rows, which are read twice.
    """
    kept = ", ".join(outputs) or "1"
    order = ", ".join((ORDER, *outputs))
    if known.crowded:
        before = f"lag({UNIT}, {int(max_rows)}) OVER (ORDER BY {UNIT}, {order})"
        return f"SELECT {kept} FROM ({rows_sql}) QUALIFY {before} IS DISTINCT FROM {UNIT}"
    window = rank_sql([UNIT], [ORDER, *outputs])
    if known.counted:
        most = int(max_rows)
        rows, first = (
            (f"({rows_sql})", "")
            if not known.once
            else ("dpduck_rows", f"WITH dpduck_rows AS MATERIALIZED ({rows_sql}) ")
        )
        few, many, taken = f"{OF_UNIT} <= {most}", f"{OF_UNIT} > {most}", ""
        if known.placed:
            taken = f"SELECT {kept} FROM {rows} WHERE {many} AND {OPEN} = 0 AND {ORDER} <= {most} UNION ALL "
            many += f" AND {OPEN} > 0"
        return (
            f"{first}SELECT {kept} FROM {rows} WHERE {few} UNION ALL {taken}"
            f"SELECT {kept} FROM (SELECT * FROM {rows} WHERE {many}) QUALIFY {window} <= {most}"
        )
    if crowds is not None:
        few = f"SELECT {kept} FROM ({rows_sql})"
        if not crowds.table:
            return few
        few = f"{few} ANTI JOIN {crowds.table} ON {unit_hash_sql(UNIT)} = {UNIT_HASH}"
        return f"{few} UNION ALL SELECT {kept} FROM ({crowds.rows_sql}) QUALIFY {window} <= {int(max_rows)}"
    if max_rows < COUNTED_FIRST:
        return f"SELECT {kept} FROM ({rows_sql}) QUALIFY {window} <= {int(max_rows)}"
    crowded = f"SELECT {UNIT} FROM dpduck_rows GROUP BY {UNIT} HAVING count(*) > {int(max_rows)}"
    return (
        f"WITH dpduck_rows AS MATERIALIZED ({rows_sql}), dpduck_crowded AS MATERIALIZED ({crowded}) "
        f"SELECT {kept} FROM dpduck_rows ANTI JOIN dpduck_crowded USING ({UNIT}) UNION ALL "
        f"SELECT {kept} FROM (FROM dpduck_rows SEMI JOIN dpduck_crowded USING ({UNIT})) "
        f"QUALIFY {window} <= {int(max_rows)}"
    )


def rank_sql(alike: Sequence[str], order: Sequence[str]) -> str:
    """Writes the number of a row in an order, from 1, among the rows with equal values of some columns."""
    parts = [f"{word} BY {', '.join(listed)}" for word, listed in (("PARTITION", alike), ("ORDER", order)) if listed]
    return f"row_number() OVER ({' '.join(parts)})"


def order_sql(content_sql: Sequence[str]) -> str:
    """Returns the keyed hash of a row; the key is a prepared parameter, so that it is in no text, plan or error."""
    return f"hash({', '.join((f'CAST(${KEY} AS UBIGINT)', *content_sql))})"


def key_integer(bounding_key: bytes) -> int:
    """Returns the key that DuckDB's hash takes, from a secret of any length."""
    return int.from_bytes(blake2b(bounding_key, digest_size=8, person=b"dpduck bounding").digest(), "big")
