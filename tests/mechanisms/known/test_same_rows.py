"""Only answers about the same rows are combined, only for those who may read them, and nothing here reaches a row."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.database.functions import database_of
from tests.mechanisms.known.known import make_visits, release
from tests.support.clinics import Clinic, by, one_line

PACKAGE = Path(dpduck.__file__).resolve().parent
BY_SEX = "SELECT sex, count(*) AS n FROM visits GROUP BY sex"
SEX, CUBE = (
    "sex, count(*) AS n FROM visits GROUP BY sex",
    "sex, ward, count(*) AS n FROM visits GROUP BY CUBE (sex, ward)",
)


BEHIND_THE_DOOR = tuple(
    f"dpduck.kernel.{name}" for name in ("rows", "worker", "places", "counting", "queries", "door", "stage", "loss")
)
"""What reads rows, and what counts them."""
COMPUTING, SHOWING = ("answer", "axes", "cells", "chosen_tables", "tables"), ("known_table", "margins")
"""Modules of mechanisms/known that compute answers, and modules that put answers into tables."""


def resting_on(clinic: Clinic, statement: str = BY_SEX) -> str:
    """Returns the releases on which a known answer says it rests."""
    return str(clinic.con.execute("SELECT any_value(known_from) FROM dp_known(?)", [statement]).fetchall()[0][0])


def stderr(clinic: Clinic, statement: str = BY_SEX) -> float:
    """Its largest standard error."""
    return float(clinic.con.execute("SELECT max(stderr) FROM dp_known(?)", [statement]).fetchall()[0][0])


def test_rows_of_one_moment_alone_are_combined(clinic: Clinic) -> None:
    """A live table's releases stand alone. A prepared one's are combined until it is prepared anew. Epochs end all."""
    make_visits(clinic)
    clinic.dp("ALTER PRIVACY POLICY ON visits UNPREPARE")
    release(clinic, SEX, "epsilon = 1")
    alone = stderr(clinic)
    release(clinic, CUBE, "epsilon = 0.5")
    assert stderr(clinic) == alone and resting_on(clinic).startswith("release_2 of 20")
    clinic.dp("ALTER PRIVACY POLICY ON visits PREPARE")
    for number in range(2):
        release(clinic, SEX, f"epsilon = 1, refresh = '{number}'")
    assert resting_on(clinic) == "release_4, release_5"
    assert stderr(clinic) == pytest.approx(alone / 2**0.5, rel=1e-9)
    clinic.dp("ALTER PRIVACY POLICY ON visits UNPREPARE")
    clinic.dp("ALTER PRIVACY POLICY ON visits PREPARE")
    assert resting_on(clinic).startswith("release_4, release_5 of 20"), "prepared rows of before, by their date"
    release(clinic, SEX, "epsilon = 1, refresh = 'other rows'")
    assert resting_on(clinic) == "release_6", "the rows of now come first, whatever older ones knew"
    clinic.dp("ALTER PRIVACY POLICY ON visits NEW EPOCH")
    with pytest.raises(duckdb.Error, match="no release that you may read determines"):
        resting_on(clinic)


def test_a_database_that_is_opened_for_reading_cannot_change(
    open_clinic: Callable[..., Clinic], tmp_path: Path
) -> None:
    """Its releases are combined, and those of another session are not: it may have been written between them."""
    path = tmp_path / "clinic.duckdb"
    made = open_clinic(path)
    made.fill()
    made.protect()
    made.con.close()
    answers = []
    for session in range(2):
        read = open_clinic(path, read_only=True)
        for number in range(2):
            read.dp(by("sex", more=f"refresh = '{session} {number}'"))
        answers.append((resting_on(read), stderr(read)))
        read.con.close()
    assert [told for told, _ in answers] == ["release_2, release_3", "release_4, release_5"]
    assert answers[0][1] == answers[1][1]
    assert answers[0][1] == pytest.approx(answers[0][1])


def test_what_domains_leave_out_is_not_added_up(clinic: Clinic) -> None:
    """Rows that one release drops and another counts are no noise. The answer names the columns of missing rows."""
    clinic.con.execute("CREATE TABLE visits AS SELECT range // 2 AS patient, range % 2 AS sex, range % 3 AS ward "
                       "FROM range(100)")  # fmt: skip
    clinic.dp(
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 2, BUDGET (epsilon = 1000), "
        "DOMAIN sex IN (0, 1), DOMAIN ward IN (0, 1))"
    )
    clinic.dp("ALTER PRIVACY POLICY ON visits PREPARE")
    release(clinic, CUBE, "epsilon = 90")
    assert resting_on(clinic) == "release_2; rows with ward outside of its domain are not counted"
    assert clinic.value(f"SELECT sum(n) FROM dp_known('{BY_SEX}')") == pytest.approx(67, abs=4)
    release(clinic, SEX, "epsilon = 95")
    assert resting_on(clinic) == "release_3"
    assert clinic.value(f"SELECT sum(n) FROM dp_known('{BY_SEX}')") == pytest.approx(100, abs=4)
    inside = "SELECT sex, count(*) AS n FROM visits WHERE ward IN (0, 1) GROUP BY sex"
    assert resting_on(clinic, inside) == "release_2"
    open_ended = "SELECT sex, count(*) AS n FROM visits WHERE ward >= 1 GROUP BY sex"
    assert resting_on(clinic, open_ended) == (
        "release_2; rows with ward outside of its domain are not counted; MAX ROWS was applied before WHERE"
    )


def people(clinic: Clinic) -> None:
    """9,000 prepared rows. A third is outside of s's domain, and a quarter outside of a's."""
    clinic.con.execute("CREATE TABLE p AS SELECT ['F', 'M', 'x'][1 + range % 3] AS s, range % 4 AS a FROM range(9000)")
    clinic.dp(
        "CREATE PRIVACY POLICY ON p (PRIVACY UNIT ROW, BUDGET (epsilon = 1000), DOMAIN s IN ('F', 'M'), "
        "DOMAIN a IN (0, 1, 2))"
    )
    clinic.dp("ALTER PRIVACY POLICY ON p PREPARE")


TOTAL, BY_A = "SELECT count(*) AS n FROM p", "SELECT a, count(*) AS n FROM p GROUP BY a"


def test_the_right_rows_go_before_the_least_noise(clinic: Clinic) -> None:
    """Releases of less error that leave out rows of the question answer only where no other release does.

    The estimate is 600 standard deviations from the wrong rows. Of answers that leave rows out, the one that lacks rows
    of fewer columns goes first.
    """
    people(clinic)
    release(clinic, "s, a, count(*) AS n FROM p GROUP BY CUBE (s, a)", "epsilon = 100")
    assert resting_on(clinic, TOTAL) == "release_2; rows with a or s outside of its domain are not counted"
    release(clinic, "s, count(*) AS n FROM p GROUP BY s", "epsilon = 10")
    assert resting_on(clinic, TOTAL) == "release_3; rows with s outside of its domain are not counted"
    release(clinic, "count(*) AS n FROM p", "epsilon = 0.5")
    release(clinic, "a, count(*) AS n FROM p GROUP BY a", "epsilon = 0.5")
    for question, source, rows in ((TOTAL, "release_4", 9000), (BY_A, "release_5", 6750)):
        assert resting_on(clinic, question) == source
        assert clinic.value(f"SELECT sum(n) FROM dp_known('{question}')") == pytest.approx(rows, abs=300)
        assert stderr(clinic, question) == pytest.approx(8**0.5, rel=0.05)
    reused = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 3, reuse = TRUE) count(*) AS n FROM p"
    assert "is known already" in clinic.refused(reused), "and it is found before anything is paid for"
    release(clinic, "count(*) AS n FROM p", "epsilon = 1")
    assert resting_on(clinic, TOTAL) == "release_4, release_6"


def test_a_condition_before_max_rows_is_another_set_of_rows(clinic: Clinic) -> None:
    """WHERE comes before MAX ROWS, FILTER after it: the two are not combined. A known answer follows SQL's meaning."""
    make_visits(clinic, "patient MAX ROWS 1")
    where = "SELECT count(*) AS n FROM visits WHERE sex = 'F'"
    filtered = "SELECT count(*) FILTER (WHERE sex = 'F') AS n FROM visits"
    release(clinic, CUBE, "epsilon = 90")
    assert resting_on(clinic, where) == "release_2; MAX ROWS was applied before WHERE"
    assert resting_on(clinic, filtered) == "release_2"
    release(clinic, where[7:], "epsilon = 20")
    assert resting_on(clinic, where) == "release_3", "of more error, and what WHERE means"
    assert resting_on(clinic, filtered) == "release_2"
    women, rows = [clinic.value(f"SELECT n FROM dp_known($$ {one} $$)") for one in (where, filtered)]
    exact = clinic.value("SELECT count(DISTINCT patient) FROM visits WHERE sex = 'F'")
    assert women == pytest.approx(exact, abs=3) and rows < exact - 20
    release(clinic, filtered[7:], "epsilon = 20")
    assert resting_on(clinic, filtered) == "release_2, release_4"
    other = "SELECT count(*) FILTER (WHERE sex = 'F' AND age < 20) AS n FROM visits"
    release(clinic, "count(*) AS n FROM visits WHERE sex = 'F' AND age < 20", "epsilon = 2")
    assert resting_on(clinic, other) == "release_5; MAX ROWS was applied after FILTER"


def test_what_was_measured_counts_not_what_was_shown(clinic: Clinic) -> None:
    """Options that move answers after the noise bias no known answer: it equals that of the release without options."""
    make_visits(clinic)
    release(clinic, CUBE, "epsilon = 0.01, nonnegative = TRUE, integer = TRUE")
    shown = clinic.rows("SELECT min(answer_1), sum(answer_1) FROM private.release_2 WHERE grouping_id = 0")
    assert shown[0][0] >= 0
    cells = "SELECT sex, ward, count(*) AS n FROM visits GROUP BY sex, ward"
    measured = "SELECT sex, ward, raw_1 FROM private.release_2 WHERE grouping_id = 0 ORDER BY ALL"
    assert clinic.rows(f"SELECT sex, ward, n FROM dp_known('{cells}') ORDER BY ALL") == clinic.rows(measured)
    plain = stderr(clinic, cells)
    release(clinic, CUBE, "epsilon = 0.01, refresh = 'plain'")
    assert stderr(clinic, cells) == pytest.approx(plain / 2**0.5, rel=1e-9)


def test_a_store_of_the_version_before(clinic_path: Path, open_clinic: Callable[..., Clinic]) -> None:
    """The store opens and answers. Its earlier releases are not known answers. New releases are."""
    old = open_clinic(clinic_path)
    old.fill()
    old.protect()
    old.dp(by("sex"))
    old.con.execute("DROP TABLE private.dpduck.measured")
    old.con.close()
    opened = open_clinic(clinic_path)
    with pytest.raises(duckdb.Error) as caught:
        resting_on(opened)
    assert "nothing was measured of this table" in one_line(caught.value)
    assert opened.dp(by("sex")) and opened.charges() == 1
    opened.dp(by("sex", "2"))
    assert resting_on(opened).startswith("release_3 of 20")


@pytest.fixture
def clinic_path(tmp_path: Path) -> Path:
    """Where a clinic lies."""
    return tmp_path / "clinic.duckdb"


def reached(module: str, seen: set[str]) -> set[str]:
    """Every module of dpduck that this one imports, and those that these import."""
    path = PACKAGE.parent / (module.replace(".", "/") + ".py")
    if module in seen or not path.is_file():
        return seen
    seen.add(module)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpduck"):
            for name in (node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)):
                reached(name, seen)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                reached(alias.name, seen)
    return seen


@pytest.mark.slow
def test_known_answers_cannot_reach_rows() -> None:
    """Modules that compute known answers never import, even indirectly, the reader, the door or code that reads rows.

    The others put answers into tables, or plan what a statement with reuse pays for. Two modules behind the door are
    allowed: they look at matrices and at expressions, and at no row.
    """
    names = {path.stem for path in (PACKAGE / "mechanisms" / "known").glob("*.py")}
    assert names == {"__init__", *COMPUTING, *SHOWING, "given", "reuse", "statements"}
    modules = [f"dpduck.mechanisms.known.{name}" for name in COMPUTING]
    found = set[str]().union(*(reached(module, set()) for module in modules))
    assert {"dpduck.strategies.recovery.estimator", "dpduck.store.measured"} <= found
    of_texts = {"dpduck.kernel.queries.operators", "dpduck.kernel.worker.functions"}
    rows = {name for name in found if name.startswith(BEHIND_THE_DOOR)} - of_texts
    assert rows == set()
    assert "dpduck.kernel.door" in reached("dpduck.mechanisms.release", set()), "imports are followed"
    assert "dpduck.kernel.rows.reader" in reached("dpduck.store.prepared", set())
    for name in SHOWING:
        around = reached(f"dpduck.mechanisms.known.{name}", set())
        assert not around & {f"dpduck.kernel.{name}" for name in ("rows.reader", "rows.scan", "door", "counting.jobs")}
        text = (PACKAGE / "mechanisms" / "known" / f"{name}.py").read_text(encoding="utf-8")
        assert "kernel" not in text and "Catalog" not in text


def test_nothing_is_read_where_a_table_is_gone(clinic: Clinic) -> None:
    """A known answer is the same whatever happens to the rows: it is a function of released tables alone."""
    make_visits(clinic)
    release(clinic, CUBE, "epsilon = 1")
    before = clinic.con.execute("FROM dp_known(?)", [BY_SEX]).fetchall()
    clinic.con.execute("DELETE FROM visits")
    assert database_of(clinic.con) is not None
    assert clinic.con.execute("FROM dp_known(?)", [BY_SEX]).fetchall() == before
