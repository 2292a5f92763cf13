"""The house's rules of size and place, so that every file can be read in one sitting."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dpduck"
SOURCES = sorted(path for folder in ("dpduck", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
LONGEST_FILE = 300
LONGEST_FUNCTION = 50


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def long_functions(source: str) -> list[str]:
    """The functions that reach the limit, from `def` to their last line."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, functions)]
    return [node.name for node in nodes if (node.end_lineno or 0) - node.lineno + 1 >= LONGEST_FUNCTION]


def test_files_stay_short() -> None:
    """Every file of Python stays under 300 lines."""
    lengths = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length >= LONGEST_FILE} == {}


def test_functions_stay_short() -> None:
    """Every function stays under 50 lines."""
    found = {named(path): long_functions(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {name: functions for name, functions in found.items() if functions} == {}


def test_the_limit_of_functions_is_counted() -> None:
    """A function of 49 lines passes, one of 50 does not, nested ones and methods included."""
    body = "    x = 1\n"
    assert long_functions("def short():\n" + body * (LONGEST_FUNCTION - 2)) == []
    assert long_functions("def long():\n" + body * (LONGEST_FUNCTION - 1)) == ["long"]
    method = "class A:\n    async def long(self):\n" + ("    " + body) * (LONGEST_FUNCTION - 1)
    assert long_functions(method) == ["long"]


def test_the_tree_is_two_levels_deep() -> None:
    """A file of the product lies in dpduck/ or in one of its stations, no deeper; each station is a package."""
    deep = [named(path) for path in PACKAGE.rglob("*.py") if len(path.relative_to(PACKAGE).parts) > 2]
    assert deep == []
    stations = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [named(station) for station in stations if not (station / "__init__.py").is_file()] == []


def test_tests_mirror_the_product() -> None:
    """Every station that has code has tests in the folder of the same name, and no folder of tests is an orphan."""
    stations = {path.parent.name for path in PACKAGE.glob("*/*.py") if path.name != "__init__.py"}
    tested = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert stations - tested == set()
    assert tested - {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set()


def test_nothing_is_left_for_later() -> None:
    """What is to be done stands in an issue, not in a remark."""
    remarks = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    texts = [*SOURCES, *(ROOT / "sql").rglob("*.sql"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    texts += [ROOT / "Makefile", ROOT / "pyproject.toml"]
    found = [named(path) for path in texts if any(remark in path.read_text(encoding="utf-8") for remark in remarks)]
    assert found == []
