"""The registry of deployments: its checks of a record, by its own schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SCHEMA = Path(__file__).parents[1] / "documents" / "registry" / "deployments-schema.yaml"


@cache
def schema() -> Any:
    """Returns the registry's schema."""
    return pytest.importorskip("yaml").safe_load(SCHEMA.read_text(encoding="utf-8"))


@cache
def validator() -> Any:
    """Returns the validator of the registry's schema."""
    draft = pytest.importorskip("jsonschema").Draft7Validator
    return draft(schema(), format_checker=draft.FORMAT_CHECKER)


def accepted(text: str) -> dict[str, Any]:
    """Returns a record that the registry's checks accept: schema, quotes, and no escapes of LaTeX."""
    yaml = pytest.importorskip("yaml", reason="the registry's records are YAML")
    record: dict[str, Any] = yaml.safe_load(text)
    assert [error.message for error in validator().iter_errors(record)] == []
    styles = {getattr(token, "style", None) for token in yaml.scan(text)}
    assert styles <= {None, "|", "'", '"'}
    assert text.startswith("url_slug: ")
    assert all(re.search(r"\\\\[^()]", leaf) is None for leaf in leaves(record) if isinstance(leaf, str))
    return record


def leaves(node: object) -> Iterator[object]:
    """Yields the values of a record that are no lists or mappings."""
    if isinstance(node, dict):
        for value in node.values():
            yield from leaves(value)
    elif isinstance(node, list):
        for value in node:
            yield from leaves(value)
    else:
        yield node
