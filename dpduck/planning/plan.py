"""What will be measured and with how much noise: frozen, public, decided before any data is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

from dpduck.trusted.noise import Noise, NoiseKind
from dpduck.trusted.operators import IdentityFactor, KroneckerQuery
from dpduck.workload.marginals import MarginalWorkload


@dataclass(frozen=True)
class Measurement:
    """One integer query and its noise, independent and alike on every row of the query.

    spread: Laplace: the scale b, P(k) proportional to exp(-|k|/b); Gaussian: the parameter sigma^2,
    P(k) proportional to exp(-k^2 / (2 sigma^2)). Exact rationals, in the integer units of the query.
    """

    query: KroneckerQuery
    spread: Fraction


CONSISTENCIES = ("l2", "l1", "linf", "none")
"""Least squares, the two linear programs of the paper, or each answer from its own measurement alone."""


@dataclass(frozen=True)
class Plan:
    """The measurements for one aggregate and the predicted error of every workload marginal.

    variances: predicted noise variance of a cell of each workload marginal after recovery (all its cells alike,
    or the largest of them), in the order of workload.marginals.
    measurements: a tuple, or a sequence that builds its items when asked (planning/measurement_list.py).
    consistency: how answers are recovered, one of CONSISTENCIES. note: a line for dp_explain.
    planning_seconds: how long planning took; no part of what the plan is.
    """

    strategy: str
    noise: NoiseKind
    workload: MarginalWorkload
    measurements: Sequence[Measurement]
    variances: tuple[float, ...]
    consistency: str = "l2"
    note: str = ""
    planning_seconds: float = field(default=0.0, compare=False)

    @property
    def total_variance(self) -> float:
        """Sum over all released cells, by weight."""
        sizes = self.workload.sizes
        return sum(
            weight * variance * prod([sizes[attribute] for attribute in marginal])
            for marginal, weight, variance in zip(
                self.workload.marginals, self.workload.weights, self.variances, strict=True
            )
        )

    @property
    def worst_stderr(self) -> float:
        """Largest predicted standard error of a released cell."""
        return float(max(self.variances) ** 0.5)


def marginal_query(attributes: tuple[int, ...], sizes: tuple[int, ...]) -> KroneckerQuery:
    """The marginal on `attributes` of a domain with these sizes."""
    return KroneckerQuery(attributes, tuple(IdentityFactor(sizes[attribute]) for attribute in attributes))


def noisy_queries(plan: Plan) -> list[tuple[KroneckerQuery, Noise]]:
    """What is measured, with its noise; refuses noise that cannot be drawn. One spread is one noise."""
    known: dict[int, tuple[Fraction, Noise]] = {}
    found = []
    for measurement in plan.measurements:
        spread = measurement.spread
        if id(spread) not in known:  # the spread itself is kept, so that its number stays its own
            known[id(spread)] = spread, Noise(plan.noise, spread)
        found.append((measurement.query, known[id(spread)][1]))
    return found
