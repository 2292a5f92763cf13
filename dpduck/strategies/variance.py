"""Generalised least squares for marginals of any sizes, by ANOVA components: closed-form errors, and recovery.

A measurement of marginal A, with noise variance v_A, has a factor F_i for each attribute i, with F_i'F_i = alpha_i I +
beta_i J. n_i is the size of i, n_A the product of sizes in A. All measurements together have this precision about
component U of the table, divided by the number of all cells:

    d_U = sum over measured A containing U of
          (1/v_A) prod_{i in U} alpha_i/n_i prod_{i in A minus U} (alpha_i/n_i + beta_i)

All answers follow:

    Cov(cell of A, cell of B) = sum_{U in A and B} 1/(d_U n_A n_B) prod_{i in U} (n_i [cells agree on i] - 1).

From the noisy answers z_A, the estimate of component U of marginal U is

    r_U = (1/d_U) centred( sum over measured A containing U of (1/(n_A v_A)) margin_U(F_A' z_A) ).

Marginal B is the sum over U in B of r_U / prod_{i in B minus U} n_i, spread evenly. Both sums visit every array of the
workload's lattice once per attribute. The cost is about the released cells times their attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.lattice import Lattice, close_downward
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.kernel.queries.operators import CentredFactor, Factor, HadamardFactor, IdentityFactor
from dpduck.strategies.marginals.weights import hadamard_adjoint
from dpduck.strategies.measurements import FamilyMeasurements, Measurement
from dpduck.strategies.plan import Plan
from dpduck.values.arrays import FloatArray, IntegerArray

LEAST_VARIANCE = 1e-200
"""The least variance that is used, so that its inverse stays finite."""


def component_precisions(lattice: Lattice, measurements: Sequence[Measurement], noise: NoiseKind) -> FloatArray:
    """Returns the precision d_U (see above) about each component U of the lattice, 0 if no measurement contains U."""
    if isinstance(measurements, FamilyMeasurements):
        return _family_precisions(lattice, measurements, noise)
    precisions = np.zeros(len(lattice))
    for measurement in measurements:
        query = measurement.query
        variance = max(noise_variance(noise, measurement.parameter), LEAST_VARIANCE)
        precisions += _one_precision(lattice, query.attributes, query.factors, variance)
    return precisions


def _family_precisions(lattice: Lattice, family: FamilyMeasurements, noise: NoiseKind) -> FloatArray:
    """Returns every d_U from a family of measurements. Lattice sets take one transform, each other set one pass."""
    distinct = [max(noise_variance(noise, parameter), LEAST_VARIANCE) for parameter in family.parameters.distinct]
    variances = np.array(distinct)[family.parameters.which]
    numbers = np.array([lattice.numbers.get(members, -1) for members in family.attribute_sets], dtype=np.intp)
    inside = numbers >= 0
    starts = np.zeros(len(lattice))
    np.add.at(starts, numbers[inside], 1 / variances[inside])
    shares = [_shares(family.factors[attribute]) for attribute in lattice.attributes]
    starts *= lattice.products([share for share, _ in shares])
    precisions = lattice.sum_over_supersets(starts, [left / share for share, left in shares])
    for position in np.flatnonzero(~inside).tolist():
        members = family.attribute_sets[position]
        factors = [family.factors[attribute] for attribute in members]
        precisions += _one_precision(lattice, members, factors, float(variances[position]))
    return precisions


def _shares(factor: Factor) -> tuple[float, float]:
    """Returns a factor's precisions of a contrast and of the total: alpha/n and alpha/n + beta (see above)."""
    coefficients = gram(factor)
    if coefficients is None:
        raise TypeError(f"{type(factor).__name__} has no closed-form components")
    alpha, beta = coefficients
    return alpha / factor.size, (alpha + beta * factor.size) / factor.size


def _one_precision(lattice: Lattice, members: Sequence[int], factors: Sequence[Factor], variance: float) -> FloatArray:
    added = np.where(lattice.within(members), 1 / variance, 0.0)
    for attribute, factor in zip(members, factors, strict=True):
        share, left = _shares(factor)
        if attribute in lattice.attributes:
            holds = lattice.membership[:, lattice.attributes.index(attribute)]
            added *= np.where(holds, share, left)
        else:
            added *= left
    return added


def component_variances(lattice: Lattice, precisions: FloatArray) -> FloatArray:
    """Returns 1/d_U of all components: infinite without a measurement, 0 with an attribute of a single value."""
    sizes = np.asarray(lattice.sizes, dtype=np.float64)
    with np.errstate(divide="ignore"):
        variances: FloatArray = np.where(lattice.products(sizes - 1) > 0, 1 / precisions, 0.0)
    return variances


def marginal_variances(lattice: Lattice, variances: FloatArray) -> FloatArray:
    """Returns the variance of a cell of each marginal in the lattice. variances: 1/d_U of all components."""
    sizes = np.asarray(lattice.sizes, dtype=np.float64)
    parameter = variances * lattice.products(sizes - 1)
    cells = lattice.products(sizes)
    return lattice.sum_over_subsets(parameter, np.ones(len(sizes))) / cells / cells


def workload_variances(lattice: Lattice, measurements: Sequence[Measurement], noise: NoiseKind) -> tuple[float, ...]:
    """Predicts a cell's variance in each workload marginal after least squares. lattice: of the workload."""
    precisions = component_precisions(lattice, measurements, noise)
    by_set = marginal_variances(lattice, component_variances(lattice, precisions))
    return tuple(by_set[lattice.family].tolist())


def least_squares_variances(plan: Plan) -> tuple[float, ...]:
    """Predicts a cell's variance in each marginal under least squares, even if the plan names another recovery."""
    lattice = close_downward(plan.workload.marginals, plan.workload.sizes)
    return workload_variances(lattice, plan.measurements, plan.noise)


def cell_weights(lattice: Lattice, workload: MarginalWorkload) -> FloatArray:
    """Returns the weight of each lattice set's marginal times its cells, 0 if the marginal is not asked."""
    return lattice.family_totals(workload.weights) * lattice.products(lattice.sizes)


def direct_variance(sizes: Sequence[int], measured: Sequence[int], asked: Sequence[int], variance: float) -> float:
    """Returns the variance of a cell of marginal `asked` that sums noisy cells of the larger marginal `measured`."""
    return variance * prod([sizes[attribute] for attribute in set(measured) - set(asked)])


def direct_sources(
    workload: MarginalWorkload, measurements: Sequence[Measurement], noise: NoiseKind
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Returns the number of the measured table that answers each marginal, and the variance of an answered cell.

    The table is the marginal's own if it was measured, else the best one with all its attributes. One must exist.
    """
    tables = [measurement.query.attributes for measurement in measurements]
    variances = [noise_variance(noise, measurement.parameter) for measurement in measurements]
    own = {members: number for number, members in enumerate(tables)}
    holders = [frozenset(members) for members in tables]
    sources, predicted = [], []
    for marginal in workload.marginals:
        best, least = own.get(marginal, -1), inf
        if best >= 0:
            least = variances[best]
        else:
            for number, holder in enumerate(holders):
                if holder.issuperset(marginal):
                    here = direct_variance(workload.sizes, tables[number], marginal, variances[number])
                    best, least = (number, here) if here < least else (best, least)
        if best < 0:
            raise ValueError(f"no measured table contains the marginal {marginal}")
        sources.append(best)
        predicted.append(least)
    return tuple(sources), tuple(predicted)


BALANCED: frozenset[type[Factor]] = frozenset({IdentityFactor, CentredFactor, HadamardFactor})
"""Classes of factors F with F'F = alpha I + beta J, which `gram` returns."""


def gram(factor: Factor) -> tuple[int, int] | None:
    """Returns (alpha, beta) with F'F = alpha I + beta J, or None if the Gram matrix has another form.

    >>> gram(IdentityFactor(3)), gram(CentredFactor(3)), gram(HadamardFactor(3))
    ((1, 0), (9, -3), (4, -1))
    """
    if isinstance(factor, IdentityFactor):
        return 1, 0
    if isinstance(factor, CentredFactor):  # (n I - J)^2 = n^2 I - n J
        return factor.size**2, -factor.size
    if isinstance(factor, HadamardFactor):  # all rows but the constant one: m I - J
        return factor.rows + 1, -1
    return None


def adjoint(factor: Factor, tensor: FloatArray, axis: int) -> FloatArray:
    """Returns the factor's transpose times `tensor` along `axis`, for a factor in BALANCED."""
    if isinstance(factor, IdentityFactor):
        return tensor
    if isinstance(factor, CentredFactor):
        centred: FloatArray = factor.size * tensor - tensor.sum(axis=axis, keepdims=True)
        return centred
    if isinstance(factor, HadamardFactor):
        return hadamard_adjoint(factor.size, tensor, axis)
    raise TypeError(f"no adjoint for {type(factor).__name__}")


Members = tuple[int, ...]
Scalar = TypeVar("Scalar", np.int64, np.float64)


def recover_least_squares(
    workload: MarginalWorkload, measurements: Sequence[Measurement], noise: NoiseKind, noisy: Sequence[IntegerArray]
) -> tuple[FloatArray, ...]:
    """Returns the workload's marginals by least squares with weights 1/variance. Arrays have an axis per attribute."""
    if len(measurements) == 1:
        query = measurements[0].query
        plain = all(isinstance(factor, IdentityFactor) for factor in query.factors)
        if plain and set(query.attributes) >= set().union(*workload.marginals):
            sums = margins(noisy[0], query.attributes, set(workload.marginals))  # integers, exact
            return tuple(np.array(sums[marginal], dtype=np.float64) for marginal in workload.marginals)
    lattice = close_downward(workload.marginals, workload.sizes)
    precisions = component_precisions(lattice, measurements, noise)
    components = gather(lattice, workload.sizes, measurements, noise, noisy)
    for component, precision in zip(components, precisions.tolist(), strict=True):
        np.multiply(component, 1 / precision if precision > 0 else 0.0, out=component)
        centre(component)
    spread_evenly(lattice, components)
    return in_order(lattice, components)


def gather(
    lattice: Lattice,
    sizes: Sequence[int],
    measurements: Sequence[Measurement],
    noise: NoiseKind,
    noisy: Sequence[IntegerArray],
) -> list[FloatArray]:
    """Sums (1/(n_A v_A)) margin_U(F_A' z_A) over measurements A, for each set U of the lattice, without centring."""
    sums: list[FloatArray | None] = [None] * len(lattice)
    later: list[tuple[int, FloatArray]] = []  # additions to one set only, not to its subsets
    for measurement, answers in zip(measurements, noisy, strict=True):
        members = measurement.query.attributes
        number = lattice.numbers.get(members)
        scale = 1 / noise_variance(noise, measurement.parameter)
        factors = measurement.query.factors
        if members and all(isinstance(factor, CentredFactor) for factor in factors):
            if number is not None:  # F'z is n_A times z centred, and its margins vanish
                later.append((number, np.multiply(answers, scale)))
            continue
        back: FloatArray = np.multiply(answers, scale / np.prod([float(sizes[i]) for i in members]))
        for axis, factor in enumerate(factors):
            back = adjoint(factor, back, axis)
        if number is not None:
            _add(sums, number, back)
        else:
            wanted = {lattice.sets[inside] for inside in np.flatnonzero(lattice.within(members)).tolist()}
            later.extend((lattice.numbers[entry], total) for entry, total in margins(back, members, wanted).items())
    _sum_downward(lattice, sums)
    for number, added in later:
        _add(sums, number, added)
    return [
        np.zeros(_shape(lattice, number)) if entry is None else np.asarray(entry) for number, entry in enumerate(sums)
    ]


def _add(sums: list[FloatArray | None], number: int, added: FloatArray) -> None:
    before = sums[number]
    sums[number] = added if before is None else before + added


def _shape(lattice: Lattice, number: int) -> tuple[int, ...]:
    order = int(lattice.orders[number])
    row = lattice.members[order][number - lattice.offsets[order]]
    return tuple(lattice.sizes[attribute] for attribute in row.tolist())


def _sum_downward(lattice: Lattice, sums: list[FloatArray | None]) -> None:
    """Adds to each set's array the margins of all its supersets' arrays, in place, one attribute after the other."""
    for step in lattice.steps:
        for whole, less, axis in zip(*(column.tolist() for column in step), strict=True):
            total = sums[whole]
            if total is None:
                continue
            _add(sums, less, np.asarray(total.sum(axis=axis)))


def centre(component: FloatArray) -> None:
    """Subtracts the mean along every axis, in place. This leaves the ANOVA component of all axes."""
    for axis, size in enumerate(component.shape):
        component -= component.sum(axis=axis, keepdims=True) / size


def spread_evenly(lattice: Lattice, components: list[FloatArray], *, averaged: bool = True) -> None:
    """Turns components into marginals, in place: adds the components of all subsets to every set, along its new axes.

    averaged: True divides by the size of each new axis (ANOVA components). False repeats values (Fourier sums).
    """
    for size, step in zip(lattice.sizes, lattice.steps, strict=True):
        share = 1 / size if averaged else 1.0
        for whole, less, axis in zip(*(column.tolist() for column in step), strict=True):
            components[whole] += np.expand_dims(components[less] * share, axis)


def in_order(lattice: Lattice, tables: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Returns the table of each marginal that the lattice was built from, in that order. No two share memory."""
    seen: set[int] = set()
    answers = []
    for number in lattice.family.tolist():
        answers.append(tables[number].copy() if number in seen else tables[number])
        seen.add(number)
    return tuple(np.asarray(table, dtype=np.float64) for table in answers)


def margins(table: NDArray[Scalar], members: Members, wanted: Iterable[Members]) -> dict[Members, NDArray[Scalar]]:
    """Sums a table onto each wanted subset of its attributes. Attributes with most values are summed away first."""
    sizes = dict(zip(members, table.shape, strict=True))
    decided = sorted(members, key=lambda attribute: -sizes[attribute])
    sums: dict[Members, NDArray[Scalar]] = {}
    pending: list[tuple[NDArray[Scalar], Members, int, set[Members]]] = [(table, members, 0, set(wanted))]
    while pending:
        current, left, position, asked = pending.pop()
        if position == len(decided):
            sums[left] = current
            continue
        attribute = decided[position]
        keeping = {asked_set for asked_set in asked if attribute in asked_set}
        dropping = asked - keeping
        if keeping:
            pending.append((current, left, position + 1, keeping))
        if dropping:
            axis = left.index(attribute)
            rest = left[:axis] + left[axis + 1 :]
            pending.append((np.asarray(current.sum(axis=axis)), rest, position + 1, dropping))
    return sums
