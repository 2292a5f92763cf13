"""DuckDB's types: all facts about them, and the reader of their names. No other file has a list of types.

A type that is in no list here, such as a nested one, has nearly no property, and so is refused.

To add a type: put its name into `NAMES`, and its kind into each property that holds. Four facts have tables above the
class: `_ARROW`, `_CALENDARS`, `_LENGTHS`, `_APART`. Then add the type to `HAVE` in tests/values/test_sqltypes.py, and
its values to `texts_of`. The tests try each property on DuckDB.
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
"""Names of the types that DuckDB writes without digits, labels or fields."""

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
    """DuckDB's type, read from its name."""

    name: str
    kind: str  # the name without digits, labels and fields, LIST for lists and arrays, "" for an unknown type
    bits: int = 0  # bits of a whole number, 0 for other types
    digits: int = 0  # decimal digits of a whole number or a DECIMAL, 0 for other types
    scale: int = 0  # decimal places of a DECIMAL, 0 for other types

    @cached_property
    def word(self) -> str:
        """Returns the name of the type for messages, without digits, labels and fields."""
        return self.name.partition("(")[0]

    def mentions(self, *kinds: str) -> bool:
        """Tells whether this type is one of `kinds`, or contains one. Names of labels and fields do not count."""
        bare = _QUOTED.sub("", self.name)
        return any(re.search(rf"\b{kind}\b", bare) for kind in kinds)

    # Numbers.

    @cached_property
    def is_whole(self) -> bool:
        return self.bits > 0

    @cached_property
    def is_integer(self) -> bool:
        """Tells whether values are whole numbers of at most 64 bits."""
        return 0 < self.bits <= 64

    @property
    def is_named(self) -> bool:
        """Tells whether the name is safe in the SQL of a cast: it is the name of a type, without other words."""
        return self.name in NAMES or self.digits > 0 or _ENUM.fullmatch(self.name) is not None

    @cached_property
    def is_signed(self) -> bool:
        """Tells whether the type is a whole number with a sign. Without a sign, DuckDB wraps numbers below 0."""
        return self.kind in _SIGNED

    @cached_property
    def least(self) -> int:
        return -(1 << self.bits - 1) if self.is_signed else 0

    @cached_property
    def most(self) -> int:
        return (1 << self.bits - self.is_signed) - 1

    @cached_property
    def is_float(self) -> bool:
        """Tells whether the type is FLOAT or DOUBLE. Such a type has a 0 of either sign, and many forms of NaN."""
        return self.kind in _FLOATS

    @cached_property
    def is_decimal(self) -> bool:
        """Tells whether the type is a DECIMAL. Values from Arrow and Parquet may have more digits than their type."""
        return self.kind == "DECIMAL"

    @cached_property
    def is_numeric(self) -> bool:
        return self.bits > 0 or self.kind in (*_FLOATS, "DECIMAL")

    @cached_property
    def fits_64_bits(self) -> bool:
        """Tells whether values are whole numbers or decimals that DuckDB keeps in 64 bits.

        DuckDB adds up such values exactly in 128 bits, which 2^63 values do not fill. For wider decimals, DuckDB 2.0
        may raise. A sum of floats depends on the order of rows.
        """
        return 0 < self.bits <= 64 or (self.kind == "DECIMAL" and self.digits <= _NARROW_DIGITS)

    # Other kinds, by name.

    @cached_property
    def is_boolean(self) -> bool:
        return self.kind == "BOOLEAN"

    @cached_property
    def is_text(self) -> bool:
        """Tells whether the type is VARCHAR. A collation, which may make texts equal, is a fact of a column."""
        return self.kind == "VARCHAR"

    @cached_property
    def has_any_letters(self) -> bool:
        """Tells whether the text of a value may have any letters, also a slash, as for VARCHAR and ENUM."""
        return self.kind in ("VARCHAR", "ENUM")

    @cached_property
    def is_enum(self) -> bool:
        return self.kind == "ENUM"

    @cached_property
    def is_moment(self) -> bool:
        """Tells whether the type is DATE or TIMESTAMP. Bins and periods of these depend on no time zone."""
        return self.kind in ("DATE", "TIMESTAMP")

    @cached_property
    def is_dated(self) -> bool:
        return self.kind in ("DATE", *_TIMESTAMPS, _INSTANT)

    @cached_property
    def has_parts(self) -> bool:
        return self.kind in ("LIST", "STRUCT", "MAP", "UNION")

    @cached_property
    def is_nested(self) -> bool:
        return self.has_parts or self.kind in ("VARIANT", "GEOMETRY")

    @cached_property
    def lists_its_values(self) -> bool:
        return self.kind in ("BOOLEAN", "ENUM")

    @cached_property
    def takes_date_functions(self) -> bool:
        return self.kind not in ("INTERVAL", "TIME", _ZONED_TIME, "TIME_NS")

    @cached_property
    def has_infinity(self) -> bool:
        return self.is_float or self.is_dated

    # Lengths.

    @cached_property
    def is_short(self) -> bool:
        """Tells whether each value has few bytes, so that DuckDB may hold it for many joined rows.

        Copies of a few long texts of one person could fill the memory, so that the statement fails after its charge.
        """
        short = ("BOOLEAN", *_FLOATS, "DECIMAL", "UUID", "DATE", "INTERVAL", "ENUM", "TIME", "TIME_NS", _ZONED_TIME)
        return self.bits > 0 or self.kind in (*short, *_TIMESTAMPS, _INSTANT)

    @cached_property
    def has_fixed_size(self) -> bool:
        """Tells whether a worker gets few bytes for each value. An ENUM is sent as its label, of any length."""
        return self.is_plain and not self.has_any_letters

    @cached_property
    def length_function(self) -> str:
        """Returns DuckDB's function that counts the bytes of a value, "" if the type has no such function."""
        return _LENGTHS.get(self.kind, "")

    @cached_property
    def is_shortened(self) -> bool:
        """Tells whether a long value is replaced by its SHA-256: VARCHAR and BLOB, which consist of bytes alone."""
        return self.kind in ("VARCHAR", "BLOB")

    # Equal values.

    @cached_property
    def has_one_form(self) -> bool:
        """Tells whether equal values have equal bits and equal texts, and different values have different texts.

        Then a constraint, a GROUP BY and a key of texts distinguish the same values. Other types do not have one form:
        a zero may have a sign, a date may have no text, and a decimal may have more digits than its type.
        """
        return self.bits > 0 or self.kind in ("BOOLEAN", "VARCHAR", "UUID", "DATE", "ENUM")

    @cached_property
    def is_own_key(self) -> bool:
        """Tells whether PRIMARY KEY and UNIQUE distinguish the same values as GROUP BY, whatever the collation."""
        return 0 < self.bits <= 64 or self.kind == "DATE"

    @cached_property
    def is_key(self) -> bool:
        """Tells whether keys of the type can be compared. Floats cannot (-0 = 0), nor nested types except GEOMETRY."""
        return bool(self.kind) and not self.is_float and (not self.is_nested or self.kind == "GEOMETRY")

    @cached_property
    def is_comparable(self) -> bool:
        """Tells whether DuckDB compares two stored values without a cast: for all types except nested ones."""
        return bool(self.kind) and not self.is_nested

    @cached_property
    def is_grouped_as_compared(self) -> bool:
        """Tells whether GROUP BY puts two values into one group if `=` finds them equal."""
        return bool(self.kind) and not self.mentions("UNION", "VARIANT", "MAP", "JSON", "GEOMETRY")

    @cached_property
    def form_apart(self) -> str:
        """Returns the type to cast to, so that equal values of different forms become different, or "".

        For example, 0 equals -0, and a month equals thirty days. DuckDB's sort may replace one form by the other.
        """
        return _APART.get(self.kind, "")

    @cached_property
    def has_one_hash(self) -> bool:
        """Tells whether equal values have equal hashes in DuckDB. Texts do not if a collation makes them equal."""
        return self.bits > 0 or self.kind in ("UUID", "DATE", *_TIMESTAMPS, _INSTANT, "DECIMAL")

    @cached_property
    def has_tied_hashes(self) -> bool:
        """Tells whether DuckDB gives some different values one hash by design, such as 0 and -0, or wide numbers."""
        return self.bits > 64 or self.kind in ("DECIMAL", "UUID", *_FLOATS)

    # Privacy units and features of their rows.

    @cached_property
    def is_unit(self) -> bool:
        """Tells whether a privacy unit may have the type: a group has exactly the values that equal one value.

        Nested types are left out. So are INTERVAL, where a month equals thirty days, and a time with a zone, since
        Arrow drops the zone. DuckDB holds the unit for each row, so the type must be `is_short` or `is_shortened`.
        """
        carried = ("BOOLEAN", *_FLOATS, "DECIMAL", "VARCHAR", "BLOB", "UUID", "DATE", "TIME", "TIME_NS", "ENUM")
        return self.bits > 0 or self.kind in (*carried, *_TIMESTAMPS, _INSTANT)

    @cached_property
    def is_unit_part(self) -> bool:
        """Tells whether a unit of the type may be stored outside of its table: with a period, or in a stream's file."""
        return 0 < self.bits <= 64 or self.kind in ("VARCHAR", "UUID")

    @cached_property
    def kept_unit(self) -> str:
        """Returns the type of units in a stream's file. They are equal there exactly if they are equal in the table."""
        return "VARCHAR" if self.kind == "UUID" else self.name

    @cached_property
    def is_engine_unit(self) -> bool:
        """Tells whether equal units have equal bytes in DuckDB and in another engine, so that each has one bucket."""
        return (self.is_integer and self.is_signed) or self.kind in ("VARCHAR", "DATE", "BOOLEAN", "DECIMAL")

    @cached_property
    def is_feature(self) -> bool:
        """Tells whether a feature may have the type: equal values may differ only in the sign of 0 or of a NaN.

        INTERVAL is left out, since a month equals thirty days but is another value.
        """
        return self.is_plain and self.kind != "INTERVAL"

    # Types that an expression may read, and the transport of values.

    @cached_property
    def is_plain(self) -> bool:
        """Tells whether expressions may compute with the type.

        For other types, a row may make DuckDB raise an error that TRY does not catch. CASE over an ARRAY fails if rows
        take different branches. An error of ICU over a TIMESTAMP WITH TIME ZONE makes the whole database unusable.
        """
        return self.travels or self.goes_as_text

    @cached_property
    def travels(self) -> bool:
        """Tells whether Arrow carries values to a worker and back without a change."""
        arrow = ("BOOLEAN", *_FLOATS, "DECIMAL", "VARCHAR", "DATE")
        return 0 < self.bits <= 64 or self.kind in (*arrow, *_TIMESTAMPS)

    @cached_property
    def goes_as_text(self) -> bool:
        """Tells whether a worker gets the text of a value, and casts the text back."""
        return self.bits > 64 or self.kind in ("UUID", "TIME", "INTERVAL", "ENUM")

    @cached_property
    def arrow(self) -> str:
        """Returns the name of Arrow's type that holds values unchanged, "" for other types and for DECIMAL."""
        return _ARROW.get(self.kind, "")

    @cached_property
    def is_carried(self) -> bool:
        """Tells whether values can be copied to another database without a change. All types of units allow this."""
        return self.is_unit

    @cached_property
    def is_carried_as_text(self) -> bool:
        """Tells whether values are copied to another database as texts. A TIME goes as a text only to a worker."""
        return self.bits > 64 or self.kind in ("UUID", "ENUM")

    @cached_property
    def converts(self) -> bool:
        """Tells whether TRY_CAST of any value to any type raises no error.

        A cast of a date or of bits may raise. So may a cast of a decimal from Arrow, with more digits than its type.
        """
        return self.bits > 0 or self.kind in ("VARCHAR", "BOOLEAN", *_FLOATS, "ENUM")

    # Texts.

    @cached_property
    def calendar(self) -> tuple[str, str] | None:
        """Returns the first and last finite date or time that dpduck writes as a text. None if every value is written.

        DuckDB raises, or becomes unusable, if it writes a date far outside of these limits. Comparisons are safe.
        """
        return _CALENDARS.get(self.kind)

    @cached_property
    def has_canonical_text(self) -> bool:
        """Tells whether equal values have one text, or NULL for dates without a text (`calendar`)."""
        return self.is_feature and not self.is_float

    @cached_property
    def is_selectable(self) -> bool:
        """Tells whether private keys may have the type. They are selected by their canonical texts, with noise.

        TIMESTAMP_NS is left out, since few of its values have a text.
        """
        return self.has_canonical_text and self.kind != "TIMESTAMP_NS"

    @cached_property
    def has_labels(self) -> bool:
        """Tells whether a value's text can be cast back to it. This fails for VARIANT and GEOMETRY, even nested."""
        return not self.mentions("VARIANT", "GEOMETRY")

    @cached_property
    def is_listable(self) -> bool:
        return self.is_numeric or self.kind in ("DATE", "TIMESTAMP", "VARCHAR", "BOOLEAN", "UUID", "TIME", "ENUM")

    @cached_property
    def is_told_by_label(self) -> bool:
        """Tells whether the code of a listed value determines the value. Floats are left out, since 0 equals -0.

        A condition is evaluated once per label. Wide numbers, UUID and TIME, which are sent as texts, are left out too.
        """
        kinds = ("VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP", "DECIMAL", "ENUM")
        return 0 < self.bits <= 64 or self.kind in kinds

    @cached_property
    def is_released_as_text(self) -> bool:
        """Tells whether a released table gets its labels as texts, and casts them, since Arrow lacks the type."""
        return self.bits > 64 or self.kind in ("VARCHAR", "UUID", "TIME")

    @cached_property
    def is_read_by_programs(self) -> bool:
        """Tells whether most programs can read the type in a file. Other types are written as texts or decimals."""
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
    """Returns the smallest signed type of at most 64 bits that holds all whole numbers from -bound to bound.

    >>> integer_name(127), integer_name(128)
    ('TINYINT', 'SMALLINT')
    """
    return next(name for name, bits in _SIGNED.items() if bits <= 64 and bound < 1 << bits - 1)
