"""Tables and words for tests of datacubes and ranges through SQL."""

from __future__ import annotations

from tests.support.clinics import Clinic

EXPLAINED = "SELECT strategy, total_variance * {0} * {0}, worst_stderr FROM dp_explain(?)"
SMALL = "0.001"


def explained(clinic: Clinic, statement: str, epsilon: str = SMALL) -> dict[str, float]:
    """Total variance times epsilon squared by strategy. The chosen strategy comes first."""
    rows = clinic.con.execute(EXPLAINED.format(epsilon), [statement]).fetchall()
    return {row[0]: row[1] for row in rows}


def ask(options: str, items: str, grouping: str, table: str = "bits") -> str:
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) {items} FROM {table} GROUP BY {grouping}"


def protected_visits(clinic: Clinic) -> Clinic:
    """A thousand rows, each a unit of its own: sex, age in ten bins, NULL and values outside among them, and ward."""
    clinic.con.execute(
        "CREATE TABLE visits AS SELECT range % 2 AS sex, "
        "CASE WHEN range % 50 = 0 THEN NULL ELSE (range * 7) % 110 END AS age, 'w' || (range % 5) AS ward, "
        "((range * 3) % 120)::TINYINT AS small FROM range(1000)"
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1000), DOMAIN sex IN (0, 1), "
        "DOMAIN age RANGE 0 TO 100 STEP 10 WITH NULL, DOMAIN ward IN ('w0', 'w1', 'w2', 'w3', 'w4'), "
        "DOMAIN small RANGE 0 TO 112 STEP 16)"
    )
    return clinic
