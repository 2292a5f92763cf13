"""Release of a noisy summary: its design, its asks and their price, and the released table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dpduck.algebra.dyadic import DyadicAxis, node_sensitivity
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.door import Door
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.kernel.queries.sketches import PRIME, Sketch, Sketched, SketchHashes
from dpduck.kernel.queries.summaries import Layers, NoisySummary
from dpduck.kernel.queries.tables import Total
from dpduck.language.select.request import SelectRequest, Summary
from dpduck.mechanisms.cubes import measures
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.mechanism import OneAsk, Tools
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader
from dpduck.mechanisms.released_rows import label_array
from dpduck.mechanisms.summaries.fit import fit_intervals
from dpduck.mechanisms.summaries.parents import with_parents
from dpduck.mechanisms.summaries.plan import (
    SketchDesign,
    SummaryDesign,
    candidates,
    design_sketch,
    empty_moments,
    noise_variance,
)
from dpduck.mechanisms.summaries.recover import EstimatedSummary, estimate_weights, with_loss, with_priorities
from dpduck.mechanisms.summaries.released import summary_columns, summary_rows
from dpduck.store.sandbox import sandbox
from dpduck.strategies.budgets import noise_for
from dpduck.strategies.recovery.intervals import ErrorLaw, law_of
from dpduck.values.errors import InternalError, Refusal

CHECKED = ("filter", "filter_one_sided", "filter_priority")
"""Methods that draw all cells above a filter, so that a missing parent is informative."""
FITTED = ("filter", "filter_priority", "geometric")
"""Methods with intervals that least squares make consistent, if none was sampled."""

Axes = tuple[DyadicAxis | None, ...]
Drawn = tuple[int | None, SummaryDesign, NoisySummary]


def require_summary(request: SelectRequest) -> Summary:
    """Returns the summary that a request asks for."""
    if request.question.summary is None:
        raise InternalError("no summary is asked for")
    return request.question.summary


def axes_of(request: SelectRequest) -> Axes:
    """Returns the axis that replaces each key in a summary, None for a plain key."""
    shape = require_summary(request).shape
    return tuple(DyadicAxis(shape, len(key.labels)) if key.shape else None for key in request.question.keys)


def radix_of(request: SelectRequest, axes: Axes) -> MixedRadix:
    """Returns the numbering of cells over the keys, or over the nodes that replace them."""
    sizes = zip(request.question.sizes, axes, strict=True)
    return MixedRadix(tuple(size if axis is None else axis.nodes for size, axis in sizes))


def contribution_of(request: SelectRequest) -> Contribution:
    """Returns the contribution of a row to its cell: 1, or its value in integer units."""
    (aggregate,) = request.question.aggregates
    return measures.own_measure(aggregate, chosen=False).contribution


def unit_bound(request: SelectRequest) -> int:
    """Returns the sensitivity: the most that a unit adds to all cells together, in integer units."""
    return contribution_of(request).unit_bound(request.rows.unit_bound, 1)


def noise_scale(request: SelectRequest, axes: Axes) -> Fraction:
    """Returns the noise scale: the sensitivity over all nodes, divided by the epsilon without a noisy total's part."""
    if request.price.charge.epsilon is None:
        raise InternalError("a summary costs epsilon")
    left = request.price.charge.epsilon - (require_summary(request).total_epsilon or 0)
    return unit_bound(request) * node_sensitivity(axes) / left


def summary_candidates(request: SelectRequest, total: int | None = None) -> list[SummaryDesign]:
    """Returns a design of every method, the chosen one first. total: a noisy total that replaces the expected rows."""
    axes, summary = axes_of(request), in_units(request)
    guess = summary.expect_rows if total is None else max(total, 0)
    if guess is not None:  # a row is in node_sensitivity nodes
        summary = replace(summary, expect_rows=guess * node_sensitivity(axes))
    cells, checked = radix_of(request, axes).cells, has_parents(summary, axes)
    signed = contribution_of(request).low < 0
    return candidates(summary, cells, noise_scale(request, axes), checked=checked, signed=signed)


def in_units(request: SelectRequest) -> Summary:
    """Returns the summary's options in integer units of a sum. A row is guessed to have half of the largest value."""
    summary, added = require_summary(request), contribution_of(request)
    if added.form == "count":
        return summary
    theta = None if summary.theta is None else max(1, int(summary.theta / added.unit))
    tau = None if summary.tau is None else summary.tau / added.unit
    guess = None if summary.expect_rows is None else summary.expect_rows * max(1, added.bound // 2)
    return replace(summary, theta=theta, tau=tau, expect_rows=guess)


def has_parents(summary: Summary, axes: Axes) -> bool:
    """Tells whether nodes without parents are dropped."""
    return summary.consistent and any(axis is not None and axis.shape == "dyadic" for axis in axes)


def sketch_design(request: SelectRequest) -> SketchDesign:
    """Returns the design of the sketch that the request asks for, or could ask for."""
    axes = axes_of(request)
    if request.price.charge.epsilon is None:
        row_noise = noise_for(NoiseKind.GAUSSIAN, request.price.charge.rho, request.rows.unit_bound)
    else:
        row_noise = Noise(NoiseKind.LAPLACE, noise_scale(request, axes))
    return design_sketch(require_summary(request), radix_of(request, axes).cells, row_noise)


@dataclass(frozen=True)
class SummaryProposal:
    """Proposal of a noisy summary: the method, chosen by public numbers, and the asks. query: the query of `layers`."""

    request: SelectRequest
    query: Layers
    design: SummaryDesign
    layers: Ask[NoisySummary]
    total: Ask[int] | None


def propose_summary(request: SelectRequest) -> SummaryProposal:
    """Proposes a summary that is not a sketch."""
    axes, share = axes_of(request), require_summary(request).total_epsilon
    query, design = Layers(axes, radix_of(request, axes)), summary_candidates(request)[0]
    scan = AskScan(counting_job(plain_keys(request), [contribution_of(request)]), unit_bound(request))
    layers = Ask(scan, query, Noise(NoiseKind.LAPLACE, design.plan.scale))
    total = None if share is None else Ask(scan, Total(), noise_for(NoiseKind.LAPLACE, share, scan.l1))
    return SummaryProposal(request, query, design, layers, total)


def summary_header(proposal: SummaryProposal) -> ReleaseHeader:
    """Describes the release before anything is counted."""
    request, counted = proposal.request, "" if proposal.total is None else ", noisy total"
    mechanism = f"{NoiseKind.LAPLACE.value}, {proposal.design.method} summary{counted}"
    return ReleaseHeader(request, mechanism, proposal.design.method, ((summary_law(request, proposal.design),),))


def summary_asks(proposal: SummaryProposal) -> Sequence[Ask[Any]]:
    """Returns the asks: the noisy number of rows if the statement wants it, and the layers."""
    return [proposal.layers] if proposal.total is None else [proposal.total, proposal.layers]


def draw_layers(proposal: SummaryProposal, door: Door, tools: Tools) -> Drawn:
    """Draws the noisy total if there is one, and the noisy summary by the design for that total."""
    total, design = None, proposal.design
    if proposal.total is not None:
        total = door.answer(proposal.total)
        design = _for_total(proposal, total)
    return total, design, door.answer(proposal.layers, design.plan)


def summary_table(proposal: SummaryProposal, noisy: Drawn, tools: Tools) -> ReleasedTable:
    """Returns the released table: estimates of the kept cells."""
    request, (total, design, drawn) = proposal.request, noisy
    axes, radix = proposal.query.axes, proposal.query.radix
    if has_parents(require_summary(request), axes) and design.method in CHECKED:
        drawn = with_parents(drawn, radix, axes)
    estimates = _estimate_summary(design, drawn)
    if require_summary(request).consistent and design.method in FITTED and estimates.tau == 0:
        estimates = fit_intervals(estimates, radix, axes, noise_variance(design.scale))
    estimates = _with_loss(proposal, estimates, design, total)
    rows = summary_rows(request, estimates, radix, axes, contribution_of(request).unit)
    return ReleasedTable(summary_columns(request), rows)


def _with_loss(
    proposal: SummaryProposal, estimates: EstimatedSummary, design: SummaryDesign, total: int | None
) -> EstimatedSummary:
    """Adds the error of dropped cells to the variances of sums.

    The error is computed from the number of rows: a noisy one, or EXPECT ROWS. EXPECT ROWS serves only if the
    statement counts all rows of one table. Without a number, the error is unknown.
    """
    request, summary = proposal.request, require_summary(proposal.request)
    if design.theta == 1 or any(axis is not None and axis.shape == "haar" for axis in proposal.query.axes):
        return estimates
    nodes = node_sensitivity(proposal.query.axes)
    gained = design.cells * empty_moments(design.scale, design.theta, estimates.tau, design.sides).mean
    if total is not None and proposal.total is not None and contribution_of(request).low >= 0:
        spread = noise_variance(float(proposal.total.law.parameter)) * nodes**2
        return with_loss(estimates, total * nodes, spread, gained)
    (aggregate,) = request.question.aggregates
    narrowed = request.rows.filters or aggregate.condition or request.rows.public_digests or aggregate.operand
    everything = not narrowed and len(request.rows.reads) <= 1
    guess = summary.expect_rows if everything else None
    return with_loss(estimates, None if guess is None else guess * nodes, 0.0, gained)


def _for_total(proposal: SummaryProposal, total: int) -> SummaryDesign:
    """Returns the design for a noisy total. Its method and its noise must be as proposed, so that the price holds."""
    design = summary_candidates(proposal.request, total)[0]
    if (design.method, design.plan.scale) != (proposal.design.method, proposal.design.plan.scale):
        raise InternalError("the noisy total changes the price")
    return design


def _estimate_summary(design: SummaryDesign, drawn: NoisySummary) -> EstimatedSummary:
    sample, tau = with_priorities(drawn, design.keep, float(design.tau))
    theta = min(design.plan.layers[drawn.layers - 1].theta, design.theta)
    return estimate_weights(sample, design.scale, theta, tau, sides=design.sides, whole=design.plan.whole)


def plain_keys(request: SelectRequest) -> SelectRequest:
    """Returns the request with the keys of its summary counted label by label."""
    return replace(
        request, question=replace(request.question, keys=tuple(replace(key, shape="") for key in request.question.keys))
    )


def summary_law(request: SelectRequest, design: SummaryDesign) -> ErrorLaw:
    """Returns the error law of a cell without rows. Cells in the released table have their own standard errors."""
    moments = empty_moments(design.scale, design.theta, float(design.tau), design.sides)
    worth = float(contribution_of(request).unit)
    return ErrorLaw(NoiseKind.LAPLACE, None, moments.square * worth**2, worth)


SKETCH_COLUMNS = (
    ("sketch_row", "INTEGER"), ("bucket", "BIGINT"), ("n", "BIGINT"), ("buckets", "BIGINT"),
    ("bucket_hash", "BIGINT[]"), ("sign_hash", "BIGINT[]"),
)  # fmt: skip

SketchProposal = OneAsk[SketchDesign, Sketched]


def propose_sketch(request: SelectRequest) -> SketchProposal:
    """Proposes a sketch. Refuses ranges."""
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
    """Returns the buckets, with the hashes by which any DuckDB finds a cell's bucket."""
    hashes, table = sketched
    return ReleasedTable(SKETCH_COLUMNS, _rows(table, hashes))


def sketch_ask(request: SelectRequest, design: SketchDesign) -> Ask[Sketched]:
    """Declares the ask of a sketch. Refuses noise that cannot be drawn."""
    scan = AskScan(counting_job(request, [contribution_of(request)]), unit_bound(request))
    return Ask(scan, Sketch(design.rows, design.width, tuple(label_numbers(request))), design.noise)


def label_numbers(request: SelectRequest) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Returns a number below P for each label, as the macro dp_label_number: 0 for NULL, else from MD5 of its text."""
    numbers = []
    with sandbox() as connection:
        for key in request.question.keys:
            labels = label_array(connection, key.labels, key.type_name)
            connection.register("labels", pa.table({"place": np.arange(len(labels)), "label": labels}))
            values = connection.execute(
                f"SELECT CASE WHEN label IS NULL THEN 0 ELSE CAST(1 + md5_number(CAST(CAST(label AS {key.type_name}) "
                f"AS VARCHAR)) % {PRIME - 1} AS BIGINT) END AS number FROM labels ORDER BY place"
            ).fetchnumpy()["number"]
            connection.unregister("labels")
            of_labels = np.asarray(values, dtype=np.int64)
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
