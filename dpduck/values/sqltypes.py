"""DuckDB's types: the one table of their facts, and the one reader of their names.

A column has the name of its type as a text. `sql_type(name)` reads it, and `SqlType` has a property for each fact. A
type that no list here has, such as a nested one, lacks nearly all properties, and so is refused.

To add a type: put its name into `NAMES`, and its kind into each property that holds. Four facts have tables above the
class: `_ARROW`, `_CALENDARS`, `_LENGTHS`, `_APART`. Then add the type to `HAVE` in tests/values/test_sqltypes.py, and
its values to `texts_of`. The tests try each property on DuckDB, and know which properties follow from others. No other
file has a list of types.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

_SIGNED = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_UNSIGNED = {"UTINYINT": 8, "USMALLINT": 16, "UINTEGER": 32, "UBIGINT": 64, "UHUGEINT": 128}
_BITS = {**_SIGNED, **_UNSIGNED}
_FLOATS = ("FLOAT", "DOUBLE")
_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
_INSTANT, _ZONED_TIME = "TIMESTAMP WITH TIME ZONE", "TIME WITH TIME ZONE"
_WITH_PARTS = ("ENUM", "STRUCT", "MAP", "UNION", "GEOMETRY")
NAMES = (
    *_BITS, "BOOLEAN", *_FLOATS, "VARCHAR", "BLOB", "UUID", "DATE", "TIME", "TIME_NS", _ZONED_TIME, *_TIMESTAMPS,
    _INSTANT, "INTERVAL", "BIT", "BIGNUM", "JSON", "VARIANT", "GEOMETRY",
)  # fmt: skip
"""Types without digits, labels or fields, as DuckDB writes them."""

_ARROW = {
    "BOOLEAN": "bool", "TINYINT": "int8", "SMALLINT": "int16", "INTEGER": "int32", "BIGINT": "int64",
    "UTINYINT": "uint8", "USMALLINT": "uint16", "UINTEGER": "uint32", "UBIGINT": "uint64", "FLOAT": "float",
    "DOUBLE": "double", "VARCHAR": "large_string", "BLOB": "large_binary", "DATE": "date32[day]",
    "TIMESTAMP": "timestamp[us]", "TIMESTAMP_S": "timestamp[s]", "TIMESTAMP_MS": "timestamp[ms]",
    "TIMESTAMP_NS": "timestamp[ns]",
}  # fmt: skip
_YEARS = ("0001-01-01", "9999-12-31")
_CALENDARS = {
    "TIMESTAMP": _YEARS, "TIMESTAMP_S": _YEARS, "TIMESTAMP_MS": _YEARS, "TIMESTAMP_NS": ("1678-01-01", "2262-01-01"),
    _INSTANT: ("0001-01-02 00:00:00+00", "9999-12-30 00:00:00+00"),
    "TIME": ("00:00:00", "24:00:00"), "TIME_NS": ("00:00:00", "24:00:00"),
}  # fmt: skip
_LENGTHS = {"VARCHAR": "strlen", "JSON": "strlen", "BLOB": "octet_length", "BIT": "octet_length"}
_APART = {"FLOAT": "BIT", "DOUBLE": "BIT", "INTERVAL": "VARCHAR"}
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)", re.ASCII)
_ENUM = re.compile(r"ENUM\('(?:[^']|'')*'(?:, '(?:[^']|'')*')*\)", re.DOTALL)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_NARROW_DIGITS = 18


@dataclass(frozen=True)
class SqlType:
    """A type of DuckDB.

    name: as DuckDB writes it.
    kind: the name without digits, labels and fields, LIST for lists and arrays, "" for an unknown type.
    bits: of a whole number, else 0.
    digits, scale: of a whole number and of a DECIMAL, else 0. The scale is the number of decimal places.
    """

    name: str
    kind: str
    bits: int = 0
    digits: int = 0
    scale: int = 0

    @cached_property
    def word(self) -> str:
        """Returns the type as messages show it, without digits, labels and fields."""
        return self.name.partition("(")[0]

    def mentions(self, *kinds: str) -> bool:
        """Tells whether it is of one of these kinds, or nests one. A label or a field may have such a name."""
        bare = _QUOTED.sub("", self.name)
        return any(re.search(rf"\b{kind}\b", bare) for kind in kinds)

    # Numbers.

    @cached_property
    def is_whole(self) -> bool:
        """Tells whether values are whole numbers, of at most 128 bits."""
        return self.bits > 0

    @cached_property
    def is_integer(self) -> bool:
        """Tells whether values are whole numbers of at most 64 bits: eight types."""
        return 0 < self.bits <= 64

    @property
    def is_named(self) -> bool:
        """Tells whether the name is one of DuckDB's, without further text: SQL that a cast may be written with."""
        return self.name in NAMES or self.digits > 0 or _ENUM.fullmatch(self.name) is not None

    @cached_property
    def is_signed(self) -> bool:
        """Tells whether whole numbers have a sign. Without one, DuckDB wraps numbers below 0."""
        return self.kind in _SIGNED

    @cached_property
    def least(self) -> int:
        """Returns the least whole number of the type."""
        return -(1 << self.bits - 1) if self.is_signed else 0

    @cached_property
    def most(self) -> int:
        """Returns the largest whole number of the type, 0 for other types."""
        return (1 << self.bits - self.is_signed) - 1

    @cached_property
    def is_float(self) -> bool:
        """Tells whether it is FLOAT or DOUBLE. There 0 has two signs, and NaN many forms."""
        return self.kind in _FLOATS

    @cached_property
    def is_decimal(self) -> bool:
        """Tells whether it is a DECIMAL. From Arrow and Parquet, DuckDB keeps values with more digits than the type."""
        return self.kind == "DECIMAL"

    @cached_property
    def is_numeric(self) -> bool:
        """Tells whether values are numbers, which have bins and clamps."""
        return self.bits > 0 or self.kind in (*_FLOATS, "DECIMAL")

    @cached_property
    def fits_64_bits(self) -> bool:
        """Tells whether values are whole numbers or decimals that DuckDB keeps in 64 bits.

        DuckDB adds up such values exactly in 128 bits, which 2^63 values do not fill. DuckDB 2.0 raises for the least
        decimal of 128 bits, which has more digits than its type. A sum of floats depends on the order of rows.
        """
        return 0 < self.bits <= 64 or (self.kind == "DECIMAL" and self.digits <= _NARROW_DIGITS)

    # Other kinds, by name.

    @cached_property
    def is_boolean(self) -> bool:
        """Tells whether it is BOOLEAN."""
        return self.kind == "BOOLEAN"

    @cached_property
    def is_text(self) -> bool:
        """Tells whether it is VARCHAR. A COLLATION may make texts equal. It belongs to the column, not to the type."""
        return self.kind == "VARCHAR"

    @cached_property
    def has_any_letters(self) -> bool:
        """Tells whether texts of values may have any letters, also a slash: VARCHAR, and the labels of an ENUM."""
        return self.kind in ("VARCHAR", "ENUM")

    @cached_property
    def is_enum(self) -> bool:
        """Tells whether it is an ENUM, and no list of one."""
        return self.kind == "ENUM"

    @cached_property
    def is_moment(self) -> bool:
        """Tells whether it is DATE or TIMESTAMP. Their bins and periods depend on no session's time zone."""
        return self.kind in ("DATE", "TIMESTAMP")

    @cached_property
    def is_dated(self) -> bool:
        """Tells whether values are days or moments: DATE and all timestamps, but no times of a day."""
        return self.kind in ("DATE", *_TIMESTAMPS, _INSTANT)

    @cached_property
    def has_parts(self) -> bool:
        """Tells whether a value has parts with types of their own: a list, STRUCT, MAP or UNION."""
        return self.kind in ("LIST", "STRUCT", "MAP", "UNION")

    @cached_property
    def is_nested(self) -> bool:
        """Tells whether a value has parts, or is a VARIANT or a GEOMETRY."""
        return self.has_parts or self.kind in ("VARIANT", "GEOMETRY")

    @cached_property
    def lists_its_values(self) -> bool:
        """Tells whether the type alone lists its values: BOOLEAN and ENUM."""
        return self.kind in ("BOOLEAN", "ENUM")

    @cached_property
    def takes_date_functions(self) -> bool:
        """Tells whether functions of dates take the type. An INTERVAL and a time of a day have none."""
        return self.kind not in ("INTERVAL", "TIME", _ZONED_TIME, "TIME_NS")

    @cached_property
    def has_infinity(self) -> bool:
        """Tells whether there are infinite values: of floats, dates and timestamps."""
        return self.is_float or self.is_dated

    # Lengths.

    @cached_property
    def is_short(self) -> bool:
        """Tells whether each value has few bytes, so that it may stand beside joined rows.

        A few long texts of one person, in copies, once filled a memory. The statement failed after its charge.
        """
        short = ("BOOLEAN", *_FLOATS, "DECIMAL", "UUID", "DATE", "INTERVAL", "ENUM", "TIME", "TIME_NS", _ZONED_TIME)
        return self.bits > 0 or self.kind in (*short, *_TIMESTAMPS, _INSTANT)

    @cached_property
    def has_fixed_size(self) -> bool:
        """Tells whether a worker is sent few bytes for each value. An ENUM is sent as its label, of any length."""
        return self.is_plain and not self.has_any_letters

    @cached_property
    def length_function(self) -> str:
        """Returns DuckDB's function that counts the bytes of a value, "" for types without one."""
        return _LENGTHS.get(self.kind, "")

    @cached_property
    def is_shortened(self) -> bool:
        """Tells whether a long value is replaced by its SHA-256: VARCHAR and BLOB, which consist of bytes alone."""
        return self.kind in ("VARCHAR", "BLOB")

    # Equal values.

    @cached_property
    def has_one_form(self) -> bool:
        """Tells whether equal values are stored alike and have equal texts, and other values have other texts.

        Then a constraint, a GROUP BY and a key of texts tell the same values apart. Three kinds of types lack it: zeros
        may have a sign, moments may lie outside of calendars, decimals may have more digits than their type.
        """
        return self.bits > 0 or self.kind in ("BOOLEAN", "VARCHAR", "UUID", "DATE", "ENUM")

    @cached_property
    def is_own_key(self) -> bool:
        """Tells whether a PRIMARY KEY or UNIQUE constraint tells rows apart as GROUP BY does.

        It is narrower than `has_one_form`: integers and dates, which no collation, label or length changes.
        """
        return 0 < self.bits <= 64 or self.kind == "DATE"

    @cached_property
    def is_key(self) -> bool:
        """Tells whether two values are equal as keys are. Floats are not (-0 is 0), nor nested types but GEOMETRY."""
        return bool(self.kind) and not self.is_float and (not self.is_nested or self.kind == "GEOMETRY")

    @cached_property
    def is_comparable(self) -> bool:
        """Tells whether two stored values are compared as they are: all types but nested ones."""
        return bool(self.kind) and not self.is_nested

    @cached_property
    def is_grouped_as_compared(self) -> bool:
        """Tells whether all values that are equal to one value are one group."""
        return bool(self.kind) and not self.mentions("UNION", "VARIANT", "MAP", "JSON", "GEOMETRY")

    @cached_property
    def form_apart(self) -> str:
        """Returns the type to cast to, so that equal values of different forms are apart. It is "" if there are none.

        Equal are 0 and -0, two forms of NaN, a month and thirty days. When DuckDB sorts, it may replace one by the
        other. After the cast it does not.
        """
        return _APART.get(self.kind, "")

    @cached_property
    def has_one_hash(self) -> bool:
        """Tells whether equal values have one hash in DuckDB. A collation makes texts equal that have two hashes."""
        return self.bits > 0 or self.kind in ("UUID", "DATE", *_TIMESTAMPS, _INSTANT, "DECIMAL")

    @cached_property
    def has_tied_hashes(self) -> bool:
        """Tells whether values that differ share a hash by design: 0 and -0, and halves of wide numbers."""
        return self.bits > 64 or self.kind in ("DECIMAL", "UUID", *_FLOATS)

    # Privacy units and features of their rows.

    @cached_property
    def is_unit(self) -> bool:
        """Tells whether a privacy unit may have the type: equal values are one group, and no others are in it.

        Left out are nested types and, among others, INTERVAL, where a month and thirty days are equal. Arrow drops the
        zone of a time with a zone, so that it is left out, too. A unit stands beside each of its rows, so that its type
        `is_short` or `is_shortened`.
        """
        carried = ("BOOLEAN", *_FLOATS, "DECIMAL", "VARCHAR", "BLOB", "UUID", "DATE", "TIME", "TIME_NS", "ENUM")
        return self.bits > 0 or self.kind in (*carried, *_TIMESTAMPS, _INSTANT)

    @cached_property
    def is_unit_part(self) -> bool:
        """Tells whether a unit of the type may be kept apart from its table: beside a period, or in a stream's file."""
        return 0 < self.bits <= 64 or self.kind in ("VARCHAR", "UUID")

    @cached_property
    def kept_unit(self) -> str:
        """Returns the type of the unit in a stream's file. Equal units are equal there, and no others are."""
        return "VARCHAR" if self.kind == "UUID" else self.name

    @cached_property
    def is_engine_unit(self) -> bool:
        """Tells whether equal units are equal bytes here and in an engine, so that no unit is in two buckets."""
        return (self.is_integer and self.is_signed) or self.kind in ("VARCHAR", "DATE", "BOOLEAN", "DECIMAL")

    @cached_property
    def is_feature(self) -> bool:
        """Tells whether a feature of a unit's rows may have the type: equal values are one, but for signs of 0 and NaN.

        An INTERVAL of a month equals one of thirty days, and differs.
        """
        return self.is_plain and self.kind != "INTERVAL"

    # Types that an expression may read, and the transport of values.

    @cached_property
    def is_plain(self) -> bool:
        """Tells whether expressions may compute with the type.

        For other types, a row may make DuckDB raise an error that TRY does not catch. CASE over an ARRAY is not
        implemented if rows take different branches. An error of ICU over a TIMESTAMP WITH TIME ZONE ends the whole
        database.
        """
        return self.travels or self.goes_as_text

    @cached_property
    def travels(self) -> bool:
        """Tells whether Arrow carries values unchanged, to a worker or back."""
        arrow = ("BOOLEAN", *_FLOATS, "DECIMAL", "VARCHAR", "DATE")
        return 0 < self.bits <= 64 or self.kind in (*arrow, *_TIMESTAMPS)

    @cached_property
    def goes_as_text(self) -> bool:
        """Tells whether a worker is sent a value's text, which it casts back."""
        return self.bits > 64 or self.kind in ("UUID", "TIME", "INTERVAL", "ENUM")

    @cached_property
    def arrow(self) -> str:
        """Returns the name of Arrow's type that holds values unchanged, "" for other types and for DECIMAL."""
        return _ARROW.get(self.kind, "")

    @cached_property
    def is_carried(self) -> bool:
        """Tells whether values reach another database unchanged: the types of units."""
        return self.is_unit

    @cached_property
    def is_carried_as_text(self) -> bool:
        """Tells whether Arrow carries a value's text to another database: of wide numbers, UUID and ENUM.

        A TIME goes to a worker as a text, but Arrow carries it as it is.
        """
        return self.bits > 64 or self.kind in ("UUID", "ENUM")

    @cached_property
    def converts(self) -> bool:
        """Tells whether TRY_CAST takes every value to any type without raising.

        It raises for moments, bits and others. It also raises for decimals with more digits than their type, which
        Arrow brings.
        """
        return self.bits > 0 or self.kind in ("VARCHAR", "BOOLEAN", *_FLOATS, "ENUM")

    # Texts.

    @cached_property
    def calendar(self) -> tuple[str, str] | None:
        """Returns the first and the last finite moment that dpduck writes as a text. None if it writes every value.

        DuckDB raises, or becomes invalid, when it writes a moment outside of all calendars. A comparison never does.
        """
        return _CALENDARS.get(self.kind)

    @cached_property
    def has_canonical_text(self) -> bool:
        """Tells whether equal values have one text, or NULL if a moment has none (`calendar`)."""
        return self.is_feature and not self.is_float

    @cached_property
    def is_selectable(self) -> bool:
        """Tells whether a key of the type may be selected with noise, by its text.

        The type has a canonical text. TIMESTAMP_NS is left out: few of its moments have a text.
        """
        return self.has_canonical_text and self.kind != "TIMESTAMP_NS"

    @cached_property
    def has_labels(self) -> bool:
        """Tells whether values are read back from their texts, so that public values may be labels.

        A VARIANT and a GEOMETRY are not, alone or nested.
        """
        return not self.mentions("VARIANT", "GEOMETRY")

    @cached_property
    def is_listable(self) -> bool:
        """Tells whether a DOMAIN may list values of the type."""
        return self.is_numeric or self.kind in ("DATE", "TIMESTAMP", "VARCHAR", "BOOLEAN", "UUID", "TIME", "ENUM")

    @cached_property
    def is_told_by_label(self) -> bool:
        """Tells whether the code of a listed value determines the value. For floats it does not: 0 is equal to -0.

        If so, a condition is evaluated once for each label. Wide numbers, UUID and TIME go to a worker as texts.
        """
        kinds = ("VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP", "DECIMAL", "ENUM")
        return 0 < self.bits <= 64 or self.kind in kinds

    @cached_property
    def is_released_as_text(self) -> bool:
        """Tells whether a released table gets labels as texts, which it casts: texts, and types that Arrow lacks."""
        return self.bits > 64 or self.kind in ("VARCHAR", "UUID", "TIME")

    @cached_property
    def is_read_by_programs(self) -> bool:
        """Tells whether most programs read the type in a file. Others become texts, or wide decimals."""
        read = ("BOOLEAN", *_FLOATS, "DECIMAL", "VARCHAR", "DATE", "TIME", "TIMESTAMP", _INSTANT)
        return 0 < self.bits <= 64 or self.kind in read


@lru_cache(maxsize=512)
def sql_type(name: str) -> SqlType:
    """Reads a type by DuckDB's name for it.

    >>> sql_type("DECIMAL(18,3)")
    SqlType(name='DECIMAL(18,3)', kind='DECIMAL', bits=0, digits=18, scale=3)
    >>> sql_type("ENUM('a', 'b')").kind, sql_type("ENUM('a', 'b')[]").kind, sql_type("UTINYINT").most
    ('ENUM', 'LIST', 255)
    """
    if name in _BITS:
        bits = _BITS[name]
        return SqlType(name, name, bits, len(str(1 << bits - (name in _SIGNED))))
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        return SqlType(name, "DECIMAL", digits=int(decimal[1]), scale=int(decimal[2]))
    if name.endswith("]"):
        return SqlType(name, "LIST")
    word, bracket, _ = name.partition("(")
    is_name = word in _WITH_PARTS and name.endswith(")") if bracket else word in NAMES
    return SqlType(name, word if is_name else "")


def decimal_name(digits: int, scale: int) -> str:
    """Returns DuckDB's name of a DECIMAL."""
    return f"DECIMAL({digits},{scale})"


def integer_name(bound: int) -> str:
    """Returns the smallest type with a sign, of at most 64 bits, that has room for numbers from -bound to bound.

    >>> integer_name(127), integer_name(128)
    ('TINYINT', 'SMALLINT')
    """
    return next(name for name, bits in _SIGNED.items() if bits <= 64 and bound < 1 << bits - 1)
