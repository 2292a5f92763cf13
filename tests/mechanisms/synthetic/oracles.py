"""A noisy oracle for tests (exact answers, draws from a seed, no budget), and a naive MWEM over the whole universe."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpduck.algebra.margin_tree import margin_tree
from dpduck.mechanisms.synthetic.multiplicative import replay_order
from dpduck.mechanisms.synthetic.observations import coefficients_of, query_observation
from dpduck.mechanisms.synthetic.pool import Pool
from dpduck.mechanisms.synthetic.schedule import Schedule


def queries_of(pool: Pool) -> np.ndarray:
    """Every query of every family as a row over the whole universe, built the slow way."""
    rows = []
    for family in pool.families:
        absent = tuple(axis for axis in range(len(pool.sizes)) if axis not in family.attributes)
        for row in range(family.rows):
            table = np.expand_dims(coefficients_of(family, row), absent)
            rows.append(np.broadcast_to(table, pool.sizes).reshape(-1))
    return np.array(rows, np.float64)


class SeededOracle:
    """Answers from a table. Choices by exponential noise, answers by Gaussian noise, both from one seed."""

    def __init__(self, pool: Pool, table: np.ndarray, seed: int, noise: float = 1.0) -> None:
        tree = margin_tree(tuple(range(table.ndim)), table.shape, [family.attributes for family in pool.families])
        marginals = tree.margins(table.astype(np.int64))
        self.pool = pool
        self.exact = np.concatenate([family.answers(marginals[family.attributes]) for family in pool.families])
        self.draws = np.random.default_rng(seed)
        self.noise = noise
        self.left = Fraction(1)

    def choose(self, estimates, penalties, allowed, rate) -> int:
        gaps = np.abs(self.exact - estimates)
        if self.pool.whole:
            gaps = np.add.reduceat(gaps, self.pool.starts[:-1])
        scores = gaps - penalties + self.noise * self.draws.gumbel(size=len(gaps))
        return int(np.argmax(np.where(allowed, scores, -np.inf)))

    def answer(self, candidate, parameter) -> np.ndarray:
        starts = self.pool.starts
        first, last = (starts[candidate], starts[candidate + 1]) if self.pool.whole else (candidate, candidate + 1)
        return self._noisy(first, last)

    def marginal(self, family, parameter) -> np.ndarray:
        return self._noisy(self.pool.starts[family], self.pool.starts[family + 1])

    def _noisy(self, first, last) -> np.ndarray:
        return self.exact[first:last] + np.rint(self.noise * self.draws.normal(size=last - first)).astype(np.int64)


def naive(pool: Pool, schedule: Schedule, oracle: SeededOracle, passes: int) -> tuple[np.ndarray, list[int]]:
    """The paper's algorithm over a dense universe and a dense matrix of queries. Returns the final distribution.

    The paper leaves the order of the replayed queries open: it is the product's, block by block, forth and back.
    """
    matrix = queries_of(pool)
    records = max(1.0, float(oracle.marginal(len(pool.families) - 1, Fraction(1))[0]))
    weights = np.full(matrix.shape[1], 1 / matrix.shape[1])
    measured: list[tuple[int, float]] = []
    candidates = sum(family.rows for family in pool.workload)
    allowed = np.arange(len(matrix)) < candidates
    for _ in range(schedule.rounds):
        estimates = np.where(allowed, records * (matrix @ weights), 0.0)
        chosen = oracle.choose(estimates, np.zeros(len(matrix)), allowed, Fraction(1))
        measured.append((chosen, float(oracle.answer(chosen, Fraction(1))[0])))
        members = tuple(range(len(pool.sizes)))
        seen = [
            query_observation(pool.families[owner], row, 0.0, 1.0)
            for owner, row in (_place(pool, q) for q, _ in measured)
        ]
        blocks = replay_order(members, pool.sizes, seen)
        assert sorted(number for block in blocks for number in block) == list(range(len(measured)))
        for turn in range(passes):
            order = [number for block in (blocks[::-1] if turn % 2 else blocks) for number in block]
            for query, value in (measured[number] for number in order):
                gap = np.clip(value, min(0.0, matrix[query].min()) * records, records) - records * float(
                    matrix[query] @ weights
                )
                weights = weights * np.exp(matrix[query] * gap / (2 * records))
                weights = weights / weights.sum()
    return weights, [query for query, _ in measured]


def _place(pool: Pool, query: int) -> tuple[int, int]:
    """A query's family, and its row there."""
    family = int(pool.owners[query])
    return family, query - int(pool.starts[family])
