"""Adaptive questions about families of linear queries: choice of the worst-estimated candidate, and its noisy answer.

Sensitivities, if a privacy unit has at most m rows (neighbours differ by all rows of one unit):

* The answer of one query moves by at most m, since its coefficients are 0, 1 or -1.
* A marginal as a whole moves by at most m in L1 and in L2, since all rows may fall into one cell.
* |answer - estimate| and the L1 distance of a marginal from its estimate move by at most m for the same reason.
  Estimates lie on the grid of multiples of 1/GRID, so that scores are integers and this bound is exact. A public
  weight of at most 1, in units of 1/WEIGHT, and a public penalty do not increase it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.noise.choice import exponential_choice, permute_and_flip
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.price import Ask, AskScan, Query, pure
from dpduck.kernel.queries.marginals import cells_of, exact_marginals, require_counts
from dpduck.kernel.queries.operators import Family, Norms
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge

WEIGHT = 256
"""Weights of candidates are multiples of 1/WEIGHT, from 1/WEIGHT to 1."""
GRID = 256
LARGEST_ESTIMATE = float(1 << 42)


@dataclass(frozen=True, eq=False)
class Families:
    """Families of queries with coefficients 0, 1 and -1: the candidates of a choice.

    whole: if True, each family is a candidate, and all are marginals. Otherwise each query is a candidate. weights:
    public weights of the candidates in units of 1/WEIGHT, empty for 1 each. No weight is above 1.
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
class Guess:
    """Public inputs of a choice: estimates of queries, penalties of candidates, and a mask of allowed candidates."""

    estimates: FloatArray
    penalties: FloatArray
    allowed: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Choice(Query[int]):
    """Number of a candidate with a bad estimate, drawn with probability proportional to exp(rate * weight * distance).

    The distance of an answer from its estimate moves by at most l1, and no weight is above 1. So epsilon is twice the
    rate times l1. pure: use permute and flip. Otherwise the exponential mechanism is used. Its privacy loss lies in a
    range of width epsilon, so rho is epsilon^2 / 8. `chosen` of the draw is a Guess.
    """

    families: Families
    rate: Fraction
    pure: bool
    has_noise = False
    certified = ("rate", "pure")

    def cost(self, ask: Ask[int]) -> Charge:
        loss = 2 * self.rate * ask.scan.l1
        if loss <= 0:
            raise InternalError("a choice without chance")
        return pure(loss) if self.pure else Charge.zcdp(loss * loss / 8)

    def require(self, job: CountingJob) -> None:
        require_counts(job)

    def draw(self, counts: Hidden, ask: Ask[int], entropy: Entropy, chosen: object) -> int:
        """Draws the number of a candidate. Candidates far from their estimates are likely, after penalties."""
        if not isinstance(chosen, Guess):
            raise InternalError("a choice without its estimates")
        estimates, families = chosen.estimates, self.families
        exact, starts = family_answers(counts, families, ask.scan)
        fit = estimates.shape == exact.shape and chosen.allowed.any()
        if not fit or not np.abs(estimates).max() <= LARGEST_ESTIMATE or np.isnan(chosen.penalties).any():
            raise InternalError("estimates are not of these candidates")
        if families.whole and float(np.add.reduceat(np.abs(estimates), starts[:-1]).max()) > LARGEST_ESTIMATE:
            raise InternalError("estimates of a marginal are too large for 64-bit scores")
        grid = np.rint(estimates * GRID).astype(np.int64)
        scores = np.abs(exact * GRID - grid)
        if families.whole:
            scores = np.add.reduceat(scores, starts[:-1])
        scores -= np.rint(np.clip(chosen.penalties, -LARGEST_ESTIMATE, LARGEST_ESTIMATE) * GRID).astype(np.int64)
        rate, numbers = self.rate / GRID, np.flatnonzero(chosen.allowed)
        if families.weights:
            scores, rate = scores * np.array(families.weights, np.int64), rate / WEIGHT
        mechanism = permute_and_flip if self.pure else exponential_choice
        return int(numbers[mechanism(scores[numbers], rate, entropy)])


@dataclass(frozen=True, eq=False)
class Candidate(Query[IntegerArray]):
    """Noisy answer of a candidate that is named at the draw: a number or a marginal. A unit moves it by at most l1."""

    families: Families

    def moves(self, scan: AskScan) -> Norms:
        return scan.norms()

    def draw(self, counts: Hidden, ask: Ask[IntegerArray], entropy: Entropy, chosen: object) -> IntegerArray:
        if not isinstance(chosen, int):
            raise InternalError("a candidate without its number")
        return _noisy(counts, ask, self.families, chosen, self.families.whole, entropy)


@dataclass(frozen=True, eq=False)
class Marginal(Query[IntegerArray]):
    """Noisy answer of one whole marginal of the families. One unit changes it by at most l1 in L1."""

    families: Families
    number: int

    def __post_init__(self) -> None:
        if not self.families.families[self.number].is_marginal:
            raise InternalError("only a marginal is answered as a whole")

    def moves(self, scan: AskScan) -> Norms:
        return scan.norms()

    def draw(self, counts: Hidden, ask: Ask[IntegerArray], entropy: Entropy, chosen: object) -> IntegerArray:
        return _noisy(counts, ask, self.families, self.number, True, entropy)


def family_answers(counts: Hidden, families: Families, scan: AskScan) -> tuple[IntegerArray, IntegerArray]:
    """Returns the exact answers of all families in one array, and where each family starts. Both are computed once."""
    cells = cells_of(counts, scan)
    if families not in cells._exact_answers:
        marginals = exact_marginals(cells, 0, {family.attributes for family in families.families})
        answers = [family.answers(marginals[family.attributes]) for family in families.families]
        starts = np.cumsum([0, *(len(answer) for answer in answers)])
        cells._exact_answers[families] = np.concatenate(answers), starts
    return cells._exact_answers[families]


def _noisy(counts: Hidden, ask: Ask[IntegerArray], of: Families, number: int, whole: bool, by: Entropy) -> IntegerArray:
    """Returns noisy answers, shape (queries,): of all queries of family `number` if `whole`, else of query `number`."""
    exact, starts = family_answers(counts, of, ask.scan)
    first, last = (starts[number], starts[number + 1]) if whole else (number, number + 1)
    noisy = draw(ask.law, int(last - first), by)
    noisy += exact[first:last]
    return noisy
