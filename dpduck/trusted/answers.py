"""Turns exact counts into what leaves: one branch for each kind of query. Called by the door alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpduck.arrays import IntegerArray
from dpduck.errors import InternalError
from dpduck.trusted.ask import (
    Ask,
    Candidate,
    Choice,
    EveryKey,
    Families,
    Gate,
    Layers,
    Marginal,
    Present,
    Projection,
    Sketch,
    Table,
    Threshold,
    Total,
)
from dpduck.trusted.count_sketch import draw_hashes, draw_sketch
from dpduck.trusted.distinct import measure_distinct
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.exact_counts import ExactCounts, Hidden
from dpduck.trusted.interrogation import Guess, Interrogation
from dpduck.trusted.key_counts import KeyCounts
from dpduck.trusted.lazy_histogram import open_histogram
from dpduck.trusted.measure import measure, noisy_total
from dpduck.trusted.noise import Noise, NoiseKind
from dpduck.trusted.projection import draw_coefficients, measure_projection
from dpduck.trusted.publish_keys import KeyStream, publish_keys
from dpduck.trusted.range_nodes import sparse_counts
from dpduck.trusted.session_gate import draw_thresholds
from dpduck.trusted.summary_sampler import NoisySummary, SummaryPlan, draw_summary

Counts = ExactCounts | KeyCounts | KeyStream


class Exact(Hidden):
    """The counts of one scan and what was derived from them; hidden."""

    __slots__ = ("_counts", "_entropy", "_questions")

    def __init__(self, counts: Counts, entropy: Entropy) -> None:
        self._counts, self._entropy = counts, entropy
        self._questions: dict[int, tuple[Families, Interrogation]] = {}

    def tables(self, asks: Sequence[Ask[Any]]) -> list[tuple[IntegerArray, ...]]:
        """The answers of asks for tables of one scan: for each ask, an array for each table."""
        counts, scan = self._counts, asks[0].scan
        queries = [
            (ask.query.query, ask.noise) for ask in asks if isinstance(ask.query, Table) and ask.noise is not None
        ]
        if not isinstance(counts, ExactCounts) or len(queries) < len(asks):
            raise InternalError("a query of other counts")
        by_table = [measure(counts, queries, table, scan.l1, self._entropy) for table in scan.tables]
        return [tuple(noisy[place] for noisy in by_table) for place in range(len(asks))]

    def answer(self, ask: Ask[Any], chosen: object) -> object:
        """One answer. chosen: a SummaryPlan for Layers, a Guess for Choice, a number for Candidate, else None."""
        query, counts = ask.query, self._counts
        if isinstance(query, Table):
            return self.tables([ask])[0]
        if isinstance(counts, ExactCounts) and counts._unit_bounds[0] != ask.scan.l1:
            raise InternalError("the asks and the counts disagree about the contribution bound")
        if isinstance(query, Choice):
            return self._asked(query.families, ask).choose(query, _guess(chosen), self._entropy)
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

    def _asked(self, families: Families, ask: Ask[Any]) -> Interrogation:
        if id(families) not in self._questions:
            if not isinstance(self._counts, ExactCounts):
                raise InternalError("a query of other counts")
            self._questions[id(families)] = families, Interrogation(self._counts, families, ask.scan.l1)
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
    """Layers chosen after the charge are free as long as they are of the noise that was paid for."""
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
    if isinstance(query, Gate):
        return draw_thresholds(noise.parameter, ask.times, entropy)
    raise InternalError("a query of other counts")


def _guess(chosen: object) -> Guess:
    if not isinstance(chosen, Guess):
        raise InternalError("a choice without estimates")
    return chosen
