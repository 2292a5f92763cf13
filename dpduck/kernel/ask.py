"""States what will leave before anything is looked at, and what that costs (docs/privacy.md, "What will leave").

An `Ask` is one kind of noisy answer: which rows are counted, the query, its noise, and how often it may be answered.
`Ask.cost` is the only place where a price of what leaves is computed. It does not believe the planner: norms of
operators come from what is applied, and the delta of published groups from a tail computed here. Everything is public.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.dyadic import Axis, node_sensitivity
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.kernel.queries.key_delta import GroupBounds, PublishedKeys, key_delta
from dpduck.kernel.queries.operators import Family, IdentityFactor, KroneckerQuery, Norms
from dpduck.kernel.queries.sketches import SketchHashes
from dpduck.kernel.queries.summaries import NoisySummary
from dpduck.values.accounting import rho_of_pure
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.privacy import ZERO, Charge

Answer = TypeVar("Answer")

UNITS = 1024
"""Weights of a session's questions are multiples of 1/UNITS, so that all that is compared is whole."""
WEIGHT = 256
"""Weights of candidates are from 1/WEIGHT to 1, in units of it."""
LARGEST_SIDE, LARGEST_LEAD = 10**4, 1 << 60
"""Of a quantile: distances of as many as 2^40 rows then fit 64 bits."""


@dataclass(frozen=True, eq=False)
class Scan:
    """One reading of private rows, and how far one privacy unit moves its counts.

    job: what is counted, for the function that counts it. l1: of what a unit adds to the tables; by the L2 norm it is
    never more. The door compares all bounds with the job's own before the charge.
    tables: the tables of one aggregate among those of the job, which share these bounds.
    most: a unit's L1 norm in one cell of all attributes, all these tables together, l1 if None.
    squared: a unit's squared L2 norm over these cells, l1 * most if None.
    attributes: how many the job has, where `most` is given.
    """

    job: object = field(repr=False)
    l1: int
    tables: range = range(1)
    most: int | None = None
    squared: int | None = None
    attributes: int = 0

    @property
    def cell_bound(self) -> int:
        """Returns the most that a unit adds to one cell of all attributes."""
        return self.l1 if self.most is None else self.most


class Query(Generic[Answer]):
    """What is asked of the counts of a scan; the type of what leaves. Each kind of query is below, and no other."""

    __slots__ = ()


@dataclass(frozen=True, eq=False, slots=True)
class Table(Query[tuple[IntegerArray, ...]]):
    """An integer operator on every table of the scan. Answer: an array for each of them, shape query.shape.

    A unit adds l1 in all, so the answers move by l1 times the largest norm of a column of the operator: tables of one
    aggregate cost as much as one. Answers that are of one cell each move by less in the L2 norm. With at most l1 in all
    and at most `most` in one cell, squares add up to l1 * most, times two norms of the operator. They add up to
    `squared` times its squared column norm, too. That holds of no other operator, not even of margins: a unit that is
    once in each of m cells moves their total by m.
    """

    query: KroneckerQuery


@dataclass(frozen=True, eq=False)
class Present(Query[IntegerArray]):
    """How many values of the scan's last attribute each cell holds. values: how many that attribute has.

    A row makes or unmakes one presence, so that m rows change m at most. A cell's answer is one of 0 .. values with and
    without a unit, so that the answers of all cells together move by no more than values times cells. Squares
    of the moves add up to no more than their sum times the largest.
    """

    query: KroneckerQuery
    values: int

    def bound(self, rows: int) -> int:
        """Returns the L1 sensitivity of all answers to a unit of so many rows."""
        return min(rows, self.values * prod(self.query.shape))

    def cell_bound(self, rows: int) -> int:
        """Returns the most that one cell's answer moves."""
        return min(self.values, self.bound(rows))


@dataclass(frozen=True, eq=False)
class Total(Query[int]):
    """The number of rows."""


@dataclass(frozen=True, eq=False)
class Layers(Query[NoisySummary]):
    """The noisy summary of the cells, or of the nodes that take their place, each of which gets the same noise.

    Its layers may be chosen after the charge: whatever they are, they are a function of one noisy table and of chance.
    axes: for each attribute the nodes that take its place, None for none; a row is in `nodes` of them.
    """

    axes: tuple[Axis | None, ...]
    radix: MixedRadix = field(repr=False)

    @property
    def nodes(self) -> int:
        """Tells how many nodes one row adds 1 or -1 to."""
        return node_sensitivity(self.axes)


@dataclass(frozen=True, eq=False)
class Sketch(Query[tuple[SketchHashes, IntegerArray]]):
    """Signed buckets of a count sketch, with its fresh hashes. A row changes one bucket of each sketch row by 1.

    numbers: of each attribute's labels, all different.
    """

    rows: int
    width: int
    numbers: tuple[IntegerArray, ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Projection(Query[tuple[NDArray[np.uint64], IntegerArray]]):
    """Sums of the rows' signs, with their fresh hashes. A row moves each of `rows` sums by 1.

    words, independence: shape of the coefficients.
    """

    rows: int
    words: int
    independence: int


@dataclass(frozen=True, eq=False)
class EveryKey(Query[bytes]):
    """A noisy count of every key of an unbounded universe, as a secret state. All rows of a unit may have one key."""


@dataclass(frozen=True, eq=False)
class Beside:
    """An aggregate of published groups: its noise, and how far one unit moves its table by group."""

    noise: Noise
    norms: Norms


@dataclass(frozen=True, eq=False)
class Threshold(Query[PublishedKeys]):
    """Groups of at least `least` units whose noisy count is above least - 1 + k + excess, and their answers.

    The ask's noise is that of the selecting count. bounds: of the scan. answers: noise of the other answers.
    aggregates: how many there are; reused: those that the selecting count answers. other: whether what was suppressed
    is counted, for each aggregate. beside: one for each aggregate, where any is no count. It is empty for counts of
    rows, which have the noise `answers`.
    """

    bounds: GroupBounds
    least: int
    excess: int
    answers: Noise
    aggregates: int
    reused: tuple[int, ...]
    other: bool
    beside: tuple[Beside, ...] = ()

    def __post_init__(self) -> None:
        if self.beside and len(self.beside) != self.aggregates:
            raise InternalError("aggregates without their noise")

    def of_aggregate(self, number: int) -> Beside:
        """Returns the noise and the norms of one aggregate of the job."""
        rows = self.bounds.rows
        return self.beside[number] if self.beside else Beside(self.answers, (rows, rows * rows, rows))

    @property
    def paid(self) -> tuple[int, ...]:
        """Returns the aggregates that are answered beside the selecting count."""
        return tuple(number for number in range(self.aggregates) if self.other or number not in self.reused)

    @property
    def above(self) -> int:
        """Published is what has a noisy count above it."""
        return self.least - 1 + self.bounds.per_group + self.excess

    @property
    def answered(self) -> int:
        """Returns how many counts are answered beside the selecting one: published groups and others split the rows."""
        return len(self.paid)


@dataclass(frozen=True, eq=False)
class Families:
    """Queries with coefficients 0, 1 and -1, among which questions are chosen.

    whole: the candidates are the families, all of them marginals; else every single query. weights: of the candidates
    in a choice, none for 1 each; they are public, and none is above 1, so that they move no score further.
    """

    families: tuple[Family, ...]
    whole: bool
    weights: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.whole and not all(family.is_marginal for family in self.families):
            raise InternalError("only a marginal is answered as a whole")
        if self.weights and (not self.whole or len(self.weights) != len(self.families)):
            raise InternalError("weights of other candidates")
        if not all(1 <= weight <= WEIGHT for weight in self.weights):
            raise InternalError("a candidate's weight is beyond what its choice is priced for")


@dataclass(frozen=True, eq=False)
class Choice(Query[int]):
    """The number of a candidate that is answered badly, with chances as exp(rate * weight * distance).

    The distance of an answer from its estimate moves by at most l1, and no weight is above 1. pure: permute and flip;
    else the exponential mechanism, whose loss lies in a range of its epsilon: an eighth of its square in rho.
    """

    families: Families
    rate: Fraction
    pure: bool


@dataclass(frozen=True, eq=False)
class Quantiles(Query[IntegerArray]):
    """For each cell the number of a bucket that holds a quantile or nearly, or `buckets` where rows are too few.

    The scan's last attribute are the buckets. A bucket's distance is the larger of below * (rows before it) - above *
    (the others) + shift and above * (rows after it) - below * (the others) - shift, at least 0: below and above are
    whole, as 1 - q to q. The chance of a bucket is as exp(-rate * distance), of no answer as if its distance were
    max(below, above) * (rows of the cell) - nothing. A row moves each by max(below, above) at most, in one cell.
    """

    query: KroneckerQuery
    buckets: int
    below: int
    above: int
    rate: Fraction
    nothing: int
    shift: int = 0

    def __post_init__(self) -> None:
        if min(self.below, self.above, self.buckets) < 1 or max(self.below, self.above) > LARGEST_SIDE:
            raise InternalError("a quantile between no rows")
        if not 0 <= self.nothing < LARGEST_LEAD or abs(self.shift) >= LARGEST_LEAD:
            raise Refusal("at this price a quantile would be chance alone", accepted="a larger epsilon or rho")


@dataclass(frozen=True, eq=False)
class Candidate(Query[IntegerArray]):
    """The answer of a candidate that is named when it is asked: one number, or every cell of a marginal."""

    families: Families


@dataclass(frozen=True, eq=False)
class Marginal(Query[IntegerArray]):
    """A whole marginal among the families."""

    families: Families
    number: int

    def __post_init__(self) -> None:
        if not self.families.families[self.number].is_marginal:
            raise InternalError("only a marginal is answered as a whole")


@dataclass(frozen=True, eq=False)
class SparseVector(Query[bytes]):
    """A round of a session: questions are compared with a noisy threshold until one fires, which is measured.

    The ask's noise is that of the thresholds, its times are the rounds. question, measured: noise of the questions
    and of what fires, in units of 1/UNITS. Answer: the noise of all thresholds, for the secrets file alone.
    """

    question: Noise
    measured: Noise


@dataclass(frozen=True, eq=False)
class Within(Query[None]):
    """A family of asks of which some are declared later, by what was answered meanwhile, for `limit` in all.

    kinds: of the queries that may be declared. weighed: whether they are of the family's job with norms and centres,
    which were not known before. Nothing is counted until these are known.
    """

    limit: Fraction
    pure: bool
    kinds: tuple[type[Query[Any]], ...]
    weighed: bool = False


WITHOUT_NOISE = (Choice, Quantiles, Within)  # they say all of their chance themselves


@dataclass(frozen=True, eq=False, slots=True)
class Ask(Generic[Answer]):
    """One kind of noisy answer and how often it may be given. An ask is itself: one that looks the same is another.

    noise: None where the query says all of it.
    """

    scan: Scan
    query: Query[Answer]
    noise: Noise | None = None
    times: int = 1

    def __post_init__(self) -> None:
        if self.times < 1 or self.scan.l1 < 1:
            raise InternalError("an ask that is never answered, or of no privacy unit")
        if (self.noise is None) != isinstance(self.query, WITHOUT_NOISE):
            raise InternalError("an ask without its noise")

    @property
    def cost(self) -> Charge:
        """Returns the price of all its answers."""
        return price([self])


def price(asks: Iterable[Ask[Any]]) -> Charge:
    """Returns the price of everything that is asked, never below the true one: epsilons add up, else rhos, and deltas.

    Asks that share a noise are added up as norms first: their number may be great.
    """
    norms: dict[int, tuple[Noise, int, int, int]] = {}
    charges: list[Charge] = []
    for ask in asks:
        moved = norms_of(ask)
        if ask.noise is None or moved is None:
            charges.append(_repeated(_own_cost(ask), ask.times))
            continue
        _, l1, l2_squared, most = norms.get(id(ask.noise), (ask.noise, 0, 0, 0))
        l1, l2_squared = l1 + moved[0] * ask.times, l2_squared + moved[1] * ask.times
        norms[id(ask.noise)] = ask.noise, l1, l2_squared, max(most, moved[2])
    charges += [noise.cost(l1, l2_squared, most) for noise, l1, l2_squared, most in norms.values()]
    if not charges:
        raise InternalError("a release that asks nothing")
    delta = sum((charge.delta for charge in charges), ZERO)
    return _together(charges, delta)


def _together(charges: Iterable[Charge], delta: Fraction) -> Charge:
    """Prices several answers as one: rhos add up, and where all are pure they cost no more than their epsilon."""
    listed = list(charges)
    rho = sum((charge.rho for charge in listed), ZERO)
    if any(charge.epsilon is None for charge in listed):
        return Charge.concentrated(rho, delta)
    epsilon = sum((charge.epsilon or ZERO for charge in listed), ZERO)
    return Charge(epsilon, min(rho, rho_of_pure(epsilon)), delta)


def _pure(epsilon: Fraction) -> Charge:
    """Returns the price of a mechanism of which nothing is known but its epsilon."""
    return Charge(epsilon, rho_of_pure(epsilon))


def norms_of(ask: Ask[Any]) -> Norms | None:
    """Returns how far one unit moves the exact answers (L1, squared L2, any one number), if that is the whole price."""
    query, l1 = ask.query, ask.scan.l1
    if isinstance(query, Table):
        first, second, largest = query.query.norms
        moved, squared, most = l1 * first, l1 * l1 * second, l1 * largest
        if query.query.asks_single_cells(ask.scan.attributes):
            most = min(most, ask.scan.cell_bound * largest)
            squared = min(squared, moved * most)
            if ask.scan.squared is not None:
                squared = min(squared, ask.scan.squared * second)
        return moved, squared, most
    if isinstance(query, Present):
        if not all(isinstance(factor, IdentityFactor) for factor in query.query.factors):
            raise InternalError("distinct values add up to no other query")
        moved, most = query.bound(l1), query.cell_bound(l1)
        return moved, moved * most, most
    if isinstance(query, Sketch | Projection) and query.rows > 0:
        return query.rows * l1, query.rows * l1 * l1, l1
    if isinstance(query, Layers):
        return query.nodes * l1, query.nodes * l1 * l1, l1
    if isinstance(query, Total | EveryKey | Candidate | Marginal):
        return l1, l1 * l1, l1
    return None


def _own_cost(ask: Ask[Any]) -> Charge:
    """Returns the price of one answer of the other queries."""
    query, noise = ask.query, ask.noise
    if isinstance(query, Within):
        return _pure(query.limit) if query.pure else Charge.concentrated(query.limit)
    if isinstance(query, Choice):
        loss = 2 * query.rate * ask.scan.l1
        if loss <= 0:
            raise InternalError("a choice without chance")
        return _pure(loss) if query.pure else Charge.concentrated(loss * loss / 8)
    if isinstance(query, Quantiles):
        loss = 2 * query.rate * max(query.below, query.above) * ask.scan.l1
        if query.rate <= 0 or not all(isinstance(factor, IdentityFactor) for factor in query.query.factors):
            raise InternalError("a choice without chance, or of cells that share rows")
        return Charge(loss, min(loss * loss / 8, rho_of_pure(loss)))
    if isinstance(query, SparseVector) and noise is not None:
        return _gate_cost(query, noise, ask.scan.l1 * UNITS)
    if isinstance(query, Threshold) and noise is not None:
        return _threshold_cost(query, noise)
    raise InternalError("nobody knows the price of this question")


def _gate_cost(gate: SparseVector, thresholds: Noise, step: int) -> Charge:
    """Prices one round: both scales' parts of epsilon, as one pure mechanism, and the measurement."""
    if {thresholds.kind, gate.question.kind} != {NoiseKind.LAPLACE}:
        raise InternalError("the comparisons of a session have one-sided geometric noise")
    compared = step / thresholds.parameter + step / gate.question.parameter
    measured = gate.measured.cost(step, step * step)
    if measured.epsilon is not None:
        return _pure(compared + measured.epsilon)
    return Charge.concentrated(compared * compared / 2 + measured.rho)


def _threshold_cost(query: Threshold, noise: Noise) -> Charge:
    """Prices the selecting count and the answers by their norms, and the delta of groups of one unit (key_delta)."""
    bounds = query.bounds
    if any(law.kind is not noise.kind for law in (query.answers, *(one.noise for one in query.beside))):
        raise InternalError("a release has either Laplace or Gaussian noise")
    costs = [noise.cost(bounds.l1, bounds.l2_squared, bounds.per_group)]
    costs += [law.cost(*norms) for law, norms in moved_beside(query)]
    return _together(costs, key_delta(noise, query.excess, bounds.groups))


def moved_beside(query: Threshold) -> list[tuple[Noise, Norms]]:
    """Returns each noise of the answers beside the selecting count, and how far a unit moves all that have it."""
    norms: dict[int, tuple[Noise, Norms]] = {}
    for one in map(query.of_aggregate, query.paid):
        l1, l2_squared, most = one.norms
        law, known = norms.get(id(one.noise), (one.noise, (0, 0, 0)))
        norms[id(one.noise)] = law, (known[0] + l1, known[1] + l2_squared, max(known[2], most))
    return list(norms.values())


def _repeated(charge: Charge, times: int) -> Charge:
    epsilon = None if charge.epsilon is None else charge.epsilon * times
    return Charge(epsilon, charge.rho * times, charge.delta * times)
