"""Asks, scans and recovery of a release of aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.jobs import Attribute, CountingJob, GroupKey
from dpduck.kernel.door import Door
from dpduck.kernel.noise.law import Noise
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.operators import KroneckerQuery
from dpduck.kernel.queries.quantiles import Quantiles
from dpduck.kernel.queries.tables import Present, Table
from dpduck.language.rows.compiled import value_of
from dpduck.language.rows.facts import SourceColumn
from dpduck.language.select.conditions import is_partial
from dpduck.language.select.request import JointCounts, SelectRequest
from dpduck.language.select.together import MOST_JOINT
from dpduck.mechanisms.cubes.constrained import (
    Constrained,
    constrained_aggregates,
    with_laws,
    with_public_totals,
)
from dpduck.mechanisms.cubes.measures import Measure
from dpduck.mechanisms.cubes.plan import CubePlan, MeasurePlan, plan_cube, recover_table, tree_buckets
from dpduck.mechanisms.cubes.recover import Tables, answers_of, covariances_text, error_laws, wholes
from dpduck.mechanisms.jobs import counting_job, key_column
from dpduck.mechanisms.mechanism import Columns, Tools
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader
from dpduck.mechanisms.released_rows import release_columns, release_rows, rows_per_set
from dpduck.store.measured import (
    Measured,
    MeasuredColumn,
    MeasuredKey,
    MeasuredQuery,
    MeasuredTable,
    domain_digest,
    measurements_from_bytes,
    measurements_to_bytes,
    rows_digest,
)
from dpduck.strategies.plan import marginal_query, noisy_queries
from dpduck.strategies.recovery.recover import recover_linearly
from dpduck.values.arrays import IntegerArray
from dpduck.values.domain import RangeDomain
from dpduck.values.errors import InternalError

Noisy = Sequence[Sequence[Any]]
"""Answers of the door, for each group of asks."""


@dataclass(frozen=True)
class CubeProposal:
    """Proposal for aggregates by grouping sets: the plan, and the asks."""

    found: CubePlan
    groups: tuple[MeasureAsks, ...]
    known: tuple[Constrained, ...] = ()  # the aggregates that are brought to public totals

    @property
    def request(self) -> SelectRequest:
        return self.found.request


def propose_cube(request: SelectRequest) -> CubeProposal:
    """Returns the plan and the asks of a request with declared domains for all keys."""
    cube = plan_cube(request)
    known = constrained_aggregates(cube) if cube.request.question.totals else ()
    return CubeProposal(cube, tuple(declare_asks(cube)), known)


def cube_asks(proposal: CubeProposal) -> Sequence[Ask[Any]]:
    """Returns all asks of every measure."""
    return [ask for group in proposal.groups for ask in group.asks]


def cube_header(proposal: CubeProposal) -> ReleaseHeader:
    """Describes the release before anything is counted."""
    cube = proposal.found
    rows = sum(rows_per_set(cube.request.question))
    laws = with_laws(error_laws(cube), proposal.known) if proposal.known else error_laws(cube)
    return ReleaseHeader(cube.request, f"{cube.chance}, {cube.strategy}", cube.strategy, laws, rows)


def cube_columns(proposal: CubeProposal) -> Columns:
    """Returns the columns of the released table."""
    return release_columns(proposal.request, wholes(proposal.found))


def measure_cube(proposal: CubeProposal, door: Door, tools: Tools) -> Noisy:
    """Returns the noisy tables of every group of asks."""
    return [
        [door.answer(ask) for ask in group.alone] if group.alone else door.tables(group.tables)
        for group in proposal.groups
    ]


def recover_cube(proposal: CubeProposal, noisy: Noisy, tools: Tools) -> ReleasedTable:
    """Computes the answers of every aggregate from the noisy tables."""
    cube = proposal.found
    tables: dict[int, Tables] = {}
    measured: dict[int, Tables] = {}
    for group, answers_of_group in zip(proposal.groups, noisy, strict=True):
        _recover(cube, group, answers_of_group, tables, measured)
    everything = range(len(cube.measures))
    moved = [measured[number] for number in everything] if cube.request.question.treatment.moves else None
    answers = answers_of(cube, [tables[number] for number in everything], moved)
    if proposal.known:
        linear = answers_of(cube, [measured[number] for number in everything])
        answers = with_public_totals(answers, linear, proposal.known, cube.request.question)
    rows = release_rows(cube.request, answers, wholes(cube), tools.box)
    return ReleasedTable(cube_columns(proposal), rows, covariances_text(cube), _measurements_to_bytes(proposal, noisy))


def _recover(
    cube: CubePlan, group: MeasureAsks, noisy: Sequence[Any], tables: dict[int, Tables], measured: dict[int, Tables]
) -> None:
    """Enters a measure's recovered tables into `tables`, and its tables before options changed them into `measured`."""
    number, treatment = group.measure, cube.request.question.treatment
    if group.alone:
        answers, sets = [answer.astype(float) for answer in noisy], len(cube.request.question.grouping_sets)
        tables[number] = measured[number] = [answers[start : start + sets] for start in range(0, len(answers), sets)]
        return
    plan, strategy = cube.measures[number].plan, cube.measures[number].measure.strategy
    if strategy is None:
        drawn = [[answers[table] for answers in noisy] for table in range(len(group.tables[0].scan.tables))]
    else:  # the last axis of the only table has a row of the strategy for each table
        drawn = [[np.array(values[..., row]) for (values,) in noisy] for row in range(len(strategy.rows))]
    tables[number] = [recover_table(plan, values, treatment) for values in drawn]
    if treatment.moves or cube.request.question.totals:
        measured[number] = [recover_linearly(plan, values) for values in drawn]


def scan_of(measured: MeasurePlan, job: CountingJob, first: int) -> AskScan:
    """Returns the scan of a measure's tables. first: the number of its first table among the job's tables."""
    tables, bounds = range(first, first + measured.measure.contribution.tables), measured.bounds
    if bounds.are_plain:
        return AskScan(job, bounds.all_cells, tables)
    return AskScan(job, bounds.all_cells, tables, bounds.one_cell, bounds.squared, len(job.attributes))


@dataclass(frozen=True)
class MeasureAsks:
    """Asks of one measure. tables: asks for sums over rows. alone: asks of each grouping set by itself."""

    measure: int
    tables: tuple[Ask[tuple[IntegerArray, ...]], ...] = ()
    alone: tuple[Ask[IntegerArray], ...] = ()

    @property
    def asks(self) -> tuple[Ask[Any], ...]:
        return self.tables or self.alone


def declare_asks(cube: CubePlan) -> list[MeasureAsks]:
    """Declares the asks of every measure. Refuses noise that cannot be drawn."""
    by_plan: dict[int, list[tuple[KroneckerQuery, Noise]]] = {}
    groups = []
    for counted in scans_of(cube):
        first = 0
        for number in counted.measures:
            measured = cube.measures[number]
            if id(measured.plan) not in by_plan:
                by_plan[id(measured.plan)] = noisy_queries(measured.plan)
            queries = by_plan[id(measured.plan)]
            if measured.measure.distinct is not None:
                scan, values = AskScan(counted.job, cube.request.rows.unit_bound), measured.measure.distinct.domain.size
                present = tuple(Ask(scan, Present(query, values), noise) for query, noise in queries)
                groups.append(MeasureAsks(number, alone=present))
            elif measured.choices:
                groups.append(MeasureAsks(number, alone=_choices(measured, counted.job, cube.request)))
            else:
                scan = scan_of(measured, counted.job, first)
                if measured.measure.strategy is not None:
                    factor, last = measured.measure.strategy.factor, len(counted.job.attributes) - 1
                    queries = [
                        (KroneckerQuery((*query.attributes, last), (*query.factors, factor)), noise)
                        for query, noise in queries
                    ]
                tables = tuple(Ask(scan, Table(query), noise) for query, noise in queries)
                groups.append(MeasureAsks(number, tables=tables))
            first += measured.measure.contribution.tables
    return groups


def _choices(measured: MeasurePlan, job: CountingJob, request: SelectRequest) -> tuple[Ask[IntegerArray], ...]:
    """Returns asks for a bucket in each cell: first for the values, then for lower ends, then for upper ends."""
    scan = AskScan(job, measured.unit_bound)
    queries = [marginal_query(grouping_set, request.question.sizes) for grouping_set in request.question.grouping_sets]
    return tuple(Ask(scan, Quantiles(query, *astuple(choice))) for choice in measured.choices for query in queries)


@dataclass(frozen=True)
class MeasureScan:
    """Counting job, and the numbers of the measures that its aggregates serve, in order."""

    job: CountingJob
    measures: tuple[int, ...]


def scans_of(cube: CubePlan) -> list[MeasureScan]:
    """Lists the scans of a release: one for all measures that add up over rows, and one for each other measure."""
    request = cube.request
    added = [n for n, plan in enumerate(cube.measures) if plan.measure.is_sum and plan.measure.kinds is None]
    scans = []
    if added:
        contributions = [cube.measures[number].measure.contribution for number in added]
        scans.append(MeasureScan(counting_job(request, contributions), tuple(added)))
    for number, plan in enumerate(cube.measures):
        if plan.measure.kinds is not None:
            scans.append(MeasureScan(_with_kinds(request, plan.measure.kinds), (number,)))
        elif not plan.measure.is_sum:
            scans.append(MeasureScan(_with_column(request, _last_key(cube, plan), plan.measure), (number,)))
    return scans


def _with_column(request: SelectRequest, key: GroupKey, measure: Measure) -> CountingJob:
    job = counting_job(request, (measure.contribution,))
    size = key.domain.size
    last = Attribute((len(job.keys),), np.arange(size, dtype=np.int64), size)
    return replace(job, keys=(*job.keys, key), attributes=(*job.attributes, last))


def _with_kinds(request: SelectRequest, kinds: JointCounts) -> CountingJob:
    job, sources = counting_job(request, (Contribution(),)), sources_with(request.question.sources, kinds)
    places = tuple(sources.index(column) for column in kinds.columns)
    shape = [sources[place].domain.size for place in places]
    last = Attribute(places, np.array(kinds.codes, np.int64).reshape(shape), kinds.kinds)
    keys = tuple(key_column(source, request.rows) for source in sources)
    return replace(job, keys=keys, attributes=(*job.attributes, last))


def sources_with(sources: Sequence[SourceColumn], kinds: JointCounts) -> tuple[SourceColumn, ...]:
    """Returns the columns of a request, and the columns that distinguish kinds of rows."""
    return tuple(dict.fromkeys((*sources, *kinds.columns)))


def _last_key(cube: CubePlan, measured: MeasurePlan) -> GroupKey:
    """Returns the column of distinct values, or of buckets. Outermost buckets include values outside the bounds."""
    measure = measured.measure
    if measure.distinct is not None:
        return key_column(measure.distinct, cube.request.rows)
    if measure.operand is None:
        raise InternalError("a tree over nothing")
    buckets = tree_buckets(cube.request.question, measure)
    edges = tuple(repr(float(edge)) for edge in buckets.edges)
    domain = RangeDomain("DOUBLE", edges[:-1], edges[-1], repr(float(buckets.width)), "", 1, with_edges=True)
    return GroupKey(value_of(measure.operand.sql, cube.request.rows.columns), domain)


# The measurements that are stored, so that later questions can be answered from them.

MOST_QUERIES = 20_000
"""Measurements of more queries are not stored."""


def _measurements_to_bytes(proposal: CubeProposal, noisy: Noisy) -> bytes | None:
    """Returns the measurements that add up over rows, to be stored. Returns None if there are none, or very many."""
    cube, request = proposal.found, proposal.request
    measures = [cube.measures[group.measure].measure for group in proposal.groups]
    groups = [
        (group, answers)
        for group, answers, part in zip(proposal.groups, noisy, measures, strict=True)
        # a unit's merged value in a group is not its value in a larger group
        if group.tables
        and part.is_sum
        and not (part.operand is not None and part.operand.per_group)
        and not part.contribution.norm  # two releases with different weights are about different rows
        and not request.question.treatment.groups  # and so are two with different groups
    ]
    if not groups or sum(len(group.tables) for group, _ in groups) > MOST_QUERIES:
        return None
    keys = [MeasuredKey(key.sources, len(key.labels), key.codes) for key in request.question.keys]
    if request.question.matrix and len(keys) > 1:
        (cells,) = scans_of(cube)[0].job.attributes
        keys = [MeasuredKey(cells.sources, cells.size, tuple(cells.codes.ravel().tolist()))]
    if request.question.intervals:
        size = request.question.sources[0].domain.size
        keys = [MeasuredKey((0,), size, tuple(range(size)))]
    record = _Kept(request, request.question.sources, keys)
    plain = tuple(range(len(keys))) if request.question.together else None
    for group, answers in groups:
        part = cube.measures[group.measure]
        if part.measure.kinds is not None:
            record.add(part, part.measure.kinds, group.tables, answers)
            continue
        record.queries.setdefault((id(part.plan), -1), tuple(_query(ask) for ask in group.tables))
        table = _table(part, list(record.queries).index((id(part.plan), -1)))
        record.tables.append(table if plain is None else replace(table, keys=plain))
        record.values.append(tuple(tuple(answer) for answer in answers))
    if not record.tables:
        return None
    return measurements_to_bytes(
        Measured(
            rows_digest(request.rows),
            request.rows.filters,
            request.rows.unit_sql is not None,
            tuple(MeasuredColumn(part.sql, domain_digest(part.domain), part.domain.size) for part in record.sources),
            tuple(record.keys),
            cube.noise,
            tuple(record.tables),
            tuple(record.queries.values()),
            tuple(record.values),
        )
    )


@dataclass
class _Kept:
    """Stored measurements of a request. keys: first the keys of the grouping, then keys for kinds of rows."""

    request: SelectRequest
    sources: tuple[SourceColumn, ...]
    keys: list[MeasuredKey]
    tables: list[MeasuredTable] = field(default_factory=list)
    queries: dict[tuple[int, int], tuple[MeasuredQuery, ...]] = field(default_factory=dict)
    values: list[tuple[tuple[IntegerArray, ...], ...]] = field(default_factory=list)

    def add(self, measured: MeasurePlan, kinds: JointCounts, asks: Sequence[Ask[Any]], answers: Sequence[Any]) -> None:
        """Enters counts that are planned together: one table by the kinds of rows, which are a further key."""
        grouped = len(self.request.question.keys)
        if len(kinds.columns) > 1 and len(kinds.codes) > MOST_JOINT:
            self._add_conditions(measured, kinds, asks, answers)
            return
        self.sources = sources_with(self.sources, kinds)
        places, last = tuple(self.sources.index(column) for column in kinds.columns), len(self.keys)
        self.keys.append(MeasuredKey(places, kinds.kinds, kinds.codes))
        queries = (_query(ask) for ask in asks)
        name = (id(measured.plan), last)
        self.queries[name] = tuple(replace(query, keys=(*query.keys[:-1], last)) for query in queries)
        table = replace(_table(measured, list(self.queries).index(name)), form="count", keys=(*range(grouped), last))
        self.tables.append(table)
        self.values.append(tuple(tuple(answer) for answer in answers))

    def _add_conditions(
        self, measured: MeasurePlan, kinds: JointCounts, asks: Sequence[Ask[Any]], answers: Sequence[Any]
    ) -> None:
        """Enters one table for each measured count, since a key for so many kinds of rows would be too large.

        Nothing is stored if MAX ROWS came after rows outside a domain were left out: later questions are about other
        rows.
        """
        rows = () if measured.measure.strategy is None else measured.measure.strategy.rows
        bounded = self.request.rows.unit_sql is not None and any(is_partial(column.domain) for column in kinds.columns)
        if bounded or not set(rows) <= set(kinds.met):
            return
        name = (id(measured.plan), -2)
        queries = (_query(ask) for ask in asks)
        self.queries[name] = tuple(
            replace(query, keys=query.keys[:-1], factors=query.factors[:-1]) for query in queries
        )
        grouped = tuple(range(len(self.request.question.keys)))
        bare = replace(_table(measured, list(self.queries).index(name)), form="count", keys=grouped)
        for number, row in enumerate(rows):
            self.tables.append(replace(bare, condition=kinds.conditions[kinds.met.index(row)]))
            self.values.append(tuple((np.array(answer[..., number]),) for (answer,) in answers))


def blank_measured(proposal: CubeProposal) -> Measured | None:
    """Returns the measurements of a proposal with zeros for the numbers, or None if they would not be stored."""
    data = _measurements_to_bytes(proposal, [[_blank(ask) for ask in group.tables] for group in proposal.groups])
    return None if data is None else measurements_from_bytes(data)


def _blank(ask: Ask[Any]) -> list[IntegerArray]:
    shape = [factor.rows for factor in ask.query.query.factors] if isinstance(ask.query, Table) else []
    return [np.zeros(shape, np.int64)] * len(ask.scan.tables)


def _table(measured: MeasurePlan, group: int) -> MeasuredTable:
    measure, operand, added = measured.measure, measured.measure.operand, measured.measure.contribution
    value, step = ("", Fraction(1)) if operand is None else (operand.sql, operand.step)
    bounds = added.low, added.high, step
    return MeasuredTable(measure.form, measure.condition, value, *bounds, added.steps, added.degree, added.rest, group)


def _query(ask: Ask[Any]) -> MeasuredQuery:
    if not isinstance(ask.query, Table) or ask.noise is None:
        raise InternalError("a table that is measured otherwise")
    return MeasuredQuery(ask.query.query.attributes, ask.query.query.factors, ask.noise.parameter)
