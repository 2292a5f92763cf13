"""Workload of weighted marginals over a domain."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class MarginalWorkload:
    """Workload of one marginal per grouping set, each with a weight for its squared errors.

    >>> MarginalWorkload((2, 3), ((0,), (0, 1)), (1.0, 1.0)).cells
    8
    """

    sizes: tuple[int, ...]  # numbers of values n_1..n_d
    marginals: tuple[tuple[int, ...], ...]  # strictly increasing attribute positions, () for the grand total
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.marginals) != len(self.weights):
            raise ValueError("a workload needs one weight for each marginal")

    @property
    def cells(self) -> int:
        """Returns the number of released cells."""
        return sum(prod(self.sizes[attribute] for attribute in marginal) for marginal in self.marginals)
