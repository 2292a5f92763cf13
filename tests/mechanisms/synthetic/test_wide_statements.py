"""SELECT *, bins, values inside bins, and combinations that WHERE rules out, in CREATE PRIVATE TABLE."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from dpduck.language.select.impossible_cells import ImpossibleCells
from dpduck.mechanisms.synthetic.cliques import kept_zeros
from dpduck.mechanisms.synthetic.distribution import uniform, zero_tables
from dpduck.mechanisms.synthetic.fit import fit
from dpduck.mechanisms.synthetic.junction import junction_tree
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.mechanisms.synthetic.sample import _draw_cells
from tests.support.clinics import Clinic

PRICE = "epsilon = 2, delta = 1e-6"
DOMAINS = """DOMAIN age RANGE 0 TO 120 STEP 1 WITH NULL, DOMAIN married BOOLEAN WITH NULL,
    DOMAIN ward IN ('a', 'b', 'c'),
    DOMAIN paid RANGE 0 TO 50 STEP 5, DOMAIN seen RANGE DATE '2025-01-01' TO DATE '2026-01-01' STEP MONTH,
    DOMAIN weight RANGE 0 TO 100 STEP 10"""


@pytest.fixture
def people(open_clinic: Callable[..., Clinic]) -> Clinic:
    """3,000 rows of 1,500 people. Under 15 one row in a hundred is of somebody married. NULLs and values outside."""
    clinic = open_clinic()
    clinic.con.execute(
        """CREATE TABLE people AS SELECT range // 2 AS person,
           CASE WHEN range % 15 = 7 THEN NULL ELSE (hash(range) % 100)::INTEGER END AS age,
           CASE WHEN range % 80 = 3 THEN NULL WHEN range % 100 = 5 THEN TRUE
                ELSE hash(range) % 100 >= 15 AND range % 3 = 0 END AS married,
           ['a', 'b', 'c', 'd'][1 + range % 4] AS ward, (hash(range, 1) % 5500 / 100)::DECIMAL(9, 2) AS paid,
           DATE '2025-01-01' + (hash(range, 2) % 365)::INTEGER AS seen, (hash(range, 3) % 100)::DOUBLE AS weight,
           'note ' || range AS note FROM range(3000)"""
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON people (PRIVACY UNIT person MAX ROWS 2, BUDGET (epsilon = 60, delta = 1e-4), "
        f"{DOMAINS}, EXPECT ROWS 3000)"
    )
    return clinic


def test_a_star_is_every_column_with_a_domain(people: Clinic) -> None:
    """SELECT * has the columns with a DOMAIN in the table's order, EXCLUDE leaves some out. Both equal the statement
    that lists the columns: the second is free. Other stars are refused by name."""
    head = f"CREATE PRIVATE TABLE {{}} OPTIONS ({PRICE}, bins = 4, rows = 50) AS SELECT {{}} FROM people "
    head += "WORKLOAD MARGINALS (2)"
    people.dp(head.format("starred", "*"))
    names = [row[0] for row in people.rows("DESCRIBE private.starred")]
    assert names == ["age", "married", "ward", "paid", "seen", "weight"]
    charged = people.charges()
    people.dp(head.format("listed", ", ".join(names)))
    people.dp(head.format("shorter", "* EXCLUDE (weight, Seen)").replace(PRICE, "epsilon = 1, delta = 1e-7"))
    assert people.charges() == charged + 1
    assert [row[0] for row in people.rows("DESCRIBE private.shorter")] == names[:4]
    messages = people.all_refused([
        head.format("x", "people.*"), head.format("x", "* EXCLUDE (note)"), head.format("x", "*, age"),
        head.format("x", "* REPLACE (age + 1 AS age)"), head.format("x", "*").replace("people", "nowhere"),
        head.format("x", "*").replace("FROM people", "FROM people JOIN people AS q USING (person)"),
    ])  # fmt: skip
    assert "EXCLUDE leaves out" in messages[1]
    assert all("columns with a DOMAIN, by their names" in one for one in (*messages[:1], *messages[2:])), messages


@pytest.mark.parametrize("mechanism", ["aim", "mwem", "cube", "mwem', update = 'paper"])
def test_what_where_rules_out_is_in_no_row(people: Clinic, mechanism: str) -> None:
    """WHERE excludes married children, and ward c in spring. Rows of every mechanism have no such combination, whatever
    the noise. The other columns keep theirs."""
    people.dp(
        f"CREATE PRIVATE TABLE made OPTIONS (epsilon = 0.5, delta = 1e-6, mechanism = '{mechanism}', bins = 8, "
        "rows = 20000) AS SELECT age, married, ward, seen FROM people WHERE NOT (age < 15 AND married) "
        "AND (ward <> 'c' OR seen >= DATE '2025-06-01') AND age < 75 WORKLOAD MARGINALS (2)"
    )
    assert people.value("SELECT count(*) FROM private.made") == 20000
    seen = "count(*) FILTER (WHERE ward = 'c' AND seen < DATE '2025-04-01'), count(*) FILTER (WHERE ward = 'c')"
    in_spring, of_ward = people.rows(f"SELECT {seen} FROM private.made")[0]
    assert in_spring == 0 and of_ward > 0


def test_what_is_impossible_follows_bins(people: Clinic) -> None:
    """Ages as they are: no married child, no age from 75 on and no NULL, which WHERE drops. A NULL in married stays
    possible for adults. A merged bin is possible if one of its bins is. At epsilon 2 noise leaves no NULL in one run of
    a hundred. At 20 those 55 of 5,000 rows are seven standard deviations above none."""
    statement = (
        "CREATE PRIVATE TABLE made OPTIONS (epsilon = 20, delta = 1e-6{}, rows = 5000) AS SELECT age, married "
        "FROM people WHERE NOT (age < 15 AND married) AND age < 75 WORKLOAD MARGINALS (2)"
    )
    people.dp(statement.format(""))
    broken = "age IS NULL OR age >= 75 OR (age < 15 AND coalesce(married, TRUE))"
    assert people.value(f"SELECT count(*) FROM private.made WHERE {broken}") == 0
    assert people.value("SELECT count(*) FROM private.made WHERE married IS NULL") > 0
    people.dp(statement.format(", bins = 12").replace("made", "merged"))
    ages = people.rows("SELECT DISTINCT age, married FROM private.merged WHERE age < 20 OR age > 60")
    assert (0, True) not in ages and {(0, False), (10, True), (70, False)} <= set(ages)
    assert max(age for age, _ in ages) == 70


def test_values_are_drawn_inside_bins(people: Clinic) -> None:
    """Of the columns' own types, evenly between the edges of bins, the policy's or merged ones; free beside edges."""
    head = f"CREATE PRIVATE TABLE {{}} OPTIONS ({PRICE}, rows = 4000, bins = 6{{}}) AS SELECT age, paid, seen, "
    head += "weight, ward FROM people WORKLOAD MARGINALS (1)"
    people.dp(head.format("edges", ""))
    charged = people.charges()
    people.dp(head.format("within", ", inside = TRUE"))
    assert people.charges() == charged
    types = [row[1] for row in people.rows("DESCRIBE private.within")]
    assert types == ["INTEGER", "DECIMAL(9,2)", "DATE", "DOUBLE", "VARCHAR"]
    sql = "SELECT count(DISTINCT {0}), min({0}), max({0}) FROM private.{1}"
    bins, _, last = people.rows(sql.format("paid", "edges"))[0]
    values, low, high = people.rows(sql.format("paid", "within"))[0]
    assert (bins, float(last)) == (5, 40) and values > 1000 and low >= 0 and 49 < high < 50
    assert people.rows(sql.format("seen", "edges"))[0][0] == 6
    days, first, end = people.rows(sql.format("seen", "within"))[0]
    assert days > 300 and str(first) < "2025-01-10" and "2025-12-20" < str(end) < "2026-01-01"
    assert people.value("SELECT max(weight) FROM private.within") < 100
    assert people.value("SELECT count(*) FROM private.within WHERE age IS NULL") > 0
    assert people.value("SELECT avg(weight % 20) FROM private.within") == pytest.approx(10, abs=1)
    refused = people.refused(head.format("x", "").replace("MARGINALS (1)", "(count(*) FILTER (WHERE age < 7))"))
    assert "a workload of marginals, or no bins" in refused


def test_a_fit_with_zeros_is_the_fit_to_the_rest() -> None:
    """Impossible cells have probability 0 exactly and their noise moves nothing. The others are fitted as if they were
    all there is. Contradictions are no failure."""
    sizes, draws = (3, 2, 4), np.random.default_rng(5)
    zeros = zero_tables(sizes, [ImpossibleCells((0, 1), (1, 5)), ImpossibleCells((2,), (3,))])
    value = draws.normal(50, 20, (3, 2))
    found = []
    for noise in (0.0, 1e6):
        noisy = value.copy()
        noisy[0, 1] += noise
        seen = [Observation((0, 1), noisy, 9.0), Observation((1, 2), draws.normal(40, 1, (2, 4)), 1e4)]
        fitted = fit(
            junction_tree(((0, 1), (1, 2))),
            sizes,
            seen,
            300.0,
            steps=500,
            start={},
            prior={},
            strength=1.0,
            zeros=zeros,
        )
        assert [fitted.tables[0][0, 1], fitted.tables[0][2, 1], *fitted.tables[1][:, 3]] == [0] * 4
        assert sum(map(np.sum, fitted.tables)) == pytest.approx(2)
        found.append(fitted.tables[0])
    assert np.abs(found[0] - found[1]).max() < 0.02
    nothing = uniform((2, 2), dense=False, zeros=zero_tables((2, 2), [ImpossibleCells((0, 1), (0, 1, 2, 3))]))
    assert nothing.marginals([(0,)])[0,].sum() == pytest.approx(1)


def test_zeros_are_kept_by_their_size() -> None:
    """Conditions that would connect too many cells say nothing: sizes decide."""
    pairs = [ImpossibleCells(pair, (0,)) for pair in combinations(range(6), 2)]
    kept = kept_zeros((10,) * 6, (), pairs, 2_000)
    assert 2 <= len(kept) < len(pairs) and kept[0] == pairs[0]


def test_no_row_is_rounded_into_a_cell_without_weight() -> None:
    """The last cells of a group have no weight: rounding of sums gives them no row either."""
    draws = np.random.default_rng(6)
    for _ in range(200):
        weights = np.concatenate([draws.random(7), np.zeros(3)])[None] * 1e-3
        assert _draw_cells(weights, np.zeros(1000, np.int64), float(draws.random())).max() < 7
