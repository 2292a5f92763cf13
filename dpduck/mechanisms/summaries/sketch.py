"""A release of a count sketch: its buckets, with the coefficients by which any DuckDB finds a cell's bucket."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpduck.database.sandbox import sandbox
from dpduck.frontend.select.request import Request
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.mechanism import OneAsk, Tools
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader
from dpduck.mechanisms.released_rows import label_array
from dpduck.mechanisms.summaries.measure import sketch_design
from dpduck.mechanisms.summaries.plan import SketchDesign
from dpduck.planning.recovery.intervals import law_of
from dpduck.trusted.ask import Ask, Scan, Sketch
from dpduck.trusted.private.contributions import Contribution
from dpduck.trusted.private.sketches import PRIME, SketchHashes
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError, Refusal

SKETCH_COLUMNS = (
    ("sketch_row", "INTEGER"), ("bucket", "BIGINT"), ("n", "BIGINT"), ("buckets", "BIGINT"),
    ("bucket_hash", "BIGINT[]"), ("sign_hash", "BIGINT[]"),
)  # fmt: skip
Sketched = tuple[SketchHashes, IntegerArray]


SketchProposal = OneAsk[SketchDesign, Sketched]
"""A count sketch: its size and noise."""


def propose_sketch(request: Request) -> SketchProposal:
    """Returns the plan of a sketch."""
    design = sketch_design(request)
    if any(key.shape for key in request.question.keys):
        raise Refusal("a sketch has no ranges", accepted="columns, or another summary")
    return SketchProposal(request, design, sketch_ask(request, design))


def sketch_header(proposal: SketchProposal) -> ReleaseHeader:
    """Describes the release before anything is counted."""
    design, laws = proposal.plan, ((law_of(proposal.plan.noise),),)
    mechanism = f"{design.noise.kind.value}, count sketch"
    return ReleaseHeader(proposal.request, mechanism, "sketch", laws, design.rows * design.width)


def sketch_table(proposal: SketchProposal, sketched: Sketched, tools: Tools) -> ReleasedTable:
    """Returns the buckets with their hashes."""
    hashes, table = sketched
    return ReleasedTable(SKETCH_COLUMNS, _rows(table, hashes))


def sketch_ask(request: Request, design: SketchDesign) -> Ask[Sketched]:
    """Declares the ask; refuses noise that cannot be drawn."""
    bound = request.rows.unit_bound
    scan = Scan(counting_job(request, [Contribution(request.question.aggregates[0].condition)]), bound)
    return Ask(scan, Sketch(design.rows, design.width, tuple(label_numbers(request))), design.noise)


def label_numbers(request: Request) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Returns a number below P for each label, as the macro dp_label_number has it: 0 for NULL, else from MD5 of its
    text.
    """
    numbers = []
    with sandbox() as connection:
        for key in request.question.keys:
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
