"""The cells of a release: one table over all its columns. Sums of its cells are the consistent margins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, log2

import numpy as np
import pyarrow as pa
import scipy

from dpduck.kernel.noise.law import noise_variance
from dpduck.kernel.queries.operators import MatrixFactor
from dpduck.language.select.analyse import Analysis
from dpduck.language.select.cells import variances_column
from dpduck.language.select.conditions import conjuncts
from dpduck.language.select.request import Aggregate, Question
from dpduck.mechanisms.known.axes import weighted_sum
from dpduck.mechanisms.known.tables import needs_of, quantities
from dpduck.mechanisms.released_rows import AnswerColumn, release_columns, release_rows
from dpduck.store.cursors import ReleaseCopies
from dpduck.store.measured import Measured
from dpduck.store.sandbox import Sandbox
from dpduck.strategies.recovery.atoms import Along, NoisyTable
from dpduck.strategies.recovery.estimator import Estimator
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier


@dataclass(frozen=True, eq=False)
class Cells:
    """Estimates of one aggregate in each cell of all keys. stderr: the error of each cell, NaN if it is not determined.

    variances: the sizes of the keys, and the variance of each component, for dp_cells_stderr. Each bit of a component
    stands for a key.
    """

    estimates: FloatArray
    stderr: float
    variances: str


def cells_sql(analysis: Analysis, measured: Measured | None, copies: ReleaseCopies) -> str:
    """Returns SQL with a row for each cell: its answers, their errors, and variances for the errors of sums."""
    if measured is None:
        raise Refusal(
            "what this release measured is not kept",
            accepted="OPTIONS (.., refresh = '..') for a new one, which is paid for",
        )
    question = analysis.request.question
    alone = replace(analysis.request, question=replace(question, grouping_sets=(tuple(range(len(question.keys))),)))
    results = cells_of(measured, question)
    whole = [False] * len(results)
    answers = [AnswerColumn(result.estimates, np.full(len(result.estimates), result.stderr)) for result in results]
    columns, rows = list(release_columns(alone, whole)), release_rows(alone, answers, whole, Sandbox())
    for number, result in enumerate(results):
        said = pa.DictionaryArray.from_arrays(np.zeros(rows.num_rows, np.int32), pa.array([result.variances]))
        columns.append((variances_column(number), "VARCHAR"))
        rows = rows.append_column(variances_column(number), said)
    shown = ", ".join(f"{quote_identifier(column)} AS {quote_identifier(name)}" for name, column in analysis.cells)
    return f"SELECT {shown} FROM {copies.save(columns, rows)}"


def cells_of(measured: Measured, question: Question) -> list[Cells]:
    """Estimates the cells of each aggregate from a release's measurements. A component without a measurement is 0.

    Cells are multiples of a power of 2, so that sums are exact in any order.
    """
    return [_cells(measured, question, aggregate) for aggregate in question.aggregates]


def _cells(measured: Measured, question: Question, aggregate: Aggregate) -> Cells:
    sizes = list(question.sizes)
    estimator = Estimator(sizes, list(_cells_seen(measured, aggregate)))
    everything = {place: scipy.sparse.csr_array(scipy.sparse.eye_array(size)) for place, size in enumerate(sizes)}
    answer = estimator.answer(everything)
    estimates = answer.estimates.ravel()
    quantum = 2.0 ** (ceil(log2(float(np.abs(estimates).sum()) + 1)) - 50)
    sets = (tuple(place for place in range(len(sizes)) if number >> place & 1) for number in range(1 << len(sizes)))
    components = [estimator.component_variance(members) for members in sets]
    text = f"{','.join(map(str, sizes))}|{','.join(f'{variance:.17g}' for variance in components)}"
    stderr = float(answer.variances.flat[0] ** 0.5) if answer.known.flat[0] else float("nan")
    return Cells(np.rint(estimates / quantum) * quantum, stderr, text)


def _cells_seen(measured: Measured, aggregate: Aggregate) -> Iterator[NoisyTable]:
    need = needs_of(aggregate, ())
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
                yield NoisyTable(
                    along, size * noise_variance(measured.noise, query.parameter), weighted_sum(weights, parts)
                )
            return
