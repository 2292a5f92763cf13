"""A clinic in memory with every kind of column and name that a statement may meet. Its rows are not random."""

from __future__ import annotations

import re
from collections.abc import Sequence

import duckdb

import dpduck

_DUCKDBS_WORDS = re.compile(r"(DuckDB does not accept this: |fails on the public domain: ).+(; accepted: )")
ROWS = """
SELECT 'FM'[i % 2 + 1] AS sex, CAST((i * 7) % 120 - 5 AS INTEGER) AS age, 'w' || (i % 5) AS ward,
    CAST(i // 4 AS INTEGER) AS patient_id, CAST(i % 1000 AS DECIMAL(10, 2)) + 0.25 AS charge,
    CASE WHEN i % 17 = 0 THEN 'nan'::DOUBLE WHEN i % 19 = 0 THEN NULL ELSE i / 7 END AS score,
    CASE WHEN i % 13 = 0 THEN NULL ELSE 'note ' || (i % 50) END AS note, i % 3 = 0 AS urgent,
    DATE '2024-01-01' + CAST(i % 366 AS INTEGER) AS day, TIMESTAMP '2024-01-01' + INTERVAL (i % 9000) HOUR AS at,
    ['low', 'mid', 'high'][i % 3 + 1]::grade AS grade,
    CASE WHEN i % 11 = 0 THEN NULL ELSE 'ä' || (i % 2) END AS "Straße",
    CAST(i % 4 AS TINYINT) AS "odd ""name", CAST(i % 6 AS UBIGINT) AS code
FROM range(3000) AS r(i)
"""
TABLES = (
    "CREATE TYPE grade AS ENUM ('low', 'mid', 'high')",
    f"CREATE TABLE visits AS {ROWS}",
    "CREATE TABLE patients AS SELECT CAST(i // 2 AS INTEGER) AS id, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward, "
    "CAST(i % 9 AS INTEGER) AS age FROM range(400) AS r(i)",
    "CREATE TABLE trial AS SELECT 'FM'[i % 2 + 1] AS sex FROM range(10) AS r(i)",
    'CREATE TABLE "Übung ""1" AS SELECT \'FM\'[i % 2 + 1] AS "größe" FROM range(10) AS r(i)',
    "CREATE TABLE wards AS SELECT 'w' || i AS name, ['north', 'south', NULL][i % 3 + 1] AS region, "
    "CAST(i AS BIGINT) AS code FROM range(7) AS r(i)",
    "CREATE TABLE regions AS SELECT * FROM (VALUES ('north', 'N'), ('south', 'S')) AS r(region, letter)",
    "CREATE TABLE offers AS SELECT 'w' || (i % 3) AS ward, 'offer ' || i AS offer FROM range(9) AS r(i)",
    "CREATE TABLE secrets AS SELECT 'canary' AS word, 'F' AS sex",
    "CREATE VIEW visit_view AS SELECT * FROM visits",
    "CREATE TABLE folded AS SELECT 'W1' AS name",
    "ALTER TABLE folded ADD COLUMN label VARCHAR COLLATE NOCASE",
    "CREATE SEQUENCE steps",
    "CREATE MACRO peek(x) AS x",
)
STATEMENTS = (
    *(f"DECLARE PUBLIC TABLE {name}" for name in ("wards", "regions", "offers", "folded")),
    """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1000000),
        DOMAIN sex IN ('F', 'M'), DOMAIN age RANGE 0 TO 100 STEP 5, DOMAIN ward FROM wards.name WITH NULL,
        DOMAIN urgent BOOLEAN, DOMAIN grade ENUM, DOMAIN day RANGE '2024-01-01' TO '2025-01-01' STEP INTERVAL 1 MONTH,
        DOMAIN "Straße" IN ('ä0') WITH NULL WITH OTHER 'rest', DOMAIN "odd ""name" IN (0, 1, 2),
        DOMAIN score RANGE 0 TO 400 STEP 100 WITH EDGES, DOMAIN code IN (0, 1, 2, 3, 4, 5))""",
    """CREATE PRIVACY POLICY ON patients (PRIVACY UNIT id MAX ROWS 2, BUDGET (epsilon = 1000000), MAX EPSILON 100,
        DOMAIN sex IN ('F', 'M'), DOMAIN ward IN ('w0', 'w1', 'w2', 'w3', 'w4'))""",
    "CREATE PRIVACY POLICY ON trial (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN ('F', 'M'))",
    """CREATE PRIVACY POLICY ON "Übung ""1" (PRIVACY UNIT ROW, BUDGET (epsilon = 1000000),
        DOMAIN "größe" IN ('F', 'M'))""",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.75) count(*) FROM trial",
)


def open_clinic(then: Sequence[str] = ()) -> duckdb.DuckDBPyConnection:
    """Opens a new clinic with its policies and a store in memory, so that nothing is written to a disk.

    then: more statements for dp(), or for DuckDB where they start with "sql ".
    """
    connection = dpduck.connect()
    for statement in TABLES:
        connection.execute(statement)
    for statement in STATEMENTS:
        ask(connection, statement)
    for statement in then:
        if statement.startswith("sql "):
            connection.execute(statement.removeprefix("sql "))
        else:
            ask(connection, statement)
    return connection


def ask(connection: duckdb.DuckDBPyConnection, statement: str) -> duckdb.DuckDBPyConnection:
    """Asks a statement through FROM dp(..), as every client does."""
    return connection.execute("FROM dp(?)", [statement])


def told(connection: duckdb.DuckDBPyConnection, statement: str) -> str:
    """Returns the message of a refusal, or '' where there is none."""
    try:
        ask(connection, statement).fetchall()
    except duckdb.Error as error:
        return str(error).partition("\n")[0].removeprefix("Invalid Input Error: ")
    return ""


def without_duckdb(message: str) -> str:
    """Returns the message without DuckDB's own words, which differ between its releases."""
    return _DUCKDBS_WORDS.sub(r"\1..\2", message)


def charges(connection: duckdb.DuckDBPyConnection) -> int:
    """Returns the number of entries in the ledger."""
    row = connection.execute("SELECT count(*) FROM dp_ledger()").fetchone()
    assert row is not None
    return int(row[0])
