"""Recovery near the speed of memory: Adult's fourteen attributes, all marginals up to three-way.

Seconds are gated by benchmarks/speed/cube.py. Here the same machine, at the same moment, sets the scale.
"""

from fractions import Fraction
from itertools import combinations
from time import process_time

import numpy as np
import pytest

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.recovery.recover import recover

ADULT14 = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["R", "Q"])
def test_21_million_cells_are_planned_and_recovered_near_the_speed_of_memory(strategy: str) -> None:
    """Plan and recovery of 470 marginals in the processor time of 20 running sums over as many cells. It takes 4."""
    marginals = tuple(combo for order in range(4) for combo in combinations(range(14), order))
    workload = MarginalWorkload(ADULT14, marginals, (1.0,) * len(marginals))
    started = process_time()
    (plan,) = plan_workload(workload, NoiseKind.GAUSSIAN, Fraction(1, 2), 1, strategy)
    planned = process_time() - started
    noisy = [np.ones(measurement.query.shape, dtype=np.int64) for measurement in plan.measurements]
    started = process_time()
    answers = recover(plan, noisy)
    taken = planned + process_time() - started
    started = process_time()
    for _ in range(5):
        np.ones(workload.cells).cumsum()
    assert taken < 4 * (process_time() - started)
    assert sum(answer.size for answer in answers) == workload.cells == 21_043_262
