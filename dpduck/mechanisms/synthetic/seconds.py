"""Time of a synthetic table after its rows are counted: guesses from public sizes and prices alone.

Of generated tables on one machine, 46 cubes took 0.4 to 2.2 times the guess. No acceptance test uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dpduck.kernel.noise.law import NoiseKind
from dpduck.mechanisms.synthetic.cliques import cliques_of
from dpduck.mechanisms.synthetic.fit import FEW_ENTRIES
from dpduck.mechanisms.synthetic.junction import Members, eliminate
from dpduck.mechanisms.synthetic.mwem import LAST_STEPS, ROUND_STEPS, Method
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.mechanisms.synthetic.pool import Pool
from dpduck.mechanisms.synthetic.sample import GOLDEN
from dpduck.mechanisms.synthetic.schedule import Schedule, mean_absolute, pair_noise
from dpduck.mechanisms.synthetic.table_fit import STEPS
from dpduck.strategies.plan import Plan

PER_POINT, PER_SET, PER_CELL, PER_AXIS = 8e-5, 1e-5, 4e-9, 0.35e-9
"""Seconds of one point of a fit: a constant, and more for each set outside the common matrix, for each cell, and for
each axis of a cell."""

LARGEST_GUESSED = 1 << 20
"""Most cells of all columns together at which the time of MWEM's rounds is guessed."""

MOMENTS = 8

ROUNDS_OF_A_COLUMN, POINTS_OF_A_ROUND = {True: 1.0, False: 1.26}, 18
"""Annealed rounds for each column, by whether their price is epsilon. Points of a round's fit and of its share of the
last fit. Rounds are multiplied by the noise in a pair of columns (schedule.py) to the power of -1/4, since their price
doubles if nothing is learnt."""

PER_COLUMN, PER_GROWN_CELL, PER_CHOICE, PER_SCORED = 4.5e-5, 4.2e-8, 6e-6, 5e-9
"""Seconds of a point for each column, and for each cell of tables that grew by rounds. Seconds of a choice for each
candidate, and for each of its cells."""

LARGER = 1.3
"""Points of a fit for each step: the line search tries some more."""


def drawing_seconds(rows: int, columns: int, cliques: int) -> float:
    """Guesses the seconds of drawing rows, clique by clique, and of storing them."""
    return rows * (4e-7 * cliques + 2e-7 * columns)


def fit_seconds(sizes: Sequence[int], sets: Sequence[Members], noise: Sequence[float]) -> float:
    """Guesses the seconds of a fit of noisy marginals. noise: the total variation of each before the fit."""
    order = max((len(members) for members in sets), default=0)
    if not order:
        return 0.0
    cells = sum(prod(sizes[member] for member in members) for members in sets) / len(sets)
    mean = max(sum(noise) / len(noise), 1e-6)
    points = 0.58 * float(mean**-0.54) * float(cells**0.19) * float(order**2.1)
    points = min(LARGER * STEPS, max(10.0, points))
    return points * point_seconds(sizes, cliques_of(sizes, sets), len(sets))


def point_seconds(sizes: Sequence[int], cliques: Sequence[Members], sets: int) -> float:
    """Guesses the seconds of one evaluation of F and its gradient."""
    tables = [(prod(sizes[member] for member in clique), len(clique)) for clique in cliques]
    few = sum(cells for cells, _ in tables) * sets <= FEW_ENTRIES * len(tables)
    return PER_POINT + (0 if few else PER_SET * sets) + sum(cells * (PER_CELL + PER_AXIS * of) for cells, of in tables)


def plan_seconds(plan: Plan, records: int) -> float:
    """Guesses the seconds of the fit of a planned cube."""
    marginals, sizes, pure = plan.workload.marginals, plan.workload.sizes, plan.noise is NoiseKind.LAPLACE
    noise = [
        mean_absolute(pure, variance) * prod(sizes[member] for member in marginal) / (2 * records)
        for marginal, variance in zip(marginals, plan.variances, strict=True)
    ]
    return fit_seconds(sizes, marginals, noise)


def observation_seconds(sizes: Sequence[int], observations: Sequence[Observation]) -> float:
    """Guesses the seconds of the fit of known marginals."""
    records = max(1.0, max((float(marginal.value.sum()) for marginal in observations), default=1.0))
    noise = [mean_absolute(False, marginal.variance) * marginal.value.size / (2 * records) for marginal in observations]
    return fit_seconds(sizes, [marginal.attributes for marginal in observations], noise)


def rounds_seconds(pool: Pool, schedule: Schedule, method: Method) -> float | None:
    """Guesses the seconds of MWEM's rounds. Returns None for many cells: their tables grow by noisy choices."""
    if prod(pool.sizes) > LARGEST_GUESSED:
        return None
    rounds, sets = schedule.rounds, len(pool.attribute_sets)
    queries, cells = int(pool.starts[len(pool.workload)]), _growing(pool, method, rounds, pool.attribute_sets)
    mean, last = sum(cells) / len(cells), cells[-1]
    estimates = rounds * (PER_SET * sets + 2e-8 * queries + PER_CELL * mean)
    if not method.fits:
        updates = method.passes * rounds * (rounds + 1) / 2
        return estimates + updates * (PER_SET + PER_CELL / 8 * mean)
    point, cell = PER_POINT + PER_SET * len(pool.sizes), PER_CELL + PER_AXIS * len(pool.sizes) / 2
    return estimates + LARGER * (ROUND_STEPS * rounds * (point + cell * mean) + LAST_STEPS / 3 * (point + cell * last))


def _growing(pool: Pool, method: Method, rounds: int, sets: Sequence[Members]) -> list[float]:
    """Guesses the cells of MWEM's tables at up to MOMENTS of its rounds, as if rounds asked all sets equally often."""
    if method.dense or method.averages:
        return [float(prod(pool.sizes))]
    totals, asked = list[float](), list[Members]()
    for number in range(rounds):
        asked.append(sets[int((number + 1) * GOLDEN % 1 * len(sets))])
        if number * MOMENTS // rounds < (number + 1) * MOMENTS // rounds:
            elimination = eliminate(pool.sizes, frozenset(asked))
            cells = min(prod(pool.sizes), elimination.cells)
            if cells > method.largest:
                return [*totals, *[float(method.largest)] * (MOMENTS - len(totals))]
            totals.append(float(cells))
    return totals or [float(max(pool.sizes))]


def aim_seconds(pool: Pool, schedule: Schedule, method: Method, records: int) -> float:
    """Guesses the seconds of annealed rounds: fits, and other work in each round. Large noise means fewer rounds.

    The size of tables varies with the data by a factor of a hundred. Nine generated tables took 0.2 to 2.7 times this
    guess.
    """
    if not schedule.rounds:
        return 0.1
    columns, scored = len(pool.sizes), int(pool.starts[len(pool.workload)])
    noise = float(pair_noise(schedule, pool.sizes, records) ** -0.25)
    rounds = max(1, round(ROUNDS_OF_A_COLUMN[schedule.pure] * columns * noise))
    pairs = [members for members in pool.attribute_sets if len(members) == 2] or pool.attribute_sets
    most, least = (_growing(pool, method, number, pairs) for number in (rounds, (rounds + 1) // 2))
    mean = float(np.cbrt((sum(most) / len(most)) ** 2 * sum(least) / len(least)))
    points = POINTS_OF_A_ROUND * (PER_COLUMN * columns + PER_GROWN_CELL * mean)
    return 0.1 + rounds * (points + PER_CHOICE * len(pool.workload) + PER_SCORED * scored)
