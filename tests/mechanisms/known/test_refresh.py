"""REFRESH PRIVATE VIEW: newer rows under the old name, from everything that is known, for nothing."""

from __future__ import annotations

import duckdb
import pytest

from tests.mechanisms.known.known import make_visits, release
from tests.support.clinics import Clinic

WARDS = "CREATE PRIVATE VIEW wards OPTIONS (epsilon = 1) AS SELECT ward, count(*) AS n, dp_interval_low(n) AS low "
WARDS += "FROM visits GROUP BY ward"


def test_a_newer_table_under_the_old_name(clinic: Clinic) -> None:
    """The same columns and confidence; rows, errors and the guarantee are those of all releases together; no charge."""
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
    """One line each, and the view stays what it was."""
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
