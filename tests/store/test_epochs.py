"""Tags, epochs, and changed public tables make the same question a new release."""

from __future__ import annotations

from tests.support.clinics import Clinic, by


def test_a_tag_pays_once(clinic: Clinic) -> None:
    """refresh = 'tag' is a fresh release, and is paid once for each tag however often it is bound."""
    first = clinic.dp(by("sex"))
    answers = {tag: clinic.con.sql(f"FROM dp($${by('sex', more=f'refresh = {tag!r}')}$$)").fetchall() for tag in "ab"}
    assert clinic.charges() == 3
    assert clinic.dp(by("sex", more="refresh = 'a'")) == answers["a"]
    assert clinic.dp(by("sex")) == first
    assert clinic.charges() == 3


def test_a_new_epoch_pays_again_and_data_do_not(clinic: Clinic) -> None:
    """Changed data leave the answer as it is, and free. NEW EPOCH makes the same statement a new charge."""
    first = clinic.dp(by("sex"))
    clinic.rows("DELETE FROM visits")
    assert clinic.dp(by("sex")) == first
    assert clinic.charges() == 1
    clinic.dp("ALTER PRIVACY POLICY ON visits NEW EPOCH")
    assert max(abs(n) for _, n in clinic.dp(by("sex"))) < 200  # 1 - P < exp(-50)
    assert clinic.charges() == 2
    assert clinic.rows("SELECT spent FROM dp_budget()") == [(2.0,)]


def test_a_public_tables_content_is_part_of_the_key(clinic: Clinic) -> None:
    """A join with a public table of other rows is another question. Another order of its rows is not."""
    question = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) region, count(*) AS n "
        "FROM visits JOIN wards ON ward = name GROUP BY region"
    )
    clinic.dp(
        "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10), "
        "DOMAIN ward FROM wards.name)"
    )
    first = clinic.dp(question)
    clinic.rows("CREATE OR REPLACE TABLE wards AS FROM wards ORDER BY name DESC")
    assert clinic.dp(question) == first
    assert clinic.charges() == 1
    clinic.rows("UPDATE wards SET region = 'east' WHERE name = 'w1'")
    assert "east" in {row[0] for row in clinic.dp(question)}
    assert clinic.charges() == 2


def test_a_column_called_content_is_not_the_content(clinic: Clinic) -> None:
    """The key covers every column of a public table, whatever its columns are called."""
    clinic.rows("CREATE TABLE places AS SELECT name, 1 AS content, 1 AS t FROM wards")
    clinic.dp("DECLARE PUBLIC TABLE places")
    question = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) ward, count(*) AS n "
        "FROM visits JOIN places ON ward = name GROUP BY ward"
    )
    clinic.dp(question)
    clinic.rows("UPDATE places SET name = 'w9' WHERE name = 'w1'")
    clinic.dp(question)
    assert clinic.charges() == 2
