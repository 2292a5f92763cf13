"""Every kind of release in the window, and the macros that read them by name, through the gate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpduck.edges.shipped_macros import shipped_names
from dpduck.server import allowed
from tests.server.served import Served, ask, open_served

POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 40, delta = 1e-5),
    DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 10, DOMAIN ward FROM wards.name, EXPECT ROWS 1000)"""
MADE = (
    "CREATE PRIVATE PROJECTION codes OPTIONS (epsilon = 1, delta = 1e-6, sparsity = 8, queries = 100) "
    "AS SELECT ward FROM visits",
    "CREATE PRIVATE VIEW summed OPTIONS (epsilon = 1, summary = 'filter', theta = 2) AS "
    "SELECT ward, age, count(*) AS n FROM visits GROUP BY ward, age",
    "CREATE PRIVATE TABLE synth OPTIONS (epsilon = 1, mechanism = 'mwem', rows = 100) AS "
    "SELECT sex, age, ward FROM visits WORKLOAD MARGINALS (2)",
)
QUESTION = "WITH q AS (SELECT 'w1' AS key, 1 AS weight, 1 AS query)"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, state_directory: Path) -> Iterator[Served]:
    opened = open_served(tmp_path_factory.mktemp("releases"), policy=POLICY)
    for statement in MADE:
        opened.rows("bob", ask(statement))
    yield opened
    opened.house.close()


def test_every_kind_of_release_is_read(released: Served) -> None:
    """Projections, summaries and synthetic tables are tables of the window, for everybody who may read."""
    for table in ("codes", "codes_seed", "summed", "synth"):
        assert released.rows("carol", f"SELECT count(*) >= 0 FROM {table}") == [(True,)], table
    assert released.rows("carol", "SELECT dp_sum_stderr(n_variance) >= 0 FROM summed") == [(True,)]


def test_macros_over_names(released: Served) -> None:
    """dp_project and dp_project_all ask a projection about a common table expression; nothing is charged."""
    before = released.spent()
    assert len(released.rows("carol", f"{QUESTION} FROM dp_project('codes', 'q')")) == 1
    assert len(released.rows("carol", f"{QUESTION} SELECT query, answer FROM dp_project_all('Codes', 'Q')")) == 1
    assert released.spent() == before
    assert set(shipped_names()) - {"dp_released"} == allowed.SHIPPED_MACROS | (
        allowed.TABLE_MACROS.keys() - {allowed.MARGIN}
    )


def test_questions_through_the_gate(released: Served) -> None:
    """dp_ask: lists, weights, tuples, and selections from public tables alone; equal questions are free."""
    for name, on in (("by_ward", "ward"), ("pairs", "ward, sex")):
        price = "epsilon = 1, delta = 1e-6, queries = 20"
        released.rows("bob", ask(f"CREATE PRIVATE HISTOGRAM {name} OPTIONS ({price}) ON visits ({on})"))
    before = released.spent()
    (listed,) = released.rows("bob", "SELECT answer, margin FROM dp_ask('by_ward', ['w1', 'w2'])")
    selected = "FROM dp_ask('by_ward', $k$ ward IN (SELECT name FROM wards WHERE name IN ('w1', 'w2')) $k$)"
    assert released.rows("bob", f"SELECT answer, margin {selected}") == [listed]
    assert len(released.rows("bob", "FROM dp_ask('pairs', [('w1', 0), ('w2', 1)], weights := [0.5, 1])")) == 1
    assert released.spent() == before
    released.refused("bob", "FROM dp_ask('by_ward', 'ward IN (SELECT ward FROM visits)')")
    released.refused("bob", "FROM dp_ask('by_ward', (SELECT list(ward) FROM summed))")
    released.refused("carol", "FROM dp_ask('by_ward', ['w1'])")


def test_names_are_names_of_released_tables(released: Served) -> None:
    """Anything else in the place of a name is refused."""
    for bad in ("duckdb_settings", "listing.main.tables", '"codes"', "answers.main.x", "visits", "", "codes; SELECT 1"):
        released.refused("bob", f"{QUESTION} FROM dp_project('{bad}', 'q')")
        released.refused("bob", f"{QUESTION} FROM dp_project_all('codes', '{bad}')")
        released.refused("bob", f"FROM dp_sketch_point('{bad}', ['w1'])")
    for text in ("dp_project('q', 'q')", "dp_project('codes', question := 'q')", "dp_project('codes', NULL)",
                 "dp_project('codes', (SELECT 'q'))", "main.dp_project('codes', 'q')"):  # fmt: skip
        released.refused("bob", f"{QUESTION} FROM {text}")
    released.refused("bob", "SELECT dp_released('visits')")
