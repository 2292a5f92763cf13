"""Files of dpduck that go to an engine. A task has no dpduck, so that they must be enough."""

from __future__ import annotations

import ast

from dpduck.engines.task import ORDERS, PACKAGE, PIECES, SENT


def imported(text: str) -> list[set[str]]:
    """Imports from dpduck, wherever they stand. Each is a set of names of modules, of which one is the imported."""
    imports = list[set[str]]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            imports += [{module, f"{module}.{name.name}"} for name in node.names]
        elif isinstance(node, ast.Import):
            imports += [{name.name} for name in node.names]
    return [modules for modules in imports if any(name.split(".")[0] == "dpduck" for name in modules)]


def test_each_sent_file_imports_only_from_earlier_ones() -> None:
    """No engine is needed to see it, so that it fails also where none can be started."""
    earlier = set[str]()
    for name in SENT:
        for modules in imported((PACKAGE / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")):
            assert modules & earlier, (name, modules)
        earlier.add(f"dpduck.{name}")
    assert {ORDERS, PIECES} <= set(SENT)


def test_imports_are_found() -> None:
    """In functions, as modules, and as a whole package."""
    text = "def f():\n    from dpduck.a.b import c\nimport dpduck.d as e\nfrom dpducks import f\nimport sys\n"
    assert imported(text) == [{"dpduck.d"}, {"dpduck.a.b", "dpduck.a.b.c"}]
