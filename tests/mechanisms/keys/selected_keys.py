"""A table of calls with free-text reasons, for releases that select their keys."""

from __future__ import annotations

from fractions import Fraction

import duckdb

import dpduck
from dpduck.values.accounting import rho_of

# 600 groups of a single caller must stay unpublished: at this delta a group passes with a chance below 3e-14.
KEY_DELTA = Fraction(5, 10**17)
RHO = rho_of(Fraction(3), KEY_DELTA)
"""What a statement with these prices pays: half of delta for its keys, and rho for epsilon and the other half."""
PRICE, DELTA = "epsilon = 3", "1e-16"
POLICY = """CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3,
    BUDGET (epsilon = 40, delta = 1e-15, delta_keys = 5e-16),
    DOMAIN sex IN ('F', 'M'), DOMAIN age RANGE 0 TO 40 STEP 20)"""
ROWS = """SELECT i // 3 AS caller, 'FM'[i % 2 + 1] AS sex, CAST(i % 50 AS INTEGER) AS age,
    CASE WHEN i % 10 < 8 THEN 'common ' || (i % 4) WHEN i % 10 = 8 THEN NULL ELSE 'rare reason ' || i END AS reason,
    CASE WHEN i % 100 = 0 THEN 'x' ELSE CAST(i % 3 AS VARCHAR) END AS digits, DATE '2024-01-01' + CAST(i % 2 AS INTEGER)
    AS day FROM range(6000) AS r(i)"""


def open_calls(policy: str = POLICY) -> duckdb.DuckDBPyConnection:
    """A new database with the policy in force."""
    connection = dpduck.connect()
    connection.execute(f"CREATE TABLE calls AS {ROWS}")
    connection.execute("FROM dp(?)", [policy])
    return connection


def statement(
    rest: str, *options: str, strategy: str = "GAUSSIAN_THRESHOLD", price: str = PRICE, delta: str = DELTA
) -> str:
    """A statement with a threshold. rest: its text from the select list on."""
    listed = ", ".join((price, f"delta = {delta}", f"group_selection_strategy = {strategy}", *options))
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({listed}) {rest}"


def ask(connection: duckdb.DuckDBPyConnection, text: str) -> list[tuple[object, ...]]:
    """The rows of an answer."""
    return connection.execute("FROM dp(?)", [text]).fetchall()


def charges(connection: duckdb.DuckDBPyConnection) -> list[tuple[object, ...]]:
    """Epsilon, rho and delta of every release."""
    return connection.execute(
        "SELECT epsilon, rho, delta FROM dp_ledger() WHERE mechanism LIKE 'discrete%' ORDER BY id"
    ).fetchall()
