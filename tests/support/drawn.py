"""Reads the figures of a picture from its marks in the SVG, by its axes and its legend, as a viewer would."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from xml.etree import ElementTree as Xml

NAMESPACE = "{http://www.w3.org/2000/svg}"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_PLACE = re.compile(r"translate\(([^,]+),([^)]+)\)")

Point = tuple[float, float]


@dataclass
class Drawn:
    """The figures of a picture. keys: titles of the keys. answer: its title. marks: labels of the keys, and the value.

    errors: labels or numbers of the keys, and both ends. kind: 'bars', 'groups', 'line', 'lines' or 'tiles'. shades: of
    tiles, the labels of keys and both ends of the shade's range. inks: the colour of each shade.
    """

    kind: str
    keys: tuple[str, ...]
    answer: str
    marks: list[tuple[tuple[str | float, ...], float]] = field(default_factory=list)
    errors: list[tuple[tuple[str | float, ...], float, float]] = field(default_factory=list)
    shades: list[tuple[tuple[str | float, ...], float, float]] = field(default_factory=list)
    inks: dict[str, str] = field(default_factory=dict)


class _Axis:
    """Translates a place along an axis into the nearest label, or into a number between labels."""

    def __init__(self, title: str, labels: Sequence[tuple[float, str]]) -> None:
        self.title, self.labels = title, sorted(labels)
        numbers = [(place, _as_number(text)) for place, text in self.labels]
        self._numbers = [(place, number) for place, number in numbers if number is not None]
        self.is_discrete = False

    def number(self, place: float) -> float:
        (first, low), (last, high) = self._numbers[0], self._numbers[-1]
        return low + (place - first) * (high - low) / (last - first)

    def label(self, place: float) -> str:
        distance, text = min((abs(place - at), text) for at, text in self.labels)
        assert distance < 8, (place, self.labels)
        return text

    def nearest(self, place: float) -> tuple[float, str]:
        return min(self.labels, key=lambda one: abs(one[0] - place))


@dataclass
class _Legend:
    """A legend. title: of the key or of the answer. labels: the text of each colour."""

    title: str
    labels: dict[str, str]


def read_picture(svg: str) -> Drawn:
    """Reads a picture of bars with bars of error, of lines with bands, or of tiles with a legend."""
    root = Xml.fromstring(svg)  # noqa: S314 - made here
    axes = {}
    for axis in _groups(root, "role-axis"):
        said = axis.get("aria-label")
        if said is not None:
            axes[said[0]] = _axis(axis, said)
    across, up = axes["X"], axes["Y"]
    legends = [_legend(legend) for legend in _groups(root, "role-legend")]
    legend = legends[0] if legends else None
    if across.is_discrete and legend is not None:
        return _tiles(root, legend, across, up)
    return _bars(root, legend, across, up) if up.is_discrete else _lines(root, legend, across, up)


def _legend(group: Xml.Element) -> _Legend:
    texts = [text.text or "" for found in _groups(group, "role-legend-label") for text in found]
    inks = [path.get("fill") or "" for found in _groups(group, "role-legend-symbol") for path in found]
    (title,) = [text.text or "" for found in _groups(group, "role-legend-title") for text in found]
    assert len(set(inks)) == len(inks) == len(texts), "two values of one colour"
    return _Legend(title, dict(zip(inks, texts, strict=True)))


def _bars(root: Xml.Element, legend: _Legend | None, across: _Axis, up: _Axis) -> Drawn:
    found = Drawn("bars", (up.title,), across.title)
    if legend is not None:
        found = Drawn("groups", (up.title, legend.title), across.title)
    places: dict[str, list[float]] = {}
    for path in _marks(root, "mark-rect"):
        (x0, y0), (x1, y1) = _box(path)
        ends, middle = (across.number(x0), across.number(x1)), (y0 + y1) / 2
        zero_end, value = sorted(ends, key=abs)
        assert abs(zero_end) < 0.01 * max(1.0, abs(value)), "a bar that does not begin at zero"
        if legend is None:
            found.marks.append(((up.label(middle),), value))
        else:
            at, label = up.nearest(middle)
            series = legend.labels[path.get("fill") or ""]
            places.setdefault(series, []).append(middle - at)
            found.marks.append(((label, series), value))
    for x, y, length, _ in _rules(root):
        at, label = up.nearest(y)
        keys: tuple[str | float, ...] = (up.label(y),) if legend is None else (label, _series_at(places, y - at))
        found.errors.append((keys, across.number(x), across.number(x + length)))
    return found


def _series_at(places: dict[str, list[float]], offset: float) -> str:
    """Returns the series of bars at an offset from the label of their group."""
    for offsets in places.values():
        assert max(offsets) - min(offsets) < 0.5, "bars of one series stand in different places of their groups"
    return min(places, key=lambda series: abs(places[series][0] - offset))


def _lines(root: Xml.Element, legend: _Legend | None, across: _Axis, up: _Axis) -> Drawn:
    found = Drawn("line", (across.title,), up.title)
    if legend is not None:
        found = Drawn("lines", (across.title, legend.title), up.title)

    def keys(mark: Xml.Element, x: float, ink: str) -> tuple[str | float, ...]:
        return (across.number(x), *(() if legend is None else (legend.labels[mark.get(ink) or ""],)))

    for path in _marks(root, "mark-line"):
        found.marks += [(keys(path, x, "stroke"), up.number(y)) for x, y in _points(path)]
    for path in _marks(root, "mark-area"):
        outline = _points(path)
        half = len(outline) // 2
        for (x, y), (same, other) in zip(outline[:half], reversed(outline[half:]), strict=True):
            assert abs(x - same) < 0.01
            found.errors.append((keys(path, x, "fill"), *_sorted(up.number(y), up.number(other))))
    for mark in _marks(root, "mark-rule"):
        (x, y), height = _place(mark), float(mark.get("y2") or 0)
        found.errors.append((keys(mark, x, "stroke"), *_sorted(up.number(y), up.number(y + height))))
    symbols = [(mark, *_place(mark)) for mark in _marks(root, "mark-symbol")]
    dots = [(keys(mark, x, "fill"), up.number(y)) for mark, x, y in symbols]
    near = [(float(at[0]), y) for at, y in dots]
    for at, y in found.marks:
        x = float(at[0])
        assert not near or min(abs(x - a) + abs(y - b) for a, b in near) < 1e-3 * (1 + abs(x) + abs(y))
    found.marks = dots or found.marks
    return found


def _tiles(root: Xml.Element, legend: _Legend, across: _Axis, up: _Axis) -> Drawn:
    found = Drawn("tiles", (across.title, up.title), legend.title, inks={of: ink for ink, of in legend.labels.items()})
    for path in _marks(root, "mark-rect"):
        (x0, y0), (x1, y1) = _box(path)
        low, high = (_as_number(text) for text in legend.labels[path.get("fill") or ""].split(" to "))
        assert low is not None and high is not None
        found.shades.append(((across.label((x0 + x1) / 2), up.label((y0 + y1) / 2)), low, high))
    return found


def _groups(root: Xml.Element, role: str) -> list[Xml.Element]:
    return [group for group in root.iter(f"{NAMESPACE}g") if role in (group.get("class") or "").split()]


def _marks(root: Xml.Element, kind: str) -> list[Xml.Element]:
    """Returns the marks of one kind that show rows."""
    return [
        mark
        for group in _groups(root, kind)
        if "role-mark" in (group.get("class") or "")
        for mark in group
        if mark.get("d") or mark.tag.endswith("line")
    ]


def _rules(root: Xml.Element) -> list[tuple[float, float, float, float]]:
    return [
        (*_place(rule), float(rule.get("x2") or 0), float(rule.get("y2") or 0)) for rule in _marks(root, "mark-rule")
    ]


def _axis(group: Xml.Element, said: str) -> _Axis:
    upright = said[0] == "Y"
    labels, title = [], ""
    for part in group.iter(f"{NAMESPACE}g"):
        role = part.get("class") or ""
        for text in part if "role-axis-label" in role or "role-axis-title" in role else ():
            if "title" in role:
                title = text.text or ""
            elif text.get("opacity") != "0":
                x, y = _place(text)
                labels.append((y - 4 if upright else x, text.text or ""))
    axis = _Axis(title, labels)
    axis.is_discrete = "for a discrete scale" in said
    return axis


def _place(element: Xml.Element) -> Point:
    found = _PLACE.search(element.get("transform") or "translate(0,0)")
    assert found is not None
    return float(found[1]), float(found[2])


def _points(path: Xml.Element) -> list[Point]:
    """Returns the corners of a path of straight lines."""
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.e-]+),(-?[\d.e-]+)", path.get("d") or "")]


def _box(path: Xml.Element) -> tuple[Point, Point]:
    """Returns two corners of a rectangle that is drawn as `M x,y h width v height h -width Z`."""
    numbers = [float(number) for number in _NUMBER.findall(path.get("d") or "")]
    x, y, width, height = numbers[:4]
    return (x, y), (x + width, y + height)


def _sorted(one: float, other: float) -> tuple[float, float]:
    return min(one, other), max(one, other)


def _as_number(text: str) -> float | None:
    """Reads a label: a number, or a day as seconds."""
    plain = text.replace("\N{MINUS SIGN}", "-").replace(",", "")
    for pattern in ("%Y-%m-%d", "%Y-%m-%d %H:%M"):
        try:
            return (datetime.strptime(plain, pattern) - datetime(1970, 1, 1)).total_seconds()
        except ValueError:
            pass
    try:
        return float(plain)
    except ValueError:
        return None
