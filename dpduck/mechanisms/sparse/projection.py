"""A released projection: what is measured for it, and the two tables that analysts ask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpduck.algebra.hashing import SIGNS
from dpduck.frontend.select.request import Request
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.mechanism import Tools, terms_of
from dpduck.mechanisms.release import Product, Terms
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
from dpduck.values.arrays import IntegerArray

Projected = tuple[NDArray[np.uint64], IntegerArray]
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


@dataclass(frozen=True)
class ProjectionOffer:
    """A random projection of the counts of an unbounded universe, and what will leave."""

    request: Request
    plan: ProjectionPlan
    ask: Ask[Projected]


def offer_projection(sparse: SparseRequest) -> ProjectionOffer:
    """The plan of a projection."""
    plan = projection_plan(sparse)
    query = Projection(plan.rows, plan.words, INDEPENDENCE)
    return ProjectionOffer(sparse.request, plan, Ask(key_scan(sparse), query, Noise(plan.noise, plan.spread)))


def projection_terms(offer: ProjectionOffer) -> Terms:
    """What is public before the count."""
    plan = offer.plan
    return terms_of(offer.request, f"{plan.noise.value}, projection of {plan.rows} rows", "projection", rows=plan.rows)


def project(offer: ProjectionOffer, door: Door, tools: Tools) -> Projected:
    """Coefficients, and the noisy projection of the counts."""
    return door.answer(offer.ask)


def projection_table(offer: ProjectionOffer, projected: Projected, tools: Tools) -> Product:
    """The same in blocks."""
    plan, (coefficients, values) = offer.plan, projected
    blocks = [values[start : start + SIGNS].tolist() for start in range(0, plan.rows, SIGNS)]
    rows = {"word": range(plan.words), "coefficients": coefficients.tolist(), "released": blocks}
    whole = pa.list_(pa.int64())
    types = {"word": pa.int32(), "coefficients": whole, "released": whole}
    return Product(COLUMNS, pa.table({name: pa.array(of_name, types[name]) for name, of_name in rows.items()}))


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
