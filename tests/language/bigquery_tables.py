"""Tables as in GoogleSQL's documentation: who requested how many of which item, with a policy of dpduck's."""

from __future__ import annotations

import duckdb

import dpduck
from tests.language.clinic import ask

TABLES = (
    "CREATE TABLE requests AS SELECT CAST(i // 4 AS INTEGER) AS professor, ['pen', 'pencil', 'paper'][i % 3 + 1] "
    "AS item, CAST((i * 13) % 101 AS INTEGER) AS quantity, CASE WHEN i % 7 = 0 THEN NULL ELSE 'note ' || i % 2 END "
    "AS note, (i % 9) * 1.0 AS price FROM range(4000) AS r(i)",
    "CREATE TABLE staff AS SELECT CAST(i AS INTEGER) AS professor, ['full', 'assistant'][i % 2 + 1] AS rank "
    "FROM range(1000) AS r(i)",
    "CREATE TABLE items AS FROM (VALUES ('pen', 'ink'), ('pencil', 'lead'), ('paper', 'sheet'), ('stapler', 'metal')) "
    "AS i(item, kind)",
    "CREATE TABLE hidden AS SELECT 'pen' AS item",
)
POLICIES = (
    "DECLARE PUBLIC TABLE items",
    """CREATE PRIVACY POLICY ON requests (PRIVACY UNIT professor MAX ROWS 4,
        BUDGET (epsilon = 1000000, delta = 0.009, delta_keys = 0.008),
        DOMAIN item IN ('pen', 'pencil', 'paper'), CLAMP quantity BETWEEN 0 AND 100 STEP 1)""",
    """CREATE PRIVACY POLICY ON staff (PRIVACY UNIT professor REFERENCES requests.professor MAX ROWS 2,
        DOMAIN rank IN ('full', 'assistant'))""",
)


def open_university() -> duckdb.DuckDBPyConnection:
    """Opens a new connection with a store in memory."""
    connection = dpduck.connect()
    for statement in TABLES:
        connection.execute(statement)
    for policy in POLICIES:
        ask(connection, policy)
    return connection
