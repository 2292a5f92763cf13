"""Real tables as arrays, errors of distributions, and the product's mechanisms run on arrays without SQL."""

from __future__ import annotations

import os
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import duckdb
import numpy as np
from numpy.typing import NDArray

from benchmarks.papers._no_rows import NO_ROWS
from dpduck.algebra.margin_tree import margin_tree
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.door import Door
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.tables import Table
from dpduck.mechanisms.synthetic.distribution import Distribution
from dpduck.mechanisms.synthetic.mwem import Method, synthesise
from dpduck.mechanisms.synthetic.mwem_asks import MwemAsks
from dpduck.mechanisms.synthetic.observations import Observation, records_for_plan
from dpduck.mechanisms.synthetic.plan import plan_aim
from dpduck.mechanisms.synthetic.pool import Pool
from dpduck.mechanisms.synthetic.prior import best_fit
from dpduck.mechanisms.synthetic.schedule import Schedule
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.plan import Plan, noisy_queries
from dpduck.strategies.recovery.recover import recover

Members = tuple[int, ...]
ADULT = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "salary")
ENTROPY = operating_system_entropy()


def data_folder(named: str | None) -> Path:
    """Where the real data are: --data, $DPDUCK_DATA or ../shared/data from the project's root."""
    default = Path(__file__).parents[3] / "shared" / "data"
    return Path(named or os.environ.get("DPDUCK_DATA") or default)


def table_of(folder: Path, name: str) -> NDArray[np.int64]:
    """One array cell per combination of values: a contingency table, NLTCS's 16 bits or Adult's eight attributes."""
    if name in ("mildew", "rochdale", "czech"):
        rows = duckdb.sql(f"FROM '{folder / name}.csv'").fetchall()
        codes = np.array([row[:-1] for row in rows]).T
        counts = np.array([row[-1] for row in rows])
    else:
        columns = [f"y{bit}" for bit in range(1, 17)] if name == "nltcs" else ADULT
        path = folder / f"{'nltcs' if name == 'nltcs' else 'adult'}.parquet"
        codes = np.array(duckdb.sql(f"SELECT {', '.join(columns)} FROM '{path}'").fetchall()).T
        counts = np.ones(codes.shape[1], np.int64)
    numbers = [np.unique(of, return_inverse=True)[1] for of in codes]
    table = np.zeros([int(of.max()) + 1 for of in numbers], np.int64)
    np.add.at(table, tuple(numbers), counts.astype(np.int64))
    return table


def exact(table: NDArray[np.int64]) -> ExactCounts:
    """The occupied cells as trusted code counts them."""
    places = np.nonzero(table)
    return ExactCounts(tuple(places), table[places].reshape(1, -1), table.shape, (1,))


def mixture(sizes: tuple[int, ...], records: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Records of eight kinds. Within a kind the attributes are independent, drawn from a Dirichlet law of 1/2."""
    shares, table = random.dirichlet(np.full(8, 1.0)), np.zeros(sizes)
    for share in shares:
        kind = np.ones(())
        for size in sizes:
            kind = np.multiply.outer(kind, random.dirichlet(np.full(size, 0.5)))
        table += share * kind
    return random.multinomial(records, table.reshape(-1) / table.sum()).reshape(sizes)


def sets_of(table: NDArray[np.int64], order: int) -> tuple[Members, ...]:
    return tuple(combinations(range(table.ndim), order))


def run_mwem(table: NDArray[np.int64], pool: Pool, schedule: Schedule, method: Method) -> Distribution:
    """MWEM with the product's own families, noise and accounting."""
    mwem_asks = MwemAsks(pool, schedule, AskScan(NO_ROWS, 1))
    door = Door(mwem_asks.asks, lambda job: exact(table), ENTROPY)
    return synthesise(pool, schedule, method, mwem_asks.through(door)).distribution


def run_annealed(
    counts: ExactCounts, sets: tuple[Members, ...], pure: bool, amount: Fraction, expected: int | None
) -> Distribution:
    """Annealed rounds over a workload of marginals, as `auto` has them where no table holds all columns."""
    plan = plan_aim(counts._sizes, sets, pure, amount, 1, expected)
    if plan.pool is None or plan.schedule is None:
        raise SystemExit("rounds without a plan")
    asks = MwemAsks(plan.pool, plan.schedule, AskScan(NO_ROWS, 1), by_total=True)
    oracle = asks.through(Door(asks.asks, lambda job: counts, ENTROPY))
    parameter = plan.schedule.parameter(plan.schedule.total_price)
    records = records_for_plan(oracle.total(parameter), plan.schedule.variance(parameter), expected)
    plan = plan_aim(counts._sizes, sets, pure, amount, 1, records)
    if plan.pool is None or plan.schedule is None or plan.method is None:
        raise SystemExit("rounds without a plan")
    method = replace(plan.method, expected=expected)
    return synthesise(plan.pool, plan.schedule, method, oracle.replan(plan)).distribution


def measured_tables(
    table: NDArray[np.int64], marginals: tuple[Members, ...], pure: bool, amount: Fraction, strategy: str = "auto"
) -> list[Observation]:
    """Measures these marginals with a cube, or Barak's coefficients ('F' with uniform budgets), and recovers."""
    return measured_by(table, planned_tables(table, marginals, pure, amount, strategy))


def planned_tables(
    table: NDArray[np.int64], marginals: tuple[Members, ...], pure: bool, amount: Fraction, strategy: str = "auto"
) -> Plan:
    """The best plan for some marginals."""
    workload = MarginalWorkload(table.shape, marginals, (1.0,) * len(marginals))
    noise = NoiseKind.LAPLACE if pure else NoiseKind.GAUSSIAN
    budgets = "uniform" if strategy == "F" else "optimal"
    return plan_workload(workload, noise, amount, 1, strategy=strategy, budgets=budgets)[0]


def measured_by(table: NDArray[np.int64], plan: Plan) -> list[Observation]:
    """The noisy answers of a plan."""
    marginals = plan.workload.marginals
    asks = [Ask(AskScan(NO_ROWS, 1), Table(query), noise) for query, noise in noisy_queries(plan)]
    answers = recover(plan, [answer for (answer,) in asks[0].query.draw_together(exact(table), asks, ENTROPY)])
    return [
        Observation(members, np.asarray(answer, np.float64), variance)
        for members, answer, variance in zip(marginals, answers, plan.variances, strict=True)
    ]


def run_cube(table: NDArray[np.int64], marginals: tuple[Members, ...], pure: bool, amount: Fraction) -> Distribution:
    """A cube by the best strategy, fitted with the best weight of its prior."""
    plan = planned_tables(table, marginals, pure, amount)
    return best_fit(plan, measured_by(table, plan))[0]


def marginals_of(
    table: NDArray[np.int64], distribution: Distribution, sets: tuple[Members, ...]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Pairs of true and synthetic marginals, each a distribution."""
    tree = margin_tree(tuple(range(table.ndim)), table.shape, sets)
    true, found = tree.margins(table), distribution.marginals(sets)
    records = int(table.sum())
    return [(true[members] / records, found[members]) for members in sets]


def variation(table: NDArray[np.int64], distribution: Distribution, sets: tuple[Members, ...]) -> float:
    """Mean total variation over the marginals."""
    return float(np.mean([np.abs(a - b).sum() / 2 for a, b in marginals_of(table, distribution, sets)]))


def absolute_error(table: NDArray[np.int64], distribution: Distribution, sets: tuple[Members, ...]) -> float:
    """Average over marginals of the mean absolute error of a cell, in records."""
    records = int(table.sum())
    return float(np.mean([np.abs(a - b).mean() * records for a, b in marginals_of(table, distribution, sets)]))


def relative_entropy(table: NDArray[np.int64], distribution: Distribution) -> float:
    """Kullback-Leibler divergence of the synthetic distribution from the data, in nats."""
    joined, place = distribution.join(range(table.ndim))
    true, found = table.reshape(-1) / table.sum(), joined.components[place].table.reshape(-1)
    kept = true > 0
    return float((true[kept] * np.log(true[kept] / np.maximum(found[kept], 1e-300))).sum())
