"""Greedy grouping finds the groups of Definition 3.1 where there are any."""

import numpy as np

from dpduck.planning.ranges.plan import greedy_groups


def test_groups_of_the_known_strategies() -> None:
    """Identity: one group. Marginals: one each. Haar: one per level. Hadamard: one per row."""
    identity = np.eye(4, dtype=np.int64)
    assert [(group.norm, group.exact) for group in greedy_groups(identity)] == [(1, True)]
    margins = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]])
    assert [group.rows for group in greedy_groups(margins)] == [(0, 1), (2, 3)]
    haar = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]])
    assert [group.rows for group in greedy_groups(haar)] == [(0,), (1,), (2, 3)]
    hadamard = np.array([[1, 1], [1, -1]])
    assert all(group.exact and len(group.rows) == 1 for group in greedy_groups(hadamard))


def test_rows_of_different_sizes_do_not_share_a_group() -> None:
    """|2| and |1| differ, zeros ask nothing, and a group that leaves a column out is not exact."""
    groups = greedy_groups(np.array([[2, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]))
    assert [(group.rows, group.norm, group.exact) for group in groups] == [((0,), 2, False), ((1, 2), 1, False)]
