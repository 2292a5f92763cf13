"""Adaptive questions about exact counts: choose the worst answered candidate, answer it with noise, within a price.

Every question is paid before it is answered, from a limit that the ledger has been charged for; a question beyond the
limit is an error. Sensitivities, with m the most rows of one privacy unit (add or remove all of them):

* the answer of one query moves by at most m, since its coefficients are 0, 1 or -1;
* a marginal as a whole moves by at most m in L1 and in L2 (all rows may fall into one cell);
* |answer - estimate| and the L1 distance of a marginal from its estimate move by at most m for the same reason. They
  are taken against estimates on the grid of multiples of 1/GRID, so that scores are integers and this is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dpduck.errors import InternalError
from dpduck.trusted.discrete_gaussian import discrete_gaussian
from dpduck.trusted.discrete_laplace import discrete_laplace
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.exact_choice import exponential_choice, permute_and_flip
from dpduck.trusted.exact_counts import ExactCounts
from dpduck.trusted.measure import exact_marginals
from dpduck.workload.families import Family

FloatArray = NDArray[np.float64]
IntegerArray = NDArray[np.int64]

GRID = 256
LARGEST_ESTIMATE = float(1 << 42)


class Interrogation:
    """A meter between exact answers and whoever asks. Under a pure budget amounts are epsilons, else rhos.

    whole: candidates are the families themselves, all of them marginals; else every single query.
    """

    __slots__ = ("_bound", "_entropy", "_exact", "_families", "_limit", "_pure", "_spent", "_starts", "_whole")

    def __init__(
        self,
        counts: ExactCounts,
        families: Sequence[Family],
        *,
        whole: bool,
        pure: bool,
        limit: Fraction,
        unit_bound: int,
        entropy: Entropy,
    ) -> None:
        if counts._unit_bounds[0] > unit_bound or (whole and not all(family.is_marginal for family in families)):
            raise InternalError("the questions and the counts disagree about the contribution bound or the candidates")
        marginals = exact_marginals(counts, 0, {family.attributes for family in families})
        answers = [family.answers(marginals[family.attributes]) for family in families]
        self._exact = np.concatenate(answers)
        self._starts = np.cumsum([0, *(len(answer) for answer in answers)])
        self._families = tuple(families)
        self._whole, self._pure, self._bound = whole, pure, unit_bound
        self._limit, self._spent = limit, Fraction(0)
        self._entropy = entropy

    def __repr__(self) -> str:
        return "Interrogation(hidden)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise InternalError("exact answers cannot be copied or written")

    def __getstate__(self) -> NoReturn:
        raise InternalError("exact answers cannot be copied or written")

    @property
    def left(self) -> Fraction:
        """What may still be spent: a function of what was asked, not of the answers."""
        return self._limit - self._spent

    def choose(self, estimates: FloatArray, penalties: FloatArray, allowed: NDArray[np.bool_], rate: Fraction) -> int:
        """A candidate whose distance from its estimate, less its penalty, is nearly the largest.

        estimates: of every query of every family, in order. penalties, allowed: one per candidate, public.
        rate: of the exponential weights, per count; costs 2 m rate of epsilon, or (m rate)^2 / 2 of rho.
        """
        self._pay(2 * self._bound * rate if self._pure else (self._bound * rate) ** 2 / 2)
        if estimates.shape != self._exact.shape or not allowed.any() or np.abs(estimates).max() > LARGEST_ESTIMATE:
            raise InternalError("estimates are not of these candidates")
        if self._whole and float(np.add.reduceat(np.abs(estimates), self._starts[:-1]).max()) > LARGEST_ESTIMATE:
            raise InternalError("estimates of a marginal are too large for 64-bit scores")
        grid = np.rint(estimates * GRID).astype(np.int64)
        scores = np.abs(self._exact * GRID - grid)
        if self._whole:
            scores = np.add.reduceat(scores, self._starts[:-1])
        scores -= np.rint(penalties * GRID).astype(np.int64)
        numbers = np.flatnonzero(allowed)
        mechanism = permute_and_flip if self._pure else exponential_choice
        return int(numbers[mechanism(scores[numbers], rate / GRID, self._entropy)])

    def answer(self, candidate: int, spread: Fraction) -> IntegerArray:
        """The noisy answer of a candidate, shape (queries,): one number, or every cell of a marginal.

        spread: scale b of Laplace noise, costs m / b of epsilon; or variance, costs m^2 / (2 variance) of rho.
        """
        first, last = (
            (self._starts[candidate], self._starts[candidate + 1]) if self._whole else (candidate, candidate + 1)
        )
        return self._noisy(self._exact[first:last], spread)

    def marginal(self, family: int, spread: Fraction) -> IntegerArray:
        """A whole marginal with noise, shape (cells,); the price is that of one answer."""
        if not self._families[family].is_marginal:
            raise InternalError("only a marginal is answered as a whole")
        return self._noisy(self._exact[self._starts[family] : self._starts[family + 1]], spread)

    def _noisy(self, exact: IntegerArray, spread: Fraction) -> IntegerArray:
        self._pay(self._bound / spread if self._pure else self._bound**2 / (2 * spread))
        draws = discrete_laplace if self._pure else discrete_gaussian
        noisy = draws(spread, exact.size, self._entropy)
        noisy += exact
        return noisy

    def _pay(self, price: Fraction) -> None:
        if not isinstance(price, Fraction) or price <= 0 or self._spent + price > self._limit:
            raise InternalError("a question beyond the price of its release")
        self._spent += price


def interrogation_cost(questions: Iterable[tuple[bool, Fraction]], unit_bound: int, pure: bool) -> Fraction:
    """What these questions cost, as (chooses, rate or spread), computed apart from Interrogation's meter.

    By sensitivity: a choice with exponent rate * score, scores moving by m, has a privacy loss within a range of 2 m
    rate = epsilon: epsilon, or epsilon^2 / 8 of rho. An answer with noise of scale b (variance s) costs m / b, or
    m^2 / (2 s).
    """
    total = Fraction(0)
    for chooses, parameter in questions:
        if parameter <= 0:
            raise InternalError("a question without noise")
        if chooses:
            loss = 2 * parameter * unit_bound
            total += loss if pure else loss * loss / 8
        elif pure:
            total += unit_bound / parameter
        else:
            total += unit_bound * unit_bound / parameter / 2
    return total
