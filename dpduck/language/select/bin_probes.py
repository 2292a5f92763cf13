"""Check that an expression over binned columns puts no bin into two groups.

A row is counted by its bin, in the group of the bin's lower edge. If the expression is not constant over a bin, some
rows would be counted in a wrong group. An example is the month of a date over bins of seven days.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.language.rows.facts import Image
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.sqltypes import sql_type

MOST_PROBES = 32  # the most values of a bin that are tried. All values are tried if there are no more
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
    """Tells whether rows of some bin would be counted under another bin's label. image: results for all `values`."""
    owners = [np.repeat(np.arange(len(column)), [len(probes) for probes in column]) for column in values]
    firsts = [np.concatenate([[True], owner[1:] != owner[:-1]]) for owner in owners]
    codes = np.array(image.codes).reshape([len(owner) for owner in owners])
    bins = np.ravel_multi_index(np.ix_(*owners), [domain.size for domain in domains])
    edges = codes[np.ix_(*firsts)].ravel()
    changed = codes != edges[bins]
    present = _present(domains)
    # NULL is no bin: coalesce(age, 0) puts NULL into a bin on purpose
    shared = np.bincount(edges[present], minlength=len(image.labels)) > 1
    split = changed & present[bins]
    return bool((split & (shared[edges[bins]] | np.isin(codes, edges[present]))).any())


def _present(domains: Sequence[Domain]) -> NDArray[np.bool_]:
    """Tells for each combination of labels, in a flat array, whether no binned column is NULL."""
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
