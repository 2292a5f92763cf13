"""Conditions over declared columns of prepared rows are decided on public labels, and reach rows as integers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import duckdb
import pytest

import dpduck
from dpduck.kernel.columns.comparisons import Coded, Comparison, Literal
from dpduck.kernel.columns.expressions import Expression, RelationColumn
from dpduck.kernel.counting.exact import job_sql, read_job
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.places.labels import MOST_COMBINATIONS, MOST_RANGES, CodedColumn, encode_condition, tells
from dpduck.kernel.places.prepared import over_prepared
from dpduck.values.domain import RangeDomain, ValueDomain
from tests.kernel.places.test_prepared import asked, differing, jobs_of, prepared

LABELS = 64
POLICY = (
    "FROM dp($$CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person MAX ROWS 2, BUDGET (epsilon = 9), "
    "DOMAIN ward IN ('a', 'b', 'c') {}, DOMAIN code IN ({}), DOMAIN day IN ('2024-01-01', '2024-01-02') WITH NULL, "
    "DOMAIN age RANGE 0 TO 100 STEP 10)$$)"
)
KEYS = ("ward, count(*) AS n FROM visits {} GROUP BY ward", "count(*) AS n FROM visits {}")
CONDITIONS = (
    "WHERE ward <> 'a'",
    "WHERE ward IN ('b', 'c', 'outside') OR ward IS NULL",
    "WHERE upper(ward) = 'B'",
    "WHERE coalesce(ward, 'none') IN ('none', 'a') AND NOT ward LIKE '%x%'",
    "WHERE code % 2 = 0",
    "WHERE code BETWEEN 3 AND 40 AND code <> 7",
    "WHERE ward = 'a' OR code > 50",
    "WHERE length(ward) + code > 20",
    "WHERE day = DATE '2024-01-01' OR day IS NULL",
    "WHERE month(day) = 1 AND ward = 'b'",
    "WHERE 10 / (code - 7) > 1",
    "WHERE ward = 'b' AND age > 31",
)


@pytest.fixture(params=["", "WITH NULL", "WITH OTHER 'rest'", "WITH NULL WITH OTHER 'rest'"])
def clinic(request: pytest.FixtureRequest) -> Iterator[duckdb.DuckDBPyConnection]:
    """Crowded people, with values inside and outside of domains, and NULLs."""
    with dpduck.connect() as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT i % 40 AS person, ['a', 'b', 'c', 'outside', 'B', NULL][i % 6 + 1] AS ward, "
            "CAST(i * 7 % 70 AS INTEGER) AS code, CAST(i % 100 AS INTEGER) AS age, "
            "[DATE '2024-01-01', DATE '2024-01-02', DATE '2025-01-01', NULL][i % 4 + 1] AS day FROM range(400) AS r(i)"
        )
        connection.execute(POLICY.format(request.param, ", ".join(map(str, range(LABELS)))))
        yield connection


@pytest.mark.sampled
def test_counts_are_those_of_the_table(clinic: duckdb.DuckDBPyConnection) -> None:
    """Conditions over declared columns, plain or not, have the table's counts, for rows inside and outside domains."""
    statements = [key.format(condition) for key in KEYS for condition in CONDITIONS]
    statements += ["ward, count(*) FILTER (WHERE code % 2 = 0 AND ward > 'a') AS n FROM visits GROUP BY ward"]
    statements += ["code, count(*) FILTER (WHERE code > 9) AS n, count(*) AS m FROM visits GROUP BY code"]
    statements += ["ward, count(*) AS n FROM (FROM visits WHERE upper(ward) > 'A' UNION ALL FROM visits) GROUP BY ward"]
    assert differing(clinic, statements, "visits") == []


@pytest.mark.parametrize("condition", ["ward <> 'a'", "upper(ward) = 'B'", "code % 2 = 0", "ward = 'a' OR code > 5"])
def test_no_expression_of_an_analyst_is_left(condition: str) -> None:
    """Over declared columns in GROUP BY rows are compared with integers, and no worker is needed."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE visits AS SELECT 1 AS person, 'a' AS ward, 1 code, 1 age, NULL::DATE AS day")
        connection.execute(POLICY.format("WITH NULL", ", ".join(map(str, range(LABELS)))))
        (job,) = jobs_of(connection, f"ward, code, count(*) AS n FROM visits WHERE {condition} GROUP BY ward, code")
        other, twins = prepared(connection, "visits")
        twin = over_prepared(job, twins, {}, asked(other))
        assert isinstance(twin, CountingJob)
        reading = read_job(twin)
        assert not reading.division.has_work and not reading.scan.moved and not reading.scan.stages
        sql = job_sql(twin)
        assert not re.search("ward|upper|'a'|'B'|%", sql.replace('"visits_twin"', "")), sql
        assert set(re.findall(r'"r0"\."(\w+)"', sql)) >= {"dpduck_code_0", "dpduck_code_1"}


def test_rows_outside_of_a_domain_alone_are_asked() -> None:
    """Only rows without a code are asked the condition: a worker gets these rows and no others."""
    with dpduck.connect() as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT i AS person, ['a', 'b', 'outside'][i % 3 + 1] AS ward, 1 AS code, 1 AS age, "
            "NULL::DATE AS day FROM range(30) AS r(i)"
        )
        connection.execute(POLICY.format("", "1"))
        (job,) = jobs_of(connection, "count(*) AS n FROM visits WHERE upper(ward) > 'A'")
        other, twins = prepared(connection, "visits")
        twin = over_prepared(job, twins, {}, asked(other))
        assert isinstance(twin, CountingJob)
        reading = read_job(twin)
        (stage,) = reading.scan.stages
        assert stage.where == '"r0"."dpduck_code_0" IS NULL' and not reading.division.has_work
        row = other.execute(
            f'SELECT list(DISTINCT ward) FROM {stage.stored.sql} AS "r0" WHERE {stage.where}'
        ).fetchone()
        assert row == (["outside"],)


def test_a_long_list_of_codes_is_looked_up() -> None:
    """A condition on many ranges of codes becomes a look-up in a list, and holds for the same codes."""
    values = tuple(str(number) for number in range(4 * MOST_RANGES))
    column = CodedColumn(RelationColumn("r0", "dpduck_code_0", "UTINYINT"), ValueDomain("INTEGER", values))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE codes AS SELECT i::UTINYINT AS dpduck_code_0 FROM range({len(values)}) r(i)")
        for step in (1, 2, 5, 9):
            test = among(column, [number % step == 0 for number in range(len(values))])
            assert ("TRUE" in test) == (step == 2)
            found = connection.execute(f'SELECT dpduck_code_0 FROM codes AS "r0" WHERE {test} ORDER BY ALL').fetchall()
            assert [code for (code,) in found] == list(range(0, len(values), step))


def among(column: CodedColumn, flags: list[bool]) -> str:
    """Returns the SQL test for the labels with these flags."""

    def ask(condition: Expression, columns: Mapping[RelationColumn, CodedColumn]) -> list[bool]:
        return flags

    code = RelationColumn("r0", "code", "INTEGER")
    found = encode_condition(Comparison(code, ">", Literal("number", "0")), {code: column}, frozenset(), ask)
    assert isinstance(found, Coded)
    return found.test.sql


def test_what_codes_do_not_tell() -> None:
    """Codes decide no condition over bins, over numbers with two zeros, or over another type than the labels'."""
    labels = ValueDomain("VARCHAR", ("a",))
    assert tells(labels, "VARCHAR") and not tells(labels, "BLOB")
    assert not tells(ValueDomain("DOUBLE", ("0.0",)), "DOUBLE")
    assert not tells(RangeDomain("INTEGER", ("0",), "5", "5", "", 1), "INTEGER")
    assert not tells(replace(labels, type_name="ENUM('a')"), "VARCHAR")


def test_many_combinations_are_asked_of_rows() -> None:
    """A condition over more combinations of labels than a list may hold is decided on rows."""
    side = int(MOST_COMBINATIONS**0.5) + 1
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE visits AS SELECT 1 AS person, 1 AS x, 2 AS y FROM range(3)")
        domain = ", ".join(map(str, range(side)))
        policy = f"PRIVACY UNIT person MAX ROWS 2, BUDGET (epsilon = 9), DOMAIN x IN ({domain}), DOMAIN y IN ({domain})"
        connection.execute(f"FROM dp($$CREATE PRIVACY POLICY ON visits ({policy})$$)")
        assert differing(connection, ["count(*) AS n FROM visits WHERE x < y AND x + y > 1"], "visits") == []
