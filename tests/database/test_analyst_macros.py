"""The SQL macros for analysts, on plain DuckDB connections without dpduck."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from dpduck.database.analyst_macros import install_analyst_macros
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.recovery.intervals import ErrorLaw, margin
from tests.support.clinics import macro_names

CUBE = """CREATE TABLE cube AS
    SELECT *, ['Sex, ward', 'Sex', 'ward', '()'][rolled_up + 1] AS grouping_level FROM (VALUES
    ('F', 'a', 1, 1.0, 0), ('M', 'a', 2, 1.0, 0), ('F', 'b', 5, 1.0, 0), ('M', 'b', 7, 1.0, 0),
    ('F', NULL, 6, 1.4, 1), ('M', NULL, 9, 1.4, 1), (NULL, 'a', 3, 1.4, 2), (NULL, 'b', 12, 1.4, 2),
    (NULL, NULL, 15, 2.0, 3)) AS t(Sex, ward, n, n_stderr, rolled_up)"""


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        install_analyst_macros(connection, "memory")
        connection.execute(CUBE)
        yield connection


def test_a_sum_of_cells_has_an_interval(con: duckdb.DuckDBPyConnection) -> None:
    """Requirement: intervals of sums of released cells. Safe by default, sharp where cells are independent."""
    ((sure,),) = con.execute("SELECT dp_sum_interval(n, n_stderr) FROM cube WHERE rolled_up = 0").fetchall()
    assert (sure["estimate"], sure["stderr"]) == (15, 4)
    ((sharp,),) = con.execute(
        "SELECT dp_sum_interval(n, n_stderr, independent := true) FROM cube WHERE rolled_up = 0"
    ).fetchall()
    assert (sharp["estimate"], sharp["stderr"]) == (15, 2)
    assert sure["low"] < sharp["low"] < 15 < sharp["high"] < sure["high"]
    rows = con.execute(
        "SELECT ward, dp_sum_interval(n, n_stderr, weight := CASE Sex WHEN 'F' THEN 1 ELSE -1 END).estimate "
        "FROM cube WHERE rolled_up = 0 GROUP BY ward ORDER BY ward"
    ).fetchall()
    assert rows == [("a", -1), ("b", -2)]


@pytest.mark.parametrize("stderr", [0.0, 0.3, 1.9, 2.1, 1e6])
def test_margins_are_those_of_dpduck(con: duckdb.DuckDBPyConnection, stderr: float) -> None:
    """The half-width is at least SumMargin's for Laplace noise, and at most a millionth wider."""
    law = ErrorLaw(NoiseKind.LAPLACE, None, stderr**2)
    gaussian = ErrorLaw(NoiseKind.GAUSSIAN, None, stderr**2)
    for confidence in ("0.5", "0.9", "0.95", "0.9515", "0.9999", "0.999999"):
        ((found,),) = con.execute(
            f"SELECT dp_sum_interval(0, $1, confidence := {confidence}).high", [stderr]
        ).fetchall()
        wanted = margin(law, Fraction(confidence))
        assert wanted * (1 - 1e-14) <= found <= wanted * (1 + 1e-6)
        assert found >= margin(gaussian, Fraction(confidence)) * (1 - 1e-14)


def test_the_normal_quantile_is_rounded_up(con: duckdb.DuckDBPyConnection) -> None:
    """Where the normal quantile decides, over the whole range of confidences: at least exact, within 1e-8."""
    levels = [Fraction(number, 1000) for number in range(500, 1000)]
    listed = ", ".join(f"({float(level)!r}::DOUBLE)" for level in levels)
    rows = con.execute(
        "SELECT c, dp_sum_interval(0, 1e9, confidence := any_value(c)).high "
        f"FROM (VALUES {listed}) AS t(c) GROUP BY c ORDER BY c"
    ).fetchall()
    for level, (_, found) in zip(levels, rows, strict=True):
        wanted = margin(ErrorLaw(NoiseKind.LAPLACE, None, 1e18), level)
        assert wanted * (1 - 1e-14) <= found <= wanted * (1 + 1e-8)


def test_a_confidence_out_of_range_is_refused(con: duckdb.DuckDBPyConnection) -> None:
    """One clear line."""
    with pytest.raises(duckdb.Error, match=r"confidence is out of range; accepted: confidence from 0\.5 to 0\.999999"):
        con.execute("SELECT dp_sum_interval(n, n_stderr, confidence := 1.0) FROM cube").fetchall()


@pytest.mark.parametrize(
    ("kept", "rolled_up", "expected"),
    [
        ("['sex']", "['WARD']", [("F", 6, 1), ("M", 9, 1)]),
        ("['ward']", "['sex']", [("a", 3, 2), ("b", 12, 2)]),
        ("[]", "['sex', 'ward']", [(15, 3)]),
    ],
)
def test_a_cube_gives_flat_margins(
    con: duckdb.DuckDBPyConnection, kept: str, rolled_up: str, expected: list[object]
) -> None:
    """Requirement: conversion of a cube's rolled-up rows to a flat margin, without the rolled-up columns."""
    sql = f"SELECT * EXCLUDE (n_stderr) FROM dp_margin('cube', {kept}, {rolled_up}) ORDER BY ALL"
    assert con.execute(sql).fetchall() == expected


def test_a_margin_of_all_columns_and_a_wrong_column(con: duckdb.DuckDBPyConnection) -> None:
    """With all columns kept, the margin is the base cells. A misspelt column is refused rather than ignored."""
    assert con.execute("SELECT sum(n), count(*) FROM dp_margin('cube', ['sex', 'ward'], [])").fetchall() == [(15, 4)]
    with pytest.raises(duckdb.Error, match="the cube has no such column; accepted: lists of its grouping columns"):
        con.execute("FROM dp_margin('cube', ['sex'], ['wards'])").fetchall()


def test_a_grouping_id_is_that_of_sql(con: duckdb.DuckDBPyConnection) -> None:
    """dp_grouping_id names margins as GROUPING does."""
    con.execute("CREATE TABLE rows AS FROM (VALUES (1, 2, 3)) AS t(a, b, c)")
    sql = (
        "SELECT list_filter([if(a IS NULL, NULL, 'a'), if(b IS NULL, NULL, 'b'), if(c IS NULL, NULL, 'c')], "
        "lambda x: x IS NOT NULL) AS kept, GROUPING(a, b, c) AS id FROM rows GROUP BY CUBE (a, b, c)"
    )
    assert con.execute(
        f"SELECT count(*), bool_and(id = dp_grouping_id(['a', 'b', 'c'], kept)) FROM ({sql})"
    ).fetchall() == [(8, True)]


def test_ranges_and_subsets_of_summaries(con: duckdb.DuckDBPyConnection) -> None:
    """Requirement: range and subset estimates. Absent keys count as 0, bins at the edges in proportion."""
    con.execute("CREATE TABLE bins AS SELECT range * 5 AS age, 10 AS n, 1.0 AS n_stderr FROM range(10)")
    estimates = ", ".join(
        f"dp_range_estimate(age, n, {low}, {high}, width := 5)" for low, high in ((7, 21), (5, 15), (90, 99))
    )
    one = con.execute(f"SELECT {estimates} FROM bins").fetchall()
    assert one == [(pytest.approx(6 + 10 + 10 + 2), 20, 0)]
    ((found,),) = con.execute(
        "SELECT dp_sum_interval(n, n_stderr, weight := dp_range_share(age, 5, 7, 21)) FROM bins"
    ).fetchall()
    assert found["estimate"] == pytest.approx(28)
    assert found["stderr"] == pytest.approx(2.8)
    assert con.execute(
        "SELECT dp_subset_estimate(n, Sex = 'F'), dp_subset_estimate(n, Sex = 'X') FROM cube"
    ).fetchall() == [(12, 0)]
    assert con.execute("SELECT dp_subset_estimate(n) FROM cube WHERE false").fetchall() == [(0,)]


def test_macros_work_from_an_attached_file(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Each macro stands alone: it works under another database's name, from a file that is read-only."""
    path = tmp_path / "macros.duckdb"
    with duckdb.connect(str(path)) as made:
        install_analyst_macros(made, "macros")
        made.execute(CUBE)
    with duckdb.connect() as reader:
        reader.execute(f"ATTACH '{path}' AS published (READ_ONLY)")
        calls = {
            "dp_sum_interval": "SELECT published.dp_sum_interval(n, n_stderr) FROM published.cube",
            "dp_subset_estimate": "SELECT published.dp_subset_estimate(n) FROM published.cube",
            "dp_range_share": "SELECT published.dp_range_share(1, 2, 3, 4)",
            "dp_range_estimate": "SELECT published.dp_range_estimate(n, n, 0, 9) FROM published.cube",
            "dp_margin": "FROM published.dp_margin('published.cube', ['sex'], ['ward'])",
            "dp_cells_stderr": "SELECT published.dp_cells_stderr('3|1,1', [ward]) FROM published.cube",
            "dp_grouping_id": "SELECT published.dp_grouping_id(['a'], ['a'])",
        }
        assert set(calls) == macro_names()
        for sql in calls.values():
            assert reader.execute(sql).fetchall()
