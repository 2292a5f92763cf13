"""Readings of texts as dates and numbers: exact facts from the rows, only for the owner of a table.

A reading is an expression that converts nearly all values of a column. It is found in some rows, and then counted in
all rows. Blank texts count as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
"""Least share of the values that are numbers, in a column of texts with fractions."""

FIRST, LAST = "1800-01-01", "2200-01-01"
"""Earlier and later dates are taken for something else."""

COMMA = r"[-+]?[0-9]{1,3}([.' ]?[0-9]{3})*,[0-9]+"
POINT = r"[-+]?[0-9]{1,3}(,?[0-9]{3})*\.[0-9]+"
"""Regular expressions of numbers with a fraction. Thousands may be apart."""

WHOLE = r"[-+]?[0-9]+"
THOUSANDS = r"[-+]?[0-9]{1,3}(,[0-9]{3})+"
_NUMBERS = "numbers"


@dataclass(frozen=True)
class TextReading:
    """One way to read a column of texts. how: words for people. read, values: numbers of texts, blank ones left out.

    type_name, using: what ALTER TABLE .. ALTER column TYPE .. USING .. takes.
    """

    column: str
    how: str
    type_name: str
    using: str
    read: float
    values: float

    @property
    def is_whole(self) -> bool:
        """Tells whether every value is read."""
        return self.read == self.values

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
    text = f"nullif(trim({name}), '')" if kind.is_text else f"CAST(nullif({name}, 0) AS VARCHAR)"
    some = f"SELECT {text} AS x FROM {table} WHERE {text} IS NOT NULL LIMIT {LOOKED_AT}"
    formats = FORMATS if kind.is_text else COMPACT
    tried = ", ".join(f"count(try_strptime(x, {quote_text(pattern)}))" for pattern in formats)
    values, *read = _without_null(counts(f"SELECT count(x), {tried} FROM ({some})"))
    likely = [pattern for pattern, number in zip(formats, read, strict=True) if number >= NEARLY_ALL * values > 0]
    if any("%z" not in pattern for pattern in likely):
        likely = [pattern for pattern in likely if "%z" not in pattern]
    every = f"SELECT {text} AS x FROM {table}"
    if not likely:
        return _numbers(counts, some, every, column) if kind.is_text else []
    values, *read = _without_null(counts(f"SELECT count(x), {', '.join(map(_is_date, likely))} FROM ({every})"))
    dated = [pair for pair in zip(likely, read, strict=True) if pair[1] >= NEARLY_ALL * values > 0]
    best = max((number for _, number in dated), default=0.0)
    source = name if kind.is_text else f"CAST({name} AS VARCHAR)"
    return [_date(column, source, pattern, number, values) for pattern, number in dated if number == best]


def _without_null(found: Sequence[float | None]) -> list[float]:
    return [0.0 if number is None else number for number in found]


def _is_date(pattern: str) -> str:
    day = f"CAST(try_strptime(x, {quote_text(pattern)}) AS TIMESTAMP)"
    long_enough = " AND strlen(x) >= 8" if pattern in COMPACT else ""
    return f"count(*) FILTER (WHERE {day} BETWEEN TIMESTAMP '{FIRST}' AND TIMESTAMP '{LAST}'{long_enough})"


def _date(name: str, source: str, pattern: str, read: float, values: float) -> TextReading:
    zone = " AT TIME ZONE 'UTC'" if "%z" in pattern else ""
    moment = f"try_strptime({source}, {quote_text(pattern)}){zone}"
    timed = "%H" in pattern or "%I" in pattern
    kind, how = ("TIMESTAMP", "moments") if timed else ("DATE", "dates")
    using = moment if timed else f"CAST({moment} AS DATE)"
    return TextReading(name, f"{how} by {quote_text(pattern)}", kind, using, read, values)


def _numbers(counts: Counts, some: str, every: str, column: str) -> list[TextReading]:
    """Returns the readings of texts that are numbers with a fraction, with a point or a comma before it.

    If each comma has three digits behind it, it may also stand between thousands: then there are two readings.
    """
    name = f"trim({quote_identifier(column)})"
    for how, pattern, number in (
        (f"{_NUMBERS} with a decimal comma", COMMA, f"replace(regexp_replace({name}, '[.'' ]', '', 'g'), ',', '.')"),
        (_NUMBERS, POINT, f"replace({name}, ',', '')"),
    ):
        fraction, whole = f"regexp_full_match(x, {quote_text(pattern)})", f"regexp_full_match(x, '{WHOLE}')"
        asked = ", ".join(
            f"count(*) FILTER (WHERE {condition})"
            for condition in (fraction, f"{fraction} OR {whole}", f"regexp_full_match(x, '{THOUSANDS}')")
        )
        values, parts, read, _ = _without_null(counts(f"SELECT count(x), {asked} FROM ({some})"))
        if not parts or read < MOST_OF_THEM * values:
            continue
        values, parts, read, thousands = _without_null(counts(f"SELECT count(x), {asked} FROM ({every})"))
        if read < MOST_OF_THEM * values:
            continue
        ways = [TextReading(column, how, "DOUBLE", f"TRY_CAST({number} AS DOUBLE)", read, values)]
        if pattern == COMMA and thousands == parts:
            plain = f"TRY_CAST(replace({name}, ',', '') AS BIGINT)"
            ways.append(TextReading(column, f"{_NUMBERS} with commas between thousands", "BIGINT", plain, read, values))
        return ways
    return []
