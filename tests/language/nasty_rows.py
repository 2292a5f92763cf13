"""A table of extreme values of every type, and random conditions over it."""

from __future__ import annotations

import random

import duckdb

TYPES = {
    "t": "TINYINT", "ut": "UTINYINT", "i": "INTEGER", "b": "BIGINT", "ub": "UBIGINT", "h": "HUGEINT",
    "f": "FLOAT", "e": "DOUBLE", "n": "DECIMAL(10,2)", "m": "DECIMAL(38,10)", "s": "VARCHAR", "o": "BOOLEAN",
    "d": "DATE", "k": "TIMESTAMP", "z": "TIMESTAMP WITH TIME ZONE", "c": "TIME", "v": "INTERVAL",
    "g": "ENUM('low', 'mid')", "u": "UUID", "x": "BLOB",
}  # fmt: skip
_NUMBERS = ("0", "1", "-1", "7")
VALUES = {
    "t": ("-128", "127", *_NUMBERS),
    "ut": ("0", "255", "3"),
    "i": ("-2147483648", "2147483647", *_NUMBERS),
    "b": ("-9223372036854775808", "9223372036854775807", *_NUMBERS),
    "ub": ("0", "18446744073709551615", "5"),
    "h": ("-170141183460469231731687303715884105728", "170141183460469231731687303715884105727", *_NUMBERS),
    "f": ("nan", "inf", "-inf", "3.4e38", "1e-45", "-0.0", *_NUMBERS),
    "e": ("nan", "inf", "-inf", "1.7e308", "5e-324", "-0.0", "0.5", *_NUMBERS),
    "n": ("99999999.99", "-99999999.99", "0.01", *_NUMBERS),
    "m": ("9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999", *_NUMBERS),
    "s": ("", "a", "note 1", "12", "1e400", "2024-02-30", "[", "%", "\\", "ä\u0301", "x" * 300, "true", "\U0001f600"),
    "o": ("true", "false"),
    "d": ("infinity", "-infinity", "5877642-06-25 (BC)", "5881580-07-10", "0001-01-01", "2024-02-29"),
    "k": ("infinity", "-infinity", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806", "2024-02-29 23:59:59"),
    "z": ("infinity", "294247-01-10 04:00:54.775806+00", "2024-02-29 23:59:59+05"),
    "c": ("00:00:00", "24:00:00", "12:34:56.789"),
    "v": ("1 month", "2147483647 months", "-2147483648 days", "9223372036854775807 microseconds", "1 day -1 day"),
    "g": ("low", "mid"),
    "u": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "x": ("", "\\xFF\\x00", "abc"),
}
LITERALS = (
    "0", "1", "-1", "2", "300", "-129", "2147483648", "999999999", "9223372036854775807", "1.5", "1e400", "1e-400",
    "99999999999999999999999999999999999999", "0.1234567890123456789", "'a'", "''", "'12'", "'1e400'", "'nan'", "'low'",
    "'none'", "'true'", "'2024-02-29'", "'2024-02-30'", "DATE '2024-02-29'", "TIMESTAMP '2024-02-29 00:00:00'",
    "DATE 'infinity'", "INTERVAL 1 DAY", "INTERVAL '2147483647' MONTH", "NULL", "true", "TIME '12:00:00'",
)  # fmt: skip
_CASTS = ("TINYINT", "UTINYINT", "INTEGER", "BIGINT", "UBIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL(5,2)",
          "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP", "TIME", "INTERVAL", "DECIMAL(38,37)")  # fmt: skip
_OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "||", "&", "|", "<<", ">>")
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
_UNARY = (
    "abs", "ceil", "floor", "round", "trunc", "sign", "sqrt", "ln", "log", "log2", "log10", "exp", "cbrt", "sin",
    "acos",
    "isnan", "isinf", "isfinite", "even", "signbit", "upper", "lower", "length", "strlen", "trim", "reverse", "unicode",
    "ascii", "strip_accents", "year", "month", "day", "dayofweek", "dayofyear", "weekofyear", "week", "quarter", "hour",
    "minute", "second", "isodow", "decade", "century", "dayname", "monthname", "last_day",
)  # fmt: skip
_BINARY = (
    "round", "trunc", "pow", "log", "gcd", "lcm", "xor", "atan2", "left", "right", "substring", "concat", "starts_with",
    "ends_with", "contains", "strpos", "prefix", "suffix", "trim", "ltrim", "nullif", "coalesce", "greatest", "least",
    "date_add", "mod",
)  # fmt: skip
_PARTS = ("year", "month", "week", "epoch", "microsecond", "millennium", "yearweek", "dow", "era", "timezone", "weeks")


def create(connection: duckdb.DuckDBPyConnection, name: str = "nasty") -> None:
    """Creates rows of extreme values. Each column goes through its values, and NULL."""
    columns = ", ".join(f"{column} {type_name}" for column, type_name in TYPES.items())
    connection.execute(f"CREATE TABLE {name} ({columns})")
    for row in range(14):
        texts = [(*VALUES[column], None)[row % (len(VALUES[column]) + 1)] for column in TYPES]
        connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(texts))})", texts)


class Writer:
    """Writes random SQL over the table's columns. Most texts bind, and all texts parse."""

    def __init__(self, source: random.Random) -> None:
        self.source = source

    def condition(self, depth: int) -> str:
        """Writes a condition, or another expression in its place. One in three repeats a part of itself."""
        value, choose = self.value, self.source.choice
        if depth > 1 and self.source.randrange(3) == 0:
            again = value(depth - 1)
            return " OR ".join(f"{again} {choose(COMPARISONS)} {value(0)}" for _ in range(2))
        kind = self.source.randrange(14) if depth > 0 else 0
        if kind == 4:
            return f"({self.condition(depth - 1)} {choose(('AND', 'OR'))} {self.condition(depth - 1)})"
        if kind == 5:
            return f"NOT ({self.condition(depth - 1)})"
        if kind == 6:
            return f"{value(depth)} IN ({value(0)}, {value(0)}, {self.literal()})"
        if kind == 7:
            return f"{value(depth)} BETWEEN {value(0)} AND {value(0)}"
        if kind == 8:
            return f"{value(depth)} {choose(('LIKE', 'ILIKE', 'GLOB', 'SIMILAR TO'))} '%a_['"
        if kind == 9:
            return f"regexp_matches({value(depth)}, '{choose(('a+', '^$', '.*[0-9]'))}')"
        if kind == 10:
            return f"{value(depth)} IS {choose(('NULL', 'NOT NULL', 'TRUE', 'NOT FALSE'))}"
        if kind in (11, 12):
            return value(depth) if kind == 11 else f"CAST({self.column()} AS BOOLEAN)"
        return f"{value(depth)} {choose(COMPARISONS)} {value(depth)}"

    def value(self, depth: int) -> str:
        """An expression of some type."""
        kind = self.source.randrange(13) if depth > 0 else self.source.randrange(3)
        if kind <= 3:
            return self.column() if kind % 3 else self.literal()
        one, two, choose = self.value(depth - 1), self.value(depth - 1), self.source.choice
        if kind == 4:
            return f"({one} {choose(_OPERATORS)} {two})"
        if kind == 5:
            return f"CAST({one} AS {choose(_CASTS)})"
        if kind == 6:
            return f"{choose(_UNARY)}({one})"
        if kind == 7:
            return f"{choose(_BINARY)}({one}, {two})"
        if kind == 8:
            return f"CASE WHEN {self.condition(depth - 1)} THEN {one} ELSE {two} END"
        if kind == 9:
            part = choose(_PARTS)
            difference = f"date_diff('{part}', {one}, d)"
            return choose((f"date_part('{part}', {one})", f"date_trunc('{part}', {one})", difference))
        if kind == 10:
            replaced = (f"replace({one}, 'a', 'bb')", f"regexp_replace({one}, 'a', 'b')")
            return choose((*replaced, f"split_part({one}, 'a', {two})", f"regexp_extract({one}, 'a(b?)', 1)"))
        if kind == 11:
            return choose((f"strftime({one}, '%Y-%j %f')", f"make_date({one}, {two}, {two})", f"-({one})"))
        return f"{one}::{choose(_CASTS)}"

    def column(self) -> str:
        """One of the table's columns."""
        return self.source.choice(tuple(TYPES))

    def literal(self) -> str:
        """Writes a literal of any type. Some literals are out of every range."""
        return self.source.choice(LITERALS)
