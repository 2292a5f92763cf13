"""Whatever one person's rows hold, and however it is joined, the statement is answered as without her.

Each case is asked in 300 MB without a disk, over tables of few rows. Every case once failed after its charge: DuckDB
held her texts beside each joined row. Now a SELECT reads each private table first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pytest

import dpduck
from dpduck.kernel.columns.comparisons import Is
from dpduck.kernel.columns.expressions import RelationColumn
from dpduck.kernel.columns.stored import LONGEST_JOINED
from dpduck.kernel.rows.held import SHORTEST_READ, hash_input_sql, held_by, longest_joined
from dpduck.values.errors import Refusal
from dpduck.values.sqltypes import sql_type
from tests.support import memory

BUDGET = "BUDGET (epsilon = 10, delta = 1e-6, delta_keys = 5e-7)"
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1e-3{0}) {1}"
PUBLIC = (
    "CREATE TABLE pub AS SELECT CASE WHEN range < 1000 THEN 0 ELSE range END AS k, 'v' || range AS v FROM range(20000)",
    "CREATE TABLE keys AS SELECT 'w' || range AS k, 't' AS t FROM range(50000)",
)
DECLARED = ("DECLARE PUBLIC TABLE pub", "DECLARE PUBLIC TABLE keys")
TEXT = "repeat('x', {0})"
LONG_PUBLIC = "INSERT INTO keys VALUES ('long', repeat('x', {0}))"
SELECTED = ", delta = 1e-9, group_selection_strategy = GAUSSIAN_THRESHOLD"
TEN = ", max_rows_contributed = 10"
COPIED = "FROM visits JOIN pub ON pub.k = visits.g LEFT JOIN keys ON keys.k = visits.ward"


@dataclass(frozen=True)
class World:
    """Tables with policies. made: SQL for the tables and everybody's rows. policies: statements of the owner."""

    made: tuple[str, ...]
    policies: tuple[str, ...]


def own(kind: str = "VARCHAR", unit: str = "BIGINT", value: str = "i") -> World:
    """Visits that hold their unit, with a column of some type."""
    return World(
        (
            *PUBLIC,
            f"CREATE TABLE visits (patient {unit}, g INTEGER, ward VARCHAR, note {kind})",
            f"INSERT INTO visits SELECT {value}, 1 + i % 2, 'w' || i % 3, NULL FROM range(100) AS r(i)",
        ),
        (*DECLARED, f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 10, DOMAIN ward FROM keys.k, "
                    f"DOMAIN g IN (0, 1, 2), {BUDGET})"),
    )  # fmt: skip


PARTS = ", ".join(f"c{n}" for n in range(8))
LONG_PARTS = ", ".join(["repeat(chr(97), 4000)"] * 8)


def in_parts() -> World:
    """Visits with eight texts that together are the unit."""
    policy = f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ({PARTS}) MAX ROWS 10, DOMAIN g IN (1), {BUDGET})"
    made = f"CREATE TABLE visits ({PARTS.replace(',', ' VARCHAR,')} VARCHAR, g INTEGER)"
    return World((made, f"INSERT INTO visits SELECT {', '.join(['i'] * 8)}, 1 FROM range(100) AS r(i)"), (policy,))


def referred(unit: str = "id", key: str = "BIGINT") -> World:
    """Visits that find their unit by a reference to people."""
    return World(
        (
            *PUBLIC,
            f"CREATE TABLE people (id {key} PRIMARY KEY, note VARCHAR, name VARCHAR)",
            f"CREATE TABLE visits (patient {key}, stay BIGINT, g INTEGER, ward VARCHAR)",
            "CREATE TABLE stays (stay BIGINT PRIMARY KEY, patient BIGINT)",
            f"INSERT INTO people SELECT i, 'n', 'p' || i FROM range({1000 if key == 'BIGINT' else 100000}) AS r(i)",
            "INSERT INTO visits SELECT i // 2, i, 1, 'w' || i FROM range(1000) AS r(i)",
            "INSERT INTO stays SELECT i, i // 200 FROM range(100000) AS r(i)",
        ),
        (
            *DECLARED,
            f"CREATE PRIVACY POLICY ON people (PRIVACY UNIT {unit} MAX ROWS 10, {BUDGET})",
            "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient REFERENCES people.id MAX ROWS 10)",
            *(["CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES people.id MAX ROWS 10)"]
              if key == "BIGINT" else []),
        ),
    )  # fmt: skip


def visits(count: int, note: str = "NULL", ward: str = "'w1'", patient: str = "5000") -> str:
    return f"INSERT INTO visits SELECT {patient}, 0, {ward}, {note} FROM range({count})"


def person(note: int = 1, name: int = 1, count: int = 8000) -> tuple[str, str]:
    return (
        f"INSERT INTO people VALUES (5000, {TEXT.format(note)}, {TEXT.format(name)})",
        f"INSERT INTO visits SELECT 5000, range, 0, 'w1' FROM range({count})",
    )


PAIR = "FROM visits AS a JOIN visits AS b ON a.patient = b.patient LEFT JOIN keys ON keys.k = a.ward"
OF = "FROM visits AS v JOIN people AS p ON v.patient = p.id LEFT JOIN keys ON keys.k = v.ward"
OF_STAYS = OF.replace("LEFT JOIN", "JOIN stays AS s ON s.patient = v.patient LEFT JOIN")
NAMED = "FROM visits JOIN keys ON keys.k = visits.ward LEFT JOIN pub ON pub.k = visits.g"
UNITED = "(SELECT patient, {0} FROM visits UNION ALL SELECT patient, {0} FROM visits) AS u"
NAMES = ", ".join(f"note AS c{number}" for number in range(30))
ORDERS = [f"g {way} NULLS {nulls}{more}" for way in ("ASC", "DESC") for nulls in ("FIRST", "LAST")
          for more in ("", ", ward", ", ward DESC", ", patient", ", patient DESC", ", ward, patient")]  # fmt: skip
LAGS = ", ".join(f"lag(note, {n + 1}) OVER (PARTITION BY patient ORDER BY {ORDERS[n]}) AS c{n}" for n in range(8))


def features(written: str, count: int, subqueries: int = 1) -> str:
    """Writes `count` features of visits in each of the joined subqueries. Each has a different condition, and each is
    read."""
    made = ", ".join(f"{written} FILTER (WHERE g <> {n + 5}) AS c{n}" for n in range(count))
    names = [f"u{number}" for number in range(subqueries)]
    one = f"(SELECT patient, {made} FROM visits GROUP BY patient) AS"
    joined = "".join(f" JOIN {one} {name} ON {name}.patient = u0.patient" for name in names[1:])
    read = " OR ".join(f"{name}.c{n} > {name}.c{n + 1}" for name in names for n in range(count - 1))
    return COUNT.format("", f"count(*) AS n FROM {one} u0{joined} WHERE {read}")


EIGHT = " UNION ALL ".join([f"SELECT patient, {NAMES} FROM visits"] * 8)
LONG = {
    "BIT": "CAST(repeat('1', 4000000) AS BIT)", "VARCHAR[]": "[repeat('x', 500000)]",
    "STRUCT(a VARCHAR)": "{'a': repeat('x', 500000)}", "JSON": "CAST('\"' || repeat('x', 500000) || '\"' AS JSON)",
    "BLOB": "CAST(repeat('x', 500000) AS BLOB)",
}  # fmt: skip
CASES: dict[str, tuple[World, Sequence[str], str]] = {
    "what tells rows apart, by a self join": (
        own(), [visits(100, "repeat('x', 60000) || range")], COUNT.format(TEN, f"count(*) AS n {PAIR}")
    ),
    **{
        f"what tells rows apart, a {kind}, copied": (
            own(kind), [visits(2, value)], COUNT.format("", f"count(*) AS n {COPIED}")
        )
        for kind, value in LONG.items()
    },
    "what tells the rows of a histogram apart, copied": (
        own(), [visits(1, TEXT.format(1000000))],
        f"CREATE PRIVATE HISTOGRAM h OPTIONS (epsilon = 1e-3, queries = 5) AS SELECT visits.g, pub.v {COPIED}",
    ),
    "what a worker reads, by a reference's key": (
        referred(), person(note=60000), COUNT.format("", f"count(*) AS n {OF} WHERE length(p.note) % 2 >= 0")
    ),
    "what an aggregate's condition reads": (
        referred(), person(note=60000), COUNT.format("", f"count(*) FILTER (WHERE p.note < v.ward) AS n {OF}")
    ),
    "what three private tables and a worker read": (
        referred(), (*person(note=60000), "INSERT INTO stays VALUES (1000000, 5000)"),
        COUNT.format("", f"count(*) AS n {OF_STAYS} WHERE length(p.note) % 2 >= 0"),
    ),
    "a declared key beside copies": (
        own(), [visits(2, ward=TEXT.format(1000000), note="'w1'")],
        COUNT.format("", "visits.ward, count(*) AS n FROM visits JOIN pub ON pub.k = visits.g "
                     "LEFT JOIN keys ON keys.k = visits.note GROUP BY visits.ward"),
    ),
    "a stored unit beside copies": (
        own(unit="VARCHAR"), [visits(10, patient=TEXT.format(60000))], COUNT.format("", f"count(*) AS n {COPIED}")
    ),
    "a stored unit in a self join": (
        own(unit="VARCHAR"), [visits(128, patient=TEXT.format(60000), ward="'w' || range")],
        COUNT.format(TEN, f"count(*) AS n {PAIR}"),
    ),
    "a reference beside copies": (
        referred(key="VARCHAR"),
        [f"INSERT INTO people VALUES ({TEXT.format(500000)}, 'n', 'p')",
         f"INSERT INTO visits SELECT {TEXT.format(500000)}, 0, 0, 'w1' FROM range(2)"],
        COUNT.format("", "count(*) AS n FROM visits JOIN pub ON pub.k = visits.g"),
    ),
    "a unit by a join": (referred("name"), person(name=60000), COUNT.format("", f"count(*) AS n {OF}")),
    "a unit in counts for each unit": (
        referred("name"), person(name=60000),
        COUNT.format("", f"count(*) AS n FROM (SELECT p.name, count(*) AS c {OF} GROUP BY p.name) AS u WHERE c > 1"),
    ),
    "features of her texts": (
        own(), [visits(1000, "repeat('x', 60000) || range")],
        COUNT.format("", "count(*) AS n FROM (SELECT patient, max(note) AS m, first(ward ORDER BY note) AS f, "
                     "count(DISTINCT note) AS d FROM visits GROUP BY patient) AS u WHERE m > f OR d > 1"),
    ),
    "texts made for features of hers": (
        own(), [visits(20000, "repeat('x', 1300) || range")],
        COUNT.format("", "count(*) AS n FROM (SELECT patient, max(note || note || note) AS m, "
                     "min(ward || note || note || note) AS l FROM visits GROUP BY patient) AS u WHERE m > l"),
    ),
    "the last of texts that grow, many times": (
        own(), [visits(60000, "repeat('x', CAST(50 + range // 100 AS INTEGER)) || lpad(range || '', 8, '0')")],
        features("last(note ORDER BY note)", 31),
    ),
    "the last of texts of every length": (
        own(), [visits(60000, "repeat('x', CAST(range % 4000 AS INTEGER))")], features("last(note ORDER BY note)", 12)
    ),
    "what of hers is counted apart, sixteen times": (
        own(), [visits(60000, "repeat('x', 200) || range")], features("count(DISTINCT note)", 16)
    ),
    "what of hers is counted apart in four subqueries that are joined": (
        own(), [visits(60000, "repeat('x', 200) || range")], features("count(DISTINCT note)", 4, 4)
    ),
    "the last of texts of every length in four subqueries that are joined": (
        own(), [visits(60000, "repeat('x', CAST(range % 4000 AS INTEGER))")],
        features("last(note ORDER BY note)", 8, 4),
    ),
    "windows over her texts": (
        own(), [visits(1000, "repeat('x', 60000) || range")],
        COUNT.format("", "count(*) AS n FROM (SELECT note, lag(note) OVER (PARTITION BY patient ORDER BY ward) AS b "
                     "FROM visits) AS u WHERE b > note"),
    ),
    **{
        f"a unit of eight long parts{where}": (
            in_parts(), [f"INSERT INTO visits SELECT {LONG_PARTS}, 1 FROM range(4500)"],
            COUNT.format("", f"count(*) AS n FROM visits{where}"),
        ) for where in ("", " WHERE 7 / g >= 1")
    },
    "several windows over her texts": (
        own(), [visits(2000, "repeat('x', 2000) || range")],
        COUNT.format("", f"count(*) AS n FROM (SELECT {LAGS} FROM visits) AS u WHERE c0 > c1 OR c5 > c6"),
    ),
    "many windows of numbers": (
        own(), [visits(60000)], COUNT.format("", f"count(*) AS n FROM (SELECT {LAGS.replace('note', 'g')} FROM visits) "
                                             "AS u WHERE c0 > c1 OR c5 > c6"),
    ),
    "a long text made of her short ones": (
        own(), [visits(70000, "repeat('x', 240)")],
        COUNT.format("", f"count(*) AS n FROM (SELECT patient, max({' || '.join(['note'] * 16)}) AS m FROM visits "
                     "GROUP BY patient) AS u WHERE m > 'a'"),
    ),
    "a unit in a UNION ALL that is joined": (
        referred("name"), person(name=60000),
        COUNT.format(TEN, f"count(*) AS n FROM visits AS v JOIN {UNITED.format('g')} ON u.patient = v.patient"),
    ),
    "one text under many names in a UNION ALL": (
        own(), [visits(2, TEXT.format(1000000))],
        COUNT.format(TEN, f"count(*) AS n FROM visits AS v JOIN ({EIGHT}) AS u ON u.patient = v.patient"),
    ),
    "a public text that many of her rows name, and a worker": (
        own(), [visits(8000, ward="'long'"), LONG_PUBLIC.format(60000)],
        COUNT.format("", f"count(*) AS n {NAMED} WHERE length(keys.t) % 2 >= 0"),
    ),
    "a public text that many of her rows name, compared": (
        own(), [visits(1000, ward="'long'"), LONG_PUBLIC.format(1000000)],
        COUNT.format("", f"count(*) FILTER (WHERE keys.t = visits.note) AS n {NAMED}"),
    ),
}  # fmt: skip


def outcome(world: World, her: Sequence[str], asked: str, then: Sequence[str] = ()) -> tuple[str, int]:
    """Returns the outcome of a statement, and the charges. then: statements of the owner after the policies."""
    return memory.outcome((*world.made, *her), (*world.policies, *then), asked)


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_what_one_person_stores_decides_nothing(name: str) -> None:
    """A statement with one person's long values is answered, and charged once."""
    assert outcome(*CASES[name]) == ("answered", 1)


@pytest.mark.parametrize("name", ["a unit by a join", "what tells rows apart, by a self join"])
def test_without_her_it_is_answered_too(name: str) -> None:
    """The cases above are answered without her, so that nobody else's rows refuse them."""
    world, _, asked = CASES[name]
    assert outcome(world, (), asked) == ("answered", 1)


@pytest.mark.parametrize(("orders", "what"), [
    (ORDERS, "windows of 24 different orders, more than 8"),
    (["g"] * 64, "have 65 texts of each row in features and windows, more than 64"),
])  # fmt: skip
def test_windows_that_would_hold_much_are_refused(orders: Sequence[str], what: str) -> None:
    """From its text, before the charge, a statement with many texts or orders in its windows is refused."""
    by = "OVER (PARTITION BY patient ORDER BY"
    lags = ", ".join(f"lag(note, {n + 1}) {by} {order}) AS c{n}" for n, order in enumerate(orders))
    asked = COUNT.format("", f"count(*) AS n FROM (SELECT {lags} FROM visits) AS u WHERE c0 > c1")
    said, charges = outcome(own(), (), asked)
    assert what in said and "accepted: " in said and charges == 0


@pytest.mark.parametrize(("written", "count", "subqueries", "what"), [
    ("count(DISTINCT note)", 17, 1, "count(DISTINCT ..) 17 times, more than 16"),
    ("count(DISTINCT g)", 17, 1, "count(DISTINCT ..) 17 times, more than 16"),
    ("last(note ORDER BY ward)", 33, 1, "66 texts of each row in features and windows, more than 64"),
    ("max(note)", 65, 1, "65 texts of each row in features and windows, more than 64"),
    ("count(DISTINCT note)", 16, 4, "count(DISTINCT ..) 64 times, more than 16"),
    ("count(DISTINCT g)", 9, 2, "count(DISTINCT ..) 18 times, more than 16"),
    ("max(note)", 22, 3, "66 texts of each row in features and windows, more than 64"),
])  # fmt: skip
def test_features_that_would_hold_much_are_refused(written: str, count: int, subqueries: int, what: str) -> None:
    """From its text, before the charge, a statement with many features in one subquery or in several is refused. 64
    counts of the distinct values in 60,000 rows of one person failed."""
    said, charges = outcome(own(), (), features(written, count, subqueries))
    assert what in said and "accepted: " in said and charges == 0


WINDOWED = "(SELECT patient, row_number() OVER (PARTITION BY patient ORDER BY {0}) AS k FROM {1})"


@pytest.mark.parametrize("word", ["UNION ALL", "JOIN"])
def test_the_limits_are_the_statement_s(word: str) -> None:
    """The limits count all subqueries: nine different orders are refused, though no subquery has two."""
    several = [WINDOWED.format(order, "visits") for order in ORDERS[:9]]
    made = " UNION ALL ".join(f"SELECT patient, k FROM {one} AS s{n}" for n, one in enumerate(several))
    if word == "JOIN":
        made = f"SELECT s0.patient, s0.k FROM {several[0]} AS s0"
        made += "".join(f" JOIN {one} AS s{n} ON s{n}.patient = s0.patient" for n, one in enumerate(several) if n)
    said, charges = outcome(own(), (), COUNT.format(TEN, f"count(*) AS n FROM ({made}) AS u WHERE u.k > 1"))
    assert "windows of 9 different orders, more than 8" in said and charges == 0, said


def test_prepared_rows_are_held_alike() -> None:
    """Raw texts without a code are bounded in prepared tables, too."""
    asked = COUNT.format("", f"count(*) AS n {OF.replace('v.ward', 'p.note')}")
    prepared = ["ALTER PRIVACY POLICY ON people, visits, stays PREPARE"]
    assert outcome(referred(), person(note=60000), asked, prepared) == ("answered", 1)


@pytest.mark.parametrize(
    "what", ["note AS s, count(*) AS n FROM visits GROUP BY s", "count(*) AS n FROM visits WHERE length(ward) > 1"]
)
def test_a_locked_configuration_fails_nothing(what: str) -> None:
    """A locked configuration ends no transaction: texts are sent to workers and selected as elsewhere."""
    with dpduck.connect() as con:
        for sql in own().made:
            con.execute(sql)
        for sql in own().policies:
            con.execute("FROM dp(?)", [sql])
        con.execute("SET lock_configuration = true")
        found = con.execute("FROM dp(?)", [COUNT.format(SELECTED if "GROUP" in what else "", what)])
        assert [column[0] for column in found.description] == (["s", "n"] if "GROUP" in what else ["n"])
        ((charges,),) = con.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchall()
        assert charges == 1


def test_a_column_called_rowid_is_not_prepared() -> None:
    """A column called rowid does not number rows: one row's answer by a worker stood beside all rows of equal value."""
    with dpduck.connect() as con:
        con.execute("CREATE TABLE visits AS SELECT range // 4 AS patient, range % 5 AS rowid FROM range(40)")
        con.execute(f"FROM dp($$CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 10, {BUDGET})$$)")
        with pytest.raises(duckdb.Error, match="the name rowid is DuckDB's own; accepted: ALTER TABLE"):
            con.execute("FROM dp('ALTER PRIVACY POLICY ON visits PREPARE')")


def test_a_row_with_a_long_text_is_left_out_of_joins_alone() -> None:
    """A row with a long text counts without a join, and in a join of another column. The row alone decides this."""
    joined = "FROM visits JOIN keys ON keys.k = visits.ward"
    asked = {
        f"count(*) AS n {joined}": 102, f"count(note) AS n {joined}": 1, "count(note) AS n FROM visits": 2,
        f"count(*) AS n {joined} WHERE note IS NULL": 100,
    }  # fmt: skip
    world = own()
    with dpduck.connect() as con:
        for sql in (*world.made, *(visits(1, f"repeat('x', {LONGEST_JOINED // 3 + more})") for more in (0, 1))):
            con.execute(sql)
        for sql in world.policies:
            con.execute("FROM dp(?)", [sql.replace("epsilon = 10,", "epsilon = 1000,").replace("ROWS 10", "ROWS 1")])
        con.execute("UPDATE visits SET patient = rowid")
        for what, expected in asked.items():
            found = con.execute("FROM dp(?)", [f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) {what}"])
            assert found.fetchall()[0][0] == expected, what


def test_values_that_no_expression_reads_are_held_as_null_or_not() -> None:
    """A list beside a join may be asked whether it is NULL. A number of any length may not be compared there."""
    world = own("VARCHAR[]")
    asked = COUNT.format("", f"count(visits.note) AS n {COPIED}")
    assert outcome(world, [visits(2, LONG["VARCHAR[]"])], asked) == ("answered", 1)
    refused = outcome(own("BIGNUM"), (), COUNT.format("", f"count(visits.note) AS n {COPIED}"))
    assert "may be long; accepted: numbers, texts" in refused[0] and refused[1] == 0


@pytest.mark.parametrize(("texts", "copies", "repeated", "longest"), [
    (1, 1, False, 4096), (4, 1, False, 1024), (1, 1, True, 1024), (8, 1, True, 512), (1, 1000, False, 65),
    (30, 8, False, 136), (100, 1000, True, SHORTEST_READ),
])  # fmt: skip
def test_all_texts_of_a_row_together_have_a_bound(texts: int, copies: int, repeated: bool, longest: int) -> None:
    """The more texts and copies a row has, the shorter each must be, down to a least length."""
    assert longest_joined(texts, copies, repeated) == longest


def test_every_type_is_short_or_bounded() -> None:
    """A type that nobody knows is refused where it is read, and never counted as short."""
    for kind in ("INTEGER", "DECIMAL(38,0)", "ENUM('a')", "TIMESTAMP WITH TIME ZONE", "UUID", "BOOLEAN"):
        assert sql_type(kind).is_short
    for kind in ("VARCHAR", "BLOB", "BIGNUM", "JSON", "BIT", "INTEGER[]", "STRUCT(a INTEGER)", "GEOMETRY", "what"):
        assert not sql_type(kind).is_short
    held = held_by([Is(RelationColumn("r0", "x", "what"), "NULL")], (), (1, False))
    with pytest.raises(Refusal, match="may be long"):
        held.of("r0")
    assert held.of("r1") == ([], [], [])


def test_labels_and_fields_may_be_called_variant() -> None:
    """ENUM values are in the order of rows whatever the labels are, so that rows that differ by one are not tied."""
    for kind in ("ENUM('VARIANT', 'it''s a VARIANT')", 'STRUCT("VARIANT" INTEGER)', "VARCHAR"):
        assert hash_input_sql("c", kind) == "c"
    for kind in ("VARIANT", "VARIANT[]", 'STRUCT("a" VARIANT)'):
        assert hash_input_sql("c", kind) == "TRUE", "other rows decide whether it is NULL"
    for kind in ("GEOMETRY", "GEOMETRY[]", 'STRUCT("a" GEOMETRY)'):
        assert hash_input_sql("c", kind) == "c IS NULL", "other rows decide whether a zero in it has a sign"
