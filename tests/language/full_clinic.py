"""A clinic with rows in every public cell, and with values on bin edges, so that exact SQL answers everything.

With epsilon = 100 a wrong count has a probability below 1e-20: answers equal DuckDB's own.
"""

from __future__ import annotations

import re
from typing import Any

import duckdb

import dpduck
from tests.language.clinic import ask

CLAUSE = re.compile(r"WITH DIFFERENTIAL_PRIVACY OPTIONS \([^)]*\) ")
VISITS = """
CREATE TABLE visits AS
SELECT sex, age, ward, urgent, grade::grade AS grade, day,
    CASE WHEN i % 5 = 0 THEN NULL ELSE 'note ' || i % 7 END AS note,
    CASE WHEN i % 17 = 0 THEN 'nan'::DOUBLE WHEN i % 19 = 0 THEN NULL ELSE i / 7 END AS score,
    CAST(i % 1000 / 4 AS DECIMAL(10, 2)) AS charge, TIMESTAMP '2024-01-01' + INTERVAL (i) HOUR AS moment,
    i % 6 AS code, i AS patient_id
FROM (SELECT *, row_number() OVER () AS i
    FROM (VALUES ('F'), ('M')) AS a(sex), (VALUES (0), (10), (20), (30)) AS b(age),
    (VALUES ('w0'), ('w1'), ('w2'), (NULL)) AS c(ward), (VALUES (true), (false)) AS d(urgent),
    (VALUES ('low'), ('mid'), ('high')) AS e(grade),
    (VALUES (DATE '2024-01-01'), ('2024-02-01'), ('2024-03-01')) AS f(day), range(3) AS g(again)
    WHERE again = 0 OR (age + again) % 3 = 0 OR sex = 'M')
"""
TABLES = (
    "CREATE TYPE grade AS ENUM ('low', 'mid', 'high')",
    VISITS,
    "CREATE TABLE wards AS SELECT * FROM (VALUES ('w0', 'north', 1), ('w1', 'south', 2), ('w2', NULL, 3)) "
    "AS w(name, region, beds)",
    "CREATE TABLE regions AS SELECT * FROM (VALUES ('north', 'N'), ('south', 'S')) AS r(region, letter)",
    "CREATE TABLE offers AS SELECT 'w' || (i % 3) AS ward, 'offer ' || i // 3 AS offer FROM range(9) AS r(i)",
    "CREATE TABLE people AS SELECT CAST(i // 2 AS INTEGER) AS person, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 3) AS ward "
    "FROM range(600) AS r(i)",
    "CREATE TABLE calls AS SELECT CAST(i AS INTEGER) AS call_id, CAST(i // 2 AS BIGINT) AS person, "
    "['in', 'out'][i % 2 + 1] AS kind FROM range(600) AS r(i)",
    "ALTER TABLE calls ADD PRIMARY KEY (call_id)",
    "CREATE TABLE words AS SELECT CAST(i // 2 AS INTEGER) AS call, ['x', 'y', 'z'][i % 3 + 1] AS word "
    "FROM range(1300) AS r(i)",
    'CREATE TABLE "Übung ""1" AS SELECT \'FM\'[i % 2 + 1] AS "größe", i % 3 AS "select" FROM range(60) AS r(i)',
    'CREATE TABLE odd AS SELECT i % 2 AS grouping_id, i % 3 AS answer_1, i % 2 AS "released", i % 3 AS "value", '
    "i % 2 AS dpduck_code_0 FROM range(60) AS r(i)",
    "CREATE TABLE loose AS SELECT CASE WHEN i % 5 = 0 THEN NULL ELSE 'v' || i % 4 END AS word, CAST(i - 10 AS INTEGER) "
    "AS age, CASE WHEN i % 9 = 0 THEN 'nan'::DOUBLE ELSE i / 2 END AS score FROM range(60) AS r(i)",
)
STATEMENTS = (
    *(f"DECLARE PUBLIC TABLE {name}" for name in ("wards", "regions", "offers")),
    """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1000000),
        DOMAIN sex IN ('F', 'M'), DOMAIN age RANGE 0 TO 40 STEP 10, DOMAIN ward FROM wards.name WITH NULL,
        DOMAIN urgent BOOLEAN, DOMAIN grade ENUM, DOMAIN code IN (0, 1, 2, 3, 4, 5),
        DOMAIN day RANGE '2024-01-01' TO '2024-04-01' STEP INTERVAL 1 MONTH)""",
    """CREATE PRIVACY POLICY ON people (PRIVACY UNIT person MAX ROWS 2, BUDGET (epsilon = 1000000),
        DOMAIN sex IN ('F', 'M'), DOMAIN ward IN ('w0', 'w1', 'w2'))""",
    """CREATE PRIVACY POLICY ON calls (PRIVACY UNIT person REFERENCES people.person MAX ROWS 4,
        DOMAIN kind IN ('in', 'out'))""",
    """CREATE PRIVACY POLICY ON words (PRIVACY UNIT call REFERENCES calls.call_id MAX ROWS 8,
        DOMAIN word IN ('x', 'y', 'z'))""",
    """CREATE PRIVACY POLICY ON "Übung ""1" (PRIVACY UNIT ROW, BUDGET (epsilon = 1000000),
        DOMAIN "größe" IN ('F', 'M'), DOMAIN "select" IN (0, 1, 2))""",
    """CREATE PRIVACY POLICY ON odd (PRIVACY UNIT ROW, BUDGET (epsilon = 1000000),
        DOMAIN grouping_id IN (0, 1), DOMAIN answer_1 IN (0, 1, 2), DOMAIN released IN (0, 1),
        DOMAIN value IN (0, 1, 2), DOMAIN dpduck_code_0 IN (0, 1))""",
    """CREATE PRIVACY POLICY ON loose (PRIVACY UNIT ROW, BUDGET (epsilon = 1000000),
        DOMAIN word IN ('v0', 'v1', 'v2') WITH NULL WITH OTHER 'else', DOMAIN age RANGE 0 TO 30 STEP 10 WITH EDGES,
        DOMAIN score RANGE 0 TO 20 STEP 5)""",
)


def open_full_clinic() -> duckdb.DuckDBPyConnection:
    """Opens a new connection with a store in memory."""
    connection = dpduck.connect()
    for statement in TABLES:
        connection.execute(statement)
    for statement in STATEMENTS:
        ask(connection, statement)
    return connection


def plain(statement: str) -> str:
    """Returns the statement without its clause, which DuckDB answers exactly."""
    return CLAUSE.sub("", statement)


def rows_of(result: duckdb.DuckDBPyConnection, *, ordered: bool) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Returns names and rows. Rows are sorted unless the statement orders them."""
    names = [column[0] for column in result.description or ()]
    rows = result.fetchall()
    return names, rows if ordered else sorted(rows, key=repr_of)


def repr_of(row: tuple[Any, ...]) -> str:
    """Returns a key that sorts rows of any types, where 3 and 3.0 are equal."""
    return repr([float(value) if isinstance(value, (int, float)) else value for value in row])
