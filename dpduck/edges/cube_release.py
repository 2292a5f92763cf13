"""A release of counts by grouping sets: what is measured for it, and how answers are recovered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpduck.edges.planned import (
    AnyPlan,
    answers_are_whole,
    by_aggregate,
    cell_stderrs,
    covariances_text,
    error_laws,
    measured_plan,
    planned,
    recovered,
)
from dpduck.edges.released_rows import released_columns, released_rows
from dpduck.edges.releaser import Product, Steps, Terms
from dpduck.errors import InternalError, Refusal
from dpduck.frontend.request import Request
from dpduck.planning.plan import NoiseKind
from dpduck.trusted.contribution import Contribution
from dpduck.trusted.counting import count_exactly
from dpduck.trusted.counting_job import Attribute, CountingJob, KeyColumn
from dpduck.trusted.discrete_gaussian import LARGEST_VARIANCE
from dpduck.trusted.discrete_laplace import LARGEST_SCALE
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.exact_counts import ExactCounts
from dpduck.trusted.measure import compiled_cost, measure

FloatArray = NDArray[np.float64]
Recheck = Callable[[duckdb.DuckDBPyConnection, AnyPlan], None]


class CubeRecipe:
    """Counts by grouping sets, planned when the recipe is made (see releaser.Recipe).

    recheck: refuses before the charge, in the transaction that will count, what must hold of a new release.
    """

    def __init__(self, request: Request, recheck: Recheck) -> None:
        self._request, plans = planned(request)
        self._plan = plans[0]
        self._recheck = recheck
        self.terms = Terms(
            unit_key=self._request.unit_key,
            table=str(self._request.table),
            charge=self._request.charge,
            mechanism=f"{self._plan.noise.value}, {self._plan.strategy}",
            strategy=self._plan.strategy,
            laws=(error_laws(self._plan),) * len(self._request.aggregates),
        )

    def check(self) -> None:
        """The price, computed a second time from what will be measured; more than the request's is a defect."""
        self._require_drawable()
        request = self._request
        cost = compiled_cost([measured_plan(self._plan)] * request.measured_aggregates, request.unit_bound)
        if request.charge.epsilon is None:
            within = cost.rho <= request.charge.rho
        else:
            within = cost.epsilon is not None and cost.epsilon <= request.charge.epsilon
        if not within:
            raise InternalError("the compiled measurement costs more than the statement; nothing was charged")

    def recheck(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Facts as analysed, and SQL around the release that binds."""
        self._recheck(cursor, self._plan)

    def produce(
        self, cursor: duckdb.DuckDBPyConnection, bounding_key: bytes, entropy: Entropy, steps: Steps
    ) -> Product:
        """Exact counts, noise, recovery."""
        request, plan = self._request, self._plan
        counts = count_exactly(cursor, counting_job(request), bounding_key)
        steps("after the count")
        answers = self._noisy_answers(counts, entropy)
        steps("after the noise")
        whole = answers_are_whole(request, plan)
        rows = released_rows(request, answers, cell_stderrs(request, plan), whole)
        return Product(released_columns(request, whole), rows, covariances_text(request, plan))

    def _require_drawable(self) -> None:
        """Noise that the samplers cannot draw would fail after the charge, for a reason that is public."""
        largest = LARGEST_SCALE if self._plan.noise is NoiseKind.LAPLACE else LARGEST_VARIANCE
        if any(measurement.spread > largest for measurement in measured_plan(self._plan).measurements):
            raise Refusal("at this price the noise would not fit 64-bit numbers", accepted="a larger epsilon or rho")

    def _noisy_answers(self, counts: ExactCounts, entropy: Entropy) -> list[Sequence[FloatArray]]:
        request, plan = self._request, self._plan
        answers: list[Sequence[FloatArray]] = []
        for number in range(request.measured_aggregates):
            noisy = measure(counts, measured_plan(plan), number, request.unit_bound, entropy)
            answers.append(recovered(plan, noisy, request.treatment))
        return by_aggregate(request, answers[0]) if request.intervals else answers


def counting_job(request: Request, public_keys_only: bool = False) -> CountingJob:
    """What trusted code is to count for a request.

    public_keys_only: its rows and those of its keys that have a public domain, but no aggregates.
    """
    sizes = [source.domain.size for source in request.sources]
    attributes = tuple(
        Attribute(
            key.sources,
            np.array(key.codes, np.int64).reshape([sizes[source] for source in key.sources]),
            len(key.labels),
        )
        for key in request.keys
        if not key.row_sql
    )
    conditions = () if public_keys_only else tuple(aggregate.condition for aggregate in request.aggregates)
    if request.intervals:  # the bins of the one source, NULL among them, which no interval holds
        attributes, conditions = (Attribute((0,), np.arange(sizes[0], dtype=np.int64), sizes[0]),), ("",)
    return CountingJob(
        from_sql=request.from_sql,
        filters=request.filters,
        unit_sql=request.unit_sql,
        max_rows=request.max_rows,
        content_sql=request.content_sql,
        keys=tuple(KeyColumn(source.sql, source.domain) for source in request.sources),
        attributes=attributes,
        aggregates=tuple(map(Contribution, conditions)),
    )
