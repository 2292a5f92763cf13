"""From a request for synthetic rows to the candidates that MWEM and annealed rounds choose from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod

import numpy as np

from dpduck.frontend.select.request import Key
from dpduck.mechanisms.synthetic.distribution import kept_zeros
from dpduck.mechanisms.synthetic.mwem import Pool
from dpduck.mechanisms.synthetic.request import SyntheticRequest
from dpduck.trusted.operators import Family
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import Refusal

LARGEST_HISTOGRAM = 1 << 22
LARGEST_ZEROS = 1 << 16
"""Cells of the tables of what WHERE rules out; a condition that would need more says nothing."""

MOST_CELLS = 1 << 22
"""Cells of all candidates of annealed rounds."""

MOST_QUERIES = 20_000_000


def pool_of(request: SyntheticRequest) -> Pool:
    """Returns the workload's families, and those asked before the rounds."""
    sizes, kind, sets = request.base.question.sizes, request.kind, request.base.question.grouping_sets
    shapes = [tuple(sizes[attribute] for attribute in attributes) for attributes in sets]
    marginal = kind in ("marginals", "sets")
    ask = request.options.ask or ("marginals" if marginal else "queries")
    if ask == "marginals" and not marginal:
        raise Refusal("only marginals are asked as a whole", accepted="ask = 'queries'")
    _require_few(kind, shapes)
    if kind == "parities":
        families = [parities(attributes, shape) for attributes, shape in zip(sets, shapes, strict=True)]
    elif kind == "ranges":
        families = [interval_products(attributes, shape) for attributes, shape in zip(sets, shapes, strict=True)]
    elif kind == "predicates":
        families = [_condition(request, key) for key in request.predicates]
    else:
        families = [Family(attributes, shape) for attributes, shape in zip(sets, shapes, strict=True)]
    first: tuple[Family, ...] = ()
    rule = "nothing" if request.options.update == "paper" or request.options.keep == "average" else "marginals"
    asked_first = request.options.first or rule
    if asked_first == "marginals":
        first = tuple(Family((place,), (size,)) for place, size in enumerate(sizes))
    elif asked_first == "histogram":
        first = (Family(tuple(range(len(sizes))), tuple(sizes)),)
    zeros = kept_zeros(sizes, (), request.zeros, LARGEST_ZEROS)
    return Pool(tuple(sizes), tuple(families), first, ask == "marginals", zeros=zeros)


def _require_few(kind: str, shapes: list[tuple[int, ...]]) -> None:
    def grown(size: int) -> int:
        return size * (size + 1) // 2 if kind == "ranges" else size

    queries = sum(prod(grown(size) for size in shape) for shape in shapes)
    entries = max(grown(size) * size for shape in shapes for size in shape) if kind in ("ranges", "parities") else 0
    if max(queries, entries) > MOST_QUERIES:
        raise Refusal(f"the workload has {queries} queries", accepted=f"at most {MOST_QUERIES}")


def _condition(request: SyntheticRequest, key: Key) -> Family:
    """Returns one condition: the cells of the marginal on its columns for which it is true."""
    places = {column.sources[0]: place for place, column in enumerate(request.base.question.keys)}
    order = np.argsort([places[source] for source in key.sources])
    attributes = tuple(places[key.sources[axis]] for axis in order)
    shape = tuple(request.base.question.sources[source].domain.size for source in key.sources)
    true = [number for number, label in enumerate(key.labels) if label == "true"]
    codes = np.array(key.codes, np.int64).reshape(shape)
    mask = np.isin(codes, true).astype(np.int64).transpose(order)
    return Family(attributes, mask.shape, masks=mask[None])


def parities(attributes: tuple[int, ...], shape: tuple[int, ...]) -> Family:
    """Builds the Fourier queries of exactly this support: products of non-constant Hadamard rows over valid codes."""
    return Family(attributes, shape, tuple(_hadamard(size)[1:, :size] for size in shape))


def interval_products(attributes: tuple[int, ...], shape: tuple[int, ...]) -> Family:
    """Returns products of one interval per attribute."""
    return Family(attributes, shape, tuple(_intervals(size) for size in shape))


def _hadamard(size: int) -> IntegerArray:
    codes = np.arange(1 << (size - 1).bit_length())
    both = np.bitwise_count(codes[:, None] & codes[None, :])
    return np.where(both % 2, -1, 1).astype(np.int64)


def _intervals(size: int) -> IntegerArray:
    starts, stops = np.triu_indices(size)
    values = np.arange(size)
    return ((values >= starts[:, None]) & (values <= stops[:, None])).astype(np.int64)


def candidates(
    sizes: Sequence[int], workload: Sequence[tuple[int, ...]], largest: int, loudest: float
) -> list[tuple[int, ...]]:
    """Lists subsets of the workload's marginals, without the largest where all have more than MOST_CELLS together.

    largest: cells of one. loudest: the same, were the price spent on it, for noise of twice the records in all.
    """
    found: set[tuple[int, ...]] = {(place,) for place in range(len(sizes))}
    for attributes in workload:
        for order in range(2, len(attributes) + 1):
            found.update(combinations(attributes, order))
    cells = {attributes: prod(sizes[attribute] for attribute in attributes) for attributes in found}
    order_of = sorted(found, key=lambda attributes: (len(attributes) > 1, cells[attributes], attributes))
    kept, total = [], 0
    for attributes in order_of:
        total += cells[attributes]
        if len(attributes) == 1 or (total <= MOST_CELLS and cells[attributes] <= min(largest, loudest)):
            kept.append(attributes)
    return sorted(kept)
