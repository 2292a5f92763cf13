"""States what will leave before anything is looked at, and what that costs (docs/privacy.md, "What will leave").

An `Ask` is one kind of noisy answer: which rows are counted, the query, its noise, and how often it may be answered.
Each kind of query is one class of kernel/queries/, which keeps the contract of `Query`. `price` adds up what asks
cost, and is the only place where a price of what leaves is computed. It does not believe the planner: norms of
operators come from what is applied, and the delta of published groups from a tail computed there. Everything is public.
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
    """A function of the exact counts of a scan, and of chance. Answer: the type of what leaves.

    A kind of query is one class in one file of kernel/queries/. No other code knows which kinds there are. The
    docstring of the class says what is answered, and proves how far one privacy unit moves it. The methods are the
    price (`moves`, or `cost` where norms are not all of it), what the price says of a job (`require`), the draw, and
    the line of a certificate. What a kind does not define is refused.
    """

    __slots__ = ()
    has_noise: ClassVar[bool] = True
    """Whether an ask names the noise. Other queries say all of their chance themselves."""
    certified: ClassVar[tuple[str, ...]] = ()
    """The attributes that are in the line of a certificate, for a query without norms."""

    def moves(self, scan: Scan) -> Norms | None:
        """Returns how far one unit moves the exact answers (L1, squared L2, any one number), if that is all of the
        price.
        """
        return None

    def cost(self, ask: Ask[Answer]) -> Charge:
        """Returns the price of one answer, for a query without norms."""
        raise InternalError("nobody knows the price of this question")

    def require(self, job: CountingJob) -> None:
        """Refuses a job that is counted otherwise than the price says, beside the bounds of the scan."""

    def draw(self, counts: Hidden, ask: Ask[Answer], entropy: Entropy, chosen: object) -> Answer:
        """Returns a fresh answer from exact counts of the ask's job, with the noise that was paid for.

        It looks at all that the price rests on again. chosen: what is public, and known only now.
        """
        raise InternalError("a query that is not answered")

    def draw_together(self, counts: Hidden, asks: Sequence[Ask[Answer]], entropy: Entropy) -> list[Answer]:
        """Returns the answers of several asks of this kind about one scan, with noise of their own."""
        return [ask.query.draw(counts, ask, entropy, None) for ask in asks]

    def certificate(self) -> Mapping[str, object]:
        """Returns the numbers and noises that its price is computed from, for a query without norms."""
        if not self.certified:
            raise InternalError("nobody can describe this question")
        return {name: getattr(self, name) for name in self.certified}

    def measurements(self) -> Sequence[tuple[Noise, Norms]]:
        """Returns further noises that a certificate lists, each with how far one unit moves all that have it."""
        return ()

    def allowance(self) -> Fraction | None:
        """Returns the price of the asks that may be declared later in place of this one; None for no such ask."""
        return None

    def admit(self, member: Ask[Any]) -> Fraction:
        """Returns the price of an ask that is declared later; refuses one that is not of this family."""
        raise InternalError("an ask of no family")

    def is_counted_later(self) -> bool:
        """Tells whether nothing is counted until an ask is declared later, about a job of its own."""
        return False


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
        """Returns how far a unit moves so many numbers, each of them by l1 at most."""
        if numbers < 1:
            raise InternalError("nobody knows the price of this question")
        return numbers * self.l1, numbers * self.l1 * self.l1, self.l1


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
        if (self.noise is not None) != self.query.has_noise:
            raise InternalError("an ask without its noise")

    @property
    def cost(self) -> Charge:
        """Returns the price of all its answers."""
        return price([self])

    @property
    def moves(self) -> Norms | None:
        """Returns how far one unit moves one exact answer, if that is all of the price."""
        return self.query.moves(self.scan)

    @property
    def law(self) -> Noise:
        """Returns the noise of a query that has one."""
        if self.noise is None:
            raise InternalError("an ask without its noise")
        return self.noise


def price(asks: Iterable[Ask[Any]]) -> Charge:
    """Returns the price of everything that is asked, never below the true one: epsilons add up, else rhos, and deltas.

    Asks that share a noise are added up as norms first: their number may be great.
    """
    charges, moved = list[Charge](), list[tuple[Noise, Norms]]()
    for ask in asks:
        norms, times = ask.moves, ask.times
        if ask.noise is None or norms is None:
            charges.append(_repeated(ask.query.cost(ask), times))
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
    """Adds up how far a unit moves all answers that have one and the same noise."""
    norms: dict[int, tuple[Noise, Norms]] = {}
    for noise, (l1, l2_squared, most) in moved:
        _, known = norms.get(id(noise), (noise, (0, 0, 0)))
        norms[id(noise)] = noise, (known[0] + l1, known[1] + l2_squared, max(known[2], most))
    return list(norms.values())


def together(charges: Sequence[Charge], delta: Fraction = ZERO) -> Charge:
    """Prices several answers as one: rhos add up, and where all are pure they cost no more than their epsilon.

    delta: of all of them, beside their own.
    """
    rho = sum((charge.rho for charge in charges), ZERO)
    delta = sum((charge.delta for charge in charges), delta)
    if any(charge.epsilon is None for charge in charges):
        return Charge.concentrated(rho, delta)
    epsilon = sum((charge.epsilon or ZERO for charge in charges), ZERO)
    return Charge(epsilon, min(rho, rho_of_pure(epsilon)), delta)


def pure(epsilon: Fraction) -> Charge:
    """Returns the price of a mechanism of which nothing is known but its epsilon."""
    return Charge(epsilon, rho_of_pure(epsilon))


def _repeated(charge: Charge, times: int) -> Charge:
    epsilon = None if charge.epsilon is None else charge.epsilon * times
    return Charge(epsilon, charge.rho * times, charge.delta * times)
