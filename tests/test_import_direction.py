"""The way of the data has one direction: a module imports only from its own station and the ones before it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "dpduck"
STATIONS = (
    *("values", "algebra", "kernel", "language", "strategies", "store", "engines"),
    *(
        "mechanisms",
        "owner",
        "trial",
        "database",
        "publish",
        "documents",
        "publication",
        "dbt",
        "server",
        "auditor",
        "commands",
        "notebook",
    ),
)
ORDER = {station: rank for rank, station in enumerate(STATIONS)}
ORDER["__init__"] = ORDER["__main__"] = ORDER["database"]
KNOWN = {
    "language": ("dpduck.kernel.relations", "dpduck.kernel.units", "dpduck.kernel.columns"),
    "strategies": ("dpduck.kernel.price", "dpduck.kernel.noise.law", "dpduck.kernel.queries.operators"),
}
"""The modules of the kernel that a station may know: nodes of rows, or asks with their operators and their noise."""
SLOW = ("scipy.stats",)
"""What takes as long to import as a third of dpduck, in every process: scipy.special has the normal law."""
SEES_DUCKDB = (*STATIONS[STATIONS.index("store") :], "kernel", "__init__", "__main__")


def imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Every module or member that is imported anywhere in a file of this package, and every use of np.random."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("np.random", "numpy.random"):
            yield "numpy.random"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            known = node.args and isinstance(node.args[0], ast.Constant)
            yield str(ast.literal_eval(node.args[0])) if known else "an unknown module"


def forbidden(station: str, name: str) -> bool:
    """Tells whether a file of this station must not import this name."""
    top, *inner = name.split(".")
    if top == "dpduck":
        other = inner[0] if inner else "__init__"
        if station in KNOWN and other == "kernel":
            return not name.startswith(tuple(f"{module}." for module in KNOWN[station]))
        return ORDER.get(other, ORDER["database"]) > ORDER[station]
    if top in ("random", "an unknown module") or name.startswith(("numpy.random", *SLOW)):
        return True
    if top.lstrip("_").startswith("duckdb"):
        return station not in SEES_DUCKDB
    return station == "values" and top != "numpy" and top not in sys.stdlib_module_names


def violations(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """The imports of one module, named in full, that go against the direction. An unknown station is one itself."""
    station = module.split(".")[1] if "." in module else "__init__"
    if station not in ORDER:
        return [f"{module} belongs to no station"]
    package = module if is_package else module.rpartition(".")[0]
    names = imported(ast.parse(source), package)
    return [f"{module} imports {name}" for name in names if forbidden(station, name)]


def test_every_import_goes_with_the_data() -> None:
    """Nothing in dpduck imports from a later station, and private rows stay behind kernel/."""
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        found += violations(module, path.read_text(encoding="utf-8"), is_package=is_package)
    assert found == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dpduck.values.domain", "import scipy"),
        ("dpduck.values.domain", "from dpduck.language.statements.parse import parse"),
        ("dpduck.values.domain", "from .. import language"),
        ("dpduck.language.statements.parse", "import duckdb"),
        ("dpduck.language.statements.parse", "def parse():\n    from duckdb import connect"),
        ("dpduck.strategies.plan", "from dpduck.kernel import ledger"),
        ("dpduck.strategies.plan", "from ..kernel.ledger import Ledger"),
        ("dpduck.strategies.plan", "import dpduck"),
        ("dpduck.strategies.recovery.solve", "from dpduck.kernel.queries.tables import measure"),
        ("dpduck.strategies.recovery.solve", "import _duckdb"),
        ("dpduck.kernel.noise.law", "from dpduck.database import server"),
        ("dpduck.kernel.door", "from dpduck.strategies.plan import Plan"),
        ("dpduck.kernel.door", "from ..strategies import plan"),
        ("dpduck.kernel.door", "from dpduck.strategies.ranges.haar import haar"),
        ("dpduck.kernel.door", "from dpduck.language.select.price import price"),
        ("dpduck.strategies.plan", "from dpduck.kernel.noise.draw import draw"),
        ("dpduck.strategies.plan", "from dpduck.kernel.door import Door"),
        ("dpduck.strategies.plan", "from dpduck.kernel.counting.hidden import ExactCounts"),
        ("dpduck.strategies.plan", "from dpduck.kernel.queries.tables import Table"),
        ("dpduck.kernel.noise.law", "import random"),
        ("dpduck.kernel.noise.law", "from numpy import random"),
        ("dpduck.kernel.noise.law", "import numpy as np\nx = np.random.default_rng()"),
        ("dpduck.strategies.plan", "from scipy.stats import norm"),
        ("dpduck.algebra.range", "import importlib\nimportlib.import_module('duckdb')"),
        ("dpduck.algebra.range", "name = 'x'\n__import__(name)"),
        ("dpduck.database.connection", "from dpduck.server import gate"),
        ("dpduck.server.gate", "from dpduck.commands import command_line"),
        ("dpduck.helpers", "import math"),
    ],
)
def test_a_violation_is_found(module: str, source: str) -> None:
    """The checker can fail: each of these made-up modules breaks one rule."""
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dpduck", "from dpduck.database.connection import connect, load"),
        ("dpduck.values.privacy", "import fractions\nimport numpy as np\nfrom dpduck.values.errors import Refusal"),
        ("dpduck.kernel.rows.scan", "import duckdb\nimport secrets\nfrom dpduck.algebra.dyadic import DyadicAxis"),
        ("dpduck.strategies.plan", "from dpduck.kernel.price import Ask\nfrom dpduck.kernel.noise.law import Noise"),
        ("dpduck.strategies.recovery.solve", "import scipy\nfrom . import intervals\nfrom ..plan import Plan"),
        ("dpduck.database.connection", "import duckdb\nfrom dpduck.kernel import ledger"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    """The checker refuses no import that goes with the data."""
    assert violations(module, source) == []
