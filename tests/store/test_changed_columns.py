"""Columns with another type or collation than their DOMAIN's: no row decides whether a release fails."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.cubes.plan import plan_cube

QUESTION = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) code, count(*) FROM visits GROUP BY code"


def connect(type_name: str, domain: str) -> duckdb.DuckDBPyConnection:
    """Visits with a domain for code."""
    connection = dpduck.connect()
    connection.execute(f"CREATE TABLE visits (who INTEGER, code {type_name})")
    policy = (
        f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT who MAX ROWS 1, BUDGET (epsilon = 1), DOMAIN code {domain})"
    )
    connection.execute("FROM dp(?)", [policy])
    return connection


@pytest.mark.parametrize(
    ("before", "domain", "now"),
    [
        ("TIME", "IN ('10:00:00')", "TIMESTAMP"),
        ("INTEGER", "RANGE 0 TO 10 STEP 1", "BIT"),
        ("TIMESTAMP", "RANGE '2024-01-01' TO '2025-01-01' STEP INTERVAL 1 MONTH", "TIMESTAMP WITH TIME ZONE"),
        ("HUGEINT", "IN (1, 2)", "BIGNUM"),
        ("VARCHAR", "IN ('1', '2')", "DECIMAL"),
    ],
)
def test_a_type_that_may_not_convert_is_refused(before: str, domain: str, now: str) -> None:
    """TRY_CAST of these types raises for some values, which would reveal rows: the types are refused, uncharged."""
    with connect(before, domain) as connection:
        connection.execute(f"CREATE OR REPLACE TABLE visits (who INTEGER, code {now})")
        with pytest.raises(duckdb.Error, match=f"'code' is {now}.*, and its DOMAIN is of {before}"):
            connection.execute("FROM dp(?)", [QUESTION])
        assert connection.execute("SELECT spent FROM dp_budget()").fetchall() == [(0.0,)]


def test_a_wider_type_is_counted() -> None:
    """Whole numbers, texts and similar types convert, or are outside the domain."""
    with connect("INTEGER", "IN (1, 2)") as connection:
        connection.execute("CREATE OR REPLACE TABLE visits AS SELECT 1 AS who, 'one' AS code")
        assert len(connection.execute("FROM dp(?)", [QUESTION]).fetchall()) == 2


def test_a_collated_text_is_one_of_many_labels_at_most() -> None:
    """Two labels that the column's collation calls equal stay two labels. A row equal to both once raised."""
    labels = ", ".join(f"'k{number}'" for number in range(130))
    with connect("VARCHAR COLLATE NOCASE", f"IN ({labels}, 'K1')") as connection:
        connection.execute("INSERT INTO visits VALUES (1, 'k1')")
        assert len(connection.execute("FROM dp(?)", [QUESTION]).fetchall()) == 131


@pytest.mark.parametrize(
    "change",
    ["TABLE visits (who VARCHAR COLLATE NOCASE, code VARCHAR)", "TABLE names AS SELECT 'a' AS code, 1::BIGINT AS n"],
)
def test_a_table_that_changes_while_it_is_asked(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units and joined keys compared plainly at the analysis. A later collation, or another type, is noticed."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE visits (who VARCHAR, code VARCHAR)")
        connection.execute("CREATE TABLE names AS SELECT 'a' AS code, 1::INTEGER AS n")
        connection.execute("FROM dp('DECLARE PUBLIC TABLE names')")
        policy = "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT who MAX ROWS 1, BUDGET (epsilon = 1))"
        connection.execute("FROM dp(?)", [policy])

        def meanwhile(request: SelectRequest) -> Any:
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE OR REPLACE {change}")
            return plan_cube(request)

        monkeypatch.setattr("dpduck.mechanisms.cubes.measure.plan_cube", meanwhile)
        asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count(*) FROM visits JOIN names USING (code)"
        with pytest.raises(duckdb.Error, match="changed meanwhile"):
            connection.execute("FROM dp(?)", [asked])
        assert connection.execute("SELECT spent FROM dp_budget()").fetchall() == [(0.0,)]
