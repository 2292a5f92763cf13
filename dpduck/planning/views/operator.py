"""O: a few views, usually larger than what is asked, that together contain every asked marginal (DESIGN 4.6).

A view is a row of a Boolean matrix over the attributes that the workload uses. Where a search for good views starts:
the asked marginals themselves, the largest of them, greedy clusters of them, the one view over everything, and the
blocks of a covering design whose points are given to the attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dpduck.algebra.lattice import Lattice, MarginalWorkload
from dpduck.planning.marginals.clustering import cluster
from dpduck.planning.marginals.operators import measured_marginals
from dpduck.values.arrays import BoolArray, FloatArray, IndexArray

LARGEST_VIEW = 1 << 24
"""Most cells of a view: it is measured as a dense array."""


MOST_MARGINALS = 600
"""More asked marginals than this are neither clustered nor compared with each other."""


def views_of(lattice: Lattice, sets: Sequence[tuple[int, ...]]) -> BoolArray:
    """Views from sets of domain positions; attributes that the workload does not use are left out."""
    local = {attribute: index for index, attribute in enumerate(lattice.attributes)}
    views = np.zeros((len(sets), len(local)), dtype=np.bool_)
    for row, members in enumerate(sets):
        views[row, [local[attribute] for attribute in members if attribute in local]] = True
    return views


def sets_of(lattice: Lattice, views: BoolArray) -> tuple[tuple[int, ...], ...]:
    """The domain positions of each view, increasing."""
    names = np.asarray(lattice.attributes, dtype=np.intp)
    return tuple(tuple(names[view].tolist()) for view in views)


def workload_starts(workload: MarginalWorkload, lattice: Lattice) -> Iterator[tuple[str, BoolArray, FloatArray]]:
    """Starts that every workload has: a name, views, and the budgets that suit each view's own marginals."""
    asked, weights = measured_marginals(workload)
    weights = np.maximum(weights, 1e-9 * weights.max(initial=1e-300))
    views = views_of(lattice, asked)
    yield "the asked marginals", views, np.cbrt(weights)
    yield "one view of all attributes", np.ones((1, views.shape[1]), dtype=np.bool_), np.ones(1)
    if len(asked) > MOST_MARGINALS:
        return
    widest = ~np.array([(views[:, view].all(axis=1) & (views.sum(axis=1) > view.sum())).any() for view in views])
    yield "the largest asked marginals", views[widest], np.cbrt(weights[widest])
    log_sizes = np.log(np.asarray(lattice.sizes, dtype=np.float64))
    pulls = weights / np.exp(views @ log_sizes)
    clusters = cluster(workload.sizes, asked, pulls, 2)
    unions, inverse = np.unique(views_of(lattice, [union for union, _ in clusters]), axis=0, return_inverse=True)
    held = [float(pulls[list(members)].sum()) for _, members in clusters]
    yield "clusters of marginals", unions, np.cbrt(np.bincount(inverse.reshape(-1), held) * np.exp(unions @ log_sizes))


def balanced_assignment(log_sizes: FloatArray, points: int) -> IndexArray:
    """A point for each attribute: the largest attributes first, each to the emptiest point so far.

    >>> balanced_assignment(np.log([4.0, 2.0, 9.0]), 2).tolist()
    [1, 1, 0]
    """
    held = np.zeros(points)
    assignment = np.zeros(len(log_sizes), dtype=np.intp)
    for attribute in np.argsort(-log_sizes, kind="stable").tolist():
        point = int(held.argmin())
        assignment[attribute] = point
        held[point] += max(log_sizes[attribute], 1e-3)
    return assignment


def with_common_point(blocks: BoolArray) -> BoolArray:
    """The blocks with one more point that lies in all of them: an attribute there is in every view."""
    return np.concatenate([blocks, np.ones((len(blocks), 1), dtype=np.bool_)], axis=1)


def design_views(blocks: BoolArray, assignment: IndexArray) -> BoolArray:
    """The view of each block: the attributes whose point lies in it."""
    views: BoolArray = blocks[:, assignment]
    return views
