"""A table of visits with a key of unbounded universe, and words for what tests do with it."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from tests.support.clinics import Clinic, one_line

POLICY = """CREATE PRIVACY POLICY ON visits (
    PRIVACY UNIT patient_id MAX ROWS 4, BUDGET (epsilon = 20, delta = 1e-5), EXPECT ROWS 4000)"""
PRICE = "epsilon = 2, delta = 1e-6"


def fill(clinic: Clinic) -> None:
    """4,000 visits of 1,000 patients with 50 codes, 'K0' the most frequent, two flags and a name in capitals."""
    clinic.con.execute(
        "CREATE TABLE visits AS SELECT i // 4 AS patient_id, 'K' || least(i % 50, i % 7) AS code, i % 3 = 0 AS smoker, "
        "i % 5 = 0 AS senior, i % 50 AS number FROM range(4000) AS r(i)"
    )
    clinic.dp(POLICY)


def projection(clinic: Clinic, name: str = "p", options: str = "sparsity = 8, queries = 100", key: str = "code") -> Any:
    return clinic.dp(f"CREATE PRIVATE PROJECTION {name} OPTIONS ({PRICE}, {options}) AS SELECT {key} FROM visits")


def histogram(clinic: Clinic, name: str = "h", options: str = "queries = 100", on: str = "code", tail: str = "") -> Any:
    return clinic.dp(f"CREATE PRIVATE HISTOGRAM {name} OPTIONS ({PRICE}, {options}) ON visits ({on}) {tail}")


def session(clinic: Clinic, name: str = "s", options: str = "sparsity = 8, queries = 100, updates = 5") -> Any:
    return clinic.dp(f"CREATE PRIVATE SESSION {name} OPTIONS ({PRICE}, {options}) ON visits (code)")


def ask(clinic: Clinic, name: str, keys: str, more: str = "") -> tuple[Any, ...]:
    """The one row of an answer."""
    return clinic.rows(f"FROM dp_ask('{name}', {keys}{more})")[0]


def refused_ask(clinic: Clinic, name: str, keys: str, more: str = "") -> str:
    """The line with which a question is refused."""
    with pytest.raises(duckdb.Error) as caught:
        ask(clinic, name, keys, more)
    return one_line(caught.value)
