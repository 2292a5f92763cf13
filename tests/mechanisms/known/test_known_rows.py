"""SAMPLE n FROM KNOWN: rows that fit all that is known of some columns, for nothing."""

from __future__ import annotations

from itertools import product

import pytest

from tests.support.clinics import Clinic

WARDS, GRADES = ("a", "b", "c"), range(5)
RELEASED = {
    "one": "sex, ward, count(*) AS n FROM visits GROUP BY CUBE (sex, ward)",
    "two": "ward, grade, count(*) AS n FROM visits WHERE NOT urgent GROUP BY ward, grade",
    "three": "ward, grade, count(*) AS n FROM visits GROUP BY ward, grade",
}
MADE = "CREATE PRIVATE TABLE made AS SAMPLE 6000 FROM KNOWN visits ({})"


@pytest.fixture
def visits(clinic: Clinic) -> Clinic:
    """A column, ward, that two releases share. No release has sex and grade together."""
    clinic.con.execute(
        "CREATE TABLE visits AS SELECT i // 3 AS patient, ['F', 'M'][i % 2 + 1] AS sex, "
        "['a', 'b', 'c', NULL][CAST(hash(i) % 4 AS INTEGER) + 1] AS ward, "
        "CAST(hash(i + 1) % (1 + hash(i) % 5) AS BIGINT) AS grade, i % 7 = 0 AS urgent FROM range(30000) AS r(i)"
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 3, BUDGET (epsilon = 100), "
        "DOMAIN sex IN ('F', 'M'), DOMAIN ward IN ('a', 'b', 'c') WITH NULL, DOMAIN grade RANGE 0 TO 5 STEP 1, "
        "DOMAIN urgent BOOLEAN)"
    )
    clinic.dp("ALTER PRIVACY POLICY ON visits PREPARE")
    for name, asked in RELEASED.items():
        clinic.dp(f"CREATE PRIVATE VIEW {name} OPTIONS (epsilon = 5) AS SELECT {asked}")
    return clinic


def spent(clinic: Clinic) -> float:
    ((found,),) = clinic.rows("SELECT sum(spent) FROM dp_budget()")
    return float(found)


def parts(clinic: Clinic, table: str, columns: str) -> dict[tuple[object, ...], float]:
    """The part of a table's rows that each combination of values has."""
    rows = clinic.rows(f"SELECT {columns}, count(*) / sum(count(*)) OVER () FROM {table} GROUP BY ALL")
    return {tuple(row[:-1]): float(row[-1]) for row in rows}


def test_rows_fit_all_that_is_known(visits: Clinic) -> None:
    """Both known tables hold in the rows to a percent, NULL among the wards. Their columns have the table's types."""
    before = spent(visits)
    visits.dp(MADE.format("sex, ward, grade"))
    for columns in ("sex, ward", "ward, grade"):
        true, drawn = (parts(visits, table, columns) for table in ("visits", "private.made"))
        assert max(abs(drawn.get(cell, 0.0) - part) for cell, part in true.items()) < 0.01
        assert set(drawn) <= set(true), "no row where nothing is but by noise of a hundredth"
    assert visits.rows("SELECT DISTINCT typeof(sex), typeof(grade) FROM private.made") == [("VARCHAR", "BIGINT")]
    assert spent(visits) == before


def test_columns_that_nothing_connects_are_independent(visits: Clinic) -> None:
    """Sex and grade are known only separately. The rows relate them no further."""
    visits.dp(MADE.format("sex, grade"))
    drawn = parts(visits, "private.made", "sex, grade")
    sexes, grades = (parts(visits, "private.made", column) for column in ("sex", "grade"))
    for sex, grade in product(("F", "M"), GRADES):
        assert drawn.get((sex, grade), 0.0) == pytest.approx(sexes[sex,] * grades.get((grade,), 0.0), abs=0.01)


def test_its_comment_says_what_it_rests_on(visits: Clinic) -> None:
    """It names both releases, and the guarantee of both together. The same statement again is the same table."""
    visits.dp(MADE.format("sex, ward, grade"))
    first = visits.rows("FROM private.made")
    assert visits.dp(MADE.format("sex, ward, grade")) == [("private.made is ready",)]
    assert visits.rows("FROM private.made") == first
    ((comment,),) = visits.rows("SELECT comment FROM duckdb_tables() WHERE table_name = 'made'")
    assert comment.startswith("differentially private, epsilon = 10 (pure); from release_")


def test_what_later_releases_add_needs_another_name(visits: Clinic) -> None:
    """A released table never changes: OR REPLACE makes a new one from everything known by then."""
    visits.dp(MADE.format("sex, ward, grade"))
    more = "sex, grade, count(*) AS n FROM visits GROUP BY ALL"
    visits.dp(f"CREATE PRIVATE VIEW four OPTIONS (epsilon = 5) AS SELECT {more}")
    assert "the private view 'made' exists" in visits.refused(MADE.format("sex, ward, grade"))
    visits.dp(MADE.format("sex, ward, grade").replace("CREATE", "CREATE OR REPLACE"))
    true, drawn = (parts(visits, table, "sex, grade") for table in ("visits", "private.made"))
    assert max(abs(drawn.get(cell, 0.0) - part) for cell, part in true.items()) < 0.01


def distance(clinic: Clinic, one: str, other: str, columns: str) -> float:
    """The total variation between two tables by some columns."""
    first, second = (parts(clinic, table, columns) for table in (one, other))
    return sum(abs(first.get(cell, 0.0) - second.get(cell, 0.0)) for cell in first.keys() | second.keys()) / 2


def test_a_margin_that_is_known_better_is_fitted(clinic: Clinic) -> None:
    """A margin that was released alone holds in the rows as dp_known has it, though a larger table is known, too.

    At epsilon 20 its noise is 0 but with a probability of 1e-7, so that the gate is about rounding. Errors were 0.0001
    in 60 runs, and 0.0015 or more with only the table in the fit. A false alarm needs a noise of 5 rows: 1e-40.
    """
    clinic.con.execute(
        "CREATE TABLE t AS SELECT CAST(floor(20 * pow((hash(i) % 1000) / 1000, 2)) AS BIGINT) AS x, "
        "CAST(floor(sqrt(hash(i + 1) % (1 + hash(i) % 144))) AS BIGINT) AS y FROM range(5000) AS r(i)"
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON t (PRIVACY UNIT ROW, BUDGET (epsilon = 100), "
        "DOMAIN x RANGE 0 TO 20 STEP 1 WITH NULL WITH EDGES, DOMAIN y RANGE 0 TO 12 STEP 1 WITH NULL WITH EDGES)"
    )
    clinic.dp("ALTER PRIVACY POLICY ON t PREPARE")
    cube = "x, y, count(*) AS n FROM t GROUP BY CUBE (x, y)"
    clinic.dp(f"CREATE PRIVATE VIEW both OPTIONS (epsilon = 1) AS SELECT {cube}")
    clinic.dp("CREATE PRIVATE VIEW one OPTIONS (epsilon = 20) AS SELECT y, count(*) AS n FROM t GROUP BY y")
    clinic.dp("CREATE PRIVATE TABLE made AS SAMPLE 100000 FROM KNOWN t (x, y)")
    asked = "SELECT y, count(*) AS n FROM t GROUP BY y"
    known = f"(SELECT unnest(range(CAST(round(n) AS BIGINT))), y FROM dp_known('{asked}'))"
    assert distance(clinic, known, "private.made", "y") < 0.0005


REFUSED = {
    "sex, urgent": "no release that you may read determines the counts of 'urgent'; accepted: a release of them",
    "sex, patient": "the column 'patient' has no public domain; accepted: a DOMAIN",
    "sex, sex": "a column is named twice",
    "sex, colour": "there is no column 'colour'; accepted: ",
}


def test_what_is_not_known_is_refused(visits: Clinic) -> None:
    """The refusal is one line, and says what would be accepted. Nothing is made and nothing charged."""
    lines = visits.all_refused([MADE.format(columns) for columns in REFUSED])
    assert [said in line for said, line in zip(REFUSED.values(), lines, strict=True)] == [True] * len(REFUSED), lines
    assert visits.rows("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'made'") == [(0,)]


def test_a_release_may_be_called_known(visits: Clinic) -> None:
    """FROM known without columns is a release of that name."""
    visits.dp("CREATE PRIVATE VIEW known OPTIONS (epsilon = 5) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex")
    visits.dp("CREATE PRIVATE TABLE made AS SAMPLE 10 FROM known")
    assert visits.rows("SELECT count(*) FROM private.made") == [(10,)]
