"""Statements about dates that a table has as texts: try_strptime, whatever the texts are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.clinics import Clinic

ROWS = (
    "SELECT range // 3 AS patient, CASE range % 10 WHEN 0 THEN NULL WHEN 1 THEN 'unknown' WHEN 2 THEN '31.02.2024' "
    "ELSE strftime(DATE '2023-01-01' + CAST(range % 600 AS INTEGER), '%d.%m.%Y') END AS came, "
    "['a', 'b'][1 + range % 2] AS ward FROM range(3000)"
)
DAY = "try_strptime(came, '%d.%m.%Y')"
CONDITIONS = (
    f"{DAY} >= DATE '2024-01-01'",
    f"{DAY} BETWEEN TIMESTAMP '2023-03-01 00:00:00' AND TIMESTAMP '2023-09-30 00:00:00'",
    f"year({DAY}) = 2023 AND month({DAY}) IN (1, 2)",
    f"{DAY} IS NULL",
    f"coalesce(CAST({DAY} AS DATE), DATE '2024-01-01') = DATE '2024-01-01'",
    f"date_diff('day', {DAY}, DATE '2024-01-01') > 30",
    f"strftime({DAY}, '%Y-%m') = '2023-05'",
    "try_strptime(left(came, 5), '%d.%m') IS NOT NULL",
)


@pytest.fixture
def filled(open_clinic: Callable[..., Clinic]) -> Clinic:
    """A table of patients with several visits, and days as texts, of which some are none."""
    clinic = open_clinic()
    clinic.con.execute(f"CREATE TABLE visits AS {ROWS}")
    clinic.dp(
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 3, DOMAIN ward IN ('a', 'b'), "
        "BUDGET (epsilon = 10000), MAX EPSILON 100)"
    )
    return clinic


def test_counts_are_those_of_duckdb(filled: Clinic) -> None:
    """At epsilon 50 every count is within 4 of DuckDB's own: Laplace noise of scale 3 / 50 is, but for 1 in 10^28."""
    for condition in CONDITIONS:
        exact = filled.value(f"SELECT count(*) FROM visits WHERE {condition}")
        asked = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 50) count(*) AS n FROM visits WHERE {condition}"
        assert abs(filled.dp(asked)[0][0] - exact) <= 4 and exact > 0, condition
    asked = f"ward, count(*) FILTER (WHERE {DAY} < DATE '2024-01-01') AS n FROM visits GROUP BY ward"
    exact = dict(filled.rows(f"SELECT {asked}"))
    answered = dict(filled.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 50) {asked}"))
    assert set(answered) == set(exact) and all(abs(answered[key] - exact[key]) <= 4 for key in exact)


def test_no_text_decides_whether_a_statement_fails(filled: Clinic) -> None:
    """Hostile texts change neither shape nor price. A wrong format is refused before anything is charged."""
    head = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 2) count(*) AS n FROM visits"
    asked = f"{head} WHERE {DAY} > DATE '2024-01-01'"
    for text in ("99.99.9999", "-1.-1.-1", "1.1.99999", "", " ", "\u0661.\u0661.\u0662", "x" * 5000, "31.12.2023\n"):
        filled.con.execute("UPDATE visits SET came = ? WHERE patient = 7", [text])
        assert len(filled.dp(f"{asked} AND patient <> {len(text)}")) == 1
    for wrong, said in (
        ("strptime(came, '%d.%m.%Y')", "accepted: try_strptime(came, '%d.%m.%Y'), else NULL"),
        ("try_strptime(came, ward)", "a quoted format"),
        ("try_strptime(came, '%d.%m.%Y %Z')", "a quoted format"),
        ("try_strptime(patient, '%d')", "accepted"),
    ):
        assert said in filled.refused(asked.replace(DAY, wrong)), wrong
