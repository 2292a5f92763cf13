"""A release of a distribution: what is asked of private rows for it, and the table that holds it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from dpduck.edges.counting_jobs import counting_job
from dpduck.edges.releaser import Product, Steps, Terms
from dpduck.edges.synthetic_plan import Mechanism
from dpduck.errors import InternalError
from dpduck.frontend.synthetic_request import SyntheticRequest
from dpduck.privacy import Charge
from dpduck.recovery.recover import recover
from dpduck.synthetic.distribution import Component, Distribution
from dpduck.synthetic.mwem import synthesise
from dpduck.synthetic.observations import Observation
from dpduck.synthetic.tables import fit_tables
from dpduck.trusted.contribution import Contribution
from dpduck.trusted.counting import count_exactly
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.exact_counts import ExactCounts
from dpduck.trusted.interrogation import Interrogation, interrogation_cost
from dpduck.trusted.measure import compiled_cost, measure

COLUMNS = (("component", "INTEGER"), ("cell", "INTEGER"), ("probability", "DOUBLE"))


@dataclass(frozen=True, eq=False)
class Model:
    """A released distribution, with the number of records that it was estimated for."""

    distribution: Distribution
    records: float


class SyntheticRecipe:
    """A distribution by MWEM, from a cube, or from Barak's coefficients (see releaser.Recipe)."""

    def __init__(
        self,
        request: SyntheticRequest,
        mechanism: Mechanism,
        recheck: Callable[[duckdb.DuckDBPyConnection], None],
    ) -> None:
        self._request, self._mechanism, self._recheck = request, mechanism, recheck
        base = request.base
        noise = "discrete Gaussian" if base.charge.epsilon is None else "discrete Laplace"
        choices = {"mwem": "exact exponential mechanism and "}.get(mechanism.name, "")
        self.terms = Terms(
            unit_key=base.unit_key,
            table=str(base.table),
            charge=base.charge,
            mechanism=f"{choices}{noise}, {mechanism.name}",
            strategy=mechanism.name,
        )

    def check(self) -> None:
        """The price, computed a second time from what will be asked; more than the request's is a defect."""
        base, schedule, plan = self._request.base, self._mechanism.schedule, self._mechanism.plan
        pure = base.charge.epsilon is not None
        if schedule is not None:
            asked = ((question.chooses, question.parameter) for question in schedule.questions())
            total = interrogation_cost(asked, base.unit_bound, pure)
            cost = Charge.pure(total) if pure else Charge.concentrated(total)
        elif plan is not None:
            cost = compiled_cost([plan], base.unit_bound)
        else:
            raise InternalError("a mechanism that measures nothing")
        price, limit = (cost.epsilon, base.charge.epsilon) if pure else (cost.rho, base.charge.rho)
        if price is None or limit is None or price > limit:
            raise InternalError("the questions cost more than the statement; nothing was charged")

    def recheck(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Facts as analysed."""
        self._recheck(cursor)

    def produce(
        self, cursor: duckdb.DuckDBPyConnection, bounding_key: bytes, entropy: Entropy, steps: Steps
    ) -> Product:
        """Exact counts, questions about them, the fit."""
        counts = count_exactly(cursor, counting_job(self._request.base, (Contribution(""),)), bounding_key)
        steps("after the count")
        model = self._asked(counts, entropy) if self._mechanism.schedule else self._measured(counts, entropy)
        steps("after the noise")
        return Product(COLUMNS, model_rows(model), model_text(model))

    def _asked(self, counts: ExactCounts, entropy: Entropy) -> Model:
        base, one = self._request.base, self._mechanism
        if one.pool is None or one.schedule is None or one.method is None:
            raise InternalError("MWEM without a schedule")
        interviewer = Interrogation(
            counts,
            one.pool.families,
            whole=one.pool.whole,
            pure=one.schedule.pure,
            limit=one.schedule.amount,
            unit_bound=base.unit_bound,
            entropy=entropy,
        )
        found = synthesise(one.pool, one.schedule, one.method, interviewer)
        return Model(found.distribution, found.records)

    def _measured(self, counts: ExactCounts, entropy: Entropy) -> Model:
        plan = self._mechanism.plan
        if plan is None:
            raise InternalError("tables without a plan")
        answers = recover(plan, measure(counts, plan, 0, self._request.base.unit_bound, entropy))
        observations = [
            Observation(marginal, np.asarray(answer, np.float64), max(variance, 1e-9))
            for marginal, answer, variance in zip(plan.workload.marginals, answers, plan.variances, strict=True)
        ]
        return Model(*fit_tables(plan.workload.sizes, observations))


def model_rows(model: Model) -> pa.Table:
    """Every cell of every component with its probability within that component."""
    tables = [component.table.reshape(-1) for component in model.distribution.components]
    return pa.table(
        {
            "component": np.repeat(np.arange(len(tables), dtype=np.int32), [table.size for table in tables]),
            "cell": np.concatenate([np.arange(table.size, dtype=np.int32) for table in tables]),
            "probability": np.concatenate(tables),
        }
    )


def model_text(model: Model) -> str:
    """What else is needed to read the rows, kept beside the release."""
    components = [component.members for component in model.distribution.components]
    return json.dumps({"sizes": model.distribution.sizes, "components": components, "records": model.records})


def model_of(text: str, rows: pa.Table) -> Model:
    """What model_text and model_rows wrote."""
    known = json.loads(text)
    sizes: Sequence[int] = known["sizes"]
    order = np.lexsort((rows["cell"].to_numpy(), rows["component"].to_numpy()))
    probabilities, start = rows["probability"].to_numpy()[order], 0
    components = []
    for members in known["components"]:
        shape = tuple(sizes[member] for member in members)
        cells = int(np.prod(shape, dtype=np.int64))
        components.append(Component(tuple(members), probabilities[start : start + cells].reshape(shape)))
        start += cells
    return Model(Distribution(tuple(sizes), tuple(components)), float(known["records"]))
