"""Ranges of the values of an expression over a row, from clamps and literals: interval arithmetic on public bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from math import ceil, floor, gcd, log10

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import Clamp, Image
from dpduck.language.rows.predicates import literal
from dpduck.language.text.dialect import exact_number
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.sqltypes import sql_type

ClampOf = Callable[[exp.Column], Clamp | None]

_TYPE = exp.DataType.Type
_WHOLE_TYPES = frozenset((_TYPE.TINYINT, _TYPE.SMALLINT, _TYPE.INT, _TYPE.BIGINT, _TYPE.INT128))
_REAL_TYPES = frozenset((_TYPE.DOUBLE,))
_ROUNDINGS = (exp.Floor, exp.Ceil, exp.Trunc)
_CONDITIONS = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Like,
    exp.Boolean,
)  # fmt: skip


def grid_of(node: exp.Expr, clamp_of: ClampOf, types: Mapping[str, str]) -> Grid | None:
    """Returns the grid of a resolved expression over clamped columns. None if nothing public bounds its values."""
    node = node.unnest()
    value = literal(node)
    if value is not None:
        return constant(value)
    if isinstance(node, exp.Column):
        clamp = clamp_of(node)
        return None if clamp is None else Grid(*(exact_number(text) for text in (clamp.low, clamp.high, clamp.step)))
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return _arithmetic(node, clamp_of, types)
    if isinstance(node, (exp.Greatest, exp.Least)):
        return _extremum_grid(node, clamp_of, types)
    inner = grid_of(node.this, clamp_of, types) if isinstance(node.this, exp.Expr) else None
    if isinstance(node, (exp.Cast, exp.TryCast)):
        return _cast(node, inner, types)
    if isinstance(node, exp.Case):
        return _union([*(if_.args.get("true") for if_ in node.args["ifs"]), node.args.get("default")], clamp_of, types)
    if isinstance(node, exp.If):
        return _union([node.args.get("true"), node.args.get("false")], clamp_of, types)
    if isinstance(node, exp.Coalesce):
        return _union([node.this, *node.expressions], clamp_of, types)
    if inner is None:
        return None
    if isinstance(node, exp.Neg):
        return -inner
    if isinstance(node, exp.Abs):
        return inner.absolute()
    if isinstance(node, _ROUNDINGS) or (isinstance(node, exp.Round) and not node.args.get("decimals")):
        return inner.to_integers()
    return inner if isinstance(node, exp.Nullif) else None


def _arithmetic(node: exp.Expr, clamp_of: ClampOf, types: Mapping[str, str]) -> Grid | None:
    left, right = grid_of(node.this, clamp_of, types), grid_of(node.args["expression"], clamp_of, types)
    if left is None or right is None:
        return None
    if isinstance(node, exp.Add):
        return left + right
    if isinstance(node, exp.Sub):
        return left + -right
    if isinstance(node, exp.Mul):
        return left * right
    if right.low != right.high or right.low == 0:
        return None
    return left * constant(1 / right.low)


def _union(parts: list[exp.Expr | None], clamp_of: ClampOf, types: Mapping[str, str]) -> Grid | None:
    """Returns the union of the parts' ranges. A NULL part contributes nothing."""
    given = [part for part in parts if part is not None and not isinstance(part.unnest(), exp.Null)]
    grids = [grid_of(part, clamp_of, types) for part in given]
    bounded = [grid for grid in grids if grid is not None]
    return union(bounded) if bounded and len(bounded) == len(grids) else None


def _extremum_grid(node: exp.Greatest | exp.Least, clamp_of: ClampOf, types: Mapping[str, str]) -> Grid | None:
    """Returns the grid of greatest or least. An inline clamp bounds even a value without other bounds."""
    parts = [node.this, *node.expressions]
    grids = [grid_of(part, clamp_of, types) for part in parts]
    bounded = [grid for grid in grids if grid is not None]
    if len(bounded) == len(parts):
        grid, pick = union(bounded), max if isinstance(node, exp.Greatest) else min
        return Grid(pick(member.low for member in bounded), pick(member.high for member in bounded), grid.unit)
    return _inline_clamp(node)


def _inline_clamp(node: exp.Greatest | exp.Least) -> Grid | None:
    """Returns the grid of least(greatest(x, low), high), or the other way round, for any x."""
    outer, inner = _literal_and_rest(node)
    if outer is None or inner is None or type(inner) not in {exp.Greatest, exp.Least} - {type(node)}:
        return None
    other, rest = _literal_and_rest(inner)
    if other is None or rest is None:
        return None
    low, high = (other, outer) if isinstance(node, exp.Least) else (outer, other)
    return Grid(low, high, Fraction(0)) if low < high else None


def _literal_and_rest(node: exp.Expr) -> tuple[Fraction | None, exp.Expr | None]:
    parts = [node.this, *node.expressions]
    if len(parts) != 2:
        return None, None
    for position in (0, 1):
        value = literal(parts[position])
        if value is not None:
            return value, parts[1 - position].unnest()
    return None, None


def _cast(node: exp.Cast | exp.TryCast, inner: Grid | None, types: Mapping[str, str]) -> Grid | None:
    target = node.to.this
    if inner is None:
        boolean = _is_condition(node.this, types) and target in _WHOLE_TYPES | _REAL_TYPES
        return Grid(Fraction(0), Fraction(1), Fraction(1)) if boolean else None
    if target in _WHOLE_TYPES:
        return inner if inner.unit.denominator == 1 and inner.unit > 0 else inner.to_integers()
    return inner if target in _REAL_TYPES else None


def _is_condition(node: exp.Expr, types: Mapping[str, str]) -> bool:
    """Tells whether a value is TRUE, FALSE or NULL: a condition, a BOOLEAN column, or coalesce over these."""
    node = node.unnest()
    if isinstance(node, exp.Coalesce):
        return all(_is_condition(part, types) for part in (node.this, *node.expressions))
    return isinstance(node, _CONDITIONS) or (isinstance(node, exp.Column) and types.get(sql_of(node)) == "BOOLEAN")


def with_clamped_columns(expression: exp.Expr, clamp_of: ClampOf, types: Mapping[str, str]) -> exp.Expr:
    """Clamps each column of an expression to its bounds. Conditions see the columns without clamps.

    NaN and infinities become NULL, except in greatest and least, which would ignore NULL: there they count as a bound.
    """
    root = exp.Paren(this=expression.copy())
    for node in [nullif for nullif in root.find_all(exp.Nullif) if nullif.this.find(exp.Nullif) is None]:
        same = exp.EQ(this=node.this.copy(), expression=node.expression.copy())
        node.replace(exp.Case(ifs=[exp.If(this=same, true=exp.Null())], default=node.this.copy()))
    for column in list(root.find_all(exp.Column)):
        clamp = None if _in_condition(column) else clamp_of(column)
        if clamp is not None:
            low, high = _number(clamp.low), _number(clamp.high)
            branches = [
                exp.If(this=exp.LTE(this=column.copy(), expression=low), true=low.copy()),
                exp.If(this=exp.GTE(this=column.copy(), expression=high), true=high.copy()),
            ]
            if sql_type(types.get(sql_of(column), "")).is_float and not column.find_ancestor(exp.Greatest, exp.Least):
                finite = exp.Anonymous(this="isfinite", expressions=[column.copy()])
                branches.insert(0, exp.If(this=finite.not_(), true=exp.Null()))
            column.replace(exp.Case(ifs=branches, default=column.copy()))
    return root


def _in_condition(node: exp.Expr) -> bool:
    """Tells whether a column only decides which value is taken, and is not the value itself."""
    parent = node.parent
    if parent is None:
        return False
    of_choice = isinstance(parent, (exp.If, exp.Case)) and node.arg_key == "this"
    return of_choice or isinstance(parent, _CONDITIONS) or _in_condition(parent)


def _number(text: str) -> exp.Expr:
    return exp.Neg(this=exp.Literal.number(text[1:])) if text.startswith("-") else exp.Literal.number(text)


# Grids of public numbers, low + k step for k = 0 .. K, and their arithmetic: the possible values of an expression.

LARGEST_INTEGER = 1 << 24
"""Bounds in steps stay below this. Finer steps would vanish in noise, and the noise scale would not fit samplers."""

FINEST = 10**6
"""About the most decimal steps between bounds that have no step of their own."""


@dataclass(frozen=True)
class Grid:
    """Range of values: low <= value <= high, on multiples of `step` from low. A step of 0 allows any number between.

    >>> (Grid(Fraction(0), Fraction(2), Fraction(1, 2)) * Grid(Fraction(-1), Fraction(3), Fraction(1))).low
    Fraction(-2, 1)
    """

    low: Fraction
    high: Fraction
    step: Fraction

    @property
    def unit(self) -> Fraction:
        """Returns the largest number that divides every value, 0 if there is none."""
        return divisor(self.low, self.step) if self.step else Fraction(0)

    def __add__(self, other: Grid) -> Grid:
        step = divisor(self.step, other.step) if self.step and other.step else Fraction(0)
        if self.low == self.high or other.low == other.high:
            step = max(self.step, other.step)
        return Grid(self.low + other.low, self.high + other.high, step)

    def __neg__(self) -> Grid:
        return Grid(-self.high, -self.low, self.step)

    def __mul__(self, other: Grid) -> Grid:
        """Multiplies two grids: values are multiples of their units, and products multiples of the units' product."""
        ends = [first * second for first in (self.low, self.high) for second in (other.low, other.high)]
        for constant, grid in ((self, other), (other, self)):
            if constant.low == constant.high:
                return Grid(min(ends), max(ends), grid.step * abs(constant.low))
        return Grid(min(ends), max(ends), self.unit * other.unit)

    def to_integers(self) -> Grid:
        """Returns the grid under round, floor, ceil, trunc or a cast to a whole number."""
        return Grid(Fraction(floor(self.low)), Fraction(ceil(self.high)), Fraction(1))

    def absolute(self) -> Grid:
        """Returns the grid under abs. Multiples of the unit remain multiples."""
        ends = (abs(self.low), abs(self.high))
        least = Fraction(0) if self.low <= 0 <= self.high else min(ends)
        return Grid(least, max(ends), self.unit)

    def align(self) -> Grid:
        """Returns the grid with bounds on multiples of its step. If there are too many steps, the step is coarser."""
        alone = abs(self.low) if self.low == self.high else Fraction(0)
        step = self.step or alone or decimal_step(self.high - self.low)
        if self.step and divisor(self.low, step) != step:
            step = divisor(self.low, step)
        farthest = max(abs(self.low), abs(self.high))
        step *= max(1, ceil(farthest / step / LARGEST_INTEGER))
        low, high = floor(self.low / step) * step, ceil(self.high / step) * step
        return Grid(low, max(high, low + step), step)


def constant(value: Fraction) -> Grid:
    """Returns the grid of a literal."""
    return Grid(value, value, Fraction(0))


def union(grids: Iterable[Grid]) -> Grid:
    """Returns one grid for a value from any of several grids, such as a CASE."""
    listed = list(grids)
    low = min(grid.low for grid in listed)
    step = Fraction(0)
    for grid in listed:
        if grid.low != grid.high and not grid.step:
            return Grid(low, max(member.high for member in listed), Fraction(0))
        step = divisor(divisor(step, grid.step), grid.low - low)
    return Grid(low, max(grid.high for grid in listed), step)


def divisor(first: Fraction, second: Fraction) -> Fraction:
    """Returns the largest number that divides both.

    >>> divisor(Fraction(1, 2), Fraction(3)), divisor(Fraction(0), Fraction(3))
    (Fraction(1, 2), Fraction(3, 1))
    """
    numerator = gcd(first.numerator * second.denominator, second.numerator * first.denominator)
    return Fraction(numerator, first.denominator * second.denominator)


def decimal_step(width: Fraction) -> Fraction:
    """Returns a power of ten that cuts the width into at most about FINEST steps. A width of 0 gets 1."""
    return Fraction(Fraction(10) ** ceil(log10(float(width) / FINEST))) if width > 0 else Fraction(1)


# Check that an expression over binned columns puts no bin into two groups: it sees only the lower edges of bins.
#
# A row is counted by the label of its bin. An expression that is not constant over a bin would count some rows
# under a label that is right for other rows: months over bins of seven days.

MOST_PROBES = 32
"""The most values of a bin that are tried. All values are tried if there are no more."""

MOST_COMBINATIONS = 200_000
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def values_to_try(domains: Sequence[Domain]) -> list[list[tuple[str | None, ...]]]:
    """Lists the values to try for each column: a tuple for each label, the label itself first."""
    combinations = np.prod([domain.size for domain in domains], dtype=float)
    binned = sum(isinstance(domain, RangeDomain) for domain in domains)
    each = max(2, min(MOST_PROBES, int((MOST_COMBINATIONS / combinations) ** (1 / max(binned, 1)))))
    return [_values(domain, each) for domain in domains]


def misplaces(domains: Sequence[Domain], values: Sequence[Sequence[tuple[str | None, ...]]], image: Image) -> bool:
    """Tells whether rows of some bin would be counted under another bin's label, by an image over `values`."""
    owners = [np.repeat(np.arange(len(column)), [len(probes) for probes in column]) for column in values]
    firsts = [np.concatenate([[True], owner[1:] != owner[:-1]]) for owner in owners]
    codes = np.array(image.codes).reshape([len(owner) for owner in owners])
    bins = np.ravel_multi_index(np.ix_(*owners), [domain.size for domain in domains])
    edges = codes[np.ix_(*firsts)].ravel()
    changed = codes != edges[bins]
    present = _present(domains)
    # NULL is no bin: coalesce(age, 0) puts it into one on purpose
    shared = np.bincount(edges[present], minlength=len(image.labels)) > 1
    split = changed & present[bins]
    return bool((split & (shared[edges[bins]] | np.isin(codes, edges[present]))).any())


def _present(domains: Sequence[Domain]) -> NDArray[np.bool_]:
    """Returns the combinations of labels without the NULL of a binned column, flat."""
    present = np.ones([domain.size for domain in domains], dtype=np.bool_)
    for axis, domain in enumerate(domains):
        if isinstance(domain, RangeDomain) and domain.with_null:
            np.moveaxis(present, axis, 0)[-1] = False
    return present.ravel()


def _values(domain: Domain, most: int) -> list[tuple[str | None, ...]]:
    if not isinstance(domain, RangeDomain):
        return [(label,) for label in domain.labels]
    ends = (*domain.edges[1:], domain.upper)
    inside: list[tuple[str | None, ...]] = [
        (low, *_between(domain.type_name, low, high, most)) for low, high in zip(domain.edges, ends, strict=True)
    ]
    return [*inside, (None,)] if domain.with_null else inside


def _between(type_name: str, low: str, high: str, most: int) -> list[str]:
    """Returns values of [low, high) after low: all values, or evenly spaced ones that include the last value."""
    if type_name == "DATE":
        start = date.fromisoformat(low)
        return _space_evenly((date.fromisoformat(high) - start).days, most, lambda place: str(start + timedelta(place)))
    if type_name == "TIMESTAMP":
        begin, end = (datetime.fromisoformat(text) - _EPOCH for text in (low, high))
        whole = (end - begin) // _MICROSECOND
        return _space_evenly(whole, most, lambda place: str(_EPOCH + begin + place * _MICROSECOND))
    kind = sql_type(type_name)
    digits = 9 if kind.is_float else kind.scale
    first, last = (int(Fraction(text) * 10**digits) for text in (low, high))
    return _space_evenly(last - first, most, lambda place: _decimal(first + place, digits))


def _space_evenly(count: int, most: int, text: Callable[[int], str]) -> list[str]:
    steps = min(count, most)
    return [text((count - 1) * step // (steps - 1)) for step in range(1, steps)]


def _decimal(units: int, digits: int) -> str:
    sign, size = "-" if units < 0 else "", str(abs(units)).rjust(digits + 1, "0")
    return f"{sign}{size[:-digits]}.{size[-digits:]}" if digits else f"{sign}{size}"
