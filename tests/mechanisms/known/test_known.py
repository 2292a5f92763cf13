"""Known answers: least squares over the measurements of all releases about the same rows, through SQL, for free."""

from __future__ import annotations

import re

import duckdb
import numpy as np
import pytest

import dpduck
from dpduck.mechanisms.known import chosen_tables
from dpduck.values.arrays import FloatArray
from tests.mechanisms.known.known import SHAPES, cells, dense_rows, known, make_visits, measured, release
from tests.support.clinics import Clinic, one_line

QUESTIONS: dict[str, tuple[str, list[int], dict[str, tuple[int, ...]]]] = {
    "SELECT sex, count(*) AS n FROM visits GROUP BY sex ORDER BY sex NULLS LAST": ("sex", [0, 1, 3, 2], {}),
    "SELECT ward, count(*) AS n FROM visits WHERE age >= 20 GROUP BY ward ORDER BY ward NULLS LAST": (
        "ward", [0, 3, 1, 2], {"age": (2, 3)},
    ),
    "SELECT age, count(*) AS n FROM visits WHERE sex = 'F' GROUP BY age ORDER BY age NULLS LAST": (
        "age", [0, 1, 2, 3, 4], {"sex": (0,)},
    ),
}  # fmt: skip
"""Questions with their column, its codes in the order of the answer, and the codes that they are about."""


def weights_of(column: str, codes: list[int], about: dict[str, tuple[int, ...]]) -> FloatArray:
    """A question's rows over all cells."""
    inside = [all(cell[name] in held for name, held in about.items()) for cell in cells()]
    return np.array(
        [[float(cell[column] == code and held) for cell, held in zip(cells(), inside, strict=True)] for code in codes]
    )


@pytest.mark.slow
@pytest.mark.parametrize("releases", [2, 5, 20])
def test_answers_are_those_of_dense_least_squares(clinic: Clinic, releases: int) -> None:
    """Releases of random shapes, noises and prices: estimates and errors to 1e-9, and which cells are determined."""
    make_visits(clinic)
    draw, determined = np.random.default_rng(releases), 0
    for number in range(releases):
        shape = SHAPES[0] if number == 1 else SHAPES[int(draw.integers(len(SHAPES)))]
        price = f"{'epsilon' if draw.random() < 0.5 else 'rho'} = {draw.uniform(0.1, 2):.3f}"
        release(clinic, shape, f"{price}, refresh = 'r{number}'")
    rows, variances, noisy = map(np.concatenate, zip(*map(dense_rows, measured(clinic)), strict=True))
    gram = (rows.T / variances) @ rows
    inverse = np.linalg.pinv(gram, rcond=1e-11)
    for statement, question in QUESTIONS.items():
        weights = weights_of(*question)
        assert np.abs(weights - weights @ inverse @ gram).max() < 1e-6
        found = np.array([row[1:3] for row in known(clinic, statement)], np.float64)
        errors = np.sqrt(np.einsum("ij,jk,ik->i", weights, inverse, weights))
        np.testing.assert_allclose(found[:, 1], errors, rtol=1e-9)
        np.testing.assert_allclose(found[:, 0], weights @ inverse @ (rows.T / variances) @ noisy, atol=1e-6)
        determined += len(found)
    assert determined == 13


@pytest.mark.slow
@pytest.mark.parametrize("together", ["all", "a few"])
def test_later_releases_never_make_an_answer_worse(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch, together: str
) -> None:
    """After each of twelve random releases no error of any question is larger, also where too many tables are there
    to be solved together."""
    if together == "a few":
        monkeypatch.setattr(chosen_tables, "EASY", 4)
        monkeypatch.setattr(chosen_tables, "FEW", 2)
        monkeypatch.setattr(chosen_tables, "LARGEST_BLOCK", 16)
    make_visits(clinic)
    draw, before = np.random.default_rng(12), dict.fromkeys(QUESTIONS, float("inf"))
    for number in range(12):
        shape = SHAPES[0] if number == 0 else SHAPES[int(draw.integers(len(SHAPES)))]
        price = f"{'epsilon' if draw.random() < 0.5 else 'rho'} = {draw.uniform(0.1, 2):.3f}"
        release(clinic, shape, f"{price}, refresh = 'r{number}'")
        for statement, largest in before.items():
            found = sum(float(str(row[2])) ** 2 for row in known(clinic, statement))
            assert found <= largest * (1 + 1e-9), (number, statement)
            before[statement] = found


def test_a_dear_release_and_a_cheap_one(clinic: Clinic) -> None:
    """Epsilon 60 is as good as exact. A cheap release beside it loses no digit, and spoils none."""
    make_visits(clinic)
    release(clinic, "sex, count(*) AS n FROM visits GROUP BY sex", "epsilon = 60")
    release(clinic, "sex, ward, count(*) AS n FROM visits GROUP BY sex, ward", "epsilon = 1")
    release(clinic, "ward, count(*) AS n FROM visits GROUP BY ward", "epsilon = 90")
    for column in ("sex", "ward"):
        exact = clinic.rows(f"SELECT count(*) FROM visits GROUP BY {column} ORDER BY 1")
        found = known(clinic, f"SELECT {column}, count(*) AS n FROM visits GROUP BY {column} ORDER BY n")
        assert [row[1] for row in found if abs(float(str(row[1]))) > 1e-6] == pytest.approx([n for (n,) in exact])
        assert all(0 < float(str(row[2])) < 1e-12 for row in found)
    inside = known(clinic, "SELECT sex, ward, count(*) AS n FROM visits GROUP BY sex, ward")
    released = clinic.rows("SELECT any_value(stderr_1) FROM private.release_3")[0][0]
    assert [row[3] for row in inside] == pytest.approx([released * 3 / 4] * 16, rel=1e-9)


def test_a_known_answer_costs_nothing_and_names_its_columns(clinic: Clinic) -> None:
    """After one cube a dozen tiles of a dashboard are free, whatever SQL stands around. Several answers have names."""
    make_visits(clinic, "patient MAX ROWS 4")
    release(clinic, SHAPES[0], "epsilon = 1")
    spent = clinic.charges()
    tiles = [
        f"SELECT {key}, count(*) AS n FROM visits WHERE {where} GROUP BY {key} ORDER BY n DESC LIMIT 3"
        for key in ("sex", "age", "ward", "sex, ward")
        for where in ("true", "age >= 20 AND sex = 'F'", "ward IN ('north', 'south')")
    ]
    for tile in tiles:
        assert len(clinic.con.execute("FROM dp_known(?)", [tile]).fetchall()) >= 1
    assert clinic.charges() == spent
    found = clinic.con.execute(
        "FROM dp_known($$ SELECT sex, count(*) AS n, count(*) FILTER (WHERE age < 20) AS young, dp_stderr(n) AS error "
        "FROM visits GROUP BY ROLLUP (sex) HAVING n > 0 $$)"
    )
    assert [column[0] for column in found.description] == [
        "sex", "n", "young", "error", "n_stderr", "n_interval_low", "n_interval_high", "young_stderr",
        "young_interval_low", "young_interval_high", "known_from",
    ]  # fmt: skip
    for row in found.fetchall():
        assert row[3] == row[4] and row[5] < row[1] < row[6] and row[-1] == "release_2"
    around = "SELECT max(n) AS most FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward) WHERE stderr < 100"
    assert clinic.con.execute("FROM dp_known(?)", [around]).fetchall()[0][0] > 100
    wide = clinic.value("SELECT interval_high FROM dp_known('SELECT count(*) FROM visits', confidence := 0.999)")
    assert wide > clinic.value("SELECT interval_high FROM dp_known('SELECT count(*) FROM visits')")


def test_sums_and_averages(clinic: Clinic) -> None:
    """Sums of clamped columns from what measured them, averages with Fieller's interval from their two tables."""
    make_visits(clinic)
    for number in range(3):
        release(clinic, "sex, ward, avg(charge) AS a, count(*) AS n FROM visits GROUP BY sex, ward",
                f"epsilon = 50, refresh = '{number}'")  # fmt: skip
    release(clinic, "ward, sum(charge) AS s FROM visits GROUP BY ward", "rho = 90")
    statement = (
        "SELECT ward, sum(charge) AS s, avg(charge) AS a, count(charge) AS c FROM visits GROUP BY ward ORDER BY 1"
    )
    exact = clinic.rows(
        "SELECT CASE WHEN ward = 'east' THEN 'other' ELSE ward END AS w, sum(charge), avg(charge), count(charge) "
        "FROM visits GROUP BY w ORDER BY 1"
    )
    for row, true in zip(known(clinic, statement), exact, strict=True):
        ward, answers, errors = row[0], row[1:4], row[4:]
        assert ward == true[0]
        for number, answer in enumerate(answers):
            stderr, low, high = errors[3 * number : 3 * number + 3]
            assert low < answer < high  # type: ignore[operator]
            assert abs(answer - float(true[number + 1])) < 8 * stderr  # type: ignore[operator]


def test_what_is_not_known_is_refused_with_a_price(clinic: Clinic) -> None:
    """One line, and a statement that would determine the answer, at the price of a target where one is given."""
    make_visits(clinic)
    release(clinic, SHAPES[3], "epsilon = 1")
    told = []
    for extra in ("", ", target_stderr := 5"):
        with pytest.raises(duckdb.Error) as caught:
            clinic.con.execute(f"FROM dp_known('SELECT sex, count(*) AS n FROM visits GROUP BY sex'{extra})")
        told.append(one_line(caught.value))
    said = "no release that you may read determines count(*); accepted: FROM dp($$ SELECT WITH DIFFERENTIAL_PRIVACY "
    said += "OPTIONS "
    assert told[0].startswith(f"{said}(rho = 0.5) sex, count(*) AS n FROM visits GROUP BY sex $$)")
    assert told[1].startswith(f"{said}(rho = 0.0200001) sex") and told[1].endswith("its standard error would be 5")
    refused = {
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits": "takes a plain SELECT",
        "SELECT sex FROM visits": "no aggregate over private rows",
        "SELECT count(*) FROM range(3)": "no table with a privacy policy",
        "SELECT median(charge) FROM visits": "no release",
        "SELECT charge, count(*) FROM visits GROUP BY charge": "has no public domain",
        "SELECT ward, count(*) FROM visits WHERE charge > 5 GROUP BY ward": "no release",
    }
    for statement, why in refused.items():
        with pytest.raises(duckdb.Error) as caught:
            clinic.con.execute("FROM dp_known(?)", [statement])
        assert why in one_line(caught.value) and "THRESHOLD" not in one_line(caught.value)


PRICES = {
    "epsilon = 9": "epsilon = 1",
    "rho = 9": "rho = 0.5",
    "rho = 0.5": "rho = 0.05",
    "epsilon = 9, delta = 1e-6": "epsilon = 1, delta = 1e-06",
}


@pytest.mark.parametrize("budget", PRICES)
def test_what_is_not_known_is_priced_as_its_budget_adds_up(clinic: Clinic, budget: str) -> None:
    """In a budget of rho a pure epsilon costs sixteen times as much as the same epsilon with a delta."""
    make_visits(clinic)
    policy = f"PRIVACY UNIT patient MAX ROWS 4, BUDGET ({budget}), DOMAIN sex IN ('F', 'M')"
    clinic.dp(f"CREATE OR REPLACE PRIVACY POLICY ON visits ({policy})")
    paid = []
    for asked in (
        "FROM dp_known('SELECT sex, count(*) AS n FROM visits GROUP BY sex')",
        "FROM dp('CREATE PRIVATE TABLE made AS SAMPLE 9 FROM KNOWN visits (sex)')",
    ):
        with pytest.raises(duckdb.Error) as caught:
            clinic.con.execute(asked)
        paid += re.findall(r"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS \(.*? GROUP BY \w+", one_line(caught.value))
    assert [f"OPTIONS ({PRICES[budget]}) " in one for one in paid] == [True, True]
    assert [len(clinic.dp(one)) for one in paid] == [2, 2]


@pytest.mark.parametrize("epsilon", ["1", "2.5"])
def test_intervals_of_known_sums_are_those_of_the_release(epsilon: str) -> None:
    """A sum in steps of 100 jumps by 100: its known interval is no narrower than the release's own (85 % held)."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE paid AS SELECT 100 * (range % 2) AS fee FROM range(1000)")
        policy = "PRIVACY UNIT ROW, BUDGET (epsilon = 10), CLAMP fee BETWEEN 0 AND 100 STEP 100"
        connection.execute(f"FROM dp('CREATE PRIVACY POLICY ON paid ({policy})')").fetchall()
        asked = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {epsilon}) sum(fee) AS s, dp_interval_low(s), "
        own = connection.execute(f"FROM dp('{asked} dp_interval_high(s) FROM paid')").fetchall()[0]
        known = "SELECT s, interval_low, interval_high FROM dp_known('SELECT sum(fee) AS s FROM paid')"
        again = connection.execute(known).fetchall()[0]
    assert again[0] == own[0]
    assert again[1] <= own[1] + 1e-6 and again[2] >= own[2] - 1e-6
