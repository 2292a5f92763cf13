"""Turns exact counts into what leaves: one branch for each kind of query. Called by the door alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.hashing import PRIME, Words, project, reduced, words_for
from dpduck.kernel.ask import (
    Ask,
    Candidate,
    Choice,
    EveryKey,
    Families,
    Layers,
    Marginal,
    Present,
    Projection,
    Quantiles,
    Sketch,
    SparseVector,
    Table,
    Threshold,
    Total,
)
from dpduck.kernel.counting.hidden import ExactCounts, Hidden
from dpduck.kernel.noise.choice import exponential_choice
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy, words64
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.histograms import open_histogram
from dpduck.kernel.queries.key_counts import KeyCounts
from dpduck.kernel.queries.keys import KeyStream, publish_keys
from dpduck.kernel.queries.measure import (
    FamilyAnswers,
    Guess,
    exact_marginals,
    measure,
    noisy_total,
    positions,
    require_fit,
    with_noise,
)
from dpduck.kernel.queries.operators import IdentityFactor
from dpduck.kernel.queries.sessions import draw_thresholds
from dpduck.kernel.queries.sketches import draw_hashes, draw_sketch
from dpduck.kernel.queries.summaries import NoisySummary, SummaryPlan, draw_summary, sparse_counts
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

Counts = ExactCounts | KeyCounts | KeyStream


class Exact(Hidden):
    """The counts of one scan and what was derived from them; hidden."""

    __slots__ = ("_counts", "_entropy", "_questions")

    def __init__(self, counts: Counts, entropy: Entropy) -> None:
        self._counts, self._entropy = counts, entropy
        self._questions: dict[int, tuple[Families, FamilyAnswers]] = {}

    def tables(self, asks: Sequence[Ask[Any]]) -> list[tuple[IntegerArray, ...]]:
        """Returns the answers of asks for tables of one scan: for each ask, an array for each table."""
        counts, scan = self._counts, asks[0].scan
        queries = [
            (ask.query.query, ask.noise) for ask in asks if isinstance(ask.query, Table) and ask.noise is not None
        ]
        if not isinstance(counts, ExactCounts) or len(queries) < len(asks):
            raise InternalError("a query of other counts")
        by_table = [measure(counts, queries, table, scan.l1, self._entropy) for table in scan.tables]
        return [tuple(noisy[place] for noisy in by_table) for place in range(len(asks))]

    def answer(self, ask: Ask[Any], chosen: object) -> object:
        """Returns one answer. chosen: a SummaryPlan of Layers, a Guess of Choice, a number of Candidate, else None."""
        query, counts = ask.query, self._counts
        if isinstance(query, Table):
            return self.tables([ask])[0]
        if isinstance(counts, ExactCounts) and counts._unit_bounds[0] != ask.scan.l1:
            raise InternalError("the asks and the counts disagree about the contribution bound")
        if isinstance(query, Choice) and isinstance(chosen, Guess):
            return self._asked(query.families, ask).choose(query, chosen, self._entropy)
        if isinstance(query, Quantiles) and isinstance(counts, ExactCounts):
            return choose_buckets(counts, query, ask.scan.l1, self._entropy)
        if ask.noise is None:
            raise InternalError("an ask without its noise")
        if isinstance(query, Candidate | Marginal):
            return self._of_families(query, ask, ask.noise, chosen)
        if isinstance(counts, ExactCounts):
            return _of_cells(counts, ask, ask.noise, chosen, self._entropy)
        if isinstance(counts, KeyCounts):
            return _of_keys(counts, ask, ask.noise, self._entropy)
        if isinstance(query, Threshold):
            return publish_keys(counts, query, ask.noise, self._entropy)
        raise InternalError("a query of other counts")

    def _of_families(self, query: Candidate | Marginal, ask: Ask[Any], noise: Noise, chosen: object) -> IntegerArray:
        exact = self._asked(query.families, ask)
        if isinstance(query, Marginal):
            return exact.marginal(query.number, noise, self._entropy)
        if not isinstance(chosen, int):
            raise InternalError("a candidate without its number")
        return exact.answer(chosen, noise, self._entropy)

    def _asked(self, families: Families, ask: Ask[Any]) -> FamilyAnswers:
        if id(families) not in self._questions:
            if not isinstance(self._counts, ExactCounts):
                raise InternalError("a query of other counts")
            self._questions[id(families)] = families, FamilyAnswers(self._counts, families, ask.scan.l1)
        return self._questions[id(families)][1]


def _of_cells(counts: ExactCounts, ask: Ask[Any], noise: Noise, chosen: object, entropy: Entropy) -> object:
    query = ask.query
    if isinstance(query, Present):
        return measure_distinct(counts, query, noise, ask.scan.l1, entropy)
    if isinstance(query, Total):
        return noisy_total(counts, noise, entropy)
    if isinstance(query, Sketch):
        hashes = draw_hashes(query.rows, query.width, len(query.numbers), entropy)
        return hashes, draw_sketch(counts, hashes, query.numbers, noise, entropy)
    if isinstance(query, Layers):
        return _layers(counts, query, noise, chosen, entropy)
    raise InternalError("a query of other counts")


def _layers(counts: ExactCounts, query: Layers, noise: Noise, chosen: object, entropy: Entropy) -> NoisySummary:
    """Draws a summary by layers that were chosen after the charge: any are free, of the noise that was paid for."""
    if not isinstance(chosen, SummaryPlan) or noise.kind is not NoiseKind.LAPLACE:
        raise InternalError("a summary without its layers")
    if {law.scale for law in chosen.layers} != {noise.parameter}:
        raise InternalError("the layers of a summary have other noise than was paid for")
    return draw_summary(sparse_counts(counts, query.axes, query.radix), chosen, entropy)


def _of_keys(counts: KeyCounts, ask: Ask[Any], noise: Noise, entropy: Entropy) -> object:
    query = ask.query
    if isinstance(query, Total):
        return noisy_total(counts, noise, entropy)
    if isinstance(query, Projection):
        coefficients = draw_coefficients(query.words, query.independence, entropy)
        return coefficients, measure_projection(counts, coefficients, query.rows, noise, entropy)
    if isinstance(query, EveryKey):
        return open_histogram(counts, noise, entropy).to_bytes()
    if isinstance(query, SparseVector):
        return draw_thresholds(noise.parameter, ask.times, entropy)
    raise InternalError("a query of other counts")


# Exact counts by key in, a noisy projection out.


def draw_coefficients(words: int, independence: int, entropy: Entropy) -> Words:
    """Returns uniform field elements, shape (words, independence): public, but drawn like everything that is random."""
    drawn = np.empty(words * independence, dtype=np.uint64)
    open_places = np.arange(len(drawn))
    while open_places.size:
        fresh = words64(entropy, open_places.size) >> np.uint64(3)
        drawn[open_places] = fresh
        open_places = open_places[fresh == PRIME]  # 61 bits, all of them ones, are no element
    return drawn.reshape(words, independence)


def measure_projection(
    counts: KeyCounts, coefficients: Words, rows: int, noise: Noise, entropy: Entropy
) -> NDArray[np.int64]:
    """Returns a x + noise in integers, shape (rows,); keys are field elements by the higher half of their digests."""
    if len(coefficients) != words_for(rows):
        raise InternalError("the projection and its coefficients disagree")
    noisy = draw(noise, rows, entropy)
    noisy += project(coefficients, reduced(counts._exact_high), counts._exact_counts, rows)
    return noisy


# Numbers of distinct values by cell, with noise: presence, not counts, so they are added up for each set by
# itself.


def measure_distinct(
    counts: ExactCounts, query: Present, noise: Noise, unit_bound: int, entropy: Entropy
) -> IntegerArray:
    """Tells how many values of the last attribute each cell of a query holds, with noise.

    unit_bound: the rows of a unit, for which Present.bound says how far it moves the answers. What that rests on is
    looked at here: as many rows, as many values, and every cell of the attributes once.
    """
    require_fit(counts, [query.query], 0, unit_bound)
    if not all(isinstance(factor, IdentityFactor) for factor in query.query.factors):
        raise InternalError("distinct values add up to no other query")
    if len(counts._sizes) - 1 in query.query.attributes:
        raise InternalError("the values that are counted are no key")
    if counts._sizes[-1] != query.values:
        raise InternalError("the plan and the counts disagree about the values")
    return with_noise(query.query, _present(counts, query.query.attributes), noise, entropy)


def _present(counts: ExactCounts, attributes: tuple[int, ...]) -> IntegerArray:
    """Returns the exact number of values in each cell of the attributes."""
    values = counts._sizes[-1]
    cells = tuple(counts._sizes[attribute] for attribute in attributes)
    position = positions(counts, (*attributes, len(counts._sizes) - 1))[counts._exact_counts[0] > 0]
    return np.bincount(np.unique(position) // values, minlength=prod(cells)).astype(np.int64).reshape(cells)


# A bucket near a quantile for each cell: cells hold different rows, so that each is a choice of its own.


def choose_buckets(counts: ExactCounts, query: Quantiles, unit_bound: int, entropy: Entropy) -> IntegerArray:
    """Returns the number of a bucket for each cell, shape query.shape; query.buckets where nothing was chosen.

    What the price rests on is looked at here: rows of a unit, cells that share none, and the last attribute's buckets.
    """
    require_fit(counts, [query.query], 0, unit_bound)
    last = len(counts._sizes) - 1
    if last in query.query.attributes or counts._sizes[last] != query.buckets:
        raise InternalError("the plan and the counts disagree about the buckets")
    wanted = (*query.query.attributes, last)
    table = exact_marginals(counts, 0, {wanted})[wanted].reshape(-1, query.buckets)
    through = table.cumsum(axis=1)
    rows, before = through[:, -1:], through - table
    early = query.above * (rows - through) - query.below * through - query.shift
    late = query.below * before - query.above * (rows - before) + query.shift
    distances = np.maximum(np.maximum(early, late), 0)
    without = max(query.below, query.above) * rows - query.nothing
    scores = -np.concatenate([distances, without], axis=1)
    chosen = [exponential_choice(of_cell, query.rate, entropy) for of_cell in scores]
    return np.array(chosen, dtype=np.int64).reshape(query.query.shape)
