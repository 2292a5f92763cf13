"""Sums, averages and bounded counts of groups with selected keys, through FROM dp(..)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.values.accounting import rho_of

BUDGET = "BUDGET (epsilon = 400, delta = 0.009, delta_keys = 0.008)"
POLICY = f"""CREATE PRIVACY POLICY ON professors (PRIVACY UNIT id MAX ROWS 5, {BUDGET},
    CLAMP quantity BETWEEN 0 AND 100, DOMAIN color IN ('red', 'blue'))"""
ROWS = """SELECT i // 4 AS id, ['pen', 'paper', 'gum'][1 + (i * 7919) % 3] AS item, CAST(i * 31 % 100 AS INTEGER)
    AS quantity, CASE WHEN i % 5 > 0 THEN i % 7 / 7 END AS share, ['red', 'blue'][1 + i % 2] AS color
    FROM range(12000) AS r(i) UNION ALL SELECT 10000 + i, 'rare ' || i, 1, 0.5, 'red' FROM range(200) AS r(i)"""
# One of the 200 items of a single professor is published with a chance below 1e-10 at this delta.
OPTIONS = "epsilon = 10, delta = 1e-12, max_groups_contributed = 3, group_selection_strategy = {}_THRESHOLD"


@pytest.fixture(scope="module")
def professors() -> Iterator[duckdb.DuckDBPyConnection]:
    """Three items of 4,000 rows each, and 200 of one professor each."""
    with dpduck.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE professors AS {ROWS}")
        connection.execute("FROM dp(?)", [POLICY])
        yield connection


def statement(rest: str, noise: str = "GAUSSIAN", more: str = "") -> str:
    """A statement by selected items. rest: from the select list on."""
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({OPTIONS.format(noise)}{more}) item, {rest} GROUP BY item"


def ask(connection: duckdb.DuckDBPyConnection, text: str) -> dict[Any, tuple[Any, ...]]:
    """The rows of an answer by their first column."""
    return {row[0]: row[1:] for row in connection.execute("FROM dp(?)", [text]).fetchall()}


def charges(connection: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """Returns the charge of every release."""
    return connection.execute("SELECT epsilon, rho, delta FROM dp_ledger() ORDER BY id").fetchall()


@pytest.mark.parametrize("noise", ["LAPLACE", "GAUSSIAN"])
@pytest.mark.parametrize("bounds", ["", ", contribution_bounds_per_group => (0, 100)"])
def test_the_first_example_of_bigquery(professors: duckdb.DuckDBPyConnection, noise: str, bounds: str) -> None:
    """Average quantities by item: those of the items of many, within fifteen standard errors of noise (6e-10). At this
    delta an item of one professor may be among them."""
    text = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 10, delta = .0001, max_groups_contributed = 2, "
        f"privacy_unit_column = id, group_selection_strategy = {noise}_THRESHOLD) item, AVG(quantity{bounds}) AS "
        "average_quantity, dp_stderr(average_quantity) AS error FROM professors GROUP BY item"
    )
    found = ask(professors, text)
    assert found.keys() >= {"pen", "paper", "gum"}
    for average, error in (found[item] for item in ("pen", "paper", "gum")):
        assert 0 < error < 1 and abs(average - 49.5) < 2 + 15 * error, "two groups of three are kept"


def test_sums_averages_and_counts_agree_with_the_rows(professors: duckdb.DuckDBPyConnection) -> None:
    """All groups of a unit are kept: each answer is within fifteen standard errors of the exact one, NULL ignored."""
    text = (
        "sum(quantity) AS s, avg(share, contribution_bounds_per_row => (0, 1)) AS a, count(share) AS c, count(*) AS n, "
        "sum(quantity) FILTER (WHERE color = 'red') AS r, dp_stderr(s), dp_stderr(a), dp_stderr(c), dp_stderr(n), "
        "dp_stderr(r) FROM professors"
    )
    found = ask(professors, statement(text))
    rows = professors.execute(
        "SELECT item, sum(quantity), avg(share), count(share), count(*), sum(quantity) FILTER (WHERE color = 'red') "
        "FROM professors WHERE item NOT LIKE 'rare%' GROUP BY item"
    ).fetchall()
    assert len(rows) == 3 and found.keys() == {row[0] for row in rows}
    for item, *exact in rows:
        answers, errors = found[item][:5], found[item][5:]
        assert [type(one) for one in answers] == [float, float, int, int, float]
        for answer, value, error in zip(answers, exact, errors, strict=True):
            assert error > 0 and abs(answer - value) <= 15 * error


def test_the_row_for_all_others_has_sums_and_averages(professors: duckdb.DuckDBPyConnection) -> None:
    """200 items of one professor each are one row: 200 rows of quantity 1, which cost no more than without them."""
    rest = (
        "sum(quantity) AS s, avg(quantity) AS a, count(*) AS n, dp_stderr(s), dp_interval_low(a), dp_interval_high(a)"
    )
    found = ask(professors, statement(f"{rest} FROM professors", more=", other = TRUE"))
    total, average, rows, error, low, high = found[None]
    assert abs(total - 200) <= 15 * error and abs(rows - 200) < 150
    assert 0 <= low <= average <= high <= 100 and low < 1 + 15 * error / 200
    assert found.keys() == {"pen", "paper", "gum", None}


def test_a_sum_costs_what_was_asked(professors: duckdb.DuckDBPyConnection) -> None:
    """Gaussian noise costs the rho of epsilon and the part of delta that is not of keys, Laplace noise epsilon."""
    before = len(charges(professors))
    ask(professors, statement("sum(quantity) AS s, avg(quantity) AS b FROM professors", more=", refresh = 'a'"))
    ask(professors, statement("sum(quantity) AS s FROM professors", noise="LAPLACE", more=", refresh = 'a'"))
    gaussian, laplace = charges(professors)[before:]
    delta = Fraction(1, 10**12)
    assert gaussian[0] is None and gaussian[2] == pytest.approx(float(delta * 8 / 9), abs=0)
    assert gaussian[1] == pytest.approx(float(rho_of(Fraction(10), delta / 9)), rel=1e-6)
    assert laplace[0] == 10.0 and laplace[2] == pytest.approx(1e-12, abs=0)


def test_bounds_by_group_have_less_noise(professors: duckdb.DuckDBPyConnection) -> None:
    """A unit of five rows in three groups: bounds by group move a sum by the root of three, those by row by five."""
    text = statement("sum(quantity) AS s, dp_stderr(s) FROM professors")
    by_row = ask(professors, text)["pen"][1]
    bounded = text.replace("quantity)", "quantity, contribution_bounds_per_group => (0, 100))")
    assert ask(professors, bounded)["pen"][1] == pytest.approx(by_row * 3**0.5 / 5, rel=0.01)
    units = statement("count(DISTINCT id) FILTER (WHERE color = 'red') AS n, dp_stderr(n) FROM professors")
    rows = statement("count(*) FILTER (WHERE color = 'red') AS n, dp_stderr(n) FROM professors")
    assert ask(professors, units)["pen"][1] == pytest.approx(ask(professors, rows)["pen"][1] * 3**0.5 / 5, rel=0.01)


NORM = ", max_norm_contributed = {}"


def test_a_norm_takes_the_place_of_rows(professors: duckdb.DuckDBPyConnection) -> None:
    """Units of four rows in three groups: a norm of 2 has the noise of 2 rows, and a unit of more counts for a part.

    A norm of 5 leaves all as it is: answers are within fifteen standard errors, and those of counts are whole.
    """
    rest = "count(*) AS n, sum(quantity) AS s, avg(quantity) AS a, dp_stderr(n), dp_stderr(s), dp_stderr(a)"
    text = "{} FROM professors"
    plain, half, whole = (
        ask(professors, statement(text.format(rest), more=more))
        for more in (", refresh = 'norms'", NORM.format(2), NORM.format(5))
    )
    exact = professors.execute("SELECT count(*), sum(quantity), avg(quantity) FROM professors WHERE item = 'pen'")
    for answer, value, error in zip(whole["pen"][:3], exact.fetchall()[0], whole["pen"][3:], strict=True):
        assert abs(answer - float(value)) <= 15 * error
    assert isinstance(whole["pen"][0], int)
    assert half["pen"][3] == pytest.approx(plain["pen"][3] * 2 / 5, rel=0.05)
    assert half["pen"][4] == pytest.approx(plain["pen"][4] * 2 / 5, rel=0.01)
    assert whole["pen"][3] == pytest.approx(plain["pen"][3], rel=0.05)
    assert 0.7 < half["pen"][0] / whole["pen"][0] < 0.9, "two rows of one group and one of two others: a norm of 2.4"
    assert abs(half["pen"][2] - whole["pen"][2]) < 2


def test_norms_are_explained(professors: duckdb.DuckDBPyConnection) -> None:
    """dp_explain tells the norm of each table, and dp_errors the errors of answers in rows."""
    text = statement("count(*) AS n, avg(quantity) AS a, dp_stderr(n) FROM professors", more=NORM.format(2))
    ((note,),) = professors.execute("SELECT note FROM dp_explain(?) WHERE chosen", [text]).fetchall()
    assert "a count over all rows, of which one unit has at most a norm of 2, and a unit above it counts for a" in note
    assert "about 50, of which one unit has at most a norm of 100," in note
    lines = professors.execute("FROM dp_errors(?)", [text]).fetchall()
    assert ask(professors, text)["pen"][2] == pytest.approx(lines[0][3], rel=1e-3)


def test_units_are_free_beside_an_average(professors: duckdb.DuckDBPyConnection) -> None:
    """count(DISTINCT unit) is the selecting count: it takes no part of the price of the average beside it."""
    alone = statement("avg(quantity) AS a, dp_stderr(a) FROM professors")
    beside = statement("avg(quantity) AS a, dp_stderr(a), count(DISTINCT id) AS n, dp_stderr(n) FROM professors")
    first, second = ask(professors, alone)["pen"], ask(professors, beside)["pen"]
    assert second[1] == pytest.approx(first[1], rel=0.02)
    selecting = professors.execute("SELECT selection_stderr FROM dp_explain(?) WHERE chosen", [beside]).fetchall()
    assert second[3] == pytest.approx(selecting[0][0])


def test_explain_and_errors_say_what_a_unit_adds(professors: duckdb.DuckDBPyConnection) -> None:
    """dp_explain tells each table's bounds and part of the price, and dp_errors has a line for each aggregate."""
    before = charges(professors)
    text = statement("sum(quantity) AS s, avg(quantity) AS a, count(*) AS n FROM professors")
    explained = professors.execute("SELECT strategy, worst_stderr, note FROM dp_explain(?) WHERE chosen", [text])
    ((strategy, worst, note),) = explained.fetchall()
    assert strategy == "gaussian_threshold"
    assert "between 0 and 100 about 50, of which one unit adds at most 250, 250 to one group: 37.5 %" in note
    assert "a count over all rows, of which one unit adds at most 5, 5 to one group: 25 %" in note
    lines = professors.execute("FROM dp_errors(?)", [text]).fetchall()
    assert [line[:3] for line in lines] == [
        ('sum("quantity")', None, None), ('avg("quantity")', None, None), ("count(*)", None, None)
    ]  # fmt: skip
    assert lines[0][3] == pytest.approx(worst, rel=1e-3)
    assert lines[1][3] is None and "divided by the rows of a cell" in lines[1][5] and "EXPECT" not in lines[1][5]
    found = ask(professors, text.replace(" FROM prof", ", dp_stderr(s), dp_stderr(a), dp_stderr(n) FROM prof"))["pen"]
    assert found[3] == pytest.approx(worst) and found[5] == pytest.approx(lines[2][3], rel=1e-3)
    told = float(lines[1][5].split()[1].replace(",", ""))
    assert found[4] * 4000 == pytest.approx(told, rel=0.35), "at the middle of the bounds an average errs least"
    assert len(charges(professors)) == len(before) + 1


@pytest.mark.parametrize(
    ("rest", "more", "message"),
    [
        ("median(quantity) FROM professors", "", "counts, sums and averages alone; accepted: count"),
        ("stddev(quantity) FROM professors", "", "counts, sums and averages alone"),
        ("count(DISTINCT color) FROM professors", "", "is not answered for selected keys; accepted: count.DISTINCT un"),
        ("sum(share) FROM professors", "", "these values need public bounds"),
        (
            "sum(quantity, contribution_bounds_per_group => (0, 9)) FROM professors",
            ", other = TRUE",
            "adds to one group, and other = TRUE is of many; accepted: contribution_bounds_per_row",
        ),
        ("avg(quantity), count(DISTINCT id) FROM professors", ", other = TRUE", "units of several groups"),
        ("avg(quantity) FROM professors", ", nonnegative = TRUE", "does not apply to keys that are selected"),
        ("avg(quantity) FROM professors", ", aggregate_weights = (1)", "does not apply to keys that are selected"),
        ("count(*) FROM professors", ", max_norm_contributed = 'private'", "a norm of selected keys is a number"),
        ("count(*) FROM professors", ", max_norm_contributed = 2, other = TRUE", "bounds no row for all other groups"),
        ("count(*) FROM professors", ", max_norm_contributed = 9", "above the rows of a unit; accepted: at most 5"),
        ("count(*) FROM professors", ", centers = 5", "go with a norm of rows"),
    ],
)
def test_what_selected_keys_do_not_answer(
    professors: duckdb.DuckDBPyConnection, rest: str, more: str, message: str
) -> None:
    """Each refusal names an accepted statement, and nothing is charged."""
    before = charges(professors)
    with pytest.raises(duckdb.Error, match=message):
        ask(professors, statement(rest, more=more))
    assert charges(professors) == before


def test_norms_have_no_laplace_noise(professors: duckdb.DuckDBPyConnection) -> None:
    """A norm bounds the L2 norm of a unit, which Laplace noise does not go by."""
    with pytest.raises(duckdb.Error, match="Laplace noise goes by rows"):
        ask(professors, statement("count(*) FROM professors", noise="LAPLACE", more=NORM.format(2)))


def test_rows_as_units_have_sums(professors: duckdb.DuckDBPyConnection) -> None:
    """PRIVACY UNIT ROW: a row adds at most its bound, its count is the selecting one, and bounds by group are none."""
    with dpduck.connect(":memory:") as rows:
        rows.execute(f"CREATE TABLE professors AS {ROWS}")
        rows.execute("FROM dp(?)", [POLICY.replace("id MAX ROWS 5", "ROW")])
        text = statement("sum(quantity) AS s, count(*) AS n, dp_stderr(s), dp_stderr(n) FROM professors").replace(
            "max_groups_contributed = 3, ", ""
        )
        found = ask(rows, text)
        assert found.keys() == {"pen", "paper", "gum"}
        assert found["pen"][2] == pytest.approx(100 * found["pen"][3], rel=0.01)
        with pytest.raises(duckdb.Error, match="every row is a unit"):
            ask(rows, text.replace("sum(quantity)", "sum(quantity, contribution_bounds_per_group => (0, 9))"))


def test_a_view_of_averages(professors: duckdb.DuckDBPyConnection) -> None:
    """A private view keeps the averages of published groups, with their standard errors."""
    options = OPTIONS.format("GAUSSIAN")
    view = f"CREATE PRIVATE VIEW averages OPTIONS ({options}) AS SELECT item, avg(quantity) AS a, sum(quantity) AS s "
    professors.execute("FROM dp(?)", [f"{view} FROM professors GROUP BY item"])
    rows = professors.execute("SELECT item, a, a_stderr, s, s_stderr FROM private.averages").fetchall()
    assert {row[0] for row in rows} == {"pen", "paper", "gum"}
    assert all(abs(row[1] - 49.5) < 2 + 15 * row[2] and 0 < row[4] < 2000 for row in rows)
    names = professors.execute("SELECT value FROM dp_certificate('averages') WHERE field = 'plan'").fetchall()
    assert '"Beside"' in names[0][0] and '"answered": 0' in names[0][0]
