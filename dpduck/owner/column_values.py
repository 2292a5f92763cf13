"""Values of a column, estimated from private answers: bounds, ranges and codes for a suggested policy."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, log10, sqrt

from dpduck.owner.noisy_shares import ONE_SIDE, STANDS_OUT, STEP, Beyond, Tail, shares_up_to
from dpduck.owner.private_draft import (
    BLANKS,
    CODES,
    DROPPED,
    FARTHEST,
    MOST_BINS,
    MOST_CODES,
    MOST_DROPPED,
    MOST_OTHERS,
    PrivateQuestion,
)
from dpduck.owner.unit_rows import numbers_of
from dpduck.values.sqltypes import sql_type

ONE_PLACE = 0.8
"""Standard error of the share between two edges, relative to that of the share above an edge."""


@dataclass(frozen=True)
class ColumnShares:
    """Noisy shares of the units that have a value. edges: the grid. below: the share below each edge.

    error: the standard error of such a share. blank: the share of all units without a value. units: the number of units
    with a value. whole: whether the values are whole numbers.
    """

    edges: tuple[Fraction, ...]
    below: tuple[float, ...]
    error: float
    blank: float
    units: float
    whole: bool

    @property
    def ends(self) -> tuple[int, int] | None:
        """Returns two edges: the last edge with only noise below it, and the last edge with more than noise above it.

        None if no share is larger than the noise, or if such a share lies beyond the grid.
        """
        least = STANDS_OUT * self.error
        low = max((place for place, share in enumerate(self.below) if share <= least), default=-1)
        high = max((place for place, share in enumerate(self.below) if 1 - share > least), default=-1)
        return (low, high) if 0 <= low <= high < len(self.edges) - 1 else None

    def outside(self, low: int, high: int) -> Beyond:
        """Returns the share of the values below the edge `low`, or at or above the edge `high`."""
        likely = max(self.below[low], 0.0) + max(1 - self.below[high], 0.0)
        return Beyond(likely, min(likely + ONE_SIDE * sqrt(2) * self.error, 1.0))

    def share(self, place: int) -> float:
        return self.below[place + 1] - self.below[place]

    def tail(self, *, downwards: bool) -> Tail:
        """Returns the tail of the positive values, or with `downwards` the tail of the negative values."""
        sides = [(edge, 1 - below) for edge, below in zip(self.edges, self.below, strict=True)]
        if downwards:
            sides = [(-edge, below) for edge, below in zip(self.edges[::-1], self.below[::-1], strict=True)]
        upper = [(float(edge), share) for edge, share in sides if edge >= 0]
        return Tail(tuple(edge for edge, _ in upper), tuple(share for _, share in upper), self.error, self.whole)

    def without(self, place: int) -> ColumnShares:
        """Returns the shares of the units without a value between this edge and the next."""
        share = self.share(place)
        rest = 1 - share
        below = tuple((old - (share if other > place else 0.0)) / rest for other, old in enumerate(self.below))
        units = self.units * rest
        error = (self.error + STEP / 2) / rest  # one quantile may lie anywhere between these values and the others
        return ColumnShares(self.edges, below, error, self.blank, units, self.whole)


def seen(
    question: PrivateQuestion, answer: tuple[object, ...], units: float, rank: float | None
) -> ColumnShares | None:
    """Returns the shares of a column, or None if too few units have a value."""
    shares = shares_up_to(numbers_of(answer[0]), len(question.grid) + 2)
    blank, error = shares[0], (rank or 0.0) / units
    present = 1 - blank
    if question.column is None or present <= 2 * STANDS_OUT * error:
        return None
    below = tuple((share - blank) / present for share in shares[1:-1])
    whole = sql_type(question.column.type_name).is_whole
    return ColumnShares(question.grid, below, error / present, blank, units * present, whole)


def no_answer(shares: ColumnShares) -> int | None:
    """Returns the place of a number such as 999 that seems to mean no answer. Many units have it, and few are near."""
    if not shares.whole:
        return None
    for place, edge in enumerate(shares.edges[:-1]):
        share = shares.share(place)
        if edge in BLANKS and share > STANDS_OUT * shares.error and share > 3 * shares.share(place - 1):
            return place
    return None


def codes_of(shares: ColumnShares) -> tuple[tuple[int, ...], Beyond] | None:
    """Returns the few whole numbers that most units have, and the share of the other values.

    The numbers are consecutive, or are all that stand out of the noise. None if there are many such numbers, or if too
    many units have other values.
    """
    ends = shares.ends
    if ends is None or not shares.whole:
        return None
    places = list(range(ends[0], ends[1] + 1))
    if shares.edges[ends[0]] < CODES.start or shares.edges[ends[1]] >= CODES.stop:
        return None
    if len(places) > MOST_CODES:
        least = max(STANDS_OUT * ONE_PLACE * shares.error, 1.5 * STEP)
        places = [place for place in places if shares.share(place) > least]
    others = max(1 - sum(map(shares.share, places)), 0.0)
    most = min(others + ONE_SIDE * sqrt(2) * shares.error, 1.0)
    if not 2 <= len(places) <= MOST_CODES or most > MOST_OTHERS:
        return None
    return tuple(int(shares.edges[place]) for place in places), Beyond(others, most)


@dataclass(frozen=True)
class Bounds:
    """Bounds of a clamp, with the share of the sum that they leave out. beyond: most units outside them."""

    low: Fraction
    high: Fraction
    left: Beyond
    beyond: float


def clamp_of(shares: ColumnShares) -> Bounds | None:
    """Returns bounds that leave out about 1 % of the sum at most. None if the noise hides how much they leave out."""
    ends, up, down = shares.ends, shares.tail(downwards=False), shares.tail(downwards=True)
    body = up.body() + down.body()
    if ends is None or body <= 0:
        return None
    high, low = _bound(up, body), _bound(down, body)
    if high is None or low is None:
        return None
    lowest = -Fraction(low[0])
    first = shares.edges[ends[0]]
    unseen = max(shares.below[ends[0]], 0.0) + ONE_SIDE * shares.error
    narrow = 0.0
    if low[0] == 0 and first * 2 >= high[0]:  # far from 0, as weights and years are
        lowest = max(edge for edge in shares.edges if edge <= first and (_is_round(edge) or edge == first))
        narrow = unseen * float(lowest)
    likely, most = high[1].likely + low[1].likely, high[1].most + low[1].most + narrow
    least = max(body - ONE_SIDE * shares.error * high[0] / 2, body / 2)
    left = Beyond(likely / (body + likely), most / (least + most))
    if left.most > MOST_DROPPED:
        return None
    return Bounds(
        lowest, Fraction(str(high[0])), left, shares.units * min(high[2] + low[2] + unseen * (narrow > 0), 1.0)
    )


def _bound(tail: Tail, body: float) -> tuple[float, Beyond, float] | None:
    """Returns a round bound in one direction, the amount beyond it, and the largest share of units beyond it.

    The bound is 0 if no share in this direction is above the noise. body: amount inside, in both directions.
    """
    last = tail.last
    if last < 0:
        share = tail.at_most(0) if tail.edges[-1] > 0 else 0.0
        return 0.0, Beyond(0.0, share * body), share
    if last + 1 >= len(tail.edges):
        return None
    for place in range(last + 1, len(tail.edges)):
        bound = tail.edges[place]
        if not _is_round(Fraction(str(bound))):
            continue
        beyond = tail.beyond(place)
        if beyond is None or bound > FARTHEST * tail.edges[last + 1]:
            return None
        if beyond.likely <= DROPPED * body:
            return bound, beyond, tail.at_most(place)
    return None


def _is_round(number: Fraction) -> bool:
    """Tells whether a number has one digit, or is 12, 15 or 25 times a power of ten."""
    if number == 0:
        return True
    digits = abs(number) / Fraction(10) ** floor(log10(float(abs(number))) + 1e-9)
    return digits.denominator == 1 or digits * 10 in (12, 15, 25)


def range_of(low: Fraction, high: Fraction, whole: bool) -> tuple[Fraction, Fraction, Fraction]:
    """Returns bounds around `low` and `high`, and a round step that divides both, for at most MOST_BINS bins.

    >>> [str(part) for part in range_of(Fraction(17), Fraction(91), True)]
    ['15', '95', '5']
    >>> [str(part) for part in range_of(Fraction(-7), Fraction(30), True)]
    ['-8', '30', '2']
    """
    power = floor(log10(float(high - low) / MOST_BINS))
    offers = [digit * Fraction(10) ** (power + more) for more in (0, 1, 2) for digit in (1, 2, 5)]
    for step in offers:
        if whole and step.denominator > 1:
            continue
        first, last = floor(low / step) * step, ceil(high / step) * step
        if (last - first) / step <= MOST_BINS:
            return first, last, step
    return low, high, high - low
