"""Pictures of a view's answers, in Vega-Lite: bars, lines, or tiles, with exactly the numbers of the view's table."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from math import floor, isfinite, log, log10
from typing import Any

from dpduck.values.column_notes import (
    CONSTANT,
    ERROR_OF,
    EVERY_LEVEL,
    FROM_ANSWERS,
    IS_ANSWER,
    KEYS,
    NAMED_LEVEL,
    OF_KEYS,
    SOME_LEVEL,
    Nulls,
    Values,
    unit_in,
)
from dpduck.values.sqltypes import sql_type

MOST_BARS, MOST_POINTS, MOST_TILES = 60, 5_000, 3_600
MOST_LINES, MOST_GROUPED, MOST_PARTS = 4, 6, 6
"""The largest numbers of lines in a picture, of bars in a group, and of pictures with one scale."""

ERRORS_SHOWN = 2
"""The length of an error bar to each side, in standard errors. About 19 of 20 answers are that near, 94 % or more."""

SHADE, MOST_SHADES = 4, 6
"""The least width of a shade of tiles, in standard errors, and the number of shades that a picture aims at.

Two equal answers then differ by one shade at most, at least 98 times of 100.
"""

BY_CHANCE = 0.05
"""The chance that noise alone gives tiles more than one shade, for Laplace noise. It is less for Gaussian noise."""

INKS = ("#3b7dc4", "#c8641b", "#2e8b57", "#9361b3", "#c9467c", "#7a7a7a")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2])
"""The colours of a series on light and dark pages. Lines also differ in their dashes."""

ONE_SHADE = "noise alone can make differences as large as these, so all have one shade"
SHADES = "one shade apart can be noise, two shades apart hardly ever is"

SQRT2 = 2**0.5
PALEST, DARKEST = (214, 230, 245), (8, 48, 107)

MOST_LABELS = 24
"""The largest number of labels below or beside tiles."""

LONGEST_LABEL = 24
"""The largest number of letters of a label. The picture never cuts a label."""

Rows = Sequence[Mapping[str, Any]]
Drawn = tuple[Mapping[str, Any], str]

_NO_ANSWERS = (*KEYS, OF_KEYS, CONSTANT, EVERY_LEVEL, SOME_LEVEL, NAMED_LEVEL)
_BINS = (Values.BIN, Values.RANGE)
_NO_TOTAL = (Nulls.VALUE, Nulls.OTHERS, Nulls.NONE)
_NAME = re.compile(r'"(?:[^"]|"")*"|[^, ]+')

NULL, TOTAL, EITHER, OTHERS = "NULL", "all", "NULL or all", "NULL or others"
"""Words for a NULL in a key: a group without a value, a total, one of these two, and a group of other values."""


@dataclass(frozen=True)
class PictureKey:
    """A column that tells groups apart, with the kind of its values and the meaning of its NULL. None means unknown."""

    name: str
    values: Values | None = None
    nulls: Nulls | None = None


@dataclass(frozen=True)
class Shape:
    """The columns of a view, by their roles. Each answer has the column of its standard error, or None.

    level: a column that is 0 in all rows except totals. named: a column that names the keys by which a row is grouped.
    units: the units of answers, as the owner of the view named them.
    """

    keys: tuple[PictureKey, ...]
    answers: tuple[tuple[str, str | None], ...]
    level: str | None = None
    named: str | None = None
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)

    def title_of(self, answer: str) -> str:
        return f"{answer} ({self.units[answer]})" if answer in self.units else answer

    def null_in(self, key: PictureKey, row: Mapping[str, Any]) -> str:
        if self.named is not None and row[self.named] is not None:
            return NULL if key.name in names_in(row[self.named]) else TOTAL
        if self.level is not None and row[self.level] == 0:
            return NULL
        if key.values is None and key.nulls in (None, Nulls.NONE):  # unknown
            return EITHER
        return {Nulls.TOTAL: TOTAL, Nulls.EITHER: EITHER, Nulls.OTHERS: OTHERS}.get(key.nulls or Nulls.NONE, NULL)


def names_in(level: str) -> frozenset[str]:
    """Returns the names of keys in a value of grouping_level.

    >>> sorted(names_in('sex, "born in"')), names_in("()")
    (['born in', 'sex'], frozenset())
    """
    names = _NAME.findall("" if level == "()" else level)
    return frozenset(name[1:-1].replace('""', '"') if name.startswith('"') else name for name in names)


def shape_of(columns: Sequence[tuple[str, str, str]]) -> Shape:
    """Tells keys from answers by the comments on a view's columns. columns: the name, type and comment of each column.

    Earlier versions wrote no comment on a renamed key. If the view may have such a key, the shape has no keys.
    """
    comments = {name: comment for name, _, comment in columns}
    keys = tuple(_key(name, comment) for name, comment in comments.items() if comment.startswith(KEYS))
    earlier = any(key.values is None for key in keys)
    if earlier and any(_may_be_a_key(column, comments) for column in columns):
        keys = ()
    errors = {comment.partition(ERROR_OF)[2]: name for name, comment in comments.items() if ERROR_OF in comment}
    units = {name: unit for name, comment in comments.items() if (unit := unit_in(comment))}
    if earlier:
        errors = {name.removesuffix("_stderr"): name for name, kind, _ in columns if _is_error(name, kind, comments)}
    answers = tuple(
        (name, errors.get(name))
        for name, kind, comment in columns
        if sql_type(kind).is_numeric and not comment.startswith(_NO_ANSWERS) and name not in errors.values()
    )
    levels, named = (
        next((name for name, comment in comments.items() if comment == note), None)
        for note in (EVERY_LEVEL, NAMED_LEVEL)
    )
    return Shape(keys, answers, levels, named, units)


def _key(name: str, comment: str) -> PictureKey:
    notes = comment.split("; ")
    values = next((values for values in Values if values in notes), None)
    return PictureKey(name, values, next((nulls for nulls in Nulls if nulls in notes), Nulls.NONE))


def _is_error(name: str, kind: str, comments: Mapping[str, str]) -> bool:
    plain = not comments[name].startswith(KEYS) and IS_ANSWER not in comments[name]
    return name.endswith("_stderr") and name.removesuffix("_stderr") in comments and kind == "DOUBLE" and plain


def _may_be_a_key(column: tuple[str, str, str], comments: Mapping[str, str]) -> bool:
    """Tells whether a column of an earlier version's view may be a key under another name."""
    name, kind, comment = column
    return comment.startswith(FROM_ANSWERS) and not _is_error(name, kind, comments)


def charts(shape: Shape, answer: tuple[str, str | None], rows: Rows) -> list[Drawn]:
    """Returns the pictures of one answer, with their content in words. Each largest grouping set has its own."""
    pictures: list[Drawn] = []
    for cells, without in _parts(shape, rows):
        pictures += _pictures(shape, answer, cells, without)
    return pictures[:MOST_PARTS]


def _pictures(shape: Shape, answer: tuple[str, str | None], cells: Rows, without: Sequence[str]) -> Sequence[Drawn]:
    """Returns the pictures of one grouping set. There are none if two rows would have one place in a picture."""
    several = [key for key in shape.keys if len({row[key.name] for row in cells}) > 1]
    if all(_number(row[answer[0]]) is None for row in cells):
        return ()
    axes = [PictureAxis(key, _is_ordered(key, cells), _labels(key, cells)) for key in several]
    drawn = Picture(shape.title_of(answer[0]), *answer, tuple(without))
    if len(axes) == 1 and axes[0].ordered:
        return drawn.line(axes[0], None, cells)
    places = {tuple(axis.labels[row[axis.name]] for axis in axes) for row in cells}
    if len(places) < len(cells) or any(len(set(axis.labels.values())) < len(axis.labels) for axis in axes):
        return ()
    if len(axes) == 1 and len(cells) <= MOST_BARS:
        return drawn.bars(axes[0], None, cells)
    if len(axes) == 2:
        return drawn.two(axes[0], axes[1], cells)
    return drawn.parts(axes, cells) if len(axes) == 3 else ()


def _parts(shape: Shape, rows: Rows) -> Iterator[tuple[Rows, list[str]]]:
    """Yields the rows of each largest grouping set, with words for the rows that are left out, such as "totals"."""
    if shape.named is None or any(row[shape.named] is None for row in rows):
        yield _cells(shape, rows)
        return
    levels = {str(row[shape.named]): names_in(row[shape.named]) for row in rows}
    largest = [name for name, of in levels.items() if not any(of < other for other in levels.values())]
    for name in largest:
        left = [row for row in rows if row[shape.named] == name]
        yield left, ["totals"] if len(largest) < len(levels) else []


def _cells(shape: Shape, rows: Rows) -> tuple[Rows, list[str]]:
    """Returns the cells of all keys, and words for the rows left out, if the view does not name its grouping sets."""
    if shape.level is not None:
        left = [row for row in rows if row[shape.level] == 0]
        return left, ["totals"] if len(left) < len(rows) else []
    without: list[str] = []
    for key in shape.keys:
        has_kind = key.values not in (None, Values.COMPUTED)
        if (has_kind and key.nulls in _NO_TOTAL) or key.nulls is Nulls.VALUE or (not has_kind and len(shape.keys) == 1):
            continue
        left = [row for row in rows if row[key.name] is not None]
        if len(left) < len(rows):
            without += ["NULL"] if not has_kind or key.nulls is Nulls.EITHER else []
            without += ["totals"] if has_kind else []
        rows = left
    return rows, sorted(set(without))


def _is_ordered(key: PictureKey, cells: Rows) -> bool:
    """Tells whether a line may join the values: days, bins, and whole numbers that are too many for bars."""
    values = {row[key.name] for row in cells} - {None}
    if len(values) < 2 or any(isinstance(value, bool) for value in values):
        return False
    if all(isinstance(value, date) for value in values):
        return True
    lined = key.values in _BINS or (key.values is Values.WHOLE and len(values) > MOST_BARS)  # a few may be codes
    return lined and all(isinstance(value, (int, float, Decimal)) for value in values)


def _labels(key: PictureKey, cells: Rows) -> dict[Any, str]:
    """Returns the label of each value at an axis, in the order of values, with NULL last."""
    values = list(dict.fromkeys(row[key.name] for row in cells))
    with suppress(TypeError):  # values that cannot be compared stay as they came
        values.sort(key=lambda value: (value is None, 0 if value is None else value))
    null = OTHERS if key.nulls is Nulls.OTHERS else f"({NULL})" if NULL in values else NULL
    return {value: null if value is None else _label(value) for value in values}


def _label(value: Any) -> str:
    """Returns a value as a short text. A long text keeps both ends, since long texts often begin alike."""
    text = f"{value:.15g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 10]}..{text[-8:]}"


def _number(value: Any) -> float | None:
    """Returns a number that has a place in a picture, or None for NULL, NaN and infinities."""
    return None if value is None or not isfinite(value) else float(value)


@dataclass(frozen=True)
class PictureAxis:
    """A key with several values, and the label of each value. ordered: whether a line may join the values."""

    key: PictureKey
    ordered: bool
    labels: Mapping[Any, str]

    @property
    def name(self) -> str:
        return self.key.name


@dataclass(frozen=True)
class Picture:
    """Painter of the pictures of one answer. title: the answer's title, with its unit.

    without: words for rows that are left out. where: words for the part of the rows that a picture shows. span: the two
    ends of the scale, if several pictures share one.
    """

    title: str
    name: str
    stderr: str | None
    without: tuple[str, ...]
    where: str = ""
    span: tuple[float, float] | None = None

    def two(self, first: PictureAxis, second: PictureAxis, cells: Rows) -> list[Drawn]:
        along, series = sorted((first, second), key=lambda axis: (not axis.ordered, -len(axis.labels)))
        if along.ordered and len(series.labels) <= MOST_LINES:
            return self.line(along, series, cells)
        if along.ordered and len(series.labels) <= MOST_PARTS and not self.where:
            return self._apart(series, cells, lambda picture, rows: picture.line(along, None, rows))
        if not along.ordered and len(series.labels) <= MOST_GROUPED and len(cells) <= MOST_BARS:
            return self.bars(along, series, cells)
        return self.tiles(first, second, cells)

    def parts(self, axes: Sequence[PictureAxis], cells: Rows) -> list[Drawn]:
        """Draws three keys: a picture of two keys for each value of the third key, which has the fewest values."""
        apart = min(axes, key=lambda axis: (axis.ordered, len(axis.labels)))
        first, second = (axis for axis in axes if axis is not apart)
        if len(apart.labels) > MOST_PARTS:
            return []
        return self._apart(apart, cells, lambda picture, rows: picture.two(first, second, rows))

    def _apart(self, apart: PictureAxis, cells: Rows, draw: Callable[[Picture, Rows], list[Drawn]]) -> list[Drawn]:
        points = _points(cells, cells, self, None).rows
        ends = [point[end] for point in points for end in ("value", "low", "high") if point[end] is not None]
        span = (min(ends), max(ends)) if ends else None
        pictures = []
        for value, label in apart.labels.items():
            picture = replace(self, where=f", where {apart.name} is {label}", span=span)
            rows = [row for row in cells if row[apart.name] == value or (value is None and row[apart.name] is None)]
            pictures += draw(picture, rows)
        return pictures if len(pictures) == len(apart.labels) else []

    def bars(self, axis: PictureAxis, series: PictureAxis | None, cells: Rows) -> list[Drawn]:
        points = _points([axis.labels[row[axis.name]] for row in cells], cells, self, series)
        domain = {"domain": list(axis.labels.values())}
        place: dict[str, Any] = {"field": "key", "type": "nominal", "title": axis.name, "sort": None, "scale": domain}
        group = {} if series is None else {"yOffset": _series(series)}
        value = self._value("value", True, stack=None)
        encoding = {"y": place, "x": value, **group} | ({} if series is None else {"color": _ink(series)})
        marks = [{"mark": {"type": "bar"}, "encoding": encoding, "transform": _with("value")}]
        rules = self._rules({"y": place, **group}, "x", zero=True)
        step = {} if series is None else {"height": {"step": 14, "for": "offset"}}
        return [self._with_errors(points, marks, rules, _by(axis, series), step)]

    def line(self, axis: PictureAxis, series: PictureAxis | None, cells: Rows) -> list[Drawn]:
        """Draws a line over a key, or one for each value of a second key. Rows with NULL in the key are left out."""
        name, left = axis.name, [row for row in cells if row[axis.name] is not None]
        drawn = self if len(left) == len(cells) or self.without else replace(self, without=(NULL,))
        values = [row[name] for row in left]
        places = {(row[name], None if series is None else row[series.name]) for row in left}
        if len(values) > MOST_POINTS or len(places) < len(values):
            return []
        days = isinstance(values[0], date)
        keys = [_day(value) if days else float(value) for value in values]
        points = _points(keys, left, self, series)
        place = _along(name, values)
        ink = {} if series is None else {"color": _ink(series)}
        dashed = {} if series is None else {"strokeDash": _ink(series) | {"scale": _scale_of(series, DASHES)}}
        mark: dict[str, Any] = {"type": "line", "point": points.gap or len(set(values)) <= MOST_BARS}
        encoding = {"x": place, "y": self._value("value", False), "detail": {"field": "run"}, **ink, **dashed}
        marks = [{"mark": mark, "encoding": encoding, "transform": _with("value")}]
        errors = self._rules({"x": place, **ink}, "y", zero=False)
        if points.errors == len(values):
            band = {"x": place, "y": self._value("low", False), **ink, "y2": {"field": "high"}}
            errors = {"mark": {"type": "area", "opacity": 0.25}, "encoding": band}
        return [drawn._with_errors(points, marks, errors, _by(axis, series), {})]

    def tiles(self, first: PictureAxis, second: PictureAxis, cells: Rows) -> list[Drawn]:
        """Draws tiles with shades that are no finer than the noise, and no tiles if the noise is unknown."""
        values = [(row, value) for row in cells if (value := _number(row[self.name])) is not None]
        errors = [_number(row[self.stderr]) if self.stderr else None for row, _ in values]
        stderrs = [error for error in errors if error is not None]
        if len(cells) > MOST_TILES or len(stderrs) < len(errors):
            return []
        ends = self.span or (min(value for _, value in values), max(value for _, value in values))
        alike = ends[1] - ends[0] <= SQRT2 * log(len(stderrs) / BY_CHANCE) * max(stderrs)
        step = _step(max(SHADE * max(stderrs), (ends[1] - ends[0]) / MOST_SHADES))
        shades = range(1) if alike else range(_shade(ends[0], step), _shade(ends[1], step) + 1)
        names = {shade: f"{_plain(shade * step)} to {_plain((shade + 1) * step)}" for shade in shades}
        if alike:
            names = {0: f"{ends[0]:,.4g} to {ends[1]:,.4g}"}
        points = [
            {"one": first.labels[row[first.name]], "two": second.labels[row[second.name]],
             "value": value, "shade": names[0 if alike else _shade(value, step)]}
            for row, value in values
        ]  # fmt: skip
        across, down = (
            {"field": field, "type": "nominal", "title": axis.name, "sort": None, "axis": _tile_axis(axis, angle),
             "scale": {"domain": list(axis.labels.values())}}
            for field, axis, angle in (("two", second, -45), ("one", first, 0))
        )  # fmt: skip
        scale = {"domain": list(names.values()), "range": _shades(len(names))}
        shade: dict[str, Any] = {"field": "shade", "type": "ordinal", "title": self.title, "sort": None}
        shade |= {"scale": scale, "legend": {"orient": "top", "columns": 3}}
        text = f"{self.name} by {first.name} and {second.name}{self.where}{_without(self.without)}"
        layer = [{"mark": "rect", "encoding": {"x": across, "y": down, "color": shade}}]
        return [(spec_of(points, layer, text), f"{text}; {ONE_SHADE if alike else SHADES}")]

    def _value(self, field: str, zero: bool, **more: object) -> dict[str, Any]:
        """Returns the encoding of the answer or of its error bar, with the scale that several pictures may share."""
        encoding = {"field": field, "type": "quantitative", "title": self.title, **more}
        if self.span is None:
            return encoding
        low, high = (min(0.0, self.span[0]), max(0.0, self.span[1])) if zero else self.span
        return encoding | {"scale": {"domain": [low, high], "nice": True, "zero": zero}}

    def _rules(self, across: Mapping[str, Any], along: str, zero: bool) -> dict[str, Any]:
        """Returns error bars. across: the encoding of the places. along: the axis of the answers, "x" or "y"."""
        ends = {along: self._value("low", zero), f"{along}2": {"field": "high"}}
        mark: dict[str, Any] = {"type": "rule", "size": 2}
        mark |= {} if "color" in across else {"color": "currentColor"}
        return {"mark": mark, "encoding": {**across, **ends}, "transform": _with("low")}

    def _with_errors(
        self, points: _Points, marks: list[dict[str, Any]], errors: dict[str, Any], by: str, more: Mapping[str, Any]
    ) -> Drawn:
        """Returns the picture with its errors, if the view has some: a band below the line, or error bars over bars."""
        text = f"{self.name} by {by}{self.where}{_without(self.without)}"
        if not points.errors:
            drawn = spec_of(points.rows, marks, text)
            return {**drawn, **more}, f"{text}; the view has no standard errors of it"
        layer = [errors, *marks] if errors["mark"]["type"] == "area" else [*marks, errors]
        return {**spec_of(points.rows, layer, text), **more}, f"{text}, and {ERRORS_SHOWN} standard errors to each side"


@dataclass(frozen=True)
class _Points:
    """Rows as marks. errors: the number of rows with standard errors. gap: whether some rows have no value."""

    rows: list[dict[str, Any]]
    errors: int
    gap: bool


def _points(place: Sequence[Any], cells: Rows, of: Picture, series: PictureAxis | None) -> _Points:
    """Returns the rows as marks. `run` numbers the pieces of a line, which stops at each missing value."""
    points, runs = [], Counter[str]()
    for key, row in zip(place, cells, strict=True):
        value, error = _number(row[of.name]), _number(row[of.stderr]) if of.stderr else None
        about = None if value is None or error is None else (value - ERRORS_SHOWN * error, value + ERRORS_SHOWN * error)
        low, high = about or (None, None)
        label = "" if series is None else series.labels[row[series.name]]
        runs[label] += value is None
        point = {"key": key, "value": value, "low": low, "high": high, "run": runs[label]}
        points.append(point if series is None else point | {"series": label})
    errors = sum(point["low"] is not None for point in points)
    return _Points(points, errors, any(point["value"] is None for point in points))


def _by(axis: PictureAxis, series: PictureAxis | None) -> str:
    return axis.name if series is None else f"{axis.name} and {series.name}"


def _without(left_out: Sequence[str]) -> str:
    return f", without {' and '.join(left_out)}" if left_out else ""


def _series(series: PictureAxis) -> dict[str, Any]:
    return {"field": "series", "type": "nominal", "sort": None, "scale": {"domain": list(series.labels.values())}}


def _scale_of(series: PictureAxis, inks: Sequence[Any]) -> dict[str, Any]:
    return {"domain": list(series.labels.values()), "range": list(inks[: len(series.labels)])}


def _ink(series: PictureAxis) -> dict[str, Any]:
    legend = {"orient": "top", "columns": 3, "symbolOpacity": 1}
    named = {"field": "series", "type": "nominal", "title": series.name, "sort": None, "legend": legend}
    return named | {"scale": _scale_of(series, INKS)}


def _along(name: str, values: Sequence[Any]) -> dict[str, Any]:
    if isinstance(values[0], date):
        midnight = all(not isinstance(value, datetime) or value.time() == time() for value in values)
        axis: dict[str, Any] = {"format": "%Y-%m-%d" if midnight else "%Y-%m-%d %H:%M", "labelFlush": False}
        return {"field": "key", "type": "temporal", "title": name, "scale": {"type": "utc"}, "axis": axis}
    axis = {"format": ".12~g", **({"tickMinStep": 1} if all(isinstance(number, int) for number in values) else {})}
    return {"field": "key", "type": "quantitative", "title": name, "scale": {"zero": False}, "axis": axis}


def _step(least: float) -> float:
    """Returns the first of 1, 2, 5, 10, 20, .. that is at least `least`.

    >>> _step(130.0), _step(0.04), _step(0.0)
    (200.0, 0.05, 1.0)
    """
    if least <= 0:
        return 1.0
    power = 10.0 ** floor(log10(least))
    return float(f"{next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= least * (1 - 1e-9)):.6g}")


def _tile_axis(axis: PictureAxis, angle: int) -> dict[str, Any]:
    """Returns the settings of an axis of tiles. It turns long labels by `angle`, and leaves out some of many labels."""
    short = all(len(label) < 3 for label in axis.labels.values())
    return {"labelAngle": 0 if short else angle, "labelOverlap": len(axis.labels) > MOST_LABELS}


def _shade(value: float, step: float) -> int:
    return floor(value / step + 1e-9)


def _plain(number: float) -> str:
    return f"{number:,.0f}" if number == round(number) else f"{number:.6g}"


def _shades(number: int) -> list[str]:
    """Returns `number` shades of blue, the palest first. Neighbours look similar, even if there are only two."""
    parts = [place / max(MOST_SHADES, number - 1) for place in range(number)]
    mixed = ([round(a + (b - a) * part) for a, b in zip(PALEST, DARKEST, strict=True)] for part in parts)
    return [f"rgb({red}, {green}, {blue})" for red, green, blue in mixed]


def _day(value: date) -> str:
    """Returns a day or a time as a text that every time zone reads as the same moment."""
    return f"{value.isoformat()}Z" if isinstance(value, datetime) and value.tzinfo is None else value.isoformat()


def _with(field: str) -> list[dict[str, str]]:
    return [{"filter": f"isValid(datum.{field})"}]


def spec_of(points: Sequence[Mapping[str, Any]], layer: Sequence[Mapping[str, Any]], said: str) -> Mapping[str, Any]:
    """Returns a picture of these marks, in Vega-Lite. said: its content in words, for people who cannot see it."""
    ink = {"labelColor": "currentColor", "titleColor": "currentColor", "labelLimit": 400}
    ink |= {"labelFontSize": 12, "titleFontSize": 12}
    lines: dict[str, Any] = {f"{part}Color": "currentColor" for part in ("grid", "domain", "tick")}
    lines |= {"gridOpacity": 0.15, "titlePadding": 16, "labelOverlap": True, "tickCount": 6}
    lines |= {"labelSeparation": 8}
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
    """Draws a picture as SVG."""
    import vl_convert  # noqa: PLC0415 - 30 MB that only pictures need

    return str(vl_convert.vegalite_to_svg(json.dumps(spec)))
