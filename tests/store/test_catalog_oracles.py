"""Catalogs, caches, schemas and the moment of asking tell nothing about private rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from dpduck.mechanisms.cubes import plan as planned_module
from tests.support.clinics import Clinic, by, one_line

OpenClinic = Callable[..., Clinic]


@pytest.mark.slow
@pytest.mark.usefixtures("stopped_clock")
def test_dp_explain_is_the_same_whatever_the_data(open_clinic: OpenClinic) -> None:
    """Public facts alone decide the choice of a strategy and every predicted figure."""
    one, other = open_clinic(), open_clinic()
    for clinic in (one, other):
        clinic.fill()
    other.rows("DELETE FROM visits WHERE age > 7")
    for clinic in (one, other):
        clinic.protect()
        clinic.rows("ANALYZE")
    for question in (by("sex"), by("CUBE (sex, age, ward)").replace("CUBE (sex, age, ward), count", "sex, age, count")):
        listed = f"SELECT * EXCLUDE (seconds) FROM dp_explain($${question}$$)"
        assert one.rows(listed) == other.rows(listed)


def test_the_cache_does_not_tell_that_data_changed(clinic: Clinic) -> None:
    """Changed private data is never noticed: same answer, no scan, no message, no charge."""
    first = clinic.dp(by("age"))
    for change in (
        "INSERT INTO visits SELECT 1, 5, 10000, 'w1' FROM range(1000)",
        "UPDATE visits SET age = 99",
        "DELETE FROM visits",
        "ALTER TABLE visits ADD COLUMN later INTEGER",
        "CREATE OR REPLACE TABLE visits AS SELECT 1 AS sex, 1 AS age, 1 AS patient, 'w1' AS ward, 1 AS later",
    ):
        clinic.rows(change)
        if "later" not in change:
            assert clinic.dp(by("age")) == first
    assert clinic.charges() == 1


@pytest.mark.parametrize(
    "macro", ["upper(x) AS 1", "hash(x) AS 1", "count(x) AS 1", '"+"(a, b) AS 7', "list_position(a, b) AS 1"]
)
def test_a_macro_over_a_builtin_is_refused(clinic: Clinic, macro: str) -> None:
    """While a macro has a built-in's name every new release is refused: private rows run the checked functions."""
    answer = clinic.dp(by("sex"))
    clinic.rows(f"CREATE MACRO {macro}")
    assert "hides the built-in" in clinic.refused(by("ward"))
    clinic.rows(f"DROP MACRO {macro.split('(', maxsplit=1)[0]}")
    clinic.dp(by("ward"))
    assert clinic.dp(by("sex")) == answer


def test_a_macro_that_comes_meanwhile_is_not_what_counts(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A macro created between analysis and count replaces no built-in: private rows are read with DuckDB's own."""
    planned = planned_module.plan_cube

    def meanwhile(request: Any) -> Any:
        with clinic.con.cursor() as cursor:
            cursor.execute("CREATE MACRO list_position(a, b) AS 1")
            cursor.execute('CREATE MACRO "-"(a, b) AS 1')
        return planned(request)

    monkeypatch.setattr("dpduck.mechanisms.cubes.measure.plan_cube", meanwhile)
    counts = {ward: n for ward, n in clinic.dp(by("ward", "5")) if ward != "w5"}
    assert counts == {f"w{number}": pytest.approx(200, abs=50) for number in range(5)}  # 1 - P < exp(-58)
    assert "hides the built-in" in clinic.refused(by("sex"))


def test_a_temporary_macro_does_not_reach_private_rows(clinic: Clinic) -> None:
    """The cursor that counts does not see the client's temporary macros."""
    clinic.rows("CREATE TEMP MACRO hash(x) AS error('seen')")
    assert sum(n for _, n in clinic.dp(by("sex"))) == pytest.approx(1000, abs=400)  # 1 - P < exp(-90)


def test_generated_columns(clinic: Clinic) -> None:
    """A table with a generated column gets no policy, and keeps none: the expression could raise, or count calls."""
    clinic.rows("CREATE TABLE made (a INTEGER, b INTEGER GENERATED ALWAYS AS (1 // a) VIRTUAL)")
    policy = "(PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN a IN (1, 2))"
    assert "generated columns" in clinic.refused(f"CREATE PRIVACY POLICY ON made {policy}")
    clinic.rows("DROP TABLE visits")
    clinic.rows("CREATE TABLE visits (sex INTEGER, age INTEGER, patient INTEGER, ward VARCHAR, b AS (1 // sex))")
    assert "generated columns" in clinic.refused(by("sex"))


@pytest.mark.parametrize("rule", ["NFC", "vi", "NOCASE.NFC"])
def test_collations_that_take_as_long_as_a_row_likes(clinic: Clinic, rule: str) -> None:
    """Collations that sort marks are refused: for 32,000 marks of one row they took 6 s, and 4 times that for twice."""
    clinic.rows(f"CREATE TABLE spelt (a INTEGER, name VARCHAR COLLATE {rule})")
    refused = clinic.refused("CREATE PRIVACY POLICY ON spelt (PRIVACY UNIT ROW, BUDGET (epsilon = 1))")
    assert "COLLATION other than NOCASE and NOACCENT: private rows could make it raise, or take hours" in refused
    clinic.rows(f"ALTER TABLE visits ADD COLUMN name VARCHAR COLLATE {rule}")
    assert "COLLATION other than NOCASE and NOACCENT" in clinic.refused(by("sex"))


def test_views_are_not_what_they_read(clinic: Clinic) -> None:
    """A view has no policy, none counts through it, and it is never public, whatever its name was declared for."""
    clinic.rows("CREATE VIEW seen AS FROM visits")
    policy = "(PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 1), DOMAIN sex IN (0, 1))"
    assert "is a view" in clinic.refused(f"CREATE PRIVACY POLICY ON seen {policy}")
    assert "is a view" in clinic.refused("DECLARE PUBLIC TABLE seen")
    assert "no privacy policy" in clinic.refused(by("sex").replace("FROM visits", "FROM seen"))
    clinic.rows("DROP TABLE wards")
    clinic.rows("CREATE VIEW wards AS SELECT ward AS name, age AS region FROM visits")
    joined = by("sex").replace("FROM visits", "FROM visits JOIN wards ON ward = name")
    assert "the view 'wards' has no privacy policy" in clinic.refused(joined)
    around = f"SELECT wards.* FROM ({by('sex')}) AS answered, wards"
    assert "'wards' is not public, and is read outside of SELECT" in clinic.refused(around)
    snapshot = (
        "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10), "
        "DOMAIN ward FROM wards.name)"
    )
    assert "'wards' is not declared public: a domain is never read from protected data" in clinic.refused(snapshot)
    clinic.rows("ALTER TABLE visits RENAME TO rows")
    clinic.rows("CREATE VIEW visits AS FROM rows")
    assert "replaced by a view" in clinic.refused(by("sex"))


def test_other_schemas_and_databases(clinic: Clinic) -> None:
    """A policy holds for one table by its full name. A namesake elsewhere is neither private nor public."""
    clinic.rows("CREATE SCHEMA s")
    clinic.rows("CREATE TABLE s.visits AS FROM visits")
    clinic.rows("CREATE TABLE s.wards AS SELECT ward AS name, patient AS region FROM visits")
    assert "no privacy policy" in clinic.refused(by("sex").replace("FROM visits", "FROM s.visits"))
    joined = by("sex").replace("FROM visits", "FROM visits JOIN s.wards ON ward = name")
    assert "the table 's.wards' has no privacy policy" in clinic.refused(joined)
    around = f"SELECT s.wards.* FROM ({by('sex')}) AS answered, s.wards"
    assert "'s.wards' is not public, and is read outside of SELECT" in clinic.refused(around)
    clinic.rows("USE s")
    answer = clinic.dp(f"SELECT DISTINCT wards.region FROM ({by('ward')}) AS answered JOIN wards ON ward = name")
    assert {region for (region,) in answer} == {"north", "south"}


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_temporary_namesakes(clinic: Clinic, kind: str) -> None:
    """A temporary table or view with the name of a private or public table changes nothing about the tables read."""
    clinic.rows(f"CREATE TEMP {kind} visits AS SELECT 1 AS sex, 1 AS age, 1 AS patient, 'w1' AS ward")
    clinic.rows(f"CREATE TEMP {kind} wards AS SELECT 'w1' AS name, patient AS region FROM memory.main.visits")
    assert sum(n for _, n in clinic.dp(by("sex"))) == pytest.approx(1000, abs=400)  # 1 - P < exp(-90)
    answer = clinic.dp(f"SELECT DISTINCT wards.region FROM ({by('ward')}) AS answered JOIN wards ON ward = name")
    assert {region for (region,) in answer} == {"north", "south"}


def test_a_public_table_that_grows_while_it_is_asked(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the public table's keys repeat more often at the count than at the analysis, the price is wrong: refused."""
    clinic.rows("CREATE TABLE rows AS SELECT sex, ward FROM visits")
    clinic.dp("CREATE PRIVACY POLICY ON rows (PRIVACY UNIT ROW, BUDGET (epsilon = 10), DOMAIN sex IN (0, 1))")
    question = by("sex").replace("FROM visits", "FROM rows JOIN wards ON ward = name")
    planned = planned_module.plan_cube

    def meanwhile(request: Any) -> Any:
        with clinic.con.cursor() as cursor:
            cursor.execute("INSERT INTO wards FROM wards")
        return planned(request)

    with monkeypatch.context() as patch:
        patch.setattr("dpduck.mechanisms.cubes.measure.plan_cube", meanwhile)
        assert "changed meanwhile" in clinic.refused(question)
    clinic.dp(question)
    assert "up to 2 times" in str(clinic.rows(f"FROM dp_explain($${question}$$)"))


def test_a_policy_that_changes_while_it_is_asked(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question is refused if the policy gets a new revision or epoch between analysis and count."""
    planned = planned_module.plan_cube

    def meanwhile(request: Any) -> Any:
        with clinic.con.cursor() as cursor:
            cursor.execute("FROM dp('ALTER PRIVACY POLICY ON visits NEW EPOCH')").fetchall()
        return planned(request)

    monkeypatch.setattr("dpduck.mechanisms.cubes.measure.plan_cube", meanwhile)
    with pytest.raises(duckdb.Error, match="changed meanwhile"):
        clinic.dp(by("sex"))
    assert clinic.charges() == 0


def test_a_column_that_changes_while_it_is_asked(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that changes its type before the count is refused: conditions run without TRY by the analysed types."""
    planned = planned_module.plan_cube

    def meanwhile(request: Any) -> Any:
        with clinic.con.cursor() as cursor:
            cursor.execute("ALTER TABLE visits ALTER sex TYPE VARCHAR")
        return planned(request)

    question = by("sex").replace("FROM visits", "FROM visits WHERE sex < 5")
    with monkeypatch.context() as patch:
        patch.setattr("dpduck.mechanisms.cubes.measure.plan_cube", meanwhile)
        assert "changed meanwhile" in clinic.refused(question)
    assert clinic.charges() == 0


def test_what_does_not_bind_is_refused_before_the_charge(clinic: Clinic) -> None:
    """SQL around the answer is bound over an empty answer first, so that a mistake costs nothing."""
    view = (
        "CREATE PRIVATE VIEW v OPTIONS (epsilon = 1) AS SELECT sex, upper(count(*)) + 1 AS n FROM visits GROUP BY sex"
    )
    typed, unknown = (
        "No function matches the given name and argument types 'upper",
        'Referenced column "nowhere" not found',
    )
    for statement, reason in (
        (by("sex").replace("count(*) AS n", "upper(count(*)) + 1 AS n"), typed),
        (f"SELECT upper(n) + 1 FROM ({by('sex')}) AS answered", typed),
        (f"SELECT nowhere FROM ({by('sex')}) AS answered", unknown),
        (f"SELECT * FROM ({by('sex')}) AS answered JOIN wards ON nowhere = name", unknown),
        (view, typed),
    ):
        message = clinic.refused(statement)
        assert message.startswith(f"DuckDB does not accept this: {reason}"), statement
        assert message.endswith("; accepted: DuckDB's SQL"), statement
    own = clinic.refused(by("sex").replace("AS n", 'AS "a""dpduck_released_table""b"'))
    assert own == "line 1, column 73: the name dpduck_released_table is dpduck's own; accepted: another name"
    assert clinic.charges() == 0


def test_the_functions_of_the_connection_take_no_sql(clinic: Clinic) -> None:
    """dp_check's argument is a name, and dp's is one statement. Neither is pasted into the SQL that runs."""
    two, empty = "two statements in one text; accepted: one statement", "the statement is empty; accepted: "
    for argument, reason in (
        ("visits; DROP TABLE visits", two),
        ("visits WHERE true", "'visits WHERE true' has no privacy policy; accepted: "),
        ("(SELECT 1)", "'(SELECT 1)' has no privacy policy; accepted: "),
        (
            '"visits"" --"',
            "'visits\" --' has no privacy policy; accepted: visits (did you mean that?), or a table that has one",
        ),
        ("", empty),
        ("\n", empty),
        ("a.b.c.d", "a table name has at most three parts; accepted: database.schema.table"),
    ):
        with pytest.raises(duckdb.Error) as caught:
            clinic.con.execute("FROM dp_check(?)", [argument]).fetchall()
        assert reason in one_line(caught.value), argument
    for statement, reason in (
        ("", empty),
        (";", empty),
        ("SELECT 1", "the statement is not annotated; accepted: "),
        (f"{by('sex')}; DROP TABLE visits", two),
        ("DROP TABLE visits", "'DROP' is not expected here; accepted: "),
        ("FROM visits", "the statement is not annotated; accepted: "),
        ("\u0000", "the statement has a NUL character; accepted: text without it"),
    ):
        assert reason in clinic.refused(statement), statement
    assert clinic.value("SELECT count(*) FROM visits") == 1000


def test_null_is_no_statement(clinic: Clinic) -> None:
    """NULL as a statement is refused like an empty one."""
    for call in ("dp(NULL)", "dp_explain(NULL)", "dp_check(NULL)"):
        with pytest.raises(duckdb.Error) as caught:
            clinic.rows(f"FROM {call}")
        assert "empty" in one_line(caught.value)
