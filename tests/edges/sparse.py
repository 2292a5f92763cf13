"""A table of visits with a key of unbounded universe, and words for what tests do with it."""

from __future__ import annotations

from typing import Any

from tests.edges.clinics import Clinic

POLICY = """CREATE PRIVACY POLICY ON visits (
    PRIVACY UNIT patient_id MAX ROWS 4, BUDGET (epsilon = 20, delta = 1e-5), EXPECT ROWS 4000)"""
PRICE = "epsilon = 2, delta = 1e-6"


def fill(clinic: Clinic) -> None:
    """4,000 visits of 1,000 patients with 50 codes, 'K0' the most frequent; two flags and a name in capitals."""
    clinic.con.execute(
        "CREATE TABLE visits AS SELECT i // 4 AS patient_id, 'K' || least(i % 50, i % 7) AS code, i % 3 = 0 AS smoker, "
        "i % 5 = 0 AS senior, i % 50 AS number FROM range(4000) AS r(i)"
    )
    clinic.dp(POLICY)


def projection(clinic: Clinic, name: str = "p", options: str = "sparsity = 8, queries = 100", key: str = "code") -> Any:
    return clinic.dp(f"CREATE PRIVATE PROJECTION {name} OPTIONS ({PRICE}, {options}) AS SELECT {key} FROM visits")
