"""The plugin on a plain connection, and beside dbt-duckdb's own base class."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from dpduck.dbt import Plugin
from tests.dbt.project import BIN, PACKAGE, Project, make_project, packages, require_dbt

METHODS = (
    "import inspect, json; from dbt.adapters.duckdb.plugins import BasePlugin as B; "
    "found = inspect.getmembers(B, inspect.isfunction); "
    "print(json.dumps({name: list(inspect.signature(method).parameters) for name, method in found}))"
)


def test_the_plugin_loads_dpduck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On each connection that is opened, also if the database is open already. Every cursor has the functions."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path))
    plugin = Plugin(
        "dbt",
        {"memory_limit": "1GB", "store": str(tmp_path / "s.duckdb")},
        SimpleNamespace(settings={"memory_limit": "1GB"}),
    )
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con, duckdb.connect(str(tmp_path / "a.duckdb")) as other:
        for one in (con, other):
            plugin.configure_connection(one)
        with other.cursor() as cursor:
            plugin.configure_cursor(cursor)
            assert cursor.execute("SELECT count(*) FROM dp_releases()").fetchall() == [(0,)]
            ((said,),) = cursor.execute(
                'SELECT dpduck_dbt(\'statement\', \'{"name": "a b", "config": {}, "sql": ""}\')'
            ).fetchall()
    assert (tmp_path / "s.duckdb").exists() and "cannot have the name" in json.loads(said)["refused"]


def test_what_the_plugin_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each refusal is a RuntimeError of one line, which dbt shows as it is."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"dpduck.dbt has no setting 'stor'; accepted: store: a file$"):
        Plugin("dbt", {"stor": "x"})
    plugin = Plugin("dbt", {})
    with (
        duckdb.connect() as memory,
        pytest.raises(RuntimeError, match=r"forgets what was spent; accepted: path: a file"),
    ):
        plugin.configure_connection(memory)
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        con.execute("CREATE MACRO dp(a) AS a")
        with pytest.raises(RuntimeError, match=r"^this database has a function dp of its own; accepted: "):
            plugin.configure_connection(con)
    for refused in (plugin.load, plugin.store):
        with pytest.raises(RuntimeError, match="; accepted: "):
            refused(None)


def test_the_plugin_has_the_methods_of_dbt_duckdb() -> None:
    """dbt-duckdb calls no method that the plugin lacks, with no other arguments."""
    require_dbt()
    said = subprocess.run([str(BIN / "python"), "-c", METHODS], capture_output=True, text=True, check=True).stdout
    methods = json.loads(said)
    assert "configure_connection" in methods
    for name, parameters in methods.items():
        code = getattr(Plugin, name).__code__
        assert list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) == parameters, name


def test_the_package_is_found() -> None:
    """`python -m dpduck.dbt` prints a packages.yml with the folder, which has macros and a version."""
    assert packages() == f'packages:\n  - local: "{PACKAGE}"\n'
    assert "name: dpduck" in (PACKAGE / "dbt_project.yml").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("path", "config", "message"), [
    (":memory:", "", "a database in memory forgets what was spent; accepted: path: a file, in the profile"),
    ("", ", config: {stor: x}", "dpduck.dbt has no setting 'stor'; accepted: store: a file"),
])  # fmt: skip
def test_dbt_says_why_the_plugin_refuses(path: str, config: str, message: str, tmp_path: Path) -> None:
    """The refusal is one line of dbt's output, without a traceback."""
    project: Project = make_project(tmp_path, config=config)
    if path:
        profile = (tmp_path / "profiles.yml").read_text(encoding="utf-8")
        project.write("profiles.yml", profile.replace(str(project.database), path))
    project.model("by_ward", "SELECT count(*) AS n FROM {{ source('rows', 'visits') }}")
    said = project.dbt("run")
    assert said.code and message in said.line(message) and "Traceback" not in said.text
