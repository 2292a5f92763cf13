"""How long a synthetic table takes once its rows are counted: guesses from public sizes and prices alone.

Processor times of made tables on one machine: 46 cubes of 3 to 20 columns, from 256 to 3 million cells, took 0.4 to 2.2
times the guess. Tables of gates are not among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dpduck.kernel.noise.law import NoiseKind
from dpduck.mechanisms.synthetic.distribution import GOLDEN, STEPS, cliques_of
from dpduck.mechanisms.synthetic.fit import FEW_ENTRIES, Observation
from dpduck.mechanisms.synthetic.junction import Members, eliminated
from dpduck.mechanisms.synthetic.mwem import LAST_STEPS, ROUND_STEPS, Method
from dpduck.mechanisms.synthetic.pool import Pool
from dpduck.mechanisms.synthetic.schedule import Schedule, mean_absolute, pair_noise
from dpduck.strategies.plan import Plan

PER_POINT, PER_SET, PER_CELL, PER_AXIS = 8e-5, 1e-5, 4e-9, 0.35e-9
"""Seconds of one point of a fit: whatever its size; for each set that is no part of the one matrix; for each cell, and
more for each of its axes."""

LARGEST_GUESSED = 1 << 20
"""Cells of all columns together, up to which the time of MWEM's rounds is guessed."""

MOMENTS = 8
"""Of MWEM's rounds, at which the size of its tables is looked at."""

ROUNDS_OF_A_COLUMN, POINTS_OF_A_ROUND = {True: 1.0, False: 1.26}, 18
"""Of annealed rounds, which double their price where nothing is learnt: how many there are, by whether they are pure,
times the noise in a pair of columns (schedule.py) to the power of -1/4; and points of their fits, the last one's shared
out."""

PER_COLUMN, PER_GROWN_CELL, PER_CHOICE, PER_SCORED = 4.5e-5, 4.2e-8, 6e-6, 5e-9
"""Seconds of a point for each column, and for each cell of tables that grew by rounds; of a choice for each candidate,
and for each of its cells."""

LARGER = 1.3
"""Points of a fit for each of its steps: the line search tries some more."""


def drawing_seconds(rows: int, columns: int, cliques: int) -> float:
    """Guesses how long rows take to be drawn, clique by clique, and stored."""
    return rows * (4e-7 * cliques + 2e-7 * columns)


def fit_seconds(sizes: Sequence[int], sets: Sequence[Members], noise: Sequence[float]) -> float:
    """Guesses how long a fit of noisy marginals takes. noise: of each, its total variation before the fit."""
    order = max((len(one) for one in sets), default=0)
    if not order:
        return 0.0
    cells = sum(prod(sizes[member] for member in one) for one in sets) / len(sets)
    mean = max(sum(noise) / len(noise), 1e-6)
    points = 0.58 * float(mean**-0.54) * float(cells**0.19) * float(order**2.1)
    points = min(LARGER * STEPS, max(10.0, points))
    return points * point_seconds(sizes, cliques_of(sizes, sets), len(sets))


def point_seconds(sizes: Sequence[int], cliques: Sequence[Members], sets: int) -> float:
    """Guesses how long F and its gradient take once."""
    tables = [(prod(sizes[member] for member in one), len(one)) for one in cliques]
    few = sum(cells for cells, _ in tables) * sets <= FEW_ENTRIES * len(tables)
    return PER_POINT + (0 if few else PER_SET * sets) + sum(cells * (PER_CELL + PER_AXIS * of) for cells, of in tables)


def plan_seconds(plan: Plan, records: int) -> float:
    """Guesses the same of a cube that is planned."""
    marginals, sizes, pure = plan.workload.marginals, plan.workload.sizes, plan.noise is NoiseKind.LAPLACE
    noise = [
        mean_absolute(pure, variance) * prod(sizes[member] for member in one) / (2 * records)
        for one, variance in zip(marginals, plan.variances, strict=True)
    ]
    return fit_seconds(sizes, marginals, noise)


def observed_seconds(sizes: Sequence[int], observations: Sequence[Observation]) -> float:
    """Guesses the same of marginals that are known already."""
    records = max(1.0, max((float(one.value.sum()) for one in observations), default=1.0))
    noise = [mean_absolute(False, one.variance) * one.value.size / (2 * records) for one in observations]
    return fit_seconds(sizes, [one.attributes for one in observations], noise)


def rounds_seconds(pool: Pool, schedule: Schedule, method: Method) -> float | None:
    """Guesses how long MWEM's rounds take: every query is estimated, one is asked, and all answers are fitted anew.

    None where all columns have many cells: how large tables grow is up to what noise chooses (a guess that took the
    choices to be even was up to 13 times too low).
    """
    if prod(pool.sizes) > LARGEST_GUESSED:
        return None
    rounds, sets = schedule.rounds, len(pool.asked)
    queries, cells = int(pool.starts[len(pool.workload)]), _growing(pool, method, rounds, pool.asked)
    mean, last = sum(cells) / len(cells), cells[-1]
    estimates = rounds * (PER_SET * sets + 2e-8 * queries + PER_CELL * mean)
    if not method.fits:
        updates = method.passes * rounds * (rounds + 1) / 2
        return estimates + updates * (PER_SET + PER_CELL / 8 * mean)
    point, cell = PER_POINT + PER_SET * len(pool.sizes), PER_CELL + PER_AXIS * len(pool.sizes) / 2
    return estimates + LARGER * (ROUND_STEPS * rounds * (point + cell * mean) + LAST_STEPS / 3 * (point + cell * last))


def _growing(pool: Pool, method: Method, rounds: int, sets: Sequence[Members]) -> list[float]:
    """Returns how many cells the tables have on the way, were these marginals asked evenly: which ones will be nobody
    knows, and that decides.
    """
    if method.dense or method.averages:
        return [float(prod(pool.sizes))]
    found, asked = list[float](), list[Members]()
    for number in range(rounds):
        asked.append(sets[int((number + 1) * GOLDEN % 1 * len(sets))])
        if number * MOMENTS // rounds < (number + 1) * MOMENTS // rounds:
            elimination = eliminated(pool.sizes, frozenset(asked))
            cells = min(prod(pool.sizes), elimination.cells)
            if cells > method.largest:
                return [*found, *[float(method.largest)] * (MOMENTS - len(found))]
            found.append(float(cells))
    return found or [float(max(pool.sizes))]


def annealed_seconds(pool: Pool, schedule: Schedule, method: Method, records: int) -> float:
    """Guesses how long annealed rounds take: points of their fits, and what each round costs besides; fewer rounds
    where noise is large.

    How far tables grow is up to the data, by a factor of a hundred: what pairs asked evenly would make of them counts
    two thirds, what half as many would one third. Nine made tables, none a gate's, took 0.2 to 2.7 times this.
    """
    if not schedule.rounds:
        return 0.1
    columns, scored = len(pool.sizes), int(pool.starts[len(pool.workload)])
    noise = float(pair_noise(schedule, pool.sizes, records) ** -0.25)
    rounds = max(1, round(ROUNDS_OF_A_COLUMN[schedule.pure] * columns * noise))
    pairs = [one for one in pool.asked if len(one) == 2] or pool.asked
    most, least = (_growing(pool, method, number, pairs) for number in (rounds, (rounds + 1) // 2))
    mean = float(np.cbrt((sum(most) / len(most)) ** 2 * sum(least) / len(least)))
    points = POINTS_OF_A_ROUND * (PER_COLUMN * columns + PER_GROWN_CELL * mean)
    return 0.1 + rounds * (points + PER_CHOICE * len(pool.workload) + PER_SCORED * scored)
