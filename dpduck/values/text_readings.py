"""Readings of texts as dates and numbers: exact facts from the rows, only for the owner of a table.

A reading is an expression that converts nearly all values of a column. It is found in some rows. Then the values that
it converts are counted in all rows. Blank texts count as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from dpduck.values.quoting import quote_identifier, quote_text
from dpduck.values.sqltypes import sql_type

Counts = Callable[[str], Sequence[float | None]]
"""Runs a SELECT with one row of counts, and returns them."""

DAYS = (
    "%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d",
    "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d %B %Y", "%d. %B %Y", "%B %d, %Y",
    "%b %d, %Y", "%b %d %Y",
)  # fmt: skip
TIMES = (
    "", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M", "T%H:%M:%S", "T%H:%M:%S.%f",
    "T%H:%M:%SZ", "T%H:%M:%S.%fZ", ", %H:%M", " %H:%M:%S UTC",
)  # fmt: skip
ZONES = ("%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d %H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z", "%Y-%m-%d %H:%M:%S.%f%z")
MONTHS = ("%Y-%m", "%m/%Y", "%m.%Y", "%Y/%m")
FORMATS = (*(day + time for day, time in product(DAYS, TIMES)), *MONTHS, "%Y%m%d%H%M%S", "%Y%m%d %H%M%S", *ZONES)
COMPACT = ("%Y%m%d", "%Y%m%d%H%M%S")
"""Formats of dates that may be whole numbers."""

LOOKED_AT = 200
"""Number of rows in which the formats are found that are counted in all rows."""

NEARLY_ALL = 0.95
"""Least share of the values that a format of dates reads. The others are taken to mean that there is no date."""

MOST_OF_THEM = 0.5
"""Least share of the values that are numbers, in a column of texts with fractions or with thousands apart."""

FIRST, LAST = "1800-01-01", "2200-01-01"
"""Earlier and later dates are taken for something else."""

_PARTS = "[-+]?([0-9]+|[1-9][0-9]{{0,2}}([{0}][0-9]{{3}})+)"
COMMA = _PARTS.format(".' ") + "(,[0-9]+)?"
THOUSANDS = _PARTS.format(",")
POINT = THOUSANDS + r"(\.[0-9]+)?"
"""Regular expressions of numbers. Thousands may be apart, by other signs than a fraction."""


@dataclass(frozen=True)
class TextReading:
    """One way to read a column of texts. how: words for people. read: how many texts are converted.

    values: how many texts are not blank. type_name, using: the parts of ALTER TABLE .. ALTER column TYPE .. USING ..
    sign: a character that at least one converted text must have.
    """

    column: str
    how: str
    type_name: str
    using: str
    sign: str = ""
    read: float = 0.0
    values: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Tells whether every value is read."""
        return self.read == self.values

    @property
    def is_nearly_whole(self) -> bool:
        """Tells whether nearly every value is read."""
        return self.read >= NEARLY_ALL * self.values

    def alter(self, table: str) -> str:
        """Returns the statement that converts the column. table: SQL of the table's name."""
        return f"ALTER TABLE {table} ALTER {quote_identifier(self.column)} TYPE {self.type_name} USING {self.using}"


def readings(counts: Counts, table: str, column: str, type_name: str) -> list[TextReading]:
    """Returns the ways to read a column of texts, or of whole numbers, as dates or numbers. table: SQL of its name.

    Several formats of dates may read every value, such as 03/04/2024: then all are returned.
    """
    kind = sql_type(type_name)
    if not kind.is_text and not (kind.is_integer and kind.bits > 16):
        return []
    name = quote_identifier(column)
    text, missing = (f"trim({name})", "''") if kind.is_text else (f"CAST({name} AS VARCHAR)", "'0'")
    values = f"nullif({text}, {missing})"
    some = f"(SELECT {name} FROM {table} WHERE {values} IS NOT NULL LIMIT {LOOKED_AT})"
    formats = FORMATS if kind.is_text else COMPACT
    tried = ", ".join(f"count(try_strptime({text}, {quote_text(pattern)}))" for pattern in formats)
    total, *found = _without_null(counts, f"SELECT count({values}), {tried} FROM {some}")
    likely = [pattern for pattern, number in zip(formats, found, strict=True) if number >= NEARLY_ALL * total > 0]
    if any("%z" not in pattern for pattern in likely):
        likely = [pattern for pattern in likely if "%z" not in pattern]
    dates = [_date(column, text, pattern) for pattern in likely]
    for ways, least in ((dates, NEARLY_ALL), (_numbers(column, text) if kind.is_text else [], MOST_OF_THEM)):
        fit = [way for way, _ in _count_read(counts, some, text, values, ways) if way.read >= least * way.values]
        every = _count_read(counts, table, text, values, fit)
        fit = [way for way, signs in every if signs and way.read >= least * way.values]
        if fit:
            return [way for way in fit if way.read == max(other.read for other in fit)]
    return []


def _count_read(
    counts: Counts, rows: str, text: str, values: str, ways: Sequence[TextReading]
) -> list[tuple[TextReading, float]]:
    """Returns the ways with the numbers of values that they read. Beside each: how many read values have its sign."""
    if not ways:
        return []
    read = (f"count({way.using}), count({way.using}) FILTER (WHERE contains({text}, '{way.sign}'))" for way in ways)
    total, *found = _without_null(counts, f"SELECT count({values}), {', '.join(read)} FROM {rows}")
    numbers = zip(ways, found[::2], found[1::2], strict=True)
    return [(replace(way, read=number, values=total), signs) for way, number, signs in numbers]


def _without_null(counts: Counts, sql: str) -> list[float]:
    return [number or 0.0 for number in counts(sql)]


def _date(column: str, text: str, pattern: str) -> TextReading:
    zone = " AT TIME ZONE 'UTC'" if "%z" in pattern else ""
    moment = f"try_strptime({text}, {quote_text(pattern)}){zone}"
    timed = "%H" in pattern or "%I" in pattern
    kind, how = ("TIMESTAMP", "moments") if timed else ("DATE", "dates")
    long_enough = f" AND strlen({text}) >= 8" if pattern in COMPACT else ""
    using = (
        f"CASE WHEN {moment} BETWEEN TIMESTAMP '{FIRST}' AND TIMESTAMP '{LAST}'{long_enough} "
        f"THEN {moment if timed else f'CAST({moment} AS DATE)'} END"
    )
    return TextReading(column, f"{how} by {quote_text(pattern)}", kind, using)


def _numbers(column: str, text: str) -> list[TextReading]:
    """Returns the ways to read texts as numbers that have fractions, or thousands apart.

    If each comma has three digits behind it, it may stand before a fraction or between thousands.
    """
    plain = f"replace({text}, ',', '')"
    return [
        TextReading(
            column, how, kind, f"CASE WHEN regexp_full_match({text}, {quote_text(pattern)}) THEN {number} END", sign
        )
        for how, kind, pattern, number, sign in (
            (
                "numbers with a decimal comma", "DOUBLE", COMMA,
                f"TRY_CAST(replace(regexp_replace({text}, '[.'' ]', '', 'g'), ',', '.') AS DOUBLE)", ",",
            ),
            ("numbers", "DOUBLE", POINT, f"TRY_CAST({plain} AS DOUBLE)", "."),
            ("numbers with commas between thousands", "BIGINT", THOUSANDS, f"TRY_CAST({plain} AS BIGINT)", ","),
        )
    ]  # fmt: skip
