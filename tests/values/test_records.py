"""Dataclasses as JSON and back: what is written is read, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from fractions import Fraction
from typing import Any

import pytest

from dpduck.values.errors import StoreError
from dpduck.values.records import as_array, as_object, read_record


class Colour(Enum):
    RED = "the first"


@dataclass(frozen=True)
class Part:
    name: str
    size: int | None = None


@dataclass(frozen=True)
class Other:
    size: int


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    pair: tuple[str, Fraction]
    either: Part | Other
    colour: Colour
    weight: float
    at: datetime | None = None
    inner: Whole | None = None


SMALL = Whole((), ("a", Fraction(1, 3)), Other(7), Colour.RED, 0.5)
LARGE = Whole(
    (Part("x"), Part("y", 2)), ("é", Fraction(2)), Part("z"), Colour.RED, 1.0, datetime(2026, 1, 2, tzinfo=UTC), SMALL
)
ARRAY = '[[], ["a", "1/3"], [7], "RED", 0.5, null, null]'


@pytest.mark.parametrize("whole", [SMALL, LARGE])
@pytest.mark.parametrize("form", [as_object, as_array])
def test_what_is_written_is_read(whole: Whole, form: Any) -> None:
    """From a text, from bytes, and from what json.loads returns."""
    text = json.dumps(whole, default=form)
    assert (
        read_record(Whole, text) == read_record(Whole, text.encode()) == read_record(Whole, json.loads(text)) == whole
    )


def test_the_two_forms() -> None:
    assert json.dumps(SMALL, default=as_array) == ARRAY
    assert json.dumps(SMALL, default=as_object) == (
        '{"parts": [], "pair": ["a", "1/3"], "either": {"size": 7}, "colour": "RED", "weight": 0.5, "at": null, '
        '"inner": null}'
    )
    with pytest.raises(TypeError):
        json.dumps(object(), default=as_object)


def test_a_row_has_json_in_its_columns() -> None:
    assert read_record(Part, ("x", 1)) == Part("x", 1)
    assert read_record(Whole, ("[]", '["a", "1/3"]', "[7]", "RED", 0.5)) == SMALL


def test_later_fields_have_their_defaults() -> None:
    assert read_record(Part, '["x"]') == read_record(Part, '{"name": "x"}') == Part("x")
    assert read_record(float, 1) == 1


@pytest.mark.parametrize(
    "text",
    [
        "", "7", "null", "[]", "{}", '"ab"', '[["x", 1]]', '["x", 1, 2]', '["x", "1"]', '["x", true]', '["x", 1.0]',
        '[null]', '{"name": "x", "other": 1}', '{"size": 1}', '{"name": 1}', b"\xff",
    ],
)  # fmt: skip
def test_a_wrong_part_is_refused(text: str | bytes) -> None:
    """A missing or an unknown field, a wrong type, more values than fields, and no JSON at all: in one line."""
    with pytest.raises(StoreError) as refused:
        read_record(Part, text)
    assert str(refused.value) == "a Part of the store is damaged; accepted: the store as it was last written"
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"1/3"', '"1/0"'), ('"1/3"', '"x"'), ('"1/3"', "null"), ('"RED"', '"the first"'), ('"RED"', "0"),
        ("0.5", '"0.5"'), ("0.5", "true"), ("[7]", '["7", "8"]'), ("[7]", "7"), ("[]", "{}"), ("[]", '"{}"'),
        ('["a", "1/3"]', '["a"]'), ('["a", "1/3"]', '["a", "1/3", 1]'), ("null, null", '"yesterday", null'),
        ("null, null", "7, null"), ("null, null", "null, []"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused(before: str, after: str) -> None:
    assert before in ARRAY
    with pytest.raises(StoreError):
        read_record(Whole, ARRAY.replace(before, after, 1))
