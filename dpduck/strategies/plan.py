"""Plans: measurements with their noise, frozen and public, and the measurements of strategies over marginals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Protocol, overload

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.lattice import MOST_STEPS, Lattice, MarginalWorkload, close_downward, closure_steps
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.operators import Factor, IdentityFactor, KroneckerQuery, hadamard_transform
from dpduck.values.arrays import FloatArray, IntegerArray


@dataclass(frozen=True)
class Measurement:
    """One integer query and its noise, independent and alike on every row of the query.

    parameter: exact rational, in the integer units of the query. Laplace: the scale b, P(k) proportional to
    exp(-|k|/b). Gaussian: the parameter sigma^2, P(k) proportional to exp(-k^2 / (2 sigma^2)).
    """

    query: KroneckerQuery
    parameter: Fraction


CONSISTENCIES = ("l2", "l1", "linf", "none")
"""Least squares, the two linear programs of the paper, or each answer from its own measurement alone."""


class PlanPart(Protocol):
    """Measurements with a recovery of their own, for one or more grouping sets."""

    @property
    def measurements(self) -> Sequence[Measurement]: ...

    @property
    def variances(self) -> tuple[FloatArray, ...]:
        """Returns the predicted variance of every answer, an array per grouping set."""
        ...

    def recover(self, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
        """Returns the answers of every grouping set, one axis per attribute, from one array per measurement."""
        ...


@dataclass(frozen=True)
class Plan:
    """The measurements for one aggregate, their recovery, and the predicted error of every workload marginal.

    variances: predicted noise variance of a cell after recovery, for each of workload.marginals in order. If a
    marginal's cells differ, it is the largest.
    measurements: a tuple, or a sequence that builds its items on access (FamilyMeasurements).
    consistency: recovery of answers, one of CONSISTENCIES. note: a line for dp_explain.
    planning_seconds: time of planning, which is not part of the plan's identity.
    parts: of ranges, which have a recovery of their own. Their measurements follow each other. Empty for marginals.
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
        """Returns the variance of every released cell, an array per marginal with an axis per attribute."""
        if self.parts:
            return tuple(variances for part in self.parts for variances in part.variances)
        shapes = ([self.workload.sizes[attribute] for attribute in marginal] for marginal in self.workload.marginals)
        return tuple(np.full(shape, variance) for shape, variance in zip(shapes, self.variances, strict=True))

    @property
    def cells(self) -> int:
        """Returns the number of released cells."""
        return sum(table.size for table in self.cell_variances) if self.parts else self.workload.cells

    @property
    def total_variance(self) -> float:
        """Returns the sum of the variances of all released cells, by weight."""
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
        """Returns the largest predicted standard error of a released cell."""
        return float(max(self.variances) ** 0.5)


def plan_of_parts(
    strategy: str, noise: NoiseKind, workload: MarginalWorkload, parts: Sequence[PlanPart], note: str, seconds: float
) -> Plan:
    """Returns the plan with these parts. seconds: its planning time."""
    measurements = tuple(measurement for part in parts for measurement in part.measurements)
    largest = tuple(float(variances.max()) for part in parts for variances in part.variances)
    return Plan(
        strategy, noise, workload, measurements, largest, note=note, planning_seconds=seconds, parts=tuple(parts)
    )


def marginal_query(attributes: tuple[int, ...], sizes: tuple[int, ...]) -> KroneckerQuery:
    """Returns the marginal on `attributes` of a domain with these sizes."""
    return KroneckerQuery(attributes, tuple(IdentityFactor(sizes[attribute]) for attribute in attributes))


def noisy_queries(plan: Plan) -> list[tuple[KroneckerQuery, Noise]]:
    """Lists the measured queries with their noise. Refuses noise that cannot be drawn. Parameters become noise once."""
    noises: dict[int, tuple[Fraction, Noise]] = {}
    queries = []
    for measurement in plan.measurements:
        parameter = measurement.parameter
        if id(parameter) not in noises:  # it is stored as well, so that no other parameter gets its id
            noises[id(parameter)] = parameter, Noise(plan.noise, parameter)
        queries.append((measurement.query, noises[id(parameter)][1]))
    return queries


# Many measurements of one family, built on access: planning 166,751 marginals makes no object for each.


@dataclass(frozen=True, eq=False)
class Parameters(Sequence[Fraction]):
    """Exact parameters, one per measurement. Equal ones are stored once.

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
    """Measurements of one kind for many sets: along attribute i every query has the shared factor `factors[i]`.

    attribute_sets: increasing domain positions. factors: by domain position, of which only used ones have to be right.
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


@dataclass(frozen=True)
class PlanningProblem:
    """Problem of planning marginals: all input of a planner, except whether budgets are optimal or uniform.

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
        """Returns the workload's downward closure, built once for all candidates."""
        return close_downward(self.workload.marginals, self.workload.sizes)

    @cached_property
    def few_subsets(self) -> bool:
        """Tells whether strategies over the workload's closure are candidates. Its sums must take seconds at most."""
        return closure_steps(self.workload.marginals) <= MOST_STEPS

    def tables(self, sets: Sequence[tuple[int, ...]], parameters: Parameters) -> FamilyMeasurements:
        """Returns measurements of the marginals on these sets, cell by cell."""
        return FamilyMeasurements(sets, [IdentityFactor(size) for size in self.workload.sizes], parameters)

    def plan(self, strategy: str, measurements: Sequence[Measurement], variances: tuple[float, ...], note: str) -> Plan:
        """Returns a plan of this problem."""
        return Plan(strategy, self.noise, self.workload, measurements, variances, self.consistency, note)


def factor_kinds(plan: Plan) -> set[type[Factor]]:
    """Returns the kinds of factors in a plan's measurements."""
    if isinstance(plan.measurements, FamilyMeasurements):
        return {type(factor) for factor in plan.measurements.factors}
    return {type(factor) for measurement in plan.measurements for factor in measurement.query.factors}


# Measurements of strategies over marginals, and their weights: identity, marginals, residuals, Fourier.


def base_attributes(workload: MarginalWorkload) -> tuple[int, ...]:
    """Returns every attribute that some marginal uses, increasing.

    >>> base_attributes(MarginalWorkload((2, 3, 4), ((2,), (0, 2)), (1.0, 1.0)))
    (0, 2)
    """
    return tuple(sorted(set().union(*workload.marginals)))


# Q: each marginal of the workload is measured itself. Its cells are one group with C = 1 (paper, section 3.2).


def distinct_marginals(workload: MarginalWorkload) -> tuple[tuple[tuple[int, ...], ...], NDArray[np.float64]]:
    """Returns the distinct marginals and, for each, s_r: the summed weight of its cells."""
    weights: dict[tuple[int, ...], float] = {}
    for marginal, weight in zip(workload.marginals, workload.weights, strict=True):
        cells = prod([workload.sizes[attribute] for attribute in marginal])
        weights[marginal] = weights.get(marginal, 0.0) + weight * cells
    return tuple(weights), np.fromiter(weights.values(), dtype=np.float64, count=len(weights))


# R: the residual basis, optimal for marginals under Gaussian noise (ResidualPlanner, arXiv 2305.08175).
#
# For every subset A of a workload marginal the integer query kron over i in A of (n_i I - 11') is measured
# once. With p_A = prod (n_i - 1)/n_i, its squared L2 sensitivity is prod n_i (n_i - 1) = p_A n_A^2.


def residual_weights(lattice: Lattice, cell_weights: FloatArray) -> FloatArray:
    """Returns the summed recovery weight of the rows of each set's residual query, in the query's integer units.

    cell_weights: w_B N_B of each set's marginal, 0 if it is not asked. Per unit of sigma_A^2 they add up to
    `v_A = p_A sum over B containing A of w_B N_B prod_{j in B minus A} n_j^-2`. The integer query's variance is
    sigma_A^2 n_A^2, so its weight is v_A / n_A^2.
    """
    sizes = np.asarray(lattice.sizes, dtype=np.float64)
    shares = lattice.products((sizes - 1) / sizes)
    above = lattice.sum_over_supersets(cell_weights, sizes**-2)
    weights: FloatArray = shares * above / lattice.products(sizes) ** 2
    return weights


# F: unnormalised Hadamard rows on the bits of each attribute (Cormode et al., section 4.1).


def code_count(size: int) -> int:
    """Returns the number of codes m of an attribute of `size` values: the next power of two.

    >>> code_count(9), code_count(16), code_count(1)
    (16, 16, 1)
    """
    return 1 << (size - 1).bit_length()


def hadamard_adjoint(size: int, tensor: FloatArray, axis: int) -> FloatArray:
    """Returns a HadamardFactor's transpose times `tensor` along `axis`: coefficients back to the valid codes."""
    moved = np.moveaxis(tensor, axis, 0)
    codes = np.zeros((code_count(size), *moved.shape[1:]), dtype=tensor.dtype)
    codes[1:] = moved
    values: FloatArray = np.ascontiguousarray(np.moveaxis(hadamard_transform(codes)[:size], 0, axis))
    return values


def coefficient_weights(lattice: Lattice, cell_weights: FloatArray) -> FloatArray:
    """Returns the summed recovery weight s_T of all coefficients with support T, for each set T of the lattice.

    cell_weights: the summed weight of the valid cells of each set's marginal, 0 if it is not asked.
    A cell of B is the sum of chi(cell) f / m_B over the coefficients f with support in B (the paper, Theorem 4.1 (2)).
    So each coefficient has a weight: the sum of cell_weights(B) / m_B^2 over the sets B that contain T. The number of
    coefficients with support T is prod (m_i - 1).
    """
    codes = np.array([code_count(size) for size in lattice.sizes], dtype=np.float64)
    each = lattice.sum_over_supersets(cell_weights / lattice.products(codes) ** 2, np.ones(len(codes)))
    weights: FloatArray = each * lattice.products(codes - 1)
    return weights
