"""Covering designs: sets of blocks in which every t points lie together in some block.

A view (measured marginal) with the attributes of a block answers all t-way marginals inside it. So a good set of views
under pure epsilon is a weighted covering design with few blocks. Several attributes may share a point, and points may
stay empty. `python -m benchmarks.papers.covering_designs` writes the file of designs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpduck.values.arrays import BoolArray

FILE = Path(__file__).with_name("designs.npz")
MOST_POINTS = 130
"""Most points of a design. Larger designs are left out."""


@dataclass(frozen=True, order=True)
class DesignFamily:
    """Covering design that can be built: every `strength` points lie in a common block. parameters: of its kind."""

    kind: str
    parameters: tuple[int, ...]
    points: int
    blocks: int
    block_size: int
    strength: int

    def __str__(self) -> str:
        if self.kind == "subsets":
            size, points = self.parameters
            return f"all {size}-subsets of {points} groups"
        if self.kind == "circles":
            return f"inversive plane of order {self.parameters[0]}"
        dimension, length, order = self.parameters
        space = {"affine": "AG", "projective": "PG"}[self.kind]
        flats = {1: "lines", 2: "planes"}.get(dimension, f"{dimension}-flats")
        return f"{flats} of {space}({length},{order})"

    def build(self) -> BoolArray:
        """Returns whether each block has each point, shape (blocks, points)."""
        return _build(self)


def families(strength: int, attributes: int, most_blocks: int) -> tuple[DesignFamily, ...]:
    """Returns all known designs of at least this strength that may serve this many attributes, in a fixed order.

    A design with too few points has a block of all points. Points may outnumber attributes fourfold.

    >>> [family.parameters for family in families(2, 3, 3)]
    [(1, 1), (2, 2), (2, 3), (3, 3), (4, 4)]
    """
    most_points = min(4 * attributes + 3, MOST_POINTS)
    stored = (family for family in _load_families() if family.points <= most_points)
    every = {*_subset_families(strength, attributes + 1), *stored}
    candidates = (family for family in every if family.strength >= min(strength, family.points))
    return tuple(sorted(family for family in candidates if family.blocks <= most_blocks))


def _subset_families(strength: int, most_points: int) -> Iterator[DesignFamily]:
    """Yields designs of all r-subsets of g points, of strength r, for r up to strength + 1, r = g - 1 and r = g."""
    for points in range(1, most_points + 1):
        for size in {*range(1, min(strength + 2, points) + 1), max(1, points - 1), points}:
            yield DesignFamily("subsets", (size, points), points, comb(points, size), size, size)


@lru_cache(maxsize=1)
def _load_families() -> dict[DesignFamily, NDArray[np.uint8]]:
    """Returns the designs in FILE, each with the points of its blocks, packed as eight bits in a byte."""
    with np.load(FILE) as arrays:
        named = [
            DesignFamily(str(kind), tuple(row[: 1 if kind == "circles" else 3]), *row[3:])
            for kind, row in zip(arrays["kinds"].tolist(), arrays["figures"].tolist(), strict=True)
        ]
        return {family: arrays[str(family)] for family in named}


@lru_cache(maxsize=256)
def _build(family: DesignFamily) -> BoolArray:
    shape = (family.blocks, family.points)
    if family.kind == "subsets":
        blocks = np.zeros(shape, dtype=np.bool_)
        for row, block in enumerate(combinations(range(family.points), family.block_size)):
            blocks[row, list(block)] = True
    else:
        blocks = np.unpackbits(_load_families()[family], count=family.blocks * family.points).reshape(shape) != 0
    blocks.setflags(write=False)
    return blocks
