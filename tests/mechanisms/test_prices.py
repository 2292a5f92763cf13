"""A statement's price is shown before it is asked, and in a refusal, as a part of a budget."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from math import tanh

import pytest

from dpduck.values.accounting import rho_of_laplace
from tests.support.clinics import Clinic, by

OpenClinic = Callable[..., Clinic]

APPROXIMATE = (
    "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 3, delta = 1e-6){}, "
    "DOMAIN sex IN (0, 1), DOMAIN ward IN ('w0', 'w1'))"
)


def explained(clinic: Clinic, statement: str) -> tuple[float, str]:
    """Returns the chosen row's price, and the words about it."""
    rows = clinic.con.execute("SELECT rho, price FROM dp_explain(?) WHERE chosen", [statement]).fetchall()
    assert len(rows) == 1
    return rows[0]


def test_a_price_is_explained_as_a_part_of_a_budget(open_clinic: OpenClinic) -> None:
    """The chosen row of dp_explain has the price that the ledger is charged, and names a far cheaper form."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(APPROXIMATE.format(""))
    rho, words = explained(clinic, by("sex", epsilon="0.5"))
    assert rho == pytest.approx(float(rho_of_laplace(4, 4, Fraction(8))), rel=1e-12) and rho < 0.125
    assert words.startswith("59 % of your budget (rho = 0.1076); with OPTIONS (epsilon = 0.5, delta = 1e-06) it would")
    assert words.endswith("it would be 3.6 %, with about 3.1 times the error")
    clinic.dp(by("sex", epsilon="0.5"))
    assert clinic.value("SELECT rho FROM dp_ledger() ORDER BY id DESC LIMIT 1") == pytest.approx(rho, rel=1e-12)
    rho, words = explained(clinic, by("sex", epsilon="1", more="delta = 1e-6"))
    assert words == "14 % of your budget (rho = 0.02436)" and round(rho, 5) == 0.02436
    columns = [row[0] for row in clinic.rows(f"DESCRIBE FROM dp_explain($${by('sex', epsilon='0.5')}$$)")]
    assert columns[9:11] == ["note", "price"]
    others = clinic.con.execute("SELECT max(rho), count(price) FROM dp_explain(?)", [by("sex", epsilon="0.5")])
    assert others.fetchall() == [(pytest.approx(0.5 * tanh(0.25), rel=1e-12), 1)]


def test_disjoint_tables_are_charged_once_each(open_clinic: OpenClinic) -> None:
    """Two tables at half of epsilon each cost half of one table's price at all of epsilon, in a budget of rho."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(APPROXIMATE.format(""))
    both = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5, strategy = 'Q', budgets = 'uniform') sex, ward, "
        "count(*) AS n FROM visits GROUP BY GROUPING SETS ((sex), (ward))"
    )
    clinic.dp(both)
    charged = clinic.value("SELECT rho FROM dp_ledger() ORDER BY id DESC LIMIT 1")
    assert charged == pytest.approx(2 * float(rho_of_laplace(4, 4, Fraction(16))), rel=1e-9)
    clinic.dp("ALTER PRIVACY POLICY ON visits SET MIN EPSILON 0.5")
    clinic.dp(both.replace("epsilon = 0.5", "epsilon = 0.5, refresh = 'again'"))
    assert clinic.value("SELECT rho FROM dp_ledger() ORDER BY id DESC LIMIT 1") == 0.125, "MIN EPSILON in rho"


def test_what_is_left_is_refused_in_the_unit_of_the_question(open_clinic: OpenClinic) -> None:
    """Each form of a price that is named is accepted as written. The form of the question comes first."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(APPROXIMATE.format(""))
    pure = clinic.refused(by("sex", epsilon="2"))
    assert "the statement, epsilon = 2 without a delta, asks for rho = 1." in pure
    left = re.search(
        r"rho of at most 0\.185069: epsilon = ([0-9.]+) without a delta \(some statements: more\) or", pure
    )
    assert left is not None
    assert ": it takes 640 %, and 100 % is left; accepted: rho of at most" in pure
    with_delta = clinic.refused(by("sex", epsilon="3.1", more="delta = 1e-6"))
    assert "the statement, as epsilon = 3.1 with delta = 1e-06, asks for" in with_delta
    assert "rho of at most 0.185069: epsilon = 2.99999 with delta = 1e-06 or epsilon = " in with_delta
    clinic.dp(by("sex", epsilon=left[1]))
    assert "accepted: " in clinic.refused(by("sex", epsilon="3"))


@pytest.mark.parametrize(
    ("options", "accepted"),
    [
        ("epsilon = 0.5, delta = 1e-6", True),
        ("epsilon = 0.51, delta = 1e-6", False),
        ("epsilon = 0.5, delta = 1e-5", False),
        ("rho = 0.0063", True),
        ("rho = 0.0068", False),
        ("target_stderr = 60", True),
        ("target_stderr = 20", False),
        ("epsilon = 0.5", True),
        ("epsilon = 0.51", False),
    ],
)
def test_max_epsilon_is_one_limit(open_clinic: OpenClinic, options: str, accepted: bool) -> None:
    """A price in epsilon, in rho and of a target_stderr is within the same limit: (0.5, 1e-6), rho = 0.0066."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(APPROXIMATE.format(", MAX EPSILON 0.5"))
    statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) sex, count(*) AS n FROM visits GROUP BY sex"
    if accepted:
        assert len(clinic.dp(statement)) == 2
        return
    refused = clinic.refused(statement)
    assert "one statement may cost rho" in refused or "epsilon of at most 0.5 with delta = 1e-06, or rho of" in refused


def test_a_price_names_its_part_of_every_limit(open_clinic: OpenClinic) -> None:
    """Six months take a quarter of each month's budget and all of LIFETIME. Keys may take all of their delta."""
    clinic = open_clinic()
    clinic.con.execute(
        "CREATE TABLE stays AS SELECT i % 50 AS patient, i % 2 AS sex, 'k' || i % 3 AS kind, "
        "DATE '2024-01-01' + (i % 180)::INTEGER AS day FROM range(600) AS r(i)"
    )
    clinic.con.execute("CREATE TABLE kinds AS SELECT patient, kind FROM stays")
    clinic.dp(
        "CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient PER MONTH OF day MAX ROWS 2, "
        "BUDGET (epsilon = 4) PER MONTH, LIFETIME (epsilon = 6), DOMAIN sex IN (0, 1))"
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON kinds (PRIVACY UNIT patient MAX ROWS 2, "
        "BUDGET (epsilon = 4, delta = 1e-6, delta_keys = 5e-7))"
    )
    months = "day >= '2024-01-01' AND day < '2024-0{}-01'"
    count = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM stays WHERE {} GROUP BY sex"
    words = [explained(clinic, count.format(months.format(end)))[1] for end in (7, 2)]
    assert words[0] == "25 % of your budget of each month and 100 % of LIFETIME (epsilon = 1)"
    assert words[1] == "25 % of your budget of each month and 17 % of LIFETIME (epsilon = 1)"
    keys = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1, delta = 5e-7, group_selection_strategy = "
        "LAPLACE_THRESHOLD) kind, count(*) AS n FROM kinds GROUP BY kind"
    )
    assert " of your budget and 100 % of its delta for keys (rho = " in explained(clinic, keys)[1]


def test_the_ledger_lists_prices_as_parts_of_a_budget(open_clinic: OpenClinic) -> None:
    """An entry has its part of the budget in force, rounded up. A declaration has no price. The rows stay exact."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(APPROXIMATE.format(""))
    clinic.dp(by("sex", epsilon="1", more="delta = 1e-6"))
    clinic.dp(by("sex", epsilon="0.1"))
    listed = clinic.rows("SELECT price, epsilon FROM dp_ledger() ORDER BY id")
    assert listed == [
        (None, 0.0),
        ("14 % of your budget (rho = 0.02436)", None),
        ("2.7 % of your budget (rho = 0.004848)", 0.1),
    ]
    clinic.dp("ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 6, delta = 1e-6)")
    assert clinic.rows("SELECT price FROM dp_ledger() WHERE id = 2") == [("3.9 % of your budget (rho = 0.02436)",)]


def test_a_batch_has_prices_in_words(open_clinic: OpenClinic) -> None:
    """dp_plan has the words of dp_explain for each statement, and for all together. What is free has none."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(APPROXIMATE.format(""))
    one, two = by("sex", epsilon="1", more="delta = 1e-6"), by("ward", epsilon="1", more="delta = 1e-6")
    planned = clinic.con.execute("SELECT number, price FROM dp_plan(?)", [f"{one}; {two}; {one}"]).fetchall()
    assert [price for _, price in planned] == [
        "14 % of your budget (rho = 0.02436)", "14 % of your budget (rho = 0.02436)", None,
        "27 % of your budget (rho = 0.04872)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("budget", "options", "said"),
    [
        ("epsilon = 3", "epsilon = 0.5", "epsilon = 0.5 (pure), 17 % of the budget then; "),
        (
            "epsilon = 3, delta = 1e-6",
            "epsilon = 0.5, delta = 1e-7",
            "epsilon = 0.5 with delta = 1e-07 (rho = 0.00542728, zCDP), 3 % of the budget then; ",
        ),
        (
            "epsilon = 3, delta = 1e-6",
            "epsilon = 0.5",
            "epsilon = 0.5 (pure), 59 % of the budget then (rho = 0.1076); ",
        ),
        ("rho = 0.5", "rho = 0.01", "rho = 0.01 (zCDP), 2 % of the budget then; "),
    ],
)
def test_a_view_says_its_part_of_the_budget(open_clinic: OpenClinic, budget: str, options: str, said: str) -> None:
    """The comment has the price as it was typed, then its part of the budget of that time, with rho behind it."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(APPROXIMATE.format("").replace("epsilon = 3, delta = 1e-6", budget))
    clinic.dp(f"CREATE PRIVATE VIEW v OPTIONS ({options}) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex")
    comment = "SELECT comment FROM duckdb_tables() WHERE table_name = 'v'"
    made = clinic.value(comment)
    assert made.startswith(f"differentially private, {said}"), made
    if "rho" not in budget:
        clinic.dp(f"ALTER PRIVACY POLICY ON visits SET BUDGET ({budget.replace('= 3', '= 6')})")
    assert clinic.value(comment) == made, "of the budget then"


@pytest.mark.parametrize("answers", ["count(*) AS n", "sum(age) AS years, count(*) AS n", "avg(age) AS mean"])
def test_a_cheaper_form_has_the_error_that_is_said(open_clinic: OpenClinic, answers: str) -> None:
    """The factor is that of dp_errors for both forms, and the part is that of the cheaper form's own price."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(APPROXIMATE.format(", CLAMP age BETWEEN 0 AND 100, EXPECT ROWS 500"))
    dear = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) sex, {answers} FROM visits GROUP BY sex"
    said = re.search(
        r"with (OPTIONS \(.*?\)) it would be ([\d.]+ %), with about ([\d.]+) times", explained(clinic, dear)[1]
    )
    assert said is not None
    cheap = dear.replace("OPTIONS (epsilon = 0.5)", said[1])
    assert explained(clinic, cheap)[1].startswith(f"{said[2]} of your budget ")
    of_both = [
        [row[0] for row in clinic.con.execute("SELECT stderr FROM dp_errors(?)", [statement]).fetchall()]
        for statement in (dear, cheap)
    ]
    largest = max(after / before for before, after in zip(*of_both, strict=True))
    assert float(said[3]) == pytest.approx(largest, rel=0.06)


def test_norms_are_not_foretold(open_clinic: OpenClinic) -> None:
    """A cheaper form that would look for norms has errors that follow from them, so no factor is said."""
    clinic = open_clinic()
    clinic.con.execute("CREATE TABLE trips AS SELECT i % 90 AS person, i % 30 AS zone FROM range(900) AS r(i)")
    clinic.dp(
        "CREATE PRIVACY POLICY ON trips (PRIVACY UNIT person MAX ROWS 60, BUDGET (epsilon = 3, delta = 1e-6), "
        "DOMAIN zone RANGE 0 TO 30 STEP 1)"
    )
    words = explained(clinic, by("zone", epsilon="0.5").replace("FROM visits", "FROM trips"))[1]
    assert words.endswith("it would be 3.6 %, and dp_explain of that form shows its errors")
