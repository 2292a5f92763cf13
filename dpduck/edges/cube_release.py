"""A release of aggregates by grouping sets: what is measured for it, and how answers are recovered."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import duckdb

from dpduck.edges.aggregate_answers import Tables, answers_of, covariances_text, error_laws, wholes
from dpduck.edges.counting_jobs import Scan, contribution_of, scans_of
from dpduck.edges.planned import Planned, measured_plan, planned, recovered
from dpduck.edges.released_rows import released_columns, released_rows
from dpduck.edges.releaser import Product, Steps, Terms
from dpduck.edges.sandbox import Sandbox
from dpduck.errors import InternalError, Refusal
from dpduck.frontend.request import Request
from dpduck.planning.plan import NoiseKind
from dpduck.privacy import Charge
from dpduck.trusted.counting import count_exactly
from dpduck.trusted.discrete_gaussian import LARGEST_VARIANCE
from dpduck.trusted.discrete_laplace import LARGEST_SCALE
from dpduck.trusted.distinct import measure_distinct
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.exact_counts import ExactCounts
from dpduck.trusted.measure import compiled_cost, measure

Recheck = Callable[[duckdb.DuckDBPyConnection, Planned], None]


class CubeRecipe:
    """Aggregates by grouping sets, planned when the recipe is made (see releaser.Recipe).

    recheck: refuses before the charge, in the transaction that will count, what must hold of a new release.
    box: the sandbox of the statement.
    """

    def __init__(self, request: Request, recheck: Recheck, box: Sandbox) -> None:
        self._box = box
        self._found = planned(request)
        self._recheck = recheck
        request = self._found.request
        self.terms = Terms(
            unit_key=request.unit_key,
            table=str(request.table),
            charge=request.charge,
            mechanism=f"{self._found.noise.value}, {self._found.strategy}",
            strategy=self._found.strategy,
            laws=error_laws(self._found),
        )

    def check(self) -> None:
        """The price, computed a second time from what will be measured; more than the request's is a defect."""
        self._require_drawable()
        charge, costs = self._found.request.charge, self._costs()
        if charge.epsilon is None:
            within = sum((cost.rho for cost in costs), Fraction(0)) <= charge.rho
        else:
            epsilons = [cost.epsilon for cost in costs if cost.epsilon is not None]
            within = len(epsilons) == len(costs) and sum(epsilons, Fraction(0)) <= charge.epsilon
        if not within:
            raise InternalError("the compiled measurement costs more than the statement; nothing was charged")

    def _costs(self) -> list[Charge]:
        """What every measure costs, by the contributions that trusted code will add up."""
        request = self._found.request
        costs: list[Charge] = []
        known: dict[tuple[int, int], Charge] = {}
        for one in self._found.measures:
            bound = request.unit_bound
            if one.measure.added:
                bound = contribution_of(one.measure).unit_bound(request.unit_bound, request.base_cells)
            alike = (id(one.plan), bound)
            if alike not in known:
                known[alike] = compiled_cost([measured_plan(one.plan)], bound)
            costs.append(known[alike])
        return costs

    def recheck(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Facts as analysed, and SQL around the release that binds."""
        self._recheck(cursor, self._found)

    def produce(
        self, cursor: duckdb.DuckDBPyConnection, bounding_key: bytes, entropy: Entropy, steps: Steps
    ) -> Product:
        """Exact counts, noise, recovery."""
        found = self._found
        counted = [(scan, count_exactly(cursor, scan.job, bounding_key)) for scan in scans_of(found)]
        steps("after the count")
        tables: dict[int, Tables] = {}
        for scan, counts in counted:
            tables.update(self._noisy_tables(scan, counts, entropy))
        steps("after the noise")
        answers = answers_of(found, [tables[number] for number in range(len(found.measures))])
        rows = released_rows(found, answers, self._box)
        return Product(released_columns(found.request, wholes(found)), rows, covariances_text(found))

    def _require_drawable(self) -> None:
        """Noise that the samplers cannot draw would fail after the charge, for a reason that is public."""
        largest = LARGEST_SCALE if self._found.noise is NoiseKind.LAPLACE else LARGEST_VARIANCE
        plans = [measured_plan(one.plan) for one in self._found.measures]
        if any(measurement.spread > largest for plan in plans for measurement in plan.measurements):
            raise Refusal("at this price the noise would not fit 64-bit numbers", accepted="a larger epsilon or rho")

    def _noisy_tables(self, scan: Scan, counts: ExactCounts, entropy: Entropy) -> dict[int, Tables]:
        """The recovered tables of every measure of a scan."""
        treatment, first = self._found.request.treatment, 0
        tables: dict[int, Tables] = {}
        for number in scan.measures:
            one = self._found.measures[number]
            plan = measured_plan(one.plan)
            if one.measure.form == "distinct":
                noisy = measure_distinct(counts, plan, one.unit_bound, entropy)
                tables[number] = [[table.astype(float) for table in noisy]]
                continue
            mine = range(first, first + one.measure.tables)
            drawn = [measure(counts, plan, table, one.unit_bound, entropy) for table in mine]
            tables[number] = [recovered(one.plan, noisy, treatment) for noisy in drawn]
            first += one.measure.tables
        return tables
