"""A release of a count sketch: its buckets, with the coefficients by which any DuckDB finds a cell's bucket."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import numpy as np
import pyarrow as pa

from dpduck.edges.counting_jobs import counting_job
from dpduck.edges.released_rows import label_array
from dpduck.edges.releaser import Product, Steps, Terms
from dpduck.edges.sandbox import sandbox
from dpduck.errors import InternalError, Refusal
from dpduck.frontend.request import Request
from dpduck.planning.plan import NoiseKind
from dpduck.recovery.intervals import ErrorLaw
from dpduck.summaries.design import SketchDesign
from dpduck.trusted.contribution import Contribution
from dpduck.trusted.count_sketch import PRIME, SketchHashes, draw_hashes, draw_sketch, sketch_cost
from dpduck.trusted.counting import count_exactly
from dpduck.trusted.discrete_laplace import LARGEST_SCALE
from dpduck.trusted.entropy import Entropy

SKETCH_COLUMNS = (
    ("sketch_row", "INTEGER"), ("bucket", "BIGINT"), ("n", "BIGINT"), ("buckets", "BIGINT"),
    ("bucket_hash", "BIGINT[]"), ("sign_hash", "BIGINT[]"),
)  # fmt: skip


class SketchRecipe:
    """A count sketch (see releaser.Recipe)."""

    def __init__(
        self, request: Request, design: SketchDesign, recheck: Callable[[duckdb.DuckDBPyConnection], None]
    ) -> None:
        if any(key.shape for key in request.keys):
            raise Refusal("a sketch has no ranges", accepted="columns, or another summary")
        self._request = request
        self._design = design
        self._recheck = recheck
        self.terms = Terms(
            unit_key=request.unit_key,
            table=str(request.table),
            charge=request.charge,
            mechanism=f"{NoiseKind.LAPLACE.value}, count sketch",
            strategy="sketch",
            laws=((ErrorLaw(NoiseKind.LAPLACE, design.scale, design.variance),),),
        )

    def check(self) -> None:
        """The price, computed a second time from the sketch that will be drawn."""
        if self._design.scale > LARGEST_SCALE:
            raise Refusal("at this price the noise would not fit 64-bit numbers", accepted="a larger epsilon")
        cost = sketch_cost(self._design.scale, self._design.rows, self._request.unit_bound)
        if self._request.charge.epsilon is None or cost > self._request.charge.epsilon:
            raise InternalError("the sketch costs more than the statement; nothing was charged")

    def recheck(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Facts as analysed, and SQL around the release that binds."""
        self._recheck(cursor)

    def produce(
        self, cursor: duckdb.DuckDBPyConnection, bounding_key: bytes, entropy: Entropy, steps: Steps
    ) -> Product:
        """Exact counts, their noisy sketch."""
        request, design = self._request, self._design
        numbers = label_numbers(request)
        hashes = draw_hashes(design.rows, design.width, len(request.keys), entropy)
        counts = count_exactly(
            cursor, counting_job(request, [Contribution(request.aggregates[0].condition)]), bounding_key
        )
        steps("after the count")
        table = draw_sketch(counts, hashes, numbers, design.scale, entropy)
        steps("after the noise")
        return Product(SKETCH_COLUMNS, _rows(table, hashes))


def label_numbers(request: Request) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """A number below P for each label, as the macro dp_label_number has it: 0 for NULL, else from MD5 of its text."""
    numbers = []
    with sandbox() as connection:
        for key in request.keys:
            labels = label_array(connection, key.labels, key.type_name)
            connection.register("labels", pa.table({"place": np.arange(len(labels)), "label": labels}))
            found = connection.execute(
                f"SELECT CASE WHEN label IS NULL THEN 0 ELSE CAST(1 + md5_number(CAST(CAST(label AS {key.type_name}) "
                f"AS VARCHAR)) % {PRIME - 1} AS BIGINT) END AS number FROM labels ORDER BY place"
            ).fetchnumpy()["number"]
            connection.unregister("labels")
            of_labels = np.asarray(found, dtype=np.int64)
            if len(np.unique(of_labels)) != len(of_labels):
                raise InternalError("two labels have one number")
            numbers.append(of_labels)
    return numbers


def _rows(table: np.ndarray[tuple[int, ...], np.dtype[np.int64]], hashes: SketchHashes) -> pa.Table:
    rows, width = table.shape
    of_row = np.repeat(np.arange(rows), width)
    lists = [
        pa.array([list(row) for row in of_kind], pa.list_(pa.int64())).take(pa.array(of_row))
        for of_kind in (hashes.buckets, hashes.signs)
    ]
    columns = [
        pa.array((of_row + 1).astype(np.int32)), pa.array(np.tile(np.arange(width), rows)), pa.array(table.reshape(-1)),
        pa.array(np.full(rows * width, width)), *lists,
    ]  # fmt: skip
    return pa.table(dict(zip([name for name, _ in SKETCH_COLUMNS], columns, strict=True)))
