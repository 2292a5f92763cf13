"""A released projection: what is measured for it, and the two tables that analysts ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from dpduck.algebra.hashing import SIGNS
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.release import Product, Steps, Terms
from dpduck.mechanisms.sparse.projection_plan import (
    INDEPENDENCE,
    ProjectionPlan,
    guessed_second_moment,
    plan_projection,
)
from dpduck.mechanisms.sparse.request import SparseRequest
from dpduck.trusted.ask import Ask, Projection, Scan
from dpduck.trusted.noise.law import Noise
from dpduck.trusted.private.door import Door
from dpduck.trusted.private.jobs import KeyJob

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
    return KeyJob(counting_job(sparse.request, ()), sparse.key_sql)


def key_scan(sparse: SparseRequest) -> Scan:
    """The rows by key, and what one unit adds to them."""
    bound = sparse.request.unit_bound
    return Scan(key_job(sparse), bound)


class ProjectionRecipe:
    """A random projection of the counts of an unbounded universe (see release.Recipe)."""

    def __init__(self, sparse: SparseRequest, recheck: Recheck) -> None:
        self._sparse = sparse
        self._plan = plan = projection_plan(sparse)
        query = Projection(plan.rows, plan.words, INDEPENDENCE)
        self._ask = Ask(key_scan(sparse), query, Noise(plan.noise, plan.spread))
        self._recheck = recheck
        self.terms = Terms(
            unit_key=sparse.request.unit_key,
            table=str(sparse.request.table),
            charge=sparse.request.charge,
            mechanism=f"{self._plan.noise.value}, projection of {self._plan.rows} rows",
            strategy="projection",
            shapes=sparse.request.shapes,
            least_rho=sparse.request.least_rho,
            rows=plan.rows,
        )

    def asks(self) -> Sequence[Ask[Any]]:
        """The projected rows."""
        return [self._ask]

    def recheck(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Facts as analysed."""
        self._recheck(cursor)

    def produce(self, door: Door, steps: Steps) -> Product:
        """Coefficients, and the noisy projection of the counts."""
        plan = self._plan
        coefficients, values = door.answer(self._ask)
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
