"""Units of several columns count as one stored column of the same pairs would, and two units are never merged.

One database has every table twice: with a unit of two columns, and with one stored column that numbers their pairs.
Both have one key, by which a unit's rows are ordered, so that exact counts are equal cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dpduck
from dpduck.database.database import Database
from dpduck.database.functions import database_of
from dpduck.kernel.columns.expressions import RelationColumn
from dpduck.kernel.columns.stored import LONGEST_JOINED
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.units import UnitTuple
from dpduck.kernel.worker.workers import Workers
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.jobs import counting_job
from tests.kernel.test_bounding import assert_bounded
from tests.language.facts import request_of

MOST = 2
"""MAX ROWS."""

WORKERS = Workers()

LONG = "x" * 70
HOUSEHOLDS = ("a", "ab", "", "1:a", "a1:b", LONG, LONG + "y", None)
SURVEYS = ("bc", "c", "", "1:c", "b2:bc", LONG, None)
Answer = tuple[str | None, str | None, str | None, int | None]  # household, survey, kind, number
Part = tuple[int, str | None]  # answer, mode

STATEMENTS = {
    "plain": ("kind", "{answers}"),
    "worker": ("kind", "{answers} WHERE 7 / number >= 1"),
    "by a part of the unit": ("survey", "{answers}"),
    "public": ("colour", "{answers} JOIN kinds USING (kind)"),
    "left": ("kind, colour", "{answers} LEFT JOIN kinds USING (kind)"),
    "nested": ("kind", "(SELECT * FROM {answers} WHERE number > 0) AS n WHERE number < 9"),
    "per unit": ("k", "(SELECT count(*) AS k FROM {answers} GROUP BY {unit}) AS u"),
    "features": ("first", "(SELECT first(kind ORDER BY number + 1, id) AS first, max(number) AS most FROM {answers} "
                 "GROUP BY {unit}) AS u WHERE most > 0"),
    "windows": ("kind, before", "(SELECT kind, lag(kind) OVER (PARTITION BY {unit} ORDER BY id) AS before "
                "FROM {answers}) AS w"),
    "union": ("kind", "(SELECT kind FROM {answers} WHERE number > 1 UNION ALL SELECT mode FROM {parts}) AS u"),
    "itself": ("b.kind", "{answers} AS a JOIN {answers} AS b ON {same}"),
    "itself, left": ("b.kind", "{answers} AS a LEFT JOIN {answers} AS b ON {same} AND a.number < b.number"),
    "full": ("b.kind", "{answers} AS a FULL JOIN {answers} AS b ON {same} AND a.number < b.number"),
    "anti": ("a.kind", "{answers} AS a ANTI JOIN (SELECT * FROM {answers} WHERE kind = 'b') AS b ON {same}"),
    "by a key": ("a.kind, b.kind", "{answers} AS a JOIN {answers} AS b ON a.id = b.id"),
    "looked up": ("mode", "{parts}"),
    "looked up, joined": ("kind, mode", "{parts} AS p JOIN {answers} AS a ON p.answer = a.id"),
    "persons": ("mode", "{parts} LEFT JOIN kinds ON mode = kind"),
}  # fmt: skip
NAMES = {
    "answers": "answers", "parts": "parts", "unit": "household, survey",
    "same": "a.survey = b.survey AND a.household = b.household",
}  # fmt: skip
STORED = {"answers": "stored", "parts": "stored_parts", "unit": "unit", "same": "a.unit = b.unit"}


class Surveys:
    """Both kinds of tables, and the requests of each statement over each."""

    def __init__(self, kinds: Sequence[str] = ("VARCHAR", "VARCHAR")) -> None:
        self.con = dpduck.connect(config={"threads": 1})
        columns = f"household {kinds[0]}, survey {kinds[1]}, kind VARCHAR, number INTEGER"
        self.con.execute(f"CREATE TABLE answers (id INTEGER PRIMARY KEY, {columns})")
        self.con.execute(f"CREATE TABLE stored (id INTEGER PRIMARY KEY, {columns}, unit INTEGER)")
        self.con.execute(
            "CREATE TABLE kinds AS FROM (VALUES ('a', 'one'), ('a', 'two'), ('b', 'one')) AS k(kind, colour)"
        )
        self.dp("DECLARE PUBLIC TABLE kinds")
        domains = "DOMAIN kind IN ('a', 'b') WITH NULL, DOMAIN survey IN ('bc', 'c', '') WITH NULL"
        for names, unit, whose in ((NAMES, "(household, survey)", "answers"), (STORED, "unit", "stored")):
            self.con.execute(
                f"CREATE TABLE {names['parts']} (number INTEGER PRIMARY KEY, answer INTEGER, mode VARCHAR)"
            )
            price = f"MAX ROWS {MOST}, BUDGET (epsilon = 9)"
            self.dp(f"CREATE PRIVACY POLICY ON {whose} (PRIVACY UNIT {unit} {price}, {domains})")
            self.dp(f"CREATE PRIVACY POLICY ON {names['parts']} (PRIVACY UNIT answer REFERENCES {whose}.id MAX ROWS 3, "
                    "DOMAIN mode IN ('a', 'b'))")  # fmt: skip
        self.requests = {
            name: tuple(self.request(keys, source.format(**names)) for names in (NAMES, STORED))
            for name, (keys, source) in STATEMENTS.items()
        }

    def dp(self, statement: str) -> None:
        self.con.execute("FROM dp(?)", [statement]).fetchall()

    def request(self, keys: str, source: str) -> SelectRequest:
        clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)"
        return request_of(self.con, f"{clause} {keys}, count(*) FROM {source} GROUP BY {keys}")

    def put(self, answers: Sequence[Answer], parts: Sequence[Part], without: tuple[str, str] | None = None) -> None:
        """Fills all tables, without the rows of one unit."""
        for table in ("answers", "stored", "parts", "stored_parts"):
            self.con.execute(f"DELETE FROM {table}")
        pairs: dict[tuple[str, str], int] = {}
        for number, (household, survey, *rest) in enumerate(answers):
            unit = None
            if household is not None and survey is not None:
                unit = pairs.setdefault((household, survey), len(pairs))
            if without is None or (household, survey) != without:
                self.con.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?)", [number, household, survey, *rest])
                self.con.execute(
                    "INSERT INTO stored VALUES (?, ?, ?, ?, ?, ?)", [number, household, survey, *rest, unit]
                )
        for number, (answer, mode) in enumerate(parts):
            if without is None or answer >= len(answers) or answers[answer][:2] != without:
                for table in ("parts", "stored_parts"):
                    self.con.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", [number, answer, mode])

    def table(self, request: SelectRequest) -> NDArray[np.int64]:
        """The exact bounded counts."""
        with self.con.cursor() as cursor:
            return self.counted(cursor, counting_job(request, [Contribution()]))

    def prepared_table(self, request: SelectRequest) -> NDArray[np.int64]:
        """Counts a request exactly over the prepared tables."""
        database = loaded(self.con)
        place = database.about.prepared.place(request.rows)
        assert place is not None
        with self.con.cursor() as cursor, place.open_rows(cursor, WORKERS) as (second, over):
            return self.counted(second, over(counting_job(request, [Contribution()])))

    def counted(self, cursor: duckdb.DuckDBPyConnection, job: CountingJob) -> NDArray[np.int64]:
        counts = count_exactly(cursor, job, loaded(self.con).ledger.bounding_key, WORKERS)
        table = np.zeros(counts._sizes, dtype=np.int64)
        np.add.at(table, counts._exact_coordinates, counts._exact_counts[0])
        return table


def loaded(connection: duckdb.DuckDBPyConnection) -> Database:
    """The engine of a connection."""
    database = database_of(connection)
    assert database is not None
    return database


@pytest.fixture(scope="module")
def surveys() -> Iterator[Surveys]:
    made = Surveys()
    yield made
    made.con.close()


ANSWERS = st.lists(
    st.tuples(
        st.sampled_from(HOUSEHOLDS), st.sampled_from(SURVEYS), st.sampled_from(["a", "b", "x", None]),
        st.sampled_from([0, 1, 2, 7, None]),
    ),
    max_size=12,
)  # fmt: skip
PARTS = st.lists(st.tuples(st.integers(0, 13), st.sampled_from(["a", "b", None])), max_size=12)
TWINS = [("a", "bc", "a", 1), ("ab", "c", "a", 2), ("a", "bc", "b", 3), ("ab", "c", "a", 4), ("a", "bc", "a", 5)]
"""Units that are one text if their parts are put together."""


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(sorted(STATEMENTS)), answers=ANSWERS, parts=PARTS, few=st.booleans())
def test_any_rows_are_counted_as_by_a_stored_column(
    surveys: Surveys, name: str, answers: list[Answer], parts: list[Part], few: bool
) -> None:
    """Cell by cell, over any statement: pairs that look alike are apart, and a pair's rows are together."""
    answers = [*TWINS, *answers[:3]] if few else answers
    surveys.put(answers, parts)
    together, stored = surveys.requests[name]
    assert surveys.table(together).tolist() == surveys.table(stored).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", STATEMENTS)
def test_each_statement_is_counted_as_by_a_stored_column(surveys: Surveys, name: str) -> None:
    """Over rows that every statement reads some of."""
    surveys.put(TWINS, [(number % 6, "ab"[number % 2]) for number in range(20)])
    together, stored = surveys.requests[name]
    assert surveys.table(together).sum() > 0
    assert surveys.table(together).tolist() == surveys.table(stored).tolist()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(sorted(STATEMENTS)), answers=ANSWERS, parts=PARTS, few=st.booleans())
def test_random_neighbours(surveys: Surveys, name: str, answers: list[Answer], parts: list[Part], few: bool) -> None:
    """Without all rows of one pair counts differ by MAX ROWS at most. Rows with NULL in a part are nobody's."""
    answers = [*TWINS, *answers[:3]] if few else answers
    request = surveys.requests[name][0]
    surveys.put(answers, parts)
    table = surveys.table(request)
    for unit in {(one[0], one[1]) for one in answers}:
        household, survey = unit
        if household is not None and survey is not None:
            surveys.put(answers, parts, (household, survey))
            assert_bounded(table[np.newaxis], surveys.table(request)[np.newaxis], request.rows.unit_bound)
    nobody = [one for one in answers if None not in one[:2]]
    if name in ("plain", "worker", "public", "nested", "per unit", "windows", "itself"):
        surveys.put(nobody, [])
        assert surveys.table(request).tolist() == table.tolist()


@pytest.mark.slow
@settings(max_examples=2, deadline=None)
@given(answers=ANSWERS, parts=PARTS)
def test_prepared_tables_count_the_same(answers: list[Answer], parts: list[Part]) -> None:
    """Every statement over prepared tables equals the one over the tables, by their own units."""
    surveys = Surveys()
    surveys.put([*TWINS, *answers], parts)
    plain = {name: surveys.table(both[0]) for name, both in surveys.requests.items()}
    surveys.dp("ALTER PRIVACY POLICY ON answers, parts PREPARE")
    for name, both in surveys.requests.items():
        assert surveys.prepared_table(both[0]).tolist() == plain[name].tolist(), name
    surveys.con.close()


PARTS_OF_TYPES = {
    "VARCHAR": [
        "''",
        "'1'",
        "'1:1'",
        "':'",
        "'1:'",
        "'2:11'",
        "'ä'",
        "'a' || chr(0)",
        "repeat('x', 70)",
        "'zzzzzzzzz2xy'",
        "'12zzzzzzzzz'",
        "'xy'",
        "NULL",
    ],
    "INTEGER": ["1", "11", "-1", "0", "2147483647", "NULL"],
    "UHUGEINT": ["1", "11", "340282366920938463463374607431768211455"],
    "DATE": ["'2024-01-01'", "'0044-03-15 (BC)'", "'infinity'", "'-infinity'", "NULL"],
    "UUID": ["'00000000-0000-0000-0000-000000000001'", "'10000000-0000-0000-0000-000000000000'"],
    "BOOLEAN": ["true", "false", "NULL"],
    "ENUM('1', '1:1', '11')": ["'1'", "'1:1'", "'11'"],
}


@pytest.mark.parametrize("kinds", [(one, other) for one in PARTS_OF_TYPES for other in PARTS_OF_TYPES])
def test_units_are_equal_if_their_parts_are(kinds: tuple[str, str]) -> None:
    """Of all pairs of values of two types: as many texts as pairs without NULL, and NULL for all others."""
    listed = [
        f"(CAST({one} AS {kinds[0]}), CAST({other} AS {kinds[1]}))"
        for one in PARTS_OF_TYPES[kinds[0]]
        for other in PARTS_OF_TYPES[kinds[1]]
    ]
    unit = UnitTuple((RelationColumn("t", "a", kinds[0]), RelationColumn("t", "b", kinds[1]))).sql
    with duckdb.connect() as connection:
        found: tuple[Any, ...] | None = connection.execute(
            f"SELECT count(DISTINCT {unit}), count(*) FILTER (a IS NOT NULL AND b IS NOT NULL), "
            f"bool_and(({unit} IS NULL) = (a IS NULL OR b IS NULL)) FROM (VALUES {', '.join(listed)}) AS t(a, b)"
        ).fetchone()
    assert found is not None and found[0] == found[1] > 0 and found[2]


def test_a_long_text_is_no_part_of_a_unit(surveys: Surveys) -> None:
    """Rows with a longer text than stands beside a join are nobody's, also where their unit is looked up."""
    texts = ["x" * length for length in (LONGEST_JOINED - 1, LONGEST_JOINED, LONGEST_JOINED + 1)]
    surveys.put([(text, "c", "a", 1) for text in texts for _ in range(3)], [(number, "a") for number in range(9)])
    assert surveys.table(surveys.requests["plain"][0]).sum() == 2 * MOST
    assert surveys.table(surveys.requests["looked up"][0]).sum() == 2 * 3, "MAX ROWS of parts"
