"""Answers adaptive questions about exact counts: which candidate is answered worst, and its noisy answer.

What may be asked, and how often, is the door's matter. Sensitivities, with m the most rows of one privacy unit (add
or remove all of them):

* the answer of one query moves by at most m, since its coefficients are 0, 1 or -1;
* a marginal as a whole moves by at most m in L1 and in L2 (all rows may fall into one cell);
* |answer - estimate| and the L1 distance of a marginal from its estimate move by at most m for the same reason. They
  are taken against estimates on the grid of multiples of 1/GRID, so that scores are integers and this is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpduck.trusted.ask import Choice, Families
from dpduck.trusted.noise.choice import exponential_choice, permute_and_flip
from dpduck.trusted.noise.draw import draw
from dpduck.trusted.noise.entropy import Entropy
from dpduck.trusted.noise.law import Noise
from dpduck.trusted.private.hidden import ExactCounts, Hidden
from dpduck.trusted.private.measure import exact_marginals
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import InternalError

GRID = 256
LARGEST_ESTIMATE = float(1 << 42)


@dataclass(frozen=True, eq=False)
class Guess:
    """What is public about a choice.

    estimates: of every query of every family, in order. penalties, allowed: one per candidate.
    """

    estimates: FloatArray
    penalties: FloatArray
    allowed: NDArray[np.bool_]


class FamilyAnswers(Hidden):
    """The exact answers of families of queries; hidden."""

    __slots__ = ("_exact", "_families", "_starts")

    def __init__(self, counts: ExactCounts, families: Families, unit_bound: int) -> None:
        if counts._unit_bounds[0] != unit_bound:
            raise InternalError("the questions and the counts disagree about the contribution bound")
        marginals = exact_marginals(counts, 0, {family.attributes for family in families.families})
        answers = [family.answers(marginals[family.attributes]) for family in families.families]
        self._exact = np.concatenate(answers)
        self._starts = np.cumsum([0, *(len(answer) for answer in answers)])
        self._families = families

    def choose(self, choice: Choice, guess: Guess, entropy: Entropy) -> int:
        """A candidate whose distance from its estimate, less its penalty, is nearly the largest."""
        estimates, whole = guess.estimates, self._families.whole
        fit = estimates.shape == self._exact.shape and guess.allowed.any()
        if not fit or np.abs(estimates).max() > LARGEST_ESTIMATE:
            raise InternalError("estimates are not of these candidates")
        if whole and float(np.add.reduceat(np.abs(estimates), self._starts[:-1]).max()) > LARGEST_ESTIMATE:
            raise InternalError("estimates of a marginal are too large for 64-bit scores")
        grid = np.rint(estimates * GRID).astype(np.int64)
        scores = np.abs(self._exact * GRID - grid)
        if whole:
            scores = np.add.reduceat(scores, self._starts[:-1])
        scores -= np.rint(guess.penalties * GRID).astype(np.int64)
        numbers = np.flatnonzero(guess.allowed)
        mechanism = permute_and_flip if choice.pure else exponential_choice
        return int(numbers[mechanism(scores[numbers], choice.rate / GRID, entropy)])

    def answer(self, candidate: int, noise: Noise, entropy: Entropy) -> IntegerArray:
        """The noisy answer of a candidate, shape (queries,): one number, or every cell of a marginal."""
        if self._families.whole:
            return self.marginal(candidate, noise, entropy)
        return self._noisy(candidate, candidate + 1, noise, entropy)

    def marginal(self, number: int, noise: Noise, entropy: Entropy) -> IntegerArray:
        """Every answer of a family that is a marginal, shape (cells,)."""
        return self._noisy(self._starts[number], self._starts[number + 1], noise, entropy)

    def _noisy(self, first: int, last: int, noise: Noise, entropy: Entropy) -> IntegerArray:
        noisy = draw(noise, int(last - first), entropy)
        noisy += self._exact[first:last]
        return noisy
