"""Prints frozen values as Python does, without fields at their defaults, on lines that fit a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum

import numpy as np

WIDTH = 100
"""Characters of a line, where a value can be broken."""


def show(value: object, *names: str) -> None:
    """Prints a value. names: the fields to show, or, without names, all fields that are not at their defaults."""
    print(shown(value, names))  # noqa: T201


def shown(value: object, names: tuple[str, ...] = (), before: str = "", indent: str = "") -> str:
    """Returns a value on one line, or, if that is too long, with each part on a separate line."""
    start, parts, end = _taken_apart(value, names)
    pairs = [(name, shown(part, (), "", "")) for name, part in parts]
    line = f"{before}{start}{', '.join(f'{name}{text}' for name, text in pairs)}{end}"
    if not parts or len(indent) + len(line) <= WIDTH:
        return line
    inner = f"{indent}    "
    lines = [f"{inner}{shown(part, (), name, inner)}," for name, part in parts]
    return "\n".join([f"{before}{start}", *lines, f"{indent}{end.lstrip(',')}"])


def _taken_apart(value: object, names: tuple[str, ...]) -> tuple[str, list[tuple[str, object]], str]:
    """Returns the beginning of a value, its parts with their names, and its end."""
    if is_dataclass(value) and not isinstance(value, type):
        own = [(f"{field.name}=", getattr(value, field.name)) for field in _fields(value, names)]
        return f"{type(value).__name__}(", own, ")"
    if isinstance(value, Mapping):
        return "{", [(f"{key!r}: ", part) for key, part in value.items()], "}"
    if isinstance(value, tuple):
        return "(", [("", part) for part in value], ",)" if len(value) == 1 else ")"
    return _text(value), [], ""


def _text(value: object) -> str:
    """Returns the text of a value without parts."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    return f"array({value.tolist()})" if isinstance(value, np.ndarray) else repr(value)


def _fields(value: object, names: tuple[str, ...]) -> Iterator[Field[object]]:
    assert is_dataclass(value)
    if names:
        yield from (next(field for field in fields(value) if field.name == name) for name in names)
        return
    for field in fields(value):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.repr and (default is MISSING or getattr(value, field.name) != default):
            yield field
