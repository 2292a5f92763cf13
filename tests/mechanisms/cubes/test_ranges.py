"""Ranges through SQL: PREFIXES, RANGES, counts BETWEEN, and strategies of one's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.mechanisms.cubes.cubes import ask, explained, protected_visits
from tests.support.clinics import Clinic


@pytest.fixture
def visits(open_clinic: Callable[..., Clinic]) -> Clinic:
    return protected_visits(open_clinic())


def exact_ages(clinic: Clinic, low: int, high: int, more: str = "true") -> int:
    return int(clinic.value(f"SELECT count(*) FROM visits WHERE age >= {low} AND age < {high} AND {more}"))


def test_prefixes_are_running_totals(visits: Clinic) -> None:
    """PREFIXES(age): a row per bin with its end. At a huge epsilon the exact running totals. NULLs are in none."""
    statement = ask(
        "epsilon = 100, planning_seconds = 0.3",
        "age, range_end(age) AS beyond, count(*) AS n, dp_stderr(n)",
        "PREFIXES (age) ORDER BY age",
        "visits",
    )
    rows = visits.dp(statement)
    assert [(row[0], row[1]) for row in rows] == [(10 * number, 10 * number + 10) for number in range(10)]
    for _, beyond, answer, error in rows:
        assert abs(answer - exact_ages(visits, 0, beyond)) < max(1e-3, 8 * error)


def test_ranges_with_plain_keys_and_in_several_sets(visits: Clinic) -> None:
    """RANGES(age) beside sex and in several sets: every interval once, rolled-up columns NULL, one charge.

    The price is shared by four sets: noise of the total has scale 0.27, of single bins 0.13, so that an answer that is
    10 off has a chance below 1e-15. Standard errors say that too, but an integer is seldom within 8 of a small one.
    """
    statement = ask(
        "epsilon = 100, planning_seconds = 0.3",
        "sex, age, range_end(age) AS beyond, count(*) AS n, dp_stderr(n), GROUPING(sex, age)",
        "GROUPING SETS ((sex, RANGES (age)), (RANGES (age)), (sex), ())",
        "visits",
    )
    rows = visits.dp(statement)
    assert len(rows) == len({row[:3] for row in rows}) == 2 * 55 + 55 + 2 + 1
    for sex, age, beyond, answer, error, rolled_up in rows:
        inside = "true" if sex is None else f"sex = {sex}"
        low, high = (0, 100) if age is None else (age, beyond)
        assert abs(answer - exact_ages(visits, low, high, inside)) < 9.5 and 0 < error < 0.3
        assert rolled_up == 2 * (sex is None) + (age is None)
    assert visits.value("SELECT spent FROM dp_budget()") == 100


def test_grouping_sets_with_ranges_agree(visits: Clinic) -> None:
    """The ranges by sex add up to the ranges: one plan answers both, with less noise than each set by itself."""
    statement = ask(
        "epsilon = 1, planning_seconds = 0.3",
        "sex, age, range_end(age) AS beyond, count(*) AS n",
        "GROUPING SETS ((sex, RANGES (age)), (RANGES (age)))",
        "visits",
    )
    sums: dict[tuple[object, object], float] = {}
    for sex, age, beyond, answer in visits.dp(statement):
        sums[age, beyond] = sums.get((age, beyond), 0.0) + (answer if sex is None else -answer)
    assert len(sums) == 55 and max(map(abs, sums.values())) < 1e-6
    notes = visits.con.execute("SELECT note FROM dp_explain(?) ORDER BY chosen DESC", [statement]).fetchall()
    assert "agree" in notes[0][0] and any("by itself" in note for (note,) in notes)


@pytest.mark.parametrize("grouping", ["CUBE (RANGES (age), sex)", "GROUPING SETS ((RANGES (age)), (sex))"])
@pytest.mark.parametrize("options", ["epsilon = 1, budgets = 'uniform'", "epsilon = 1, strategy = 'p_identity'"])
def test_ranges_inside_cubes_are_answered(visits: Clinic, options: str, grouping: str) -> None:
    """Products of real strategies once had columns too long for 64 bits, which only showed after the charge."""
    rows = visits.dp(ask(f"{options}, planning_seconds = 0.3", "sex, age, count(*) AS n", grouping, "visits"))
    assert len(rows) == (168 if "CUBE" in grouping else 57)


def test_predicted_errors_of_ranges(visits: Clinic) -> None:
    """With the identity strategy an interval of k bins has k times the variance of a bin, and the intervals agree."""
    statement = ask(
        "epsilon = 0.5, strategy = 'identity'",
        "age, range_end(age) AS beyond, count(*) AS n, dp_stderr(n), dp_interval_high(n)",
        "RANGES (age)",
        "visits",
    )
    bin_variance = 1 / (2 * np.sinh(0.25) ** 2)
    for age, beyond, answer, error, high in visits.dp(statement):
        assert error == pytest.approx((bin_variance * (beyond - age) / 10) ** 0.5, rel=1e-6)
        assert high - answer >= 1.95 * error


@pytest.mark.usefixtures("stopped_clock")
def test_explain_compares_range_strategies(visits: Clinic) -> None:
    """The candidates for ranges are listed, the smallest error first."""
    found = explained(visits, ask("epsilon = 1, planning_seconds = 0.3", "count(*)", "PREFIXES (age)", "visits"), "1")
    assert set(found) == {"identity", "hierarchy", "haar", "p_identity"}
    assert next(iter(found.values())) == min(found.values())


def test_the_last_range_ends_with_the_domain(visits: Clinic) -> None:
    """range_end has the column's own type. The last bin ends at the end of the domain."""
    rows = visits.dp(ask("epsilon = 1", "small, range_end(small), count(*)", "PREFIXES (small) ORDER BY ALL", "visits"))
    assert rows[-1][:2] == (96, 112)


@pytest.mark.parametrize(
    ("options", "grouping", "refusal"),
    [
        ("epsilon = 1", "PREFIXES (age), age", "is grouped in two ways"),
        ("epsilon = 1", "age, RANGES (age)", "is grouped in two ways"),
        ("epsilon = 1", "RANGES (age + 1)", "RANGES takes one column"),
        ("epsilon = 1", "RANGES (age, sex)", "RANGES takes one column"),
        ("epsilon = 1, nonnegative = TRUE", "RANGES (age)", "recovered by least squares alone"),
        ("epsilon = 1, consistency = 'l1'", "RANGES (age)", "recovered by least squares alone"),
        ("epsilon = 1, strategy = 'Q'", "RANGES (age)", "cannot serve these ranges"),
    ],
)
def test_refused_ranges(visits: Clinic, options: str, grouping: str, refusal: str) -> None:
    """Ranges that cannot be answered are refused before the charge."""
    assert refusal in visits.refused(ask(options, "count(*)", grouping, "visits"))


@pytest.mark.parametrize("grouping", ["PREFIXES (age)", "RANGES (age)", "sex, PREFIXES (age)", "age"])
def test_both_names_of_a_strategy_are_accepted(visits: Clinic, grouping: str) -> None:
    """I and identity, in any case, are one strategy for ranges as for plain groups."""
    found = [
        explained(visits, ask(f"epsilon = 1, strategy = '{name}'", "count(*)", grouping, "visits"), "1")
        for name in ("I", "i", "identity")
    ]
    assert [list(one) for one in found] == [list(found[0])] * 3
    assert list(found[0]) == (["I"] if grouping == "age" else ["identity"])


def declare_strategy(clinic: Clinic, name: str, rows: str) -> None:
    clinic.con.execute(f'CREATE TABLE {name} AS SELECT * FROM (VALUES {rows}) AS entries("row", "column", "value")')
    clinic.dp(f"DECLARE PUBLIC TABLE {name}")


def test_an_own_strategy_from_a_table(visits: Clinic) -> None:
    """strategy_table: sum and difference of two bins, least squares from both. Its content is part of the release."""
    declare_strategy(visits, "mine", "(1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, -1)")
    statement = ask("epsilon = 1, strategy_table = 'mine'", "sex, count(*) AS n, dp_stderr(n)", "sex", "visits")
    assert list(explained(visits, statement, "1")) == ["matrix"]
    variance = 1 / (2 * np.sinh(0.25) ** 2)  # both rows in one group: column norm 2, Laplace of scale 2
    answers = visits.dp(statement)
    assert [row[2] for row in answers] == pytest.approx([(variance / 2) ** 0.5] * 2, rel=1e-6)
    visits.con.execute("UPDATE mine SET value = 2 * value")
    assert visits.dp(statement) != answers and visits.value("SELECT spent FROM dp_budget()") == 2


@pytest.mark.parametrize(
    ("rows", "refusal"),
    [
        ("(1, 1, 1), (1, 2, 1)", "do not determine 2 of the 2 intervals: [0, 1), [1, 2)"),
        ("(1, 3, 1)", "has the entry (1, 3, 1)"),
        ("(1, 1, 1.5)", "something else than whole numbers"),
        ("(1, 1, 1), (1, 1, 2)", "two values for one row and column"),
    ],
)
def test_refused_strategy_tables(visits: Clinic, rows: str, refusal: str) -> None:
    """A singular strategy names the queries that it cannot answer. Wrong entries are named."""
    declare_strategy(visits, "mine", rows)
    statement = ask("epsilon = 1, strategy_table = 'mine'", "sex, count(*)", "{}", "visits")
    assert refusal in visits.refused(statement.format("sex"))
    assert "has no column column_1" in visits.refused(statement.format("sex, ward"))
    named = statement.replace("epsilon = 1", "epsilon = 1, strategy = 'I'")
    assert "in place of the option strategy" in visits.refused(named.format("sex"))


def test_each_row_has_a_budget_of_its_own(visits: Clinic) -> None:
    """Unequal rows: less than half of the variance of equal budgets, as the note says, and the stated price exactly."""
    cells = ", ".join(f"({bin}, {bin}, 1), (11, {bin}, {1 + bin % 3}), (12, {bin}, {bin % 2})" for bin in range(1, 11))
    declare_strategy(visits, "mine", cells)
    options = "epsilon = 1, planning_seconds = 0.5, strategy_table = 'mine'"
    statement = ask(options, "age, count(*)", "PREFIXES (age)", "visits")
    uniform = ask(options + ", budgets = 'uniform'", "age, count(*)", "PREFIXES (age)", "visits")
    assert explained(visits, statement, "1")["matrix"] < explained(visits, uniform, "1")["matrix"] / 2
    told = "SELECT note LIKE '% of the variance of equal budgets%' FROM dp_explain(?)"
    assert [visits.con.execute(told, [one]).fetchone() for one in (statement, uniform)] == [(True,), (False,)]
    assert len(visits.dp(statement)) == 10 and visits.value("SELECT spent FROM dp_budget()") == 1


def test_an_own_strategy_over_two_columns(visits: Clinic) -> None:
    """Rows over all cells, 0 for every value: a cube agrees with itself, and is near the exact counts.

    Twenty standard errors of a sum of Laplace noises have a chance below 1e-11.
    """
    cells = [(1 + 5 * sex + ward, 1 + sex, 1 + ward, 1) for sex in range(2) for ward in range(5)]
    rows = [*cells, (11, 0, 0, 1), (12, 1, 0, 1), (12, 2, 0, -1), (13, 0, 3, 2), (13, 1, 3, 1)]
    visits.con.execute(
        f"CREATE TABLE mine AS SELECT * FROM (VALUES {', '.join(map(str, rows))}) "
        'AS entries("row", column_1, column_2, "value")'
    )
    visits.dp("DECLARE PUBLIC TABLE mine")
    options = "epsilon = 10, planning_seconds = 0.5, strategy_table = 'mine'"
    statement = ask(options, "sex, ward, count(*) AS n, dp_stderr(n)", "CUBE (sex, ward)", "visits")
    found = {(row[0], row[1]): (row[2], row[3]) for row in visits.dp(statement)}
    assert len(found) == 3 * 6
    for (sex, ward), (answer, error) in found.items():
        conditions = ["true" if sex is None else f"sex = {sex}", "true" if ward is None else f"ward = '{ward}'"]
        exact = visits.value(f"SELECT count(*) FROM visits WHERE {' AND '.join(conditions)}")
        assert abs(answer - exact) < max(1e-3, 20 * error)
        if sex is None:
            assert answer == pytest.approx(found[0, ward][0] + found[1, ward][0])
    assert visits.value("SELECT spent FROM dp_budget()") == 10


def test_a_prepared_table_takes_an_own_strategy(visits: Clinic) -> None:
    """No rows are read from the strategy's table, so that nothing is copied beside prepared rows."""
    visits.dp("ALTER PRIVACY POLICY ON visits PREPARE")
    declare_strategy(visits, "mine", "(1, 1, 1), (2, 2, 1)")
    statement = ask("epsilon = 100, strategy_table = 'mine'", "sex, count(*)", "sex", "visits")
    assert [round(answer) for _, answer in visits.dp(statement)] == [500, 500]


def counts_between(options: str, *conditions: str) -> str:
    counted = ", ".join(
        f"count(*) FILTER (WHERE {condition}) AS n{number}, dp_stderr(n{number}), dp_interval_high(n{number})"
        for number, condition in enumerate(conditions)
    )
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) {counted} FROM visits"


INTERVALS = ("age BETWEEN 10 AND 29", "age >= 20 AND age < 60", "age BETWEEN 90 AND 99")


def test_filters_between_bins_are_one_workload(visits: Clinic) -> None:
    """Counts BETWEEN edges of one column's bins are planned together: the whole price, errors by interval."""
    found = visits.dp(counts_between("epsilon = 100", *INTERVALS))[0]
    for number, (low, high) in enumerate([(10, 30), (20, 60), (90, 100)]):
        assert abs(found[3 * number] - exact_ages(visits, low, high)) < max(1e-3, 8 * found[3 * number + 1])
    together = explained(visits, counts_between("epsilon = 1", *INTERVALS), "1")
    assert next(iter(together.values())) <= (2 + 2 + 1) * 2  # one count per bucket that the intervals tell apart
    assert visits.value("SELECT spent FROM dp_budget()") == 100


@pytest.mark.parametrize(
    "condition", ["age BETWEEN 10 AND 28", "small BETWEEN 0 AND 15", "age BETWEEN 10 AND 29 AND sex = 1", "age > 20"]
)
def test_other_filters_are_counted_one_by_one(visits: Clinic, condition: str) -> None:
    """A filter that is no interval of whole bins of the same column is answered as before, for a share of the price."""
    statement = counts_between("epsilon = 100", INTERVALS[0], condition)
    found = visits.dp(statement)[0]
    assert abs(found[3] - int(visits.value(f"SELECT count(*) FROM visits WHERE {condition}"))) <= 2
    assert not {"haar", "hierarchy"} & explained(visits, statement, "100").keys()
