"""SQL of stored values. No value of a type makes it raise, and neither other rows nor files change its result."""

from __future__ import annotations

from dataclasses import dataclass

from dpduck.kernel.columns.expressions import Expression, Names, RelationColumn, require
from dpduck.values.sqltypes import sql_type


def text_sql(value: str, type_name: str) -> str:
    """Writes the text of a stored value, and never raises. Dates without a text and too long decimals give NULL."""
    kind = sql_type(type_name)
    if kind.is_float:
        return f"CAST({without_sign(value, type_name)} AS VARCHAR)"
    if kind.is_decimal:
        return f"CASE WHEN {digits_fit(value, type_name)} THEN CAST({value} AS VARCHAR) END"
    if kind.calendar is None:
        return f"CAST({value} AS VARCHAR)"
    low, high = (f"CAST('{end}' AS {type_name})" for end in kind.calendar)
    ends = ("infinity", "-infinity") if kind.has_infinity else ()
    endless = "".join(f" OR {value} = CAST('{end}' AS {type_name})" for end in ends)
    return f"CASE WHEN {value} BETWEEN {low} AND {high}{endless} THEN CAST({value} AS VARCHAR) END"


@dataclass(frozen=True)
class AsText(Expression):
    """The text of a stored column. Equal values have equal texts."""

    column: RelationColumn

    def __post_init__(self) -> None:
        require(sql_type(self.column.type_name).is_selectable)

    def write(self, names: Names) -> str:
        return text_sql(names(self.column), self.column.type_name)


def without_sign(value: str, type_name: str) -> str:
    """Writes a stored FLOAT or DOUBLE in which zero and NaN have no sign."""
    # DuckDB may store -0.0 as 0.0 if neighbouring rows hold 0.0. So other people's rows would decide the sign.
    zero, nan = (f"CAST('{text}' AS {type_name})" for text in ("0", "nan"))
    return f"CASE WHEN {value} = 0 THEN {zero} WHEN isnan({value}) THEN {nan} ELSE {value} END"


def digits_fit(value: str, type_name: str) -> str:
    """Writes the condition that a decimal has no more digits than its type. Arrow and Parquet may hold longer ones."""
    kind = sql_type(type_name)
    most = f"{'9' * (kind.digits - kind.scale) or '0'}.{'9' * kind.scale}"
    low, high = (f"CAST('{sign}{most}' AS {type_name})" for sign in ("-", ""))
    return f"{value} BETWEEN {low} AND {high}"


LONGEST_JOINED = 4096
"""Most bytes that all texts of a joined row may have. Rows with longer texts are left out of the join."""


def fits_sql(value: str, type_name: str, longest: int) -> str:
    """Writes a condition that leaves out rows with a value of too many bytes, "" for types that are never so long."""
    length = sql_type(type_name).length_function
    return f"({value} IS NULL OR {length}({value}) <= {longest})" if length else ""


LONGEST_AS_IT_IS, LONGEST_UNIT = 64, 65_535
"""Most bytes of a privacy unit that rows hold as it is, and most bytes of any unit. For a unit beyond the first limit,
rows hold its SHA-256. Beyond the second limit, they have no unit."""


def shorten_sql(value: str, type_name: str) -> str:
    """Writes a privacy unit in at most 65 bytes. Only equal units give equal bytes, apart from collisions of SHA-256.

    DuckDB holds the unit in each row, and joins may turn one row into many. So one long name could fill the memory. A
    digest has 65 bytes, and so equals no unit that is held as it is.
    """
    kind = sql_type(type_name)
    if not kind.is_shortened:
        return value
    length = f"{kind.length_function}({value})"
    digest = f"'~' || sha256({value})"
    written = digest if kind.is_text else f"encode({digest})"
    short, hashed = f"WHEN {length} <= {LONGEST_AS_IT_IS} THEN {value}", f"WHEN {length} <= {LONGEST_UNIT}"
    return f"CASE {short} {hashed} THEN {written} END"


def instant_sql(value: str) -> str:
    """Writes a TIMESTAMP WITH TIME ZONE as microseconds, since two instants have one text after clocks went back."""
    most = (1 << 63) - 1
    ends = f"WHEN {value} = 'infinity' THEN {most} WHEN {value} = '-infinity' THEN -{most}"
    return f"CASE {ends} ELSE epoch_us({value}) END"
