"""A small clinic on a connection, and words for what tests do with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import duckdb
import pytest

from dpduck.database.analyst_macros import macros_sql

POLICY = """CREATE PRIVACY POLICY ON visits (
    PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10),
    DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 10, DOMAIN ward FROM wards.name
)"""
CHARGES = "SELECT count(*) FROM dp_ledger() WHERE epsilon IS NULL OR rho > 0"


REHEARSED = bytes(32)
"""The key with which a rehearsal bounds its made-up rows: it is no count of private ones."""


def by(column: str, epsilon: str = "1", more: str = "", tail: str = "") -> str:
    """Returns a count by one column."""
    options = f"epsilon = {epsilon}" + (f", {more}" if more else "")
    return (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) {column}, count(*) AS n "
        f"FROM visits GROUP BY {column} {tail}"
    )


class Clinic:
    """A connection with 1,000 visits of 250 patients in 5 wards, and words for what tests do with it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.con = connection

    def fill(self) -> None:
        self.con.execute(
            "CREATE TABLE visits AS SELECT range % 2 AS sex, (range * 7) % 100 AS age, range // 4 AS patient, "
            "'w' || (range % 5) AS ward FROM range(1000)"
        )
        self.con.execute(
            "CREATE TABLE wards AS SELECT 'w' || range AS name, ['north', 'south'][range % 2 + 1] AS region "
            "FROM range(6)"
        )

    def protect(self, policy: str = POLICY) -> None:
        self.dp("DECLARE PUBLIC TABLE wards")
        self.dp(policy)

    def dp(self, statement: str) -> list[tuple[Any, ...]]:
        return self.con.execute("FROM dp(?)", [statement]).fetchall()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.con.execute(sql).fetchall()

    def value(self, sql: str) -> Any:
        return self.rows(sql)[0][0]

    def charges(self) -> int:
        return int(self.value(CHARGES))

    def refused(self, statement: str) -> str:
        """Returns the message of a refused statement, one line. Requires that nothing was charged."""
        return self.all_refused([statement])[0]

    def all_refused(self, statements: Sequence[str]) -> list[str]:
        """Returns the message of each refused statement. Fails with the name of a statement that is answered."""
        before, messages = self.charges(), []
        for statement in statements:
            with pytest.raises(duckdb.Error) as caught:
                pytest.fail(f"{statement} answered {self.dp(statement)[:3]}")
            messages.append(one_line(caught.value))
        assert self.charges() == before
        return messages


def one_line(error: BaseException) -> str:
    """Returns dpduck's line of an error. Requires that DuckDB adds only its drawing of the client's own text."""
    line, _, drawing = str(error).partition("\n")
    assert drawing == "" or drawing.lstrip().startswith("LINE ")
    assert error.__cause__ is None
    return line.removeprefix("Invalid Input Error: ")


def macro_names() -> set[str]:
    """Returns the names of the macros for analysts in sql/macros.sql."""
    return set(re.findall(r"^CREATE OR REPLACE MACRO (\w+)", macros_sql(), flags=re.MULTILINE))
