"""Frozen dataclasses as JSON: writes them, and reads them from JSON or from rows of a table, by their type hints.

A dataclass is written as an object with its fields, or as an array of their values. Both forms can be read. A field
that an earlier version did not write gets its default. A value that does not fit its type hint is refused.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from fractions import Fraction
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from dpduck.values.errors import StoreError

T = TypeVar("T")
_MISFITS = (ValueError, TypeError, LookupError, ArithmeticError)
_hints = cache(get_type_hints)


def as_object(value: object) -> Any:
    """Returns the fields of a dataclass by name, for json.dumps(.., default=as_object). Other values become texts."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Fraction):
        return str(value)
    return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]


def as_array(value: object) -> Any:
    """Returns the values of a dataclass as a list, for json.dumps(.., default=as_array). Other values become texts."""
    written = as_object(value)
    return list(written.values()) if isinstance(written, dict) else written


def read_record(kind: type[T], stored: object) -> T:
    """Returns a value of this type from JSON text, parsed JSON, or a row with JSON in some columns.

    >>> read_record(tuple[Fraction | None, ...], '["1/2", null]')
    (Fraction(1, 2), None)
    """
    try:
        record: T = _parse_value(kind, stored)
    except _MISFITS:
        of = kind.__name__
        raise StoreError(f"a {of} of the store is damaged; accepted: the store as it was last written") from None
    return record


def _parse_value(kind: Any, stored: Any) -> Any:
    """Returns a value of this type from parsed JSON. Raises one of _MISFITS if it does not fit."""
    if type(stored) is kind or (kind is float and type(stored) is int):
        return stored
    parts = get_args(kind)
    if isinstance(kind, UnionType):
        for part in parts[:-1]:
            with suppress(*_MISFITS):
                return _parse_value(part, stored)
        return _parse_value(parts[-1], stored)
    if parts or is_dataclass(kind):
        return _parse_parts(kind, parts, json.loads(stored) if isinstance(stored, str | bytes) else stored)
    if kind is datetime:
        return datetime.fromisoformat(stored)
    return Fraction(stored) if kind is Fraction else kind[stored]  # the member of an Enum


def _parse_parts(kind: Any, kinds: tuple[Any, ...], values: Any) -> Any:
    """Returns a tuple or a dataclass. kinds: the types of a tuple's parts, () for a dataclass."""
    hints = {} if kinds else _hints(kind)
    if isinstance(values, dict) and hints:
        return kind(**{name: _parse_value(hints[name], value) for name, value in values.items()})
    if not isinstance(values, list | tuple):
        raise TypeError
    of = kinds[:1] * len(values) if kinds[1:] == (...,) else kinds or tuple(hints.values())[: len(values)]
    parts = [_parse_value(part, value) for part, value in zip(of, values, strict=True)]
    return tuple(parts) if kinds else kind(*parts)
