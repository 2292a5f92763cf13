"""MWEM's questions as asks of the door: declared one by one, or within one price where rounds adapt."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpduck.arrays import FloatArray, IntegerArray
from dpduck.synthetic.mwem import Pool
from dpduck.synthetic.schedule import Schedule
from dpduck.trusted.ask import Ask, Candidate, Choice, Families, Marginal, Scan, Within
from dpduck.trusted.door import Door
from dpduck.trusted.interrogation import Guess
from dpduck.trusted.noise import Noise, NoiseKind


class Interview:
    """The asks of a schedule over a pool.

    The number of records and the marginals before the rounds are asked once each. Rounds that adapt are a family of
    their own, for what the others leave of the price.
    """

    def __init__(self, pool: Pool, schedule: Schedule, scan: Scan) -> None:
        self._schedule, self._scan = schedule, scan
        self.families = Families(pool.families, pool.whole)
        total = Marginal(self.families, len(pool.families) - 1)
        self.marginals = {total.number: Ask(scan, total, self.noise(schedule.spread(schedule.total_price)))}
        for place in range(schedule.first):
            number = len(pool.workload) + place
            noise = self.noise(schedule.spread(schedule.first_price))
            self.marginals[number] = Ask(scan, Marginal(self.families, number), noise)
        self.rounds: Ask[None] | None = None
        self.choice: Ask[int] | None = None
        self.candidate: Ask[IntegerArray] | None = None
        if schedule.adaptive:
            spent = schedule.total_price + schedule.first_price * schedule.first
            kinds = (Choice, Candidate)
            self.rounds = Ask(scan, Within(schedule.amount - spent, schedule.pure, kinds))
            return
        rate, spread = schedule.of_round(schedule.round_price)
        self.choice, self.candidate = self.round_asks(rate, spread, schedule.rounds)

    @property
    def asks(self) -> Sequence[Ask[Any]]:
        """Everything that is declared."""
        rounds = (self.rounds, self.choice, self.candidate)
        return [*self.marginals.values(), *(ask for ask in rounds if ask is not None)]

    def noise(self, spread: Fraction) -> Noise:
        """Noise of an answer, with the scale or the variance that the schedule says."""
        return Noise(NoiseKind.LAPLACE if self._schedule.pure else NoiseKind.GAUSSIAN, spread)

    def round_asks(self, rate: Fraction, spread: Fraction, times: int) -> tuple[Ask[int], Ask[IntegerArray]]:
        """A choice and the answer of what it chose."""
        choice = Ask(self._scan, Choice(self.families, rate, self._schedule.pure), times=times)
        return choice, Ask(self._scan, Candidate(self.families), self.noise(spread), times)

    def through(self, door: Door) -> Interviewed:
        """Whoever answers the questions by a door."""
        return Interviewed(self, door, self._schedule)


class Interviewed:
    """Answers MWEM's questions by a door (see synthetic.mwem.Interviewer)."""

    def __init__(self, interview: Interview, door: Door, schedule: Schedule) -> None:
        self._interview, self._door, self._schedule = interview, door, schedule

    @property
    def left(self) -> Fraction:
        """What adaptive rounds may still spend; rounds that were declared one by one are counted by MWEM."""
        rounds = self._interview.rounds
        return Fraction(0) if rounds is None else self._door.left(rounds)

    def choose(self, estimates: FloatArray, penalties: FloatArray, allowed: NDArray[np.bool_], rate: Fraction) -> int:
        """A candidate that is answered badly."""
        ask = self._interview.choice
        if ask is None or not isinstance(ask.query, Choice) or ask.query.rate != rate:
            ask = Ask(self._scan, Choice(self._interview.families, rate, self._schedule.pure))
            self._admit(ask)
        return self._door.answer(ask, Guess(estimates, penalties, allowed))

    def answer(self, candidate: int, spread: Fraction) -> IntegerArray:
        """Its noisy answer."""
        ask, noise = self._interview.candidate, self._interview.noise(spread)
        if ask is None or ask.noise != noise:
            ask = Ask(self._scan, Candidate(self._interview.families), noise)
            self._admit(ask)
        return self._door.answer(ask, candidate)

    def marginal(self, family: int, spread: Fraction) -> IntegerArray:
        """A whole noisy marginal."""
        ask, noise = self._interview.marginals[family], self._interview.noise(spread)
        return self._door.answer(ask if ask.noise == noise else Ask(ask.scan, ask.query, noise))

    @property
    def _scan(self) -> Scan:
        return next(iter(self._interview.marginals.values())).scan

    def _admit(self, ask: Ask[Any]) -> None:
        """Declares an ask where rounds adapt; elsewhere the door will refuse it."""
        if self._interview.rounds is not None:
            self._door.admit(ask, self._interview.rounds)
