"""Candidates of MWEM and of annealed rounds: the pool of a request, and the candidates that a round may ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.queries.operators import Family
from dpduck.language.select.impossible_cells import ImpossibleCells
from dpduck.language.select.request import Key
from dpduck.mechanisms.synthetic.cliques import kept_zeros
from dpduck.mechanisms.synthetic.junction import Members
from dpduck.mechanisms.synthetic.request import SyntheticRequest
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import Refusal

LARGEST_HISTOGRAM = 1 << 22
LARGEST_ZEROS = 1 << 16
"""Most cells of the tables of rows that WHERE rules out. A condition that would need more is ignored."""

MOST_CELLS = 1 << 22
"""Most cells of all candidates of annealed rounds together."""

MOST_QUERIES = 20_000_000


@dataclass(frozen=True)
class Pool:
    """Pool of questions: families of queries of the workload, families asked before the rounds, the number of records.

    whole: whether a candidate is a whole family, and not one query. Then families are marginals.
    weights: weights of workload families in choices, in units of 1/WEIGHT, () for 1 each.
    """

    sizes: tuple[int, ...]
    workload: tuple[Family, ...]
    first: tuple[Family, ...]
    whole: bool
    weights: tuple[int, ...] = ()
    zeros: tuple[ImpossibleCells, ...] = ()

    @cached_property
    def families(self) -> tuple[Family, ...]:
        return (*self.workload, *self.first, Family((), ()))

    @property
    def queries(self) -> int:
        return sum(family.rows for family in self.workload)

    @property
    def all_weights(self) -> tuple[int, ...]:
        """Returns the weights of all families. Those that are never chosen have the weight 1."""
        return (*self.weights, *(1 for _ in self.first), 1) if self.weights else ()

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Returns the number of the first query of each family, and the number of all queries."""
        return np.cumsum([0, *(family.rows for family in self.families)])

    @cached_property
    def attribute_sets(self) -> tuple[tuple[int, ...], ...]:
        return tuple(dict.fromkeys(family.attributes for family in self.workload))

    @cached_property
    def plain(self) -> bool:
        """Tells whether the workload's queries are the cells of different marginals, one marginal after the other."""
        return len(self.attribute_sets) == len(self.workload) and all(family.is_marginal for family in self.workload)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        numbers = np.arange(len(self.families))
        return numbers if self.whole else np.repeat(numbers, np.diff(self.starts))

    @cached_property
    def members(self) -> NDArray[np.bool_]:
        return np.array([[place in family.attributes for place in range(len(self.sizes))] for family in self.families])

    def sharing(self, attributes: Members) -> NDArray[np.bool_]:
        return np.asarray(self.members[:, list(attributes)].any(axis=1))


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates of queries by a distribution. known: the estimated families. Values of other families mean nothing."""

    values: FloatArray
    known: NDArray[np.bool_]


def pool_of(request: SyntheticRequest) -> Pool:
    """Returns the pool of a request: the workload's families, and the families before the rounds."""
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
    """Returns the family of one condition: the cells of its columns' marginal in which it is true."""
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
    """Lists subsets of the workload's marginals, without the largest if all have more than MOST_CELLS together.

    largest: the most cells of a subset. loudest: the cells at which noise for the whole price is twice the records.
    """
    subsets: set[tuple[int, ...]] = {(place,) for place in range(len(sizes))}
    for attributes in workload:
        for order in range(2, len(attributes) + 1):
            subsets.update(combinations(attributes, order))
    cells = {attributes: prod(sizes[attribute] for attribute in attributes) for attributes in subsets}
    order_of = sorted(subsets, key=lambda attributes: (len(attributes) > 1, cells[attributes], attributes))
    chosen, total = [], 0
    for attributes in order_of:
        total += cells[attributes]
        if len(attributes) == 1 or (total <= MOST_CELLS and cells[attributes] <= min(largest, loudest)):
            chosen.append(attributes)
    return sorted(chosen)
