"""Plans: measurements with their noise, their recovery and their predicted errors. All of this is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Protocol

import numpy as np

from dpduck.algebra.lattice import MOST_STEPS, Lattice, close_downward, closure_steps
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.operators import Factor, IdentityFactor, KroneckerQuery
from dpduck.strategies.measurements import FamilyMeasurements, Measurement, Parameters
from dpduck.values.arrays import FloatArray, IntegerArray

CONSISTENCIES = ("l2", "l1", "linf", "none")
"""Least squares, the paper's linear programs for two norms, or each answer from one measurement alone."""


class PlanPart(Protocol):
    """Measurements that recover their own answers, for one or more grouping sets."""

    @property
    def measurements(self) -> Sequence[Measurement]: ...

    @property
    def variances(self) -> tuple[FloatArray, ...]: ...

    def recover(self, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
        """Returns an array of answers per grouping set, one axis per attribute. noisy: an array per measurement."""
        ...


@dataclass(frozen=True)
class Plan:
    """The measurements for one aggregate, their recovery, and the predicted error of every workload marginal.

    variances: for each of workload.marginals in order, the largest predicted noise variance of a cell after recovery.
    measurements: a tuple, or a sequence that builds its items on access (FamilyMeasurements). consistency: recovery of
    answers, one of CONSISTENCIES. note: a line for dp_explain. planning_seconds: comparisons of plans ignore this time.
    parts: for ranges, the parts that recover the answers, in the order of measurements. Empty for marginals.
    """

    strategy: str
    noise: NoiseKind
    workload: MarginalWorkload
    measurements: Sequence[Measurement]
    variances: tuple[float, ...]
    consistency: str = "l2"
    note: str = ""
    planning_seconds: float = field(default=0.0, compare=False)
    parts: tuple[PlanPart, ...] = ()

    @property
    def cell_variances(self) -> tuple[FloatArray, ...]:
        if self.parts:
            return tuple(variances for part in self.parts for variances in part.variances)
        shapes = ([self.workload.sizes[attribute] for attribute in marginal] for marginal in self.workload.marginals)
        return tuple(np.full(shape, variance) for shape, variance in zip(shapes, self.variances, strict=True))

    @property
    def cells(self) -> int:
        return sum(table.size for table in self.cell_variances) if self.parts else self.workload.cells

    @property
    def total_variance(self) -> float:
        """Returns the sum over all released cells of the marginal's weight times the cell's variance."""
        sizes = self.workload.sizes
        if self.parts:
            pairs = zip(self.workload.weights, self.cell_variances, strict=True)
            return float(sum(weight * float(variances.sum()) for weight, variances in pairs))
        return sum(
            weight * variance * prod([sizes[attribute] for attribute in marginal])
            for marginal, weight, variance in zip(
                self.workload.marginals, self.workload.weights, self.variances, strict=True
            )
        )

    @property
    def worst_stderr(self) -> float:
        return float(max(self.variances) ** 0.5)


def plan_of_parts(
    strategy: str, noise: NoiseKind, workload: MarginalWorkload, parts: Sequence[PlanPart], note: str, seconds: float
) -> Plan:
    """Returns the plan that has these parts. seconds: the time that planning took."""
    measurements = tuple(measurement for part in parts for measurement in part.measurements)
    largest = tuple(float(variances.max()) for part in parts for variances in part.variances)
    return Plan(
        strategy, noise, workload, measurements, largest, note=note, planning_seconds=seconds, parts=tuple(parts)
    )


def marginal_query(attributes: tuple[int, ...], sizes: tuple[int, ...]) -> KroneckerQuery:
    """Returns the query for every cell of the marginal on `attributes`. sizes: of all attributes in the domain."""
    return KroneckerQuery(attributes, tuple(IdentityFactor(sizes[attribute]) for attribute in attributes))


def noisy_queries(plan: Plan) -> list[tuple[KroneckerQuery, Noise]]:
    """Lists the measured queries with their noise. Refuses noise that cannot be drawn."""
    noises: dict[int, tuple[Fraction, Noise]] = {}
    queries = []
    for measurement in plan.measurements:
        parameter = measurement.parameter
        if id(parameter) not in noises:  # it is stored as well, so that no other parameter gets its id
            noises[id(parameter)] = parameter, Noise(plan.noise, parameter)
        queries.append((measurement.query, noises[id(parameter)][1]))
    return queries


@dataclass(frozen=True)
class PlanningProblem:
    """All input of a planner for marginals, except whether budgets are optimal or uniform.

    amount: epsilon for Laplace, rho for Gaussian noise. unit_bound: rows of one privacy unit that the answers see.
    planning_seconds: time limit of strategies that search. row_bound: the most that one row adds to a cell.
    squared_bound: a unit's squared L2 sensitivity over the cells of all attributes, unit_bound^2 by default.
    """

    workload: MarginalWorkload
    noise: NoiseKind
    amount: Fraction
    unit_bound: int
    consistency: str = "l2"
    planning_seconds: float = 2.0
    row_bound: int = 1
    squared_bound: int | None = None

    @cached_property
    def lattice(self) -> Lattice:
        """Returns all subsets of the workload's marginals, built once for all candidates."""
        return close_downward(self.workload.marginals, self.workload.sizes)

    @cached_property
    def few_subsets(self) -> bool:
        return closure_steps(self.workload.marginals) <= MOST_STEPS

    def tables(self, sets: Sequence[tuple[int, ...]], parameters: Parameters) -> FamilyMeasurements:
        return FamilyMeasurements(sets, [IdentityFactor(size) for size in self.workload.sizes], parameters)

    def plan(self, strategy: str, measurements: Sequence[Measurement], variances: tuple[float, ...], note: str) -> Plan:
        return Plan(strategy, self.noise, self.workload, measurements, variances, self.consistency, note)


def factor_kinds(plan: Plan) -> set[type[Factor]]:
    """Returns the classes of the Kronecker factors in a plan's queries."""
    if isinstance(plan.measurements, FamilyMeasurements):
        return {type(factor) for factor in plan.measurements.factors}
    return {type(factor) for measurement in plan.measurements for factor in measurement.query.factors}
