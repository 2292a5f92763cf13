"""Release of a distribution: its noisy queries about private rows (asks), and its released table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.door import Door
from dpduck.kernel.ledger.secrets import no_step
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.families import Candidate, Choice, Families, Guess, Marginal
from dpduck.kernel.queries.later import Within
from dpduck.kernel.queries.operators import Family
from dpduck.kernel.queries.tables import Table
from dpduck.language.select.impossible_cells import ImpossibleCells
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.mechanism import Tools
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader, Steps
from dpduck.mechanisms.synthetic.distribution import LARGEST_TABLE, Component, Distribution, fit_tables, kept_zeros
from dpduck.mechanisms.synthetic.fit import Observation
from dpduck.mechanisms.synthetic.mwem import synthesise
from dpduck.mechanisms.synthetic.plan import Fit, fits_of, plan_by_total
from dpduck.mechanisms.synthetic.pool import Pool
from dpduck.mechanisms.synthetic.prior import best_fit
from dpduck.mechanisms.synthetic.request import SyntheticRequest
from dpduck.mechanisms.synthetic.schedule import Schedule
from dpduck.strategies.budgets import kind_and_amount
from dpduck.strategies.plan import noisy_queries
from dpduck.strategies.recovery.recover import recover
from dpduck.values.arrays import FloatArray, IntegerArray
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

    mwem_asks: the asks of MWEM. tables: the asks of other mechanisms.
    """

    question: SyntheticRequest
    fits: tuple[Fit, ...]
    mwem_asks: MwemAsks | None
    tables: tuple[Ask[tuple[IntegerArray, ...]], ...]

    @property
    def request(self) -> SelectRequest:
        """Returns the request, which has the rows, the columns and the price."""
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


# MWEM's questions as asks of the door: declared one by one, or within one price if rounds adapt.


class MwemAsks:
    """Noisy queries (asks) of MWEM about a pool of candidates, at the prices of a schedule.

    The number of records, and each marginal before the rounds, is asked once. Adaptive rounds share one ask with the
    rest of the price (Within). by_total: whether the marginals before the rounds share that ask, too.
    """

    def __init__(self, pool: Pool, schedule: Schedule, scan: AskScan, by_total: bool = False) -> None:
        self._schedule, self._scan = schedule, scan
        self.families = Families(pool.families, pool.whole, pool.all_weights)
        if by_total:
            self.families = Families((Family((), ()),), whole=True)
        total = Marginal(self.families, len(self.families.families) - 1)
        self.total = Ask(scan, total, self.noise(schedule.parameter(schedule.total_price)))
        self.marginals: dict[int, Ask[IntegerArray]] = {}
        for place in range(0 if by_total else schedule.first):
            number = len(pool.workload) + place
            noise = self.noise(schedule.parameter(schedule.first_price))
            self.marginals[number] = Ask(scan, Marginal(self.families, number), noise)
        self.rounds: Ask[None] | None = None
        self.choice: Ask[int] | None = None
        self.candidate: Ask[IntegerArray] | None = None
        if schedule.adaptive or by_total:
            spent = schedule.total_price + (0 if by_total else schedule.first_price * schedule.first)
            kinds = (Choice, Candidate)
            self.rounds = Ask(scan, Within(schedule.amount - spent, schedule.pure, kinds))
            return
        if schedule.rounds:
            rate, parameter = schedule.of_round(schedule.round_price)
            self.choice, self.candidate = self.round_asks(rate, parameter, schedule.rounds)

    @property
    def asks(self) -> Sequence[Ask[Any]]:
        """Returns all declared asks."""
        rounds = (self.rounds, self.choice, self.candidate)
        return [self.total, *self.marginals.values(), *(ask for ask in rounds if ask is not None)]

    def noise(self, parameter: Fraction) -> Noise:
        """Returns the noise of an answer, with the scale or the variance of the schedule."""
        return Noise(NoiseKind.LAPLACE if self._schedule.pure else NoiseKind.GAUSSIAN, parameter)

    def round_asks(self, rate: Fraction, parameter: Fraction, times: int) -> tuple[Ask[int], Ask[IntegerArray]]:
        """Returns the asks of a choice, and of the answer of the chosen candidate."""
        choice = Ask(self._scan, Choice(self.families, rate, self._schedule.pure), times=times)
        return choice, Ask(self._scan, Candidate(self.families), self.noise(parameter), times)

    def through(self, door: Door, steps: Steps = no_step) -> DoorOracle:
        """Returns the oracle that gets its answers from a door. steps: called at each round."""
        return DoorOracle(self, door, self._schedule.pure, self.families, steps)


class DoorOracle:
    """Oracle that answers MWEM's questions through a door (see synthetic.mwem.NoisyOracle)."""

    def __init__(self, mwem_asks: MwemAsks, door: Door, pure: bool, families: Families, steps: Steps) -> None:
        self._asks, self._door, self._pure, self._families, self._steps = mwem_asks, door, pure, families, steps
        self._total: int | None = None

    @property
    def left(self) -> Fraction:
        """Returns the price that adaptive rounds may still spend, 0 if the rounds do not adapt."""
        rounds = self._asks.rounds
        return Fraction(0) if rounds is None else self._door.left(rounds)

    def total(self, parameter: Fraction) -> int:
        """Returns the noisy number of records, which is asked once."""
        if self._total is None:
            self._total = int(self._door.answer(self._like(self._asks.total, parameter))[0])
        return self._total

    def replan(self, fit: Fit) -> DoorOracle:
        """Returns an oracle for the questions of another plan at the same price. It reuses the noisy total."""
        if fit.pool is None or self._asks.rounds is None:
            raise InternalError("a plan that no family of asks pays for")
        families = Families(fit.pool.families, fit.pool.whole, fit.pool.all_weights)
        oracle = DoorOracle(self._asks, self._door, self._pure, families, self._steps)
        oracle._total = self._total
        return oracle

    def choose(self, estimates: FloatArray, penalties: FloatArray, allowed: NDArray[np.bool_], rate: Fraction) -> int:
        """Chooses a candidate that the estimates answer badly."""
        self._steps("a round")
        ask = self._asks.choice
        if ask is None or not isinstance(ask.query, Choice) or ask.query.rate != rate:
            ask = Ask(self._asks.total.scan, Choice(self._families, rate, self._pure))
            self._admit(ask)
        return self._door.answer(ask, Guess(estimates, penalties, allowed))

    def answer(self, candidate: int, parameter: Fraction) -> IntegerArray:
        """Returns the noisy answer of a candidate."""
        ask, noise = self._asks.candidate, self._asks.noise(parameter)
        if ask is None or ask.noise != noise:
            ask = Ask(self._asks.total.scan, Candidate(self._families), noise)
            self._admit(ask)
        return self._door.answer(ask, candidate)

    def marginal(self, family: int, parameter: Fraction) -> IntegerArray:
        """Returns a whole noisy marginal."""
        if family == len(self._families.families) - 1:
            return np.array([self.total(parameter)], np.int64)
        ask = self._asks.marginals.get(family)
        return self.answer(family, parameter) if ask is None else self._door.answer(self._like(ask, parameter))

    def _like(self, ask: Ask[IntegerArray], parameter: Fraction) -> Ask[IntegerArray]:
        """Returns the declared ask. If the noise differs, returns an ask with that noise, which the door refuses."""
        noise = self._asks.noise(parameter)
        return ask if ask.noise == noise else Ask(ask.scan, ask.query, noise)

    def _admit(self, ask: Ask[Any]) -> None:
        """Declares an ask if rounds adapt. If they do not, the door will refuse it."""
        if self._asks.rounds is not None:
            self._door.admit(ask, self._asks.rounds)
