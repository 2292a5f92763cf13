"""What will be measured and with how much noise: frozen, public, decided before any data is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import overload

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.lattice import MarginalWorkload
from dpduck.trusted.noise.law import Noise, NoiseKind
from dpduck.trusted.operators import Factor, IdentityFactor, KroneckerQuery


@dataclass(frozen=True)
class Measurement:
    """One integer query and its noise, independent and alike on every row of the query.

    parameter: Laplace: the scale b, P(k) proportional to exp(-|k|/b); Gaussian: the parameter sigma^2,
    P(k) proportional to exp(-k^2 / (2 sigma^2)). Exact rationals, in the integer units of the query.
    """

    query: KroneckerQuery
    parameter: Fraction


CONSISTENCIES = ("l2", "l1", "linf", "none")
"""Least squares, the two linear programs of the paper, or each answer from its own measurement alone."""


@dataclass(frozen=True)
class Plan:
    """The measurements for one aggregate and the predicted error of every workload marginal.

    variances: predicted noise variance of a cell of each workload marginal after recovery (all its cells alike,
    or the largest of them), in the order of workload.marginals.
    measurements: a tuple, or a sequence that builds its items when asked (planning/plan.py).
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
    """What is measured, with its noise; refuses noise that cannot be drawn. One parameter is one noise."""
    known: dict[int, tuple[Fraction, Noise]] = {}
    found = []
    for measurement in plan.measurements:
        parameter = measurement.parameter
        if id(parameter) not in known:  # the parameter itself is kept, so that its number stays its own
            known[id(parameter)] = parameter, Noise(plan.noise, parameter)
        found.append((measurement.query, known[id(parameter)][1]))
    return found


# Many measurements of one family, built when asked: planning 166,751 marginals makes no object for each.


@dataclass(frozen=True, eq=False)
class Parameters(Sequence[Fraction]):
    """One exact parameter per measurement; equal ones are held once.

    distinct: the different values. which: for each measurement, the position of its value in `distinct`.
    """

    distinct: tuple[Fraction, ...]
    which: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.which)

    @overload
    def __getitem__(self, item: int) -> Fraction: ...
    @overload
    def __getitem__(self, item: slice) -> Parameters: ...
    def __getitem__(self, item: int | slice) -> Fraction | Parameters:
        if isinstance(item, slice):
            return Parameters(self.distinct, self.which[item])
        return self.distinct[int(self.which[item])]


@dataclass(frozen=True, eq=False)
class FamilyMeasurements(Sequence[Measurement]):
    """Asks the same kind of question of every set: along attribute i the factor `factors[i]`, shared by all.

    attribute_sets: increasing domain positions. factors: by domain position; only those that occur need be right.
    """

    attribute_sets: Sequence[tuple[int, ...]]
    factors: Sequence[Factor]
    parameters: Parameters

    def __len__(self) -> int:
        return len(self.attribute_sets)

    @overload
    def __getitem__(self, item: int) -> Measurement: ...
    @overload
    def __getitem__(self, item: slice) -> Sequence[Measurement]: ...
    def __getitem__(self, item: int | slice) -> Measurement | Sequence[Measurement]:
        if isinstance(item, slice):
            return FamilyMeasurements(self.attribute_sets[item], self.factors, self.parameters[item])
        members = self.attribute_sets[item]
        query = KroneckerQuery(members, tuple(self.factors[attribute] for attribute in members))
        return Measurement(query, self.parameters[item])


def measured_kinds(plan: Plan) -> set[type[Factor]]:
    """The kinds of factors that a plan measures with."""
    if isinstance(plan.measurements, FamilyMeasurements):
        return {type(factor) for factor in plan.measurements.factors}
    return {type(factor) for measurement in plan.measurements for factor in measurement.query.factors}
