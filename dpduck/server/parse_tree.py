"""Reads parts of DuckDB's parse tree, which differs between DuckDB 1.5 and 2.0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpduck.values.errors import PermissionRefusal
from dpduck.values.quoting import fold

Tree = dict[str, Any]


def path_of(node: Tree, name: str, catalog: str, schema: str) -> tuple[str, str, str]:
    """Returns catalog, schema and name of a table or function in small letters. In DuckDB 2.0 they are one path."""
    named = node.get("qualified_name")
    parts = [node.get(catalog) or "", node.get(schema) or "", node.get(name) or ""]
    if named is not None:
        path = [str(part) for part in named["path"]]
        if len(path) > len(parts):
            raise PermissionRefusal(
                f"the name {'.'.join(path)[:200]!r} is not served", accepted="names of private views"
            )
        parts = [""] * (len(parts) - len(path)) + path
    first, second, third = (fold(str(part)) for part in parts)
    return first, second, third


def children_of(call: Tree) -> list[Tree]:
    """Returns a function's arguments, with their names as aliases. DuckDB 2.0 keeps names and expressions apart."""
    if "arguments" in call:
        return [dict(entry["expression"], alias=entry["name"]) for entry in call["arguments"]]
    return list(call["children"])


def dicts_in(value: Any) -> Iterator[Tree]:
    """Yields every node of a tree, as a dict."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            yield current
            waiting.extend(current.values())
        elif isinstance(current, list):
            waiting.extend(current)
