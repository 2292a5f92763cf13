"""Doors over given counts, without a ledger, for tests of the answers that pass. Also prices of single asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.papers._no_rows import NO_ROWS
from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.door import Door
from dpduck.kernel.noise.entropy import Entropy, operating_system_entropy
from dpduck.kernel.noise.law import Noise
from dpduck.kernel.price import Answer, Ask, AskScan, Query, price
from dpduck.kernel.queries.keys import Threshold
from dpduck.kernel.queries.operators import KroneckerQuery
from dpduck.kernel.queries.tables import Table
from dpduck.mechanisms.keys.plan import KeyPlan
from dpduck.mechanisms.synthetic.mwem_asks import DoorOracle, MwemAsks
from dpduck.mechanisms.synthetic.pool import Pool
from dpduck.mechanisms.synthetic.schedule import Schedule
from dpduck.strategies.plan import Plan, noisy_queries
from dpduck.values.arrays import IntegerArray
from dpduck.values.privacy import Charge


def scan_of(bound: int, job: CountingJob = NO_ROWS) -> AskScan:
    """A scan of counts of which one unit holds at most `bound`."""
    return AskScan(job, bound)


def door_over(counts: Hidden, asks: Sequence[Ask[Any]], entropy: Entropy | None = None) -> Door:
    """An open door over counts, as if somebody had paid for these asks."""
    return Door(asks, lambda job: counts, entropy or operating_system_entropy())


def drawn(
    query: Query[Answer], counts: Hidden, noise: Noise | None = None, bound: int = 1, chosen: object = None
) -> Answer:
    """Returns one answer of a query, where a unit holds at most `bound` of the counts."""
    return query.draw(counts, Ask(scan_of(bound), query, noise), operating_system_entropy(), chosen)


def measure(
    counts: Hidden, queries: Sequence[tuple[KroneckerQuery, Noise]], table: int, bound: int, entropy: Entropy
) -> list[IntegerArray]:
    """Returns the answers of integer queries about one table, with a bound of a unit for each query."""
    scan = AskScan(NO_ROWS, bound, range(table, table + 1))
    asks = [Ask(scan, Table(query), noise) for query, noise in queries]
    return [answer for (answer,) in asks[0].query.draw_together(counts, asks, entropy)]


def oracle(counts: Hidden, pool: Pool, schedule: Schedule) -> DoorOracle:
    """The product's own oracle over given counts."""
    mwem_asks = MwemAsks(pool, schedule, scan_of(schedule.unit_bound))
    return mwem_asks.through(door_over(counts, mwem_asks.asks))


def price_of(query: Query[Any], noise: Noise | None, bound: int = 1, times: int = 1) -> Charge:
    """Returns the price of one ask, where a unit holds at most `bound` of the counts."""
    return Ask(scan_of(bound), query, noise, times).cost


def price_of_plans(plans: Sequence[Plan], bound: int) -> Charge:
    """Returns the price of all measurements of some plans together."""
    scan = scan_of(bound)
    return price([Ask(scan, Table(query), noise) for plan in plans for query, noise in noisy_queries(plan)])


def key_ask(job: CountingJob, plan: KeyPlan) -> Ask[Any]:
    """Returns the ask that selects the keys of a plan."""
    bounds = plan.bounds
    query = Threshold(bounds, plan.least, plan.excess, plan.answers, plan.aggregates, plan.reused, plan.other)
    return Ask(AskScan(job, bounds.l1), query, plan.selection)
