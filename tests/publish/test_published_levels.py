"""Every view of several grouping sets names the level of each row, in the store and in every published file."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.publish.publish import publish
from tests.support.clinics import Clinic

GROUPINGS = {
    "cube": ("CUBE (sex, ward)", {"()", "sex", "ward", "sex, ward"}),
    "rollup": ("ROLLUP (sex, ward)", {"()", "sex", "sex, ward"}),
    "sets": ("GROUPING SETS ((sex), (ward))", {"sex", "ward"}),
    "marginals": ("MARGINALS (1, sex, ward)", {"sex", "ward"}),
}
POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 100),
    DOMAIN sex IN (0, 1) WITH NULL, DOMAIN ward FROM wards.name)"""
REUSED = (
    "CREATE PRIVATE VIEW reused OPTIONS (epsilon = 1, reuse = TRUE) AS SELECT sex, ward, count(*) AS n FROM visits "
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a view of every kind of grouping, and one view combined with known answers."""
    folder = tmp_path_factory.mktemp("levels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(folder / "state"))
        with dpduck.connect(folder / "clinic.duckdb") as connection:
            clinic = Clinic(connection)
            clinic.fill()
            clinic.protect(POLICY)
            for name, (grouping, _) in GROUPINGS.items():
                options = f"epsilon = 1, title = 'By {name}'"
                select = f"SELECT sex, ward, count(*) AS n FROM visits GROUP BY {grouping}"
                clinic.dp(f"CREATE PRIVATE VIEW {name} OPTIONS ({options}) AS {select}")
            clinic.dp("ALTER PRIVACY POLICY ON visits PREPARE")
            clinic.dp(f"{REUSED} GROUP BY CUBE (sex, ward)")
            clinic.dp("REFRESH PRIVATE VIEW rollup")
    return folder / "clinic_private.duckdb"


def levels_of(source: str, place: Path) -> tuple[list[str], set[str]]:
    """Returns the columns of a table, and its levels."""
    with duckdb.connect(str(place), read_only=True) if place.is_file() else duckdb.connect() as connection:
        columns = [str(row[0]) for row in connection.execute(f"DESCRIBE FROM {source}").fetchall()]
        found = connection.execute(f"SELECT DISTINCT grouping_level FROM {source}").fetchall()
        return columns, {str(row[0]) for row in found}


@pytest.mark.parametrize("name", [*GROUPINGS, "reused"])
def test_every_published_cube_names_its_levels(store: Path, tmp_path: Path, name: str) -> None:
    """As the last column: in the store, in a DuckDB file and in a Parquet file."""
    publish(store, tmp_path / "public.duckdb")
    publish(store, tmp_path / "public")
    wanted = GROUPINGS.get(name, GROUPINGS["cube"])[1]
    parquet = tmp_path / "public" / f"{name}.parquet"
    for source, place in ((name, store), (name, tmp_path / "public.duckdb"), (f"'{parquet}'", tmp_path)):
        columns, levels = levels_of(source, place)
        assert columns == ["sex", "ward", "n", "n_stderr", "grouping_level"] and levels == wanted, place


def test_margins_of_a_published_file_are_without_totals(store: Path, tmp_path: Path) -> None:
    """dp_margin reads the level in the published file as well. The title travels in the comment."""
    publish(store, tmp_path / "public.duckdb")
    with duckdb.connect(str(tmp_path / "public.duckdb"), read_only=True) as connection:
        rows = connection.execute("SELECT sex FROM dp_margin('cube', ['sex'], ['ward']) ORDER BY sex").fetchall()
        comments = connection.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'cube'").fetchall()
    assert rows == [(0,), (1,), (None,)] and str(comments[0][0]).endswith("\nBy cube")
