"""Range workloads against their dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from dpduck.algebra.ranges import RangeWorkload, all_ranges, identity, intervals, prefixes, total


def random_intervals(generator: np.random.Generator, size: int, queries: int) -> RangeWorkload:
    ends = np.sort(generator.integers(0, size + 1, (queries, 2)), axis=1)
    ends[ends[:, 0] == ends[:, 1]] = (0, size)
    return intervals(size, [(int(a), int(b)) for a, b in ends], generator.random(queries) + 0.1)


def workloads() -> list[RangeWorkload]:
    generator = np.random.default_rng(5)
    plain = [make(size) for make in (all_ranges, prefixes, identity, total) for size in (1, 2, 3, 8, 13)]
    return plain + [random_intervals(generator, size, queries) for size in (1, 5, 12) for queries in (1, 4, 30)]


@pytest.mark.parametrize("workload", workloads())
def test_closed_forms_are_the_dense_ones(workload: RangeWorkload) -> None:
    """Gram matrix, its products, answers and variances equal those of the dense workload."""
    generator = np.random.default_rng(workload.size)
    dense = workload.matrix().astype(float)
    assert dense.shape == (len(workload.weights), workload.size) and set(dense.ravel()) <= {0.0, 1.0}
    gram = dense.T @ (workload.weights[:, None] * dense)
    np.testing.assert_allclose(workload.gram, gram, atol=1e-12)
    np.testing.assert_allclose(workload.gram_diagonal, gram.diagonal(), atol=1e-12)
    rows = generator.normal(size=(3, workload.size))
    np.testing.assert_allclose(workload.times_gram(rows), rows @ gram, atol=1e-10)
    values = generator.normal(size=(workload.size, 2))
    np.testing.assert_allclose(workload.answers(values), dense @ values, atol=1e-12)
    root = generator.normal(size=(workload.size, workload.size))
    covariance = root @ root.T
    np.testing.assert_allclose(workload.variances(covariance), (dense @ covariance * dense).sum(1), atol=1e-10)


@pytest.mark.parametrize("workload", workloads())
def test_buckets_keep_every_answer(workload: RangeWorkload) -> None:
    """Merging values that no query tells apart changes no answer, and no bucket could be merged further."""
    values = np.random.default_rng(3).normal(size=workload.size)
    reduced, boundaries = workload.merge_values()
    prefix = np.concatenate([[0], np.cumsum(values)])
    np.testing.assert_allclose(reduced.answers(np.diff(prefix[boundaries])), workload.answers(values), atol=1e-12)
    columns = reduced.matrix()
    assert all((columns[:, k] != columns[:, k + 1]).any() for k in range(reduced.size - 1))


@pytest.mark.parametrize(
    ("size", "bounds", "weights"),
    [(3, [(1, 1)], None), (3, [(0, 4)], None), (3, [(-1, 2)], None), (3, [], None), (3, [(0, 1)], [-1.0])],
)
def test_bad_intervals_are_refused(size: int, bounds: list[tuple[int, int]], weights: list[float] | None) -> None:
    """Empty or outside intervals, no interval at all, and negative weights never become a workload."""
    with pytest.raises(ValueError, match=r"interval|weights"):
        intervals(size, bounds, weights)
