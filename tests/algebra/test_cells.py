"""Workloads over several attributes: Gram matrix, answers and variances against dense queries."""

import numpy as np

from dpduck.algebra.cells import CellWorkload
from dpduck.algebra.ranges import all_ranges, identity, prefixes


def dense(workload: CellWorkload, chosen: tuple[int, ...]) -> np.ndarray:
    """The queries of a set, shape (queries, cells)."""
    found: np.ndarray = np.ones((1, 1))
    for place, one in enumerate(workload.attributes):
        found = np.kron(found, one.matrix() if place in chosen else np.ones((1, one.size)))
    return found


def test_answers_variances_and_gram_are_the_dense_ones() -> None:
    """Three attributes, four sets with weights, values with a further axis."""
    sets = ((0, 1, 2), (0, 2), (1,), ())
    workload = CellWorkload((prefixes(3), all_ranges(2), identity(2)), sets, (1.0, 0.5, 2.0, 3.0))
    generator = np.random.default_rng(1)
    root = generator.normal(size=(12, 12))
    values = generator.normal(size=(12, 2))
    gram = np.zeros((12, 12))
    answers, variances = workload.answers(values), workload.variances(root @ root.T)
    for number, chosen in enumerate(sets):
        queries = dense(workload, chosen)
        gram += workload.weights[number] * queries.T @ queries
        np.testing.assert_allclose(answers[number].reshape(-1, 2), queries @ values)
        np.testing.assert_allclose(variances[number].ravel(), ((queries @ root) ** 2).sum(axis=1))
        assert variances[number].shape == workload.shapes[number] == answers[number].shape[:-1]
    np.testing.assert_allclose(workload.gram, gram)
    assert workload.queries == sum(len(dense(workload, chosen)) for chosen in sets)
