"""Private views with one row for each cell: whatever adds them up gets the consistent margins, with their errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import duckdb
import pytest

from dpduck.database.analyst_macros import install_analyst_macros
from dpduck.publish.publish import publish
from tests.mechanisms.known.known import make_visits
from tests.support.clinics import Clinic

KEYS = ("sex", "ward", "age")
TEXTS = "[sex, ward, CAST(age AS VARCHAR)]"
ITEMS = "sex, ward, age AS years, count(*) AS n, sum(charge) AS s"
VIEW = "CREATE PRIVATE VIEW cells OPTIONS (epsilon = 1, form = 'cells'{}) AS SELECT {} FROM visits GROUP BY {}"


def made(clinic: Clinic, grouping: str, more: str = "") -> None:
    """A view of cells of 1,000 visits."""
    make_visits(clinic, "patient MAX ROWS 4")
    view = VIEW.format(more, ITEMS, grouping)
    clinic.dp(view.replace("epsilon", "rho") if "'R'" in more else view)
    install_analyst_macros(clinic.con, clinic.value("SELECT current_database()"))


@pytest.mark.parametrize(
    ("grouping", "more"),
    [
        ("CUBE (sex, ward, age)", ""),
        ("CUBE (sex, ward, age)", ", strategy = 'R'"),
        ("MARGINALS (2, sex, ward, age)", ""),
        ("MARGINALS (2, sex, ward, age)", ", strategy = 'Q'"),
        ("GROUPING SETS ((sex, ward), (age, ward), ())", ", strategy = 'Q+'"),
    ],
)
def test_plain_sums_are_the_margins(clinic: Clinic, grouping: str, more: str) -> None:
    """Sums by any columns that were grouped by are the release's own margins, and so are the macro's errors."""
    made(clinic, grouping, more)
    assert clinic.rows("SELECT count(*), count(n), count(s) FROM private.cells") == [(80, 80, 80)]
    compared = 0
    for size in range(4):
        for kept in combinations(range(3), size):
            names = [("sex", "ward", "years")[place] for place in kept]
            rolled_up = sum(1 << place for place in range(3) if place not in kept)
            released = clinic.rows(
                f"SELECT answer_1, stderr_1, answer_2, stderr_2 FROM private.release_2 WHERE grouping_id = {rolled_up} "
                f"ORDER BY {', '.join(KEYS[place] for place in kept) or '1'}"
            )
            grouped = f"GROUP BY {', '.join(names)} ORDER BY {', '.join(names)}" if names else ""
            texts = TEXTS.replace("age", "years")
            found = clinic.rows(
                f"SELECT sum(n), dp_cells_stderr(n_variances, {texts}), sum(s), dp_cells_stderr(s_variances, {texts}) "
                f"FROM private.cells {grouped}"
            )
            if released:
                for row, one in zip(found, released, strict=True):
                    assert row == pytest.approx(one, rel=1e-9, abs=1e-6)
                compared += 1
    assert compared >= 3
    of_cell = f"any_value(n_stderr), dp_cells_stderr(n_variances, {TEXTS.replace('age', 'years')})"
    shown, error = clinic.rows(f"SELECT {of_cell} FROM private.cells GROUP BY sex, ward, years")[0]
    assert (shown is None and error is None) or shown == pytest.approx(error)


def test_sums_do_not_depend_on_their_order(clinic: Clinic) -> None:
    """Every client gets the same number to the last bit, in whatever order it adds up."""
    made(clinic, "MARGINALS (2, sex, ward, age)", ", strategy = 'R'")
    sums = {
        repr(clinic.value(f"SELECT list_reduce(list(n ORDER BY {order}), lambda a, b: a + b) FROM private.cells"))
        for order in ("n", "n DESC", "abs(n)", "hash(n)", "hash(-n)")
    }
    assert len(sums) == 1
    two_steps = "SELECT sum(m) FROM (SELECT sum(n) AS m FROM private.cells GROUP BY {})"
    sums |= {repr(clinic.value(two_steps.format(columns))) for columns in ("sex", "ward, sex", "years")}
    assert len(sums) == 1


def test_filters_and_what_is_not_determined(clinic: Clinic) -> None:
    """Sums over some values have the error that dp_known says. Undetermined sums have none. Safe ones are answered."""
    made(clinic, "MARGINALS (1, sex, ward, age)", ", strategy = 'Q'")
    texts = TEXTS.replace("age", "years")
    some = clinic.rows(f"SELECT sum(n), dp_cells_stderr(n_variances, {texts}) FROM private.cells WHERE years >= 20")[0]
    asked = "SELECT count(*) AS n FROM visits WHERE age >= 20"
    assert some == pytest.approx(clinic.rows(f"SELECT n, stderr FROM dp_known('{asked}')")[0], rel=1e-9)
    joint = f"SELECT dp_cells_stderr(n_variances, {texts}) FROM private.cells WHERE years >= 20 AND sex = 'F'"
    assert clinic.value(joint) is None
    assert clinic.value("SELECT n_stderr FROM private.cells LIMIT 1") is None


def test_a_view_of_cells_is_published_and_costs_what_the_release_does(
    open_clinic: Callable[..., Clinic], tmp_path: Path
) -> None:
    """A published file's own macro gives the errors. The same question without the form is the same release."""
    clinic = open_clinic(tmp_path / "clinic.duckdb")
    made(clinic, "CUBE (sex, ward, age)")
    spent = clinic.charges()
    clinic.dp(VIEW.format("", ITEMS, "CUBE (sex, ward, age)").replace(" cells ", " again "))
    clinic.dp(
        VIEW.format("", ITEMS, "CUBE (sex, ward, age)").replace(" cells ", " sets ").replace(", form = 'cells'", "")
    )
    assert clinic.charges() == spent
    clinic.con.close()
    publish(tmp_path / "clinic_private.duckdb", tmp_path / "public.duckdb")
    with duckdb.connect() as reader:
        reader.execute(f"ATTACH '{tmp_path / 'public.duckdb'}' AS published (READ_ONLY)")
        texts = TEXTS.replace("age", "years")
        found = reader.execute(
            f"SELECT sum(n), published.dp_cells_stderr(n_variances, {texts}) FROM published.cells GROUP BY ward"
        ).fetchall()
        assert len(found) == 4 and all(stderr > 0 for _, stderr in found)


def test_what_is_no_view_of_cells_is_refused(clinic: Clinic) -> None:
    """Before the charge, in one line each."""
    make_visits(clinic)
    refused = {
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 1, form = 'cells') sex, count(*) FROM visits GROUP BY sex": (
            "form is for private views"
        ),
        VIEW.format("", "sex, count(*) AS n", "sex, ward"): "needs all grouping columns",
        VIEW.format("", "sex, count(*) + 1 AS n", "sex"): "needs all grouping columns",
        VIEW.format("", "sex, avg(charge) AS n", "sex"): "does not add up",
        VIEW.format("", "sex, count(*) AS n", "sex HAVING n > 5"): "would leave cells out",
        VIEW.format(", nonnegative = TRUE", "sex, count(*) AS n", "sex"): "least squares",
        VIEW.format("", "age, count(*) AS n", "RANGES (age)"): "least squares",
        VIEW.format("", "count(*) AS n", "()"): "1 to 10 columns",
        VIEW.format("", "sex, count(*) AS n", "sex").replace("'cells'", "'rows'"): "form",
    }
    for statement, why in refused.items():
        assert why in clinic.refused(statement), statement
