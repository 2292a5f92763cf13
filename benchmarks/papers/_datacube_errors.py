"""What datacubes.py compares: the twelve settings, the methods, their errors as predicted and as measured.

Settings. Q_k is all k-way marginals. Q_k* adds half of all (k+1)-way marginals. Q_k^a adds all (k+1)-way marginals with
one fixed attribute, here the first. The paper does not say which half.
We take the first half (rounded down) in the order of the masks alpha in {0,1}^d as numbers, attribute 1 the lowest bit.
This was settled after looking: it is the only one in HALVES with which every gated claim of the paper holds in average
absolute error. `main` prints the figures of the others.

Methods. I, Q, Q+, F, F+, C, C+ answer as in the paper: `consistency = 'none'`. Each answer is summed from one noisy
table (I, Q, C), or comes from the plain inverse transform (F). O, R and auto, ours, use least squares. F measures the
bits of an attribute of 9 values as 16 codes and releases the 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import combinations
from math import pi, prod
from pathlib import Path

import duckdb
import numpy as np

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.integers import discrete_gaussian, discrete_laplace
from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.kernel.queries.operators import HadamardFactor
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.marginals.weights import code_count
from dpduck.strategies.plan import Plan
from dpduck.strategies.recovery.recover import recover
from dpduck.strategies.variance import direct_sources
from dpduck.values.accounting import rho_of
from dpduck.values.arrays import FloatArray, IntegerArray

Marginal = tuple[int, ...]

PAPER = ("I", "Q", "Q+", "F", "F+", "C", "C+")
DELTA = Fraction(1, 10**6)
MOST_DRAWS = 1 << 22
"""Noise of several repetitions is drawn at once, up to this many draws."""

MOST_RECOVERED = 5000
"""More repetitions than this are recovered by one matrix."""

TABLES = {
    "adult": ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "salary"),
    "nltcs": tuple(f"y{number}" for number in range(1, 17)),
}
"""Columns whose values in these public data sets are taken as the domain, which a policy would declare."""

HALVES: dict[str, Callable[[list[Marginal]], list[Marginal]]] = {
    "the first half by masks": lambda ways: sorted(ways, key=lambda way: way[::-1])[: len(ways) // 2],
    "the first half in lexicographic order": lambda ways: ways[: len(ways) // 2],
    "the last half in lexicographic order": lambda ways: ways[len(ways) // 2 :],
    "every second in lexicographic order": lambda ways: ways[::2],
}


@dataclass
class Table:
    """A public data set as a dense table of exact counts."""

    name: str
    counts: IntegerArray
    known: dict[Marginal, IntegerArray] = field(default_factory=dict)

    def marginal(self, members: Marginal) -> IntegerArray:
        """The exact marginal, in integers."""
        if members not in self.known:
            others = tuple(axis for axis in range(self.counts.ndim) if axis not in members)
            self.known[members] = np.asarray(self.counts.sum(axis=others))
        return self.known[members]


def read_table(name: str, directory: Path, columns: tuple[str, ...] = ()) -> Table:
    """Counted by DuckDB. columns: fewer than all."""
    columns = columns or TABLES[name]
    relation = duckdb.read_parquet(str(directory / f"{name}.parquet"))
    cells = relation.aggregate(", ".join([*columns, "count(*) AS n"]), ", ".join(columns)).fetchnumpy()
    domains, codes = zip(*(np.unique(cells[column], return_inverse=True) for column in columns), strict=True)
    counts = np.zeros([len(domain) for domain in domains], dtype=np.int64)
    np.add.at(counts, codes, cells["n"])
    return Table(name, counts)


@dataclass(frozen=True)
class Setting:
    """One panel of the paper's figures."""

    table: Table
    label: str
    workload: MarginalWorkload

    def __str__(self) -> str:
        return f"{self.table.name} {self.label}"

    @property
    def mean_answer(self) -> float:
        """The mean true answer of a released cell."""
        return float(self.table.counts.sum()) * len(self.workload.marginals) / self.workload.cells


def settings(table: Table) -> Iterator[Setting]:
    """Q1, Q1*, Q1a, Q2, Q2*, Q2a."""
    for order in (1, 2):
        for kind in ("", "*", "a"):
            yield Setting(table, f"Q{order}{kind}", workload(table.counts.shape, order, kind))


def workload(sizes: tuple[int, ...], order: int, kind: str, half: str = "the first half by masks") -> MarginalWorkload:
    """Q_k, Q_k* or Q_k^a, all cells of equal weight."""
    base, above = (list(combinations(range(len(sizes)), ways)) for ways in (order, order + 1))
    extra = {"": [], "*": HALVES[half](above), "a": [way for way in above if 0 in way]}[kind]
    marginals = (*base, *extra)
    return MarginalWorkload(sizes, marginals, (1.0,) * len(marginals))


def paper_plan(asked: MarginalWorkload, method: str, epsilon: Fraction, consistency: str = "none") -> Plan:
    """Plans one of the paper's seven methods under pure epsilon."""
    budgets = "optimal" if method.endswith("+") else "uniform"
    return plan_workload(asked, NoiseKind.LAPLACE, epsilon, 1, method.removesuffix("+"), budgets, consistency)[0]


def automatic_plans(asked: MarginalWorkload, epsilon: Fraction, seconds: float) -> tuple[Plan, ...]:
    """Every candidate with least squares, the chosen one first."""
    return plan_workload(asked, NoiseKind.LAPLACE, epsilon, 1, planning_seconds=seconds)


def gaussian_plan(asked: MarginalWorkload, epsilon: Fraction) -> Plan:
    """R at (epsilon, DELTA): another guarantee than the others'."""
    return plan_workload(asked, NoiseKind.GAUSSIAN, rho_of(epsilon, DELTA), 1, "R")[0]


@dataclass(frozen=True)
class Measured:
    """Errors of each repetition, over all released cells."""

    absolute: FloatArray
    squared: FloatArray

    @property
    def mean(self) -> float:
        """The average absolute error per entry."""
        return float(self.absolute.mean())

    @property
    def root_mean_square(self) -> float:
        """The measured error, for comparison with the predicted one."""
        return float(self.squared.mean() ** 0.5)


def measure_errors(table: Table, plan: Plan, repetitions: int) -> Measured:
    """Adds noise from the operating system's entropy to exact answers. Returns errors of the recovered marginals."""
    measurements = tuple(plan.measurements)
    exact = [item.query.apply(table.marginal(item.query.attributes)) for item in measurements]
    truth = [table.marginal(marginal) for marginal in plan.workload.marginals]
    batch = max(1, min(repetitions, MOST_DRAWS // sum(answers.size for answers in exact)))
    sampler = discrete_laplace if plan.noise is NoiseKind.LAPLACE else discrete_gaussian
    entropy = operating_system_entropy()
    absolute, squared = [], []
    for start in range(0, repetitions, batch):
        count = min(batch, repetitions - start)
        noisy = [
            answers + sampler(item.parameter, count * answers.size, entropy).reshape(count, *answers.shape)
            for item, answers in zip(measurements, exact, strict=True)
        ]
        for number in range(count):
            recovered = recover(plan, [draws[number] for draws in noisy])
            errors = np.concatenate([(one - other).ravel() for one, other in zip(recovered, truth, strict=True)])
            absolute.append(np.abs(errors).mean())
            squared.append((errors * errors).mean())
    return Measured(np.array(absolute), np.array(squared))


def measure_at_length(table: Table, plan: Plan, repetitions: int) -> Measured:
    """Measures as `measure_errors` does, but fast for many repetitions, since recovery is linear.

    One matrix holds what `recover` makes of unit vectors. Only for plans of few measured rows. The exact answers cancel
    out, as `measure_errors` shows.
    """
    if repetitions <= MOST_RECOVERED:
        return measure_errors(table, plan, repetitions)
    measurements = tuple(plan.measurements)
    rows = np.cumsum([0, *(prod(item.query.shape) for item in measurements)])
    columns = []
    for unit in np.eye(rows[-1], dtype=np.int64):
        split = zip(np.split(unit, rows[1:-1]), measurements, strict=True)
        parts = [part.reshape(item.query.shape) for part, item in split]
        columns.append(np.concatenate([answer.ravel() for answer in recover(plan, parts)]))
    matrix, entropy = np.array(columns), operating_system_entropy()
    absolute, squared = [], []
    for start in range(0, repetitions, MOST_RECOVERED):
        count = min(MOST_RECOVERED, repetitions - start)
        draws = [discrete_laplace(item.parameter, count * prod(item.query.shape), entropy) for item in measurements]
        errors = np.concatenate([block.reshape(count, -1) for block in draws], axis=1) @ matrix
        absolute.append(np.abs(errors).mean(axis=1))
        squared.append((errors * errors).mean(axis=1))
    return Measured(np.concatenate(absolute), np.concatenate(squared))


def predicted_root_mean_square(plan: Plan) -> float:
    """From the variances that the planner reports."""
    return float((plan.total_variance / plan.workload.cells) ** 0.5)


def predicted_absolute(plan: Plan) -> float:
    """Returns the expected average absolute error of a method of the paper. Its answers are sums of Laplace noise."""
    sizes = plan.workload.sizes
    cells = [prod(sizes[i] for i in marginal) for marginal in plan.workload.marginals]
    terms = _fourier_terms(plan) if _is_fourier(plan) else _table_terms(plan)
    return sum(
        cell_count * mean_absolute(noise) / divisor for cell_count, (noise, divisor) in zip(cells, terms, strict=True)
    ) / sum(cells)


Terms = tuple[tuple[tuple[float, int], ...], int]
"""The noise of an answer: (variance, how many) of its independent terms, and what their sum is divided by."""


def _is_fourier(plan: Plan) -> bool:
    return isinstance(plan.measurements[-1].query.factors[0], HadamardFactor)


def _table_terms(plan: Plan) -> Iterator[Terms]:
    """A cell is a sum of cells of one noisy table."""
    sizes = plan.workload.sizes
    sources, _ = direct_sources(plan.workload, plan.measurements, plan.noise)
    for source, marginal in zip(sources, plan.workload.marginals, strict=True):
        item = plan.measurements[source]
        dropped = set(item.query.attributes) - set(marginal)
        yield ((noise_variance(plan.noise, item.parameter), prod(sizes[i] for i in dropped)),), 1


def _fourier_terms(plan: Plan) -> Iterator[Terms]:
    """A cell is a sum of coefficients with signs, divided by the number of codes."""
    codes = [code_count(size) for size in plan.workload.sizes]
    variances = {item.query.attributes: noise_variance(plan.noise, item.parameter) for item in plan.measurements}
    for marginal in plan.workload.marginals:
        supports = [chosen for order in range(len(marginal) + 1) for chosen in combinations(marginal, order)]
        noise = [(round(variances[support], 9), prod(codes[i] - 1 for i in support)) for support in supports]
        yield tuple(sorted(noise)), prod(codes[i] for i in marginal)


@cache
def mean_absolute(noise: tuple[tuple[float, int], ...]) -> float:
    """Returns E|X| for a sum X of independent discrete Laplace draws. noise: pairs of a variance v and a count.

    |x| = 1/pi times the integral over 0..pi of (1 - cos tx) / y with y = 1 - cos t. The characteristic function of a
    draw is 1 / (1 + v y). The integral is taken over u, with t = exp(u), by the trapezoidal rule.
    """
    total = sum(variance * count for variance, count in noise)
    lowest = 1e-4 / max(total, 1.0) ** 0.5  # below it the integrand is the variance
    logs = np.linspace(np.log(lowest), np.log(pi), 4001)
    y = 2 * np.sin(np.exp(logs) / 2) ** 2
    log_characteristic = -np.sum([count * np.log1p(variance * y) for variance, count in noise], axis=0)
    inner = np.trapezoid(-np.expm1(log_characteristic) / y * np.exp(logs), logs)
    return float((inner + total * lowest) / pi)


def deviation_of_mean(values: Sequence[float] | FloatArray) -> float:
    """The standard error of a mean of independent values."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5)
