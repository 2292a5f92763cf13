"""Neighbours differ by one unit: no exact table of any aggregate moves by more than the noise is calibrated to."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pytest

from tests.mechanisms.cubes.aggregate_clinic import exact_answers, exact_tables, open_stays, plan_of

GAUSSIAN = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 1{}) "
BY_CELL = (
    "count(DISTINCT who)", "count(*), count(DISTINCT who)", "count(DISTINCT text)",
    "count(*, contribution_bounds_per_group => (0, 2))", "count(*, contribution_bounds_per_group => (1, 5))",
    "sum(dec, contribution_bounds_per_group => (1, 8))", "avg(dec, contribution_bounds_per_group => (0, 8))",
)  # fmt: skip
"""Aggregates of which a unit adds less to one group than to all: their squares add up to less than a square."""

WEIGHED = ("count(*), sum(dec)", "sum(big)", "count(*) FILTER (WHERE flag), count(dec)", "count(DISTINCT who)",
           "sum(big, contribution_bounds_per_group => (-60, 20))", "var_pop(big)", "avg(dec), stddev(dec)")  # fmt: skip
"""Aggregates of units that may be weighed."""

CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) "
AGGREGATES = (
    "sum(big)", "sum(huge)", "sum(real)", "sum(dec)", "avg(big)", "avg(real)", "var_pop(dec)", "stddev(huge)",
    "count(*), sum(dec), avg(dec)", "count(*), avg(big), var_samp(real)", "count(big), sum(big)",
    "sum(big) FILTER (WHERE flag)",
    "avg(dec) FILTER (WHERE text::INTEGER > 5), count(*) FILTER (WHERE text::INTEGER > 5)",
    "sum(big * 2 + 1)", "sum(-dec)", "sum(abs(big))", "sum(big * dec)", "sum(CASE WHEN flag THEN dec ELSE -big END)",
    "sum(coalesce(real, 1))", "sum(dec / 3)", "sum(round(dec))", "sum(CAST(dec AS INTEGER))",
    "sum(CAST(flag AND big > 0 AS INTEGER))", "avg(flag::INTEGER)",
    "sum(least(greatest(text::INTEGER, -5), 5))", "avg(least(greatest(1 / (big - 7), 0), 1))",
    "sum(year(moment), contribution_bounds_per_row => (2020, 2030))",
    "sum(huge * huge, contribution_bounds_per_row => (-10, 10))",
    "sum(big << 60, contribution_bounds_per_row => (0, 3))",
    "sum(sqrt(big) + ln(big), contribution_bounds_per_row => (0, 3))",
    "count(DISTINCT who)", "count(DISTINCT ward)", "count(DISTINCT text)",
    "count(*, contribution_bounds_per_group => (0, 2))", "count(*, contribution_bounds_per_group => (1, 5))",
    "count(dec, contribution_bounds_per_group => (0, 2))",
    "sum(dec, contribution_bounds_per_group => (1, 8))", "sum(big, contribution_bounds_per_group => (-60, 20))",
    "avg(dec, contribution_bounds_per_group => (0, 8))",
    "avg(huge, contribution_bounds_per_group => (0, 990)), count(*)",
    "median(big)", "quantile_cont(dec, [0.25, 0.75]), min(dec), max(dec)", "approx_quantiles(real, 4)",
    "median(text::INTEGER, contribution_bounds_per_row => (0, 20))",
)  # fmt: skip
ROWS = (
    ("FROM stays", "GROUP BY sex"),
    ("FROM stays", ""),
    ("FROM stays JOIN wards ON ward = name WHERE real IS NULL OR real <> 0.5", "GROUP BY sex, floor IS NULL"),
    ("FROM stays LEFT JOIN wards ON ward = name", "GROUP BY CUBE (sex, ward)"),
    ("FROM (SELECT * FROM stays WHERE big + 1 > 0 OR flag)", "GROUP BY ward"),
)


@pytest.fixture(scope="module")
def stays() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_stays() as connection:
        yield connection


@pytest.fixture(scope="module")
def stays_in_rho() -> Iterator[duckdb.DuckDBPyConnection]:
    """Returns stays with a budget that buys Gaussian noise."""
    with open_stays(budget="rho = 1000000") as connection:
        yield connection


def is_by_group(aggregates: str) -> bool:
    """Tells whether the aggregates take one plain GROUP BY of columns."""
    return "per_group" in aggregates or "DISTINCT who" in aggregates


def neighbours(connection: duckdb.DuckDBPyConnection, units: list[int]) -> Iterator[None]:
    """The table without each of the units, one after the other."""
    for unit in units:
        connection.execute("CREATE OR REPLACE TEMP TABLE removed AS FROM stays WHERE who = ?", [unit])
        connection.execute("DELETE FROM stays WHERE who = ?", [unit])
        yield
        connection.execute("INSERT INTO stays FROM removed")


def largest_moves(connection: duckdb.DuckDBPyConnection, statement: str, units: list[int]) -> list[tuple[int, int]]:
    """For every measure, how far its tables move at most (L1), and how far they are claimed to."""
    found = plan_of(connection, statement)
    whole = exact_tables(connection, found)
    moves = [0] * len(whole)
    for _ in neighbours(connection, units):
        for number, table in enumerate(exact_tables(connection, found)):
            moves[number] = max(moves[number], int(np.abs(whole[number] - table).sum()))
    sets = len(
        found.request.question.grouping_sets
    )  # distinct values are measured, and paid for, once for each grouping set
    times = [sets if one.measure.form == "distinct" else 1 for one in found.measures]
    return [(move, one.unit_bound * n) for move, one, n in zip(moves, found.measures, times, strict=True)]


def moves_beyond_norms(connection: duckdb.DuckDBPyConnection, statement: str) -> tuple[int, list[str]]:
    """Returns the number of compared pairs of answers, and each move beyond a norm of its ask."""
    found = plan_of(connection, statement)
    whole = exact_answers(connection, found)
    compared, beyond = 0, []
    for _ in neighbours(connection, [1, 9, 17]):
        for (ask, before), (_, after) in zip(whole, exact_answers(connection, found), strict=True):
            norms, moved = ask.moves, np.abs(before - after)
            compared += 1
            if norms is None:
                beyond.append("an ask without norms")
                continue
            sizes = (moved.sum(), (moved * moved).sum(), moved.max())
            beyond += [f"{size} of {norm}" for size, norm in zip(sizes, norms, strict=True) if size > norm]
    return compared, beyond


@pytest.mark.sampled
@pytest.mark.parametrize("aggregates", AGGREGATES)
def test_no_unit_moves_a_table_by_more_than_is_claimed(stays: duckdb.DuckDBPyConnection, aggregates: str) -> None:
    """The claimed sensitivity of every aggregate holds over NULL, NaN, infinities and overflows, with and without
    joins, filters, FILTER clauses, expressions and bounds by group."""
    place = AGGREGATES.index(aggregates)
    from_sql, grouping = ROWS[place % len(ROWS)]
    for rows, group in {ROWS[place % 2]} if is_by_group(aggregates) else {(from_sql, grouping), ROWS[0]}:
        statement = f"{CLAUSE}{aggregates} {rows} {group}"
        for moved, claimed in largest_moves(stays, statement, [1 + (place + step) % 23 for step in (0, 11)]):
            assert 0 <= moved <= claimed


@pytest.mark.audit
@pytest.mark.parametrize("aggregates", AGGREGATES)
def test_sensitivity_of_every_unit_in_every_source(stays: duckdb.DuckDBPyConnection, aggregates: str) -> None:
    """Removes each unit in turn: no aggregate over any row source moves by more than its sensitivity."""
    for from_sql, grouping in ROWS[:2] if is_by_group(aggregates) else ROWS:
        for moved, claimed in largest_moves(stays, f"{CLAUSE}{aggregates} {from_sql} {grouping}", list(range(1, 24))):
            assert 0 <= moved <= claimed


@pytest.mark.parametrize("strategy", ["auto", "R", "F", "Q"])
@pytest.mark.parametrize("aggregates", BY_CELL)
def test_no_unit_moves_an_answer_by_more_than_is_priced(
    stays_in_rho: duckdb.DuckDBPyConnection, aggregates: str, strategy: str
) -> None:
    """Each ask's exact answers move by no more than its three norms, in the norm of the noise, whatever is measured.

    Bounds of one group are taken for the cells alone. Residuals and Fourier coefficients add up cells.
    """
    if "text" in aggregates and strategy != "auto":
        return  # values present are measured by themselves
    option = "" if strategy == "auto" else f", strategy = '{strategy}'"
    statement = f"{GAUSSIAN.format(option)}{aggregates} FROM stays GROUP BY sex, ward"
    compared, beyond = moves_beyond_norms(stays_in_rho, statement)
    assert compared >= 3
    assert beyond == []


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("aggregates", WEIGHED)
def test_no_unit_moves_a_weighed_answer_by_more_than_is_priced(
    stays_in_rho: duckdb.DuckDBPyConnection, aggregates: str, norm: int
) -> None:
    """Weighed units stay within their price, too: in a cube, over a join and over all rows."""
    clause = GAUSSIAN.format(f", max_norm_contributed = {norm}")
    for rows, group in (ROWS[1], ROWS[0]) if is_by_group(aggregates) else (ROWS[3], ROWS[0]):
        compared, beyond = moves_beyond_norms(stays_in_rho, f"{clause}{aggregates} {rows} {group}")
        assert compared >= 3
        assert beyond == []


@pytest.mark.parametrize(
    ("aggregates", "claimed"),
    [
        ("sum(big)", 300), ("avg(big)", 450), ("var_pop(big)", 3 * 150**2), ("count(*), avg(dec)", 30000),
        ("count(DISTINCT who)", 1), ("count(*, contribution_bounds_per_group => (0, 2))", 2),
        ("sum(dec, contribution_bounds_per_group => (1, 8))", 8000), ("count(DISTINCT text)", 3), ("median(big)", 3),
    ],
)  # fmt: skip
def test_the_claim_is_attained(aggregates: str, claimed: int) -> None:
    """A unit with all its rows at a bound moves the tables by exactly the claim: less noise would be too little."""
    with open_stays(units=8) as connection:
        connection.execute("DELETE FROM stays")
        connection.execute(
            "INSERT INTO stays SELECT 1, 'F', 'w0', 100, 1000, 1, 10, NULL, ['a', 'b', 'c'][i + 1], TRUE "
            "FROM range(3) AS r(i)"
        )
        moves = largest_moves(connection, f"{CLAUSE}{aggregates} FROM stays", [1])
        assert moves[0] == (claimed, claimed)


def test_sums_beyond_64_bits_wrap_and_never_raise() -> None:
    """HUGEINT values and a column of extreme integers are clamped before they are added: the sum is exact."""
    with open_stays("ROW") as connection:
        statement = f"{CLAUSE.replace('= 1)', '= 100)')}sum(huge), sum(big), sum(huge * huge * huge, "
        statement += "contribution_bounds_per_row => (-1, 1)) FROM stays"
        answer = connection.execute("FROM dp(?)", [statement]).fetchone()
        exact = connection.execute(
            "SELECT sum(round(least(greatest(huge, 0), 1000) / 10) * 10), sum(least(greatest(big, -50), 100)) "
            "FROM stays WHERE big IS NOT NULL"
        ).fetchone()
        assert answer is not None and exact is not None
        assert answer[:2] == pytest.approx(exact, abs=3000)
