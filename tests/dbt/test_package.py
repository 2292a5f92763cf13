"""Real dbt over a private table: a model is released once, and nothing that dbt writes has a private row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpduck.publish.publish import publish
from tests.dbt.project import BIGGEST, PLANTED, PROJECT, Project, Said, make_project

BY_WARD = "SELECT ward, count(*) AS n, sum(bill) AS bills FROM {{ source('rows', 'visits') }} GROUP BY ward"
TESTS = """
version: 2
models:
  - {name: by_ward, description: Visits by ward, data_tests: [dpduck.is_private]}
  - {name: busy, data_tests: [dpduck.is_private]}
"""
SHOW_ROWS = ("show", "--output", "json", "--inline")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Said]:
    """A project with a private view, a table over it and a test of each, built once."""
    project = make_project(tmp_path_factory.mktemp("dbt"))
    project.model("by_ward", BY_WARD)
    project.model("busy", "SELECT ward, n FROM {{ ref('by_ward') }} WHERE n > 1", "tags=[]", "table")
    project.write("models/tests.yml", TESTS)
    return project, project.dbt("build")


def require_no_row(project: Project) -> None:
    """Nothing in logs, results and compiled SQL comes from the private row."""
    written = project.written()
    assert "private_view" in written and PLANTED not in written and str(BIGGEST) not in written


def test_a_model_is_released_once(built: tuple[Project, Said]) -> None:
    """A second build is free. A model with another SELECT is a new release, and its price is said before."""
    project, said = built
    assert "by_ward: 5 % of your budget (epsilon = 0.5)" in said.text
    first = project.ask("SELECT ward, n FROM private.by_ward ORDER BY ward")
    assert [ward for ward, _ in first] == ["A", "B", None]
    assert project.spent == 0.5 and project.ask("SELECT ward, n FROM busy ORDER BY ward") == first
    assert project.ask("SELECT ward, n FROM by_ward ORDER BY ward") == first, "a view in the schema of the model"
    again = project.dbt("build")
    assert "by_ward: answered already: free" in again.text and project.spent == 0.5
    assert project.ask("SELECT ward, n FROM private.by_ward ORDER BY ward") == first
    project.model("by_ward", BY_WARD.replace("bill)", "bill) / 2"), "epsilon=0.25")
    changed = project.dbt("run", "--select", "by_ward")
    assert "by_ward: 2.5 % of your budget (epsilon = 0.25)" in changed.text and project.spent == 0.75
    project.model("by_ward", BY_WARD)
    require_no_row(project)


def test_is_private_tells_views_from_tables(built: tuple[Project, Said]) -> None:
    """A private view passes. A table over one fails, though it has the same rows."""
    said = built[1]
    assert said.code == 1 and "PASS=3" in said.text and "ERROR=1" in said.text
    assert "PASS dpduck_is_private_by_ward_" in said.text and "FAIL 1 dpduck_is_private_busy_" in said.text


@pytest.mark.slow
def test_what_dbt_shows_is_released(built: tuple[Project, Said]) -> None:
    """A preview of a model is its release. Private rows are refused by name, also through a view, and never logged."""
    project = built[0]
    project.ask("CREATE OR REPLACE VIEW old AS SELECT name FROM visits")
    shown = project.dbt("show", "--select", "by_ward", "--limit", "9")
    released = project.ask("SELECT CAST(n AS VARCHAR) FROM private.by_ward")
    assert shown.code == 0 and all(n in shown.text for (n,) in released)
    for sql in ("SELECT * FROM {{ source('rows', 'visits') }}", "SELECT max(name) FROM old"):
        refused = project.dbt(*SHOW_ROWS, sql)
        assert refused.code and "accepted: dbt show of a private view" in refused.text, sql
    refused = project.dbt(*SHOW_ROWS, "SELECT * FROM query_table('visits')")
    assert refused.code and "the table function query_table may read private rows" in refused.text
    assert project.dbt("docs", "generate").code == 0
    catalog = json.loads((project.folder / "target" / "catalog.json").read_text(encoding="utf-8"))
    for node in (*catalog["nodes"].values(), *catalog["sources"].values()):
        assert set(node["stats"]) == {"has_stats"} and node["stats"]["has_stats"]["value"] is False
    assert "model.clinic.by_ward" in catalog["nodes"] and "source.clinic.rows.visits" in catalog["sources"]
    require_no_row(project)


REFUSED = {
    "no_price": ("tags=[]", "the model no_price has no price; accepted: config("),
    "unknown": ("epsilon=0.1, options={'epsilonn': 2}", "the option 'epsilonn' is unknown; accepted: epsilon (did you"),
    "twice": ("epsilon=0.1, options={'epsilon': 2}", "epsilon stands in the config and in its options; accepted: one"),
    "one": ("epsilon=0.1, alias='same'", "the model other makes a private view of this name, too; accepted: another"),
    "other": ("epsilon=0.1, alias='Same'", "the model one makes a private view of this name, too; accepted: another"),
    "spaced": ("epsilon=0.1, alias='a b'", "a private view cannot have the name 'a b'; accepted: letters, digits"),
    "plain": ("epsilon=0.1", "is a table, which a private view does not replace; accepted: another alias"),
    "dear": ("epsilon=3", "the statement asks for epsilon = 3 but the budget of clinic.main.visits.person has 0.9 of"),
    "negative": ("epsilon=-1", "epsilon is not a positive number; accepted: epsilon from 1e-09 to 100"),
}
"""Models by name, each with its config and with a part of its refusal. All have the same SELECT."""
OTHERS = {
    "rows": "SELECT name FROM {{ source('rows', 'visits') }}",
    "public": "SELECT ward, count(*) AS n FROM {{ source('rows', 'plain') }} GROUP BY ward",
    "two": f"{BY_WARD}; SELECT 1",
}


@pytest.mark.slow
def test_a_wrong_model_fails_in_one_line(tmp_path: Path) -> None:
    """Each refusal is one line of the output. Hooks run around the release, and nothing else is charged."""
    project = make_project(tmp_path, budget="epsilon = 1")
    hooks = "pre_hook='CREATE TABLE hooked AS SELECT 1 AS a', post_hook='INSERT INTO hooked SELECT 2'"
    project.model("good", "SELECT count(*) AS n FROM {{ source('rows', 'visits') }}", f"epsilon='1e-1', {hooks}")
    for name, (config, _) in REFUSED.items():
        project.model(name, BY_WARD, config)
    for name, sql in OTHERS.items():
        project.model(name, sql)
    said = project.dbt("run")
    for name, (_, message) in REFUSED.items():
        assert message in said.line(message), name
    assert said.text.count("Traceback") == 0
    results = project.results()
    assert results.pop("good") == "success" and set(results.values()) == {"error"}
    assert project.spent == 0.1 and project.ask("SELECT count(*) FROM visits") == [(2000,)]
    assert project.ask("FROM hooked") == [(1,), (2,)]
    assert "is not built from no rows" in project.dbt("run", "--select", "good", "--empty").text
    require_no_row(project)


@pytest.mark.slow
def test_a_project_may_require_private_models(tmp_path: Path) -> None:
    """With dpduck.require_private() no other model reads a private source, and no test counts its rows."""
    project = make_project(tmp_path)
    project.write("dbt_project.yml", f"{PROJECT}on-run-start: '{{{{ dpduck.require_private() }}}}'\n")
    project.model("by_ward", BY_WARD)
    assert project.dbt("build").code == 0
    project.model("exact", "SELECT * FROM {{ source('rows', 'visits') }}", "tags=[]", "table")
    said = project.dbt("run")
    assert (
        said.code and "model exact reads the private table visits; accepted: materialized='private_view'" in said.text
    )
    assert project.ask("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'exact'") == [(0,)]
    project.model("exact", "SELECT 1 AS one", "tags=[]", "table")
    project.model("people", "SELECT i AS patient, i % 2 AS sex FROM range(100) AS r(i)", "alias='persons'", "table")
    assert project.dbt("run").code == 0
    project.ask("FROM dp('CREATE PRIVACY POLICY ON persons (PRIVACY UNIT patient MAX ROWS 1, BUDGET (epsilon = 1))')")
    project.model("exact", "SELECT count(*) AS n FROM {{ ref('people') }}", "tags=[]", "table")
    assert "model exact reads the private table persons" in project.dbt("run", "--select", "exact").text
    project.model("exact", "SELECT count(*) AS n FROM {{ ref('by_ward') }}", "tags=[]", "table")
    assert project.dbt("run", "--select", "exact").code == 0


@pytest.mark.slow
def test_is_private_of_a_published_file(built: tuple[Project, Said], tmp_path: Path) -> None:
    """A reader's project has the published file and no plugin. The test passes for views that the file lists."""
    publish(built[0].folder / "clinic_private.duckdb", tmp_path / "published.duckdb")
    reader = make_project(tmp_path)
    attached = f"attach: [{{path: '{tmp_path / 'published.duckdb'}', alias: published, read_only: true}}]"
    reader.write(
        "profiles.yml", f"clinic: {{target: dev, outputs: {{dev: {{type: duckdb, path: dev.duckdb, {attached}}}}}}}"
    )
    tables = (
        "[{name: by_ward, data_tests: [dpduck.is_private]}, {name: dpduck_releases, data_tests: [dpduck.is_private]}]"
    )
    reader.write(
        "models/sources.yml", f"sources: [{{name: published, database: published, schema: main, tables: {tables}}}]"
    )
    said = reader.dbt("test")
    assert "PASS=1" in said.text and "ERROR=1" in said.text, said.text


DOCUMENTED = """
version: 2
sources: [{name: store, database: private, schema: main, tables: [{name: Order, data_tests: [dpduck.is_private]}]}]
models:
  - name: named
    description: Visits by ward
    config: {meta: {since: 2024-01-01, epsilon: 9}}
    columns: [{name: n, description: how many, data_tests: [not_null]}]
    data_tests: [dpduck.is_private, {dpduck.is_private: {name: a_part, config: {where: n > 1}}}]
unit_tests:
  - name: of_made_up_rows
    model: named
    given: [{input: "source('rows', 'visits')", rows: [{ward: A}, {ward: A}]}]
    expect: {rows: [{ward: A, n: 2}]}
"""
FORGED = """CREATE OR REPLACE VIEW main_other."Order" AS SELECT * FROM private.main."Order"
    UNION ALL SELECT ward, count(*), 0 FROM visits GROUP BY ward"""


@pytest.mark.slow
def test_a_model_has_what_other_models_have(tmp_path: Path) -> None:
    """A schema, an alias that is a word of SQL, meta data, descriptions and tests of all kinds. A forged view fails."""
    project = make_project(tmp_path)
    config = "epsilon=0.5, schema='other', alias='Order', persist_docs={'relation': true, 'columns': true}"
    project.model("named", BY_WARD.replace(", sum(bill) AS bills", ""), config)
    project.write("models/documented.yml", DOCUMENTED)
    assert project.dbt("run").code == 0
    assert project.ask("SELECT comment FROM duckdb_views() WHERE view_name = 'Order'") == [("Visits by ward",)]
    said = project.dbt("test")
    assert "PASS=4" in said.text and "is_private looks at a whole relation; accepted: the test without w" in said.text
    project.ask(FORGED)
    forged = project.dbt("test", "--select", "named,test_name:is_private")
    assert "FAIL 1 dpduck_is_private_named_" in forged.text, forged.text
