"""What a picture shows, read off its marks in the SVG by its axes and its legend, as somebody would who looks at it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from xml.etree import ElementTree as Xml

NAMESPACE = "{http://www.w3.org/2000/svg}"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_PLACE = re.compile(r"translate\(([^,]+),([^)]+)\)")

Point = tuple[float, float]


@dataclass
class Drawn:
    """titles: of the axis along and upwards, and of the legend. marks: labels or numbers of the keys, and the value.

    errors: labels or numbers of the keys, and both ends. kind: 'bars', 'line' or 'tiles'.
    """

    kind: str
    titles: tuple[str, ...]
    marks: list[tuple[tuple[str | float, ...], float]] = field(default_factory=list)
    errors: list[tuple[tuple[str | float, ...], float, float]] = field(default_factory=list)


class _Axis:
    """Tells what a place along an axis says: the nearest label, or a number between labels."""

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

    def read(self, place: float) -> str | float:
        return self.label(place) if self.is_discrete else self.number(place)


def read_picture(svg: str) -> Drawn:
    """Reads a picture of bars with bars of error, of a line with a band, or of tiles with a legend."""
    root = Xml.fromstring(svg)  # noqa: S314 - made here
    axes = {}
    for axis in _groups(root, "role-axis"):
        said = axis.get("aria-label")
        if said is not None:
            axes[said[0]] = _axis(axis, said)
    across, up = axes["X"], axes["Y"]
    legends = _groups(root, "role-legend")
    if legends:
        return _tiles(root, legends[0], across, up)
    bars = [_box(path) for path in _marks(root, "mark-rect")]
    if up.is_discrete:
        found = Drawn("bars", (across.title, up.title))
        zero = 0.0
        for (x0, y0), (x1, y1) in bars:
            ends = across.number(x0), across.number(x1)
            zero_end, value = sorted(ends, key=abs)
            assert abs(zero_end - zero) < 0.01 * max(1.0, abs(value)), "a bar that does not begin at zero"
            found.marks.append(((up.label((y0 + y1) / 2),), value))
        for x, y, length, _ in _rules(root):
            found.errors.append(((up.label(y),), across.number(x), across.number(x + length)))
        return found
    found = Drawn("line", (across.title, up.title))
    for path in _marks(root, "mark-line"):
        found.marks += [((across.number(x),), up.number(y)) for x, y in _points(path)]
    for path in _marks(root, "mark-area"):
        outline = _points(path)
        half = len(outline) // 2
        for (x, y), (same, other) in zip(outline[:half], reversed(outline[half:]), strict=True):
            assert abs(x - same) < 0.01
            found.errors.append(((across.number(x),), *_sorted(up.number(y), up.number(other))))
    for x, y, _, height in _rules(root):
        found.errors.append(((across.number(x),), *_sorted(up.number(y), up.number(y + height))))
    dots = [(across.number(x), up.number(y)) for x, y in map(_place, _marks(root, "mark-symbol"))]
    seen = [(x, y) for (x,), y in found.marks if isinstance(x, float)]
    assert not dots or all(
        min(abs(x - a) + abs(y - b) for a, b in dots) < 1e-3 * (1 + abs(x) + abs(y)) for x, y in seen
    )
    found.marks = [((x,), y) for x, y in dots] if dots else found.marks
    return found


def _tiles(root: Xml.Element, legend: Xml.Element, across: _Axis, up: _Axis) -> Drawn:
    texts = [text.text or "" for text in legend.iter(f"{NAMESPACE}text")]
    said = legend.get("aria-label") or ""
    low, high = (_as_number(text) for text in re.search(r"with values from (\S+) to (\S+)$", said).groups())  # type: ignore[union-attr]
    assert low is not None and high is not None
    stops = [
        (float(stop.get("offset") or 0), _colour(stop.get("stop-color") or ""))
        for stop in root.iter(f"{NAMESPACE}stop")
    ]
    found = Drawn("tiles", (across.title, up.title, texts[-1]))
    for path in _marks(root, "mark-rect"):
        (x0, y0), (x1, y1) = _box(path)
        share = _along(stops, _colour(path.get("fill") or ""))
        keys = (across.label((x0 + x1) / 2), up.label((y0 + y1) / 2))
        found.marks.append((keys, low + share * (high - low)))
    return found


def _along(stops: Sequence[tuple[float, tuple[float, ...]]], colour: tuple[float, ...]) -> float:
    """Returns where a colour is in a gradient."""
    best = (float("inf"), 0.0)
    for (first, one), (last, other) in pairwise(stops):
        step = [b - a for a, b in zip(one, other, strict=True)]
        length = sum(part * part for part in step) or 1.0
        share = sum((c - a) * part for a, c, part in zip(one, colour, step, strict=True)) / length
        share = min(1.0, max(0.0, share))
        missed = sum((a + share * part - c) ** 2 for a, c, part in zip(one, colour, step, strict=True))
        best = min(best, (missed, first + share * (last - first)))
    return best[1]


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


def _colour(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in _NUMBER.findall(text))
