"""Release of a distribution: its noisy queries about private rows (asks), and its released table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.door import Door
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.tables import Table
from dpduck.language.select.impossible_cells import ImpossibleCells
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.mechanism import Tools
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader
from dpduck.mechanisms.synthetic.cliques import LARGEST_TABLE, kept_zeros
from dpduck.mechanisms.synthetic.distribution import Component, Distribution
from dpduck.mechanisms.synthetic.mwem import synthesise
from dpduck.mechanisms.synthetic.mwem_asks import MwemAsks
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.mechanisms.synthetic.plan import Fit, fits_of, plan_by_total
from dpduck.mechanisms.synthetic.prior import best_fit
from dpduck.mechanisms.synthetic.request import SyntheticRequest
from dpduck.mechanisms.synthetic.table_fit import fit_tables
from dpduck.strategies.budgets import kind_and_amount
from dpduck.strategies.plan import noisy_queries
from dpduck.strategies.recovery.recover import recover
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

COLUMNS = (("component", "INTEGER"), ("cell", "INTEGER"), ("probability", "DOUBLE"))


@dataclass(frozen=True, eq=False)
class Model:
    """Released distribution, with the number of records that it was estimated for."""

    distribution: Distribution
    records: float


@dataclass(frozen=True)
class SyntheticProposal:
    """Plan to estimate a distribution by MWEM, from a cube, or from Barak's coefficients. fits: the chosen fit first.

    mwem_asks, tables: the asks of MWEM, and of other mechanisms.
    """

    question: SyntheticRequest
    fits: tuple[Fit, ...]
    mwem_asks: MwemAsks | None
    tables: tuple[Ask[tuple[IntegerArray, ...]], ...]

    @property
    def request(self) -> SelectRequest:
        return self.question.base


def propose_synthetic(question: SyntheticRequest) -> SyntheticProposal:
    """Chooses a fit for a synthetic table, and lists the asks that the fit needs."""
    fits = fits_of(question)
    chosen, scan = fits[0], AskScan(counting_job(question.base, (Contribution(),)), question.base.rows.unit_bound)
    if chosen.pool is not None and chosen.schedule is not None:
        return SyntheticProposal(question, fits, MwemAsks(chosen.pool, chosen.schedule, scan, chosen.by_total), ())
    queries = [] if chosen.plan is None else noisy_queries(chosen.plan)
    return SyntheticProposal(question, fits, None, tuple(Ask(scan, Table(query), noise) for query, noise in queries))


def synthetic_asks(proposal: SyntheticProposal) -> Sequence[Ask[Any]]:
    """Returns the noisy queries of a proposal: those of MWEM, or those for the tables of a plan."""
    return proposal.tables if proposal.mwem_asks is None else proposal.mwem_asks.asks


def synthetic_header(proposal: SyntheticProposal) -> ReleaseHeader:
    """Describes the release before anything is counted."""
    noise, _ = kind_and_amount(proposal.request.price.charge)
    choices, name = "" if proposal.mwem_asks is None else "exact exponential mechanism and ", proposal.fits[0].name
    rows = proposal.question.options.rows or 0
    return ReleaseHeader(proposal.request, f"{choices}{noise.value}, {name}", name, most_rows=rows)


def fit_model(proposal: SyntheticProposal, door: Door, tools: Tools) -> Model:
    """Asks the door for noisy counts, and fits a distribution to them. MWEM chooses its next question by the fit."""
    chosen = proposal.fits[0]
    if proposal.mwem_asks is None:
        noisy = door.tables(proposal.tables)
        tools.steps("fitting")
        return _fit_plan(chosen, proposal.question.zeros, noisy)
    oracle = proposal.mwem_asks.through(door, tools.steps)
    if chosen.by_total and chosen.schedule is not None:
        parameter = chosen.schedule.parameter(chosen.schedule.total_price)
        chosen = plan_by_total(proposal.question, oracle.total(parameter), chosen.schedule.variance(parameter))
        oracle = oracle.replan(chosen)
    if chosen.pool is None or chosen.schedule is None or chosen.method is None:
        raise InternalError("MWEM without a schedule")
    synthesis = synthesise(chosen.pool, chosen.schedule, chosen.method, oracle)
    return Model(synthesis.distribution, synthesis.records)


def _fit_plan(chosen: Fit, zeros: Sequence[ImpossibleCells], noisy: Sequence[tuple[IntegerArray, ...]]) -> Model:
    plan = chosen.plan
    if plan is None:
        raise InternalError("tables without a plan")
    answers = recover(plan, [tables[0] for tables in noisy])
    observations = [
        Observation(marginal, np.asarray(answer, np.float64), max(variance, 1e-9))
        for marginal, answer, variance in zip(plan.workload.marginals, answers, plan.variances, strict=True)
    ]
    usable = kept_zeros(plan.workload.sizes, plan.workload.marginals, zeros, LARGEST_TABLE)
    if not chosen.tries:
        return Model(*fit_tables(plan.workload.sizes, observations, zeros=usable))
    return Model(*best_fit(plan, observations, zeros=usable))


def model_table(proposal: SyntheticProposal, model: Model, tools: Tools) -> ReleasedTable:
    """Returns the released table of a distribution, component by component."""
    return ReleasedTable(COLUMNS, model_rows(model), model_text(model))


def model_rows(model: Model) -> pa.Table:
    """Returns every cell of every component with its probability within that component."""
    tables = [component.table.reshape(-1) for component in model.distribution.components]
    return pa.table(
        {
            "component": np.repeat(np.arange(len(tables), dtype=np.int32), [table.size for table in tables]),
            "cell": np.concatenate([np.arange(table.size, dtype=np.int32) for table in tables]),
            "probability": np.concatenate(tables),
        }
    )


def model_text(model: Model) -> str:
    """Renders the sizes, components and records as JSON. It is stored beside the rows, and their readers need it."""
    components = [component.members for component in model.distribution.components]
    return json.dumps({"sizes": model.distribution.sizes, "components": components, "records": model.records})


def model_of(text: str, rows: pa.Table) -> Model:
    """Reads the model that model_text and model_rows wrote."""
    facts = json.loads(text)
    sizes: Sequence[int] = facts["sizes"]
    order = np.lexsort((rows["cell"].to_numpy(), rows["component"].to_numpy()))
    probabilities, start = rows["probability"].to_numpy()[order], 0
    components = []
    for members in facts["components"]:
        shape = tuple(sizes[member] for member in members)
        cells = int(np.prod(shape, dtype=np.int64))
        components.append(Component(tuple(members), probabilities[start : start + cells].reshape(shape)))
        start += cells
    return Model(Distribution(tuple(sizes), tuple(components)), float(facts["records"]))
