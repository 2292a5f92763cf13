"""Groups of rows of any strategy matrix (Cormode et al., Definition 3.1 and the greedy grouping after it)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpduck.values.arrays import IntegerArray


@dataclass(frozen=True)
class Group:
    """Rows with disjoint supports. norm: C_r, their largest absolute entry. exact: whether every column has one."""

    rows: tuple[int, ...]
    norm: int
    exact: bool


def greedy_groups(matrix: IntegerArray) -> tuple[Group, ...]:
    """Puts each row into the first group with equal largest absolute entry and with disjoint supports.

    If all groups are exact, the closed-form budgets are optimal. Otherwise they are safe, since every column pays for
    the whole norm of each group. The convex program may then do better. Rows of zeros join no group.

    >>> [group.rows for group in greedy_groups(np.array([[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]))]
    [(0,), (1, 2, 3)]
    """
    magnitudes = np.abs(matrix)
    supports = magnitudes > 0
    largest = magnitudes.max(axis=1, initial=0)
    rows: list[list[int]] = []
    norms: list[int] = []
    covered: list[NDArray[np.bool_]] = []
    for row in np.flatnonzero(largest > 0).tolist():
        norm = int(largest[row])
        fitting = (
            number
            for number, support in enumerate(covered)
            if norms[number] == norm and not (support & supports[row]).any()
        )
        joined = next(fitting, None)
        if joined is None:
            rows.append([row])
            norms.append(norm)
            covered.append(supports[row])
        else:
            rows[joined].append(row)
            covered[joined] = covered[joined] | supports[row]
    return tuple(
        Group(tuple(members), norm, bool((magnitudes[members].max(axis=0) == norm).all()))
        for members, norm in zip(rows, norms, strict=True)
    )
