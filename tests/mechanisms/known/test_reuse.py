"""reuse = TRUE combines the measurement with known answers, at the same price, and stores the combined answer."""

from __future__ import annotations

import pytest

from tests.mechanisms.known.known import make_visits, release
from tests.support.clinics import Clinic

WARDS = "ward, count(*) AS n, dp_stderr(n) AS e, dp_interval_low(n) AS low FROM visits GROUP BY ward ORDER BY ward"
PLAIN = "SELECT ward, count(*) AS n FROM visits GROUP BY ward ORDER BY ward"


def reusing(clinic: Clinic, price: str, rest: str = WARDS) -> list[tuple[object, ...]]:
    """Answers a statement that reuses known answers."""
    return clinic.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}, reuse = TRUE) {rest}")


def test_an_answer_is_as_accurate_as_both_together(clinic: Clinic) -> None:
    """The answer equals a later known answer. It costs the same without reuse, is stored, and never changes."""
    make_visits(clinic, "patient MAX ROWS 4")
    release(clinic, "ward, sex, count(*) AS n FROM visits GROUP BY CUBE (ward, sex)", "epsilon = 1")
    asked = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, reuse = TRUE) {WARDS}"
    explained = clinic.con.execute("FROM dp_explain(?)", [asked])
    names = [column[0] for column in explained.description]
    said = dict(zip(names, explained.fetchall()[0], strict=True))
    found = clinic.dp(asked)
    errors = {float(str(row[2])) for row in found}
    assert max(errors) == pytest.approx(said["stderr_with_known"]) and max(errors) < said["stderr_alone"]
    assert said["stderr_alone"] == pytest.approx(said["worst_stderr"])
    known = clinic.rows(f"SELECT ward, n, stderr, interval_low FROM dp_known($$ {PLAIN} $$)")
    for row, of_known in zip(found, known, strict=True):
        assert row == pytest.approx(of_known)
    charges = clinic.charges()
    alone = clinic.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) {WARDS}")
    assert clinic.charges() == charges, "the release is that of the statement without reuse"
    assert [row[2] for row in alone] == pytest.approx([said["stderr_alone"]] * 4)
    release(clinic, "ward, count(*) AS n FROM visits GROUP BY ward", "epsilon = 5")
    assert clinic.dp(asked) == found, "an answer is stored, and never changes"
    assert clinic.rows(f"SELECT n FROM dp_known($$ {PLAIN} $$)") != [row[1:2] for row in found]
    narrow = reusing(clinic, "epsilon = 1, confidence = 0.5")
    assert all(float(str(row[3])) > float(str(before[3])) for row, before in zip(narrow, found, strict=True))


def test_a_target_pays_for_what_is_missing(clinic: Clinic) -> None:
    """If half of the precision is known, the other half is paid for. If all is known, a message says it is free."""
    make_visits(clinic)
    release(clinic, "ward, count(*) AS n FROM visits GROUP BY ward", "rho = 0.01")
    reached = reusing(clinic, "target_stderr = 5")
    assert 4.9 < float(str(reached[0][2])) <= 5
    paid = clinic.rows("SELECT rho FROM dp_ledger() ORDER BY id DESC LIMIT 1")[0][0]
    assert paid == pytest.approx(0.01, rel=0.01), "a variance of 25 costs rho = 0.02, of which half is there"
    assert reusing(clinic, "target_stderr = 5") == reached
    assert "known already" in clinic.refused(
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 20, reuse = TRUE) {WARDS}"
    )


def test_next_to_nothing_is_missing(clinic: Clinic) -> None:
    """A standard error of 5.0001 is known and 5 is asked for: a thousandth of the price pays for it."""
    make_visits(clinic)
    release(clinic, "ward, count(*) AS n FROM visits GROUP BY ward", "rho = 0.019999")
    assert clinic.value(f"SELECT max(stderr) FROM dp_known($$ {PLAIN} $$)") > 5
    reached = reusing(clinic, "target_stderr = 5")
    assert float(str(reached[0][2])) <= 5
    paid = clinic.rows("SELECT rho FROM dp_ledger() ORDER BY id DESC LIMIT 1")[0][0]
    assert paid == pytest.approx(0.02 / 1024, rel=0.01)


def test_what_is_not_combined(clinic: Clinic) -> None:
    """Rows that may change, and answers that are not as they were measured: refused before the charge."""
    make_visits(clinic)
    asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, reuse = TRUE{}) {}"
    assert "as they were measured" in clinic.refused(asked.format(", nonnegative = TRUE", WARDS))
    assert "not kept" in clinic.refused(asked.format("", "median(charge) AS m FROM visits"))
    clinic.dp("ALTER PRIVACY POLICY ON visits UNPREPARE")
    assert "cannot change meanwhile" in clinic.refused(asked.format("", WARDS))
    sparse = "CREATE PRIVATE HISTOGRAM h OPTIONS (epsilon = 1, delta = 1e-6, reuse = TRUE) AS SELECT charge FROM visits"
    assert "reuse" in clinic.refused(sparse)


def test_views_reuse_too(clinic: Clinic) -> None:
    """A view shows the combined answer and its guarantee. Averages have their own intervals."""
    make_visits(clinic)
    averages = "sex, avg(charge) AS a, dp_interval_low(a) AS low FROM visits GROUP BY sex"
    release(clinic, averages, "epsilon = 1")
    view = f"CREATE PRIVATE VIEW v OPTIONS (epsilon = 1, reuse = TRUE) AS SELECT {averages}"
    view = view.replace("GROUP BY sex", "GROUP BY ROLLUP (sex)")
    assert clinic.dp(view) == [("private.v is ready",)] == clinic.dp(view)
    assert clinic.charges() == 2
    shown = clinic.rows("FROM private.v WHERE a IS NOT NULL")
    assert all(low < a for sex, a, low, *_ in shown if sex != "x")
    assert all(low <= a for _, a, low, *_ in shown), "nobody is x: its average may be moved to where the range begins"
    comment = clinic.value("SELECT comment FROM duckdb_tables() WHERE table_name = 'v'")
    assert "epsilon = 2" in comment and "from release_3, release_2" in comment
