"""Totals beside groups of NULL: the column grouping_level, dp_margin, dp_stderr_of and dp_ratio_of over cubes."""

from __future__ import annotations

from itertools import combinations

import duckdb
import pytest

import dpduck
from dpduck.database.analyst_macros import install_analyst_macros
from tests.support.clinics import Clinic, one_line

POLICY = """CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient MAX ROWS 1, BUDGET (epsilon = 100000),
    DOMAIN sex IN ('F', 'M') WITH NULL, DOMAIN ward IN ('n', 's') WITH NULL WITH OTHER 'other',
    DOMAIN "born in" RANGE 1990 TO 2010 STEP 10 WITH NULL, DOMAIN old IN (FALSE, TRUE))"""
ROWS = """CREATE TABLE stays AS SELECT range AS patient,
    CASE range % 4 WHEN 0 THEN NULL WHEN 1 THEN 'M' ELSE 'F' END AS sex,
    CASE WHEN range % 3 > 0 THEN ['n', 's', 'e', 'w'][range % 7 % 4 + 1] END AS ward,
    CASE WHEN range % 5 > 0 THEN 1990 + range % 20 END AS "born in", range % 7 = 0 AS old FROM range(3000)"""
KEYS = ("sex", "ward", "born in")
BINNED = {
    "sex": "sex",
    "ward": "CASE WHEN ward IN ('n', 's') OR ward IS NULL THEN ward ELSE 'other' END",
    "born in": '"born in" // 10 * 10',
}
ONCE = "OPTIONS (epsilon = 100, strategy = 'I')"
EACH = "OPTIONS (epsilon = 100, strategy = 'Q', budgets = 'uniform')"
"""Each table has noise at epsilon 33 or more, which is 0 but for a chance below 1e-12: counts are those of the rows."""


def exact(con: duckdb.DuckDBPyConnection, kept: tuple[str, ...]) -> list[tuple[object, ...]]:
    """The margin of some keys as DuckDB counts it."""
    listed = ", ".join(BINNED[key] for key in kept)
    places = ", ".join(str(place) for place in range(1, len(kept) + 1))
    sql = f"SELECT {listed}{', ' if kept else ''}count(*) FROM stays{f' GROUP BY {places}' if kept else ''}"
    return sorted(con.execute(sql).fetchall(), key=repr)


@pytest.fixture(scope="module")
def clinic() -> Clinic:
    connection = dpduck.connect()
    install_analyst_macros(connection, "memory")
    clinic = Clinic(connection)
    clinic.rows(ROWS)
    clinic.dp(POLICY)
    quoted = 'sex, ward, "born in"'
    for name, options, grouping in (
        ("cube", ONCE, f"CUBE ({quoted})"),
        ("rollup", ONCE, f"ROLLUP ({quoted})"),
        ("sets", EACH, 'GROUPING SETS ((sex, ward), ("born in"))'),
        ("marginals", EACH, f"MARGINALS (2, {quoted})"),
    ):
        clinic.dp(
            f"CREATE PRIVATE VIEW {name} {options} AS SELECT {quoted}, count(*) AS n FROM stays GROUP BY {grouping}"
        )
    clinic.dp(
        f"CREATE PRIVATE VIEW plain {ONCE} AS SELECT old, ward, count(*) AS n FROM stays GROUP BY CUBE (old, ward)"
    )
    return clinic


LEVELS: dict[str, list[tuple[str, ...]]] = {
    "cube": [chosen for size in range(4) for chosen in combinations(KEYS, size)],
    "rollup": [KEYS[:size] for size in range(4)],
    "sets": [("sex", "ward"), ("born in",)],
    "marginals": list(combinations(KEYS, 2)),
}


@pytest.mark.parametrize("view", LEVELS)
def test_a_margin_is_that_of_the_rows(clinic: Clinic, view: str) -> None:
    """Every grouping set of every kind of grouping, with groups of NULL and of other values: exactly its own rows."""
    names = clinic.rows(f"SELECT DISTINCT grouping_level FROM private.{view}")
    assert len(names) == len(LEVELS[view])
    for kept in LEVELS[view]:
        rolled_up = [key for key in KEYS if key not in kept]
        listed = f"{list(kept)}::VARCHAR[], {rolled_up}::VARCHAR[]"
        sql = f"SELECT * EXCLUDE (n_stderr) REPLACE (round(n) AS n) FROM dp_margin('private.{view}', {listed})"
        found = clinic.rows(sql)
        assert sorted((row for row in found if row[-1]), key=repr) == exact(clinic.con, kept), kept


def test_a_level_is_written_as_it_can_be_typed(clinic: Clinic) -> None:
    """The last column of the view. A name with a blank is quoted, the total is (), and the comment says so."""
    described = clinic.rows("SELECT column_name, column_type FROM (DESCRIBE private.cube)")
    assert described[-1] == ("grouping_level", "VARCHAR")
    (total,) = clinic.rows("SELECT n FROM private.cube WHERE grouping_level = '()'")
    assert total == (3000,)
    assert clinic.rows("SELECT count(*) FROM private.cube WHERE grouping_level = 'sex, \"born in\"'") == [(9,)]
    comment = clinic.value(
        "SELECT comment FROM duckdb_columns() WHERE table_name = 'cube' AND column_name = 'grouping_level'"
    )
    assert comment == "the columns that a row is grouped by, () for the total"


def test_levels_have_the_names_of_the_view(clinic: Clinic) -> None:
    """A key is named as the SELECT names it, also where it is computed. A name in use stays the user's."""
    clinic.dp(
        f"CREATE PRIVATE VIEW renamed {ONCE} AS SELECT coalesce(ward, '?') AS station, sex AS gender, count(*) AS n "
        "FROM stays GROUP BY CUBE (sex, ward)"
    )
    found = clinic.rows("SELECT DISTINCT grouping_level FROM private.renamed ORDER BY ALL")
    assert found == [("()",), ("gender",), ("station",), ("station, gender",)]
    stations = clinic.rows("SELECT station, n FROM dp_margin('private.renamed', ['STATION'], ['gender']) ORDER BY ALL")
    wards = [("?" if ward is None else str(ward), n) for ward, n in exact(clinic.con, ("ward",))]
    assert stations == sorted(wards)
    clinic.dp(
        f"CREATE PRIVATE VIEW taken {ONCE} AS SELECT sex, count(*) AS n, GROUPING(sex) AS grouping_level "
        "FROM stays GROUP BY CUBE (sex)"
    )
    assert clinic.rows("SELECT count(*) FROM private.taken WHERE grouping_level = 1") == [(1,)]
    with pytest.raises(duckdb.Error, match="the cube has no grouping_level"):
        clinic.rows("FROM dp_margin('private.taken', ['sex'], [])")


def test_a_statement_and_a_view_of_one_grouping_set_keep_their_columns(clinic: Clinic) -> None:
    """Only a view with several grouping sets has rows that look alike."""
    select = "SELECT{} sex, ward, count(*) AS n FROM stays GROUP BY "
    asked = clinic.con.execute("FROM dp(?)", [select.format(f" WITH DIFFERENTIAL_PRIVACY {ONCE}") + "CUBE (sex, ward)"])
    assert [column[0] for column in asked.description] == ["sex", "ward", "n"]
    clinic.dp(f"CREATE PRIVATE VIEW flat {ONCE} AS {select.format('')}sex, ward")
    assert [row[0] for row in clinic.rows("DESCRIBE private.flat")] == ["sex", "ward", "n", "n_stderr"]


def test_a_table_without_levels_is_refused(clinic: Clinic) -> None:
    """Its totals cannot be told from groups of NULL. The message says how to get the column."""
    clinic.rows("CREATE OR REPLACE TABLE bare AS SELECT * EXCLUDE (grouping_level) FROM private.cube")
    with pytest.raises(duckdb.Error, match=r"no grouping_level.* accepted: its CREATE PRIVATE VIEW again"):
        clinic.rows("FROM dp_margin('bare', ['sex'], ['ward', 'born in'])")


def test_a_view_of_an_earlier_version_gets_its_levels(clinic: Clinic) -> None:
    """Its statement typed again adds the column, with the same numbers and without a charge. So does REFRESH."""
    text = f"CREATE PRIVATE VIEW earlier {ONCE} AS SELECT sex, count(*) AS n FROM stays GROUP BY CUBE (sex)"
    clinic.dp(text)
    before, charges = clinic.rows("FROM private.earlier ORDER BY ALL"), clinic.charges()
    store = clinic.value("SELECT database_name FROM duckdb_tables() WHERE table_name = 'earlier'")
    for again in (text, "REFRESH PRIVATE VIEW earlier"):
        clinic.rows(f'ALTER TABLE "{store}".main.earlier DROP COLUMN grouping_level')
        clinic.dp(again)
        found = clinic.rows("FROM private.earlier ORDER BY ALL")
        assert [row[:2] for row in found] == [row[:2] for row in before] and len(found[0]) == 4
        assert clinic.charges() == charges


@pytest.mark.parametrize(
    ("weight", "meant"),
    [
        ("CASE ward WHEN 'n' THEN 2 WHEN 's' THEN -1 END", "2 * count_if(ward = 'n') - count_if(ward = 's')"),
        ("CASE WHEN sex = 'F' AND ward = 'n' THEN 1 END", "count_if(sex = 'F' AND ward = 'n')"),
        ("CASE WHEN sex = 'F' THEN 2 ELSE -1 END", "3 * count_if(sex = 'F') - count(*)"),
        ("1", "count(*)"),
        ("CASE WHEN grouping_id = 5 AND ward IS NULL THEN 1 END", "count_if(ward IS NULL)"),
    ],
)
def test_a_weight_is_about_the_columns_that_it_names(clinic: Clinic, weight: str, meant: str) -> None:
    """dp_stderr_of over a cube takes one grouping set, not the sum of all of them."""
    ((estimate,),) = clinic.con.execute("SELECT estimate FROM dp_stderr_of('cube', ?)", [weight]).fetchall()
    assert estimate == pytest.approx(clinic.value(f"SELECT {meant} FROM stays"), abs=1e-6)
    if "sex" in weight and "ward" not in weight:  # only (sex, ward) has the column
        ((finer,),) = clinic.con.execute("SELECT estimate FROM dp_stderr_of('sets', ?)", [weight]).fetchall()
        assert finer == pytest.approx(estimate, abs=1e-6)


def test_a_weight_of_a_column_without_null_may_name_the_total(clinic: Clinic) -> None:
    """IS NULL means rolled up where a column has no group of NULL. Columns that are not named are rolled up."""
    share = "FROM dp_ratio_of('plain', 'CASE WHEN old THEN 1 END', 'CASE WHEN old IS NULL THEN 1 END')"
    part = clinic.value("SELECT avg(CAST(old AS INTEGER)) FROM stays")
    assert clinic.rows(share)[0][0] == pytest.approx(part, abs=1e-6)
    assert clinic.rows(share.replace("old IS NULL", "1 = 1"))[0][0] == pytest.approx(part, abs=1e-6)


def test_a_weight_that_could_mean_two_things_is_refused(clinic: Clinic) -> None:
    """IS NULL of a column with a group of NULL, and columns that are in no grouping set together."""
    for view, weight, told in (
        ("cube", "CASE WHEN ward IS NULL THEN 1 END", "a total from the group of NULL of 'ward'"),
        ("cube", "coalesce(ward, 'n') = 'n' AND sex = 'F'", "a total from the group of NULL of 'ward'"),
        ("sets", "sex = 'F' AND \"born in\" = 1990", "no grouping set has the columns of this weight alone"),
    ):
        with pytest.raises(duckdb.Error) as caught:
            clinic.con.execute("FROM dp_stderr_of(?, ?)", [view, weight]).fetchall()
        line = one_line(caught.value)
        assert told in line and "accepted: a condition on grouping_id, which is " in line
    assert "grouping_id, which is 3 for (born in), 4 for (sex, ward)" in line
