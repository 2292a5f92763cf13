"""A clinic and a shop with prepared tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpduck
from tests.store.preparing import POLICY, dp


@pytest.fixture
def hospital(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A thousand patients with one visit each."""
    with dpduck.connect(tmp_path / "clinic.duckdb") as con:
        con.execute("CREATE TABLE visits AS SELECT range % 2 AS sex, range AS patient, 5 AS cost FROM range(1000)")
        con.execute("CREATE TABLE stays AS FROM visits")
        for table in ("visits", "stays"):
            dp(con, POLICY.format(table=table))
        yield con


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A thousand orders of a thousand customers, each with one line."""
    with dpduck.connect(tmp_path / "shop.duckdb") as con:
        con.execute("CREATE TABLE orders AS SELECT range AS id, range AS customer, range % 2 AS sex FROM range(1000)")
        con.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
        con.execute("CREATE TABLE lines AS SELECT range AS place, range AS id, range % 3 AS kind FROM range(1000)")
        dp(con, "CREATE PRIVACY POLICY ON orders (PRIVACY UNIT customer MAX ROWS 2, BUDGET (epsilon = 1000000))")
        dp(con, "CREATE PRIVACY POLICY ON lines (PRIVACY UNIT id REFERENCES orders.id MAX ROWS 2)")
        yield con
