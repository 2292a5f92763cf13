"""reuse = TRUE plans new measurements given the known ones, from noise and shapes alone."""

from __future__ import annotations

import duckdb
import pytest

import dpduck
from tests.mechanisms.known.known import make_visits, measured, release
from tests.support.clinics import Clinic

ROLLUP = "ward, sex, count(*) AS n, dp_stderr(n) AS e FROM visits GROUP BY ROLLUP (ward, sex)"
NORTH = "sex, count(*) AS n, dp_stderr(n) AS e FROM visits WHERE ward = 'north' GROUP BY sex"


def explained(clinic: Clinic, statement: str) -> dict[str, object]:
    """The chosen row of dp_explain."""
    found = clinic.con.execute("FROM dp_explain(?)", [statement])
    names = [column[0] for column in found.description]
    rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    assert [row["chosen"] for row in rows] == [True] + [False] * (len(rows) - 1)
    return rows[0]


def with_reuse(price: str, rest: str) -> str:
    """Returns a statement that reuses known answers."""
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}, reuse = TRUE) {rest}"


def known_stderr(clinic: Clinic, statement: str) -> float:
    """The largest error of a known answer."""
    return float(str(clinic.con.execute("SELECT max(stderr) FROM dp_known(?)", [statement]).fetchall()[0][0]))


def paid(clinic: Clinic) -> float:
    """Everything that was charged, in rho."""
    return float(clinic.value("SELECT sum(rho) FROM dp_ledger()"))


def test_a_price_goes_where_something_is_missing(clinic: Clinic) -> None:
    """A rollup with known margins measures its cells. The error is as dp_explain foresaw, and smaller than alone."""
    make_visits(clinic)
    release(clinic, "ward, count(*) AS n FROM visits GROUP BY ROLLUP (ward)", "rho = 5")
    asked = with_reuse("rho = 0.01", ROLLUP)
    said = explained(clinic, asked)
    assert str(said["note"]).startswith("given what is known; ") and said["strategy"] == "Q shared"
    found = clinic.dp(asked)
    assert max(float(str(row[3])) for row in found) == pytest.approx(said["stderr_with_known"])
    assert paid(clinic) == pytest.approx(5.01), "at the same price"
    last = [query.keys for query in measured(clinic)[-1].queries[0]]
    assert last == [(0, 1)], "the margins are known: the table of both columns takes it all"
    with dpduck.connect() as plain:
        other = Clinic(plain)
        make_visits(other)
        release(other, "ward, count(*) AS n FROM visits GROUP BY ROLLUP (ward)", "rho = 5")
        release(other, ROLLUP, "rho = 0.01")
        before = "SELECT ward, sex, count(*) AS n FROM visits GROUP BY ROLLUP (ward, sex)"
        assert known_stderr(other, before) > 1.05 * known_stderr(clinic, before)


def test_a_condition_becomes_a_column(clinic: Clinic) -> None:
    """At the price of one ward's rows every ward's are measured: the next ward is free."""
    make_visits(clinic)
    clinic.dp(with_reuse("target_stderr = 5", NORTH))
    assert paid(clinic) == pytest.approx(0.02, rel=0.01), "a variance of 25, as without reuse"
    assert measured(clinic)[-1].filters == ()
    south = "SELECT sex, count(*) AS n FROM visits WHERE ward = 'south' GROUP BY sex"
    assert known_stderr(clinic, south) <= 5
    assert "known already" in clinic.refused(with_reuse("target_stderr = 5", NORTH.replace("north", "south")))


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
@pytest.mark.parametrize("unit", ["ROW", "patient MAX ROWS 4"])
def test_sums_are_planned_like_counts(clinic: Clinic, measure: str, unit: str) -> None:
    """A rollup of sums with known margins measures its cells, at less error. A condition measures its whole column."""
    make_visits(clinic, unit, measure)
    release(clinic, "ward, sum(charge) AS s FROM visits GROUP BY ROLLUP (ward)", f"{measure} = 9")
    rollup = "ward, sex, sum(charge) AS s FROM visits GROUP BY ROLLUP (ward, sex)"
    asked = with_reuse(f"{measure} = 0.05", rollup)
    said = explained(clinic, asked)
    if measure == "rho":  # Laplace noise goes into the cells as it is
        assert str(said["note"]).startswith("given what is known; ")
    clinic.dp(asked)
    assert [query.keys for query in measured(clinic)[-1].queries[0]] == [(0, 1)]
    assert known_stderr(clinic, f"SELECT {rollup}") == pytest.approx(said["stderr_with_known"])
    north = "age, sum(charge) FILTER (WHERE ward = 'north') AS s FROM visits GROUP BY age"
    clinic.dp(with_reuse(f"{measure} = 0.05", north))
    assert clinic.value(f"SELECT sum({measure}) FROM dp_ledger()") == pytest.approx(9.1), "at the same price"
    (table,) = measured(clinic)[-1].tables
    assert (table.form, table.condition) == ("sum", "")
    south = f"SELECT {north.replace('north', 'south')}"
    assert known_stderr(clinic, south) == pytest.approx(known_stderr(clinic, f"SELECT {north}"))


def test_averages_are_planned_like_counts(clinic: Clinic) -> None:
    """Both sums of an average: a rollup with known margins measures its cells, and drops conditions."""
    make_visits(clinic)
    release(clinic, "ward, avg(charge) AS a FROM visits GROUP BY ROLLUP (ward)", "rho = 5")
    asked = with_reuse("rho = 0.05", "ward, sex, avg(charge) AS a FROM visits GROUP BY ROLLUP (ward, sex)")
    assert str(explained(clinic, asked)["note"]).startswith("given what is known; ")
    clinic.dp(asked)
    assert [query.keys for query in measured(clinic)[-1].queries[0]] == [(0, 1)]
    clinic.dp(with_reuse("rho = 0.05", "age, avg(charge) AS a FROM visits WHERE ward = 'north' GROUP BY age"))
    assert paid(clinic) == pytest.approx(5.1)
    south = "SELECT age, avg(charge) AS a FROM visits WHERE ward = 'south' GROUP BY age"
    assert known_stderr(clinic, south) > 0


def test_rows_that_max_rows_cuts_stay_those_that_are_asked_for(clinic: Clinic) -> None:
    """WHERE comes before MAX ROWS: the same rows without it are other rows, and do not stand in for them."""
    make_visits(clinic, "patient MAX ROWS 2")
    clinic.dp(with_reuse("target_stderr = 50", NORTH))
    assert len(measured(clinic)[-1].filters) == 1
    filtered = "count(*) FILTER (WHERE ward = 'north') AS n, count(*) FILTER (WHERE ward = 'south') AS m FROM visits"
    clinic.dp(with_reuse("target_stderr = 50", filtered))
    assert [table.condition for table in measured(clinic)[-1].tables] == [""], "FILTER comes after: one table has both"


def test_a_target_costs_no_more_than_as_it_is_written(clinic: Clinic) -> None:
    """Where many cells are added up, the sum itself is measured. Known cells lower its price."""
    make_visits(clinic)
    grouped = "ward, count(*) AS n FROM visits WHERE age < 30 GROUP BY ward"
    clinic.dp(with_reuse("target_stderr = 5", grouped))
    assert paid(clinic) == pytest.approx(0.02, rel=0.01) and len(measured(clinic)[-1].filters) == 1
    release(clinic, "ward, age, count(*) AS n FROM visits GROUP BY ward, age", "rho = 0.02")
    clinic.dp(with_reuse("target_stderr = 3", grouped))
    alone = explained(clinic, f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 3) {grouped}")
    assert paid(clinic) < 0.04 + 0.6 * float(str(alone["rho"]))


@pytest.mark.parametrize("known", [False, True])
def test_a_target_of_a_rollup_is_reached_for_no_more_than_alone(clinic: Clinic, known: bool) -> None:
    """Totals, margins and cells reach one standard error. Reuse costs less. Without reuse it costs as much as alone."""
    make_visits(clinic)
    if known:
        release(clinic, "ward, sex, count(*) AS n FROM visits GROUP BY ward, sex", "rho = 0.01")
    alone = float(
        str(explained(clinic, f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 4) {ROLLUP}")["rho"])
    )
    before = paid(clinic) if known else 0.0
    found = clinic.dp(with_reuse("target_stderr = 4", ROLLUP))
    assert max(float(str(row[3])) for row in found) <= 4
    assert paid(clinic) - before <= alone * (0.95 if known else 1.002)


def test_a_target_may_pay_ahead(clinic: Clinic) -> None:
    """At four times the price a quarter of the variance: two wards together are free then. Only a target with reuse has
    anything to pay ahead."""
    make_visits(clinic)
    both = "SELECT sex, count(*) AS n FROM visits WHERE ward IN ('north', 'south') GROUP BY sex"
    clinic.dp(with_reuse("target_stderr = 5, ahead = 4", NORTH))
    assert 0.07 < paid(clinic) <= 0.0801 and known_stderr(clinic, f"SELECT {NORTH}") <= 2.5
    assert known_stderr(clinic, both) <= 5
    for price in ("epsilon = 1, reuse = TRUE, ahead = 4", "target_stderr = 5, ahead = 4"):
        told = clinic.refused(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) {NORTH}")
        assert "accepted: target_stderr = .., reuse = TRUE, ahead = 4" in told


@pytest.mark.slow
def test_other_rows_have_the_same_plan_and_price(clinic: Clinic) -> None:
    """Noise and shapes decide, no estimate: over other rows the same statements measure and cost the same."""
    found = []
    with dpduck.connect() as plain:
        for one, rows in ((clinic, ""), (Clinic(plain), "DELETE FROM visits WHERE patient > 3")):
            make_visits(one)
            one.con.execute(rows or "SELECT 1")
            one.dp("ALTER PRIVACY POLICY ON visits PREPARE")
            for statement in (
                NORTH,
                ROLLUP,
                NORTH.replace("ward", "age").replace("'north'", "10"),
                "count(*) AS n FROM visits",
            ):
                if "known already" not in str(attempt(one, with_reuse("target_stderr = 5", statement))):
                    assert attempt(one, with_reuse("rho = 0.03", statement)) == ""
            shapes = [[query.keys for query in kept.queries[0]] for kept in measured(one)]
            found.append((one.rows("SELECT rho, mechanism FROM dp_ledger() ORDER BY id"), shapes))
    assert found[0] == found[1] and len(found[0][0]) > 5


def attempt(clinic: Clinic, statement: str) -> str:
    """Returns the message of a refusal, "" for an answer."""
    try:
        clinic.dp(statement)
    except duckdb.Error as error:
        return str(error)
    return ""
