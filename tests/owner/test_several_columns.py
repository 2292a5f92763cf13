"""PRIVACY UNIT (several, columns): the owner's statements, their listings, and refusals by name."""

from __future__ import annotations

import json
from collections.abc import Iterator

import duckdb
import pytest

import dpduck
from dpduck.database.functions import database_of
from dpduck.language.statements.kinds import CreatePolicy
from dpduck.language.statements.parse import parse_statement
from dpduck.store.policies import policy_from_text, policy_to_text
from tests.support.clinics import Clinic

ANSWERS = """CREATE TABLE answers AS SELECT i AS id, 'h' || i % 50 AS household, i % 3 AS survey,
    ['a', 'b'][i % 2 + 1] AS kind, i % 7 AS x, DATE '2024-01-01' + CAST(i % 300 AS INTEGER) AS day, i % 5 / 2 AS part
    FROM range(600) AS r(i)"""
UNIT = "PRIVACY UNIT (household, survey) MAX ROWS 4"
ITEMS = (
    "BUDGET (epsilon = 900, delta = 1e-6, delta_keys = 1e-7), DOMAIN kind IN ('a', 'b'), DOMAIN survey IN (0, 1, 2), "
    "CLAMP x BETWEEN 0 AND 6, DOMAIN day RANGE 2024-01-01 TO 2025-01-01 STEP MONTH"
)
POLICY = f"CREATE PRIVACY POLICY ON answers ({{unit}}, {ITEMS})"
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 20) "
KEY = "memory.main.answers.(household, survey)"


def made(unit: str = UNIT) -> Clinic:
    """Opens answers of 50 households in three surveys, four rows for each, under a policy."""
    clinic = Clinic(dpduck.connect(config={"threads": 1}))
    clinic.con.execute(ANSWERS)
    clinic.con.execute("ALTER TABLE answers ADD PRIMARY KEY (id)")
    if unit:
        clinic.dp(POLICY.format(unit=unit))
    return clinic


@pytest.fixture
def clinic() -> Iterator[Clinic]:
    found = made()
    yield found
    found.con.close()


def test_columns_in_brackets_are_read() -> None:
    """Several columns in brackets are a unit, and one column in brackets is as without brackets."""
    for unit, column, columns in (
        ("(household, survey)", None, ("household", "survey")),
        ('("a b", C, d)', None, ("a b", "C", "d")),
        ("(household)", "household", ()),
        ("household", "household", ()),
    ):
        statement = parse_statement(POLICY.format(unit=f"PRIVACY UNIT {unit} MAX ROWS 4"))
        assert isinstance(statement, CreatePolicy) and statement.clauses.unit is not None
        assert (statement.clauses.unit.column, statement.clauses.unit.columns) == (column, columns)


REFUSED = {
    "(household, survey) PER MONTH OF day MAX ROWS 4": "has no periods; accepted: PRIVACY UNIT (household, survey) MAX",
    "(household, survey) REFERENCES b.id MAX ROWS 4": "refers to no other table; accepted: PRIVACY UNIT (household,",
    "(household survey) MAX ROWS 4": "accepted: ) or , and a column",
    "() MAX ROWS 4": "accepted: a column",
    "(household, survey)": "accepted: MAX ROWS",
    "(household, Household) MAX ROWS 4": "'household' is named twice; accepted: each column",
    "(household, nobody) MAX ROWS 4": "there is no column 'nobody'; accepted: id, household",
    "(household, part) MAX ROWS 4": "'part' is DOUBLE, and no part of a privacy unit of several columns; accepted: col",
    "(a, b, c, d, e, f, g, h, i) MAX ROWS 4": "9 columns of a privacy unit; accepted: 8 columns",
}


@pytest.mark.parametrize("unit", REFUSED)
def test_what_is_refused(unit: str) -> None:
    """Each statement is refused in one line that says what would be accepted, and leaves no policy."""
    clinic = made("")
    assert REFUSED[unit] in clinic.refused(POLICY.format(unit=f"PRIVACY UNIT {unit}"))
    assert clinic.rows("FROM dp_policies()") == []
    clinic.con.close()


def test_names_and_collations_that_are_refused() -> None:
    """Names with brackets or commas are refused, since a key writes them so. Texts under a COLLATION are no units."""
    with duckdb.connect() as connection:
        connection.execute('CREATE TABLE odd ("a, b" INTEGER, c INTEGER, "(c, d)" INTEGER, e VARCHAR COLLATE NOCASE)')
        dpduck.load(connection)
        clinic = Clinic(connection)
        policy = "CREATE PRIVACY POLICY ON odd (PRIVACY UNIT {} MAX ROWS 1, BUDGET (epsilon = 1))"
        assert "has a bracket or comma; accepted: ALTER TABLE" in clinic.refused(policy.format('("a, b", c)'))
        assert "is a name that the ledger needs for several columns; accepted: ALTER" in clinic.refused(
            policy.format('"(c, d)"')
        )
        assert "COLLAT" in clinic.refused(policy.format("(c, e)"))
        connection.execute('CREATE TABLE parents (c INTEGER, d INTEGER, "(c, d)" INTEGER UNIQUE)')
        referring = policy.format('c REFERENCES parents."(c, d)"')
        assert "is a name that the ledger needs for several columns; accepted: ALTER" in clinic.refused(referring)


def test_the_statement_that_is_shown_makes_the_policy_again(clinic: Clinic) -> None:
    """dp_policies shows both columns and the promise, and so do dp_columns, dp_budget and the ledger."""
    ddl, guarantee, unit = clinic.rows("SELECT ddl, guarantee, privacy_unit FROM dp_policies()")[0]
    assert UNIT in ddl and unit == KEY
    assert guarantee.startswith("all rows of one (household, survey): epsilon = 900")
    other = made("")
    other.dp(ddl)
    assert other.rows("SELECT ddl, guarantee, privacy_unit FROM dp_policies()") == [(ddl, guarantee, unit)]
    other.con.close()
    clinic.dp(ddl.replace("CREATE", "CREATE OR REPLACE"))
    assert clinic.value("SELECT revision FROM dp_policies()") == 1, "nothing changed"
    named = clinic.rows("SELECT column_name FROM dp_columns('answers') WHERE privacy_unit IS NOT NULL")
    assert named == [("household",), ("survey",)]
    clinic.dp(ASK + "count(*) AS n FROM answers")
    assert clinic.rows("SELECT DISTINCT privacy_unit FROM dp_ledger() WHERE rho > 0") == [(KEY,)]
    found = dict(clinic.rows("SELECT finding, value FROM dp_check('answers')"))
    assert (found["privacy units"], found["most rows of a unit"], found["rows dropped by MAX ROWS 2"]) == (150, 4, 300)


def test_a_policy_as_text(clinic: Clinic) -> None:
    """The store writes the columns as a sixth part of the unit, on which earlier versions fail."""
    database = database_of(clinic.con)
    assert database is not None
    (policy,) = database.about.policies.policies()
    text = policy_to_text(policy)
    assert policy_from_text(text) == policy
    assert json.loads(text)["unit"] == [KEY, "", 4, None, None, ["household", "survey"]]


def test_a_twin_has_max_rows_of_each_unit(clinic: Clinic) -> None:
    """A unit of a twin has MAX ROWS rows, equal in both columns and inside their domains."""
    counted = "SELECT DISTINCT count(*) FROM dp_twin('answers', 400) GROUP BY household, survey"
    assert {row[0] % 4 for row in clinic.rows(counted)} == {0}
    assert clinic.value("SELECT count(DISTINCT survey) FROM dp_twin('answers', 400) WHERE survey IN (0, 1, 2)") == 3


COUNTED = {
    "count(*) AS n FROM answers": 600,
    "count(DISTINCT (household, survey)) AS n FROM answers": 150,
    "count(DISTINCT (a.survey, a.household)) AS n FROM answers AS a": 150,
    "count(*) AS n FROM (SELECT count(*) AS k FROM answers GROUP BY survey, household) AS u WHERE k = 4": 150,
    "count(*) AS n FROM (SELECT row_number() OVER (PARTITION BY household, survey ORDER BY id) AS k FROM answers) AS w "
    "WHERE k = 1": 150,
    "count(*) AS n FROM answers AS a JOIN answers AS b USING (household, survey) WHERE a.id < b.id": 600,
    "count(*) AS n FROM answers AS a JOIN answers AS b USING (id)": 600,
}


@pytest.mark.parametrize("prepared", [False, True])
def test_what_is_counted(clinic: Clinic, prepared: bool) -> None:
    """Counts of rows, of units and of features are right at a price where noise is nearly nothing."""
    if prepared:
        clinic.dp("ALTER PRIVACY POLICY ON answers PREPARE")
    for select, expected in COUNTED.items():
        assert abs(clinic.dp(ASK + select)[0][0] - expected) <= 6, select


UNANSWERED = {
    "count(DISTINCT household) AS n FROM answers": "a column whose values are declared",
    "count(DISTINCT (household, kind)) AS n FROM answers": "accepted: count(DISTINCT (household, survey))",
    "count(DISTINCT household, survey) AS n FROM answers": "accepted: count(DISTINCT (household, survey))",
    "count(*) AS n FROM (SELECT count(*) AS k FROM answers GROUP BY household) AS u": "GROUP BY household, survey",
    **{
        f"count(*) AS n FROM (SELECT count(*) AS k FROM answers GROUP BY household, survey, {more}) AS u":
            "accepted: GROUP BY household, survey"
        for more in ("x + 1", "upper(kind)", "1", "(kind, x)", "kind")
    },
    "count(*) AS n FROM (SELECT household, count(*) AS k FROM answers GROUP BY household, survey) AS u":
        "accepted: what is made of its rows alone",
    "count(*) AS n FROM (SELECT household || 'x' AS h, max(x) - min(survey) AS k FROM answers GROUP BY household, "
    "survey) AS u": "accepted:",
    "count(*) AS n FROM (SELECT row_number() OVER (PARTITION BY household ORDER BY id) AS k FROM answers) AS w":
        "accepted: PARTITION BY household, survey",
    "count(*) AS n FROM answers AS a JOIN answers AS b ON a.household = b.household":
        "a.household = b.household AND a.survey = b.survey",
    "count(*) AS n FROM answers AS a JOIN answers AS b ON a.household = b.household AND a.survey = a.survey":
        "a.household = b.household AND a.survey = b.survey",
    "count(*) AS n FROM answers AS a JOIN answers AS b ON a.household = b.household AND (a.survey = b.survey OR TRUE)":
        "a.household = b.household AND a.survey = b.survey",
}  # fmt: skip


def test_what_is_not_answered(clinic: Clinic) -> None:
    """A statement by a part of the unit alone is refused before the charge, with the accepted form."""
    for select, expected in UNANSWERED.items():
        assert expected in clinic.refused(ASK + select), select
    clause = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, privacy_unit_column = household) count(*) FROM answers"
    )
    assert "accepted: no privacy_unit_column" in clinic.refused(clause)
    with pytest.raises(duckdb.Error, match=r"held by several columns; accepted: dp_draft\('answers'\)"):
        clinic.con.execute("FROM dp_draft('answers', privately := 0.1)")
    assert clinic.charges() == 0


def test_the_unit_stays_once_something_is_spent(clinic: Clinic) -> None:
    """MAX ROWS may change. The columns may not, and neither may their types become types that are no units."""
    clinic.dp(ASK + "count(*) AS n FROM answers")
    clinic.dp("ALTER PRIVACY POLICY ON answers SET PRIVACY UNIT (household, survey) MAX ROWS 5")
    for unit in ("household", "(household, survey, kind)", "(survey, household)", "ROW"):
        most = "" if unit == "ROW" else " MAX ROWS 4"
        message = clinic.refused(f"ALTER PRIVACY POLICY ON answers SET PRIVACY UNIT {unit}{most}")
        assert "cannot change once something is spent" in message
    clinic.con.execute("ALTER TABLE answers ALTER survey TYPE DOUBLE")
    message = clinic.refused(ASK + "kind, count(*) AS n FROM answers GROUP BY kind")
    assert "'survey' is DOUBLE, and no part of a privacy unit" in message
    clinic.con.execute("ALTER TABLE answers DROP survey")
    assert "'survey' is gone, and no part of a privacy unit" in clinic.refused(ASK + "count(id) AS n FROM answers")


def test_selected_keys_count_units(clinic: Clinic) -> None:
    """A threshold counts units of several columns: each household has three, and counts as three."""
    clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 20, delta = 1e-8, max_groups_contributed = 1, "
    clause += "group_selection_strategy = LAPLACE_THRESHOLD) "
    select = "household, count(DISTINCT (household, survey)) AS n FROM answers GROUP BY household"
    found = dict(clinic.dp(clause + select))
    assert len(found) == 50 and {abs(count - 3) <= 2 for count in found.values()} == {True}
