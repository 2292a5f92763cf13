"""A condition is read as a set of codes only where the two are equal. So a known answer is right, or refused."""

from __future__ import annotations

import duckdb
import pytest

from tests.support.clinics import Clinic

KNOWN = (
    "age >= 20", "age < 20", "age BETWEEN 10 AND 29", "age >= 10 AND age < 30", "age < 10 OR age >= 30",
    "NOT age >= 20",
    "age IS NULL", "age IS NOT NULL", "age >= 20 OR age IS NULL", "20 <= age", "age NOT BETWEEN 10 AND 29", "age > 19",
    "kind = 'a'", "kind <> 'a'", "kind IN ('a', 'b')", "kind NOT IN ('a', 'b')", "kind IS NULL",
    "kind = 'a' OR kind IS NULL",
    "step = 3", "step IN (1, 2)", "step % 2 = 0", "step BETWEEN 1 AND 3",
    "amount >= 2.5", "amount < 5", "amount >= 2.5 AND amount < 7.5",
    "day >= DATE '2024-01-08'", "day < DATE '2024-01-15' AND day >= DATE '2024-01-08'",
    "flag", "NOT flag", "flag IS NULL",
    "age >= 20 AND kind = 'a' AND flag", "true",
)  # fmt: skip
"""Conditions that are sets of codes."""
REFUSED = (
    "age = 37", "age >= 25", "age <= 20", "age <> 5", "age BETWEEN 10 AND 20", "age % 2 = 0", "age IN (10, 20)",
    "age = 500", "age < 5", "age >= 0", "abs(age) > 20", "kind LIKE 'a%'", "kind LIKE '%z'", "kind > 'a'", "kind = 'z'",
    "length(kind) = 1", "kind <> 'z'", "amount > 2.5", "amount = 2.5", "day > DATE '2024-01-08'", "month(day) = 1",
    "age >= 20 OR kind = 'a'", "charge > 5",
    "CASE WHEN age < 5 THEN true WHEN age >= 10 THEN false END",
)  # fmt: skip
"""Conditions that some rows of a code meet and others do not, or may."""


@pytest.fixture
def rows(clinic: Clinic) -> Clinic:
    """4,000 rows: values in the middle of bins, beyond edges, that are no label, and NULLs. Almost no noise."""
    clinic.con.execute(
        "CREATE TABLE t AS SELECT CASE WHEN i % 7 > 0 THEN (i * 13) % 71 - 15 END AS age, "
        "['a', 'b', 'z', 'az', NULL][i % 5 + 1] AS kind, i % 6 AS step, (i % 101) / 10 AS amount, "
        "DATE '2024-01-01' + CAST(i % 28 AS INTEGER) AS day, [true, false, NULL][i % 3 + 1] AS flag, i % 11 AS charge "
        "FROM range(4000) AS r(i)"
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON t (PRIVACY UNIT ROW, BUDGET (epsilon = 1000), DOMAIN age RANGE 0 TO 40 STEP 10 "
        "WITH NULL WITH EDGES, DOMAIN kind IN ('a', 'b') WITH NULL WITH OTHER 'others', "
        "DOMAIN step RANGE 0 TO 6 STEP 1, "
        "DOMAIN amount RANGE 0 TO 12.5 STEP 2.5, DOMAIN day RANGE '2024-01-01' TO '2024-01-29' STEP INTERVAL 7 DAY, "
        "DOMAIN flag BOOLEAN WITH NULL)"
    )
    sets = "(age, kind, flag), (step), (amount), (day)"
    clinic.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100, strategy = 'Q') age, kind, flag, step, "
              f"amount, day, count(*) AS n FROM t GROUP BY GROUPING SETS ({sets})")  # fmt: skip
    return clinic


@pytest.mark.slow
def test_a_condition_is_a_set_of_codes_or_refused(rows: Clinic) -> None:
    """Known answers are the exact counts but for hardly any noise, for every condition that is answered at all."""
    for condition in KNOWN:
        exact = rows.value(f"SELECT count(*) FROM t WHERE {condition}")
        ((found,),) = rows.con.execute(
            "SELECT n FROM dp_known(?)", [f"SELECT count(*) AS n FROM t WHERE {condition}"]
        ).fetchall()
        assert found == pytest.approx(exact, abs=6), condition
    for condition in REFUSED:
        for statement in (
            f"count(*) AS n FROM t WHERE {condition}",
            f"count(*) FILTER (WHERE {condition}) AS n FROM t",
        ):
            with pytest.raises(duckdb.Error):
                found = rows.con.execute("FROM dp_known(?)", [f"SELECT {statement}"]).fetchall()
                pytest.fail(f"{condition} answered {found}")


def test_a_release_s_own_condition_is_known(rows: Clinic) -> None:
    """Conditions that are no sets of codes are answered where a release has the very same one."""
    for condition in ("age = 37", "kind LIKE 'a%'", "charge > 5 AND age >= 20"):
        statement = f"kind, count(*) FILTER (WHERE {condition}) AS n FROM t GROUP BY kind"
        rows.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 90) {statement}")
        asked = f"SELECT count(*) AS n FROM t WHERE {condition}"
        exact = rows.value(asked)
        ((found,),) = rows.con.execute("SELECT n FROM dp_known(?)", [asked]).fetchall()
        assert found == pytest.approx(exact, abs=4), condition
