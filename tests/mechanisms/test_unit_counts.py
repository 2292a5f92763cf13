"""The bound on a unit's counted rows, and its effect on larger counts, is stated before the charge and in comments."""

from __future__ import annotations

import duckdb

import dpduck

COUNTED = "FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient)"
PRIVATE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 5)"


def test_bounds_of_counted_rows_are_said_before_the_charge() -> None:
    """Patients have 6 visits and MAX ROWS is 4: an average of 4 comes with the words that larger numbers are taken for
    4. With bounds of its own it is 6. The average's noise deviates by 0.001: 0.1 off has a chance below 1e-20."""
    steps: list[str] = []
    with duckdb.connect() as con:
        dpduck.load(con, steps=steps.append)
        con.execute("CREATE TABLE visits AS SELECT i // 6 AS patient FROM range(12000) AS r(i)")
        policy = "PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 100)"
        con.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON visits ({policy})"]).fetchall()
        for asked, bound, truth in (
            ("avg(n)", 4, 4.0),
            ("avg(n, contribution_bounds_per_row => (0, 20))", 20, 6.0),
            ("avg(2 * n)", 4, 8.0),
        ):
            steps.clear()
            said = f"takes a unit with more than {bound} rows for one with {bound}:"
            text = f"{PRIVATE} {asked} AS a {COUNTED}"
            assert said in con.execute("SELECT note FROM dp_explain(?) WHERE chosen", [text]).fetchall()[0][0]
            answer = con.execute("FROM dp(?)", [text]).fetchall()[0][0]
            assert abs(answer - truth) < 0.1
            (place,) = [number for number, step in enumerate(steps) if said in step]
            assert place < steps.index("before the charge")
        steps.clear()
        con.execute("FROM dp(?)", [f"{PRIVATE} count(*) AS n {COUNTED}"]).fetchall()
        assert not any("takes a unit" in step for step in steps)
        con.execute("FROM dp(?)", [f"CREATE PRIVATE VIEW v OPTIONS (epsilon = 5) AS SELECT avg(n) AS a {COUNTED}"])
        comments = con.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'v'").fetchall()
        assert "takes a unit with more than 4 rows for one with 4:" in comments[0][0]
