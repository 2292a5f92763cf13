"""Names are one whatever their case, as in DuckDB: renaming gives no fresh budget, unit or answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.clinics import Clinic, by

OpenClinic = Callable[..., Clinic]


def rename(clinic: Clinic, table: str, to: str) -> None:
    clinic.rows(f"ALTER TABLE {table} RENAME TO dpduck_between")
    clinic.rows(f'ALTER TABLE dpduck_between RENAME TO "{to}"')


def test_renaming_by_case_gives_no_fresh_budget(clinic: Clinic) -> None:
    """The policy, the spent budget, and paid answers stay with the table under its new case."""
    first = clinic.dp(by("ward"))
    budget = clinic.rows("FROM dp_budget()")
    rename(clinic, "visits", "VISITS")
    rename(clinic, "wards", "Wards")
    assert clinic.dp(by("ward")) == first
    assert clinic.rows("FROM dp_budget()") == budget
    assert "has a privacy policy" in clinic.refused(
        "CREATE PRIVACY POLICY ON VISITS (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10))"
    )
    clinic.dp(by("ward", epsilon="9", more="refresh = 'a'"))
    assert "budget" in clinic.refused(by("ward", epsilon="1", more="refresh = 'b'"))


def test_a_dropped_policy_gives_no_fresh_budget_under_another_case(clinic: Clinic) -> None:
    """Another case of the table or of the column makes no other privacy unit with a new budget."""
    clinic.dp(by("ward", epsilon="9"))
    clinic.dp("DROP PRIVACY POLICY ON visits")
    rename(clinic, "visits", "Visits")
    clinic.rows("ALTER TABLE Visits RENAME COLUMN patient TO between_names")
    clinic.rows("ALTER TABLE Visits RENAME COLUMN between_names TO Patient")
    clinic.dp("CREATE PRIVACY POLICY ON Visits (PRIVACY UNIT Patient MAX ROWS 4, BUDGET (epsilon = 10))")
    assert clinic.rows("SELECT spent FROM dp_budget()") == [(9.0,)]
    count = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 2) count(*) FROM visits"
    assert "budget" in clinic.refused(count)
    assert "cannot change once something is spent" in clinic.refused(
        "CREATE OR REPLACE PRIVACY POLICY ON VISITS (PRIVACY UNIT ROW, BUDGET (epsilon = 10))"
    )


def test_references_follow_a_renamed_parent(open_clinic: OpenClinic, tmp_path: Path) -> None:
    """Keys, constraints and units of a table renamed by case are looked up under its known name."""
    clinic = open_clinic(tmp_path / "Clinic.duckdb")
    clinic.rows("CREATE TABLE patients AS SELECT range AS id FROM range(100)")
    clinic.rows("ALTER TABLE patients ADD PRIMARY KEY (id)")
    clinic.rows("CREATE TABLE visits AS SELECT range % 100 AS patient FROM range(400)")
    clinic.dp("CREATE PRIVACY POLICY ON patients (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 10))")
    rename(clinic, "patients", "Patients")
    clinic.dp(
        "CREATE PRIVACY POLICY ON visits "
        "(PRIVACY UNIT patient REFERENCES PATIENTS.ID MAX ROWS 4, BUDGET (epsilon = 10))"
    )
    joined = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN patients ON patient = id"
    assert len(clinic.dp(joined)) == 1
    assert clinic.rows("SELECT DISTINCT spent FROM dp_budget()") == [(1.0,)]
