"""REFRESH PRIVATE VIEW: newer rows under the old name, from everything that is known, for nothing."""

from __future__ import annotations

import duckdb
import pytest

from tests.mechanisms.known.known import make_visits, release
from tests.support.clinics import Clinic

WARDS = "CREATE PRIVATE VIEW wards OPTIONS (epsilon = 1) AS SELECT ward, count(*) AS n, dp_interval_low(n) AS low "
WARDS += "FROM visits GROUP BY ward"


def test_a_newer_table_under_the_old_name(clinic: Clinic) -> None:
    """Columns and confidence stay. Rows, errors and the guarantee are those of all releases together. No charge."""
    make_visits(clinic, "patient MAX ROWS 4")
    clinic.dp(WARDS)
    before = clinic.con.execute("FROM private.wards ORDER BY ward").fetchall()
    release(clinic, "ward, sex, count(*) AS n FROM visits GROUP BY CUBE (ward, sex)", "epsilon = 2")
    spent = clinic.charges()
    assert clinic.dp("REFRESH PRIVATE VIEW wards") == [("private.wards is ready",)]
    after = clinic.con.execute("FROM private.wards ORDER BY ward")
    assert [column[0] for column in after.description] == ["ward", "n", "low", "n_stderr"]
    known = "SELECT ward, n, interval_low, stderr FROM dp_known('SELECT ward, count(*) AS n FROM visits GROUP BY ward')"
    rows = after.fetchall()
    for row, old, of_known in zip(rows, before, clinic.rows(f"{known} ORDER BY ward"), strict=True):
        assert row == pytest.approx(of_known) and row[3] < old[3]
    comment = clinic.value("SELECT comment FROM duckdb_tables() WHERE table_name = 'wards'")
    assert "epsilon = 3" in comment and "from release_2, release_3" in comment
    assert clinic.dp(WARDS) == [("private.wards is ready",)] and clinic.charges() == spent
    assert clinic.con.execute("FROM private.wards ORDER BY ward").fetchall() == rows, "made once under its name"
    assert clinic.rows("SELECT count(*) FROM private.release_2") == [(4,)], "what was released stays as it was"
    release(clinic, "ward, count(*) AS n FROM visits GROUP BY ward", "rho = 0.5")
    clinic.dp("REFRESH PRIVATE VIEW wards")
    again = clinic.rows("SELECT any_value(n_stderr) FROM private.wards")[0][0]
    assert again < rows[0][3]
    comment = clinic.value("SELECT comment FROM duckdb_tables() WHERE table_name = 'wards'")
    assert "rho = 2.48" in comment, "epsilon 1 is rho 0.462 at most, epsilon 2 is 1.523"
    with pytest.raises(duckdb.Error, match="rests on several releases"):
        clinic.con.execute("FROM dp_stderr_of('wards', 'n + n')").fetchall()


def test_what_is_not_refreshed(clinic: Clinic) -> None:
    """Each refusal is one line, and the view stays as before."""
    make_visits(clinic)
    view = "CREATE PRIVATE VIEW {} OPTIONS (epsilon = 1{}) AS SELECT sex, {} AS n FROM visits GROUP BY sex"
    clinic.dp(view.format("positive", ", nonnegative = TRUE", "count(*)"))
    clinic.dp(view.format("cells", ", form = 'cells'", "count(*)"))
    clinic.dp(view.format("middle", "", "median(charge)"))
    before = clinic.rows("FROM private.middle")
    assert "as they were measured" in clinic.refused("REFRESH PRIVATE VIEW positive")
    assert "as they were measured" in clinic.refused("REFRESH PRIVATE VIEW cells")
    assert "no release that you may read determines median" in clinic.refused("REFRESH PRIVATE VIEW middle")
    assert "there is no private view 'other'" in clinic.refused("REFRESH PRIVATE VIEW other")
    assert "not expected" in clinic.refused("REFRESH PRIVATE VIEW middle AS SELECT 1")
    assert clinic.rows("FROM private.middle") == before


def test_other_rows_do_not_take_a_view_s_name(clinic: Clinic) -> None:
    """A view stays as it is where the answers known now lack some of its rows, or cut other rows to MAX ROWS.

    The estimate of all rows is 100 standard deviations from the wrong ones.
    """
    clinic.con.execute("CREATE TABLE p AS SELECT range // 3 AS unit, ['F', 'M', 'x'][1 + range % 3] AS s, "
                       "range % 3 AS a FROM range(9000)")  # fmt: skip
    clinic.dp(
        "CREATE PRIVACY POLICY ON p (PRIVACY UNIT unit MAX ROWS 3, BUDGET (epsilon = 1000), DOMAIN s IN ('F', 'M'), "
        "DOMAIN a RANGE 0 TO 3 STEP 1 WITH NULL WITH EDGES)"
    )
    clinic.dp("ALTER PRIVACY POLICY ON p PREPARE")
    clinic.dp("CREATE PRIVATE VIEW total OPTIONS (epsilon = 20) AS SELECT count(*) AS n FROM p")
    clinic.dp("CREATE PRIVATE VIEW first OPTIONS (epsilon = 20) AS SELECT count(*) AS n FROM p WHERE a < 1")
    release(clinic, "s, count(*) AS n FROM p GROUP BY s", "epsilon = 90")
    clinic.dp("REFRESH PRIVATE VIEW total")
    assert clinic.value("SELECT n FROM private.total") == pytest.approx(9000, abs=30), "not 6,000"
    clinic.dp("ALTER PRIVACY POLICY ON p UNPREPARE")
    clinic.dp("ALTER PRIVACY POLICY ON p PREPARE")
    release(clinic, "s, a, count(*) AS n FROM p GROUP BY CUBE (s, a)", "epsilon = 90")
    comments = "SELECT table_name, comment FROM duckdb_tables() WHERE table_name IN ('total', 'first') ORDER BY ALL"
    asked = [comments, "FROM private.total", "FROM private.first"]
    before = [clinic.rows(one) for one in asked]
    left_out = "rows with s outside of its domain are not counted"
    for name, why in (("total", left_out), ("first", f"{left_out}; MAX ROWS was applied before WHERE")):
        line = clinic.refused(f"REFRESH PRIVATE VIEW {name}")
        assert f"what is known is about other rows than {name!r}: {why}; accepted: CREATE OR REPLACE" in line
    assert [clinic.rows(one) for one in asked] == before
    release(clinic, "a, count(*) AS n FROM p GROUP BY a", "epsilon = 6")
    clinic.dp("REFRESH PRIVATE VIEW total")
    assert clinic.value("SELECT n_stderr FROM private.total") > 1, "by the groups of a, which leave out no row"
