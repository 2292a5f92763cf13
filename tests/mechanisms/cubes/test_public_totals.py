"""PUBLIC TOTALS FROM a table: answers have the totals exactly, errors are honest, and nothing is paid for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pytest
from scipy.stats import binom

from tests.support.clinics import Clinic

BLOCKS = [f"{county}{tract}{block}" for county in "ab" for tract in "xyz" for block in "1234"]
POLICY = f"""CREATE PRIVACY POLICY ON residents (PRIVACY UNIT who MAX ROWS 1, BUDGET (epsilon = 100000),
    DOMAIN block IN ({", ".join(repr(block) for block in BLOCKS)}), DOMAIN sex IN ('F', 'M'),
    DOMAIN age RANGE 0 TO 60 STEP 20, CLAMP income BETWEEN 0 AND 100 STEP 1)"""
SETS = "GROUPING SETS ((left(block, 1)), (left(block, 2)), (block))"
NAMED = "left(block, 1) AS county, left(block, 2) AS tract, block"
TREATMENTS = ["", "nonnegative = TRUE", "integer = TRUE", "nonnegative = TRUE, integer = TRUE"]


@pytest.fixture
def census(open_clinic: Callable[..., Clinic]) -> Clinic:
    """600 residents of 24 blocks in six tracts of two counties, some blocks with nobody, and public totals."""
    clinic = open_clinic()
    listed = ", ".join(repr(block) for block in BLOCKS)
    clinic.rows(
        f"CREATE TABLE residents AS SELECT i AS who, [{listed}][1 + (i * i + i % 11) % 24] AS block, "
        "if(i % 3 = 0, 'F', 'M') AS sex, (i * 7) % 60 AS age, (i * 13) % 101 AS income FROM range(600) AS r(i)"
    )
    clinic.dp(POLICY)
    declare(clinic, "county_totals", "SELECT left(block, 1) AS county, count(*) AS n FROM residents GROUP BY ALL")
    return clinic


def declare(clinic: Clinic, name: str, select: str) -> None:
    clinic.rows(f"CREATE OR REPLACE TABLE {name} AS {select}")
    clinic.dp(f"DECLARE PUBLIC TABLE {name}")


def asked(options: str, selected: str, grouping: str, price: str = "epsilon = 0.1") -> str:
    listed = ", ".join(part for part in (price, options) if part)
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({listed}) {selected} FROM residents GROUP BY {grouping}"


def exact(clinic: Clinic, keys: str, answer: str = "count(*)") -> dict[Any, float]:
    return dict(clinic.rows(f"SELECT {keys}, {answer} FROM residents GROUP BY ALL"))


@pytest.mark.parametrize("price", ["epsilon = 0.05", "rho = 0.01"])
@pytest.mark.parametrize("treatment", TREATMENTS)
def test_nested_geography_agrees(census: Clinic, treatment: str, price: str) -> None:
    """Blocks add up to tracts and tracts to counties, which have their totals. Whole answers do so exactly."""
    totals = exact(census, "left(block, 1)")
    options = ", ".join(filter(None, ["public_totals = 'county_totals'", treatment]))
    if price.startswith("rho"):
        census.dp("ALTER PRIVACY POLICY ON residents SET BUDGET (rho = 1000)")
    rows = census.dp(asked(options, f"{NAMED}, count(*) AS n, dp_stderr(n)", SETS, price))
    whole = "integer" in treatment
    counties = {row[0]: row[3] for row in rows if row[0]}
    assert counties == totals and {row[4] for row in rows if row[0]} == {0}
    tracts, blocks, of_tract, of_county = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for _, tract, block, n, error in rows:
        if tract:
            tracts[tract], of_county[tract[0]] = n, of_county[tract[0]] + n
            assert error > 0
        if block:
            blocks[block], of_tract[block[:2]] = n, of_tract[block[:2]] + n
    for found, wanted in ((of_county, totals), (of_tract, tracts)):
        assert {name: pytest.approx(n, abs=0 if whole else 1e-6) for name, n in found.items()} == wanted
    assert not whole or all(isinstance(row[3], int) for row in rows)
    assert "nonnegative" not in treatment or min(row[3] for row in rows) >= 0
    assert len(blocks) == 24 and len(tracts) == 6


def test_the_price_and_the_noise_are_those_without_totals(census: Clinic) -> None:
    """One charge of the same amount. Errors are smaller, and the totals are no part of what is measured."""
    without = census.dp(asked("", f"{NAMED}, count(*) AS n, dp_stderr(n)", SETS))
    spent = census.value("SELECT spent FROM dp_budget()")
    kept = asked("public_totals = 'county_totals'", f"{NAMED}, count(*) AS n, dp_stderr(n)", SETS)
    with_totals = census.dp(kept)
    assert census.value("SELECT spent FROM dp_budget()") == 2 * spent
    before, after = ({row[:3]: row[4] for row in rows} for rows in (without, with_totals))
    assert before.keys() == after.keys() and all(after[key] <= before[key] * (1 + 1e-9) for key in before)
    assert max(after.values()) < max(before.values())
    ((worst,),) = census.con.execute("SELECT worst_stderr FROM dp_errors(?)", [kept]).fetchall()
    assert worst == pytest.approx(max(after.values()), rel=1e-3)
    assert census.dp(kept) == with_totals and census.value("SELECT spent FROM dp_budget()") == 2 * spent


def test_the_clause_is_the_option(census: Clinic) -> None:
    """PUBLIC TOTALS FROM t and public_totals = 't' are one statement, whatever the table's name is. New totals pay."""
    by_option = census.dp(asked("public_totals = 'county_totals'", "left(block, 1) AS county, count(*) AS n", "1"))
    clause = asked("", "left(block, 1) AS county, count(*) AS n", "1").replace(
        "epsilon = 0.1)", "epsilon = 0.1) PUBLIC TOTALS FROM {}"
    )
    charges = census.charges()
    assert census.dp(clause.format("county_totals")) == by_option
    assert census.dp(clause.format("main.county_totals")) == by_option
    declare(census, "others", "SELECT * FROM county_totals")
    assert census.dp(clause.format("others")) == by_option and census.charges() == charges
    census.rows("UPDATE others SET n = n + 1")
    assert dict(census.dp(clause.format("others"))) == {key: n + 1 for key, n in by_option}
    assert census.charges() == charges + 1
    assert "public_totals" in census.refused(
        clause.format("county_totals").replace("0.1)", "0.1, public_totals = 'a')")
    )


def test_several_margins_in_one_table(census: Clinic) -> None:
    """A key that is NULL is summed over: totals by county, by sex, and of everybody, of two answers at once."""
    declare(
        census,
        "margins",
        "SELECT left(block, 1) AS county, sex, count(*) AS n, if(sex IS NULL, sum(income), NULL) AS s FROM residents "
        "GROUP BY GROUPING SETS ((left(block, 1)), (sex), ())",
    )
    rows = census.dp(
        asked(
            "public_totals = 'margins'", "left(block, 1) AS county, sex, count(*) AS n, sum(income) AS s", "CUBE (1, 2)"
        )
    )
    found = {row[:2]: row[2:] for row in rows}
    counties, sexes, incomes = exact(census, "left(block, 1)"), exact(census, "sex"), None
    incomes = exact(census, "left(block, 1)", "sum(income)")
    for county, n in counties.items():
        assert found[county, None] == (n, pytest.approx(incomes[county], rel=1e-9))
        assert sum(found[county, sex][0] for sex in "FM") == pytest.approx(n)
        assert sum(found[county, sex][1] for sex in "FM") == pytest.approx(incomes[county])
    for sex, n in sexes.items():
        assert found[None, sex][0] == n
        assert found[None, sex][1] != exact(census, "sex", "sum(income)")[sex]
    assert found[None, None] == (600, pytest.approx(sum(incomes.values()), rel=1e-9))


@pytest.mark.parametrize("treatment", TREATMENTS[1:])
def test_two_margins_are_kept_by_whole_and_non_negative_counts(census: Clinic, treatment: str) -> None:
    """Totals by age and by sex cross, and controlled rounding keeps both."""
    declare(
        census,
        "two",
        "SELECT age // 20 * 20 AS age, sex, count(*) AS n FROM residents GROUP BY GROUPING SETS ((1), (2))",
    )
    rows = census.dp(asked(f"public_totals = 'two', {treatment}", "age, sex, count(*) AS n", "age, sex"))
    exactly = 0 if "integer" in treatment else 1e-6
    for place, name in ((0, "age // 20 * 20"), (1, "sex")):
        sums = Counter[Any]()
        for row in rows:
            sums[row[place]] += row[2]
        assert dict(sums) == {key: pytest.approx(n, abs=exactly) for key, n in exact(census, name).items()}


RUNS, FALSE_ALARM = 20, 1e-9


@pytest.mark.sampled
@pytest.mark.parametrize("price", ["epsilon = 0.1", "rho = 0.005"])
@pytest.mark.parametrize("treatment", TREATMENTS)
def test_intervals_hold_what_they_say(census: Clinic, treatment: str, price: str) -> None:
    """Of 95 % intervals of cells with some error at least 94 % hold, at a chance of a false alarm below 1e-9.

    Of 24 blocks with totals by county 22 are free: they count as half as many independent ones.
    """
    if price.startswith("rho"):
        census.dp("ALTER PRIVACY POLICY ON residents SET BUDGET (rho = 1000)")
    truth = Counter(exact(census, "block"))
    held = looked = 0
    squares = list[float]()
    for run in range(RUNS):
        options = ", ".join(filter(None, ["public_totals = 'county_totals'", f"refresh = '{run}'", treatment]))
        chosen = f"{NAMED}, count(*) AS n, dp_stderr(n), dp_interval_low(n), dp_interval_high(n)"
        for _, _, block, n, error, low, high in census.dp(asked(options, chosen, SETS, price)):
            if block:
                looked, held = looked + 1, held + (low - 1e-9 <= truth[block] <= high + 1e-9)
                squares.append(((n - truth[block]) / error) ** 2)
    assert binom.cdf(held // 2, looked // 2, 0.94) > FALSE_ALARM, (held, looked)
    if not treatment:
        assert 0.75 < sum(squares) / len(squares) < 1.3


def test_other_answers_and_known_answers_are_as_before(census: Clinic) -> None:
    """An answer without a total is untouched. What was measured is kept, so that dp_known stays right."""
    selected = "sex, count(*) AS n, avg(income) AS m, dp_stderr(m) AS e"
    declare(census, "everybody", "SELECT 600 AS n")
    census.dp(asked("public_totals = 'everybody'", selected, "sex", "epsilon = 3"))
    known = census.rows("SELECT sex, n, stderr FROM dp_known('SELECT sex, count(*) AS n FROM residents GROUP BY sex')")
    truth = exact(census, "sex")
    assert all(error > 0 and abs(n - truth[sex]) < 40 * error for sex, n, error in known)
    assert sum(n for _, n, _ in known) != 600
    release = census.value("SELECT name FROM dp_releases() ORDER BY ledger_id DESC")
    with pytest.raises(duckdb.Error, match="no covariances are kept"):
        census.rows(f"FROM dp_stderr_of('{release}', '1')")


def test_a_view_says_that_its_answers_have_public_totals(census: Clinic) -> None:
    """The comment on a view has it, and its errors are those after the totals."""
    census.dp(
        "CREATE PRIVATE VIEW counties OPTIONS (epsilon = 1, public_totals = 'county_totals') AS "
        "SELECT left(block, 1) AS county, sex, count(*) AS n FROM residents GROUP BY 1, 2"
    )
    rows = census.rows("SELECT county, sum(n), min(n_stderr) FROM private.counties GROUP BY county")
    totals = exact(census, "left(block, 1)")
    assert all(error > 0 for _, _, error in rows)
    assert {county: n for county, n, _ in rows} == {county: pytest.approx(n) for county, n in totals.items()}
    comment = census.value("SELECT comment FROM duckdb_tables() WHERE table_name = 'counties'")
    assert "answers are brought to totals that are public" in comment


REFUSED: Sequence[tuple[str, str, str, str, str]] = (
    ("private", "SELECT 1", "sex, count(*) AS n", "sex", "is no public table"),
    ("view", "SELECT 600 AS n", "sex, count(*) AS n", "sex", "is no public table"),
    ("t", "SELECT 'X' AS sex, 1 AS n", "sex, count(*) AS n", "sex", "sex = 'X', which no group of the statement has"),
    ("t", "SELECT 600 AS m", "sex, count(*) AS n", "sex", "has the column 'm'"),
    ("t", "SELECT 'F' AS sex", "sex, count(*) AS n", "sex", "has no column of an answer"),
    ("t", "SELECT 'F' AS sex, 1 AS n WHERE false", "sex, count(*) AS n", "sex", "has no rows"),
    ("t", "SELECT 'F' AS sex, NULL AS n", "sex, count(*) AS n", "sex", "has no total"),
    ("t", "SELECT 'F' AS sex, -1 AS n", "sex, count(*) AS n", "sex", "a total that is none"),
    ("t", "SELECT 'F' AS sex, 1.5 AS n", "sex, count(*) AS n", "sex", "a total that is none"),
    ("t", "SELECT 'F' AS sex, 'many' AS n", "sex, count(*) AS n", "sex", "something else than numbers"),
    ("t", "SELECT 'F' AS sex, '1/0' AS n", "sex, count(*) AS n", "sex", "something else than numbers"),
    ("t", "SELECT 'F' AS sex, '6/1' AS n", "sex, count(*) AS n", "sex", "something else than numbers"),
    ("t", "SELECT 1e17 AS n", "sex, count(*) AS n", "sex", "out of range"),
    ("t", "SELECT 'F' AS sex, 1 AS n FROM range(2)", "sex, count(*) AS n", "sex", "two totals for one group"),
    ("t", "FROM (VALUES (NULL, 5), ('F', 2), ('M', 2)) AS v(sex, n)", "sex, count(*) AS n", "sex", "contradict each"),
    ("t", "FROM (VALUES (NULL, 5), ('F', 6)) AS v(sex, n)", "sex, count(*) AS n", "sex", "contradict each other"),
    ("t", "FROM (VALUES ('F', NULL, 5), (NULL, 0, 6)) AS v(sex, age, n)", "sex, age, count(*) AS n",
     "GROUPING SETS ((sex), (sex, age), ())", ""),
    ("t", "FROM (VALUES ('F', 0, 5)) AS v(sex, age, n)", "sex, age, count(*) AS n", "GROUPING SETS ((sex), (age))",
     "no grouping set has the groups of a total by sex, age"),
    ("t", "FROM (VALUES ('F', NULL, 5), ('M', NULL, 5), (NULL, 0, 1), (NULL, 20, 1), (NULL, 40, 1)) AS v(sex, age, n)",
     "sex, age, count(*) AS n", "GROUPING SETS ((sex), (age))", "contradict each other"),
    ("t", "SELECT 1 AS a", "sex, avg(income) AS a", "sex", "does not add up over groups"),
    ("t", "SELECT 1 AS a", "sex, median(income) AS a", "sex", "does not add up over groups"),
    ("t", "SELECT 1 AS a", "sex, count(DISTINCT sex) AS a", "sex", "does not add up over groups"),
    ("t", "SELECT 1 AS n", "age, count(*) AS n", "PREFIXES (age)", "by groups that agree by least squares"),
)  # fmt: skip


def test_what_is_refused_before_the_charge(census: Clinic) -> None:
    """Private tables, other columns, totals that no table has, and answers that do not add up. One is answered."""
    census.rows("CREATE TABLE private AS SELECT 600 AS n")
    census.rows("CREATE VIEW view AS SELECT 600 AS n")
    for name, select, selected, grouping, refusal in REFUSED:
        if name == "t":
            declare(census, "t", select)
        statement = asked(f"public_totals = '{name}'", selected, grouping)
        if refusal:
            assert refusal in census.refused(statement), statement
        else:
            census.dp(statement)
    residents = asked("public_totals = 'residents'", "sex, count(*) AS n", "sex")
    assert "is no public table" in census.refused(residents)


OPTIONS = (
    ("consistency = 'none'", "agree by least squares"),
    ("consistency = 'l1'", "agree by least squares"),
    ("reuse = TRUE", "reuse does not go with public totals"),
    ("summary = 'filter'", "does not apply to a summary"),
)


@pytest.mark.parametrize(("options", "refusal"), OPTIONS)
def test_options_that_do_not_go_with_totals(census: Clinic, options: str, refusal: str) -> None:
    declare(census, "t", "SELECT 600 AS n")
    assert refusal in census.refused(asked(f"public_totals = 't', {options}", "sex, count(*) AS n", "sex"))


def test_counts_need_totals_that_nest(census: Clinic) -> None:
    """Three margins of two keys each may have no whole table. Sets without a finest one have no single table."""
    declare(
        census,
        "t",
        "SELECT left(block, 1) AS county, sex, age // 20 * 20 AS age, count(*) AS n FROM residents "
        "GROUP BY GROUPING SETS ((1, 2), (1, 3), (2, 3))",
    )
    selected = "left(block, 1) AS county, sex, age, count(*) AS n"
    assert "totals that nest" in census.refused(asked("public_totals = 't', integer = TRUE", selected, "1, 2, 3"))
    rows = census.dp(asked("public_totals = 't'", selected, "1, 2, 3"))
    sums = Counter[Any]()
    for county, sex, _, n in rows:
        sums[county, sex] += n
    assert sums["a", "F"] == pytest.approx(
        census.value("SELECT count(*) FROM residents WHERE block < 'b' AND sex = 'F'")
    )
    declare(census, "t", "SELECT 600 AS n")
    apart = asked("public_totals = 't', nonnegative = TRUE", "sex, age, count(*) AS n", "GROUPING SETS ((sex), (age))")
    assert "totals that nest" in census.refused(apart)
