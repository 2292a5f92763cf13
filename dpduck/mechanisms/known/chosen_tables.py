"""Selections of tables that are solved together, if all tables together would be too large.

Each selection gains tables with every release, so that a release never makes an answer worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.queries.operators import MatrixFactor
from dpduck.mechanisms.known.axes import Axes, seen_by
from dpduck.mechanisms.known.tables import Usable
from dpduck.strategies.recovery.atoms import refine_atoms
from dpduck.strategies.recovery.estimator import LARGEST_BLOCK

FEW = 16
"""Up to this many tables, all tables that fit into the largest block are solved together."""

EASY = 256
"""Most atoms (sets of codes that no table tells apart) of a quick block. Only the first FEW tables exceed it."""


def selections(axes: Axes, uses: Sequence[Usable], columns: frozenset[str], new: bool) -> list[Sequence[Usable]]:
    """Returns the sets of tables to try. new: whether the first table has just been measured, or is planned."""
    whole = _fitting(axes, uses, EASY)
    if len(whole) == len(uses):
        return [uses]
    if len(uses) <= FEW:
        return [_fitting(axes, uses, LARGEST_BLOCK)]
    near = [
        use for number, use in enumerate(uses) if is_cellwise(use) or use.columns <= columns or (new and not number)
    ]
    selection = _fitting(axes, near, EASY)
    return [selection] if new else [whole, selection, _fitting(axes, uses[:FEW], LARGEST_BLOCK)]


def alone(axes: Axes, uses: Sequence[Usable], tried: Sequence[Sequence[Usable]]) -> Iterator[Sequence[Usable]]:
    """Yields each table that can be solved alone. Tables of tried sets are left out: a set determines as much."""
    before = {id(use) for selection in tried for use in selection}
    yield from ([use] for use in uses if id(use) not in before and _fitting(axes, [use], LARGEST_BLOCK))


def is_cellwise(use: Usable) -> bool:
    """Tells whether a table's queries treat all codes of an axis in the same way, on every axis."""
    measured = use.kept.measured
    whole = all(
        len(key.columns) == 1 and key.codes == tuple(range(measured.columns[key.columns[0]].size))
        for key in measured.keys_of(measured.tables[use.table]).values()
    )
    queries = measured.queries[measured.tables[use.table].group]
    return (
        whole and not use.seen and not any(isinstance(part, MatrixFactor) for item in queries for part in item.factors)
    )


def _fitting(axes: Axes, uses: Sequence[Usable], most: int) -> list[Usable]:
    """Returns the tables, from the first on, that together have blocks of at most `most` atoms."""
    atoms: dict[int, NDArray[np.intp]] = {}
    fitting = []
    for use in uses:
        if not is_cellwise(use):
            tried = dict(atoms)
            for seen in seen_by(axes, use):
                for axis, along in seen.along.items():
                    before = tried.get(axis)
                    tried[axis] = refine_atoms(
                        np.zeros(axes.lengths[axis], np.intp) if before is None else before, along
                    )
            if prod(int(atom.max()) + 1 for atom in tried.values()) > most:
                continue
            atoms = tried
        fitting.append(use)
    return fitting
