"""Paid answers stay free after changes of a policy on which they do not depend, and are charged after others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dpduck
from dpduck.database.functions import database_of
from dpduck.store.cursors import Caller
from dpduck.store.policies import PolicyStore
from dpduck.store.terms import MOST_TERMS, PolicyTerms, as_answered
from dpduck.values.errors import PermissionRefusal
from tests.database.pinned_statements import STORE, answer, releases
from tests.support.clinics import CHARGES, Clinic

POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4,
    BUDGET (epsilon = 90, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 10,
    DOMAIN ward FROM wards.name, EXPECT ROWS 900, CLAMP age BETWEEN 0 AND 100)"""
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS "
VIEW = "CREATE PRIVATE VIEW v OPTIONS (epsilon = 0.7) AS SELECT ward, count(*) AS n FROM visits GROUP BY CUBE (ward)"
SESSION = "CREATE PRIVATE SESSION s OPTIONS (epsilon = 1, queries = 10, updates = 5) AS SELECT ward FROM visits"
STATEMENTS = {
    "count": f"{ASK}(epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex",
    "sum": f"{ASK}(epsilon = 1, delta = 1e-7) sum(age) AS s FROM visits",
    "target": f"{ASK}(target_stderr = 9) ward, count(*) AS n FROM visits GROUP BY ward",
    "keys": f"{ASK}(epsilon = 2, delta = 1e-7, group_selection_strategy = LAPLACE_THRESHOLD) "
    "age // 50 AS half, count(*) AS n FROM visits GROUP BY age // 50",
    "summary": f"{ASK}(epsilon = 1, summary = 'filter', summary_size = 5) age, ward, count(*) AS n FROM visits "
    "GROUP BY age, ward",
}
MADE = {
    "view": (VIEW, "FROM private.v"),
    "rows": (
        "CREATE PRIVATE TABLE t OPTIONS (epsilon = 1) AS SELECT sex, ward FROM visits WORKLOAD MARGINALS (1)",
        "FROM private.t",
    ),
    "projection": (
        "CREATE PRIVATE PROJECTION p OPTIONS (epsilon = 1, rows = 60) AS SELECT ward FROM visits",
        "FROM private.p",
    ),
    "histogram": (
        "CREATE PRIVATE HISTOGRAM h OPTIONS (epsilon = 1) AS SELECT ward FROM visits",
        "FROM dp_ask('h', ['w1'])",
    ),
    "session": (SESSION, "FROM dp_ask('s', ['w1'])"),
}
CHANGES = (
    "BUDGET (epsilon = 95, delta = 1e-6, delta_keys = 4e-7)",
    "EXPECT ROWS 5",
    "MIN EPSILON 2.5",
    "MAX EPSILON 3",
)
"""Prices above are between 0.5 and 2: the limits refuse each of them, were it asked for the first time."""


@pytest.fixture(scope="module")
def clinic() -> Iterator[Clinic]:
    with dpduck.connect() as connection:
        clinic = Clinic(connection)
        clinic.fill()
        clinic.protect(POLICY)
        yield clinic


def alter(clinic: Clinic, change: str) -> str:
    return str(clinic.dp(f"ALTER PRIVACY POLICY ON visits {change}")[0][0])


def asked(clinic: Clinic) -> list[object]:
    """Returns the answers of statements."""
    return [sorted(clinic.dp(text), key=repr) for text in STATEMENTS.values()]


def made(clinic: Clinic) -> list[object]:
    """Runs a statement that creates a named object, and returns the answer of that object."""
    return [(clinic.dp(statement), sorted(clinic.rows(read), key=repr)) for statement, read in MADE.values()]


@pytest.fixture(scope="module")
def paid(clinic: Clinic) -> tuple[list[object], list[object], int]:
    """Returns all answers under the first terms, and the number of their charges."""
    return asked(clinic), made(clinic), clinic.charges()


def test_budgets_and_limits_change_no_answer(clinic: Clinic, paid: tuple[list[object], list[object], int]) -> None:
    """Every kind of statement has its old answer, free of charge, after each change and after all changes together."""
    answers, named, charges = paid
    assert charges == len(STATEMENTS) + len(MADE)
    for change in CHANGES:
        assert alter(clinic, f"SET {change}").endswith("repeating an earlier question stays free")
        assert asked(clinic) == answers, change
    assert made(clinic) == named and clinic.charges() == charges
    planned = clinic.rows("SELECT epsilon, rho, note FROM dp_plan('{}') LIMIT 1".format(STATEMENTS["count"]))
    assert planned == [(0, 0, "answered already: free")]
    new = clinic.refused(STATEMENTS["count"].replace("epsilon = 1", "epsilon = 1.01"))
    assert "one statement has a smallest price" in new
    assert "one statement is limited" in clinic.refused(STATEMENTS["count"].replace("epsilon = 1", "epsilon = 3.01"))


@pytest.mark.usefixtures("paid")
def test_a_principal_reads_what_was_paid(clinic: Clinic) -> None:
    """A served principal under a new limit gets the stored answer, and no other."""
    for change in CHANGES:
        alter(clinic, f"SET {change}")
    database = database_of(clinic.con)
    assert database is not None
    anna = Caller("anna", owner=False, tables=("memory.main.visits",))
    text, before = STATEMENTS["count"], clinic.charges()
    assert sorted(clinic.rows(database.run(text, anna))) == sorted(clinic.dp(text))
    assert clinic.charges() == before


@pytest.mark.usefixtures("paid")
def test_what_exists_goes_on_under_new_limits(clinic: Clinic) -> None:
    """A session answers on, and REFRESH of a view reads the old answer, though neither could be created any more."""
    for change in CHANGES:
        alter(clinic, f"SET {change}")
    charges = clinic.charges()
    assert len(clinic.rows("FROM dp_ask('s', ['w3'])")) == 1
    assert str(clinic.dp("REFRESH PRIVATE VIEW v")[0][0]).endswith("v is ready")
    assert clinic.charges() == charges


@pytest.mark.parametrize(
    "change",
    [
        "SET DOMAIN sex IN (0, 1) WITH NULL",
        "SET CLAMP age BETWEEN 0 AND 90",
        "SET PRIVACY UNIT patient MAX ROWS 3",
        "NEW EPOCH",
    ],
)
def test_what_answers_depend_on_is_charged_anew(open_clinic: Callable[..., Clinic], change: str) -> None:
    """A change that answers depend on is charged, also with another change before it, after it, or both."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(POLICY)
    text = STATEMENTS["sum"]
    clinic.dp(text)
    alter(clinic, "SET EXPECT ROWS 800")
    assert (clinic.dp(text), clinic.charges())[1] == 1
    assert alter(clinic, change).endswith("repeating an earlier question will cost again")
    alter(clinic, "SET EXPECT ROWS 700")
    found = clinic.dp(text)
    assert clinic.charges() == 2
    alter(clinic, "SET MAX EPSILON 0.5")
    assert (clinic.dp(text), clinic.charges()) == (found, 2)


def test_the_last_of_several_answers_stays(open_clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version charged again after a change of the budget. The answer to its last charge stays free."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(POLICY)
    text = f"{ASK}(epsilon = 0.1) age, ward, count(*) FROM visits GROUP BY age, ward"
    first = clinic.dp(text)
    alter(clinic, "SET EXPECT ROWS 800")
    with monkeypatch.context() as earlier_version:
        earlier_version.setattr(PolicyStore, "earlier", lambda self: ())
        last = clinic.dp(text)
    alter(clinic, "SET EXPECT ROWS 700")
    assert first != last  # 60 cells with a standard error above 50: alike with a chance below 1e-100
    assert clinic.dp(text) == last and clinic.charges() == 2


def test_another_table_of_the_unit_may_change_its_budget(open_clinic: Callable[..., Clinic]) -> None:
    """Another table of the unit changes the budget, from pure to one with a delta, and answers stay."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(POLICY.replace(", delta = 1e-6, delta_keys = 5e-7", ""))
    clinic.rows("CREATE TABLE bills AS SELECT patient, age AS cents FROM visits")
    text = STATEMENTS["target"]
    found = clinic.dp(text)
    clinic.dp("CREATE PRIVACY POLICY ON bills (PRIVACY UNIT patient REFERENCES visits.patient MAX ROWS 4, "
              "BUDGET (epsilon = 95, delta = 1e-6))")  # fmt: skip
    assert clinic.dp(text) == found and clinic.charges() == 1


def test_an_earlier_store_answers_after_its_policy_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers in the store of an earlier version stay the same, whatever the budget and limits are now."""
    shutil.unpack_archive(STORE, tmp_path)
    (tmp_path / "clinic_private_secrets").chmod(0o600)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    kept = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))
    with dpduck.connect(tmp_path / "clinic.duckdb") as store:
        charges = store.execute(CHARGES).fetchall()
        tables = [row[0] for row in store.execute("SELECT table_name FROM dp_policies()").fetchall()]
        for table in tables:
            for change in ("EXPECT ROWS 3", "MAX EPSILON 0.001"):
                store.execute("FROM dp(?)", [f"ALTER PRIVACY POLICY ON {table} SET {change}"]).fetchall()
        assert {text: answer(store, text) for text in kept["answers"]} == kept["answers"]
        assert len(store.execute("FROM dp_ask('few', ['w2'])").fetchall()) == 1
        assert releases(store) == kept["releases"]
        assert store.execute(CHARGES).fetchall() == charges


def test_who_may_not_ask_is_told_at_once() -> None:
    """A statement that its asker may not ask is analysed once, however many earlier terms there are."""
    reads = list[object]()

    def read(terms: PolicyTerms | None) -> str:
        reads.append(terms)
        raise PermissionRefusal("not this table", accepted="another one")

    with pytest.raises(PermissionRefusal):
        as_answered(read, lambda _: True, lambda: [PolicyTerms({}, {})] * 9)
    assert reads == [None]


def test_few_earlier_terms_are_looked_at() -> None:
    """At most MOST_TERMS earlier terms are read for a new statement, however many changes there were."""
    with dpduck.connect() as con:
        con.execute("CREATE TABLE v AS SELECT range AS p FROM range(10)")
        policy = "CREATE PRIVACY POLICY ON v (PRIVACY UNIT p MAX ROWS 1, BUDGET (epsilon = 9))"
        con.execute("FROM dp(?)", [policy]).fetchall()
        for rows in range(MOST_TERMS + 9):
            con.execute("FROM dp(?)", [f"ALTER PRIVACY POLICY ON v SET EXPECT ROWS {100 + rows}"]).fetchall()
        database = database_of(con)
        assert database is not None
        assert len(database._policies.earlier()) == MOST_TERMS
