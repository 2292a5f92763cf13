"""Columns with a CLAMP in prepared rows give the counts of the table, and raise for no row."""

from __future__ import annotations

import duckdb
import pytest

import dpduck
from dpduck.kernel.columns.expressions import RelationColumn
from dpduck.kernel.counting.exact import job_sql
from dpduck.kernel.places.clamps import ClampedColumn, clamp_column, steps_sql, units_sql
from dpduck.kernel.places.prepared import over_prepared
from tests.kernel.places.test_prepared import asked, differing, jobs_of, prepared

POLICY = """CREATE PRIVACY POLICY ON bills (PRIVACY UNIT who MAX ROWS {rows}, BUDGET (epsilon = 100),
    DOMAIN kind IN ('a', 'b', 'c') WITH NULL, CLAMP price BETWEEN 0 AND 105000 STEP 1,
    CLAMP part BETWEEN 0 AND 0.1 STEP 0.01, CLAMP debt BETWEEN -20.5 AND 30.25 STEP 0.25,
    CLAMP whole BETWEEN -3 AND 7 STEP 1, CLAMP far BETWEEN 0 AND 900000 STEP 0.5,
    CLAMP real BETWEEN 0 AND 5 STEP 0.5, CLAMP other BETWEEN 0 AND 9 STEP 1)"""
STATEMENTS = (
    "kind, sum(price) AS s, sum(part) AS p, sum(debt) AS d, sum(whole) AS w FROM bills GROUP BY kind",
    "sum(price * (1 - part)) AS s, sum(price * (1 - part) * (1 + part)) AS t, avg(debt) AS d FROM bills",
    "kind, sum(CASE WHEN kind = 'a' THEN price * (1 - part) ELSE 0 END) AS s FROM bills GROUP BY kind",
    "sum(debt * whole - price) AS s, sum(-debt) AS m, sum(whole * whole) AS w FROM bills WHERE price > 100",
    "kind, sum(far) AS f, sum(far * price) AS g, sum(real) AS r, sum(real * part) AS x FROM bills GROUP BY kind",
    "avg(price) FILTER (WHERE whole > 0) AS a, stddev(debt) AS d, sum(other * part) AS o FROM bills",
    "sum(whole) AS a, count(DISTINCT who) AS n, sum(CASE WHEN whole > 1 THEN 1 ELSE 0 END) AS c FROM bills",
)


def open_bills(rows: int) -> duckdb.DuckDBPyConnection:
    """Opens bills of units of many sizes, with amounts inside, at and outside of bounds, type limits, and NULL."""
    connection = dpduck.connect()
    connection.execute(
        "CREATE TABLE bills AS SELECT nullif(i % 17 * (i % 5), 0) AS who, "
        "['a', 'b', 'c', 'x', NULL][i % 5 + 1] AS kind, "
        "CAST([0, 1.5, 104999.99, 105000, 105000.01, -0.01, 9999999999999.99, -9999999999999.99, NULL, 0.5]"
        "[i % 10 + 1] AS DECIMAL(15,2)) AS price, "
        "CAST([0, 0.01, 0.05, 0.1, 0.11, -99.99, 99.99, NULL][i % 8 + 1] AS DECIMAL(4,2)) AS part, "
        "CAST([-20.5, 30.25, -30, 0.125, 0.13, -0.37, 12.38, NULL, 9999][i % 9 + 1] AS DECIMAL(9,2)) AS debt, "
        "CAST([-3, 7, -128, 127, 0, NULL, 1][i % 7 + 1] AS TINYINT) AS whole, "
        "CAST([0, 9223372036854775807, -9223372036854775808, 899999, NULL][i % 5 + 1] AS BIGINT) AS far, "
        "CAST(['nan', 'inf', '-inf', '2.25', '1e300', NULL][i % 6 + 1] AS DOUBLE) AS real, "
        "CAST(i % 7 AS DECIMAL(6,3)) AS other FROM range(700) AS r(i)"
    )
    connection.execute("FROM dp(?)", [POLICY.format(rows=rows)])
    return connection


@pytest.mark.parametrize("rows", [2, 9, 60])
def test_sums_over_cut_columns_are_those_of_the_table(rows: int) -> None:
    """Sums over prepared whole numbers equal sums over the columns, whatever the values are."""
    with open_bills(rows) as connection:
        assert differing(connection, STATEMENTS, "bills") == []


def test_what_is_read_of_cut_columns() -> None:
    """Sums read steps of a prepared column, and products read its units. Under a changed CLAMP the column is read."""
    with open_bills(9) as connection:
        other, twins = prepared(connection, "bills")

        def sql(statement: str) -> str:
            (job,) = jobs_of(connection, statement)
            with other.cursor() as second:
                counted = over_prepared(job, twins, {}, asked(second))
            return job_sql(counted)

        assert '"dpduck_steps_0"' in sql("sum(price) AS s FROM bills") and '"price"' not in sql("sum(price) FROM bills")
        both = sql("sum(price * (1 - part)) AS s FROM bills")
        assert '"dpduck_units_0"' in both and '"dpduck_units_1"' in both and "DECIMAL" not in both
        connection.execute("FROM dp('ALTER PRIVACY POLICY ON bills SET CLAMP price BETWEEN 0 AND 9 STEP 1')")
        assert '"price"' in sql("sum(price) AS s FROM bills") and "dpduck_steps" not in sql("sum(price) FROM bills")
        assert differing(connection, STATEMENTS, "bills") == []


def test_which_columns_are_held_cut() -> None:
    """Decimals and signed integers are prepared cut, if their bounds are whole in the last place and fit 32 bits."""
    assert clamp_column("x", "DECIMAL(15,2)", "0", "0.1", "0.01") == ClampedColumn(
        "x", "DECIMAL(15,2)", "0", "0.1", "0.01"
    )
    for refused in (
        ("x", "DOUBLE", "0", "1", "0.5"),
        ("x", "DECIMAL(15,2)", "0", "0.125", "0.125"),
        ("x", "DECIMAL(15,2)", "0", "99999999", "1"),
        ("x", "DECIMAL(15,9)", "0", "1", "1"),
        ("x", "UTINYINT", "0", "1", "1"),
        ("x", "DECIMAL(19,2)", "0", "1", "1"),
        ("x", "DECIMAL(18,0)", "0", "000000000000000005", "1"),
        ("x", "DECIMAL(5,2)", "0", "100000", "1"),
    ):
        assert clamp_column(*refused) is None, refused
    uneven = clamp_column("x", "INTEGER", "0", "10", "3")
    assert (
        uneven is not None
        and uneven.steps is None
        and uneven.clamped_columns(0, RelationColumn("r", "x", "INTEGER")).steps_sql == ""
    )


@pytest.mark.parametrize("type_name", ["DECIMAL(18,2)", "DECIMAL(5,4)", "DECIMAL(18,6)", "BIGINT", "TINYINT"])
def test_columns_are_cut_without_an_error(type_name: str) -> None:
    """Every value of the column's type has units and steps, also the largest one."""
    clamped = clamp_column("x", type_name, "-1", "2", "0.5")
    assert clamped is not None
    whole = "9" * 38 if "(" not in type_name else "9" * int(type_name[8:].partition(",")[0])
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t (x {type_name})")
        largest = {"BIGINT": str(2**63 - 1), "TINYINT": "127"}.get(type_name)
        scale = clamped.scale
        largest = largest or f"{whole[: len(whole) - scale]}.{'9' * scale}"
        connection.execute(f"INSERT INTO t VALUES ({largest}), (-{largest}), (0), (1), (NULL)")
        column = RelationColumn("t", "x", type_name)
        units, steps = units_sql(clamped, column), steps_sql(clamped, column)
        found = connection.execute(f"SELECT {units}, {steps} FROM t").fetchall()
    factor = 10**scale
    assert found == [(2 * factor, 6), (-factor, 0), (0, 2), (factor, 4), (None, None)]


@pytest.mark.parametrize(
    ("type_name", "low", "high"),
    [
        ("INTEGER", "0", "2000000000"),
        ("INTEGER", "0.0", "5.0"),
        ("DECIMAL(5,2)", "0", "100000"),
        ("DECIMAL(5,2)", "0.000", "5.000"),
        ("DECIMAL(4,4)", "-1", "1"),
        ("DECIMAL(18,0)", "0", "000000000000000005"),
    ],
)
def test_bounds_that_no_column_is_compared_with(type_name: str, low: str, high: str) -> None:
    """A CLAMP wider than its column's type, or written with more digits, is prepared, and counts are the same."""
    with dpduck.connect() as connection:
        connection.execute(
            f"CREATE TABLE bills AS SELECT i % 7 AS who, CAST([0, 0.5, -0.25, NULL][i % 4 + 1] AS {type_name}) AS x "
            "FROM range(50) AS r(i)"
        )
        connection.execute(
            "FROM dp(?)",
            [
                "CREATE PRIVACY POLICY ON bills (PRIVACY UNIT who MAX ROWS 3, BUDGET (epsilon = 100), "
                f"CLAMP x BETWEEN {low} AND {high} STEP 1)"
            ],
        )
        connection.execute("FROM dp('ALTER PRIVACY POLICY ON bills PREPARE')")
        assert differing(connection, ("sum(x) AS s, sum(2 * x) AS t FROM bills",), "bills") == []
