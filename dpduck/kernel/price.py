"""Answers of a release and their price, declared before any row is read (docs/privacy.md, "What will leave").

An `Ask` is one kind of noisy answer: the rows to count, the query, its noise, and the number of answers. `price` adds
up the costs of asks. Nothing else computes the price of answers that leave. It does not trust the planner. Norms are
those of the operators that are applied, and the delta of published groups is a tail that their query computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Generic, TypeVar

from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.noise.law import Noise
from dpduck.kernel.queries.operators import Norms
from dpduck.values.accounting import rho_of_pure
from dpduck.values.errors import InternalError
from dpduck.values.privacy import ZERO, Charge

Answer = TypeVar("Answer")


class Query(Generic[Answer]):
    """Random function of the exact counts of a scan. Answer: type of the answer that leaves.

    A kind of query is one class in one file of kernel/queries/. No other code lists the kinds. The class's docstring
    states the answer, and proves its sensitivity to one privacy unit. The price follows from the norms of `moves`, or
    else `cost` gives it. A kind that lacks a price, a draw or a certificate is refused when the missing part is needed.
    """

    __slots__ = ()
    has_noise: ClassVar[bool] = True
    """Whether an ask names the noise. Other queries define all of their chance themselves."""
    certified: ClassVar[tuple[str, ...]] = ()
    """Names of the query's attributes that `certificate` shows, if the query has no norms."""

    def moves(self, scan: AskScan) -> Norms | None:
        """Returns the sensitivity of the exact answers: L1, squared L2, largest entry. None: `cost` is the price."""
        return None

    def cost(self, ask: Ask[Answer]) -> Charge:
        """Returns the price of one answer. A query without norms must define this method."""
        raise InternalError("nobody knows the price of this question")

    def require(self, job: CountingJob) -> None:
        """Refuses a job that the price does not fit. The door itself compares the job's bounds with the scan's."""

    def draw(self, counts: Hidden, ask: Ask[Answer], entropy: Entropy, chosen: object) -> Answer:
        """Draws a fresh answer from exact counts of the ask's job, with the noise that was paid for.

        It checks again everything that the price assumes. chosen: public value that is known only now.
        """
        raise InternalError("a query that is not answered")

    def draw_together(self, counts: Hidden, asks: Sequence[Ask[Answer]], entropy: Entropy) -> list[Answer]:
        """Draws the answers to several asks of this kind about one scan, each with its own noise."""
        return [ask.query.draw(counts, ask, entropy, None) for ask in asks]

    def certificate(self) -> Mapping[str, object]:
        """Returns the numbers and noises that give the price. Only a query without norms has them."""
        if not self.certified:
            raise InternalError("nobody can describe this question")
        return {name: getattr(self, name) for name in self.certified}

    def measurements(self) -> Sequence[tuple[Noise, Norms]]:
        """Returns further noises for a certificate, each with the sensitivity of all answers that have this noise."""
        return ()

    def allowance(self) -> Fraction | None:
        """Returns the price that is reserved for asks declared after the charge. None: none is reserved."""
        return None

    def admit(self, member: Ask[Any]) -> Fraction:
        """Returns the price of an ask that is declared after the charge. Refuses an ask of another family."""
        raise InternalError("an ask of no family")

    def is_counted_later(self) -> bool:
        """Tells whether counting waits for an ask that is declared later, with a job of its own."""
        return False


@dataclass(frozen=True, eq=False)
class AskScan:
    """One reading of private rows, and the sensitivity of its counts to one privacy unit.

    The door compares all bounds with the job's own bounds before the charge. l1: bound of a unit's L1 norm over the
    tables, and so of its L2 norm. tables: positions of one aggregate's tables in the job. most: bound of a unit's L1
    norm in one cell of all attributes, over these tables together, by default l1. squared: bound of a unit's squared L2
    norm over these cells, by default l1 * most. attributes: number of attributes of the job, if `most` or `squared` is
    given.
    """

    job: CountingJob = field(repr=False)
    l1: int
    tables: range = range(1)
    most: int | None = None
    squared: int | None = None
    attributes: int = 0

    def __post_init__(self) -> None:
        if not self.tables or self.tables.start < 0 or self.tables.step != 1:
            raise InternalError("a scan of no tables")

    def norms(self, numbers: int = 1) -> Norms:
        if numbers < 1:
            raise InternalError("nobody knows the price of this question")
        return numbers * self.l1, numbers * self.l1 * self.l1, self.l1


@dataclass(frozen=True, eq=False, slots=True)
class Ask(Generic[Answer]):
    """One kind of noisy answer, and the number of times that it may be given.

    Asks are compared by identity: an equal copy is another ask. noise: None if the query defines all noise itself.
    """

    scan: AskScan
    query: Query[Answer]
    noise: Noise | None = None
    times: int = 1

    def __post_init__(self) -> None:
        if self.times < 1 or self.scan.l1 < 1:
            raise InternalError("an ask that is never answered, or of no privacy unit")
        if (self.noise is not None) != self.query.has_noise:
            raise InternalError("an ask without its noise")

    @property
    def cost(self) -> Charge:
        return price([self])

    @property
    def moves(self) -> Norms | None:
        """Returns the sensitivity of one exact answer to one unit. None: norms are not the whole price."""
        return self.query.moves(self.scan)

    @property
    def law(self) -> Noise:
        """Returns the noise. Refuses a query without noise."""
        if self.noise is None:
            raise InternalError("an ask without its noise")
        return self.noise


def price(asks: Iterable[Ask[Any]]) -> Charge:
    """Returns the price of all asks, never below their true price. Norms of asks with one noise are added up first."""
    charges, moved = list[Charge](), list[tuple[Noise, Norms]]()
    for ask in asks:
        norms, times = ask.moves, ask.times
        if ask.noise is None or norms is None:
            charges.append(_multiply_charge(ask.query.cost(ask), times))
        else:
            if min(norms) < 0:
                raise InternalError("answers that a unit moves by less than nothing")
            moved.append((ask.noise, (norms[0] * times, norms[1] * times, norms[2])))
    charges += [noise.cost(*norms) for noise, norms in by_noise(moved)]
    if not charges:
        raise InternalError("a release that asks nothing")
    if any(min(charge.epsilon or ZERO, charge.rho, charge.delta) < 0 for charge in charges):
        raise InternalError("an answer that costs less than nothing")
    return together(charges)


def by_noise(moved: Iterable[tuple[Noise, Norms]]) -> list[tuple[Noise, Norms]]:
    """Adds up the norms of all answers that have the same noise. Of the third norm, it takes the largest."""
    norms: dict[int, tuple[Noise, Norms]] = {}
    for noise, (l1, l2_squared, most) in moved:
        _, sums = norms.get(id(noise), (noise, (0, 0, 0)))
        norms[id(noise)] = noise, (sums[0] + l1, sums[1] + l2_squared, max(sums[2], most))
    return list(norms.values())


def together(charges: Sequence[Charge], delta: Fraction = ZERO) -> Charge:
    """Adds up charges, with one delta for all. If all have an epsilon, rho is at most what their sum implies."""
    rho = sum((charge.rho for charge in charges), ZERO)
    delta = sum((charge.delta for charge in charges), delta)
    if any(charge.epsilon is None for charge in charges):
        return Charge.zcdp(rho, delta)
    epsilon = sum((charge.epsilon or ZERO for charge in charges), ZERO)
    return Charge(epsilon, min(rho, rho_of_pure(epsilon)), delta)


def pure(epsilon: Fraction) -> Charge:
    """Returns the price of a mechanism with pure differential privacy, from its epsilon alone."""
    return Charge(epsilon, rho_of_pure(epsilon))


def _multiply_charge(charge: Charge, times: int) -> Charge:
    epsilon = None if charge.epsilon is None else charge.epsilon * times
    return Charge(epsilon, charge.rho * times, charge.delta * times)
