"""Apache Superset reads a published DuckDB file and PostgreSQL. Heavy, so only with `make peers`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from dpduck.publish.publish import publish
from tests.publish.superset_server import Superset, superset_server
from tests.server.served import add_principals, make_clinic, serving_flight
from tests.store.made_stores import made_store
from tests.support.postgres_server import postgres_server

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore::ResourceWarning")]
VIEWS = [
    f"CREATE PRIVATE VIEW {name} OPTIONS (epsilon = 1) AS "
    "SELECT ward, count(*) AS n, dp_stderr(n) AS n_stderr FROM visits GROUP BY ward"
    for name in ("by_ward", "ward_counts")
]
"""Two names, since Superset's own store in SQLite takes a table's name once, whatever database it is in."""
LISTED = ["by_ward", "dpduck_releases", "ward_counts"]
SAFE = {"connect_args": {"read_only": True, "config": {"enable_external_access": False, "lock_configuration": True}}}
"""What docs/how_to/superset.md tells to put into "Engine parameters" of a published file."""

SUM = {"expressionType": "SIMPLE", "column": {"column_name": "n"}, "aggregate": "SUM", "label": "visits"}
COUNT = {"expressionType": "SQL", "sqlExpression": "COUNT(*)", "label": "visits"}


@pytest.fixture(scope="module")
def superset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Superset]:
    with superset_server(tmp_path_factory.mktemp("superset")) as server:
        yield server


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_store(tmp_path_factory.mktemp("made"), VIEWS)


def add_database(superset: Superset, name: str, uri: str, engine_parameters: object) -> int:
    body = {
        "database_name": name,
        "sqlalchemy_uri": uri,
        "expose_in_sqllab": True,
        "extra": json.dumps({"engine_params": engine_parameters}),
    }
    return int(superset.call("POST", "/api/v1/database/", body)["id"])


def add_chart(superset: Superset, name: str, database: int, schema: str, view: str, metric: object = SUM) -> int:
    """Adds a bar chart of the view. Returns its number."""
    dataset = superset.call("POST", "/api/v1/dataset/", {"database": database, "schema": schema, "table_name": view})[
        "id"
    ]
    query = {"metrics": [metric], "groupby": ["ward"], "columns": ["ward"], "row_limit": 100}
    asked = {"datasource": {"id": dataset, "type": "table"}, "queries": [query], "result_format": "json",
             "result_type": "full"}  # fmt: skip
    (answer,) = superset.call("POST", "/api/v1/chart/data", asked)["result"]
    assert sorted(row["ward"] for row in answer["data"]) == ["w0", "w1", "w2", "w3", "w4", "w5"]
    form = {"datasource": f"{dataset}__table", "viz_type": "echarts_timeseries_bar", "x_axis": "ward",
            "metrics": [metric], "groupby": [], "row_limit": 100, "show_value": True}  # fmt: skip
    made = {"slice_name": f"Visits by ward, {name}", "viz_type": "echarts_timeseries_bar", "datasource_id": dataset,
            "datasource_type": "table", "params": json.dumps(form)}  # fmt: skip
    return int(superset.call("POST", "/api/v1/chart/", made)["id"])


def look(superset: Superset, chart: int, name: str) -> None:
    """The chart in a browser: where there is one, the picture is more than an empty page."""
    picture = superset.screenshot(f"/explore/?slice_id={chart}&standalone=1", name)
    if picture is not None:
        assert picture.stat().st_size > 10_000


def tables(superset: Superset, database: int, schema: str) -> list[str]:
    path = f"/api/v1/database/{database}/tables/?q=(force:!t,schema_name:{schema})"
    return sorted(table["value"] for table in superset.call("GET", path)["result"])


def test_superset_reads_a_published_file(superset: Superset, store: Path, tmp_path: Path) -> None:
    """Tables listed, a chart rendered. With the safe settings its SQL box reaches no file."""
    target = tmp_path / "published.duckdb"
    publish(store, target)
    database = add_database(superset, "published file", f"duckdb:///{target}", SAFE)
    assert tables(superset, database, "published.main") == LISTED
    chart = add_chart(superset, "DuckDB", database, "main", "by_ward")
    look(superset, chart, "superset_duckdb")
    for attack in (
        "SELECT * FROM read_text('/etc/passwd')",
        "CREATE TABLE x AS SELECT 1",
        "SET lock_configuration = false",
    ):
        with pytest.raises(AssertionError, match="sqllab/execute"):
            superset.call("POST", "/api/v1/sqllab/execute/", {"database_id": database, "sql": attack})


def test_superset_adds_up_cells(superset: Superset, tmp_path: Path) -> None:
    """SUM(n) over a view of cells, by any columns, equals the same release's margins."""
    cube = "SELECT ward, sex, count(*) AS n FROM visits GROUP BY CUBE (ward, sex)"
    made = [f"CREATE PRIVATE VIEW {name} OPTIONS (epsilon = 1{form}) AS {cube}"
            for name, form in (("cube_cells", ", form = 'cells'"), ("cube_margins", ""))]  # fmt: skip
    folder = tmp_path / "made"
    folder.mkdir()
    target = tmp_path / "cells.duckdb"
    publish(made_store(folder, made), target)
    database = add_database(superset, "published cells", f"duckdb:///{target}", SAFE)
    dataset = superset.call(
        "POST", "/api/v1/dataset/", {"database": database, "schema": "main", "table_name": "cube_cells"}
    )["id"]
    with duckdb.connect(str(target), read_only=True) as reader:
        for by in (["ward"], ["sex"], ["ward", "sex"], []):
            query = {"metrics": [SUM], "groupby": by, "columns": by, "row_limit": 100}
            asked = {"datasource": {"id": dataset, "type": "table"}, "queries": [query], "result_format": "json",
                     "result_type": "full"}  # fmt: skip
            (answer,) = superset.call("POST", "/api/v1/chart/data", asked)["result"]
            found = {tuple(row[name] for name in by): float(row["visits"]) for row in answer["data"]}
            nulls = [f"{name} IS {'NOT ' if name in by else ''}NULL" for name in ("ward", "sex")]
            listed = ", ".join([*by, "n"])
            rows = reader.execute(f"SELECT {listed} FROM cube_margins WHERE {' AND '.join(nulls)}").fetchall()
            assert found == {row[:-1]: float(row[-1]) for row in rows} and len(rows) > 0


def test_superset_reads_postgresql(superset: Superset, store: Path) -> None:
    """Superset adds up cells from a PostgreSQL publication, too."""
    with postgres_server() as uri:
        publish(store, uri)
        database = add_database(
            superset, "published to PostgreSQL", uri.replace("postgresql", "postgresql+psycopg2"), {}
        )
        assert tables(superset, database, "public") == LISTED
        look(superset, add_chart(superset, "PostgreSQL", database, "public", "ward_counts"), "superset_postgresql")


def test_superset_asks_by_the_private_tables_own_name(
    superset: Superset, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Over Flight SQL a chart on visits itself is answered from releases, free. Its bars add up to the release."""
    database = make_clinic(tmp_path_factory.mktemp("served"), prepared=True)
    token = add_principals(database)["alice"]
    with serving_flight(database, "--flight-sql", "localhost:0") as address:
        uri = f"datafusion://alice:{token}@{address.rpartition('/')[2]}?insecure=True"
        served = add_database(superset, "served", uri, {})
        assert {"visits", "ages", "ward_cube"} <= set(tables(superset, served, "main"))
        look(superset, add_chart(superset, "visits itself", served, "main", "visits", COUNT), "superset_visits")
