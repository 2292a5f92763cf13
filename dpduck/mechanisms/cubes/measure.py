"""A release of aggregates by grouping sets: what is measured for it, and how answers are recovered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from math import prod
from typing import Any

import duckdb

from dpduck.database.sandbox import Sandbox
from dpduck.frontend.select.request import Request
from dpduck.mechanisms.cubes.plan import (
    MeasurePlan,
    Planned,
    measured_answers,
    measured_plan,
    planned,
    recovered,
    scans_of,
)
from dpduck.mechanisms.cubes.recover import Tables, answers_of, covariances_text, error_laws, wholes
from dpduck.mechanisms.release import Product, Steps, Terms
from dpduck.mechanisms.released_rows import released_columns, released_rows
from dpduck.planning.plan import marginal_query, noisy_queries
from dpduck.trusted.ask import Ask, Present, Quantiles, Scan, Table
from dpduck.trusted.noise.law import Noise
from dpduck.trusted.operators import KroneckerQuery
from dpduck.trusted.private.door import Door
from dpduck.trusted.private.jobs import CountingJob
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

Recheck = Callable[[duckdb.DuckDBPyConnection, Planned], None]


class CubeRecipe:
    """Aggregates by grouping sets, planned when the recipe is made (see release.Recipe).

    recheck: refuses before the charge, in the transaction that will count, what must hold of a new release.
    box: the sandbox of the statement.
    """

    def __init__(self, request: Request, recheck: Recheck, box: Sandbox) -> None:
        self._box = box
        self._found = planned(request)
        self._asked = asked(self._found)
        self._recheck = recheck
        request = self._found.request
        self.terms = Terms(
            unit_key=request.unit_key,
            table=str(request.table),
            charge=request.charge,
            mechanism=f"{self._found.chance}, {self._found.strategy}",
            strategy=self._found.strategy,
            laws=error_laws(self._found),
            shapes=request.shapes,
            least_rho=request.least_rho,
            rows=sum(prod(request.released_sizes[key] for key in chosen) for chosen in request.grouping_sets),
        )

    def asks(self) -> Sequence[Ask[Any]]:
        """Every measurement of every measure."""
        return [ask for group in self._asked for ask in group.asks]

    def recheck(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Facts as analysed, and SQL around the release that binds."""
        self._recheck(cursor, self._found)

    def produce(self, door: Door, steps: Steps) -> Product:
        """Noise, recovery."""
        found = self._found
        tables: dict[int, Tables] = {}
        measured: dict[int, Tables] = {}
        for group in self._asked:
            self._recover(group, door, tables, measured)
        everything = range(len(found.measures))
        moved = [measured[number] for number in everything] if found.request.treatment.moves else None
        answers = answers_of(found, [tables[number] for number in everything], moved)
        rows = released_rows(found, answers, self._box)
        return Product(released_columns(found.request, wholes(found)), rows, covariances_text(found))

    def _recover(self, group: Group, door: Door, tables: dict[int, Tables], measured: dict[int, Tables]) -> None:
        """Enters the recovered tables of a measure, and those before options moved them."""
        number, treatment = group.measure, self._found.request.treatment
        if group.alone:
            tables[number] = measured[number] = [[door.answer(ask).astype(float) for ask in group.alone]]
            return
        plan, noisy = self._found.measures[number].plan, door.tables(group.tables)
        drawn = [[answers[table] for answers in noisy] for table in range(len(group.tables[0].scan.tables))]
        tables[number] = [recovered(plan, one, treatment) for one in drawn]
        if treatment.moves:
            measured[number] = [measured_answers(plan, one) for one in drawn]


@dataclass(frozen=True)
class Group:
    """The asks of one measure: for tables that add up, or, set by set, for distinct values or chosen buckets."""

    measure: int
    tables: tuple[Ask[tuple[IntegerArray, ...]], ...] = ()
    alone: tuple[Ask[IntegerArray], ...] = ()

    @property
    def asks(self) -> tuple[Ask[Any], ...]:
        """Whichever there are."""
        return self.tables or self.alone


def asked(found: Planned) -> list[Group]:
    """What will leave: the measurements of every measure; refuses noise that cannot be drawn."""
    known: dict[int, list[tuple[KroneckerQuery, Noise]]] = {}
    groups = []
    for counted in scans_of(found):
        first = 0
        for number in counted.measures:
            one = found.measures[number]
            if id(one.plan) not in known:
                known[id(one.plan)] = noisy_queries(measured_plan(one.plan))
            queries = known[id(one.plan)]
            if one.measure.distinct is not None:
                scan, values = Scan(counted.job, found.request.unit_bound), one.measure.distinct.domain.size
                present = tuple(Ask(scan, Present(query, values), noise) for query, noise in queries)
                groups.append(Group(number, alone=present))
            elif one.choice is not None:
                groups.append(Group(number, alone=_choices(one, counted.job, found.request)))
            else:
                scan = Scan(counted.job, one.unit_bound, range(first, first + one.measure.tables))
                tables = tuple(Ask(scan, Table(query), noise) for query, noise in queries)
                groups.append(Group(number, tables=tables))
            first += one.measure.tables
    return groups


def _choices(one: MeasurePlan, job: CountingJob, request: Request) -> tuple[Ask[IntegerArray], ...]:
    """A bucket for each cell of every grouping set."""
    if one.choice is None:
        raise InternalError("a choice without its plan")
    scan, numbers = Scan(job, one.unit_bound), astuple(one.choice)
    queries = [marginal_query(grouping_set, request.sizes) for grouping_set in request.grouping_sets]
    return tuple(Ask(scan, Quantiles(query, *numbers)) for query in queries)
