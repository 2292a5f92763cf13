"""Which statements are charged, which are refused, and which owner statements give no budget back."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import duckdb
import pytest

from dpduck.database.functions import database_of
from dpduck.kernel.counting.exact import count_exactly
from dpduck.store.cursors import Caller
from dpduck.values.accounting import rho_of, rho_of_laplace
from tests.support.clinics import REHEARSED, Clinic, by

OpenClinic = Callable[..., Clinic]


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records every scan of private rows, as it begins."""
    seen: list[str] = []

    def counted(cursor: Any, job: Any, key: bytes, workers: Any) -> object:
        seen.extend(["scan"] if key != REHEARSED else [])
        return count_exactly(cursor, job, key, workers)

    monkeypatch.setattr("dpduck.kernel.door.count_exactly", counted)
    return seen


def test_the_columns_that_programs_rely_on(clinic: Clinic) -> None:
    """Names, order and types of the listings are a contract. Their types need no other package in a client."""
    clinic.dp(by("sex"))
    expected = {
        f"dp_explain($${by('sex')}$$)": [
            ("strategy", "VARCHAR"), ("chosen", "BOOLEAN"), ("total_variance", "DOUBLE"), ("worst_stderr", "DOUBLE"),
            ("epsilon", "DOUBLE"), ("delta", "DOUBLE"), ("rho", "DOUBLE"), ("cells", "BIGINT"), ("groups", "BIGINT"),
            ("note", "VARCHAR"),
        ],
        "dp_budget()": [
            ("table_name", "VARCHAR"), ("measure", "VARCHAR"), ("budget", "DOUBLE"), ("spent", "DOUBLE"),
            ("remaining", "DOUBLE"),
        ],
        "dp_ledger()": [
            ("id", "BIGINT"), ("charged_at", "TIMESTAMP"), ("principal", "VARCHAR"), ("table_name", "VARCHAR"),
            ("statement", "VARCHAR"), ("mechanism", "VARCHAR"), ("epsilon", "DOUBLE"), ("rho", "DOUBLE"),
            ("delta", "DOUBLE"),
        ],
        "dp_releases()": [
            ("name", "VARCHAR"), ("statement", "VARCHAR"), ("strategy", "VARCHAR"), ("epsilon", "DOUBLE"),
            ("delta", "DOUBLE"), ("rho", "DOUBLE"), ("released_at", "TIMESTAMP"), ("rows", "BIGINT"),
        ],
    }  # fmt: skip
    for call, columns in expected.items():
        described = [(row[0], row[1]) for row in clinic.rows(f"DESCRIBE FROM {call}")]
        assert described[: len(columns)] == columns
        assert clinic.rows(f"FROM {call}")
    at = clinic.value("SELECT max(charged_at) FROM dp_ledger()")
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    assert isinstance(at, datetime.datetime) and abs(now - at) < datetime.timedelta(minutes=5)


def test_a_pure_budget_adds_epsilon(clinic: Clinic) -> None:
    """Charges add up exactly: ten tenths are one."""
    for number in range(10):
        clinic.dp(by("sex", epsilon="0.1", more=f"refresh = 't{number}'"))
    until = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=9)).date()
    assert clinic.rows("FROM dp_budget()") == [
        ("visits", "epsilon", 10.0, 1.0, 9.0, None, "epsilon = 10", 9.0, "in force", None, 1.0, until, None, None, 0.0,
         None, None, None)
    ]  # fmt: skip
    clinic.dp(by("sex", epsilon="9"))
    message = clinic.refused(by("ward", epsilon="0.000000001"))
    assert "has 0 of 10 left" in message


def test_an_approximate_budget_is_charged_as_rho(open_clinic: OpenClinic) -> None:
    """(epsilon, delta) becomes rho by the tightest conversion, and a pure charge costs the rho of its Laplace noise."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 3, delta = 1e-6), "
        "DOMAIN sex IN (0, 1))"
    )
    clinic.dp(by("sex", epsilon="1", more="delta = 1e-7"))
    clinic.dp(by("sex", epsilon="0.5"))
    budget, spent = (
        rho_of(Fraction(3), Fraction(1, 10**6)),
        rho_of(Fraction(1), Fraction(1, 10**7)) + rho_of_laplace(4, 4, Fraction(8)),
    )
    table, measure, whole, used, left, *_ = clinic.rows("FROM dp_budget()")[0]
    assert (table, measure) == ("visits", "rho")
    assert (whole, used) == pytest.approx((float(budget), float(spent)), rel=1e-12)
    assert left == pytest.approx(whole - used, rel=1e-12)
    assert clinic.value("SELECT epsilon FROM dp_ledger() ORDER BY id DESC LIMIT 1") == 0.5
    assert "rho" in clinic.refused(by("sex", epsilon="2.9", more="delta = 1e-6"))


def test_a_budget_is_shown_as_it_was_declared(open_clinic: OpenClinic) -> None:
    """The words of the policy stand beside its rho, and beside the epsilon that a statement may still ask for. A
    statement with this epsilon is accepted. A dropped policy keeps its line while its unit has spent something."""
    clinic = open_clinic()
    clinic.fill()
    clinic.dp(
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 3, delta = 1e-6), DOMAIN sex IN (0, 1))"
    )
    clinic.dp(by("sex", epsilon="1", more="delta = 1e-6"))
    declared, left, state = clinic.rows("SELECT declared, epsilon_left, policy FROM dp_budget()")[0]
    assert (declared, state) == ("epsilon = 3, delta = 1e-06", "in force") and 2 < left < 3
    assert "budget" in clinic.refused(by("sex", epsilon=f"{left * 1.0001:.9f}", more="delta = 1e-6"))
    clinic.dp(by("sex", epsilon=f"{left - 1e-8:.9f}", more="delta = 1e-6"))
    clinic.dp("DROP PRIVACY POLICY ON visits")
    assert clinic.rows("SELECT table_name, declared, policy FROM dp_budget()") == [("visits", declared, "dropped")]
    clinic.dp("CREATE PRIVACY POLICY ON wards (PRIVACY UNIT ROW, BUDGET (rho = 1), DOMAIN name IN ('w0'))")
    clinic.dp("DROP PRIVACY POLICY ON wards")
    assert clinic.value("SELECT count(*) FROM dp_budget()") == 1


def test_a_principal_sees_their_own_share(clinic: Clinic) -> None:
    """With a fifth of epsilon = 10, and 1 spent by somebody else, a share is 2, nothing spent and 2 left. A share shows
    no more left than the whole budget has."""
    database = database_of(clinic.con)
    assert database is not None
    bob = Caller("bob", owner=False, share=Fraction(1, 5))
    clinic.dp(by("sex", epsilon="1"))
    listed = "SELECT budget, spent, remaining, share FROM ({})"
    assert clinic.rows(listed.format(database.listings.budget(bob))) == [(2.0, 0.0, 2.0, 0.2)]
    database.run(by("ward", epsilon="1.5"), bob)
    assert clinic.rows(listed.format(database.listings.budget(bob))) == [(2.0, 1.5, 0.5, 0.2)]
    clinic.dp(by("age", epsilon="7.25"))
    assert clinic.rows(listed.format(database.listings.budget(bob))) == [(2.0, 1.5, 0.25, 0.2)]


def test_the_price_of_an_answer_is_within_its_reach(clinic: Clinic) -> None:
    """dp_epsilon() and dp_rho() in the SELECT give the price of an answer, which target_stderr leaves open before."""
    rows = clinic.dp(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 40) sex, count(*) AS n, dp_epsilon() AS cost, "
        "dp_rho() FROM visits GROUP BY sex"
    )
    epsilon, rho = clinic.rows("SELECT epsilon, rho FROM dp_ledger() ORDER BY id DESC LIMIT 1")[0]
    assert [row[2:] for row in rows] == [(epsilon, pytest.approx(rho, rel=1e-12))] * len(rows)
    assert "no arguments" in clinic.refused(by("sex", tail="HAVING dp_rho(1) > 0"))


def test_a_rho_budget(open_clinic: OpenClinic) -> None:
    """A budget in rho is spent by OPTIONS (rho = ..). A pure budget refuses rho before anything is charged."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect("CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (rho = 0.5), DOMAIN sex IN (0, 1))")
    clinic.dp(by("sex").replace("epsilon = 1", "rho = 0.25"))
    assert clinic.rows("SELECT measure, budget, spent, remaining FROM dp_budget()") == [("rho", 0.5, 0.25, 0.25)]
    assert "at most 0.25" in clinic.refused(by("sex").replace("epsilon = 1", "rho = 0.26"))


def test_a_pure_budget_refuses_delta_and_rho(clinic: Clinic) -> None:
    """A pure budget has no room for a Gaussian release, whatever its size."""
    assert "pure" in clinic.refused(by("sex", epsilon="1", more="delta = 1e-9"))
    assert "pure" in clinic.refused(by("sex").replace("epsilon = 1", "rho = 0.001"))


def test_an_overdraft_is_refused_before_any_scan(clinic: Clinic, scans: list[str]) -> None:
    """A statement above the rest of the budget costs nothing and reads nothing. The message gives the rest."""
    clinic.dp(by("sex", epsilon="8"))
    assert scans == ["scan"]
    message = clinic.refused(by("ward", epsilon="3"))
    assert "asks for epsilon = 3" in message and "has 2 of 10 left" in message
    assert scans == ["scan"]
    clinic.dp(by("ward", epsilon="2"))
    assert scans == ["scan", "scan"]


def test_cached_answers_and_refusals_never_scan(clinic: Clinic, scans: list[str]) -> None:
    """Only a new release that was paid for reads private rows: not the cache, dp_explain, listings or refusals."""
    clinic.dp(by("sex"))
    clinic.dp(by("sex"))
    clinic.rows(f"FROM dp_explain($${by('ward')}$$)")
    for listing in ("dp_budget", "dp_ledger", "dp_policies", "dp_releases"):
        clinic.rows(f"FROM {listing}()")
    clinic.refused(by("nowhere"))
    assert scans == ["scan"]


def test_eight_threads_against_a_budget_for_ten(clinic: Clinic, scans: list[str]) -> None:
    """Of forty different questions at once against a budget for ten exactly ten are answered, charged and scanned."""

    def ask(number: int) -> bool:
        with clinic.con.cursor() as cursor:
            try:
                cursor.execute("FROM dp(?)", [by("sex", more=f"refresh = 't{number}'")]).fetchall()
            except duckdb.Error as error:
                assert "has 0 of 10 left" in str(error) or "left" in str(error)
                return False
            return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(40))) == 10
    assert clinic.charges() == len(scans) == 10
    assert clinic.rows("SELECT spent, remaining FROM dp_budget()") == [(10.0, 0.0)]


def test_dropping_and_making_a_policy_again_resets_nothing(clinic: Clinic) -> None:
    """The ledger belongs to the privacy unit: spent budget survives DROP, CREATE, REPLACE and NEW EPOCH."""
    clinic.dp(by("sex", epsilon="6"))
    policy = "(PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 7), DOMAIN sex IN (0, 1))"
    clinic.dp("DROP PRIVACY POLICY ON visits")
    assert "has no privacy policy" in clinic.refused(by("sex"))
    clinic.dp(f"CREATE PRIVACY POLICY ON visits {policy}")
    assert clinic.rows("SELECT budget, spent FROM dp_budget()") == [(7.0, 6.0)]
    clinic.dp(f"CREATE OR REPLACE PRIVACY POLICY ON visits {policy.replace('0, 1', '1, 0')}")
    clinic.dp("ALTER PRIVACY POLICY ON visits NEW EPOCH")
    assert clinic.rows("SELECT budget, spent FROM dp_budget()") == [(7.0, 6.0)]
    clinic.refused(by("sex", epsilon="1.5"))
    clinic.dp(by("sex", epsilon="1"))


def test_a_dropped_table_keeps_what_its_unit_spent(clinic: Clinic) -> None:
    """DROP TABLE and CREATE TABLE under the same name do not reset the budget either."""
    clinic.dp(by("sex", epsilon="6"))
    clinic.rows("ALTER TABLE visits RENAME TO old_visits")
    assert "no table" in clinic.refused(by("sex"))
    clinic.rows("CREATE TABLE visits AS FROM old_visits")
    assert clinic.rows("SELECT budget, spent FROM dp_budget()") == [(10.0, 6.0)]


def test_widening_is_recorded(clinic: Clinic) -> None:
    """A wider budget is an entry of the ledger. One below the spent sum is refused."""
    clinic.dp(by("sex", epsilon="6"))
    clinic.dp("ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 20)")
    assert clinic.rows("SELECT budget, spent FROM dp_budget()") == [(20.0, 6.0)]
    assert clinic.rows("SELECT mechanism, epsilon FROM dp_ledger() ORDER BY id") == [
        ("budget declared", 0.0),
        ("discrete Laplace, I", 6.0),
        ("budget widened", 0.0),
    ]
    message = clinic.refused("ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 5)")
    assert "6 is already spent" in message


def test_the_unit_cannot_change_once_spent(clinic: Clinic) -> None:
    """Another unit is refused once the old one has spent: it would have a fresh budget for the same people."""
    clinic.dp("ALTER PRIVACY POLICY ON visits SET PRIVACY UNIT ROW")
    clinic.dp("ALTER PRIVACY POLICY ON visits SET PRIVACY UNIT patient MAX ROWS 4")
    clinic.dp(by("sex"))
    for change in (
        "ALTER PRIVACY POLICY ON visits SET PRIVACY UNIT ROW",
        "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 10), DOMAIN sex IN (0, 1))",
    ):
        assert "cannot change once something is spent" in clinic.refused(change)
    clinic.dp("DROP PRIVACY POLICY ON visits")
    assert "cannot change once something is spent" in clinic.refused(
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 10), DOMAIN sex IN (0, 1))"
    )


def test_tables_that_share_a_unit_share_one_budget(clinic: Clinic) -> None:
    """REFERENCES ties another table's unit to the same people: one budget, whichever table is asked."""
    clinic.rows("CREATE TABLE patients AS SELECT DISTINCT patient AS id, sex FROM visits")
    clinic.rows("CREATE TABLE bills AS SELECT patient AS who, sex FROM visits")
    clinic.dp("DROP PRIVACY POLICY ON visits")
    unit = "REFERENCES patients.id MAX ROWS 4"
    clinic.dp(
        f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient {unit}, BUDGET (epsilon = 4), DOMAIN sex IN (0, 1))"
    )
    clinic.dp(f"CREATE PRIVACY POLICY ON bills (PRIVACY UNIT who {unit}, DOMAIN sex IN (0, 1))")
    clinic.dp(by("sex", epsilon="3"))
    assert clinic.rows("SELECT table_name, spent, remaining FROM dp_budget()") == [
        ("bills", 3.0, 1.0),
        ("visits", 3.0, 1.0),
    ]
    assert "has 1 of 4 left" in clinic.refused(by("sex", epsilon="2").replace("FROM visits", "FROM bills"))
    clinic.dp(by("sex", epsilon="1").replace("FROM visits", "FROM bills"))
    assert clinic.rows("SELECT remaining FROM dp_budget()") == [(0.0,), (0.0,)]


def test_a_shared_budget_that_changes_its_kind(clinic: Clinic) -> None:
    """The last declared budget of a unit holds for all its tables, whichever table it was declared for."""
    clinic.rows("CREATE TABLE bills AS SELECT patient AS who, sex FROM visits")
    clinic.dp(
        "CREATE PRIVACY POLICY ON bills (PRIVACY UNIT who REFERENCES visits.patient MAX ROWS 4, "
        "BUDGET (epsilon = 3, delta = 1e-6), DOMAIN sex IN (0, 1))"
    )
    clinic.dp(by("sex", epsilon="1", more="delta = 1e-7"))
    assert {row[0] for row in clinic.rows("SELECT measure FROM dp_budget()")} == {"rho"}


def test_dp_check_is_exact(clinic: Clinic) -> None:
    """The owner sees rows for each unit and values outside the domains, exactly, and nothing is charged."""
    clinic.rows("INSERT INTO visits VALUES (7, 20, 1, 'w1'), (1, 20, NULL, 'w1')")
    found = dict(clinic.rows("SELECT finding, value FROM dp_check('visits')"))
    assert found["rows"] == 1002
    assert found["privacy units"] == 250
    assert found["most rows of a unit"] == 5
    assert found["rows dropped by MAX ROWS 4"] == 1
    assert found["rows whose unit is NULL"] == 1
    assert found["rows outside the domain of sex"] == 1
    assert clinic.charges() == 0


def test_the_check_says_what_answers_leave_out(open_clinic: OpenClinic) -> None:
    """dp_check lists NULLs apart from other values, rows that some domain leaves out, and values beyond clamps. For
    several MAX ROWS it shows the dropped rows and the noise. Percentages are of all rows."""
    clinic = open_clinic()
    clinic.rows(
        "CREATE TABLE trips AS SELECT range // 3 AS who, range % 7 AS a, range * 1.5 AS fare, "
        "CASE WHEN range % 10 > 0 THEN 'w' || (range % 4) END AS ward FROM range(1000)"
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON trips (PRIVACY UNIT who MAX ROWS 2, BUDGET (epsilon = 1), "
        "DOMAIN a RANGE 0 TO 5 STEP 1, DOMAIN ward IN ('w0', 'w1'), CLAMP fare BETWEEN 0 AND 1000)"
    )
    found = {row[0]: row[1:] for row in clinic.rows("SELECT finding, value, percent, advice FROM dp_check('trips')")}
    shares = {
        "rows dropped by MAX ROWS 1": (666, 66.6),
        "rows dropped by MAX ROWS 2": (333, 33.3),
        "rows dropped by MAX ROWS 3": (0, 0),
        "rows outside the domain of a": (285, 28.5),
        "rows outside the domain of ward": (450, 45),
        "rows with NULL in ward": (100, 10),
        "rows outside some domain": (679, 67.9),
        "values of fare above its clamp": (333, 33.3),
        "values of fare below its clamp": (0, 0),
    }
    assert {name: found[name][:2] for name in shares} == {name: pytest.approx(pair) for name, pair in shares.items()}
    assert found["average of fare without its clamp"][0] == pytest.approx(749.25)
    assert found["average of fare with its clamp"][0] == pytest.approx(
        (sum(1.5 * i for i in range(667)) + 333_000) / 1000
    )
    assert "11 % of it is lost" in found["average of fare with its clamp"][2]
    assert "with MAX ROWS 3 a count at epsilon = 1 without a delta" in found["rows dropped by MAX ROWS 3"][2]
    assert "standard error of 4.24 (Laplace noise)" in found["rows dropped by MAX ROWS 3"][2]
    assert (
        "WITH NULL" in found["rows with NULL in ward"][2]
        and "WITH OTHER" in found["rows outside the domain of ward"][2]
    )
