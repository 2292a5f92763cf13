"""No row decides: random statements over extreme values of every type are answered alike with and without a row.

Expressions of the allowlist stand at every place, with table statistics present and beside conditions that statistics
prove false. Faulty functions are in test_row_fuzz, since they would change these answers.
"""

from __future__ import annotations

import random

import duckdb
import pytest

import dpduck
from tests.language.nasty_rows import TYPES, Writer, create
from tests.mechanisms.test_row_fuzz import KEYS, said


def nasty(her: bool) -> duckdb.DuckDBPyConnection:
    """Rows of extreme values of every type, perhaps with one more, and statistics of the table."""
    connection = dpduck.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    create(connection, "values_of_all_types")
    connection.execute(
        "CREATE TABLE visits AS SELECT row_number() OVER () AS id, 'n' AS name, * FROM values_of_all_types"
    )
    connection.execute("CREATE TABLE stays AS SELECT id FROM visits")
    connection.execute("CREATE TABLE pub AS SELECT DISTINCT s, i FROM values_of_all_types")
    if her:
        connection.execute("INSERT INTO visits SELECT 1000, 'her', * FROM values_of_all_types LIMIT 7")
    connection.execute("ANALYZE")
    for statement in (
        "DECLARE PUBLIC TABLE pub",
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT id MAX ROWS 3, BUDGET (epsilon = 1e6, delta = 1e-3, "
        "delta_keys = 5e-4), DOMAIN o IN (true, false) WITH NULL)",
        "CREATE PRIVACY POLICY ON stays (PRIVACY UNIT id REFERENCES visits.id MAX ROWS 1)",
    ):
        connection.execute("FROM dp(?)", [statement]).fetchall()
    return connection


SHAPES = (
    ("", "count(*) FROM visits WHERE {c}"),
    ("", "count(*) FROM visits WHERE id > 100000 AND {c}"),
    ("", "o, count(*) FILTER (WHERE {c}) FROM visits GROUP BY o"),
    ("", "count(*) FROM visits WHERE CASE WHEN name = 'her' THEN {c} ELSE true END"),
    ("", "sum({v}, contribution_bounds_per_row => (0, 9)) FROM visits"),
    ("", "avg({v}, contribution_bounds_per_group => (0, 9)) FROM visits"),
    ("", "count({v}) FROM visits"),
    (KEYS, "CAST({v} AS VARCHAR) AS k, count(*) FROM visits GROUP BY k"),
    ("", "n, count(*) FROM (SELECT id, count(CASE WHEN {c} THEN 1 END) AS n FROM visits GROUP BY id) GROUP BY n"),
    ("", "count(*) FROM (SELECT id, min({v}) AS m, bool_or({c}) AS b FROM visits GROUP BY id) WHERE m IS NULL OR b"),
    ("", "count(*) FROM (SELECT id, first({v} ORDER BY {v}) AS m FROM visits GROUP BY id) WHERE m IS NOT NULL"),
    ("", "count(*) FROM (SELECT id, lag({v}) OVER (PARTITION BY id ORDER BY {v}) AS m FROM visits) WHERE m IS NULL"),
    ("", "count(*) FROM stays JOIN visits ON visits.id = stays.id AND {c}"),
    ("", "count(*) FROM stays LEFT JOIN visits ON visits.id = stays.id AND {c}"),
    ("", "count(*) FROM visits JOIN pub ON {v} = pub.s"),
    ("", "count(*) FROM visits LEFT JOIN pub ON {v} = pub.i"),
    ("", "count(*) FROM (SELECT id FROM visits WHERE {c} UNION ALL SELECT id FROM stays)"),
)


def require_alike(count: int, seed: int) -> int:
    """Random statements on both databases. Returns how many were answered."""
    writer = Writer(random.Random(seed))  # noqa: S311
    both = nasty(True), nasty(False)
    answered = 0
    for number in range(count):
        options, select = writer.source.choice(SHAPES)
        text = select.format(c=f"({writer.condition(3)})", v=f"({writer.value(3)})")
        statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01, refresh = '{number}'{options}) {text}"
        outcomes = [isinstance(found, list) or found for found in (said(one, statement) for one in both)]
        assert outcomes[0] == outcomes[1], statement
        assert "after its charge" not in str(outcomes[0]), statement
        answered += outcomes[0] is True
    for one in both:
        one.close()
    return answered


@pytest.mark.slow
def test_random_statements_are_answered_alike() -> None:
    """Expressions of the allowlist may do anything with extreme values. A statement may fail only before its charge."""
    assert require_alike(60, 11) >= 6


@pytest.mark.audit
@pytest.mark.parametrize("seed", range(8))
def test_very_many_random_statements_are_answered_alike(seed: int) -> None:
    """Many more random statements."""
    assert require_alike(400, 100 + seed) >= 60


def test_every_type_is_among_the_rows() -> None:
    """The search is over all types that columns may have."""
    assert {"TINYINT", "HUGEINT", "DECIMAL(38,10)", "INTERVAL", "UUID", "TIMESTAMP WITH TIME ZONE"} <= set(
        TYPES.values()
    )
