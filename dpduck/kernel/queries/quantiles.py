"""A bucket near a quantile, chosen for each cell by the exponential mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.noise.choice import exponential_choice
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.price import Ask, Query
from dpduck.kernel.queries.marginals import by_value, exact_marginals, require_cells, require_counts, require_values
from dpduck.kernel.queries.operators import KroneckerQuery
from dpduck.values.accounting import rho_of_pure
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.privacy import Charge

LARGEST_SIDE, LARGEST_LEAD = 10**4, 1 << 60
"""Limits of a quantile's parameters, so that distances fit 64 bits for up to 2^40 rows."""


@dataclass(frozen=True, eq=False)
class Quantiles(Query[IntegerArray]):
    """Number of a bucket at or near a quantile, for each cell. The number `buckets` means that the cell has few rows.

    The buckets are values of the scan's last attribute. A bucket's distance is the largest of three numbers: 0,
    below * (rows before it) - above * (other rows) + shift, above * (rows after it) - below * (other rows) - shift.
    The whole numbers below and above have the ratio 1 - q to q. A bucket's chance is proportional to
    exp(-rate * distance). A further choice is "no bucket", at the distance max(below, above) * (rows of the cell) -
    `nothing`. A row moves each distance by at most max(below, above), in one cell. Cells hold different rows, so each
    cell is a separate choice. The epsilons of all cells add up to twice the rate times the largest move by a unit.
    """

    query: KroneckerQuery
    buckets: int
    below: int
    above: int
    rate: Fraction
    nothing: int
    shift: int = 0
    has_noise = False

    def __post_init__(self) -> None:
        if min(self.below, self.above, self.buckets) < 1 or max(self.below, self.above) > LARGEST_SIDE:
            raise InternalError("a quantile between no rows")
        if not 0 <= self.nothing < LARGEST_LEAD or abs(self.shift) >= LARGEST_LEAD:
            raise Refusal("at this price a quantile would be chance alone", accepted="a larger epsilon or rho")

    def cost(self, ask: Ask[IntegerArray]) -> Charge:
        require_cells(self.query)
        loss = 2 * self.rate * max(self.below, self.above) * ask.scan.l1
        if loss <= 0:
            raise InternalError("a choice without chance")
        return Charge(loss, min(loss * loss / 8, rho_of_pure(loss)))

    def require(self, job: CountingJob) -> None:
        require_values(job, self.buckets)
        require_counts(job)

    def draw(self, counts: Hidden, ask: Ask[IntegerArray], entropy: Entropy, chosen: object) -> IntegerArray:
        cells, last = by_value(counts, ask.scan, self.query, self.buckets)
        wanted = (*self.query.attributes, last)
        table = exact_marginals(cells, 0, {wanted})[wanted].reshape(-1, self.buckets)
        through = table.cumsum(axis=1)
        rows, before = through[:, -1:], through - table
        early = self.above * (rows - through) - self.below * through - self.shift
        late = self.below * before - self.above * (rows - before) + self.shift
        distances = np.maximum(np.maximum(early, late), 0)
        without = max(self.below, self.above) * rows - self.nothing
        scores = -np.concatenate([distances, without], axis=1)
        numbers = [exponential_choice(of_cell, self.rate, entropy) for of_cell in scores]
        return np.array(numbers, dtype=np.int64).reshape(self.query.shape)

    def certificate(self) -> dict[str, object]:
        return {"rate": self.rate, "largest_weight": max(self.below, self.above)}
