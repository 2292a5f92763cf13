"""Datacubes through SQL: the design's figures, consistency, weights, prices from targets, sums of cells, ranges."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from math import prod
from time import monotonic
from typing import Any

import duckdb
import numpy as np
import pytest

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.database.macros import MACROS
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.choose import plan_workload
from tests.mechanisms.cubes.cubes import SMALL, ask, explained, protected_visits
from tests.support.clinics import Clinic


@pytest.fixture
def bits(open_clinic: Callable[..., Clinic]) -> Clinic:
    """A table of sixteen BOOLEAN columns b0 .. b15."""
    clinic = open_clinic()
    columns = ", ".join(f"(hash(range, {column}) % 3 = 0) AS b{column}" for column in range(16))
    clinic.con.execute(f"CREATE TABLE bits AS SELECT {columns} FROM range(2000)")
    domains = ", ".join(f"DOMAIN b{column} IN (FALSE, TRUE)" for column in range(16))
    clinic.dp(f"CREATE PRIVACY POLICY ON bits (PRIVACY UNIT ROW, BUDGET (epsilon = 1000), {domains})")
    return clinic


@pytest.fixture
def visits(open_clinic: Callable[..., Clinic]) -> Clinic:
    return protected_visits(open_clinic())


@pytest.mark.parametrize(
    ("options", "figure"),
    [
        ("strategy = 'Q', budgets = 'uniform', consistency = 'none'", "48"),
        ("strategy = 'Q+', consistency = 'none'", "46.168"),
        ("strategy = 'Q', budgets = 'uniform'", "32"),
        ("strategy = 'Q+'", "29.953"),
        ("strategy = 'auto'", "16"),
    ],
)
def test_the_worked_example_through_sql(bits: Clinic, options: str, figure: str) -> None:
    """The marginals on A and on AB of three binary attributes, through dp_explain."""
    found = explained(bits, ask(f"epsilon = {SMALL}, {options}", "count(*)", "GROUPING SETS ((b0), (b0, b1))"))
    assert f"{next(iter(found.values())):.5g}" == f"{float(figure):.5g}"


@pytest.mark.parametrize(("order", "figure"), [(1, 6352.02), (2, 2221317.27)])
def test_fourier_of_all_marginals_through_sql(bits: Clinic, order: int, figure: float) -> None:
    """All k-way marginals of sixteen binary attributes with F+, to six digits."""
    columns = ", ".join(f"b{column}" for column in range(16))
    options = f"epsilon = {SMALL}, strategy = 'F+', consistency = 'none'"
    found = explained(bits, ask(options, "count(*)", f"MARGINALS ({order}, {columns})"))
    assert found["F+"] == pytest.approx(figure, rel=1e-6)


@pytest.mark.parametrize("consistency", ["l2", "l1", "linf"])
def test_a_released_cube_satisfies_its_margins(visits: Clinic, consistency: str) -> None:
    """Every released cube adds up to 1e-6 of a count, for p = 1, 2 and infinity."""
    options = f"epsilon = 1, strategy = 'Q+', consistency = '{consistency}'"
    rows = visits.dp(ask(options, "sex, ward, count(*)", "CUBE (sex, ward)", "visits"))
    cells = {(sex, ward): answer for sex, ward, answer in rows}
    wards, sexes = [f"w{number}" for number in range(5)], [0, 1]
    assert len(cells) == 18
    for sex in sexes:
        assert abs(cells[sex, None] - sum(cells[sex, ward] for ward in wards)) < 1e-6
    for ward in wards:
        assert abs(cells[None, ward] - sum(cells[sex, ward] for sex in sexes)) < 1e-6
    assert abs(cells[None, None] - sum(cells[sex, None] for sex in sexes)) < 1e-6


@pytest.mark.parametrize("consistency", ["l1", "linf"])
def test_linear_programs_state_their_own_errors(visits: Clinic, consistency: str) -> None:
    """The shift by a linear program is in dp_stderr. Intervals are about least squares. No covariances are stored."""
    options = f"epsilon = 1, strategy = 'Q+', consistency = '{consistency}'"
    items = "sex, ward, count(*) AS n, dp_stderr(n), dp_interval_low(n), dp_interval_high(n)"
    seen = []
    for _ in range(5):  # of 400 tables, one is nearest by least squares too: the program moves it by nothing (1e-13)
        rows = visits.dp(ask(options, items, "CUBE (sex, ward)", "visits"))
        assert all(low <= answer <= high and error > 0 for _, _, answer, error, low, high in rows)
        seen.append(len({round(row[3], 9) for row in rows}))
    assert max(seen) > 4
    with pytest.raises(duckdb.Error, match="no covariances are kept"):
        visits.rows("FROM dp_stderr_of('release_2', '1')")


@pytest.mark.parametrize("consistency", ["l1", "linf", "none"])
def test_every_aggregate_goes_with_linear_programs(visits: Clinic, consistency: str) -> None:
    """Averages, deviations, quantiles and distinct values beside counts, with intervals about their answers."""
    visits.dp("ALTER PRIVACY POLICY ON visits SET CLAMP sex BETWEEN 0 AND 1")
    options = f"epsilon = 1, strategy = 'Q+', consistency = '{consistency}'"
    for one in ("avg(sex)", "stddev(sex)", "median(sex)", "count(DISTINCT sex)", "sum(sex)", "count(sex)"):
        items = f"ward, {one} AS a, dp_interval_low(a), dp_interval_high(a), dp_stderr(a), count(*)"
        rows = visits.dp(ask(options, items, "CUBE (ward)", "visits"))
        assert len(rows) == 6
        assert all(answer is None or low <= answer <= high for _, answer, low, high, _, _ in rows)


def test_weights_change_the_plan(bits: Clinic) -> None:
    """A grouping set with a large weight gets the smaller error. Weights stand in the order of the sets."""
    sets = "GROUPING SETS ((b0), (b1))"

    def errors(weights: str) -> list[float]:
        statement = ask(f"epsilon = 1, strategy = 'Q+', {weights}", "GROUPING(b0), dp_stderr(n), count(*) AS n", sets)
        return [row[1] for row in sorted({row[:2] for row in bits.dp(statement)})]

    first, second = errors("weights = (1, 1)")
    assert first == pytest.approx(second, rel=1e-6)
    first, second = errors("weights = (1000, 1)")
    assert first < second / 3
    first, second = errors("weights = (1, 1000)")
    assert second < first / 3


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ("epsilon = 1, weights = (1, 2)", "2 weights for 4 grouping sets"),
        ("epsilon = 1, weights = (1, 2, 0, 1)", "a weight is out of range"),
        ("epsilon = 1, weights = (1, 2, 'x', 1)", "a weight is not a positive number"),
        ("epsilon = 1, planning_seconds = 61", "planning_seconds is out of range"),
        ("epsilon = 1, target_stderr = 5", "epsilon and target_stderr are two prices; accepted: one of them"),
        ("target_stderr = 5, delta = 1e-6", "target_stderr takes no delta"),
        ("target_stderr = 1e-6", "would cost epsilon ="),
        ("target_stderr = 1e-9", "would cost epsilon ="),  # its noise is smaller than doubles are
        ("target_stderr = 0", "target_stderr is out of range"),
    ],
)
def test_refused_options(bits: Clinic, options: str, refusal: str) -> None:
    """A refusal names the wrong option, before any charge."""
    assert refusal in bits.refused(ask(options, "count(*)", "CUBE (b0, b1)"))


def test_a_target_is_reached_for_the_smallest_price(bits: Clinic) -> None:
    """target_stderr buys the smallest epsilon, once for all aggregates. Asking again is free."""
    statement = ask("target_stderr = 20", "b0, dp_stderr(n), count(*) AS n, count(b3) AS m", "b0, b1")
    shown = bits.con.execute("SELECT epsilon, worst_stderr FROM dp_explain(?) WHERE chosen", [statement]).fetchall()
    answers = bits.dp(statement)
    assert all(19.9 < row[1] <= 20 for row in answers)
    spent = bits.value("SELECT spent FROM dp_budget()")
    assert spent == pytest.approx(shown[0][0]) and shown[0][1] <= 20
    assert spent == pytest.approx(2 * 2**0.5 / 20, rel=2e-3)
    assert bits.dp(statement) == answers and bits.value("SELECT spent FROM dp_budget()") == spent


def test_a_target_buys_rho_and_heeds_the_limit(open_clinic: Callable[..., Clinic]) -> None:
    """Under an approximate budget the price is rho. MAX EPSILON limits the price that the target leads to."""
    clinic = open_clinic()
    clinic.con.execute("CREATE TABLE t AS SELECT range % 3 AS x FROM range(100)")
    clinic.dp(
        "CREATE PRIVACY POLICY ON t (PRIVACY UNIT ROW, BUDGET (epsilon = 3, delta = 1e-6), DOMAIN x IN (0, 1, 2), "
        "MAX EPSILON 1)"
    )
    statement = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = {}) x, dp_stderr(n), count(*) n FROM t GROUP BY x"
    )
    assert all(9.99 < row[1] <= 10 for row in clinic.dp(statement.format(10)))
    assert clinic.value("SELECT spent FROM dp_budget() WHERE measure = 'rho'") == pytest.approx(0.005, rel=2e-3)
    assert "would cost rho = 0.5" in clinic.refused(statement.format(1))


SETS = ("CUBE (a, b, c)", "ROLLUP (a, b, c)", "GROUPING SETS ((a, b), (c), ())", "MARGINALS (2, a, b, c)")
STRATEGIES = ("I", "Q+", "F+", "C+", "R")


@pytest.mark.parametrize(
    ("sets", "budget", "names"),
    [(sets, "rho", STRATEGIES) for sets in SETS] + [(SETS[2], "epsilon", STRATEGIES[:4])],
)
def test_no_strategy_by_name_reaches_a_target_for_less(
    open_clinic: Callable[..., Clinic], sets: str, budget: str, names: tuple[str, ...]
) -> None:
    """The price is the least over all strategies: a total of a thousand cells is no reason to measure it by cells."""
    clinic = open_clinic()
    clinic.con.execute("CREATE TABLE t AS SELECT range % 3 AS a, range % 10 AS b, range % 4 AS c FROM range(100)")
    domains = ", ".join(f"DOMAIN {name} RANGE 0 TO {size} STEP 1" for name, size in (("a", 3), ("b", 10), ("c", 4)))
    clinic.dp(f"CREATE PRIVACY POLICY ON t (PRIVACY UNIT ROW, BUDGET ({budget} = 1000), {domains})")

    def price(strategy: str) -> float:
        options = f"target_stderr = 20, planning_seconds = 0.2, strategy = '{strategy}'"
        before = clinic.value("SELECT spent FROM dp_budget()")
        clinic.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) count(*) FROM t GROUP BY {sets}")
        return float(clinic.value("SELECT spent FROM dp_budget()") - before)

    least = price("auto")
    for name in names:
        assert least <= price(name) * 1.002, name


SIZES = (2, 5, 10, 4)
DUALS = [
    tuple(sets for number in range(5) for sets in combinations(range(4), number)),
    tuple(combinations(range(4), 2)),
    ((), (0,), (0, 1), (0, 1, 2)),
    ((0, 1, 2), (3,), (1, 3), ()),
]


@pytest.mark.parametrize("sets", DUALS)
def test_a_target_s_price_is_near_the_dual_bound(
    open_clinic: Callable[..., Clinic], sets: tuple[tuple[int, ...], ...]
) -> None:
    """Gaussian noise: for whatever weights, the least weighted mean of variances is a bound of the worst one's."""
    clinic = open_clinic()
    clinic.con.execute("CREATE TABLE t AS SELECT 0 AS x0, 0 AS x1, 0 AS x2, 0 AS x3 FROM range(10)")
    domains = ", ".join(f"DOMAIN x{axis} RANGE 0 TO {size} STEP 1" for axis, size in enumerate(SIZES))
    clinic.dp(f"CREATE PRIVACY POLICY ON t (PRIVACY UNIT ROW, BUDGET (rho = 1000), {domains})")
    groups = ", ".join(f"({', '.join(f'x{axis}' for axis in members)})" for members in sets)
    clinic.dp(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 30) count(*) FROM t "
        f"GROUP BY GROUPING SETS ({groups})"
    )
    found = clinic.value("SELECT spent FROM dp_budget()")
    cells = np.array([prod(SIZES[axis] for axis in members) for members in sets], dtype=float)
    weights, bound = 1 / cells, 0.0
    for _ in range(40):
        weights /= (weights * cells).sum()
        workload = MarginalWorkload(SIZES, sets, tuple(weights.tolist()))
        plan = plan_workload(workload, NoiseKind.GAUSSIAN, Fraction(1, 10**6), 1, strategy="R")[0]
        bound = max(bound, plan.total_variance * 1e-6 / 30**2)
        weights *= np.array(plan.variances) / max(plan.variances)
    assert bound * 0.999 <= found <= bound * 1.01


def test_explain_says_how_long(bits: Clinic) -> None:
    """dp_explain has the contract's columns first and the seconds of every candidate."""
    statement = ask("epsilon = 1, planning_seconds = 0.2", "count(*)", "CUBE (b0, b1, b2)")
    begin = monotonic()
    result = bits.con.execute("FROM dp_explain(?)", [statement])
    elapsed = monotonic() - begin
    names = [column[0] for column in result.description]
    assert names[9:12] == ["note", "price", "seconds"]
    assert all(0 < row[11] <= elapsed + 1 for row in result.fetchall())  # noise and recovery are estimated


def dense_variance(weights: dict[tuple[int, ...], Any], sizes: tuple[int, ...], variances: list[float]) -> float:
    """Variance of a sum of least-squares answers of a cube that was measured set by set, by dense matrices."""
    sets = list(weights)
    rows: list[Any] = []
    for members in sets:
        factors = [np.eye(size) if axis in members else np.ones((1, size)) for axis, size in enumerate(sizes)]
        matrix: Any = np.ones((1, 1))
        for factor in factors:
            matrix = np.kron(matrix, factor)
        rows.append(matrix)
    strategy = np.vstack([row / variance**0.5 for row, variance in zip(rows, variances, strict=True)])
    covariance = np.linalg.pinv(strategy.T @ strategy)
    combination = sum(weights[members].ravel() @ row for members, row in zip(sets, rows, strict=True))
    return float(combination @ covariance @ combination)


def test_sums_of_cells_against_dense_least_squares(visits: Clinic) -> None:
    """dp_stderr_of equals the dense formula, and its estimate is the sum of the released answers."""
    visits.dp(
        "CREATE PRIVATE VIEW cube OPTIONS (epsilon = 1, strategy = 'Q', budgets = 'uniform') AS "
        "SELECT ward, count(*) AS n, count(*) AS again FROM visits GROUP BY CUBE (sex, ward)"
    )
    weight = "CASE WHEN sex IS NULL AND ward = ''w1'' THEN 2 WHEN sex = 1 AND ward IS NULL THEN -1 ELSE 0 END"
    row = visits.rows(f"FROM dp_stderr_of('cube', '{weight}')")[0]
    tables = {(0, 1): np.zeros((2, 5)), (0,): np.zeros(2), (1,): np.zeros(5), (): np.zeros(())}
    tables[1,][1], tables[0,][1] = 2, -1
    variance = 1 / (2 * np.sinh(1 / 8) ** 2)  # four sets at epsilon 1/4 each: discrete Laplace of scale 4
    assert row[1] == pytest.approx(dense_variance(tables, (2, 5), [variance] * 4) ** 0.5, rel=1e-6)
    plain = weight.replace("''", "'")
    assert row[0] == pytest.approx(visits.value(f"SELECT sum(answer_1 * ({plain})) FROM private.release_2"))
    assert row[2] < row[0] - 1.9 * row[1] and row[3] > row[0] + 1.9 * row[1]
    wide = visits.rows(f"FROM dp_stderr_of('release_2', '{weight}', confidence := 0.999)")[0]
    assert wide[:2] == row[:2] and wide[3] > row[3]


def test_what_must_add_up_has_no_error(visits: Clinic) -> None:
    """The difference between a total and its parts is known exactly, and so is the ratio of a number to itself.

    The share of a ward is 0.2. 0.05 off would be 50 scales of its noise: false alarm below 1e-20.
    """
    visits.dp(
        "CREATE PRIVATE VIEW cube OPTIONS (epsilon = 1) AS SELECT count(*) AS n FROM visits GROUP BY CUBE (sex, ward)"
    )
    parts = "CASE WHEN sex IS NULL AND ward IS NULL THEN 1 WHEN sex IS NULL THEN -1 ELSE 0 END"
    estimate, error, _, _ = visits.rows(f"FROM dp_stderr_of('cube', '{parts}')")[0]
    assert abs(estimate) < 1e-6 and error < 1e-4
    one = "(sex IS NULL AND ward IS NULL)::INTEGER"
    estimate, error, _, _ = visits.rows(f"FROM dp_ratio_of('cube', '{one}', '{one}')")[0]
    assert estimate == 1 and error < 1e-6
    share = visits.rows(f"FROM dp_ratio_of('cube', '(sex IS NULL AND ward = ''w0'')::INTEGER', '{one}')")[0]
    assert abs(share[0] - 0.2) < 0.05 and 0 < share[1] < 0.05
    assert share[2] < share[0] - 1.9 * share[1] and share[3] > share[0] + 1.9 * share[1]


@pytest.mark.slow
def test_a_denominator_that_may_be_zero_leaves_every_ratio(open_clinic: Callable[..., Clinic]) -> None:
    """51 cells with 5 rows: the interval of the true ratio 1 holds it, or is unbounded. At least 20 of 40 denominators
    cannot be told from 0: fewer has a chance below 1e-12."""
    clinic = open_clinic()
    clinic.rows("CREATE TABLE trips AS SELECT 0 AS g FROM range(5)")
    clinic.dp(
        "CREATE PRIVACY POLICY ON trips (PRIVACY UNIT ROW, BUDGET (epsilon = 100), DOMAIN g RANGE 0 TO 51 STEP 1)"
    )
    held = unknown = 0
    for number in range(40):
        clinic.dp(ask(f"epsilon = 1, refresh = 't{number}'", "g, count(*)", "g", "trips"))
        name = clinic.value("SELECT name FROM dp_releases() ORDER BY ledger_id DESC")
        _, error, low, high = clinic.rows(f"FROM dp_ratio_of('{name}', 'CAST(g < 25 AS INTEGER)', '1')")[0]
        held += low <= 1 <= high
        unknown += error is None
        assert (error is None) == (high == float("inf")) == (low == -float("inf"))
    assert held >= 28 and unknown >= 20


@pytest.mark.parametrize(
    ("weight", "refusal"),
    [
        ("n", "a weight may not use 'n'"),
        ("answer_1", "a weight may not use 'answer_1'"),
        ("(SELECT count(*) FROM visits)", "a subquery in an expression is refused"),
        ("random()", "random() is not deterministic"),
        ("1, 2", "this is not one expression"),
        ("1 / 0", "a weight is not a finite number"),
    ],
)
def test_refused_weights(visits: Clinic, weight: str, refusal: str) -> None:
    """A weight is a row-local expression over key columns: neither noisy answers nor private rows."""
    visits.dp("CREATE PRIVATE VIEW cube OPTIONS (epsilon = 1) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex")
    with pytest.raises(duckdb.Error) as caught:
        visits.con.execute("FROM dp_stderr_of('cube', ?)", [weight])
    assert refusal in str(caught.value)


def test_functions_with_several_arguments_are_listed() -> None:
    """Both are among the names that must be free in a database."""
    assert {"dp_stderr_of", "dp_ratio_of"} <= MACROS.keys()


def test_too_many_cells_name_the_way_out(bits: Clinic) -> None:
    """A cube beyond the limit is refused with its size and with what to do."""
    columns = ", ".join(f"b{column}" for column in range(16))
    more = ", ".join(f"(b{column} AND b{column + 1})" for column in range(10))
    message = bits.refused(ask("epsilon = 1", "count(*)", f"CUBE ({columns}), CUBE ({more})"))
    assert "grouping sets" in message
    message = bits.refused(ask("epsilon = 1", "count(*)", f"{columns}, {more}"))
    assert str(2**26) in message and "summary" in message
    assert prod([2] * 26) == 2**26
