"""One person's long text, put beside many rows by references, joins and copies, decides nothing.

DuckDB keeps a row's other columns in windows, hash joins and subqueries. A few kilobytes of one person filled the
memory, and the statement failed after its charge. Each case is asked in little memory, without a disk.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pytest

import dpduck
from dpduck.kernel.columns.stored import LONGEST_AS_IT_IS, LONGEST_UNIT, instant_sql, shorten_sql
from tests.support import memory

PEOPLE = "CREATE TABLE people (id BIGINT PRIMARY KEY, note VARCHAR, name {0}, ward VARCHAR)"
VISITS = "CREATE TABLE visits (patient BIGINT, g INTEGER, note VARCHAR, ward VARCHAR)"
OTHERS = (
    "INSERT INTO people SELECT i, 'n', CAST('p' || i AS {0}), 'w' || i FROM range(1000) AS r(i)",
    "INSERT INTO visits SELECT i // 2, i // 20, 'n' || i, 'w' || i FROM range(2000) AS r(i)",
)
PUBLIC = (
    "CREATE TABLE pub AS SELECT 0 AS k, range AS v FROM range({copies})",
    "CREATE TABLE labels AS SELECT 'w' || range AS k FROM range(2000)",
    "CREATE TABLE keys AS SELECT 'w' || range AS k FROM range(100000)",
)
BUDGET = "BUDGET (epsilon = 10, delta = 1e-6, delta_keys = 5e-7)"
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1e-3{0}) {1}"
SELECTED = ", delta = 1e-9, group_selection_strategy = GAUSSIAN_THRESHOLD"
MADE = "CASE WHEN visits.patient = 5000 THEN " + " || ".join(["'" + "x" * 20_000 + "'"] * 3) + " ELSE 'a' END"
LOOKED_UP = "CASE WHEN a.patient = 5000 THEN '" + "x" * 4000 + "' ELSE 'w1' END"
PAIRS = "FROM visits AS a JOIN visits AS b ON a.patient = b.patient"


@dataclass(frozen=True)
class Case:
    """her: rows of one more person, number 5000. unit: of people, id or a name of a type."""

    asked: str
    her: tuple[str, ...]
    unit: str = "id"
    type_name: str = "VARCHAR"
    copies: int = 16
    memory: str = "300MB"


def visits(number: int, note: str = "'x'", ward: str = "'w1'") -> str:
    return f"INSERT INTO visits SELECT 5000, 0, {note}, {ward} FROM range({number})"


def person(note: str = "'x'", name: str = "'x'") -> str:
    return f"INSERT INTO people VALUES (5000, {note}, {name}, 'w1')"


OF_PEOPLE = "FROM visits AS v JOIN people AS p ON v.patient = p.id"
COPIES = "JOIN pub ON pub.k = visits.g"
CASES = {
    "a unit's name by a reference": Case(
        COUNT.format("", "count(*) FROM visits"), (person(name="repeat('x', 500000)"), visits(2000)), "name"
    ),
    "a unit's name by a reference, copied": Case(
        COUNT.format("", f"count(*) FROM visits {COPIES} WHERE visits.g % 2 >= 0"),
        (person(name="repeat('x', 60000)"), visits(20)), "name", copies=1000,
    ),
    "a unit's bytes": Case(
        COUNT.format("", "count(*) FROM visits WHERE g % 2 >= 0"),
        (person(name="CAST(repeat('x', 500000) AS BLOB)"), visits(1000)), "name", "BLOB",
    ),
    "a key that is stored, by a join": Case(
        COUNT.format(SELECTED, f"p.note AS s, count(*) AS n {OF_PEOPLE} GROUP BY s"),
        (person(note="repeat('x', 65535)"), visits(8000)),
    ),
    "a key that is made": Case(
        COUNT.format(SELECTED, f"{MADE} AS s, count(*) AS n FROM visits {COPIES} GROUP BY s"), (person(), visits(600))
    ),
    "a declared key, copied": Case(
        COUNT.format("", f"visits.ward, count(*) AS n FROM visits {COPIES} GROUP BY visits.ward"),
        (person(), visits(1, ward="repeat('x', 1000000)")), copies=1000,
    ),
    "a declared key beside selected ones": Case(
        COUNT.format(SELECTED, f"visits.ward, g AS s, count(*) AS n FROM visits {COPIES} GROUP BY visits.ward, s"),
        (person(), visits(1, ward="repeat('x', 1000000)")), copies=1000,
    ),
    "a key of a histogram": Case(
        f"CREATE PRIVATE HISTOGRAM h OPTIONS (epsilon = 1e-3, queries = 5) AS SELECT p.note, v.g {OF_PEOPLE}",
        (person(note="repeat('x', 1000000)"), visits(1000)),
    ),
    "a text that is looked up, by a self join": Case(
        COUNT.format(", max_rows_contributed = 10", f"count(*) AS n {PAIRS} LEFT JOIN keys ON {LOOKED_UP} = keys.k"),
        (person(), visits(1000)),
    ),
    "texts that are compared, by a self join": Case(
        COUNT.format(", max_rows_contributed = 10", f"count(*) AS n {PAIRS} LEFT JOIN keys ON keys.k = a.ward "
                     "WHERE a.note < b.note OR a.note = keys.k OR b.note = keys.k"),
        (person(), visits(128, note="repeat('x', 60000) || range")),
    ),
}  # fmt: skip


def outcome(case: Case, her: tuple[str, ...]) -> tuple[str, int]:
    """Returns what comes of a statement, where she stored this."""
    made = [sql.format(case.type_name) for sql in (PEOPLE, VISITS, *OTHERS)]
    made += [sql.format(copies=case.copies) for sql in PUBLIC]
    policies = (
        "DECLARE PUBLIC TABLE pub", "DECLARE PUBLIC TABLE labels", "DECLARE PUBLIC TABLE keys",
        f"CREATE PRIVACY POLICY ON people (PRIVACY UNIT {case.unit} MAX ROWS 10, {BUDGET})",
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient REFERENCES people.id MAX ROWS 10, "
        "DOMAIN ward FROM labels.k)",
    )  # fmt: skip
    return memory.outcome((*made, *her), policies, case.asked, case.memory)


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_one_persons_text_decides_nothing(name: str) -> None:
    """Answered and charged once, with her and without."""
    case = CASES[name]
    assert outcome(case, case.her) == ("answered", 1)


@pytest.mark.parametrize("name", ["a key that is made", "texts that are compared, by a self join"])
def test_without_her_it_is_answered_too(name: str) -> None:
    """So that the cases above are none that everybody's rows refuse."""
    assert outcome(CASES[name], ()) == ("answered", 1)


def test_a_shortened_unit_is_one_unit_still() -> None:
    """Equal for equal units, and for no others: a text that looks like the digest of another is too short to be one."""
    long = "x" * (LONGEST_AS_IT_IS + 1)
    values = ["", "a", "x" * LONGEST_AS_IT_IS, long, long + "y", "~", None]
    with duckdb.connect() as con:
        for type_name in ("VARCHAR", "BLOB"):
            sql = f"SELECT {shorten_sql('v', type_name)} FROM (SELECT CAST(? AS {type_name}) AS v)"
            found = [con.execute(sql, [value]).fetchall()[0][0] for value in values]
            assert len(set(found)) == len(values) and found[-1] is None
            assert max(len(one) for one in found[:-1]) == LONGEST_AS_IT_IS + 1
            again = con.execute(sql, [found[3].decode() if isinstance(found[3], bytes) else found[3]]).fetchall()[0][0]
            assert again not in found, "the digest of a unit as a unit of its own"
            assert con.execute(sql, ["x" * (LONGEST_UNIT + 1)]).fetchall() == [(None,)]


def test_moments_are_units_by_their_instant() -> None:
    """Where clocks went back by seconds, two instants have one text in DuckDB 1.5. They are two units for workers, too.

    DuckDB 2.0 writes the seconds of a zone.
    """
    instants = ("1854-06-27 18:06:24+00", "1854-06-27 18:06:32+00", "infinity", "-infinity", "2024-01-01 00:00:00+00")
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'Asia/Kolkata'")
        texts = [con.execute(f"SELECT CAST(TIMESTAMPTZ '{one}' AS VARCHAR)").fetchall() for one in instants]
        assert (texts[0] == texts[1]) == duckdb.__version__.startswith("1.")
        found = [
            con.execute(f"SELECT {instant_sql('v')} FROM (SELECT TIMESTAMPTZ '{one}' AS v)").fetchall()
            for one in instants
        ]
        assert len({str(one) for one in found}) == len(instants) and [(None,)] not in found
    with dpduck.connect() as con:
        con.execute("SET GLOBAL TimeZone = 'Asia/Kolkata'")
        con.execute("CREATE TABLE visits (born TIMESTAMPTZ, g VARCHAR)")
        con.execute(f"INSERT INTO visits VALUES ('{instants[0]}', 'a'), ('{instants[1]}', 'b')")
        con.execute("FROM dp($$CREATE PRIVACY POLICY ON visits (PRIVACY UNIT born MAX ROWS 1, BUDGET (epsilon = 1000), "
                    "DOMAIN g IN ('a', 'b'))$$)")  # fmt: skip
        asked = "g, count(*) AS n FROM visits WHERE length(g) * 2 > 1 GROUP BY g ORDER BY g"
        counted = con.execute(
            f"FROM dp($$SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 99) {asked}$$)"
        ).fetchall()
        assert counted == [("a", 1), ("b", 1)]


def test_long_constants_of_a_union_are_refused() -> None:
    """The constants would be copied to each row where a joined UNION ALL is cut. Nothing is charged."""
    with dpduck.connect() as con:
        con.execute("CREATE TABLE visits AS SELECT range AS patient FROM range(10)")
        con.execute(f"FROM dp($$CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 1, {BUDGET})$$)")
        part = f"SELECT patient, '{'x' * 600}' AS k FROM visits"
        with pytest.raises(duckdb.Error, match="the texts inside UNION ALL are too long; accepted: at most 512 bytes"):
            con.execute("FROM dp(?)", [COUNT.format("", f"count(*) AS n FROM ({part} UNION ALL {part})")])


@pytest.mark.parametrize("asked", [
    "SEMI JOIN keys ON keys.k = visits.ward", "ANTI JOIN keys ON keys.k = visits.ward",
    "SEMI JOIN visits AS w ON w.patient = visits.patient AND w.ward = visits.ward",
])  # fmt: skip
def test_what_is_only_looked_at_is_no_column_of_a_row(asked: str) -> None:
    """A table of a SEMI or ANTI JOIN is not there for a condition on long texts."""
    case = Case(COUNT.format("", f"count(*) AS n FROM visits {COPIES} {asked}"), (person(), visits(3)), copies=1000)
    assert outcome(case, case.her) == ("answered", 1)
