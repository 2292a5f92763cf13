"""dp_draft: a policy to begin with, from the schema alone, and short forms of the grammar for policies."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpduck
from dpduck.database import about
from dpduck.kernel.rows import reader
from dpduck.language.statements.kinds import CreatePolicy
from dpduck.language.statements.parse import parse_statement
from dpduck.owner.draft_open_items import COMPARED, OTHERS
from dpduck.values.quoting import quote_identifier
from tests.support.clinics import Clinic, one_line

HOSPITAL = """
CREATE TABLE wards AS FROM (VALUES ('w1', 'north')) AS w(name, building);
CREATE TABLE codes (code VARCHAR PRIMARY KEY);
INSERT INTO codes VALUES ('E11.9');
CREATE TABLE patients (id INTEGER PRIMARY KEY, born DATE);
CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, patient_id INTEGER REFERENCES patients (id),
    sex VARCHAR NOT NULL CHECK (sex IN ('F', 'M')), age TINYINT NOT NULL CHECK (age BETWEEN 0 AND 100),
    mood ENUM ('good', 'bad'), smoker BOOLEAN, diabetic BOOLEAN, seen BOOLEAN NOT NULL, ward VARCHAR,
    diagnosis VARCHAR REFERENCES codes (code), charge DECIMAL(9, 2), admitted DATE, note VARCHAR, tags VARCHAR[])
"""


def hospital(clinic: Clinic) -> Clinic:
    for statement in HOSPITAL.split(";\n"):
        clinic.con.execute(statement)
    for table in ("wards", "codes"):
        clinic.dp(f"DECLARE PUBLIC TABLE {table}")
    return clinic


def draft(clinic: Clinic, table: str) -> str:
    return "\n".join(row[0] for row in clinic.con.execute("FROM dp_draft(?)", [table]).fetchall())


def items(text: str) -> list[str]:
    """Returns the lines of a draft that are no comments."""
    return [line.strip() for line in text.splitlines() if not line.lstrip().startswith("--")]


def filled(text: str) -> str:
    """Returns a draft with each question answered, by a number or by a unit."""
    return (
        text.replace("PRIVACY UNIT TODO", "PRIVACY UNIT ROW").replace("ROW MAX ROWS TODO", "ROW").replace("TODO", "4")
    )


def test_what_the_schema_says_is_in_the_draft(open_clinic: Callable[..., Clinic]) -> None:
    """The draft has the schema's keys, checks, types and public tables. A TODO with a reason marks the rest."""
    clinic = hospital(open_clinic())
    text = draft(clinic, "visits")
    assert items(text) == [
        "CREATE PRIVACY POLICY ON visits (",
        "PRIVACY UNIT patient_id REFERENCES patients.id MAX ROWS TODO,",
        "DOMAIN (smoker, diabetic) BOOLEAN WITH NULL,",
        "DOMAIN seen BOOLEAN,",
        "DOMAIN mood ENUM WITH NULL,",
        "DOMAIN sex IN ('F', 'M'),",
        "CLAMP age BETWEEN 0 AND 100,",
        "DOMAIN ward FROM wards.name WITH NULL,",
        "DOMAIN diagnosis FROM codes.code WITH NULL,",
        "BUDGET (epsilon = TODO)",
        ")",
    ]
    for line in (
        "-- CLAMP charge BETWEEN TODO AND TODO,",
        "-- DOMAIN admitted RANGE TODO TO TODO STEP MONTH WITH NULL",
    ):
        assert line in text
    assert f"{COMPARED[-5:]} visit_id." in text and "own: tags." in text and max(map(len, text.splitlines())) <= 100
    assert items(draft(clinic, "patients"))[1] == "PRIVACY UNIT id MAX ROWS 1,"


def test_a_filled_draft_is_a_policy(open_clinic: Callable[..., Clinic]) -> None:
    """A draft with every question answered is carried out as it stands. Otherwise it is refused at the first TODO."""
    clinic = hospital(open_clinic())
    refused = clinic.refused(draft(clinic, "visits"))
    assert "'TODO' is not expected here; accepted: a number for MAX ROWS" in refused
    for table in ("patients", "visits"):
        clinic.dp(filled(draft(clinic, table)))
    assert clinic.value("SELECT count(*) FROM dp_policies()") == 2
    assert items(draft(clinic, "visits"))[0] == "CREATE OR REPLACE PRIVACY POLICY ON visits ("
    clinic.dp(filled(draft(clinic, "visits")))
    units = {row[0] for row in clinic.rows("SELECT privacy_unit FROM dp_policies()")}
    assert units == {"memory.main.patients.id"}, "one unit, one budget"


def test_no_row_is_read(open_clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is the same whatever the rows are, without a reader, and without a statement that reads the table."""
    clinic = hospital(open_clinic())
    empty = draft(clinic, "visits")
    clinic.con.execute("INSERT INTO patients SELECT range, NULL FROM range(50)")
    clinic.con.execute(
        "INSERT INTO visits SELECT range, range % 50, 'F', 99, 'bad', true, NULL, false, 'w' || range, NULL, 1, NULL, "
        "'note ' || range, [] FROM range(3000)"
    )
    clinic.con.execute("CHECKPOINT")

    def no_reader(*_: object) -> None:
        raise AssertionError("a row is read")

    monkeypatch.setattr(reader, "columns", no_reader)
    monkeypatch.setattr(about, "check_table", no_reader)
    assert draft(clinic, "visits") == empty


NAMES = st.text(st.sampled_from("ab\n\r\"'-*/;)(, \u2028$é"), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=25)
@given(names=st.lists(NAMES, unique_by=str.lower, min_size=1, max_size=4))
def test_no_name_of_a_column_leaves_its_place(names: list[str]) -> None:
    """A column's name cannot write an item of the policy: a filled draft parses, and its items are the schema's."""
    columns = ", ".join(f"{quote_identifier(name)} {'VARCHAR' if n % 2 else 'BOOLEAN'}" for n, name in enumerate(names))
    with dpduck.connect() as connection:
        connection.execute(f"CREATE TABLE t ({columns})")
        text = draft(Clinic(connection), "t")
    statement = parse_statement(filled(text))
    assert isinstance(statement, CreatePolicy)
    assert statement.clauses.clamps == () and statement.clauses.expect_rows is None
    found = {clause.column for clause in statement.clauses.domains} - {""}
    assert found <= {name for n, name in enumerate(names) if n % 2 == 0}


def test_a_draft_is_the_owners_and_of_a_table(clinic: Clinic) -> None:
    """A view or a file is no table: the refusal names the way to make one."""
    clinic.con.execute("CREATE VIEW seen AS FROM visits")
    for name, told in (
        ("seen", "is a view"),
        ("acs.parquet", "CREATE TABLE acs AS FROM 'acs.parquet'"),
        ("x", "no table"),
    ):
        with pytest.raises(duckdb.Error) as caught:
            draft(clinic, name)
        assert told in one_line(caught.value)


def test_several_columns_have_one_domain(open_clinic: Callable[..., Clinic]) -> None:
    """DOMAIN (a, b) and ALL BOOLEAN give each column the domain as if written alone. Named columns keep their own."""
    clinic = open_clinic()
    clinic.con.execute(
        'CREATE TABLE t (id INTEGER, a VARCHAR, b VARCHAR, p BOOLEAN, q BOOLEAN, r BOOLEAN, "all" BOOLEAN)'
    )
    head = "CREATE OR REPLACE PRIVACY POLICY ON t (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 1),"
    clinic.dp(f"{head} DOMAIN (a, b) IN ('x', 'y') WITH NULL, DOMAIN q IN (TRUE), DOMAIN ALL BOOLEAN)")
    domains = clinic.value("SELECT domains FROM dp_policies()")
    assert (
        domains
        == "a (2 values and NULL), b (2 values and NULL), q (1 values), p (2 values), r (2 values), all (2 values)"
    )
    for wrong, told in (
        ("DOMAIN (a, a) IN ('x')", "given twice"),
        ("DOMAIN (a, b IN ('x')", ") or , and a column"),
        ("DOMAIN ALL ENUM", "no column is of type ENUM"),
        ("DOMAIN (a, p) IN ('x')", "is not of type BOOLEAN"),
    ):
        assert told in clinic.refused(f"{head} {wrong})")


def test_dates_are_written_plainly(open_clinic: Callable[..., Clinic]) -> None:
    """STEP MONTH, STEP 7 DAYS and dates without quotes are accepted. today is refused, with the reason."""
    clinic = open_clinic()
    clinic.con.execute("CREATE TABLE t (id INTEGER, d DATE, n INTEGER)")
    head = "CREATE OR REPLACE PRIVACY POLICY ON t (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 1), DOMAIN d RANGE"
    for plain, long in (
        ("2024-01-01 TO 2025-01-01 STEP MONTH", "'2024-01-01' TO '2025-01-01' STEP INTERVAL 1 MONTH"),
        ("2024-01-01 TO 2024-02-05 STEP '7 days'", "'2024-01-01' TO '2024-02-05' STEP INTERVAL '7' DAY"),
        ("2024-01-01 TO 2025-01-01 STEP 'month'", "'2024-01-01' TO '2025-01-01' STEP MONTH"),
        ("2024-01-01 TO 2025-01-01 STEP INTERVAL '1 month'", "'2024-01-01' TO '2025-01-01' STEP MONTH"),
        ("2024-01-01 TO DATE '2024-02-05' STEP 7 DAYS", "'2024-01-01' TO '2024-02-05' STEP INTERVAL '7' DAY"),
        ("2024-1-1 TO 2024-01-15 STEP 7", "'2024-01-01' TO '2024-01-15' STEP 1 WEEK"),
        ("2024-01-01 TO 2026-01-01 STEP QUARTERS", "'2024-01-01' TO '2026-01-01' STEP 1 QUARTER"),
    ):
        made = []
        for text in (plain, long):
            clinic.dp(f"{head} {text})")
            made.append(clinic.value("SELECT domains FROM dp_policies()"))
        assert made[0] == made[1], plain
    for today in ("TODAY", "now", "CURRENT_DATE"):
        told = clinic.refused(f"{head} 2024-01-01 TO {today} STEP MONTH)")
        assert "another one tomorrow" in told and "TO 2031-01-01" in told


def test_a_table_is_looked_at_before_it_has_a_policy(clinic: Clinic) -> None:
    """dp_check shows the owner rows of one value, NULLs and quantiles, exactly, with a word about their use."""
    clinic.con.execute("CREATE TABLE raw AS SELECT nullif(range % 10, 3) AS k, range / 4 AS x FROM range(1000)")
    found = {row[0]: row[1:] for row in clinic.rows("FROM dp_check('raw')")}
    assert found["rows"][0] == 1000 and "copy nothing" in found["rows"][1]
    assert found["rows with NULL in k"][0] == 100 and found["rows with NULL in k"][2] == 10
    assert found["different values of k"][0] == 9
    assert found["99 % of k have at most this many rows"][0] == 100
    assert found["99 % of x are at most"][0] == pytest.approx(248.75, abs=1)
    assert "privacy units" not in found


TYPED = {
    "k": "k = 7", "name": "name = 'a'", "u": "u = 'c0ffee00-0000-0000-0000-000000000000'", "ti": "ti < TIME '10:00'",
    "iv": "iv = INTERVAL 1 DAY", "ts": "ts >= TIMESTAMP '2020-01-01'", "tm": "tm >= TIMESTAMP '2020-01-01'",
    "tn": "tn >= TIMESTAMP '2020-01-01'", "st": "st.a = 1", "js": "js = '1'", "tz": "tz = '2020-01-01'",
    "li": "li[1] = 1", "m": "m['a'] = 1", "b": "b = 'a'", "bi": "bi = '1'", "ar": "ar[1] = 1", "un": "un = 1",
    "tt": "tt = '10:00:00'",
}  # fmt: skip
"""A condition about a column of each type."""


def test_what_a_draft_says_of_other_types_is_so(open_clinic: Callable[..., Clinic]) -> None:
    """Every condition that the draft allows passes: WHERE on the columns it lists, and IS NULL and count of all.
    Comparisons of other columns are refused."""
    clinic = open_clinic()
    clinic.con.execute(
        "CREATE TABLE t (id INTEGER, k INTEGER PRIMARY KEY, name VARCHAR UNIQUE, st STRUCT(a INTEGER), js JSON, "
        "tz TIMESTAMPTZ, li INTEGER[], u UUID, m MAP(VARCHAR, INTEGER), b BLOB, ti TIME, iv INTERVAL, bi BIT, "
        "ar INTEGER[2], un UNION(n INTEGER, s VARCHAR), ts TIMESTAMP_S, tm TIMESTAMP_MS, tn TIMESTAMP_NS, tt TIMETZ)"
    )
    clinic.dp("CREATE PRIVACY POLICY ON t (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 100))")
    text = " ".join(" ".join(line.strip().removeprefix("--") for line in draft(clinic, "t").splitlines()).split())
    compared = text.partition(COMPARED)[2].partition(".")[0].strip().split(", ")
    others = text.partition(OTHERS)[2].partition(".")[0].strip().split(", ")
    assert compared == ["name", "u", "ti", "iv", "ts", "tm", "tn"], "k is the unit's column of the draft"
    assert {*compared, *others, "k"} == set(TYPED)
    asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count({}) FROM t WHERE {}"
    for name in [*compared, *others]:
        clinic.dp(asked.format(name, f"{name} IS NULL"))
    for name in ("k", *compared):
        clinic.dp(asked.format("*", TYPED[name]))
    for name in others:
        assert "accepted:" in clinic.refused(asked.format("*", TYPED[name]))


def test_codes_that_are_numbers_take_a_list(open_clinic: Callable[..., Clinic]) -> None:
    """A draft suggests a list where codes are whole numbers. OTHER of numbers is refused, with another way."""
    clinic = open_clinic()
    clinic.con.execute("CREATE TABLE t (name VARCHAR, sex INTEGER)")
    assert "IN (1, 2)" in draft(clinic, "t")
    head = "CREATE PRIVACY POLICY ON t (PRIVACY UNIT name MAX ROWS 1, BUDGET (epsilon = 1), DOMAIN sex IN (1, 2)"
    for label in ("-1", "9"):
        told = clinic.refused(f"{head} WITH OTHER {label})")
        assert "of numbers RANGE .. WITH EDGES" in told
    clinic.dp(f"{head})")
    clinic.con.execute("CREATE TABLE u (name VARCHAR, town VARCHAR)")
    assert "IN (1, 2)" not in draft(clinic, "u")
