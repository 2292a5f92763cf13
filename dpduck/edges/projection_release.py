"""A released projection: what is measured for it, and the two tables that analysts ask."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pyarrow as pa

from dpduck.edges.releaser import Product, Steps, Terms
from dpduck.errors import InternalError, Refusal
from dpduck.frontend.sparse_request import SparseRequest
from dpduck.planning.plan import NoiseKind
from dpduck.privacy import Charge
from dpduck.sparsequeries.projection_plan import (
    INDEPENDENCE,
    ProjectionPlan,
    guessed_second_moment,
    plan_projection,
)
from dpduck.trusted.discrete_gaussian import LARGEST_VARIANCE
from dpduck.trusted.discrete_laplace import LARGEST_SCALE
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.key_counts import KeyJob, count_keys
from dpduck.trusted.projection import draw_coefficients, measure_projection, projection_cost
from dpduck.workload.sign_hash import SIGNS

Recheck = Callable[[duckdb.DuckDBPyConnection], None]
COLUMNS = (("word", "INTEGER"), ("coefficients", "BIGINT[]"), ("released", "BIGINT[]"))


def projection_plan(sparse: SparseRequest) -> ProjectionPlan:
    """The plan of a request, from public facts alone."""
    options = sparse.options
    return plan_projection(
        sparse.request.charge,
        sparse.request.unit_bound,
        options.sparsity,
        options.queries,
        options.beta,
        guessed_second_moment(sparse.expect_rows, options.heaviest),
        options.rows,
    )


def key_job(sparse: SparseRequest) -> KeyJob:
    """What trusted code is to count by key."""
    request = sparse.request
    return KeyJob(
        request.from_sql, request.filters, request.unit_sql, request.max_rows, request.content_sql, sparse.key_sql
    )


def require_within(cost: Charge, charge: Charge) -> None:
    """The second computation of the price must not exceed the first."""
    if charge.epsilon is None:
        within = cost.rho <= charge.rho
    else:
        within = cost.epsilon is not None and cost.epsilon <= charge.epsilon
    if not within:
        raise InternalError("the compiled measurement costs more than the statement; nothing was charged")


class ProjectionRecipe:
    """A random projection of the counts of an unbounded universe (see releaser.Recipe)."""

    def __init__(self, sparse: SparseRequest, recheck: Recheck) -> None:
        self._sparse = sparse
        self._plan = projection_plan(sparse)
        self._recheck = recheck
        self.terms = Terms(
            unit_key=sparse.request.unit_key,
            table=str(sparse.request.table),
            charge=sparse.request.charge,
            mechanism=f"{self._plan.noise.value}, projection of {self._plan.rows} rows",
            strategy="projection",
        )

    def check(self) -> None:
        """Noise that can be drawn; the price from the rows that will be measured."""
        plan = self._plan
        largest = LARGEST_SCALE if plan.noise is NoiseKind.LAPLACE else LARGEST_VARIANCE
        if plan.spread > largest:
            raise Refusal("at this price the noise would not fit 64-bit numbers", accepted="a larger epsilon or rho")
        cost = projection_cost(plan.rows, self._sparse.request.unit_bound, plan.noise, plan.spread)
        require_within(cost, self._sparse.request.charge)

    def recheck(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Facts as analysed."""
        self._recheck(cursor)

    def produce(
        self, cursor: duckdb.DuckDBPyConnection, bounding_key: bytes, entropy: Entropy, steps: Steps
    ) -> Product:
        """Coefficients, exact counts, projection, noise."""
        plan = self._plan
        counts = count_keys(cursor, key_job(self._sparse), bounding_key)
        steps("after the count")
        coefficients = draw_coefficients(plan.words, INDEPENDENCE, entropy)
        values = measure_projection(counts, coefficients, plan.rows, plan.noise, plan.spread, entropy)
        steps("after the noise")
        blocks = [values[start : start + SIGNS].tolist() for start in range(0, plan.rows, SIGNS)]
        rows = {"word": range(plan.words), "coefficients": coefficients.tolist(), "released": blocks}
        whole = pa.list_(pa.int64())
        types = {"word": pa.int32(), "coefficients": whole, "released": whole}
        return Product(COLUMNS, pa.table({name: pa.array(values, types[name]) for name, values in rows.items()}))


def value_select(table_sql: str) -> str:
    """The projected rows as an analyst reads them."""
    unnested = f"SELECT word, unnest(released) AS value, generate_subscripts(released, 1) AS place FROM {table_sql}"
    return f'SELECT CAST(word * {SIGNS} + place - 1 AS BIGINT) AS "row", value FROM ({unnested}) ORDER BY "row"'


def seed_select(table_sql: str, plan: ProjectionPlan) -> str:
    """The signs' polynomials, and what is public about the noise, in every row."""
    return (
        f"SELECT word, coefficients, CAST({plan.rows} AS INTEGER) AS projected_rows, "
        f"CAST({plan.noise_variance!r} AS DOUBLE) AS noise_variance, "
        f"CAST({plan.noise_quantile!r} AS DOUBLE) AS noise_quantile, "
        f"CAST({plan.distortion_quantile!r} AS DOUBLE) AS distortion_quantile FROM {table_sql} ORDER BY word"
    )
