"""One release, step by step: plan, charge, count, measure, recover, store. The order is the guarantee."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpduck.edges.carriers import Carriers
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
    released_cells,
)
from dpduck.edges.release_store import ReleaseStore, StoredRelease
from dpduck.edges.released_rows import released_columns, released_rows
from dpduck.edges.roots import OpenCursor
from dpduck.edges.turns import Turns
from dpduck.errors import InternalError, Refusal, ReleaseFailed
from dpduck.frontend.request import Request
from dpduck.planning.plan import NoiseKind
from dpduck.trusted.counting import count_exactly
from dpduck.trusted.counting_job import Attribute, CountingJob, KeyColumn
from dpduck.trusted.discrete_gaussian import LARGEST_VARIANCE
from dpduck.trusted.discrete_laplace import LARGEST_SCALE
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.exact_counts import ExactCounts
from dpduck.trusted.ledger import Ledger
from dpduck.trusted.measure import compiled_cost, measure

FloatArray = NDArray[np.float64]
Steps = Callable[[str], None]
Recheck = Callable[[duckdb.DuckDBPyConnection, AnyPlan], None]


@dataclass(frozen=True)
class Asker:
    """Who asks. share: of a budget, for principals of a server; None for no limit but the budget."""

    name: str
    owner: bool
    share: Fraction | None = None


class Releaser:
    """Makes releases; equal requests that arrive together are made once."""

    def __init__(
        self,
        open_cursor: OpenCursor,
        ledger: Ledger,
        releases: ReleaseStore,
        carriers: Carriers,
        entropy: Entropy,
        steps: Steps,
    ) -> None:
        self._open_cursor = open_cursor
        self._ledger = ledger
        self._releases = releases
        self._carriers = carriers
        self._entropy = entropy
        self._steps = steps
        self._turns = Turns()
        self._failed: dict[str, int] = {}

    def release(self, request: Request, asker: Asker, statement: str, recheck: Recheck) -> StoredRelease:
        """The release of a request: the stored one, or a new one that is charged for.

        recheck: refuses before the charge, in the transaction that will count, what must hold of a new release.
        """
        digest = request.digest()
        with self._turns.turn(digest):
            found = self._releases.by_digest(digest)
            if found is not None:
                return found
            if digest in self._failed:  # a statement is bound more than once: one failure is charged once
                raise ReleaseFailed(self._failed[digest])
            return self._new(request, digest, asker, statement, recheck)

    def _new(self, request: Request, digest: str, asker: Asker, statement: str, recheck: Recheck) -> StoredRelease:
        request, plans = planned(request)
        plan = plans[0]
        self._check_cost(request, plan)
        self._ledger.check(request.unit_key, request.charge, principal=asker.name, allotment=asker.share)
        with self._open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            recheck(cursor, plan)
            self._steps("before the charge")
            ledger_id = self._charge(request, plan, asker, statement)
            release = self._produced(
                cursor, request, plan, _describe(request, digest, plan, asker, statement, ledger_id)
            )
        if release is None:  # raised here, so that no error that quotes data is its context
            self._failed[digest] = ledger_id
            raise ReleaseFailed(ledger_id)
        self._carriers.carry(release.name, self._releases.table_sql(release.name), release.rows)
        return release

    def _charge(self, request: Request, plan: AnyPlan, asker: Asker, statement: str) -> int:
        return self._ledger.charge(
            request.unit_key,
            str(request.table),
            request.charge,
            asker.name,
            statement,
            f"{plan.noise.value}, {plan.strategy}",
            allotment=asker.share,
        )

    def _check_cost(self, request: Request, plan: AnyPlan) -> None:
        """The price, computed a second time from what will be measured; more than the request's is a defect."""
        self._require_drawable(plan)
        cost = compiled_cost([measured_plan(plan)] * request.measured_aggregates, request.unit_bound)
        if request.charge.epsilon is None:
            within = cost.rho <= request.charge.rho
        else:
            within = cost.epsilon is not None and cost.epsilon <= request.charge.epsilon
        if not within:
            raise InternalError("the compiled measurement costs more than the statement; nothing was charged")

    @staticmethod
    def _require_drawable(plan: AnyPlan) -> None:
        """Noise that the samplers cannot draw would fail after the charge, for a reason that is public."""
        largest = LARGEST_SCALE if plan.noise is NoiseKind.LAPLACE else LARGEST_VARIANCE
        if any(measurement.spread > largest for measurement in measured_plan(plan).measurements):
            raise Refusal("at this price the noise would not fit 64-bit numbers", accepted="a larger epsilon or rho")

    def _produced(
        self, cursor: duckdb.DuckDBPyConnection, request: Request, plan: AnyPlan, release: StoredRelease
    ) -> StoredRelease | None:
        """The release, made and stored; None where that failed, whatever the reason: it could quote data."""
        try:
            self._steps("after the charge")
            counts = count_exactly(cursor, counting_job(request), self._ledger.bounding_key)
            self._steps("after the count")
            answers = self._noisy_answers(counts, request, plan)
            self._steps("after the noise")
            whole = answers_are_whole(request, plan)
            rows = released_rows(request, answers, cell_stderrs(request, plan), whole)
            self._releases.put_table(release, released_columns(request, whole), rows, covariances_text(request, plan))
            self._steps("after the release")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            return None
        return release

    def _noisy_answers(self, counts: ExactCounts, request: Request, plan: AnyPlan) -> list[Sequence[FloatArray]]:
        answers: list[Sequence[FloatArray]] = []
        for number in range(request.measured_aggregates):
            noisy = measure(counts, measured_plan(plan), number, request.unit_bound, self._entropy)
            answers.append(recovered(plan, noisy, request.treatment))
        return by_aggregate(request, answers[0]) if request.intervals else answers


def _describe(
    request: Request, digest: str, plan: AnyPlan, asker: Asker, statement: str, ledger_id: int
) -> StoredRelease:
    laws = error_laws(plan)
    return StoredRelease(
        name=f"release_{ledger_id}",
        digest=digest,
        statement=statement,
        strategy=plan.strategy,
        epsilon=request.charge.epsilon,
        delta=request.charge.delta,
        rho=request.charge.rho,
        rows=released_cells(plan),
        principal=asker.name,
        ledger_id=ledger_id,
        laws=(laws,) * len(request.aggregates),
        kind="answer",
    )


def counting_job(request: Request) -> CountingJob:
    """What trusted code is to count for a request."""
    sizes = [source.domain.size for source in request.sources]
    attributes = tuple(
        Attribute(
            key.sources,
            np.array(key.codes, np.int64).reshape([sizes[source] for source in key.sources]),
            len(key.labels),
        )
        for key in request.keys
    )
    conditions = tuple(aggregate.condition for aggregate in request.aggregates)
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
        aggregates=conditions,
    )
