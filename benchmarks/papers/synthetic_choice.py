"""How well `auto` chooses between a cube and annealed rounds, over made tables of 3 to 8 columns.

usage: python -m benchmarks.papers.synthetic_choice [--tables N] [--seed S]

Columns follow others, or kinds of rows, or nothing: a half or all of their values are shuffled in two thirds of the
tables. Of each: mean total variation over the workload of a cube's distribution and of the rounds', and of the one that
the rule takes, which knows sizes, the price and the number of rows alone. Shown beside them: always the better one,
which nobody knows beforehand, and 1-way margins for the whole price, taken as independent.
Gates (exit status 1): what is taken errs at most 1.15 times as much as the better one, and less than either does, each
compared with the better one in the geometric mean.
Traps avoided: the seed is another one than those that the rule was chosen on; each table is drawn anew.
"""

from __future__ import annotations

import argparse
import sys
from itertools import combinations
from math import exp, log, prod

import numpy as np

from benchmarks.papers._synthetic_data import run_annealed, run_cube
from benchmarks.peers._wide_tables import Wide, followed
from benchmarks.peers.synthetic_wide import counts_of, distance, gate, independent, price_of
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.mechanisms.synthetic.cliques import LARGEST_TABLE, cells_for_fit
from dpduck.mechanisms.synthetic.plan import is_quiet
from dpduck.strategies.choose import plan_workload

SEED = 7000
"""The rule was chosen on tables of the seeds 11 to 13."""

SIZES = ((2, 3, 4, 5), (2, 4, 8, 12), (2, 5, 10, 20, 50), (2, 8, 10, 100))
ROWS, EPSILONS, SHUFFLED = (1_000, 5_000, 20_000, 100_000), ("0.2", "0.5", "1", "2", "5"), (0.0, 0.5, 1.0)
MOST_CELLS = 1 << 22
Errors = tuple[float, float, float, float]
"""Of the cube, of the rounds, of the one that is taken, of independent margins."""


def made(random: np.random.Generator) -> Wide:
    """A table of some columns, rows and sizes. A part of its values follows nothing."""
    columns, rows = int(random.integers(3, 9)), int(random.choice(ROWS))
    sizes = tuple(int(size) for size in random.choice(SIZES[int(random.integers(len(SIZES)))], columns))
    return followed(random, "made", sizes, rows, float(random.choice(SHUFFLED)))


def errors(table: Wide, order: int, epsilon: str) -> Errors:
    """Errors of all ways at a price of epsilon and delta 1e-6."""
    sets, rho = tuple(combinations(range(len(table.sizes)), order)), price_of(epsilon)
    dense = np.zeros(table.sizes, np.int64)
    np.add.at(dense, tuple(table.codes), 1)
    plan = plan_workload(MarginalWorkload(table.sizes, sets, (1.0,) * len(sets)), NoiseKind.GAUSSIAN, rho, 1)[0]
    wanted = list(sets)
    cube = distance(table, wanted, run_cube(dense, sets, False, rho).marginals)
    rounds = distance(table, wanted, run_annealed(counts_of(table), sets, False, rho, table.rows).marginals)
    taken = cube if is_quiet(plan, table.rows) else rounds
    return cube, rounds, taken, independent(table, wanted, rho)


def main() -> int:
    """Compares, prints, gates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    random, found = np.random.default_rng(given.seed), list[Errors]()
    while len(found) < given.tables:
        table, epsilon = made(random), str(random.choice(EPSILONS))
        order = int(random.choice((2, 3))) if len(table.sizes) > 3 else 2
        sets = tuple(combinations(range(len(table.sizes)), order))
        if prod(table.sizes) <= MOST_CELLS and cells_for_fit(table.sizes, sets) <= LARGEST_TABLE:
            found.append(errors(table, order, epsilon))
    cube, rounds, taken, alone = (float(np.mean([one[place] for one in found])) for place in range(4))
    times = [exp(sum(log(one[place] / min(one[:2])) for one in found) / len(found)) for place in range(3)]
    best = float(np.mean([min(one[:2]) for one in found]))
    above = sum(one[2] > 1.02 * one[3] + 0.002 for one in found)
    print(f"{len(found)} tables: cube {cube:.4f}, rounds {rounds:.4f}, taken {taken:.4f}, the better one {best:.4f}")
    print(f"independent margins {alone:.4f}; what is taken errs more than they do in {above} of {len(found)}")
    text = f"{times[2]:.3f} times the better one, the geometric mean; cube {times[0]:.3f}, rounds {times[1]:.3f}"
    return 0 if gate(times[2] <= min(1.15, *times[:2]), text) else 1


if __name__ == "__main__":
    sys.exit(main())
