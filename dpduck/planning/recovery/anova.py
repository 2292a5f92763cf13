"""Generalised least squares for marginals of any sizes, one ANOVA component at a time.

With S'S/v diagonal on the ranges of the projectors P_U, the estimate of the component U of marginal U is

    r_U = (1/d_U) centred( sum over measured A containing U of (1/(n_A v_A)) margin_U(F_A' z_A) ),

and marginal B is the sum over U in B of r_U / prod_{i in B minus U} n_i, spread evenly. Both sums run over the
workload's lattice, every array visited once per attribute: cost about the released cells times their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.lattice import Lattice, MarginalWorkload, close_downward
from dpduck.planning.plan import Measurement
from dpduck.planning.variance import adjoint, component_precisions
from dpduck.trusted.noise.law import NoiseKind, noise_variance
from dpduck.trusted.operators import CentredFactor, IdentityFactor
from dpduck.values.arrays import FloatArray, IntegerArray

Members = tuple[int, ...]
Scalar = TypeVar("Scalar", np.int64, np.float64)


def recover_least_squares(
    workload: MarginalWorkload, measurements: Sequence[Measurement], noise: NoiseKind, noisy: Sequence[IntegerArray]
) -> tuple[FloatArray, ...]:
    """Returns the least squares answer of every workload marginal, shape (n_i for i in it), weights 1/variance."""
    if len(measurements) == 1:
        query = measurements[0].query
        plain = all(isinstance(factor, IdentityFactor) for factor in query.factors)
        if plain and set(query.attributes) >= set().union(*workload.marginals):
            return sums_of_one(workload, query.attributes, noisy[0])
    lattice = close_downward(workload.marginals, workload.sizes)
    precisions = component_precisions(lattice, measurements, noise)
    components = gather(lattice, workload.sizes, measurements, noise, noisy)
    for component, precision in zip(components, precisions.tolist(), strict=True):
        np.multiply(component, 1 / precision if precision > 0 else 0.0, out=component)
        centre(component)
    spread_evenly(lattice, components)
    return in_order(lattice, components)


def sums_of_one(workload: MarginalWorkload, members: Members, table: IntegerArray) -> tuple[FloatArray, ...]:
    """Returns marginals of one noisy table: integers, exact."""
    sums = margins(table, members, set(workload.marginals))
    return tuple(np.array(sums[marginal], dtype=np.float64) for marginal in workload.marginals)


def gather(
    lattice: Lattice,
    sizes: Sequence[int],
    measurements: Sequence[Measurement],
    noise: NoiseKind,
    noisy: Sequence[IntegerArray],
) -> list[FloatArray]:
    """Sums (1/(n_A v_A)) margin_U(F_A' z_A) for every set U of the lattice, not yet centred."""
    sums: list[FloatArray | None] = [None] * len(lattice)
    later: list[tuple[int, FloatArray]] = []  # adds to one set alone, not to its subsets
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
            later.extend((lattice.numbers[found], total) for found, total in margins(back, members, wanted).items())
    _sum_downward(lattice, sums)
    for number, added in later:
        _add(sums, number, added)
    return [
        np.zeros(_shape(lattice, number)) if found is None else np.asarray(found) for number, found in enumerate(sums)
    ]


def _add(sums: list[FloatArray | None], number: int, added: FloatArray) -> None:
    """Add an array to one set's sum."""
    before = sums[number]
    sums[number] = added if before is None else before + added


def _shape(lattice: Lattice, number: int) -> tuple[int, ...]:
    """Shape of the array of one set of the lattice."""
    order = int(lattice.orders[number])
    row = lattice.members[order][number - lattice.offsets[order]]
    return tuple(lattice.sizes[attribute] for attribute in row.tolist())


def _sum_downward(lattice: Lattice, sums: list[FloatArray | None]) -> None:
    """Add to every set the margins of all its supersets, in place, one attribute after another."""
    for step in lattice.steps:
        for whole, less, axis in zip(*(column.tolist() for column in step), strict=True):
            found = sums[whole]
            if found is None:
                continue
            _add(sums, less, np.asarray(found.sum(axis=axis)))


def centre(component: FloatArray) -> None:
    """Subtract the mean along every axis, in place: the projector on the range of P_U."""
    for axis, size in enumerate(component.shape):
        component -= component.sum(axis=axis, keepdims=True) / size


def spread_evenly(lattice: Lattice, components: list[FloatArray], *, averaged: bool = True) -> None:
    """Turn components into marginals, in place: add to every set the components of its subsets, over the new cells.

    averaged: divide by the size of each axis that is added (ANOVA components); else repeat (Fourier sums).
    """
    for size, step in zip(lattice.sizes, lattice.steps, strict=True):
        share = 1 / size if averaged else 1.0
        for whole, less, axis in zip(*(column.tolist() for column in step), strict=True):
            components[whole] += np.expand_dims(components[less] * share, axis)


def in_order(lattice: Lattice, tables: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Returns the tables of the closed family in its order, each an array of its own."""
    seen: set[int] = set()
    answers = []
    for number in lattice.family.tolist():
        answers.append(tables[number].copy() if number in seen else tables[number])
        seen.add(number)
    return tuple(np.asarray(table, dtype=np.float64) for table in answers)


def margins(table: NDArray[Scalar], members: Members, wanted: Iterable[Members]) -> dict[Members, NDArray[Scalar]]:
    """Sums of a table onto each wanted subset of its attributes; larger attributes are summed away first."""
    sizes = dict(zip(members, table.shape, strict=True))
    decided = sorted(members, key=lambda attribute: -sizes[attribute])
    found: dict[Members, NDArray[Scalar]] = {}
    pending: list[tuple[NDArray[Scalar], Members, int, set[Members]]] = [(table, members, 0, set(wanted))]
    while pending:
        current, left, position, asked = pending.pop()
        if position == len(decided):
            found[left] = current
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
    return found
