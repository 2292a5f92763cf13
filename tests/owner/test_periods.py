"""Owners declare units and budgets by period: which periods are charged and shown, and which changes are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.database.functions import database_of
from dpduck.kernel.door import Bill, open_door
from dpduck.values.errors import InternalError
from dpduck.values.periods import Period, Periods
from tests.support.clinics import Clinic

VISITS = """CREATE TABLE visits AS SELECT 'p' || i % 40 AS person,
    DATE '2024-01-01' + CAST((i * 7) % 360 AS INTEGER) AS came, ['a', 'b', NULL][i % 3 + 1] AS ward,
    i % 100 AS charge, i AS number FROM range(1200) AS r(i)"""
UNIT = "PRIVACY UNIT person PER MONTH OF came MAX ROWS 4"
DOMAINS = "DOMAIN ward IN ('a', 'b') WITH NULL, DOMAIN came RANGE 2024-01-01 TO 2025-01-01 STEP MONTH"
POLICY = f"CREATE PRIVACY POLICY ON visits ({UNIT}, BUDGET (epsilon = 1) PER MONTH, LIFETIME (epsilon = 12), {DOMAINS})"
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {}) ward, count(*) AS n FROM visits WHERE {} GROUP BY ward"
MARCH = "came >= '2024-03-01' AND came < '2024-04-01'"


def made(policy: str = POLICY) -> Clinic:
    """Opens a clinic with visits that are protected by month."""
    clinic = Clinic(dpduck.connect(config={"threads": 1}))
    clinic.con.execute(VISITS)
    if policy:
        clinic.dp(policy)
    return clinic


@pytest.fixture
def clinic() -> Iterator[Clinic]:
    found = made()
    yield found
    found.con.close()


def spent(clinic: Clinic) -> dict[str, float]:
    """Returns the spent amounts of each period, by dp_budget()."""
    return dict(clinic.rows("SELECT period, spent FROM dp_budget() WHERE measure = 'epsilon'"))


def test_a_month_is_charged_to_itself(clinic: Clinic) -> None:
    """Each month has a budget. An answer over several months costs each month, and LIFETIME adds all months up."""
    clinic.dp(ASK.format("0.5", MARCH))
    clinic.dp(ASK.format("0.25", "came BETWEEN '2024-03-15' AND '2024-05-02'"))
    assert spent(clinic) == {
        "2024-03": 0.75, "2024-04": 0.25, "2024-05": 0.25, "any other month": 0, "LIFETIME": 1.25,
    }  # fmt: skip
    assert clinic.rows("SELECT privacy_unit FROM dp_ledger() WHERE rho > 0") == [
        ("memory.main.visits.person PER MONTH FROM 2024-03-01 TO 2024-04-01",),
        ("memory.main.visits.person PER MONTH FROM 2024-03-01 TO 2024-06-01",),
    ]
    assert "has 0.25 of 1 left" in clinic.refused(ASK.format("0.375", MARCH))
    clinic.dp("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.25) came, count(*) AS n FROM visits GROUP BY came")
    assert spent(clinic)["2024-12"] == 0.25 and spent(clinic)["LIFETIME"] == 4.25
    assert "may read rows of months without an end" in clinic.refused(ASK.format("0.1", "charge > 3"))
    clinic.dp(ASK.format("0.625", "came >= '2030-01-01' AND came < '2031-01-01'"))
    message = clinic.refused(ASK.format("0.125", "came >= '2031-01-01' AND came < '2031-04-01'"))
    assert "LIFETIME in the budget of memory.main.visits.person PER MONTH has 0.25 of 12 left" in message


def test_a_stored_answer_is_free(clinic: Clinic) -> None:
    """A month's answer is the same and free when asked again. Another month is another statement."""
    first = clinic.dp(ASK.format("1", MARCH))
    assert clinic.dp(ASK.format("1", MARCH)) == first
    clinic.dp(ASK.format("1", "came >= '2024-04-01' AND came < '2024-05-01'"))
    assert clinic.charges() == 2


def test_the_statement_that_is_shown_makes_the_policy_again(clinic: Clinic) -> None:
    """dp_policies shows PER, OF and LIFETIME in its statement, and the promise to a whole person."""
    ddl, guarantee = clinic.rows("SELECT ddl, guarantee FROM dp_policies()")[0]
    assert UNIT in ddl and "BUDGET (epsilon = 1) PER MONTH,\n    LIFETIME (epsilon = 12)" in ddl
    assert guarantee == (
        "all rows of one person of one month of came: epsilon = 1, over all statements that read that month; "
        "k times as much for one person with rows in k months; never more than epsilon = 12 in all (LIFETIME)"
    )
    other = made("")
    other.dp(ddl)
    assert other.rows("SELECT ddl, guarantee FROM dp_policies()") == [(ddl, guarantee)]
    clinic.dp(ddl.replace("CREATE", "CREATE OR REPLACE"))
    assert clinic.value("SELECT revision FROM dp_policies()") == 1, "nothing changed"
    other.con.close()


def test_a_row_lies_in_one_period(clinic: Clinic) -> None:
    """PRIVACY UNIT ROW PER MONTH: a year of monthly statistics costs each row the price of one month."""
    policy = POLICY.replace("person PER MONTH OF came MAX ROWS 4", "ROW PER MONTH OF came")
    rows = made(policy.replace(", LIFETIME (epsilon = 12)", ""))
    for month in range(1, 5):
        rows.dp(ASK.format("1", f"came >= '2024-{month:02}-01' AND came < '2024-{month + 1:02}-01'"))
    assert max(spent(rows).values()) == 1
    rows.con.close()
    assert "a row lies in one month" in made("").refused(policy)


def test_a_private_draft_is_refused_in_words_that_its_owner_wrote(clinic: Clinic) -> None:
    """A private draft is refused in words of the owner's statement, and nothing is charged."""
    with pytest.raises(duckdb.Error, match="a private draft looks at whole units, and this policy's are by periods"):
        clinic.con.execute("FROM dp_draft('visits', privately := 0.1)")
    assert clinic.charges() == 0


def test_what_an_owner_may_change(clinic: Clinic) -> None:
    """Budget and lifetime may change, but not below the spent sum. The unit and its column stay once it has spent."""
    clinic.dp("ALTER PRIVACY POLICY ON visits SET LIFETIME (epsilon = 6)")
    clinic.dp("ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 2) PER MONTH")
    clinic.dp(ASK.format("1.5", "came BETWEEN '2024-03-15' AND '2024-05-02'"))
    table = dict(clinic.rows("SELECT period, budget FROM dp_budget()"))
    assert table["LIFETIME"] == 6 and table["2024-03"] == 2
    alter = "ALTER PRIVACY POLICY ON visits SET "
    refused = {
        "LIFETIME (epsilon = 4)": "LIFETIME of memory.main.visits.person PER MONTH cannot be epsilon = 4: 4.5 is",
        "BUDGET (epsilon = 1) PER MONTH": "cannot be epsilon = 1: 1.5 is already spent",
        "BUDGET (epsilon = 9)": "the budget is for all time, and the privacy unit is PER MONTH; accepted: BUDGET (..)",
        "BUDGET (epsilon = 9) PER DAY": "the budget is PER DAY, and the privacy unit is PER MONTH",
        "BUDGET (rho = 9) PER MONTH": "BUDGET and LIFETIME add up different measures",
        "PRIVACY UNIT person MAX ROWS 4": "a unit of other periods has another budget; accepted: CREATE OR REPLACE",
        "PRIVACY UNIT person PER DAY OF came MAX ROWS 4": "a unit of other periods has another budget",
        "DOMAIN came RANGE 2024-01-01 TO 2025-01-01 STEP MONTH WITH NULL": "a row whose came is NULL is of no month",
    }
    assert [text for one, text in refused.items() if text not in clinic.refused(alter + one)] == []
    clinic.con.execute("ALTER TABLE visits ADD COLUMN paid DATE")
    assert "cannot change once something is spent" in clinic.refused(alter + UNIT.replace("came", "paid"))
    clinic.dp(alter + UNIT.replace("MAX ROWS 4", "MAX ROWS 2"))


def test_what_is_no_period(clinic: Clinic) -> None:
    """Refused by name: dates that depend on a session, units that pairs do not separate, and unknown words."""
    found = made("")
    found.con.execute('CREATE TABLE t (p VARCHAR, f DOUBLE, d DATE, z TIMESTAMPTZ, s TIMESTAMP_S, "x PER DAY" VARCHAR)')
    create = "CREATE PRIVACY POLICY ON t (PRIVACY UNIT {} MAX ROWS 2, BUDGET (epsilon = 1) PER MONTH)"
    refused = {
        "p PER MONTH OF z": "z is TIMESTAMP WITH TIME ZONE, which does not say of which month a row is",
        "p PER MONTH OF s": "s is TIMESTAMP_S, which does not say",
        "p PER MONTH OF p": "p is VARCHAR, which does not say",
        "p PER MONTH OF q": "there is no column 'q'",
        "f PER MONTH OF d": "f is DOUBLE, which is not told apart by period",
        "p PER HOUR OF d": "accepted: DAY, WEEK, MONTH, QUARTER or YEAR", "p PER MONTH": "OF",
        "p": "the budget is PER MONTH, and the privacy unit is not", '"x PER DAY"': "a name that the ledger needs for",
        "p PER DAY OF d": "the budget is PER MONTH, and the privacy unit is PER DAY; accepted: BUDGET (..) PER DAY",
        "p REFERENCES visits.person": "the budget is PER MONTH",
    }  # fmt: skip
    assert [
        (one, found.refused(create.format(one)))
        for one, text in refused.items()
        if text not in found.refused(create.format(one))
    ] == []
    found.con.close()


def test_what_asks_about_several_units_at_once(clinic: Clinic) -> None:
    """A statement over features of several months is refused by name, with the condition for one month."""
    counted = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count(*) AS n FROM "
    within = "date_trunc('month', visits.came) = date_trunc('month', visits.came)"
    by_unit = "(SELECT person, count(*) AS k FROM visits GROUP BY person) AS u"
    united = "(SELECT person FROM visits UNION ALL SELECT person FROM visits) AS u"
    for source, why, accepted in (
        ("visits JOIN visits AS other USING (person)", "is not within one month", f"JOIN visits ON .. AND {within}"),
        (
            "visits SEMI JOIN (SELECT person FROM visits WHERE charge > 5) AS o USING (person)",
            "is not within one month", f"SEMI JOIN visits ON .. AND {within}",
        ),
        ("visits LEFT JOIN visits AS other USING (person)", "is not within one month", "LEFT JOIN visits ON .. AND"),
        (f"visits JOIN {united} USING (person)", "rows that do not show of which month", "that PER .. OF names"),
        (by_unit, "GROUP BY does not say so", "date_trunc('month', came); or one month in WHERE of the subquery"),
    ):  # fmt: skip
        message = clinic.refused(counted + source)
        assert why in message and accepted in message.partition("accepted:")[2]
    assert clinic.charges() == 0
    persons = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) {}count(DISTINCT person) AS n FROM visits {}"
    assert "would count somebody once for each month" in clinic.refused(persons.format("", "WHERE year(came) = 2024"))
    by_ward = persons.format("ward, ", "WHERE year(came) = 2024 GROUP BY ward")
    assert "would count somebody once for each month" in clinic.refused(by_ward)
    assert len(clinic.dp(persons.format("came, ", "GROUP BY came"))) == 12
    assert len(clinic.dp(persons.format("ward, ", f"WHERE {MARCH} GROUP BY ward"))) == 3
    assert "units of one month are not prepared" in clinic.refused("ALTER PRIVACY POLICY ON visits PREPARE")


def test_every_mechanism_pays_for_the_periods_that_it_reads() -> None:
    """Keys, synthetic data, summaries, projections and sessions are charged once each, to the month they read."""
    budget = "BUDGET (epsilon = 40, delta = 1e-4, delta_keys = 1e-5) PER MONTH"
    found = made(f"CREATE PRIVACY POLICY ON visits ({UNIT}, {budget}, {DOMAINS})")
    pay = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 4, delta = 1e-6, "
    keys = "group_selection_strategy = LAPLACE_THRESHOLD, max_groups_contributed = 1"
    rows = f"FROM visits WHERE {MARCH}"
    for statement in (
        f"{pay}{keys}) charge, count(*) AS n {rows} GROUP BY charge",
        f"CREATE PRIVATE TABLE made OPTIONS (epsilon = 1) AS SELECT ward, came {rows} WORKLOAD MARGINALS (1)",
        "CREATE PRIVATE VIEW few OPTIONS (epsilon = 1, summary = 'filter_priority', summary_size = 10) AS "
        f"SELECT ward, came, count(*) AS n {rows} GROUP BY ward, came",
        "CREATE PRIVATE SESSION s OPTIONS (epsilon = 1, delta = 1e-6, sparsity = 4, queries = 50) AS "
        f"SELECT charge {rows}",
        f"CREATE PRIVATE HISTOGRAM h OPTIONS (epsilon = 1) AS SELECT charge {rows}",
    ):
        found.dp(statement)
    assert len(found.rows("FROM dp_ask('s', ['5', '6'])")) == 1
    march = "memory.main.visits.person PER MONTH FROM 2024-03-01 TO 2024-04-01"
    assert found.rows("SELECT DISTINCT privacy_unit FROM dp_ledger() WHERE rho > 0") == [(march,)]
    assert found.charges() == 5
    unit = dict(found.rows("SELECT column_name, privacy_unit FROM dp_columns('visits') WHERE privacy_unit IS NOT NULL"))
    assert unit == {"person": "memory.main.visits.person PER MONTH, MAX ROWS 4", "came": "PER MONTH"}
    found.con.close()


def test_tables_share_the_budget_of_one_persons_month(clinic: Clinic) -> None:
    """By REFERENCES bills and visits of a month share a ledger. Two kinds of units for one person are refused."""
    clinic.con.execute("CREATE TABLE bills AS SELECT person, came AS billed, charge FROM visits")
    unit = "CREATE PRIVACY POLICY ON bills (PRIVACY UNIT person REFERENCES visits.person"
    clinic.dp(f"{unit} PER MONTH OF billed MAX ROWS 2)")
    clinic.dp(ASK.format("1", MARCH))
    bills = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM bills WHERE "
    assert "has 0 of 1 left" in clinic.refused(bills + "billed = '2024-03-03'")
    clinic.dp(bills + "billed = '2024-04-03'")
    clinic.dp("DROP PRIVACY POLICY ON bills")
    refused = "the unit of memory.main.visits is by month: a row would have units of two kinds"
    for per in ("", " PER DAY OF billed"):
        assert refused in clinic.refused(f"{unit}{per} MAX ROWS 2)")
    clinic.con.execute("ALTER TABLE bills ADD COLUMN visit INTEGER")
    for per in ("", " PER MONTH OF billed"):  # the row that is referred to may be of another month
        message = clinic.refused(
            f"CREATE PRIVACY POLICY ON bills (PRIVACY UNIT visit REFERENCES visits.number{per} MAX ROWS 2)"
        )
        assert "would be of two units: of the month of that row, and of a month of its own" in message
        assert "PRIVACY UNIT person REFERENCES visits.person PER MONTH OF a column" in message
    clinic.con.execute("CREATE TABLE people AS SELECT DISTINCT person FROM visits")
    clinic.dp("CREATE PRIVACY POLICY ON people (PRIVACY UNIT person MAX ROWS 1, BUDGET (epsilon = 1))")
    other = unit.replace("visits.person", "people.person")
    other += " PER MONTH OF billed MAX ROWS 2, BUDGET (epsilon = 1) PER MONTH)"
    assert "the unit of memory.main.people is for all time" in clinic.refused(other)


def test_columns_that_change_are_looked_at_again(clinic: Clinic) -> None:
    """A date that became a text, or a unit that became a decimal, is refused before the charge."""
    clinic.con.execute("ALTER TABLE visits ALTER came TYPE TIMESTAMP")
    assert len(clinic.dp(ASK.format("0.25", MARCH))) == 3, "a month is the same of both types"
    clinic.con.execute("ALTER TABLE visits ALTER came TYPE TIMESTAMPTZ")
    message = clinic.refused("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count(*) AS n FROM visits")
    assert "'came' is TIMESTAMP WITH TIME ZONE, and no longer says of which month a row is" in message
    clinic.con.execute("ALTER TABLE visits ALTER came TYPE DATE")
    clinic.con.execute("ALTER TABLE visits ALTER person TYPE DOUBLE USING 1.0")
    message = clinic.refused("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count(*) AS n FROM visits")
    assert "'person' is no longer told apart by month" in message


def test_prepared_tables_stay_without_periods() -> None:
    """A prepared table gets no units by period before UNPREPARE."""
    plain = f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person MAX ROWS 4, BUDGET (epsilon = 1), {DOMAINS})"
    found = made(plain)
    found.dp("ALTER PRIVACY POLICY ON visits PREPARE")
    replaced = POLICY.replace("CREATE", "CREATE OR REPLACE")
    assert (
        "units of one month are not prepared; accepted: visits as it is; or UNPREPARE before PER MONTH"
        in found.refused(replaced)
    )
    found.dp("ALTER PRIVACY POLICY ON visits UNPREPARE")
    found.dp(replaced)
    found.con.close()


def test_the_owner_sees_units_by_period(clinic: Clinic) -> None:
    """dp_check counts rows of each person and month, and those without a month."""
    clinic.con.execute(
        "INSERT INTO visits (person, came) VALUES ('p1', NULL), ('p1', 'infinity'), (NULL, '2024-01-01')"
    )
    found = dict(clinic.rows("SELECT finding, value FROM dp_check('visits')"))
    exact = clinic.value(
        "SELECT count(DISTINCT (person, month(came))) FROM visits WHERE person = 'p1' AND isfinite(came)"
    )
    assert found["rows in no month"] == 2 and found["rows whose unit is NULL"] == 3
    assert found["privacy units"] > 40 * exact / 2 and found["rows with NULL in came"] == 1


def test_a_view_says_what_a_person_is_promised(clinic: Clinic) -> None:
    """The comment of a private view, and dp_explain, name the unit's period and the charged periods."""
    clinic.dp(
        "CREATE PRIVATE VIEW march OPTIONS (epsilon = 0.5) AS "
        f"SELECT ward, count(*) AS n FROM visits WHERE {MARCH} GROUP BY ward"
    )
    comment = clinic.value("SELECT comment FROM duckdb_tables() WHERE table_name = 'march'")
    assert "of one month of came; charged to 2024-03; somebody with rows in k of them" in comment
    explained = f"SELECT note FROM dp_explain($$ {ASK.format('0.1', MARCH)} $$) WHERE chosen"
    assert "at most 4 rows of each month, charged FROM 2024-03-01 TO 2024-04-01" in clinic.value(explained)
    both = "; ".join(ASK.format(price, MARCH) for price in ("0.3", "0.4"))
    assert clinic.rows(f"SELECT remaining, fits FROM dp_plan($$ {both} $$)") == [
        (pytest.approx(0.2), True), (pytest.approx(0.2), False), (pytest.approx(0.2), False),
    ]  # fmt: skip


def test_keys_over_several_months_promise_a_person_no_delta() -> None:
    """Selected keys promise no delta to a person: over rows in k of the months it may be k^2 times the unit's."""
    budget = "BUDGET (epsilon = 40, delta = 1e-4, delta_keys = 1e-5) PER MONTH"
    found = made(f"CREATE PRIVACY POLICY ON visits ({UNIT}, {budget})")
    assert "k^2 times from others (no bound for keys that are selected over several months)" in found.value(
        "SELECT guarantee FROM dp_policies()"
    )
    for name, until, said in (("one", "2024-04-01", False), ("two", "2024-05-01", True)):
        found.dp(
            f"CREATE PRIVATE VIEW {name} OPTIONS (epsilon = 4, delta = 1e-6, group_selection_strategy = "
            "LAPLACE_THRESHOLD, max_groups_contributed = 1) AS SELECT charge, count(*) AS n FROM visits "
            f"WHERE came >= '2024-03-01' AND came < '{until}' GROUP BY charge"
        )
        comment = found.value(f"SELECT comment FROM duckdb_tables() WHERE table_name = '{name}'")
        assert ("the delta of keys has no bound for them" in comment) == said
    found.con.close()


def test_the_door_counts_the_periods_of_the_bill_alone(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job with other periods than the paid ones is a defect: nothing is charged, and nothing is read."""
    seen: list[Callable[[], object]] = []

    def other(asks: Any, bill: Bill, *rest: Any, **more: Any) -> Any:
        for periods in (None, Periods("MONTH", 12 * 2023, 12 * 2023)):
            wrong = Bill(**{**{name: getattr(bill, name) for name in bill.__dataclass_fields__}, "periods": periods})
            with (
                pytest.raises(InternalError, match="disagree about periods; nothing was charged"),
                open_door(asks, wrong, *rest),
            ):
                raise AssertionError
        seen.append(lambda: bill)
        return open_door(asks, bill, *rest, **more)

    monkeypatch.setattr("dpduck.mechanisms.release.open_door", other)
    clinic.dp(ASK.format("0.5", MARCH))
    assert len(seen) == clinic.charges() == 1


def test_a_version_without_periods_fails_on_their_policies(clinic: Clinic) -> None:
    """Earlier versions read at most four parts of a unit, and fail rather than answer as if there were no periods."""
    column = "json_extract(definition, '$.unit')"
    ((written,),) = clinic.rows(f"SELECT {column}::VARCHAR FROM private.dpduck.policies WHERE active")
    assert len(json.loads(written)) == 5
    policy = database_of(clinic.con)._policies  # type: ignore[union-attr]
    assert [one.unit.period for one in policy.policies()] == [Period("MONTH", "came")]
