"""The constructors of nodes accept no expression on which DuckDB could fail, whatever a row holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import duckdb
import pyarrow as pa
import pytest

from dpduck.kernel.columns.arithmetic import CaseNumber, Double, Negated, Number, StoredNumber
from dpduck.kernel.columns.comparisons import (
    LONGEST_PATTERN,
    Between,
    Coded,
    Comparison,
    Constant,
    Is,
    Junction,
    Like,
    Listed,
    Literal,
    Not,
    Operand,
    Truth,
)
from dpduck.kernel.columns.expressions import MOST_HEIGHT, AnalystSql, Expression, Lookup, NotPlain, Own, RelationColumn
from dpduck.kernel.columns.stored import AsText
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.kernel.units import FirstOf, UnitTuple

TYPES = {
    "unit": "INTEGER", "large": "UBIGINT", "big": "HUGEINT", "note": "VARCHAR", "other": "VARCHAR", "day": "DATE",
    "moment": "TIMESTAMP", "price": "DECIMAL(8,2)", "real": "DOUBLE", "died": "BOOLEAN", "tags": "VARCHAR[]",
    "pair": "STRUCT(a INTEGER)", "any": "VARIANT", "kind": "ENUM('VARIANT', 'x')", "span": "INTERVAL",
    "single": "FLOAT", "place": "GEOMETRY", "unknown": "",
}  # fmt: skip
COLUMN = {name: RelationColumn("r0", name, kind) for name, kind in TYPES.items()}
UNIT, NOTE, DAY, PRICE, DIED = (COLUMN[name] for name in ("unit", "note", "day", "price", "died"))
ONE, TEXT, LEAP = Literal("number", "1"), Literal("text", "it's"), Literal("text", "2024-02-29")
WORKED = AnalystSql(("length(", NOTE, ") > 1"))
OLD = Comparison(UNIT, ">", ONE)

Made = Callable[[], Expression]


def refuses(made: Made) -> bool:
    """Tells whether a constructor refuses its arguments."""
    try:
        made()
    except NotPlain:
        return True
    return False


ACCEPTED: dict[str, tuple[Made, str]] = {
    "a number": (partial(Literal, "number", "12.50", "-"), "-12.50"),
    "a text": (partial(Literal, "text", "it's"), "'it''s'"),
    "a boolean": (partial(Literal, "boolean", "TRUE"), "TRUE"),
    "a day": (partial(Literal, "DATE", "2024-02-29"), "CAST('2024-02-29' AS DATE)"),
    "a moment": (partial(Literal, "TIMESTAMP", "2024-02-29 10:00:00"), "CAST('2024-02-29 10:00:00' AS TIMESTAMP)"),
    "a constant": (partial(Constant, "NULL"), "NULL"),
    "a BOOLEAN": (partial(Truth, DIED), '"r0"."died"'),
    "a number beside an integer": (partial(Comparison, UNIT, "<=", ONE), '"r0"."unit" <= 1'),
    "two integers": (partial(Comparison, UNIT, "=", COLUMN["large"]), '"r0"."unit" = "r0"."large"'),
    "two of one type": (partial(Comparison, NOTE, "<>", COLUMN["other"]), '"r0"."note" <> "r0"."other"'),
    "a text beside a day": (partial(Comparison, DAY, ">", LEAP), "\"r0\".\"day\" > '2024-02-29'"),
    "a decimal that fits": (partial(Comparison, PRICE, "<", Literal("number", "9.25")), '"r0"."price" < 9.25'),
    "distinct": (
        partial(Comparison, NOTE, "IS NOT DISTINCT FROM", TEXT),
        "\"r0\".\"note\" IS NOT DISTINCT FROM 'it''s'",
    ),
    "a list": (partial(Listed, UNIT, (ONE, COLUMN["large"])), '"r0"."unit" IN (1, "r0"."large")'),
    "a range": (partial(Between, UNIT, ONE, ONE), '"r0"."unit" BETWEEN 1 AND 1'),
    "a pattern": (partial(Like, NOTE, Literal("text", "a%")), "\"r0\".\"note\" LIKE 'a%'"),
    "IS NULL of a list": (partial(Is, COLUMN["tags"], "NULL"), '"r0"."tags" IS NULL'),
    "IS NULL of a label that is called VARIANT": (partial(Is, COLUMN["kind"], "NULL"), '"r0"."kind" IS NULL'),
    "IS TRUE": (partial(Is, DIED, "TRUE"), '"r0"."died" IS TRUE'),
    "NOT": (partial(Not, OLD), 'NOT ("r0"."unit" > 1)'),
    "AND": (partial(Junction, "AND", (OLD, Truth(DIED))), '("r0"."unit" > 1) AND ("r0"."died")'),
    "OR of one's own SQL": (partial(Junction, "OR", (Own(("TRUE",)), OLD)), '(TRUE) OR ("r0"."unit" > 1)'),
    "a text of a number": (partial(AsText, UNIT), 'CAST("r0"."unit" AS VARCHAR)'),
    "units together": (partial(UnitTuple, (UNIT,)), "CASE WHEN TRUE THEN CAST(\"r0\".\"unit\" AS VARCHAR) || '/' END"),
    "a first unit": (partial(FirstOf, (UNIT, COLUMN["large"])), 'coalesce("r0"."unit", "r0"."large")'),
    "codes": (
        partial(Coded, WORKED, Own((UNIT, " IS NULL")), Own((UNIT, " IN (1)"))),
        'CASE WHEN "r0"."unit" IS NULL THEN length("r0"."note") > 1 ELSE "r0"."unit" IN (1) END',
    ),
    "codes of all rows": (partial(Coded, WORKED, None, Own(("TRUE",))), "(TRUE)"),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_accepted_is_written(name: str) -> None:
    """Each kind of node writes the SQL that is listed for it."""
    made, sql = ACCEPTED[name]
    assert made().sql == sql


def of_one_kind(name: str, other: Operand) -> dict[str, Made]:
    """Every node that compares a column with an operand, by its sign."""
    column = COLUMN[name]
    return {
        **{sign: partial(Comparison, column, sign, other) for sign in ("=", "IS DISTINCT FROM")},
        "IN": partial(Listed, column, (other,)), "from": partial(Between, column, other, other),
    }  # fmt: skip


COMPARED: dict[str, tuple[str, Operand]] = {
    "a text and a number": ("note", ONE), "an integer and a text": ("unit", TEXT),
    "an integer and a part": ("unit", Literal("number", "1.5")),
    "an integer and a long number": ("unit", Literal("number", "9" * 10)),
    "128 bits and a number": ("big", ONE), "128 bits and 32": ("big", UNIT),
    "a decimal and more places": ("price", Literal("number", "0.001")),
    "a decimal and more digits": ("price", Literal("number", "1000000")),
    "a double and a long number": ("real", Literal("number", "1" * 17)),
    "a float and a double": ("single", COLUMN["real"]), "a double and a text": ("real", Literal("text", "1")),
    "an integer and a text column": ("unit", NOTE), "a day and a moment": ("day", COLUMN["moment"]),
    "a day and a TIMESTAMP": ("day", Literal("TIMESTAMP", "2024-02-29")), "a day and any text": ("day", TEXT),
    "a day that is none": ("day", Literal("text", "2024-02-30")),
    "a BOOLEAN and a text": ("died", Literal("text", "t")),
    "a text and a boolean": ("note", Literal("boolean", "TRUE")), "a label and a text": ("kind", TEXT),
    "lists": ("tags", COLUMN["tags"]), "structs": ("pair", COLUMN["pair"]), "variants": ("any", COLUMN["any"]),
    "geometries": ("place", COLUMN["place"]), "columns of no known type": ("unknown", COLUMN["unknown"]),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARED)
def test_nothing_is_compared_that_would_be_cast(name: str) -> None:
    """Values of two types are not compared, since a cast may raise, nor types where equal values may differ."""
    made = of_one_kind(*COMPARED[name])
    assert [sign for sign, node in made.items() if not refuses(node)] == []


def test_values_of_one_type_are_compared() -> None:
    """Every node accepts each pair of operands of one type, if equal values of this type are alike."""
    pairs: list[tuple[str, Operand]] = [
        ("unit", COLUMN["large"]), ("large", Literal("number", "9" * 9)), ("big", COLUMN["big"]), ("note", TEXT),
        ("price", Literal("number", "999999.99", "-")), ("real", Literal("number", "1" * 16)), ("died", DIED),
        ("day", Literal("DATE", "2024-02-29")), ("day", LEAP), ("moment", Literal("text", "2024-02-29T10:00:00.123")),
        ("span", COLUMN["span"]),
        ("single", Literal("number", "0.1")), ("died", Literal("boolean", "FALSE")), ("kind", COLUMN["kind"]),
    ]  # fmt: skip
    assert [pair for pair in pairs if any(map(refuses, of_one_kind(*pair).values()))] == []


REFUSED: dict[str, Made] = {
    "an exponent": partial(Literal, "number", "1e3"), "a number with its sign": partial(Literal, "number", "-1"),
    "no number": partial(Literal, "number", ""), "digits that are no ASCII": partial(Literal, "number", "\u0661"),
    "SQL for a number": partial(Literal, "number", "1; SELECT 2"), "two signs": partial(Literal, "number", "1", "--"),
    "a text with a sign": partial(Literal, "text", "a", "-"), "no boolean": partial(Literal, "boolean", "YES"),
    "letters that are upper case of others": partial(Literal, "boolean", "FAL\u017fE"),
    "a day that is none": partial(Literal, "DATE", "2024-02-30"), "a short day": partial(Literal, "DATE", "2024-2-3"),
    "infinity": partial(Literal, "TIMESTAMP", "infinity"),
    "a kind that nobody knows": partial(Literal, "TIME", "10:00"),
    "another constant": partial(Constant, "UNKNOWN"), "an integer as a condition": partial(Truth, UNIT),
    "a text as a condition": partial(Truth, NOTE), "no sign": partial(Comparison, UNIT, "", ONE),
    "a sign of texts": partial(Comparison, NOTE, "~", TEXT), "an empty list": partial(Listed, UNIT, ()),
    "a list of two kinds": partial(Listed, UNIT, (ONE, TEXT)),
    "a range of two kinds": partial(Between, UNIT, ONE, TEXT),
    "a range that begins with a text": partial(Between, UNIT, TEXT, ONE),
    "a pattern with _": partial(Like, NOTE, Literal("text", "a_")), "a pattern of a number": partial(Like, UNIT, TEXT),
    "a number as a pattern": partial(Like, NOTE, ONE),
    "a long pattern": partial(Like, NOTE, Literal("text", "a" * (LONGEST_PATTERN - 1))),
    "a pattern with many quotes": partial(Like, NOTE, Literal("text", "'" * (LONGEST_PATTERN // 2))),
    "IS TRUE of an integer": partial(Is, UNIT, "TRUE"), "IS of another word": partial(Is, DIED, "UNKNOWN"),
    "IS NULL of a variant": partial(Is, COLUMN["any"], "NULL"),
    "NOT of a worker's": partial(Not, WORKED), "OR of a worker's": partial(Junction, "OR", (OLD, WORKED)),
    "NOT of a text": partial(Not, NOTE), "AND of a text": partial(Junction, "AND", (OLD, NOTE)),
    "NOT of a constant": partial(Not, TEXT), "AND of nothing": partial(Junction, "AND", ()),
    "another word": partial(Junction, "XOR", (OLD, OLD)),
    "codes that a worker's condition is beside": partial(Not, Coded(WORKED, Own(("TRUE",)), Own(("TRUE",)))),
    "a text of a list": partial(AsText, COLUMN["tags"]), "a text of a double": partial(AsText, COLUMN["real"]),
    "a text of a variant": partial(AsText, COLUMN["any"]), "no units together": partial(UnitTuple, ()),
    "moments together": partial(UnitTuple, (UNIT, COLUMN["moment"])),
    "zeros together": partial(UnitTuple, (COLUMN["real"],)),
    "no first unit": partial(FirstOf, ()), "a unit that a worker makes": partial(FirstOf, (UNIT, WORKED)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_fail_is_refused(name: str) -> None:
    """Each constructor refuses an expression that breaks one of its rules."""
    with pytest.raises(NotPlain):
        REFUSED[name]()


def test_nodes_inside_of_each_other_are_few() -> None:
    """A condition, or a number, has MOST_HEIGHT nodes from itself down to a column. The next one is refused."""
    condition: Expression = OLD
    number: Number = StoredNumber(PRICE)
    while condition.height < MOST_HEIGHT:
        condition = Junction("AND", (Not(condition), OLD)) if condition.height < MOST_HEIGHT - 1 else Not(condition)
    while number.height < MOST_HEIGHT:
        number = Negated(number) if number.height % 2 else CaseNumber((OLD,), (number,))
    assert condition.columns == (UNIT,) and len(condition.sql) > 1_000
    assert number.columns == (UNIT, PRICE) and len(Double(number).sql) > 1_000
    for made in (partial(Not, condition), partial(Junction, "OR", (OLD, condition)), partial(Negated, number)):
        assert refuses(made)
    assert refuses(partial(CaseNumber, (condition,), (StoredNumber(PRICE),)))


def test_who_evaluates() -> None:
    """A worker evaluates programs, look-ups of programs, and codes that leave rows to programs, and nothing else."""
    nothing, every = Own(("TRUE",)), Own((UNIT, " IS NULL"))
    workers = [WORKED, Lookup(WORKED, NOTE), Lookup(NOTE, NOTE), Coded(WORKED, every, nothing)]
    assert not any(one.plain for one in workers)
    own = [nothing, every, Coded(WORKED, None, nothing), Coded(OLD, every, nothing), UNIT, ONE]
    assert all(one.plain for one in [*own, *(made() for name, (made, _) in ACCEPTED.items() if name != "codes")])


def test_which_columns_are_read() -> None:
    """Columns of all operands come once each, in order. Codes that decide every row read the columns of codes alone."""
    code, large = RelationColumn("r0", "code", "UTINYINT"), COLUMN["large"]
    both = Junction("OR", (Comparison(large, "=", UNIT), Not(Is(NOTE, "NULL")), Listed(UNIT, (large, ONE))))
    assert both.columns == (large, UNIT, NOTE)
    assert Between(UNIT, large, UNIT).columns == (UNIT, large)
    assert WORKED.columns == WORKED.cast("TINYINT").columns == (NOTE,)
    assert Lookup(WORKED, DAY).columns == (NOTE, DAY)
    assert Coded(WORKED, Own((code, " IS NULL")), Own((code, " = 1"))).columns == (NOTE, code)
    assert Coded(WORKED, None, Own((code, " = 1"))).columns == (code,)
    assert Constant("TRUE").columns == ONE.columns == Own(("1",)).columns == ()


def test_columns_have_the_names_that_they_are_given() -> None:
    """Columns are written under the names given for them, and texts that look like columns stay."""
    odd = RelationColumn('a"b', 'c"d', "VARCHAR")
    names = {odd: "x", UNIT: "y"}
    assert odd.sql == '"a""b"."c""d"' and odd.of("t") == 't."c""d"'
    assert Like(odd, Literal("text", odd.sql)).write(names.__getitem__) == f"x LIKE '{odd.sql}'"
    assert AnalystSql(("f(", odd, ", '", odd.sql, "')")).write(names.__getitem__) == f"f(x, '{odd.sql}')"
    assert Junction("AND", (OLD, Is(odd, "NULL"))).write(names.__getitem__) == "(y > 1) AND (x IS NULL)"
    assert WORKED.cast("TINYINT").sql == 'CAST(length("r0"."note") > 1 AS TINYINT)'


def test_which_comparisons_join() -> None:
    """Comparisons of columns of two relations join, except by <> and its like, by which DuckDB cannot join."""
    there = RelationColumn("r1", "unit", "INTEGER")
    joining = [sign for sign in ("=", "<", ">=", "<>", "IS DISTINCT FROM") if Comparison(UNIT, sign, there).is_join]
    assert joining == ["=", "<", ">="]
    assert not Comparison(UNIT, "=", COLUMN["large"]).is_join and not OLD.is_join


def extremes() -> pa.Table:
    """The least and largest values that Arrow hands over, beyond calendars and beyond the digits of a decimal."""
    least, most = -(1 << 31) + 2, (1 << 31) - 2
    digits = b"".join(number.to_bytes(16, "little", signed=True) for number in (least, most))
    return pa.table({
        "unit": pa.array([least, most], pa.int32()), "large": pa.array([0, (1 << 64) - 1], pa.uint64()),
        "note": pa.array(["", "\U0001f986" * 1000]), "other": pa.array(["\x00", "it's"]),
        "day": pa.array([least, most], pa.date32()), "died": pa.array([False, True]),
        "moment": pa.array([-(1 << 63) + 2, (1 << 63) - 2], pa.timestamp("us")),
        "price": pa.Array.from_buffers(pa.decimal128(8, 2), 2, [None, pa.py_buffer(digits)]),
    })  # fmt: skip


def test_no_accepted_condition_raises() -> None:
    """No accepted condition raises over the extremes of every type and over NULLs."""
    with duckdb.connect() as connection:
        keep_plans_plain(connection)
        connection.register("given", extremes())
        connection.execute("CREATE TABLE t AS FROM given")
        columns = {name: kind for name, kind, *_ in connection.execute("DESCRIBE t").fetchall()}
        assert columns == {name: TYPES[name] for name in columns}
        connection.execute("INSERT INTO t (unit) VALUES (NULL)")
        asked = [made() for name, (made, _) in ACCEPTED.items() if name != "codes"]
        asked += [AsText(COLUMN[name]) for name in columns]
        asked = [node for node in asked if {column.name for column in node.columns} <= columns.keys()]
        assert len(asked) > 25
        for node in asked:
            assert len(connection.execute(f'SELECT {node.sql} FROM t AS "r0"').fetchall()) == 3


def test_a_lookup_is_never_written() -> None:
    """A look-up has no SQL, since a worker computes it: the database's process never sees it as a text."""
    with pytest.raises(NotPlain):
        assert Lookup(WORKED, NOTE).sql
