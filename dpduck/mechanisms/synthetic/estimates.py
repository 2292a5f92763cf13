"""Questions that a round may ask, and their estimates."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.mechanisms.synthetic.distribution import Distribution
from dpduck.mechanisms.synthetic.junction import Members, eliminate
from dpduck.mechanisms.synthetic.pool import Pool
from dpduck.values.arrays import FloatArray


def askable_families(
    pool: Pool, asked: Sequence[Members], largest: int, used: float, *, anneals: bool
) -> NDArray[np.bool_]:
    """Tells which families a round may ask about. The limit on cells grows with the used price, to leave room early on.

    If rounds anneal, answers must connect the columns of larger families, since other families lower no error.
    """
    mask, limit = np.zeros(len(pool.families), np.bool_), 2 * largest * used
    if prod(pool.sizes) <= largest:
        mask[: len(pool.workload)] = True
        return mask
    asked = [*asked, *(item.members for item in pool.zeros)]
    elimination = eliminate(pool.sizes, frozenset(asked))
    near = [1 << attribute for attribute in range(len(pool.sizes))]
    for attributes in asked:
        for attribute in attributes:
            near[attribute] |= sum(1 << item for item in attributes)
    for number, family in enumerate(pool.workload):
        if anneals and len(family.attributes) > 2 and not _hangs(family.attributes, near):
            continue
        cells = elimination.cells_with(family.attributes)
        mask[number] = cells <= limit or cells == elimination.cells
    return mask


def _hangs(attributes: Members, near: Sequence[int]) -> bool:
    """Tells whether attributes are connected among themselves. near: the neighbours of each attribute, as bits."""
    wanted = sum(1 << attribute for attribute in attributes)
    reached, grown = 0, 1 << attributes[0]
    while grown != reached:
        reached = grown
        for attribute in attributes:
            if reached >> attribute & 1:
                grown |= near[attribute] & wanted
    return reached == wanted


def estimate_queries(pool: Pool, distribution: Distribution, records: float, asked: NDArray[np.bool_]) -> FloatArray:
    """Estimates, from the distribution, every query of the families in `asked`. Other estimates are 0."""
    numbers = np.flatnonzero(asked).tolist()
    values = np.zeros(int(pool.starts[-1]))
    if pool.plain and len(numbers) == len(pool.workload):
        answers = distribution.flat_marginals(pool.attribute_sets)
        answers *= records
        values[: len(answers)] = answers
        return values
    marginals = distribution.marginals(list(dict.fromkeys(pool.workload[number].attributes for number in numbers)))
    for number in numbers:
        family, start = pool.workload[number], int(pool.starts[number])
        values[start : start + family.rows] = records * family.answers(marginals[family.attributes])
    return values
