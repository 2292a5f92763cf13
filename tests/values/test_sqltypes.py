"""Facts of DuckDB's types: each is tried on DuckDB, or written here for every type; no other file has a list."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from dpduck.kernel.columns.stored import text_sql, without_sign
from dpduck.values.sqltypes import NAMES, SqlType, decimal_name, integer_name, sql_type

PACKAGE = Path(__file__).resolve().parent.parent.parent / "dpduck"
TABLE = "dpduck/values/sqltypes.py"
WITH_PARTS = (
    "DECIMAL(4,1)", "DECIMAL(9,2)", "DECIMAL(18,3)", "DECIMAL(38,10)", "ENUM('a', 'b/c', 'it''s (')", "INTEGER[]",
    "INTEGER[3]", "DECIMAL(9,2)[]", "ENUM('a')[]", "STRUCT(a INTEGER, b VARCHAR)", "MAP(INTEGER, VARCHAR)",
    "UNION(a INTEGER, b VARCHAR)", "STRUCT(v VARIANT)",
)  # fmt: skip
ALL = (*NAMES, *WITH_PARTS)
UNKNOWN = ("", "what", '"NULL"', "VARCHAR(3)", "DECIMAL", "ENUM", "TINY", "DECIMAL(9,2", "ENUM('a'", "decimal(9,2)")
INTEGERS = ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"]
WIDE = ["HUGEINT", "UHUGEINT"]
DECIMALS = [name for name in WITH_PARTS if name.startswith("DECIMAL") and name.endswith(")")]
ENUMS, NESTED = [WITH_PARTS[4]], list(WITH_PARTS[5:])
STAMPS = ["TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"]
ZONED, TIMETZ = "TIMESTAMP WITH TIME ZONE", "TIME WITH TIME ZONE"
FLOATS = ["FLOAT", "DOUBLE"]
NUMBERS = [*INTEGERS, *WIDE, *FLOATS, *DECIMALS]
NARROW = [*INTEGERS, *DECIMALS[:3]]
TRAVEL = ["BOOLEAN", *INTEGERS, *FLOATS, *DECIMALS, "VARCHAR", "DATE", *STAMPS]
AS_TEXT = [*WIDE, "UUID", "TIME", "INTERVAL", *ENUMS]
UNITS = ["BOOLEAN", *INTEGERS, *WIDE, *FLOATS, *DECIMALS, "VARCHAR", "BLOB", "UUID", "DATE", "TIME", "TIME_NS"]
UNITS += [*STAMPS, ZONED, *ENUMS]
TEXTS = ["BOOLEAN", *INTEGERS, *WIDE, *DECIMALS, "VARCHAR", "UUID", "DATE", "TIME", *STAMPS, *ENUMS]
HAVE: dict[str, list[str]] = {
    "is_whole": [*INTEGERS, *WIDE],
    "is_integer": INTEGERS,
    "is_signed": [*INTEGERS[:4], "HUGEINT"],
    "is_float": FLOATS,
    "is_decimal": DECIMALS,
    "is_numeric": NUMBERS,
    "fits_64_bits": NARROW,
    "is_boolean": ["BOOLEAN"],
    "is_text": ["VARCHAR"],
    "has_any_letters": ["VARCHAR", *ENUMS],
    "is_enum": ENUMS,
    "is_moment": ["DATE", "TIMESTAMP"],
    "is_dated": ["DATE", *STAMPS, ZONED],
    "has_parts": NESTED,
    "is_nested": [*NESTED, "VARIANT", "GEOMETRY"],
    "lists_its_values": ["BOOLEAN", *ENUMS],
    "takes_date_functions": [name for name in ALL if name not in ("INTERVAL", "TIME", "TIME_NS", TIMETZ)],
    "has_infinity": [*FLOATS, "DATE", *STAMPS, ZONED],
    "is_short": [*(name for name in UNITS if name not in ("VARCHAR", "BLOB")), "INTERVAL", TIMETZ],
    "has_fixed_size": [name for name in (*TRAVEL, *AS_TEXT) if name not in ("VARCHAR", *ENUMS)],
    "is_shortened": ["VARCHAR", "BLOB"],
    "has_one_form": ["BOOLEAN", *INTEGERS, *WIDE, "VARCHAR", "UUID", "DATE", *ENUMS],
    "is_own_key": [*INTEGERS, "DATE"],
    "is_key": [name for name in ALL if name not in (*FLOATS, *NESTED, "VARIANT")],
    "is_comparable": [name for name in ALL if name not in (*NESTED, "VARIANT", "GEOMETRY")],
    "is_grouped_as_compared": [name for name in ALL if not re.match("UNION|VARIANT|MAP|JSON|GEOM|STRUCT.v", name)],
    "has_one_hash": [*INTEGERS, *WIDE, "UUID", "DATE", *STAMPS, ZONED, *DECIMALS],
    "has_tied_hashes": [*WIDE, "UUID", *FLOATS, *DECIMALS],
    "is_unit": UNITS,
    "is_carried": UNITS,
    "is_carried_as_text": [*WIDE, "UUID", *ENUMS],
    "is_unit_part": [*INTEGERS, "VARCHAR", "UUID"],
    "is_engine_unit": [*INTEGERS[:4], "VARCHAR", "DATE", "BOOLEAN", *DECIMALS],
    "is_feature": [name for name in (*TRAVEL, *AS_TEXT) if name != "INTERVAL"],
    "is_plain": [*TRAVEL, *AS_TEXT],
    "travels": TRAVEL,
    "goes_as_text": AS_TEXT,
    "converts": ["BOOLEAN", *INTEGERS, *WIDE, *FLOATS, "VARCHAR", *ENUMS],
    "has_canonical_text": TEXTS,
    "is_selectable": [name for name in TEXTS if name != "TIMESTAMP_NS"],
    "has_labels": [name for name in ALL if name not in ("VARIANT", "GEOMETRY", "STRUCT(v VARIANT)")],
    "is_listable": [
        "BOOLEAN",
        *INTEGERS,
        *WIDE,
        *FLOATS,
        *DECIMALS,
        "DATE",
        "TIMESTAMP",
        "TIME",
        "VARCHAR",
        "UUID",
        *ENUMS,
    ],
    "is_told_by_label": [*INTEGERS, "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP", *DECIMALS, *ENUMS],
    "is_released_as_text": [*WIDE, "VARCHAR", "UUID", "TIME"],
    "is_read_by_programs": ["BOOLEAN", *INTEGERS, *FLOATS, *DECIMALS, "VARCHAR", "DATE", "TIME", "TIMESTAMP", ZONED],
}
"""For each property the types that have it, of all that DuckDB has and some with parts."""


def test_every_type_has_the_properties_that_are_written_here() -> None:
    """The table of each property and each type. What is not known has none, but those of a value without parts."""
    tells = {
        name for name, value in vars(SqlType).items() if isinstance(value, cached_property) and name.startswith(_TELLS)
    }
    assert set(HAVE) == tells
    found = {fact: [name for name in ALL if getattr(sql_type(name), fact)] for fact in HAVE}
    assert found == {fact: [name for name in ALL if name in set(names)] for fact, names in HAVE.items()}
    beside = {"takes_date_functions", "has_labels", "is_key", "is_comparable", "is_grouped_as_compared"}
    for name in UNKNOWN:
        assert {fact for fact in HAVE if getattr(sql_type(name), fact)} <= beside, name
    assert not any(getattr(sql_type(""), fact) for fact in ("is_key", "is_comparable", "is_grouped_as_compared"))


FOLLOWS = {
    "is_unit": ("is_grouped_as_compared", "is_comparable", "has_labels"),
    "is_carried_as_text": ("is_carried", "has_one_form", "has_labels"),
    "is_unit_part": ("is_unit", "has_one_form"),
    "is_engine_unit": ("is_unit", "is_key"),
    "is_own_key": ("has_one_form", "has_one_hash", "is_key"),
    "is_feature": ("is_plain", "is_grouped_as_compared"),
    "goes_as_text": ("is_plain", "has_labels"),
    "is_selectable": ("has_canonical_text", "has_labels", "is_key"),
    "is_listable": ("has_labels", "is_grouped_as_compared"),
    "is_told_by_label": ("is_listable", "has_canonical_text"),
    "is_released_as_text": ("is_listable", "has_canonical_text"),
    "is_shortened": ("length_function", "is_unit"),
}
"""For each property those that it needs, whatever the type."""


@pytest.mark.parametrize("fact", FOLLOWS)
def test_properties_that_need_others_have_them(fact: str) -> None:
    """A type that is new, or has a property more, has all that this property needs."""
    missing = [(name, need) for name in ALL for need in FOLLOWS[fact] if has(name, fact) and not has(name, need)]
    assert missing == []


def has(name: str, fact: str) -> bool:
    return bool(getattr(sql_type(name), fact))


def test_units_are_short_beside_rows_and_tried() -> None:
    """A unit stands beside each of its rows: a long one is shortened. Values of every type of rows are tried below."""
    units = [name for name in ALL if has(name, "is_unit")]
    assert [name for name in units if not (has(name, "is_short") or has(name, "is_shortened"))] == []
    tried = ("is_unit", "is_plain", "is_listable", "is_carried", "is_feature")
    assert {name for name in ALL if any(has(name, fact) for fact in tried)} <= set(VALUED)
    assert [name for name in ALL if has(name, "travels") and has(name, "goes_as_text")] == []


_TELLS = ("is_", "has_", "fits_", "lists_", "takes_", "travels", "goes_", "converts")


@pytest.fixture(scope="module")
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database."""
    with duckdb.connect(":memory:") as connection:
        yield connection


def test_names_are_those_of_duckdb(cursor: duckdb.DuckDBPyConnection) -> None:
    """DuckDB writes each name so, and has no other type without parts, but for two of 2.0 that are no known types."""
    for name in ALL:
        if name in ("VARIANT", "GEOMETRY") or "VARIANT" in name:
            continue  # not in every version
        ((written,),) = cursor.execute(f"SELECT typeof(CAST(NULL AS {name}))").fetchall()
        ((_, described, *_),) = cursor.execute(f"DESCRIBE SELECT CAST(NULL AS {name}) AS x").fetchall()
        assert (written, described) in ((name, name), ('"NULL"', name)), name
    known = cursor.execute("SELECT DISTINCT logical_type FROM duckdb_types() WHERE database_name = 'system'").fetchall()
    parts = {"DECIMAL", "ENUM", "LIST", "ARRAY", "STRUCT", "MAP", "UNION"}
    none = {"ANY", "INVALID", "SQLNULL", "UNKNOWN", '"NULL"', "NULL", "TYPE", "STRING_LITERAL", "INTEGER_LITERAL"}
    others = {str(name) for (name,) in known} - parts - none - set(NAMES)
    assert others <= {"TIMESTAMPTZ_NS", "TUPLE"}
    asks = ("is_plain", "is_unit", "is_key", "is_comparable", "is_grouped_as_compared", "is_listable")
    assert [(name, ask) for name in sorted(others) for ask in asks if getattr(sql_type(name), ask)] == []


def test_whole_numbers_have_these_ranges(cursor: duckdb.DuckDBPyConnection) -> None:
    """The ends of each type are values of it, and what is beyond is none; a DECIMAL of these digits has room."""
    for kind in (sql_type(name) for name in HAVE["is_whole"]):
        for end, inside in ((kind.least, True), (kind.most, True), (kind.least - 1, False), (kind.most + 1, False)):
            ((found,),) = cursor.execute(f"SELECT TRY_CAST('{end}' AS {kind.name})").fetchall()
            assert (found == end) is inside, (kind.name, end)
        assert len(str(kind.most)) == kind.digits
        assert kind.is_integer == (kind.bits <= 64)
    assert [integer_name(bound) for bound in (127, 128, 32_768, 1 << 31)] == [
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
    ]


def test_decimals_of_18_digits_are_kept_in_64_bits(cursor: duckdb.DuckDBPyConnection) -> None:
    """DuckDB says so of its storage, and adds up what fits 64 bits in 128 bits, or as a DECIMAL(38, scale)."""
    for digits in (1, 4, 9, 18, 19, 38):
        kind = sql_type(decimal_name(digits, 1))
        assert (kind.digits, kind.scale, kind.name) == (digits, 1, f"DECIMAL({digits},1)")
        assert kind.fits_64_bits == (digits <= 18)
        ((made,),) = cursor.execute(f"SELECT typeof(sum(CAST(NULL AS {kind.name})))").fetchall()
        assert made == decimal_name(38, 1)
    for name in INTEGERS:
        ((made,),) = cursor.execute(f"SELECT typeof(sum(CAST(NULL AS {name})))").fetchall()
        assert made == "HUGEINT"


# Values.

RANDOM = random.Random(48)  # noqa: S311  # values of a test


def texts_of(kind: SqlType) -> list[str]:
    """Texts of values of a type: some that are awkward, and some at random. Those that are no values become NULL."""
    if kind.is_whole:
        drawn = [RANDOM.randint(kind.least, kind.most) >> RANDOM.randint(0, kind.bits) for _ in range(60)]
        return [*map(str, (kind.least, kind.most, 0, 1, 7)), *(str(max(number, kind.least)) for number in drawn)]
    if kind.is_decimal:
        most = 10 ** (kind.digits - kind.scale) - 1
        return ["0", "-0.1", str(most), str(-most), *(f"{RANDOM.randint(-most, most)}.{n % 10}" for n in range(60))]
    if kind.is_float:
        return ["0", "-0.0", "nan", "-nan", "inf", "-inf", "1e-30", *(repr(RANDOM.gauss(0, 1e9)) for _ in range(60))]
    if kind.is_boolean:
        return ["true", "false"]
    if kind.is_enum:
        return ["a", "b/c", "it's ("]
    if kind.kind == "UUID":
        return [f"{RANDOM.getrandbits(128):032x}" for _ in range(60)] + ["0" * 32, "f" * 32]
    if kind.kind == "INTERVAL":
        return ["1 month", "30 days", "720 hours", "1 day", "24 hours", "0 days", "2147483647 months"]
    if kind.is_dated or kind.kind.startswith("TIME"):
        days = [
            f"{RANDOM.randint(1, 9999):04}-{RANDOM.randint(1, 12):02}-{RANDOM.randint(1, 28):02}" for _ in range(60)
        ]
        hours = [f"{RANDOM.randint(0, 23):02}:{RANDOM.randint(0, 59):02}:{RANDOM.random() * 59:09.6f}" for _ in days]
        ends = ["infinity", "-infinity", "290309-12-22 (BC) 00:00:00", "5881580-07-10", "24:00:00", "23:00:00-01"]
        return [*days, *hours, *(f"{day} {hour}" for day, hour in zip(days, hours, strict=True)), *ends]
    return ["", "a", "A", "1", "01", "a/b", "\u00e4", "a\u0308", "x" * 300, *(str(RANDOM.random()) for _ in range(60))]


def filled(cursor: duckdb.DuckDBPyConnection, kind: SqlType) -> None:
    """Makes a table v of values of a type, with NULL."""
    cursor.execute(f"CREATE OR REPLACE TABLE v (x {kind.name})")
    cursor.executemany(f"INSERT INTO v SELECT TRY_CAST($1 AS {kind.name})", [[text] for text in texts_of(kind)])
    cursor.execute("INSERT INTO v SELECT x FROM v UNION ALL SELECT NULL")


VALUED = [name for name in ALL if name not in (*NESTED, "VARIANT", "GEOMETRY", "JSON", "BIT", "BIGNUM")]
UNEQUAL = "SELECT count(*) FROM v AS a, v AS b WHERE {}"


@pytest.mark.parametrize("name", VALUED)
def test_equal_values_are_one_where_a_property_says_so(cursor: duckdb.DuckDBPyConnection, name: str) -> None:
    """Values of each type are compared in pairs: what a property says of forms, texts, hashes and groups is so."""
    kind = sql_type(name)
    filled(cursor, kind)

    def pairs(condition: str) -> int:
        ((found,),) = cursor.execute(UNEQUAL.format(condition)).fetchall()
        return int(found)

    ((rows,),) = cursor.execute("SELECT count(x) FROM v").fetchall()
    assert rows >= 4, "there are values"
    if kind.has_one_form:
        assert pairs("a.x = b.x AND CAST(a.x AS VARCHAR) <> CAST(b.x AS VARCHAR)") == 0
        assert pairs("a.x <> b.x AND CAST(a.x AS VARCHAR) = CAST(b.x AS VARCHAR)") == 0
    if kind.has_canonical_text:
        one, other = text_sql("a.x", name), text_sql("b.x", name)
        assert pairs(f"a.x = b.x AND ({one}) IS DISTINCT FROM ({other})") == 0
        assert pairs(f"a.x <> b.x AND ({one}) = ({other})") == 0
        if kind.has_labels:
            back = f"TRY_CAST({text_sql('x', name)} AS {name})"
            assert cursor.execute(f"SELECT count(*) FROM v WHERE {back} <> x").fetchall() == [(0,)]
    if kind.has_one_hash:
        assert pairs("a.x = b.x AND hash(a.x) <> hash(b.x)") == 0
    if kind.is_unit or kind.is_key or kind.is_grouped_as_compared:
        first = "(SELECT min(other.rowid) FROM v AS other WHERE other.x = v.x)"
        classes = cursor.execute(f"SELECT count(DISTINCT {first}) FROM v WHERE x IS NOT NULL").fetchall()
        groups = cursor.execute("SELECT count(*) FROM (SELECT x FROM v WHERE x IS NOT NULL GROUP BY x)").fetchall()
        assert classes == groups
    if kind.form_apart:
        same = f"CAST(a.x AS {kind.form_apart}) <> CAST(b.x AS {kind.form_apart})"
        assert pairs(f"a.x = b.x AND {same}") > 0, "equal values differ, and are apart"


def test_an_interval_is_no_unit_and_no_feature(cursor: duckdb.DuckDBPyConnection) -> None:
    """A month and thirty days are equal, and have two texts."""
    found = cursor.execute("SELECT CAST(a AS VARCHAR) FROM (VALUES (INTERVAL 1 MONTH), (INTERVAL 30 DAY)) AS t(a)")
    assert found.fetchall() == [("1 month",), ("30 days",)]
    assert cursor.execute("SELECT INTERVAL 1 MONTH = INTERVAL 30 DAY").fetchall() == [(True,)]


@pytest.mark.parametrize("name", [name for name in VALUED if sql_type(name).travels or sql_type(name).is_carried])
def test_values_are_the_same_behind_arrow(cursor: duckdb.DuckDBPyConnection, name: str) -> None:
    """What travels goes as it is, what is carried may go as a text: the same comes back, but for forms of NaN."""
    kind = sql_type(name)
    filled(cursor, kind)
    sent = "CAST(x AS VARCHAR)" if kind.is_carried_as_text and not kind.travels else "x"
    table = cursor.sql(f"SELECT rowid AS n, {sent} AS x FROM v").to_arrow_table()
    if kind.arrow and kind.travels:
        expected = pa.type_for_alias(kind.arrow)
        assert table.schema.field("x").type in (expected, pa.string() if kind.is_text else expected)
    cursor.register("sent", table)
    changed = f"CAST(sent.x AS {name}) IS DISTINCT FROM v.x"
    bits = "" if not kind.is_float else " OR (v.x = 0 AND signbit(v.x) <> signbit(sent.x))"
    found = cursor.execute(f"SELECT count(*) FROM v JOIN sent ON sent.n = v.rowid WHERE {changed}{bits}").fetchall()
    cursor.unregister("sent")
    assert found == [(0,)]


@pytest.mark.parametrize("name", [name for name in VALUED if sql_type(name).converts])
def test_a_value_that_converts_is_cast_without_raising(cursor: duckdb.DuckDBPyConnection, name: str) -> None:
    """TRY_CAST to every type gives a value or NULL, for every value."""
    filled(cursor, sql_type(name))
    rows, tried = cursor.execute("SELECT count(x) FROM v").fetchall()[0][0], dict[str, int]()
    for other in VALUED:
        try:
            cursor.execute(f"PREPARE tried AS SELECT count(TRY_CAST(x AS {other})) FROM v")
        except duckdb.BinderException:
            continue  # there is no such cast, whatever the values are
        tried[other] = cursor.execute("EXECUTE tried").fetchall()[0][0]
    assert tried[name] == rows > 0, "to its own type every value is cast"
    assert all(0 <= count <= rows for count in tried.values())


@pytest.mark.parametrize("name", [name for name in VALUED if sql_type(name).calendar is not None])
def test_moments_of_a_calendar_have_a_text(cursor: duckdb.DuckDBPyConnection, name: str) -> None:
    """The ends of a calendar are written and read back, and text_sql gives no text beyond them."""
    kind = sql_type(name)
    for end in kind.calendar or ():
        moment = f"CAST('{end}' AS {name})"
        told = cursor.execute(f"SELECT TRY_CAST({text_sql(moment, name)} AS {name}) = {moment}").fetchall()
        assert told == [(True,)]
    if kind.has_infinity:
        for end in ("infinity", "-infinity"):
            assert cursor.execute(f"SELECT {text_sql(f'CAST({end!r} AS {name})', name)}").fetchall() == [(end,)]


def test_lengths_are_those_of_bytes(cursor: duckdb.DuckDBPyConnection) -> None:
    """Each function counts bytes; every type is short, or has a function, or is known to be neither."""
    for name, text, length in (("VARCHAR", "a\u00e4", 3), ("BLOB", "a\\xAA", 2), ("BIT", "101010101", 2)):
        function = sql_type(name).length_function
        assert cursor.execute(f"SELECT {function}(CAST('{text}' AS {name}))").fetchall() == [(length,)]
    bounded = {name for name in ALL if sql_type(name).is_short or sql_type(name).length_function}
    assert set(ALL) - bounded == {*NESTED, "VARIANT", "GEOMETRY", "BIGNUM"}


def test_signs_of_zero_are_taken_away(cursor: duckdb.DuckDBPyConnection) -> None:
    """Floats are the types with two zeros; without_sign leaves one, and one NaN."""
    for name in FLOATS:
        filled(cursor, sql_type(name))
        apart = f"CAST({without_sign('x', name)} AS BIT)"
        found = cursor.execute(f"SELECT count(DISTINCT {apart}) FROM v WHERE x = 0 OR isnan(x)").fetchall()
        assert found == [(2,)]


def test_names_are_read_whole() -> None:
    """Labels and quoted fields may be called like types, and are none."""
    label = sql_type("ENUM('VARIANT', 'INTEGER[]', 'it''s MAP(')")
    assert label.kind == "ENUM" and not label.mentions("VARIANT", "MAP")
    assert label.is_key and label.is_comparable and label.is_grouped_as_compared and label.has_labels
    assert sql_type('STRUCT("VARIANT" INTEGER)').mentions("VARIANT") is False
    assert sql_type("STRUCT(a VARIANT)[]").mentions("VARIANT") and sql_type("STRUCT(a HUGEINT)").mentions("HUGEINT")
    assert not sql_type(ZONED).mentions(TIMETZ) and sql_type(f"{TIMETZ}[]").mentions(TIMETZ)
    assert [sql_type(name).word for name in ("DECIMAL(9,2)", "ENUM('(')", "INTEGER[]", "")] == [
        *("DECIMAL", "ENUM", "INTEGER[]", ""),
    ]
    assert [sql_type(name).kept_unit for name in HAVE["is_unit_part"][-2:]] == ["VARCHAR", "VARCHAR"]


# No other file has a list of types.

WORDS = {*NAMES, "DECIMAL", "ENUM", "STRUCT", "MAP", "UNION", "LIST"}
_NAMES = "|".join([*sorted(WORDS, key=len, reverse=True), "TINY", "SMALL", "BIG", "HUGE"])
ALTERNATIVES = re.compile(rf"\b(?:{_NAMES})[)?]*\|(?!\|)")
PARTS_OF_TEXTS = {"startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix", "split"}
ELSEWHERE = {
    "dpduck/commands/owner_session.py": (1, "types that Arrow does not have"),
    "dpduck/auditor/conditions.py": (1, "how a literal of a type is written"),
    "dpduck/store/sandbox.py": (1, "examples of literals, for messages"),
    "dpduck/store/postgres.py": (2, "PostgreSQL's types as DuckDB reads them"),
    "dpduck/engines/spark.py": (2, "Spark's types as DuckDB has them"),
    "dpduck/language/rows/functions.py": (1, "sqlglot's names of types that a CAST may have"),
    "dpduck/language/select/aggregates.py": (1, "what a message accepts in place of a type"),
    "dpduck/language/select/checked_types.py": (1, "examples of literals, for messages"),
    "dpduck/language/select/label_spans.py": (1, "how literals beside a type are read"),
    "dpduck/language/text/dialect.py": (1, "words that begin a literal"),
    "dpduck/mechanisms/rehearsal.py": (1, "awkward values of types"),
    "dpduck/mechanisms/streams/difference.py": (1, "an aggregate's name, which is no type"),
    "dpduck/mechanisms/synthetic/inside.py": (1, "how a value is made of a whole number"),
    "dpduck/owner/draft_declaration_items.py": (1, "words of the clause DOMAIN"),
    "dpduck/owner/draft_shapes.py": (1, "what a draft suggests in place of a type"),
    "dpduck/owner/policy_text.py": (1, "made-up values of types"),
    "dpduck/publish/postgres_types.py": (2, "PostgreSQL's types for those of DuckDB"),
    "dpduck/kernel/places/orders.py": (1, "a file that is sent to an engine as it is, without the table"),
    "dpduck/kernel/worker/program.py": (1, "types of what a worker makes"),
}
"""Files that name several types, how often, and why: each says what is made of a type in one place."""


def is_type(node: ast.AST | None) -> bool:
    """Whether a node is a text that is the name of a type, or the beginning of one."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.rstrip("(") in WORDS


def lists(source: str) -> list[int]:
    """The lines of sets, mappings and patterns of several types, and of names of types that are taken apart."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            several = sum(map(is_type, node.elts)) > 1
        elif isinstance(node, ast.Dict):
            several = max(sum(map(is_type, node.keys)), sum(map(is_type, node.values))) > 1
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PARTS_OF_TEXTS:
            arguments = [one for part in node.args for one in ([*part.elts] if isinstance(part, ast.Tuple) else [part])]
            ends = ("INT", "INTEGER", "(") if node.func.attr != "endswith" else ("INT", "INTEGER")
            several = any(is_type(one) or (isinstance(one, ast.Constant) and one.value in ends) for one in arguments)
        else:
            several = isinstance(node, ast.Constant) and bool(ALTERNATIVES.search(str(node.value)))
        found += [node.lineno] if several and isinstance(node, ast.expr) else []
    return found


def test_no_other_file_lists_types() -> None:
    """A property of SqlType takes the place of every set, mapping or pattern of types, and of tests of names."""
    paths = (path for path in sorted(PACKAGE.rglob("*.py")) if str(path.relative_to(PACKAGE.parent)) != TABLE)
    found = {str(path.relative_to(PACKAGE.parent)): lists(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: lines for name, lines in found.items() if len(lines) > ELSEWHERE.get(name, (0, ""))[0]} == {}
    assert {name: most for name, (most, _) in ELSEWHERE.items() if len(found[name]) < most} == {}, "fewer: say so"


@pytest.mark.parametrize("text", [
    '_A = ("DATE", "TIMESTAMP")', '_A = frozenset(["FLOAT", "DOUBLE"])', '_A = {"FLOAT": 1, "DOUBLE": 2}',
    r'_A = re.compile(r"U?(TINY|SMALL|BIG)INT")', r'_A = re.compile(r"VARCHAR|ENUM\(.*")',
    'a.startswith("DECIMAL(")', 'a.startswith(("DATE", "x"))', 'a.endswith(("INT", "INTEGER"))',
    'kind.partition("(")[0]',
])  # fmt: skip
def test_lists_of_types_are_found(text: str) -> None:
    """Each form that there was is found, and a single type is none."""
    assert lists(text)
    assert Counter(lists('x == "DATE"; f"CAST({x} AS VARCHAR) || y"; [("n", "BIGINT"), ("m", "DOUBLE")]')) == {}
