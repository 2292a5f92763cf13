"""The smallest price and bounds that meet criteria, found by trials at several prices. The search itself looks at data.

So the suggestion is a fact about the true rows. Whoever publishes by it gives away a little that no budget paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import ceil, floor, log10

from dpduck.trial.criteria import Criterion
from dpduck.trial.readings import TableBounds
from dpduck.values.errors import Refusal

LEAST, MOST = Fraction(1, 100), Fraction(20)
"""Range of the epsilons that are tried."""

STEPS = 6
"""Halvings of the range on a logarithmic scale: the result is within 13 % of the smallest epsilon that is enough."""

SEARCHED, CONFIRMED = 60, 200
"""Runs of a trial during the search, and of the last trial of a suggestion."""

SURE = 0.985
"""Share of the last runs that must meet each criterion. If only 0.95 did, the chance to see this share is below 1 %."""

Try = Callable[[Fraction, Mapping[str, TableBounds], int], float]
"""Function that tries a statement: at an epsilon, with other bounds of tables, and a number of runs.

It returns the smallest share of runs that meet a criterion.
"""


@dataclass(frozen=True)
class Suggestion:
    """Smallest epsilon that meets the criteria. bounds: other bounds of tables, empty for the policy's own."""

    epsilon: Fraction
    bounds: Mapping[str, TableBounds]


def suggest(attempt: Try, choices: Sequence[Mapping[str, TableBounds]]) -> Suggestion:
    """Returns the cheapest of several choices of bounds, with its price. Refuses if none meets the criteria."""
    found: list[Suggestion] = []
    for bounds in choices:
        least = found[0].epsilon if found else MOST
        epsilon = _smallest(lambda price, bounds=bounds: attempt(price, bounds, SEARCHED) >= SURE, least)  # type: ignore[misc]
        if epsilon is not None and (not found or epsilon < least):
            found.insert(0, Suggestion(epsilon, bounds))
    for suggestion in found:
        confirmed = _confirm(attempt, suggestion)
        if confirmed is not None:
            return confirmed
    raise Refusal(
        f"no price up to epsilon = {float(MOST):g} meets these criteria with any bounds that were tried",
        accepted="fewer cells, a larger error, or cells of more rows in the criteria",
    )


def _confirm(attempt: Try, suggestion: Suggestion) -> Suggestion | None:
    """Raises the price by tenths until many fresh runs meet the criteria."""
    epsilon = suggestion.epsilon
    while epsilon <= MOST:
        if attempt(epsilon, suggestion.bounds, CONFIRMED) >= SURE:
            return replace(suggestion, epsilon=epsilon)
        epsilon = round_up(epsilon * Fraction(11, 10))
    return None


def _smallest(is_enough: Callable[[Fraction], bool], most: Fraction) -> Fraction | None:
    """Returns about the smallest epsilon that is enough, with two digits, by halving on a logarithmic scale."""
    if not is_enough(most):
        return None
    low, high = log10(LEAST), log10(most)
    for _ in range(STEPS):
        middle = (low + high) / 2
        if is_enough(round_up(Fraction(10**middle))):
            high = middle
        else:
            low = middle
    return min(most, round_up(Fraction(10**high)))


def round_up(number: Fraction) -> Fraction:
    """Rounds a positive number up to two digits.

    >>> round_up(Fraction("0.1234")), round_up(Fraction(20))
    (Fraction(13, 100), Fraction(20, 1))
    """
    unit = Fraction(10) ** (floor(log10(number)) - 1)
    return ceil(number / unit) * unit


def choices_of_bounds(
    own: Mapping[str, TableBounds], others: Sequence[Mapping[str, TableBounds]]
) -> Iterator[Mapping[str, TableBounds]]:
    """Yields the policies' own bounds, then each MAX ROWS of `others` with each of their clamps, without repetition."""
    seen = [own]
    yield {}
    for rows, clamps in product((own, *others), (own, *others)):
        choice = {name: TableBounds(rows[name].max_rows, clamps[name].clamps) for name in own}
        if choice not in seen:
            seen.append(choice)
            yield choice


def least_share(shares: Sequence[tuple[Criterion, float]]) -> float:
    """Returns the smallest share, in which a criterion with another share of runs counts in proportion."""
    return min(1 - (1 - share) * (0.05 / max(1 - criterion.runs, 1e-9)) for criterion, share in shares)
