"""The cells of a release: one table over all of its columns, whose sums are the consistent margins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from math import ceil, log2

import numpy as np
import scipy

from dpduck.database.measured import Measured
from dpduck.frontend.select.known import conjuncts
from dpduck.frontend.select.request import Aggregate, Question
from dpduck.mechanisms.known.axes import weighted
from dpduck.mechanisms.known.tables import quantities, wanted
from dpduck.planning.recovery.atoms import Along, Seen
from dpduck.planning.recovery.known import Knowledge
from dpduck.trusted.noise.law import noise_variance
from dpduck.trusted.operators import MatrixFactor
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal


@dataclass(frozen=True, eq=False)
class Cells:
    """One aggregate in every cell of all keys. stderr: of a cell, NaN where the release does not determine it.

    variances: for dp_cells_stderr: sizes of the keys; for each set of them, as bits, its component's variance.
    """

    estimates: FloatArray
    stderr: float
    variances: str


def cells_of(measured: Measured, question: Question) -> list[Cells]:
    """Returns the cells of each aggregate of a release of grouping sets, from what it measured.

    Components that it did not measure are 0: the flattest table with these margins. Cells are multiples of a power of 2
    so small that sums of all of them are exact in any order.
    """
    return [_cells(measured, question, aggregate) for aggregate in question.aggregates]


def _cells(measured: Measured, question: Question, aggregate: Aggregate) -> Cells:
    sizes = list(question.sizes)
    knowledge = Knowledge(sizes, list(_seen(measured, aggregate)))
    everything = {place: scipy.sparse.csr_array(scipy.sparse.eye_array(size)) for place, size in enumerate(sizes)}
    found = knowledge.answer(everything)
    estimates = found.estimates.ravel()
    quantum = 2.0 ** (ceil(log2(float(np.abs(estimates).sum()) + 1)) - 50)
    sets = (tuple(compress(range(len(sizes)), bits)) for bits in _subsets(len(sizes)))
    components = [knowledge.component_variance(members) for members in sets]
    text = f"{','.join(map(str, sizes))}|{','.join(f'{one:.17g}' for one in components)}"
    stderr = float(found.variances.flat[0] ** 0.5) if found.known.flat[0] else float("nan")
    return Cells(np.rint(estimates / quantum) * quantum, stderr, text)


def _subsets(count: int) -> Iterator[list[bool]]:
    """Yields every set of positions, as bits, the first position the lowest."""
    for number in range(1 << count):
        yield [bool(number >> place & 1) for place in range(count)]


def _seen(measured: Measured, aggregate: Aggregate) -> Iterator[Seen]:
    """Returns what the release measured of an aggregate, along its keys."""
    need = wanted(aggregate, ())
    for table, values in zip(measured.tables, measured.values, strict=True):
        for quantity, more, weights in quantities(table):
            same = need is not None and (quantity,) == need.quantities
            if need is None or not same or {*conjuncts(table.condition), *more} != set(need.conditions):
                continue
            size = float(np.square(weights).sum())
            for query, parts in zip(measured.queries[table.group], values, strict=True):
                factors = dict(zip(query.keys, query.factors, strict=True))
                if any(isinstance(factor, MatrixFactor) for factor in factors.values()):
                    raise Refusal("this release was not measured by margins", accepted="strategy = 'auto'")
                along = {key: Along(factor) for key, factor in factors.items() if not isinstance(factor, MatrixFactor)}
                yield Seen(along, size * noise_variance(measured.noise, query.parameter), weighted(weights, parts))
            return
