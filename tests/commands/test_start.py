"""The imports of commands: help and completion load click alone, and each command its needs when it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import pytest

import dpduck
from dpduck.commands.command_line import HELPS, Commands, command, main, short_help

HEAVY = ("duckdb", "_duckdb", "numpy", "pandas", "pyarrow", "scipy", "sqlglot", "sqlite3")
"""Packages that take most of a start. Of dpduck itself, help and completion load CLI alone."""

CLI = ("dpduck.commands", "dpduck.values", "dpduck.store.store_files", "dpduck.language.text.names")
REPORT = """
import sys
from dpduck.commands.command_line import run
try:
    run()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


def loaded(words: list[str], environment: Mapping[str, str]) -> tuple[str, set[str]]:
    """Returns a command's output, and the modules that it loads."""
    whole = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *words], capture_output=True, text=True, check=False, env=whole
    )
    return done.stdout, set(done.stderr.splitlines()[-1].split())


def of_packages(modules: set[str], packages: tuple[str, ...]) -> set[str]:
    """Returns the given packages that have loaded modules."""
    return {name.split(".")[0] for name in modules} & set(packages)


def own(modules: set[str]) -> set[str]:
    """The modules of dpduck beside those of CLI, their packages and the command line itself."""
    inside = {name for name in modules if name.startswith("dpduck.")}
    packages = {"dpduck.store", "dpduck.language", "dpduck.language.text"}
    return {name for name in inside - packages if not name.startswith(CLI)}


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A database with a policy, and the environment of its commands."""
    folder = tmp_path_factory.mktemp("clinic")
    environment = {"DPDUCK_STATE_DIR": str(folder / "state")}
    before = os.environ.get("DPDUCK_STATE_DIR")
    os.environ.update(environment)
    try:
        with dpduck.connect(folder / "clinic.duckdb") as con:
            con.execute("CREATE TABLE visits AS SELECT range % 2 AS sex FROM range(100)")
            policy = "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN (0, 1))"
            con.execute("FROM dp(?)", [policy]).fetchall()
    finally:
        if before is None:
            del os.environ["DPDUCK_STATE_DIR"]
        else:
            os.environ["DPDUCK_STATE_DIR"] = before
    return folder / "clinic.duckdb", environment


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--help"], "budget"),
        (["--version"], "version"),
        (["budget", "--help"], "DATABASE"),
        (["sql", "--help"], "STATEMENT"),
        (["shell", "--help"], "semicolon"),
        (["audit", "--help"], "--search"),
        (["compare", "--help"], "--to"),
        (["report", "--help"], "--title"),
        (["policy", "draft", "--help"], "--privately"),
        (["principal", "--help"], "revoke"),
    ],
)
def test_help_loads_click_alone(words: list[str], says: str) -> None:
    """No help opens a database, parses a statement or computes: it needs none of their packages."""
    printed, modules = loaded(words, {})
    assert says in printed
    assert of_packages(modules, HEAVY) == set()
    assert own(modules) == set()


@pytest.mark.parametrize(
    ("typed", "offered"), [("dpduck bu", "budget"), ("dpduck budget --", "--store"), ("dpduck principal l", "list")]
)
def test_completion_loads_click_alone(typed: str, offered: str) -> None:
    """A key that completes a word is answered as quickly as help is."""
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_DPDUCK_COMPLETE": "bash_complete"}
    script = REPORT.replace("import sys", "import sys\nsys.argv[0] = 'dpduck'", 1)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env={**os.environ, **words}
    )
    modules = set(done.stderr.splitlines()[-1].split())
    assert f"plain,{offered}" in done.stdout.splitlines()
    assert of_packages(modules, HEAVY) == set() and own(modules) == set()


def test_principals_are_listed_without_a_database(clinic: tuple[Path, dict[str, str]]) -> None:
    """Principals stand in the secrets file. DuckDB only draws the box."""
    database, environment = clinic
    loaded(["principal", "add", str(database), "alice"], environment)
    printed, modules = loaded(["principal", "list", str(database), "--format", "json"], environment)
    assert '"alice"' in printed
    assert of_packages(modules, tuple(set(HEAVY) - {"sqlite3"})) == set()
    printed, modules = loaded(["principal", "list", str(database)], environment)
    assert "alice" in printed and "duckdb" in modules
    assert of_packages(modules, ("numpy", "pandas", "pyarrow", "scipy", "sqlglot")) == set()


@pytest.mark.parametrize("name", ["budget", "ledger"])
def test_listings_load_no_engine(name: str, clinic: tuple[Path, dict[str, str]]) -> None:
    """A budget needs only the ledger and the policies: nothing is parsed, planned or counted."""
    database, environment = clinic
    printed, modules = loaded([name, str(database)], environment)
    assert "epsilon" in printed
    assert of_packages(modules, ("numpy", "pandas", "pyarrow", "scipy", "sqlglot")) == set()
    stations = ("dpduck.strategies", "dpduck.mechanisms", "dpduck.kernel.door", "dpduck.kernel.noise")
    assert [name for name in modules if name.startswith((*stations, "dpduck.database.database"))] == []


@pytest.mark.parametrize("limit", [20, 45, 60, 78, 200])
def test_short_helps_are_those_of_the_commands(limit: int) -> None:
    """The table of the command line describes each command as the command itself does, however wide the line."""
    with click.Context(main) as context:
        commands = {name: command(context, name) for name in HELPS}
        assert isinstance(main, Commands)
        assert all(found is not None and not found.hidden for found in commands.values())
        said = {name: found.get_short_help_str(limit) for name, found in commands.items() if found is not None}
        assert {name: short_help(name, limit) for name in HELPS} == said


def test_the_list_of_commands_is_that_of_click() -> None:
    """Help lists commands as click lists those that it has imported."""
    with click.Context(main, terminal_width=80, max_content_width=80) as context:
        shown, plain = context.make_formatter(), context.make_formatter()
        assert isinstance(main, Commands)
        main.format_commands(context, shown)
        click.Group.format_commands(main, context, plain)
        assert shown.getvalue() == plain.getvalue()


def test_completion_is_that_of_click() -> None:
    """Completion offers what click offers, with the same helps."""
    with click.Context(main) as context:
        assert isinstance(main, Commands)
        for typed in ("", "p", "zz", "--"):
            ours, clicks = main.shell_complete(context, typed), click.Group.shell_complete(main, context, typed)
            assert [(one.value, one.help) for one in ours] == [(one.value, one.help) for one in clicks]
