"""Contribution of one row to tables of integers, and exact, checked bounds for one privacy unit from public facts.

A value is clamped to [low, high] and rounded to one of `steps` equal steps: k = 0 .. K. The exact sums of 1, k and k^2
in a cell give the measured tables:

* `count`: 1 for every row that contributes;
* `sum`: the value (low + k step)/u, or its distance from a public centre. Here u is the largest number that divides
  both the step and low, or the step and the distance of low from the centre;
* `squares`: the square of that distance;
* `valued`: 1 for every row with a value;
* `moments` of degree d: the Bernstein basis C(d, i) k^i (K - k)^(d - i), i = 0 .. d. Its members are not negative and
  add up to K^d for every row. So all d + 1 tables together cost no more than one. Their combinations give the number
  of rows, the sum and, for d = 2, the sum of squares. `rest`: one more table, K^d for rows without a value.

Sums are taken in 128-bit integers, which no number of rows can overflow, and then modulo 2^64. All later arithmetic
is modulo 2^64, too. It commutes with adding noise, so wrapping is post-processing of the noisy answer.
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
SMALLEST_STEP = Fraction(1, 1 << 900)  # keeps the arithmetic of steps far above doubles that round to 0
FULL = 1 << 10
"""The weight of a unit that is counted in full, where units have weights."""

MOST_SQUARED_STEPS = 1 << 15  # squares of larger numbers would leave few of the 64 bits for rows


@dataclass(frozen=True)
class Contribution:
    """Contribution of each row. A plain Contribution(condition) counts the rows for which the condition is true.

    condition: predicate of a row, None for every row. form: 'count', 'valued', 'sum', 'squares' or 'moments'.
    value: DOUBLE of a row. NULL, NaN and infinities do not contribute.
    low, high, steps: public bounds of the value, and K. degree, rest: parameters of moments.
    reach: bound of the value's absolute value, if known. stepped: whether the value is already a number of steps.
    per_group: '' to add up rows. 'sum' or 'average' merge a unit's rows in a cell first, and clamp the merged value.
    norm: largest squared L2 norm of a unit over all cells, 0 for no limit. A unit above it gets a smaller weight
        (loss.py), and all integers are in units of 1/FULL.
    centre: number that is subtracted from each value of a sum, or of squares.
    shared: whether a unit has the same weight for this and the next aggregate.
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
        has_form = self.form in ("count", "valued", "sum", "squares", "moments")
        if not has_form or (self.form == "moments") != (self.degree in (1, 2)):
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
        """Returns the amount of an integer 1: 1 in tables of counts, u in sums, u^2 in squares, 1/K^d in moments."""
        if self.form in ("sum", "squares"):
            return common_divisor(self.low - self.centre, self.step) ** self._power
        return Fraction(1, self.steps**self.degree)

    @property
    def tables(self) -> int:
        """Returns the number of tables of integers."""
        return self.degree + 1 + self.rest if self.form == "moments" else 1

    @property
    def bound(self) -> int:
        """Returns a bound of one row's contribution to all tables together. By group: of one unit's in one cell."""
        if self.form in ("sum", "squares"):
            farthest = max(abs(self.low - self.centre), abs(self.high - self.centre))
            return int(farthest**self._power / self.unit)
        return int(self.steps**self.degree)

    @property
    def has_squares(self) -> bool:
        """Tells whether squares of numbers of steps are added up, too."""
        return self.form == "squares" or self.degree == 2

    @property
    def of_steps(self) -> tuple[int, int]:
        """Returns integers a and b, where a + b k is a row's distance from the centre in units u."""
        divisor = common_divisor(self.low - self.centre, self.step)
        return int((self.low - self.centre) / divisor), int(self.step / divisor)

    @property
    def _power(self) -> int:
        return 2 if self.form == "squares" else 1

    def unit_bound(self, rows: int, cells: int) -> int:
        """Returns a bound of the L1 norm, over all tables of `cells` cells, of a unit with `rows` rows.

        By group, a unit adds once to each cell in which it has rows. A number of rows, clamped to bounds around 0,
        is no farther from 0 than before. So its rows bound it, too.
        """
        if not self.norm:
            return self._whole_bound(rows, cells)
        squared = FULL * FULL * self.norm  # integers add up to no more than their squares
        return min(FULL * self._whole_bound(rows, cells), isqrt(cells * squared - 1) + 1, squared)

    def squared_bound(self, rows: int, cells: int, cell_rows: int) -> int:
        """Returns a bound of a unit's squared L2 norm over `cells` cells, with at most `cell_rows` rows in each.

        A sum of squares is at most the sum of absolute values times the largest absolute value.
        """
        by_cells = self.unit_bound(rows, cells) * self.unit_bound(cell_rows, 1)
        return min(by_cells, FULL * FULL * self.norm) if self.norm else by_cells

    def together_bound(self, rows: int, cells: int) -> int:
        """Returns a bound of a unit's contribution to the sum of all cells. The norm must be one of this sum."""
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
        """Computes tables modulo 2^64 from sums by cell: rows that meet the condition, rows with a value, k and k^2."""
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
            tables = [most * valued - sums, sums]
        else:
            tables = [most * most * valued - 2 * most * sums + squares, 2 * (most * sums - squares), squares]
        return [*tables, most**self.degree * (rows - valued)] if self.rest else tables


def common_divisor(first: Fraction, second: Fraction) -> Fraction:
    """Returns the largest number by which both numbers are whole multiples.

    >>> common_divisor(Fraction(1, 2), Fraction(3))
    Fraction(1, 2)
    """
    numerator = gcd(first.numerator * second.denominator, second.numerator * first.denominator)
    return Fraction(numerator, first.denominator * second.denominator)


# Contribution bounding in SQL keeps a unit's first m rows in the order of a keyed hash of the row's own content.
#
# Neighbouring databases differ by one unit's rows, and at most m of these rows are kept. Which rows of a unit are kept
# depends on that unit's rows alone: not on other units, physical order, threads or chance. Rows are reduced to their
# cell, unit and hash, and a window ranks each unit's rows. Most tables have few units with more rows than m. If rows
# can be read twice, these units are listed first (rows/crowds.py), and only their rows are ranked. If rows are read
# once and m is large, each unit's rows are counted first: then few units have more than m, and there are few units.
# Two other ways were slower: top-m aggregates for each unit, and for small m to count each unit's rows
# (benchmarks/speed/counting.py).

COUNTED_FIRST = 32
"""Smallest m for which each unit's rows are counted first, if they can be read only once.

For 6 M rows of 100,000 units (TPC-H query 1), this was 1.9 times as fast at m = 128, which few units exceed. At m = 32,
which half of the units exceed, it was 1.1 times slower.
"""

UNIT, ORDER, KEY, UNIT_HASH = "dpduck_unit", "dpduck_order", "dpduck_bounding_key", "dpduck_unit_hash"
"""Columns: a row's unit, the keyed order of the unit's rows, and the unit's hash. KEY: parameter of the order."""
OF_UNIT, OPEN = "dpduck_of_unit", "dpduck_open"
"""Columns of prepared rows: the unit's number of rows, and its number of rows outside some domain."""


@dataclass(frozen=True)
class BoundingFacts:
    """Facts that rows hold about their units. A unit of prepared rows (prepared_writer.py) has at most OF_UNIT rows.

    once: whether the rows can be read only once. placed: whether all rows are counted but those outside a domain. Then
    ORDER numbers a unit's rows that count, from 1, wherever OPEN is 0. crowded: whether most units are expected to have
    too many rows. Then no list of such units is made. counted: whether the column OF_UNIT exists.
    """

    once: bool
    placed: bool
    crowded: bool = False
    counted: bool = True

    @property
    def columns(self) -> list[str]:
        """Lists the columns that the rows have besides UNIT and ORDER."""
        if self.crowded or not self.counted:
            return []
        return [OF_UNIT, OPEN] if self.placed else [OF_UNIT]

    @property
    def of_anybody(self) -> bool:
        """Tells whether rows without a unit need a filter. Otherwise their OF_UNIT is NULL and fits no comparison."""
        return self.crowded or not self.counted

    def weaken_for_groups(self) -> BoundingFacts:
        """Returns the facts that still hold after a grouping leaves out some more rows."""
        return replace(self, once=True, placed=False)


NO_FACTS = BoundingFacts(once=False, placed=False, counted=False)


def unit_hash_sql(unit: str) -> str:
    """Writes the hash of a unit. A hash of 32 bits takes half the time of one of 64 bits to read and sort."""
    return f"CAST(hash({unit}) >> 32 AS UINTEGER)"


@dataclass(frozen=True)
class Crowds:
    """List of units that may have too many rows. All other units have at most the allowed number of rows.

    table: name of a table with the units' hashes in its column UNIT_HASH, "" for an empty list. Equal units have
    equal hashes. rows_sql: SQL of the listed units' rows alone, with the columns of all rows.
    """

    table: str = ""
    rows_sql: str = ""


def bound_rows_sql(
    rows_sql: str, outputs: Sequence[str], max_rows: int, facts: BoundingFacts = NO_FACTS,
    crowds: Crowds | None = None,
) -> str:  # fmt: skip
    """Writes SQL that keeps at most `max_rows` rows of each unit. rows_sql: rows with UNIT, ORDER and `outputs`.

    Rows with equal hashes are ordered by `outputs`. Nothing else is used later, so rows that are still equal may be
    exchanged. facts: facts of prepared rows. Only units with too many rows are ranked. If most units have too many, all
    rows are sorted. A row is left out if the row `max_rows` places before it has the same unit. That takes a tenth less
    time than a rank for each unit. No unit is NULL then. crowds: units with too many rows, if rows are read twice.
    """
    columns = ", ".join(outputs) or "1"
    order = ", ".join((ORDER, *outputs))
    if facts.crowded:
        before = f"lag({UNIT}, {int(max_rows)}) OVER (ORDER BY {UNIT}, {order})"
        return f"SELECT {columns} FROM ({rows_sql}) QUALIFY {before} IS DISTINCT FROM {UNIT}"
    window = rank_sql([UNIT], [ORDER, *outputs])
    if facts.counted:
        most = int(max_rows)
        rows, first = (
            (f"({rows_sql})", "")
            if not facts.once
            else ("dpduck_rows", f"WITH dpduck_rows AS MATERIALIZED ({rows_sql}) ")
        )
        few, many, by_order = f"{OF_UNIT} <= {most}", f"{OF_UNIT} > {most}", ""
        if facts.placed:
            by_order = f"SELECT {columns} FROM {rows} WHERE {many} AND {OPEN} = 0 AND {ORDER} <= {most} UNION ALL "
            many += f" AND {OPEN} > 0"
        return (
            f"{first}SELECT {columns} FROM {rows} WHERE {few} UNION ALL {by_order}"
            f"SELECT {columns} FROM (SELECT * FROM {rows} WHERE {many}) QUALIFY {window} <= {most}"
        )
    if crowds is not None:
        few = f"SELECT {columns} FROM ({rows_sql})"
        if not crowds.table:
            return few
        few = f"{few} ANTI JOIN {crowds.table} ON {unit_hash_sql(UNIT)} = {UNIT_HASH}"
        return f"{few} UNION ALL SELECT {columns} FROM ({crowds.rows_sql}) QUALIFY {window} <= {int(max_rows)}"
    if max_rows < COUNTED_FIRST:
        return f"SELECT {columns} FROM ({rows_sql}) QUALIFY {window} <= {int(max_rows)}"
    crowded = f"SELECT {UNIT} FROM dpduck_rows GROUP BY {UNIT} HAVING count(*) > {int(max_rows)}"
    return (
        f"WITH dpduck_rows AS MATERIALIZED ({rows_sql}), dpduck_crowded AS MATERIALIZED ({crowded}) "
        f"SELECT {columns} FROM dpduck_rows ANTI JOIN dpduck_crowded USING ({UNIT}) UNION ALL "
        f"SELECT {columns} FROM (FROM dpduck_rows SEMI JOIN dpduck_crowded USING ({UNIT})) "
        f"QUALIFY {window} <= {int(max_rows)}"
    )


def rank_sql(alike: Sequence[str], order: Sequence[str]) -> str:
    """Writes a row's number, from 1, in an order of the rows that are equal in the columns `alike`."""
    parts = [f"{word} BY {', '.join(listed)}" for word, listed in (("PARTITION", alike), ("ORDER", order)) if listed]
    return f"row_number() OVER ({' '.join(parts)})"


def order_sql(content_sql: Sequence[str]) -> str:
    """Writes the keyed hash of a row. The key is a prepared parameter, so that no text, plan or error contains it."""
    return f"hash({', '.join((f'CAST(${KEY} AS UBIGINT)', *content_sql))})"


def key_integer(bounding_key: bytes) -> int:
    """Returns the key for DuckDB's hash, derived from a secret of any length."""
    return int.from_bytes(blake2b(bounding_key, digest_size=8, person=b"dpduck bounding").digest(), "big")
