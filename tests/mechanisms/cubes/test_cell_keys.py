"""A key of the table over the unit and grouping columns: a unit has one row in a cell, and m rows cost m in squares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import dpduck
from dpduck.language.rows.facts import PublicFacts
from dpduck.language.rows.tree import RowSource
from dpduck.language.select import analyse
from dpduck.language.select.request import SelectRequest
from tests.mechanisms.cubes.aggregate_clinic import plan_of
from tests.mechanisms.cubes.test_aggregate_sensitivity import largest_moves, moves_beyond_norms
from tests.support.clinics import Clinic

MOST = 6
COLUMNS = "who INTEGER, sex VARCHAR, day INTEGER, big INTEGER"
POLICY = (
    "CREATE PRIVACY POLICY ON stays (PRIVACY UNIT {unit}, BUDGET (rho = 100000), DOMAIN sex IN ('F', 'M'){null}, "
    "DOMAIN day {days}, CLAMP big BETWEEN -5 AND 6)"
)
DAYS = "IN (3, 0, 1, 2, 4, 5, 6, 7)"
ROWS = (
    "INSERT INTO stays SELECT i % 20, ['F', 'M', NULL][i % 7 % 3 + 1], i // 20, i * 31 % 23 - 11 "
    "FROM range(200) AS r(i)"
)
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 1{}) "
KEY = ("who", "day")


def open_stays(
    key: str = "PRIMARY KEY (who, day)", *, columns: str = COLUMNS, days: str = DAYS, null: str = "",
    unit: str = f"who MAX ROWS {MOST}", rows: str = ROWS,
) -> Clinic:  # fmt: skip
    """Twenty people with a row on each of ten days. Two of the days are outside of the domain."""
    made = Clinic(dpduck.connect())
    made.con.execute(f"CREATE TABLE stays ({', '.join(filter(None, (columns, key)))})")
    made.con.execute(rows)
    made.dp(POLICY.format(unit=unit, null=null, days=days))
    return made


@pytest.fixture(scope="module")
def stays() -> Iterator[Clinic]:
    made = open_stays()
    yield made
    made.con.close()


def norms(clinic: Clinic, select: str) -> list[tuple[int, int, int]]:
    """The bounds of each measure: to all cells, to one, and in squares."""
    bounds = [one.bounds for one in plan_of(clinic.con, CLAUSE.format("") + select).measures]
    return [(one.all_cells, one.one_cell, one.squared) for one in bounds]


def test_rows_cost_their_number_in_squares(stays: Clinic) -> None:
    """Six rows in six cells are 6 in squares and not 36, times the square of a row's bound."""
    by_day = "FROM stays GROUP BY day"
    assert norms(stays, f"count(*) {by_day}") == [(6, 1, 6)]
    assert norms(stays, f"sum(big) {by_day}") == [(36, 6, 216)]
    assert norms(stays, f"avg(big) {by_day}, sex") == [(66, 11, 726)]
    assert norms(stays, f"count(DISTINCT who) {by_day}") == [(6, 1, 6)]


TWO_ZEROS = {name: {"columns": COLUMNS.replace(f"{name} INTEGER", f"{name} DOUBLE")} for name in ("who", "day")}
COLLATED = {"columns": COLUMNS.replace("sex VARCHAR", "sex VARCHAR COLLATE NOCASE")}
NO_SEX = "INSERT INTO stays SELECT i % 20, NULL, i // 20, 1 FROM range(200) AS r(i)"


def test_help_without_a_column_of_the_key_is_told_at_its_own_error(stays: Clinic) -> None:
    """Without the day a person's rows may all be in one group: six times the squares, for an eighth of the groups."""
    asked = f"{CLAUSE.format('')}day, count(*) FROM stays GROUP BY day"
    said = str(stays.rows(f"FROM dp_explain($${asked}$$)")[0])
    assert "one unit adds at most 6, 1 to one group" in said
    assert "8 times smaller with no day" not in said


UNLIKE = {
    "a column of the key is no grouping column": ("PRIMARY KEY (who, day)", {}, "sex"),
    "no constraint": ("", {}, "day"),
    "a key without the unit": ("UNIQUE (day, big)", {"rows": NO_SEX.replace(", 1 FROM", ", i FROM")}, "day"),
    "bins": ("PRIMARY KEY (who, day)", {"days": "RANGE 0 TO 8 STEP 4"}, "day"),
    "bins of one value": ("PRIMARY KEY (who, day)", {"days": "RANGE 0 TO 8 STEP 1"}, "day"),
    "an expression": ("PRIMARY KEY (who, day)", {}, "day // 2"),
    "NULL in a key": ("UNIQUE (who, sex)", {"null": " WITH NULL", "rows": NO_SEX}, "sex"),
    "other values in a key": ("UNIQUE (who, sex)", {"null": " WITH OTHER 'x'", "rows": NO_SEX}, "sex"),
    "a collation": ("PRIMARY KEY (who, day)", COLLATED, "day"),
    "numbers with two zeros": ("PRIMARY KEY (who, day)", TWO_ZEROS["day"], "day"),
    "units with two zeros": ("PRIMARY KEY (who, day)", TWO_ZEROS["who"], "day"),
    "rows as units": ("PRIMARY KEY (who, day)", {"unit": "ROW"}, "day"),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_other_rows_may_all_be_in_one_cell(name: str) -> None:
    """Where a unit may have two rows in a cell, nothing is cheaper."""
    key, changes, group = UNLIKE[name]
    made = open_stays(key, **changes)
    select = f"count(*) FROM stays GROUP BY {group}"
    rows = plan_of(made.con, CLAUSE.format("") + select).request.rows
    bound = 1 if name == "rows as units" else MOST
    assert rows.cell_key == () and norms(made, select) == [(bound, bound, bound * bound)]
    made.con.close()


@pytest.mark.parametrize(
    ("key", "columns", "group"),
    [
        ("UNIQUE (who, sex)", COLUMNS, "sex"), ("UNIQUE (day, who)", COLUMNS, "day, sex"),
        ("UNIQUE (who, sex)", COLUMNS.replace("sex VARCHAR", "sex ENUM ('F', 'M')"), "sex"),
        ("UNIQUE (who)", COLUMNS, "day"),
        ("UNIQUE (who, day, sex)", COLUMNS.replace("who INTEGER", "who UUID"), "day, sex"),
    ],
)  # fmt: skip
def test_keys_of_exact_types_are_read(key: str, columns: str, group: str) -> None:
    """Texts, labels, numbers and names of any order are told apart. NULL repeats in rows that no group has."""
    made = open_stays(key, columns=columns, rows="INSERT INTO stays SELECT NULL, NULL, 1, 1 FROM range(9)")
    if "UUID" not in columns:
        made.con.execute("INSERT INTO stays SELECT i, ['F', 'M', NULL, NULL][i % 4 + 1], i, 1 FROM range(24) AS r(i)")
    select = f"count(*) FROM stays GROUP BY {group}"
    assert norms(made, select) == [(6, 1, 6)]
    compared, beyond = moves_beyond_norms(made.con, CLAUSE.format("") + select) if "UUID" not in columns else (3, [])
    assert compared >= 3 and beyond == []
    made.con.close()


JOINED = (
    "stays JOIN days ON day = number",
    "stays AS s JOIN stays AS t ON s.who = t.who",
    "(FROM stays UNION ALL FROM stays)",
)


@pytest.mark.parametrize("rows", JOINED)
def test_rows_of_several_tables_have_no_such_key(stays: Clinic, rows: str) -> None:
    """Joins and unions may repeat a row, and are left as they were."""
    stays.con.execute("CREATE TABLE IF NOT EXISTS days AS SELECT range AS number FROM range(8)")
    stays.dp("DECLARE PUBLIC TABLE days")
    day = "s.day" if " AS s" in rows else "day"
    plan = plan_of(stays.con, f"{CLAUSE.format('')}{day}, count(*) FROM {rows} GROUP BY {day}")
    assert plan.request.rows.cell_key == () and plan.measures[0].bounds.are_plain


@pytest.mark.parametrize("strategy", ["auto", "I", "R", "F"])
@pytest.mark.parametrize(
    "aggregates", ["count(*)", "sum(big)", "avg(big), count(*)", "count(*) FILTER (WHERE big > 0)"]
)
def test_no_unit_moves_an_answer_by_more_than_is_priced(stays: Clinic, aggregates: str, strategy: str) -> None:
    """Each ask's exact answers move by no more than its three norms, of cells and of what adds cells up."""
    option = "" if strategy == "auto" else f", strategy = '{strategy}'"
    for group in ("day, sex", "CUBE (day, sex)"):
        compared, beyond = moves_beyond_norms(
            stays.con, f"{CLAUSE.format(option)}{aggregates} FROM stays GROUP BY {group}"
        )
        assert compared >= 3
        assert beyond == []


def test_prefixes_cost_what_they_did(stays: Clinic) -> None:
    """A unit that is once in each of m cells moves a prefix by m."""
    select = "day, count(*) FROM stays GROUP BY PREFIXES(day)"
    compared, beyond = moves_beyond_norms(stays.con, CLAUSE.format("") + select)
    assert compared >= 3
    assert beyond == []


def test_the_norms_are_attained(stays: Clinic) -> None:
    """Somebody with rows on six days moves six cells by one: less noise would be too little."""
    with open_stays().con as connection:
        connection.execute("DELETE FROM stays")
        connection.execute("INSERT INTO stays SELECT 1, 'F', day, 6 FROM range(6) AS r(day)")
        assert largest_moves(connection, f"{CLAUSE.format('')}count(*) FROM stays GROUP BY day", [1]) == [(6, 6)]


def test_earlier_answers_are_found_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release of a version that did not read keys is the same release now: nothing is charged again."""
    made = open_stays()
    asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.5) day, count(*) AS n FROM stays GROUP BY day"
    with monkeypatch.context() as before:
        before.setattr(analyse, "with_cell_key", lambda request, source, facts: request)
        first = made.dp(asked)
    assert made.dp(asked) == first and made.charges() == 1
    request = plan_of(made.con, asked).request
    assert request.rows.cell_key == KEY
    assert request.digest() == replace(request, rows=replace(request.rows, cell_key=())).digest()
    made.con.close()


def test_errors_are_smaller_at_the_same_price() -> None:
    """The standard error of a count falls by the root of MAX ROWS."""
    select = "day, count(*) AS n, dp_stderr(n) AS e FROM stays GROUP BY day"
    errors = []
    for key in ("", "PRIMARY KEY (who, day)"):
        made = open_stays(key)
        errors.append(made.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.25) {select}")[0][-1])
        assert made.value("SELECT rho FROM dp_ledger() ORDER BY ALL DESC LIMIT 1") == 0.25
        made.con.close()
    assert errors[0] / errors[1] == pytest.approx(MOST**0.5, rel=1e-3)


def test_a_prepared_table_has_the_keys_of_its_moment() -> None:
    """Rows that were prepared before the table had its key may repeat: nothing is cheaper until they are anew."""
    made = open_stays("")
    select = "day, count(*) AS n, dp_stderr(n) AS e FROM stays GROUP BY day"
    made.con.execute("INSERT INTO stays SELECT 1, 'F', 1, 1 FROM range(5)")
    made.dp("ALTER PRIVACY POLICY ON stays PREPARE")
    made.con.execute("DELETE FROM stays WHERE who = 1")
    made.con.execute("ALTER TABLE stays ADD PRIMARY KEY (who, day)")
    errors = []
    for tag, prepare in (("old", ""), ("new", "PREPARE"), ("live", "UNPREPARE")):
        if prepare:
            made.dp(f"ALTER PRIVACY POLICY ON stays {prepare}")
        option = f"OPTIONS (rho = 0.25, refresh = '{tag}')"
        errors.append(made.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY {option} {select}")[0][-1])
    assert errors[0] / errors[1] == pytest.approx(MOST**0.5, rel=1e-3)
    assert errors[1] == errors[2]
    made.con.close()


OTHER_PRICES = (
    "(rho = 0.25, max_norm_contributed = 2)", "(rho = 0.25, max_norm_contributed = 'private')", "(epsilon = 1)",
    "(target_stderr = 3)", "(rho = 0.25, strategy = 'R')",
    "(rho = 0.25, max_groups_contributed = 2)",
)  # fmt: skip


@pytest.mark.parametrize("options", OTHER_PRICES)
def test_other_prices_and_norms_go_with_it(stays: Clinic, options: str) -> None:
    """The door finds the bounds of every kind of statement to be those of its job."""
    select = "day, count(*) AS n, avg(big) AS a FROM stays GROUP BY day"
    if "target" in options:
        select = "day, count(*) AS n FROM stays GROUP BY day"
    assert len(stays.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS {options} {select}")) == 8


@pytest.mark.parametrize("place", ["FROM stays GROUP BY day", "FROM stays GROUP BY day, sex"])
@pytest.mark.parametrize("options", ["rho = 1", "epsilon = 1", "target_stderr = 9"])
@pytest.mark.parametrize("column", ["sex", "day"])
def test_counts_that_are_planned_together_go_with_it(stays: Clinic, column: str, options: str, place: str) -> None:
    """Several days are one kind of rows. A unit may have all its rows in one kind, and no answer moves further."""
    counts = {"sex": "count(*), count_if(sex = 'F') AS f, count_if(sex = 'M') AS m",
              "day": "count_if(day = 2) AS n, count_if(day = 3) AS f, count_if(day > 3) AS m"}  # fmt: skip
    asked = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) day, {counts[column]} {place}"
    found = plan_of(stays.con, asked)
    assert found.request.rows.cell_key == KEY and any(one.measure.kinds for one in found.measures)
    assert len(stays.dp(asked)) == (8 if place.endswith("day") else 16)
    compared, beyond = moves_beyond_norms(stays.con, asked)
    assert compared >= 3
    assert beyond == []


def test_known_answers_of_prepared_rows_go_with_it() -> None:
    """A target with reuse pays only for the missing part, of the same rows and at the same bounds or wider ones."""
    made = open_stays()
    made.dp("ALTER PRIVACY POLICY ON stays PREPARE")
    for target in (3, 2):
        options = f"OPTIONS (target_stderr = {target}, reuse = TRUE)"
        rows = made.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY {options} day, count(*) AS n FROM stays GROUP BY day")
        assert len(rows) == 8
    assert made.charges() == 2
    made.con.close()


def test_a_key_that_is_not_there_is_found_before_the_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The analysis is not believed: the table is asked in the transaction that counts, and nothing is charged."""

    def pretended(request: SelectRequest, source: RowSource, facts: PublicFacts) -> SelectRequest:
        return replace(request, rows=replace(request.rows, cell_key=KEY))

    made = open_stays("UNIQUE (who, day, sex)")
    monkeypatch.setattr(analyse, "with_cell_key", pretended)
    said = made.refused("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 1) day, count(*) FROM stays GROUP BY day")
    assert "a key changed meanwhile" in said and made.charges() == 0
    made.con.close()


def test_a_table_of_an_attached_database_has_its_keys(tmp_path: Path) -> None:
    """Names with quotes and schemas of other files are looked up as they are written in the catalog."""
    with dpduck.connect() as connection:
        made = Clinic(connection)
        made.con.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS other")
        made.con.execute('CREATE SCHEMA other."a ""b"')
        made.con.execute(f'CREATE TABLE other."a ""b".stays ({COLUMNS}, PRIMARY KEY (who, day))')
        made.con.execute(ROWS.replace("stays", 'other."a ""b".stays'))
        made.dp(POLICY.format(unit=f"who MAX ROWS {MOST}", null="", days=DAYS).replace("stays", 'other."a ""b".stays'))
        select = 'day, count(*) AS n, dp_stderr(n) AS e FROM other."a ""b".stays GROUP BY day'
        rows = made.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.25) {select}")
        assert rows[0][-1] == pytest.approx((2 * MOST) ** 0.5, rel=1e-2)
