"""Pictures of a view's answers, in Vega-Lite. Each picture says the same as the table of the view, or there is none.

A mark stands for one row. There is no picture where two rows would stand in one place, as where a key is not among the
columns. Marks of counts would be stacked there, and marks of averages would be added up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any

from dpduck.values.column_notes import (
    CONSTANT,
    ERROR_OF,
    EVERY_LEVEL,
    FROM_ANSWERS,
    IS_ANSWER,
    KEYS,
    OF_KEYS,
    SOME_LEVEL,
    Nulls,
    Values,
)

MOST_BARS, MOST_POINTS, MOST_TILES = 60, 5_000, 3_600
ERRORS_SHOWN = 2
"""The length of an error bar to each side, in standard errors. 19 of 20 answers are that near, 94 of 100 or more."""

LONGEST_LABEL = 24
"""The largest number of letters of a label. The picture never cuts a label."""

Rows = Sequence[Mapping[str, Any]]
Drawn = tuple[Mapping[str, Any], str]

_NO_ANSWERS = (*KEYS, OF_KEYS, CONSTANT, EVERY_LEVEL, SOME_LEVEL)
_BINS = (Values.BIN, Values.RANGE)
_NO_TOTAL = (Nulls.VALUE, Nulls.OTHERS, Nulls.NONE)


@dataclass(frozen=True)
class KeyColumn:
    """A column that tells groups apart.

    values: the kind of its values. nulls: the meaning of its NULL. Both are None where nobody knows.
    """

    name: str
    values: Values | None = None
    nulls: Nulls | None = None


@dataclass(frozen=True)
class Shape:
    """The columns of a view, by their roles.

    - keys: the columns that tell groups apart.
    - answers: each with the column of its standard error, if it has one.
    - level: a column that is 0 in rows that are no total, if there is one.
    """

    keys: tuple[KeyColumn, ...]
    answers: tuple[tuple[str, str | None], ...]
    level: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the names of the keys."""
        return tuple(key.name for key in self.keys)


def shape_of(columns: Sequence[tuple[str, str, str]]) -> Shape:
    """Tells keys from answers by the comments on a view's columns.

    columns: the name, type and comment of each column.
    A view of an earlier version has no comment on a key with another name. Where there may be such a key, the shape has
    no keys.
    """
    comments = {name: comment for name, _, comment in columns}
    keys = tuple(_key(name, comment) for name, comment in comments.items() if comment.startswith(KEYS))
    earlier = any(key.values is None for key in keys)
    if earlier and any(_may_be_a_key(column, comments) for column in columns):
        keys = ()
    errors = {comment.partition(ERROR_OF)[2]: name for name, comment in comments.items() if ERROR_OF in comment}
    if earlier:
        errors = {name.removesuffix("_stderr"): name for name, kind, _ in columns if _is_error(name, kind, comments)}
    answers = tuple(
        (name, errors.get(name))
        for name, kind, comment in columns
        if is_number(kind) and not comment.startswith(_NO_ANSWERS) and name not in errors.values()
    )
    levels = [name for name, comment in comments.items() if comment == EVERY_LEVEL]
    return Shape(keys, answers, next(iter(levels), None))


def _key(name: str, comment: str) -> KeyColumn:
    said = comment.split("; ")
    values = next((values for values in Values if values in said), None)
    return KeyColumn(name, values, next((nulls for nulls in Nulls if nulls in said), Nulls.NONE))


def _is_error(name: str, kind: str, comments: Mapping[str, str]) -> bool:
    """Tells whether a column of an earlier version's view holds standard errors."""
    plain = not comments[name].startswith(KEYS) and IS_ANSWER not in comments[name]
    return name.endswith("_stderr") and name.removesuffix("_stderr") in comments and kind == "DOUBLE" and plain


def _may_be_a_key(column: tuple[str, str, str], comments: Mapping[str, str]) -> bool:
    """Tells whether a column of an earlier version's view may be a key under another name."""
    name, kind, comment = column
    return comment.startswith(FROM_ANSWERS) and not _is_error(name, kind, comments)


def is_number(type_name: str) -> bool:
    """Tells whether a column of this DuckDB type can be drawn."""
    return type_name.endswith("INT") or type_name in ("INTEGER", "DOUBLE", "FLOAT") or type_name.startswith("DECIMAL(")


def chart(shape: Shape, answer: tuple[str, str | None], rows: Rows) -> Drawn | None:
    """Returns a picture of one answer, in Vega-Lite, with its content in words. It is None where no picture would help.

    A cube shows the cells of all keys together. One key makes bars, or a line over bins and days. Two keys make tiles.
    """
    name, stderr = answer
    cells, without = _cells(shape, rows)
    several = [key for key in shape.keys if len({row[key.name] for row in cells}) > 1]
    if all(_number(row[name]) is None for row in cells):
        return None
    if len(several) == 1 and _is_ordered(several[0], cells):
        left = [row for row in cells if row[several[0].name] is not None]
        return _line(several[0].name, name, stderr, left, without or (["NULL"] if len(left) < len(cells) else []))
    labels = [_labels(key, cells) for key in several]
    places = {tuple(of[row[key.name]] for key, of in zip(several, labels, strict=True)) for row in cells}
    if len(places) < len(cells) or any(len(set(of.values())) < len(of) for of in labels):
        return None
    if len(several) == 1 and len(cells) <= MOST_BARS:
        return _bars(several[0].name, labels[0], name, stderr, cells, without)
    if len(several) == 2 and len(cells) <= MOST_TILES:
        return _tiles((several[0].name, several[1].name), labels, name, cells, without)
    return None


def _cells(shape: Shape, rows: Rows) -> tuple[Rows, list[str]]:
    """Returns the rows of all keys together, and words for the rows that are left out.

    Those are the totals, and NULL where it may be a total.
    """
    if shape.level is not None:
        left = [row for row in rows if row[shape.level] == 0]
        return left, ["totals"] if len(left) < len(rows) else []
    without: list[str] = []
    for key in shape.keys:
        known = key.values not in (None, Values.COMPUTED)
        if (known and key.nulls in _NO_TOTAL) or (not known and len(shape.keys) == 1):
            continue
        left = [row for row in rows if row[key.name] is not None]
        if len(left) < len(rows):
            without += ["NULL"] if not known or key.nulls is Nulls.EITHER else []
            without += ["totals"] if known else []
        rows = left
    return rows, sorted(set(without))


def _is_ordered(key: KeyColumn, cells: Rows) -> bool:
    """Tells whether a line may join the values: days, bins, and whole numbers that are too many for bars.

    Codes and years are whole numbers too, and have bars. Numbers that nobody knows to be bins have bars as well.
    """
    values = {row[key.name] for row in cells} - {None}
    if len(values) < 2 or any(isinstance(value, bool) for value in values):
        return False
    if all(isinstance(value, date) for value in values):
        return True
    lined = key.values in _BINS or (key.values is Values.WHOLE and len(values) > MOST_BARS)
    return lined and all(isinstance(value, (int, float, Decimal)) for value in values)


def _labels(key: KeyColumn, cells: Rows) -> dict[Any, str]:
    """Returns the label at the axis for each value, in their order, with NULL last."""
    values = list(dict.fromkeys(row[key.name] for row in cells))
    with suppress(TypeError):  # values that cannot be compared stay as they came
        values.sort(key=lambda value: (value is None, 0 if value is None else value))
    null = "NULL or others" if key.nulls is Nulls.OTHERS else "(NULL)" if "NULL" in values else "NULL"
    return {value: null if value is None else _label(value) for value in values}


def _label(value: Any) -> str:
    """Returns a value as a short text. A long text keeps both ends, since long ones often begin alike."""
    text = f"{value:.15g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 10]}..{text[-8:]}"


def _number(value: Any) -> float | None:
    """Returns a number that has a place in a picture, or None for NULL, NaN and infinities."""
    return None if value is None or not isfinite(value) else float(value)


@dataclass(frozen=True)
class _Points:
    """Rows as marks. errors: the number of rows with standard errors. gap: whether some rows have no value."""

    rows: list[dict[str, Any]]
    errors: int
    gap: bool


def _points(place: Sequence[Any], name: str, stderr: str | None, cells: Rows) -> _Points:
    points = []
    for key, row in zip(place, cells, strict=True):
        value, error = _number(row[name]), _number(row[stderr]) if stderr else None
        about = None if value is None or error is None else (value - ERRORS_SHOWN * error, value + ERRORS_SHOWN * error)
        low, high = about or (None, None)
        points.append({"key": key, "value": value, "low": low, "high": high})
    errors = sum(point["low"] is not None for point in points)
    return _Points(points, errors, any(point["value"] is None for point in points))


def _bars(
    key: str, labels: Mapping[Any, str], name: str, stderr: str | None, cells: Rows, without: Sequence[str]
) -> Drawn:
    points = _points([labels[row[key]] for row in cells], name, stderr, cells)
    place = {"field": "key", "type": "nominal", "title": key, "sort": None, "scale": {"domain": list(labels.values())}}
    value = {"field": "value", "type": "quantitative", "title": name, "stack": None}
    marks = [{"mark": {"type": "bar"}, "encoding": {"y": place, "x": value}, "transform": _with("value")}]
    return _with_errors(points, marks, _rules(place, name, "x"), f"{name} by {key}", without)


def _line(key: str, name: str, stderr: str | None, cells: Rows, without: Sequence[str]) -> Drawn | None:
    values = [row[key] for row in cells]
    if len(values) > MOST_POINTS or len(set(values)) < len(values):
        return None
    days = isinstance(values[0], date)
    points = _points([_day(value) if days else float(value) for value in values], name, stderr, cells)
    place: dict[str, Any] = {"field": "key", "type": "quantitative", "title": key, "scale": {"zero": False}}
    place["axis"] = {"format": ".12~g", **({"tickMinStep": 1} if all(isinstance(one, int) for one in values) else {})}
    if days:
        midnight = all(not isinstance(value, datetime) or value.time() == time() for value in values)
        place |= {"type": "temporal", "scale": {"type": "utc"}}
        place["axis"] = {"format": "%Y-%m-%d" if midnight else "%Y-%m-%d %H:%M"}
    value = {"field": "value", "type": "quantitative", "title": name}
    line: dict[str, Any] = {"type": "line", "point": points.gap or len(values) <= MOST_BARS}
    marks = [
        {"mark": line, "encoding": {"x": place, "y": value, "detail": {"field": "run"}}, "transform": _with("value")}
    ]
    run = 0
    for point in points.rows:  # a line stops where there is no value
        run += point["value"] is None
        point["run"] = run
    errors = _rules(place, name, "y")
    if points.errors == len(values):
        band = {"x": place, "y": {"field": "low", "type": "quantitative", "title": name}, "y2": {"field": "high"}}
        errors = {"mark": {"type": "area", "opacity": 0.25}, "encoding": band}
    return _with_errors(points, marks, errors, f"{name} by {key}", without)


def _day(value: date) -> str:
    """Returns a day or a time as a text that everybody reads alike, wherever they are."""
    return f"{value.isoformat()}Z" if isinstance(value, datetime) and value.tzinfo is None else value.isoformat()


def _with(field: str) -> list[dict[str, str]]:
    return [{"filter": f"isValid(datum.{field})"}]


def _rules(place: Mapping[str, Any], name: str, along: str) -> dict[str, Any]:
    """Returns error bars across a place."""
    across = "y" if along == "x" else "x"
    ends = {along: {"field": "low", "type": "quantitative", "title": name}, f"{along}2": {"field": "high"}}
    mark = {"type": "rule", "color": "currentColor", "size": 2}
    return {"mark": mark, "encoding": {across: place, **ends}, "transform": _with("low")}


def _with_errors(
    points: _Points, marks: list[dict[str, Any]], errors: dict[str, Any], said: str, without: Sequence[str]
) -> Drawn:
    """Returns the picture with its errors, if it has some: a band below the line, or error bars over bars."""
    said += f", without {' and '.join(without)}" if without else ""
    if not points.errors:
        return spec_of(points.rows, marks, said), f"{said}; the view has no standard errors of it"
    layer = [errors, *marks] if errors["mark"]["type"] == "area" else [*marks, errors]
    return spec_of(points.rows, layer, said), f"{said}, and {ERRORS_SHOWN} standard errors to each side"


def _tiles(
    keys: tuple[str, str], labels: Sequence[Mapping[Any, str]], name: str, cells: Rows, without: Sequence[str]
) -> Drawn:
    (first, second), (downwards, along) = keys, labels
    points = [
        {"one": downwards[row[first]], "two": along[row[second]], "value": value}
        for row in cells
        if (value := _number(row[name])) is not None
    ]
    across, down = (
        {"field": field, "type": "nominal", "title": title, "sort": None, "scale": {"domain": list(of.values())}}
        for field, title, of in (("two", second, along), ("one", first, downwards))
    )
    shade = {"field": "value", "type": "quantitative", "title": name, "scale": {"scheme": "blues"}}
    said = f"{name} by {first} and {second}" + (f", without {' and '.join(without)}" if without else "")
    return spec_of(points, [{"mark": "rect", "encoding": {"x": across, "y": down, "color": shade}}], said), said


def spec_of(points: Sequence[Mapping[str, Any]], layer: Sequence[Mapping[str, Any]], said: str) -> Mapping[str, Any]:
    """Returns a picture of these marks, in Vega-Lite. said: what it shows, for who cannot see it."""
    ink = {"labelColor": "currentColor", "titleColor": "currentColor", "labelLimit": 400}
    ink |= {"labelFontSize": 12, "titleFontSize": 12}
    lines: dict[str, Any] = {f"{part}Color": "currentColor" for part in ("grid", "domain", "tick")}
    lines |= {"gridOpacity": 0.15, "titlePadding": 16, "labelOverlap": True, "tickCount": 6}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "description": said,
        "width": 380,  # drawn as on a phone, and scaled up elsewhere: labels that shrink cannot be read
        "background": None,
        "data": {"values": list(points)},
        "layer": list(layer),
        "config": {"axis": ink | lines, "legend": ink, "view": {"stroke": None}, "font": "sans-serif"},
    }


def svg(spec: Mapping[str, Any]) -> str:
    """Draws a picture."""
    import vl_convert  # noqa: PLC0415 - 30 MB that only pictures need

    return str(vl_convert.vegalite_to_svg(json.dumps(spec)))
