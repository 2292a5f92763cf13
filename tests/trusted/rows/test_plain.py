"""Plain conditions fail on no rows, and in no plan."""

from __future__ import annotations

import pytest

import dpduck
from dpduck.trusted.rows.plain import is_plain

PREFIXES = ("\xff", "\u07ff", "\uffff", "\U0010ffff", "\xe4z\xe9\uffff", "\xbf", "\xff\xff", "a\xbf")
"""Texts whose last byte is 0xBF in UTF-8: DuckDB makes a range of a LIKE, whose end is no UTF-8 for these."""

TYPES = {'"name"': "VARCHAR", '"person"': "INTEGER"}
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM people WHERE {}"


@pytest.mark.parametrize("prepared", [False, True])
def test_like_with_any_prefix_is_answered(prepared: bool) -> None:
    """DuckDB raised while it planned, whatever the rows, as soon as a scan was given such a condition."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE people (person INTEGER, name VARCHAR)")
        rows = [(number, f"{PREFIXES[number % len(PREFIXES)]}x") for number in range(200)]
        connection.executemany("INSERT INTO people VALUES (?, ?)", rows)

        def dp(statement: str) -> list[tuple[int, ...]]:
            return connection.execute("FROM dp(?)", [statement]).fetchall()

        dp("CREATE PRIVACY POLICY ON people (PRIVACY UNIT person MAX ROWS 1, BUDGET (epsilon = 100))")
        if prepared:
            dp("ALTER PRIVACY POLICY ON people PREPARE")
        for prefix in PREFIXES:
            exact = sum(name.startswith(prefix) and name.endswith("x") for _, name in rows)
            for condition in (f"name LIKE '{prefix}%x'", f"person >= 0 AND name LIKE '{prefix}%x'"):
                assert is_plain(condition.replace("name", '"name"').replace("person", '"person"'), TYPES)
                assert abs(dp(COUNT.format(condition))[0][0] - exact) < 40  # by chance 2e-16 in all: Laplace of scale 1
