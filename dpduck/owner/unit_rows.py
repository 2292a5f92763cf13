"""Rows of a unit, estimated from private answers: the clause MAX ROWS of a suggested policy."""

from __future__ import annotations

from dataclasses import dataclass

from dpduck.language.rows.facts import Policy
from dpduck.owner.noisy_shares import ONE_SIDE, Beyond, Tail, shares_up_to
from dpduck.owner.private_draft import DROPPED, MOST_DROPPED, NICE


def numbers_of(value: object) -> list[float | None]:
    """Returns the numbers of a list, with None for NULL."""
    listed = value if isinstance(value, (list, tuple)) else []
    return [float(number) if isinstance(number, (int, float)) else None for number in listed]


@dataclass(frozen=True)
class UnitEstimates:
    """Estimated numbers of units and of rows, and a suggested MAX ROWS with the share of rows that it leaves out.

    error: the standard error of `units`. most_rows: the suggested MAX ROWS, None if the noise hides it. rows: None if
    units with very many rows, which the noise hides, may have a third of all rows.
    """

    units: float
    error: float
    most_rows: int | None
    left: Beyond | None
    rows: float | None


def unit_facts(policy: Policy, answer: tuple[object, ...], rank: float | None) -> UnitEstimates:
    """Estimates the numbers of units and rows, and MAX ROWS. rank: standard error of a quantile's rank, in units."""
    *quantiles, number, error = (*answer, 0.0) if policy.unit.column is None else answer
    units, deviation = max(number_of(number), 1.0), number_of(error)
    if policy.unit.column is None:
        return UnitEstimates(units, deviation, 1, Beyond(0.0, 0.0), units)
    up_to = shares_up_to(numbers_of(quantiles[0]), len(NICE))
    shares = (1.0, *(1 - share for share in up_to))
    tail = Tail((1.0, *(most + 1.0 for most in NICE)), shares, (rank or 0.0) / units, whole=True)
    last = tail.last
    end = tail.beyond(last) if 0 <= last < len(NICE) else None
    if end is None:
        return UnitEstimates(units, deviation, None, None, None)
    counted = 1 + tail.within(0, last)
    rows = units * (counted + end.likely) if end.most <= counted / 2 else None
    for place, most in enumerate(NICE):
        left = _share_beyond(tail, place + 1, counted + end.likely)
        if left is not None and left.likely <= DROPPED:
            sure = left.most <= MOST_DROPPED
            return UnitEstimates(units, deviation, most if sure else None, left, rows)
    return UnitEstimates(units, deviation, None, None, rows)


def _share_beyond(tail: Tail, place: int, mean: float) -> Beyond | None:
    """Returns the share of the rows that a bound on a unit's rows leaves out. mean: mean number of rows of a unit."""
    beyond = tail.beyond(place)
    if beyond is None:
        return None
    first = max(tail.at_least[place], 0.0) if place <= tail.last else 0.0
    noise = ONE_SIDE * tail.error
    likely, most = beyond.likely + first, beyond.most + first + noise
    return Beyond(likely / mean, most / (max(mean - beyond.likely, 1.0) + most))


def number_of(value: object) -> float:
    """Returns a number, or 0 for NULL."""
    return float(value) if isinstance(value, (int, float)) else 0.0
