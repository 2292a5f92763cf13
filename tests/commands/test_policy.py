"""dpduck policy: from a file to a policy, and policies as text."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.support.commands import run


@pytest.mark.slow
def test_a_file_has_a_policy_in_two_lines(tmp_path: Path) -> None:
    """Draft, from a Parquet or CSV file. Filled in, it runs. Show prints what runs again elsewhere."""
    with duckdb.connect() as made:
        rows = "SELECT i // 2 AS patient_id, i % 2 = 0 AS smoker, i % 90 AS age FROM range(4000) AS r(i)"
        for file in ("visits.parquet", "visits.csv"):
            made.execute(f"COPY ({rows}) TO '{tmp_path / file}'")
    shown = []
    for file in ("visits.parquet", "visits.csv"):
        database = tmp_path / f"{file}.duckdb"
        drafted = run("policy", "draft", database, "visits", "--from", tmp_path / file)
        assert drafted.exit_code == 0 and "DOMAIN smoker BOOLEAN WITH NULL," in drafted.output
        assert "PRIVACY UNIT patient_id MAX ROWS TODO," in drafted.output
        filled = drafted.output.replace("-- CLAMP age BETWEEN TODO AND TODO,", "CLAMP age BETWEEN 0 AND 100,")
        made_so = run("sql", database, "-", typed=filled.replace("TODO", "2"))
        assert made_so.exit_code == 0, made_so.output
        question = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) smoker, avg(age) AS a FROM visits GROUP BY 1"
        assert run("sql", database, question, "--format", "csv").output.count("\n") == 4
        shown.append(run("policy", "show", database, "visits").output)
    assert shown[0] == shown[1] and shown[0].startswith(
        "CREATE PRIVACY POLICY ON visits (\n    PRIVACY UNIT patient_id"
    )
    again = tmp_path / "again.duckdb"
    run("policy", "draft", again, "visits", "--from", tmp_path / "visits.csv")
    assert "in force" in run("sql", again, shown[0]).output


def test_what_is_missing_is_said_in_one_line(tmp_path: Path) -> None:
    """No file for a new table, a table that exists already, a missing policy: one line says what to type instead."""
    database = tmp_path / "d.duckdb"
    (tmp_path / "f.csv").write_text("a\n1\n", encoding="utf-8")
    assert "--from a file" in run("policy", "draft", database, "t").output
    assert run("policy", "draft", database, "t", "--from", tmp_path / "f.csv").exit_code == 0
    again = run("policy", "draft", database, "t", "--from", tmp_path / "f.csv")
    assert (
        again.exit_code == 1
        and "has a table 't'; accepted: no --from and no --convert; " in again.output
        and again.output.count("\n") == 1
    )
    missing = run("policy", "show", database, "t")
    assert missing.exit_code == 1 and "none yet" in missing.output


def test_a_draft_that_is_not_filled_in_says_where(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first TODO is shown with its place and the accepted forms, in one line. No parser warns beside it."""
    database = tmp_path / "d.duckdb"
    with duckdb.connect(database) as made:
        made.execute("CREATE TABLE visits AS SELECT i // 2 AS patient_id, i % 90 AS age FROM range(40) AS r(i)")
    drafted = run("policy", "draft", database, "visits").output
    refused = run("sql", database, "-", typed=drafted)
    assert refused.exit_code == 1
    assert refused.output == "Error: line 11, column 38: 'TODO' is not expected here; accepted: a number for MAX ROWS\n"
    assert run("sql", database, "-", typed=drafted.replace("TODO", "2")).exit_code == 0
    assert run("sql", database, "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT TODO)").exit_code == 1
    assert caplog.records == []
