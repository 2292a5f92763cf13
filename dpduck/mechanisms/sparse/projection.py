"""Released projections: the plan, the ask, and the two tables that analysts query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, log, prod, sqrt

import pyarrow as pa

from dpduck.algebra.hashing import SIGNS, words_for
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.projections import Projected, Projection
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.mechanism import OneAsk, Tools
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader
from dpduck.mechanisms.sparse.request import SparseRequest
from dpduck.strategies.budgets import kind_and_amount, noise_for
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Charge

# Plan of a random projection: number of rows, noise and predicted error, from public figures alone.


INDEPENDENCE = 32
FEWEST_ROWS, MOST_ROWS = 64, 10**6
USUAL_ROWS_OF_TABLE = 10**5


@dataclass(frozen=True)
class ProjectionPlan:
    """Plan of a projection. rows: the number of released integers. noise: the noise of each released integer.

    noise_quantile, distortion_quantile: bounds on the errors of all declared queries, in standard errors.
    """

    rows: int
    noise: Noise
    noise_quantile: float
    distortion_quantile: float

    @property
    def words(self) -> int:
        return words_for(self.rows)

    @property
    def noise_variance(self) -> float:
        """Returns an upper bound on the variance of the noise of one released row."""
        parameter = float(self.noise.parameter)
        return parameter if self.noise.kind is NoiseKind.GAUSSIAN else 2.0 * parameter**2

    def stderr(self, weight_squared: float, second_moment: float, answer: float = 0.0) -> float:
        """Returns a query's standard error. weight_squared: sum of squared weights. second_moment: of counts."""
        return sqrt((weight_squared * (self.noise_variance + second_moment) + answer**2) / self.rows)

    def error(self, weight_squared: float, second_moment: float, answer: float = 0.0) -> float:
        """Returns the error that no declared query exceeds, at the plan's confidence. Parameters are as for stderr."""
        noise = sqrt(weight_squared * self.noise_variance / self.rows)
        distortion = sqrt((weight_squared * second_moment + answer**2) / self.rows)
        return self.noise_quantile * noise + self.distortion_quantile * distortion


def plan_projection(
    charge: Charge, unit_bound: int, sparsity: int, queries: int, beta: Fraction, second_moment: float, rows: int | None
) -> ProjectionPlan:
    """Plans a projection at a charge. second_moment: a guess of the sum of squared counts, used if `rows` is None.

    >>> plan_projection(Charge.pure(Fraction(1)), 1, 64, 1000, Fraction(1, 20), 1e6, None).rows
    1012
    """
    kind, amount = kind_and_amount(charge)
    chances = log(4 * queries / float(beta))
    far = distortion_quantile(queries, float(beta))
    near = sqrt(2 * chances)
    if rows is None:
        if kind is NoiseKind.GAUSSIAN:
            wanted = 4 * second_moment * float(amount) / unit_bound**2 * (far / near) ** 2
        else:
            wanted = sqrt(second_moment) * float(amount) / unit_bound * far / near
        rows = min(MOST_ROWS, max(FEWEST_ROWS, ceil(wanted)))
    if not 1 <= rows <= MOST_ROWS:
        raise Refusal(f"a projection of {rows} rows", accepted=f"rows from 1 to {MOST_ROWS}")
    near += 0.0 if kind is NoiseKind.GAUSSIAN else chances * sqrt(sparsity / (2 * rows))
    return ProjectionPlan(rows, noise_for(kind, amount, rows * unit_bound, rows * unit_bound**2), near, far)


def distortion_quantile(queries: int, beta: float) -> float:
    """Returns the least (2 k m / beta)^(1/p) over even p up to INDEPENDENCE / 2: k queries, m the p-th normal moment.

    >>> round(distortion_quantile(10**6, 0.05), 2)
    7.4
    """
    bounds = [float((prod(range(1, p, 2)) * 2 * queries / beta) ** (1 / p)) for p in range(2, INDEPENDENCE // 2 + 1, 2)]
    return min(bounds)


def guess_second_moment(rows_of_table: int | None, heaviest: int | None) -> float:
    """Guesses the sum of squared counts by a bound: n rows times the largest count, which is sqrt(n) by default."""
    rows = rows_of_table or USUAL_ROWS_OF_TABLE
    return float(rows) * float(heaviest or ceil(sqrt(rows)))


COLUMNS = (("word", "INTEGER"), ("coefficients", "BIGINT[]"), ("released", "BIGINT[]"))


def projection_plan(sparse: SparseRequest) -> ProjectionPlan:
    """Returns the plan of a request, from public facts alone."""
    options = sparse.options
    return plan_projection(
        sparse.request.price.charge,
        sparse.request.rows.unit_bound,
        options.sparsity,
        options.queries,
        options.beta,
        guess_second_moment(sparse.expect_rows, options.heaviest),
        options.rows,
    )


def key_scan(sparse: SparseRequest) -> AskScan:
    """Returns the scan of the rows by key, with the sensitivity of one unit."""
    return AskScan(
        replace(counting_job(sparse.request, (Contribution(),)), digest=sparse.key),
        sparse.request.rows.unit_bound,
    )


ProjectionProposal = OneAsk[ProjectionPlan, Projected]
"""Proposal of a random projection of counts over an unbounded universe."""


def propose_projection(sparse: SparseRequest) -> ProjectionProposal:
    """Proposes a projection: its plan and its ask."""
    plan = projection_plan(sparse)
    query = Projection(plan.rows, plan.words, INDEPENDENCE)
    return ProjectionProposal(sparse.request, plan, Ask(key_scan(sparse), query, plan.noise))


def projection_header(proposal: ProjectionProposal) -> ReleaseHeader:
    """Describes the release before anything is counted."""
    plan = proposal.plan
    return ReleaseHeader(
        proposal.request, f"{plan.noise.kind.value}, projection of {plan.rows} rows", "projection", most_rows=plan.rows
    )


def projection_table(proposal: ProjectionProposal, projected: Projected, tools: Tools) -> ReleasedTable:
    """Returns the released table: a row for each block of SIGNS integers, with its polynomial."""
    plan, (coefficients, values) = proposal.plan, projected
    blocks = [values[start : start + SIGNS].tolist() for start in range(0, plan.rows, SIGNS)]
    rows = {"word": range(plan.words), "coefficients": coefficients.tolist(), "released": blocks}
    integers = pa.list_(pa.int64())
    types = {"word": pa.int32(), "coefficients": integers, "released": integers}
    return ReleasedTable(COLUMNS, pa.table({name: pa.array(of_name, types[name]) for name, of_name in rows.items()}))


def value_select(table_sql: str) -> str:
    """Renders the SELECT of the projected rows, as an analyst reads them."""
    unnested = f"SELECT word, unnest(released) AS value, generate_subscripts(released, 1) AS place FROM {table_sql}"
    return f'SELECT CAST(word * {SIGNS} + place - 1 AS BIGINT) AS "row", value FROM ({unnested}) ORDER BY "row"'


def seed_select(table_sql: str, plan: ProjectionPlan) -> str:
    """Renders the SELECT of the signs' polynomials, with the public figures of the noise in every row."""
    return (
        f"SELECT word, coefficients, CAST({plan.rows} AS INTEGER) AS projected_rows, "
        f"CAST({plan.noise_variance!r} AS DOUBLE) AS noise_variance, "
        f"CAST({plan.noise_quantile!r} AS DOUBLE) AS noise_quantile, "
        f"CAST({plan.distortion_quantile!r} AS DOUBLE) AS distortion_quantile FROM {table_sql} ORDER BY word"
    )
