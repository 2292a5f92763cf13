"""CREATE PRIVATE TABLE through SQL: every mechanism and workload, free, charged and refused statements."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import duckdb
import numpy as np
import pytest

from benchmarks.papers._synthetic_data import mixture, run_annealed, run_cube, sets_of, variation
from benchmarks.peers._wide_tables import Wide
from benchmarks.peers.synthetic_wide import counts_of, distance, picked, price_of
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.database import functions
from dpduck.database.database import Database
from dpduck.kernel.noise.law import NoiseKind
from dpduck.mechanisms.release import Releaser
from dpduck.mechanisms.synthetic.plan import plan_aim, tables_error
from dpduck.mechanisms.synthetic.schedule import Schedule, error_after_rounds, rounds_of
from dpduck.store.cursors import Caller
from dpduck.store.releases import ReleaseStore
from dpduck.strategies.choose import plan_workload
from dpduck.values.accounting import rho_of
from dpduck.values.errors import PermissionRefusal
from tests.support.clinics import Clinic

ALICE, BOB = Caller("alice", owner=False), Caller("bob", owner=False)
POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, {budget},
    DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 20, DOMAIN ward FROM wards.name, EXPECT ROWS 1000)"""
PURE = "BUDGET (epsilon = 1000)"
GAUSSIAN = "BUDGET (epsilon = 100, delta = 1e-3)"


def database_of(clinic: Clinic) -> Database:
    found = functions.database_of(clinic.con)
    assert found is not None
    return found


@pytest.fixture
def made(open_clinic: Callable[..., Clinic]) -> Clinic:
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(POLICY.format(budget=PURE))
    return clinic


def create(name: str, options: str, workload: str = "MARGINALS (2)", head: str = "CREATE", where: str = "") -> str:
    return (
        f"{head} PRIVATE TABLE {name} OPTIONS ({options}) AS SELECT sex, age, ward FROM visits {where} "
        f"WORKLOAD {workload}"
    )


WORKLOADS = [
    ("mechanism = 'mwem'", "MARGINALS (2)"),
    ("mechanism = 'mwem', update = 'paper', ask = 'queries', keep = 'average'", "GROUPING SETS ((sex, age), (ward))"),
    ("mechanism = 'mwem', first = 'histogram', adaptive = TRUE", "PARITIES (2)"),
    ("first = 'marginals', rounds = 9", "RANGES (2)"),
    ("rounds = 4", "(count(*) FILTER (WHERE age >= 40 AND ward = 'w1'), count(*) FILTER (WHERE sex = 1))"),
    ("mechanism = 'cube'", "MARGINALS (2)"),
    ("mechanism = 'barak'", "MARGINALS (3)"),
]


@pytest.mark.parametrize(
    ("price", "options", "workload"),
    [("epsilon = 100", *each) for each in WORKLOADS] + [("rho = 40", *WORKLOADS[0]), ("rho = 40", *WORKLOADS[5])],
)
def test_rows_are_like_the_data(open_clinic, price: str, options: str, workload: str) -> None:
    """Every mechanism and workload yields typed rows of the domain, close to the data when epsilon is large.

    The share of one sex has a deviation of 0.005 at most: 0.1 off has a chance below 1e-15.
    """
    made = open_clinic()
    made.fill()
    made.protect(POLICY.format(budget=PURE if "epsilon" in price else GAUSSIAN))
    made.dp(create("synth", f"{price}, {options}, rows = 2000, weights = TRUE", workload))
    described = [row[:2] for row in made.rows("DESCRIBE private.synth")]
    assert described == [("sex", "BIGINT"), ("age", "BIGINT"), ("ward", "VARCHAR")]
    assert made.value("SELECT count(*) FROM private.synth") == 2000
    assert made.rows("SELECT DISTINCT age FROM private.synth ORDER BY age") == [(20 * bin,) for bin in range(5)]
    ones = made.value("SELECT avg(sex) FROM private.synth")
    assert 0.4 < ones < 0.6
    weights = made.rows("SELECT count(*), sum(probability), min(probability) >= 0 FROM private.synth_weights")[0]
    assert weights[0] == 60
    assert weights[1] == pytest.approx(1)
    assert weights[2]


def test_rows_are_free_once_the_distribution_is_released(made: Clinic) -> None:
    """The price is charged once. Another number of rows, the same statement again, and dropping cost nothing."""
    made.dp(create("synth", "epsilon = 1, mechanism = 'mwem', rows = 100"))
    charged = made.rows("SELECT epsilon, mechanism FROM dp_ledger() ORDER BY id DESC LIMIT 1")
    assert charged == [(1.0, "exact exponential mechanism and discrete Laplace, mwem")]
    entries = made.value("SELECT count(*) FROM dp_ledger()")
    before = made.rows("FROM private.synth ORDER BY ALL")
    made.dp(create("synth", "epsilon = 1, mechanism = 'mwem', rows = 100"))
    assert made.rows("FROM private.synth ORDER BY ALL") == before
    made.dp(create("synth", "epsilon = 1, mechanism = 'mwem', rows = 7", head="CREATE OR REPLACE"))
    made.dp(create("other", "epsilon = 1, mechanism = 'mwem'"))
    assert made.value("SELECT count(*) FROM private.synth") == 7
    listed = made.rows("SELECT name, strategy, epsilon, kind FROM dp_releases() WHERE kind = 'view' ORDER BY name")
    assert listed == [("other", "mwem", 1.0, "view"), ("synth", "mwem", 1.0, "view")]
    made.dp("DROP PRIVATE TABLE synth")
    made.dp("DROP PRIVATE TABLE IF EXISTS nothing")
    assert made.value("SELECT count(*) FROM dp_ledger()") == entries
    made.dp(create("again", "epsilon = 1, mechanism = 'mwem', refresh = 'b'"))
    assert made.value("SELECT count(*) FROM dp_ledger()") == entries + 1


def test_names_are_given_one_at_a_time(made: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the last check of a free name until its table stands, nobody else can give or take a name. So no view and no
    table replaces another that was made meanwhile."""
    views, busy = database_of(made)._views, []

    def watched(method: str) -> None:
        original = getattr(ReleaseStore, method)

        def put(*arguments: object) -> None:
            busy.append((method, bool(views.names.locks._locks)))
            original(*arguments)

        monkeypatch.setattr(ReleaseStore, method, put)

    watched("put_rows")
    watched("put_views")
    cube = "SELECT sex, count(*) AS n FROM visits GROUP BY sex"
    made.dp(f"CREATE OR REPLACE PRIVATE VIEW cube OPTIONS (epsilon = 1) AS {cube}")
    made.dp(create("synth", "epsilon = 1, mechanism = 'mwem', weights = TRUE", head="CREATE OR REPLACE"))
    made.dp("CREATE OR REPLACE PRIVATE TABLE sampled AS SAMPLE 10 FROM private.cube")
    assert busy == [("put_views", True), ("put_rows", True), ("put_rows", True), ("put_rows", True)]
    assert not views.names.locks._locks


def test_a_name_that_another_took_meanwhile(made: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alice's view appears between Bob's first look and his last: CREATE OR REPLACE is refused and hers stays."""
    database, charge = database_of(made), Releaser.release

    def release(*arguments: object, **named: object) -> object:
        done = charge(*arguments, **named)  # type: ignore[arg-type]
        monkeypatch.setattr(Releaser, "release", charge)
        cube = "SELECT sex, count(*) AS n FROM visits GROUP BY sex"
        database.run(f"CREATE PRIVATE VIEW synth OPTIONS (epsilon = 2) AS {cube}", ALICE)
        return done

    monkeypatch.setattr(Releaser, "release", release)
    with pytest.raises(PermissionRefusal, match="belongs to somebody else"):
        database.run(create("synth", "epsilon = 1, mechanism = 'mwem'", head="CREATE OR REPLACE"), BOB)
    assert made.rows("SELECT epsilon, kind FROM dp_releases() WHERE name = 'synth'") == [(2.0, "view")]


def test_a_cube_is_sampled_free_of_charge(made: Clinic) -> None:
    """CREATE PRIVATE TABLE x AS SAMPLE n FROM a released cube: rows near its counts, with its types, no new charge."""
    made.dp(
        "CREATE PRIVATE VIEW wards_cube OPTIONS (epsilon = 50) AS SELECT sex, ward, age, count(*) AS n FROM visits "
        "GROUP BY CUBE (sex, ward, age)"
    )
    before = made.value("SELECT count(*) FROM dp_ledger()")
    made.dp("CREATE PRIVATE TABLE drawn AS SAMPLE 5000 FROM private.wards_cube")
    assert [row[:2] for row in made.rows("DESCRIBE private.drawn")] == [
        ("sex", "BIGINT"), ("ward", "VARCHAR"), ("age", "BIGINT"),
    ]  # fmt: skip
    counted = made.rows("SELECT ward, count(*) FROM private.drawn WHERE ward < 'w5' GROUP BY ward ORDER BY ward")
    assert [name for name, _ in counted] == [f"w{number}" for number in range(5)]
    assert max(abs(count - 1000) for _, count in counted) < 120
    made.dp("CREATE PRIVATE TABLE drawn AS SAMPLE 5000 FROM private.wards_cube")
    assert made.value("SELECT count(*) FROM dp_ledger()") == before
    made.all_refused([
        "CREATE PRIVATE TABLE drawn AS SAMPLE 6000 FROM private.wards_cube",
        "CREATE PRIVATE TABLE more AS SAMPLE 6000 FROM private.nothing",
        "CREATE PRIVATE TABLE more AS SAMPLE 0 FROM private.wards_cube",
        "CREATE PRIVATE TABLE more OPTIONS (rows = 3) AS SAMPLE 6 FROM private.wards_cube",
        "CREATE PRIVATE TABLE more AS SAMPLE 6 FROM private.drawn WHERE sex = 1",
    ])  # fmt: skip


REFUSED = [
    (create("x", "epsilon = 1, rounds = 9"), "rounds has no effect with mechanism = 'cube', which is chosen here"),
    (
        create("x", "epsilon = 1, mechanism = 'barak', keep = 'average', replays = 3"),
        "replays and keep have no effect with mechanism = 'barak', which is chosen here",
    ),
    (create("s", "epsilon = 1, bogus = 2"), "'bogus' is unknown"),
    (create("s", "mechanism = 'mwem'"), "price is missing"),
    (create("s", "epsilon = 1, mechanism = 'gan'"), "mechanism has no such value"),
    (create("s", "epsilon = 1, rows = 0"), "rows is out of range"),
    (create("s", "epsilon = 1, rows = 5, rows = 6"), "given twice"),
    (create("s", "epsilon = 1, first_share = 2"), "first_share is out of range"),
    (create("s", "epsilon = 1", "MARGINALS (4)"), "there are 3 columns"),
    (create("s", "epsilon = 1", "GROUPING SETS ((sex), (age))"), "a column is in no grouping set"),
    (create("s", "epsilon = 1", "GROUPING SETS ((sex), (age, ward, sex % 2))"), "something else than columns"),
    (create("s", "epsilon = 1", "(count(*) FILTER (WHERE patient = 3))"), "has no public domain"),
    (create("s", "epsilon = 1", "(sum(age))"), "counts with conditions"),
    (create("s", "epsilon = 1", "EVERYTHING"), "not expected here"),
    (create("s", "epsilon = 1, mechanism = 'cube'", "RANGES"), "cannot serve"),
    (create("s", "epsilon = 1, ask = 'marginals'", "PARITIES (1)"), "only marginals are asked as a whole"),
    ("CREATE PRIVATE TABLE s OPTIONS (epsilon = 1) AS SELECT sex, sex FROM visits WORKLOAD MARGINALS (1)", ""),
    ("CREATE PRIVATE TABLE s OPTIONS (epsilon = 1) AS SELECT sex + 1 FROM visits WORKLOAD MARGINALS (1)", "columns"),
    ("CREATE PRIVATE TABLE s OPTIONS (epsilon = 1) AS SELECT sex FROM visits LIMIT 3 WORKLOAD MARGINALS (1)", "LIMIT"),
    ("CREATE PRIVATE TABLE s OPTIONS (epsilon = 1) AS SELECT sex FROM visits", "ends too early"),
    (
        "CREATE PRIVATE TABLE release_9 OPTIONS (epsilon = 1) AS SELECT sex FROM visits WORKLOAD MARGINALS (1)",
        "is reserved",
    ),
    ("DROP PRIVATE TABLE s", "no private table"),
]


def test_refusals_are_one_line_and_cost_nothing(made: Clinic) -> None:
    """A statement that cannot be served is refused before the charge, by a line that says why."""
    messages = made.all_refused([statement for statement, _ in REFUSED])
    for (statement, wanted), message in zip(REFUSED, messages, strict=True):
        assert wanted in message, (statement, message)


def test_too_large_a_table_is_refused_with_its_size(open_clinic: Callable[..., Clinic]) -> None:
    """Neither a dense table nor a factor holds it: the refusal says how many cells there would be."""
    clinic = open_clinic()
    names = [f"c{number}" for number in range(8)]
    clinic.con.execute(f"CREATE TABLE wide AS SELECT {', '.join(f'range AS {name}' for name in names)} FROM range(10)")
    domains = ", ".join(f"DOMAIN {name} RANGE 0 TO 100 STEP 1" for name in names)
    clinic.dp(f"CREATE PRIVACY POLICY ON wide (PRIVACY UNIT ROW, BUDGET (epsilon = 9), {domains})")
    head = f"CREATE PRIVATE TABLE s OPTIONS (epsilon = 1{{}}) AS SELECT {', '.join(names)} FROM wide WORKLOAD "
    messages = clinic.all_refused([
        head.format(", mechanism = 'cube'") + "MARGINALS (2)",
        head.format(", first = 'histogram', mechanism = 'mwem'") + "MARGINALS (1)",
        head.format("") + "MARGINALS (4)",
        head.format(", weights = TRUE") + "MARGINALS (1)",
    ])  # fmt: skip
    assert all(str(100**8) in message for message in messages[:2])
    assert str(100**4) in messages[2] or "cells" in messages[2]


def test_forty_columns_are_synthesised(open_clinic: Callable[..., Clinic]) -> None:
    """40 columns of 6 values, all pairs: a factored distribution. Two columns that are equal stay nearly equal."""
    clinic = open_clinic()
    columns = ", ".join(f"(hash(range, {number}) % 6)::INTEGER AS c{number}" for number in range(39))
    clinic.con.execute(f"CREATE TABLE wide AS SELECT {columns}, (hash(range, 0) % 6)::INTEGER AS c39 FROM range(20000)")
    domains = ", ".join(f"DOMAIN c{number} RANGE 0 TO 6 STEP 1" for number in range(40))
    clinic.dp(f"CREATE PRIVACY POLICY ON wide (PRIVACY UNIT ROW, BUDGET (epsilon = 9), {domains}, EXPECT ROWS 20000)")
    names = ", ".join(f"c{number}" for number in range(40))
    statement = (
        f"CREATE PRIVATE TABLE s OPTIONS (epsilon = 2, rounds = 3) AS SELECT {names} FROM wide WORKLOAD MARGINALS (2)"
    )
    explained = clinic.con.execute("SELECT strategy FROM dp_explain(?)", [statement]).fetchall()
    assert explained == [("mwem",)]
    clinic.dp(statement)
    assert abs(clinic.value("SELECT count(*) FROM private.s") - 20000) < 2000
    assert clinic.value("SELECT avg((c0 = c39)::INTEGER) FROM private.s") > 0.8
    assert clinic.value("SELECT avg((c1 = c2)::INTEGER) FROM private.s") == pytest.approx(1 / 6, abs=0.1)


def test_explain_compares_mechanisms(made: Clinic) -> None:
    """dp_explain lists every mechanism that could serve, the chosen one first, then by error, and spends nothing."""
    before = made.value("SELECT count(*) FROM dp_ledger()")
    rows = made.con.execute(
        "SELECT strategy, chosen, predicted_error, note FROM dp_explain(?)", [create("s", "epsilon = 1")]
    ).fetchall()
    assert sorted(row[0] for row in rows) == ["aim", "barak", "cube", "mwem"]
    assert [row[1] for row in rows] == [True, False, False, False]
    assert list(np.argsort([row[2] for row in rows[1:]], kind="stable")) == [0, 1, 2]
    assert "predicted to be better" in rows[0][3]
    single = made.con.execute("SELECT strategy FROM dp_explain(?)", [create("s", "epsilon = 1, mechanism = 'mwem'")])
    assert single.fetchall() == [("mwem",)]
    assert made.value("SELECT count(*) FROM dp_ledger()") == before


def test_a_condition_filters_private_rows(made: Clinic) -> None:
    """WHERE works as everywhere: only rows that meet it are synthesised."""
    made.dp(create("synth", "epsilon = 100, mechanism = 'cube'", where="WHERE ward = 'w1'"))
    assert made.value("SELECT avg((ward = 'w1')::INTEGER) FROM private.synth") > 0.9
    assert abs(made.value("SELECT count(*) FROM private.synth") - 200) < 20


@pytest.mark.parametrize("condition", ["sex", "(sex)", "visits.sex"])
def test_a_lone_column_is_a_condition(made: Clinic, condition: str) -> None:
    """Rows are counted for which the column is true. It was taken for the column's own key, and left out.

    Nothing else is asked, and at this price noise moves a share by 0.1 with a chance below 1e-20.
    """
    workload = f"(count(*) FILTER (WHERE {condition}))"
    options = "epsilon = 100, mechanism = 'mwem', first = 'nothing', rounds = 1"
    made.dp(create("synth", options, workload, where="WHERE sex = 1"))
    assert made.value("SELECT avg(sex) FROM private.synth") > 0.9


@pytest.mark.usefixtures("stopped_clock")
def test_explain_knows_where_asking_everything_wins(open_clinic: Callable[..., Clinic]) -> None:
    """NLTCS's 16 bits at epsilon 1, 2-way: cube and Barak are predicted to beat MWEM, from public facts alone."""
    clinic = open_clinic()
    names = [f"y{bit}" for bit in range(16)]
    clinic.con.execute(f"CREATE TABLE bits ({', '.join(f'{name} INTEGER' for name in names)})")
    domains = ", ".join(f"DOMAIN {name} IN (0, 1)" for name in names)
    clinic.dp(f"CREATE PRIVACY POLICY ON bits (PRIVACY UNIT ROW, BUDGET (epsilon = 9), {domains}, EXPECT ROWS 21574)")
    statement = (
        f"CREATE PRIVATE TABLE s OPTIONS (epsilon = 1, planning_seconds = 0.2) AS SELECT {', '.join(names)} "
        "FROM bits WORKLOAD MARGINALS (2)"
    )
    rows = clinic.con.execute("SELECT strategy, predicted_error, note FROM dp_explain(?)", [statement]).fetchall()
    errors = {row[0]: row[1] for row in rows}
    assert list(errors) == sorted(errors, key=lambda name: float(errors[name])) and rows[0][0] == "cube"
    assert errors["barak"] < errors["mwem"]
    assert "cube is predicted to be better than" in rows[0][2]


@pytest.mark.parametrize("pure", [True, False], ids=["Laplace", "Gaussian"])
@pytest.mark.parametrize(("epsilon", "order"), [("1/4", 2), ("1", 2), ("1", 3), ("4", 3)])
def test_the_predicted_error_of_a_cube_is_its_error(pure: bool, epsilon: str, order: int) -> None:
    """From little noise to noise that drowns most cells: within a factor of two, for a table that no gate looks at.

    A quarter of the noise, which was predicted, was a third of the error or less.
    """
    table = mixture((8, 6, 5, 4, 3, 2), 2_000, np.random.default_rng(7))
    price = Fraction(epsilon) if pure else rho_of(Fraction(epsilon), Fraction(1, 10**6))
    sets, kind = sets_of(table, order), NoiseKind.LAPLACE if pure else NoiseKind.GAUSSIAN
    plan = plan_workload(MarginalWorkload(table.shape, sets, (1.0,) * len(sets)), kind, price, 1)[0]
    predicted = tables_error(plan, int(table.sum()))
    actual = np.mean([variation(table, run_cube(table, sets, pure, price), sets) for _ in range(3)])
    assert predicted / 2 < actual < 2 * predicted, (predicted, actual)


@pytest.mark.parametrize("epsilon", ["0.5", "2"])
def test_the_predicted_error_of_a_cube_knows_that_cells_are_uneven(epsilon: str) -> None:
    """Columns that follow one uneven variable leave most cells of their margins almost empty, where no noise stays: the
    error is within a factor of 1.5 of the prediction. Even cells were predicted to err 1.6 and 2.2 times as much.

    A run deviates by 7 %, the mean of four by 3.5: they are 0.23 and 0.06 above the prediction in logarithms of 0.41.
    """
    random, sizes = np.random.default_rng(12), (24, 16, 12, 10)
    base = np.minimum(random.zipf(1.7, 6_000) - 1, 40)
    codes = [random.permutation(41)[base] % size for size in sizes]
    away = random.random((4, 6_000)) < 0.1
    drawn = [random.integers(0, size, 6_000) for size in sizes]
    table, price = np.zeros(sizes, np.int64), rho_of(Fraction(epsilon), Fraction(1, 10**6))
    np.add.at(table, tuple(np.where(away, drawn, codes)), 1)
    sets = sets_of(table, 3)
    plan = plan_workload(MarginalWorkload(sizes, sets, (1.0,) * 4), NoiseKind.GAUSSIAN, price, 1)[0]
    actual = np.mean([variation(table, run_cube(table, sets, False, price), sets) for _ in range(4)])
    assert tables_error(plan, 6_000) / 1.5 < actual < 1.5 * tables_error(plan, 6_000)


def test_the_predicted_error_of_rounds_knows_that_cells_are_uneven(data_file: Callable[[str], Path]) -> None:
    """Adult's fourteen columns, six of them of 85 to 100 values: within a factor of two, at epsilon 1. The error was
    0.37 of the prediction while cells were taken to be even. Runs deviate by 3 %, and the error is now 0.95 of the
    prediction.
    """
    codes = np.array([*duckdb.sql(f"FROM '{data_file('adult_encoded_48842.parquet')}'").fetchnumpy().values()], int)
    table = Wide("adult", codes, (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2))
    pairs, price = picked(table, 2), price_of("1")
    predicted = plan_aim(table.sizes, pairs, False, price, 1, table.rows).error
    found = run_annealed(counts_of(table), tuple(pairs), False, price, table.rows)
    assert predicted / 2 < distance(table, pairs, found.marginals) < 2 * predicted


def test_few_rounds_are_not_taken_to_be_better() -> None:
    """One round of five columns, at epsilon 1: its 3-way marginals are 0.43 off, the cube's 0.32, and `auto` knows."""
    sizes, sets = (12, 10, 15, 9, 6), tuple(combinations(range(5), 3))
    plan = plan_workload(MarginalWorkload(sizes, sets, (1.0,) * len(sets)), NoiseKind.LAPLACE, Fraction(1), 1)[0]
    shapes = [tuple(sizes[place] for place in chosen) for chosen in sets]
    schedule = Schedule(True, Fraction(1), 1, 1, Fraction(1, 4))
    assert rounds_of(schedule, shapes, 5, 3_000) == 1
    assert tables_error(plan, 3_000) < error_after_rounds(schedule, shapes, 5, 3_000)
