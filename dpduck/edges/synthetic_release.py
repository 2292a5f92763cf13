"""A release of a distribution: what is asked of private rows for it, and the table that holds it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from dpduck.arrays import IntegerArray
from dpduck.edges.counting_jobs import counting_job
from dpduck.edges.interview import Interview
from dpduck.edges.releaser import Product, Steps, Terms
from dpduck.edges.synthetic_plan import Mechanism
from dpduck.errors import InternalError
from dpduck.frontend.synthetic_request import SyntheticRequest
from dpduck.planning.plan import noisy_queries
from dpduck.recovery.recover import recover
from dpduck.synthetic.distribution import Component, Distribution
from dpduck.synthetic.mwem import synthesise
from dpduck.synthetic.observations import Observation
from dpduck.synthetic.tables import fit_tables
from dpduck.trusted.ask import Ask, Scan, Table
from dpduck.trusted.contribution import Contribution
from dpduck.trusted.door import Door

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
        base, bound = request.base, request.base.unit_bound
        scan = Scan(counting_job(base, (Contribution(""),)), bound)
        self._interview: Interview | None = None
        self._tables: list[Ask[tuple[IntegerArray, ...]]] = []
        if mechanism.pool is not None and mechanism.schedule is not None:
            self._interview = Interview(mechanism.pool, mechanism.schedule, scan)
        elif mechanism.plan is not None:
            self._tables = [Ask(scan, Table(query), noise) for query, noise in noisy_queries(mechanism.plan)]
        noise = "discrete Gaussian" if base.charge.epsilon is None else "discrete Laplace"
        choices = {"mwem": "exact exponential mechanism and "}.get(mechanism.name, "")
        self.terms = Terms(
            unit_key=base.unit_key,
            table=str(base.table),
            charge=base.charge,
            mechanism=f"{choices}{noise}, {mechanism.name}",
            strategy=mechanism.name,
            shapes=base.shapes,
            least_rho=base.least_rho,
        )

    def asks(self) -> Sequence[Ask[Any]]:
        """MWEM's questions, or the tables of a plan."""
        return self._interview.asks if self._interview is not None else self._tables

    def recheck(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Facts as analysed."""
        self._recheck(cursor)

    def produce(self, door: Door, steps: Steps) -> Product:
        """Questions about the counts, the fit."""
        model = self._measured(door) if self._interview is None else self._questioned(self._interview, door)
        return Product(COLUMNS, model_rows(model), model_text(model))

    def _questioned(self, interview: Interview, door: Door) -> Model:
        one = self._mechanism
        if one.pool is None or one.schedule is None or one.method is None:
            raise InternalError("MWEM without a schedule")
        found = synthesise(one.pool, one.schedule, one.method, interview.through(door))
        return Model(found.distribution, found.records)

    def _measured(self, door: Door) -> Model:
        plan = self._mechanism.plan
        if plan is None:
            raise InternalError("tables without a plan")
        answers = recover(plan, [noisy[0] for noisy in door.tables(self._tables)])
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
