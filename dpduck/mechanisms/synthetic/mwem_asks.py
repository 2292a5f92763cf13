"""MWEM's questions as asks of the door: declared one by one, or within one price if rounds adapt."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.door import Door
from dpduck.kernel.ledger.secrets import no_step
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.families import Candidate, Choice, Families, Guess, Marginal
from dpduck.kernel.queries.later import Within
from dpduck.kernel.queries.operators import Family
from dpduck.mechanisms.release import Steps
from dpduck.mechanisms.synthetic.plan import Fit
from dpduck.mechanisms.synthetic.pool import Pool
from dpduck.mechanisms.synthetic.schedule import Schedule
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import InternalError


class MwemAsks:
    """Noisy queries (asks) of MWEM about a pool of candidates, at the prices of a schedule.

    Adaptive rounds share one ask, which has the rest of the price (Within). by_total: whether the marginals before the
    rounds share that ask, too.
    """

    def __init__(self, pool: Pool, schedule: Schedule, scan: AskScan, by_total: bool = False) -> None:
        self._schedule, self._scan = schedule, scan
        self.families = Families(pool.families, pool.whole, pool.all_weights)
        if by_total:
            self.families = Families((Family((), ()),), whole=True)
        total = Marginal(self.families, len(self.families.families) - 1)
        self.total = Ask(scan, total, self.noise(schedule.parameter(schedule.total_price)))
        self.marginals: dict[int, Ask[IntegerArray]] = {}
        for place in range(0 if by_total else schedule.first):
            number = len(pool.workload) + place
            noise = self.noise(schedule.parameter(schedule.first_price))
            self.marginals[number] = Ask(scan, Marginal(self.families, number), noise)
        self.rounds: Ask[None] | None = None
        self.choice: Ask[int] | None = None
        self.candidate: Ask[IntegerArray] | None = None
        if schedule.adaptive or by_total:
            spent = schedule.total_price + (0 if by_total else schedule.first_price * schedule.first)
            kinds = (Choice, Candidate)
            self.rounds = Ask(scan, Within(schedule.amount - spent, schedule.pure, kinds))
            return
        if schedule.rounds:
            rate, parameter = schedule.of_round(schedule.round_price)
            self.choice, self.candidate = self.round_asks(rate, parameter, schedule.rounds)

    @property
    def asks(self) -> Sequence[Ask[Any]]:
        rounds = (self.rounds, self.choice, self.candidate)
        return [self.total, *self.marginals.values(), *(ask for ask in rounds if ask is not None)]

    def noise(self, parameter: Fraction) -> Noise:
        return Noise(NoiseKind.LAPLACE if self._schedule.pure else NoiseKind.GAUSSIAN, parameter)

    def round_asks(self, rate: Fraction, parameter: Fraction, times: int) -> tuple[Ask[int], Ask[IntegerArray]]:
        choice = Ask(self._scan, Choice(self.families, rate, self._schedule.pure), times=times)
        return choice, Ask(self._scan, Candidate(self.families), self.noise(parameter), times)

    def through(self, door: Door, steps: Steps = no_step) -> DoorOracle:
        return DoorOracle(self, door, self._schedule.pure, self.families, steps)


class DoorOracle:
    """Oracle that answers MWEM's questions through a door (see synthetic.mwem.NoisyOracle)."""

    def __init__(self, mwem_asks: MwemAsks, door: Door, pure: bool, families: Families, steps: Steps) -> None:
        self._asks, self._door, self._pure, self._families, self._steps = mwem_asks, door, pure, families, steps
        self._total: int | None = None

    @property
    def left(self) -> Fraction:
        """Returns the price that adaptive rounds may still spend, 0 if the rounds do not adapt."""
        rounds = self._asks.rounds
        return Fraction(0) if rounds is None else self._door.left(rounds)

    def total(self, parameter: Fraction) -> int:
        if self._total is None:
            self._total = int(self._door.answer(self._like(self._asks.total, parameter))[0])
        return self._total

    def replan(self, fit: Fit) -> DoorOracle:
        """Returns an oracle for the questions of another plan at the same price. It reuses the noisy total."""
        if fit.pool is None or self._asks.rounds is None:
            raise InternalError("a plan that no family of asks pays for")
        families = Families(fit.pool.families, fit.pool.whole, fit.pool.all_weights)
        oracle = DoorOracle(self._asks, self._door, self._pure, families, self._steps)
        oracle._total = self._total
        return oracle

    def choose(self, estimates: FloatArray, penalties: FloatArray, allowed: NDArray[np.bool_], rate: Fraction) -> int:
        """Draws an allowed candidate. Its chance grows with the distance of its estimate from the true answer."""
        self._steps("a round")
        ask = self._asks.choice
        if ask is None or not isinstance(ask.query, Choice) or ask.query.rate != rate:
            ask = Ask(self._asks.total.scan, Choice(self._families, rate, self._pure))
            self._admit(ask)
        return self._door.answer(ask, Guess(estimates, penalties, allowed))

    def answer(self, candidate: int, parameter: Fraction) -> IntegerArray:
        ask, noise = self._asks.candidate, self._asks.noise(parameter)
        if ask is None or ask.noise != noise:
            ask = Ask(self._asks.total.scan, Candidate(self._families), noise)
            self._admit(ask)
        return self._door.answer(ask, candidate)

    def marginal(self, family: int, parameter: Fraction) -> IntegerArray:
        if family == len(self._families.families) - 1:
            return np.array([self.total(parameter)], np.int64)
        ask = self._asks.marginals.get(family)
        return self.answer(family, parameter) if ask is None else self._door.answer(self._like(ask, parameter))

    def _like(self, ask: Ask[IntegerArray], parameter: Fraction) -> Ask[IntegerArray]:
        """Returns the declared ask. If the noise differs, returns an ask with that noise, which the door refuses."""
        noise = self._asks.noise(parameter)
        return ask if ask.noise == noise else Ask(ask.scan, ask.query, noise)

    def _admit(self, ask: Ask[Any]) -> None:
        """Declares an ask if rounds adapt. If they do not, the door will refuse it."""
        if self._asks.rounds is not None:
            self._door.admit(ask, self._asks.rounds)
