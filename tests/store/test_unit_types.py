"""Privacy units have types in which equality and grouping agree, and keys have types with a text for each value."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.clinics import Clinic

OpenClinic = Callable[..., Clinic]
POLICY = "CREATE PRIVACY POLICY ON t (PRIVACY UNIT unit MAX ROWS 2, BUDGET (epsilon = 1))"
ASKED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count(*) AS n FROM t"

UNITS = {
    "BOOLEAN": "true", "TINYINT": "1", "SMALLINT": "1", "INTEGER": "1", "BIGINT": "1", "HUGEINT": "1", "UTINYINT": "1",
    "USMALLINT": "1", "UINTEGER": "1", "UBIGINT": "1", "UHUGEINT": "1", "FLOAT": "1", "DOUBLE": "1",
    "DECIMAL(18,3)": "1", "VARCHAR": "1", "BLOB": "1", "UUID": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "DATE": "2024-01-01", "TIME": "10:00:00", "TIMESTAMP": "2024-01-01", "TIMESTAMP_S": "2024-01-01",
    "TIMESTAMP_MS": "2024-01-01", "TIMESTAMP_NS": "2024-01-01", "TIMESTAMPTZ": "2024-01-01", "ENUM('1', '2')": "1",
}  # fmt: skip
NO_UNITS = {
    "VARIANT": "1", "UNION(a INTEGER, b VARCHAR)": "1", "STRUCT(a INTEGER)": "{'a': 1}", "INTEGER[]": "[1]",
    "INTEGER[2]": "[1, 2]", "MAP(VARCHAR, INTEGER)": "MAP {'a': 1}", "JSON": "1", "INTERVAL": "30 days", "BIT": "101",
    "BIGNUM": "1", "TIMETZ": "10:00:00+00",
}  # fmt: skip


def table(clinic: Clinic, type_name: str, text: str) -> None:
    value = text if type_name.startswith("MAP") else f"'{text.replace(chr(39), chr(39) * 2)}'"
    value = f"{value}::VARCHAR::VARIANT" if type_name == "VARIANT" else f"{value}::{type_name}"
    clinic.rows("DROP TABLE IF EXISTS t")
    clinic.rows(f"CREATE TABLE t AS SELECT {value} AS unit FROM range(3)")


@pytest.mark.slow
def test_units_of_plain_types_are_accepted(open_clinic: OpenClinic) -> None:
    """Every type in which equal values are grouped together may be a unit."""
    for type_name, text in UNITS.items():
        clinic = open_clinic()
        table(clinic, type_name, text)
        clinic.dp(POLICY)
        assert len(clinic.dp(ASKED)) == 1


@pytest.mark.parametrize("type_name", NO_UNITS)
def test_units_of_other_types_are_refused(open_clinic: OpenClinic, type_name: str) -> None:
    """A type with several values of one unit, or without comparison, is refused at the policy."""
    clinic = open_clinic()
    table(clinic, type_name, NO_UNITS[type_name])
    assert "equal values may be grouped apart: no privacy unit; accepted: a unit of" in clinic.refused(POLICY)


def test_a_stored_policy_is_refused_where_its_unit_is_of_such_a_type(open_clinic: OpenClinic) -> None:
    """A stored policy with such a type is refused: its table was altered, or an earlier version did not check."""
    clinic = open_clinic()
    table(clinic, "BIGINT", "1")
    clinic.dp(POLICY)
    clinic.rows("ALTER TABLE t ALTER unit TYPE VARIANT")
    assert "'unit' is VARIANT, of which equal values may be grouped apart" in clinic.refused(ASKED)
    assert "VARIANT" in clinic.refused("CREATE OR REPLACE " + POLICY.removeprefix("CREATE "))


@pytest.mark.parametrize("unit", ["unit MAX ROWS 2", "ROW"])
def test_public_keys_without_texts_are_refused(open_clinic: OpenClinic, unit: str) -> None:
    """Labels that DuckDB does not read back are refused before the charge."""
    clinic = open_clinic()
    table(clinic, "BIGINT", "1")
    clinic.rows(
        "CREATE TABLE pub AS SELECT i AS k, i::VARIANT AS v, [i::VARIANT] AS l, 'POINT (1 2)'::GEOMETRY AS g, "
        "'VARIANT'::ENUM('VARIANT', 'b') AS e FROM range(3) r(i)"
    )
    clinic.dp("DECLARE PUBLIC TABLE pub")
    clinic.dp(POLICY.replace("unit MAX ROWS 2", unit))
    grouped = ASKED.replace("count(*)", "{0}, count(*)") + " JOIN pub ON t.unit = pub.k GROUP BY {0}"
    for column in ("v", "l", "g"):
        assert "whose values are not read back from their texts" in clinic.refused(grouped.format(column))
    assert len(clinic.dp(grouped.format("e"))) == 1
