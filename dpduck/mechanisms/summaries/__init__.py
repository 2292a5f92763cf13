"""Summaries and sketches of sparse data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import sqrt

from dpduck.kernel.queries.sketches import Sketched
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.forecast import Forecast
from dpduck.mechanisms.mechanism import Mechanism, answer_of
from dpduck.mechanisms.summaries.measure import (
    FITTED,
    SKETCH_COLUMNS,
    Drawn,
    SketchProposal,
    SummaryProposal,
    contribution_of,
    draw_layers,
    propose_sketch,
    propose_summary,
    sketch_design,
    sketch_header,
    sketch_table,
    summary_asks,
    summary_candidates,
    summary_header,
    summary_table,
)
from dpduck.mechanisms.summaries.plan import SUBSETS, SummaryDesign
from dpduck.mechanisms.summaries.released import summary_columns
from dpduck.store.tables import Value

# dp_explain of a summary: every method with its predicted size and errors. It spends nothing.

DRAWS_PER_SECOND = 1_000_000


def explain_summary(request: SelectRequest, proposal: object = None) -> list[Forecast]:
    """Returns a forecast for each method, the chosen method first. worst_stderr is that of a random cell.

    error_10, error_1000, error_100000 are predicted root mean squared errors of sums over as many random cells.
    """
    sketch_asked = request.question.summary is not None and request.question.summary.method == "sketch"
    designs = summary_candidates(request) if request.price.charge.epsilon is not None else []
    ways = [_forecast(request, design, number == 0 and not sketch_asked) for number, design in enumerate(designs)]
    if any(key.shape for key in request.question.keys):
        return [*ways, *_other_shape(request, sketch_asked)]
    if request.question.aggregates[0].operand is None:
        ways.insert(0 if sketch_asked else len(ways), _sketch_forecast(request, sketch_asked))
    return ways


def _forecast(request: SelectRequest, design: SummaryDesign, chosen: bool) -> Forecast:
    worth = float(contribution_of(request).unit)
    variance, cells = design.predicted[0] ** 2 / SUBSETS[0] * worth**2, round(min(design.rows, 9e18))
    total, seconds, note = variance * float(design.cells), design.rows / DRAWS_PER_SECOND, _note(request, design)
    further = _errors(error * worth for error in design.predicted)
    return Forecast(design.method, chosen, cells, 1, (note,), total, sqrt(variance), seconds, further)


def _errors(errors: Iterable[float]) -> list[tuple[str, str, Value]]:
    return [(f"error_{subset}", "DOUBLE", error) for subset, error in zip(SUBSETS, errors, strict=True)]


def _other_shape(request: SelectRequest, sketch_asked: bool) -> list[Forecast]:
    """Returns a forecast of the same method with the other shape of ranges. Returns [] if there is no such summary."""
    summary = request.question.summary
    if summary is None or sketch_asked or request.price.charge.epsilon is None or summary.method == "filter_one_sided":
        return []
    other = replace(summary, shape="dyadic" if summary.shape == "haar" else "haar")
    asked = replace(request, question=replace(request.question, summary=other))
    way = _forecast(asked, summary_candidates(asked)[0], False)
    return [replace(way, strategy=f"{way.strategy}, range_summary = '{other.shape}'")]


def _shape_note(request: SelectRequest, design: SummaryDesign) -> str:
    """Describes the shape of the summary's ranges, and the data that it suits. Returns '' without ranges."""
    summary, ordered = request.question.summary, sum(bool(key.shape) for key in request.question.keys)
    if summary is None or not ordered:
        return ""
    if summary.shape == "haar":
        return "Haar coefficients: for ranges where most labels have rows"
    fit = summary.consistent and ordered == 1 and design.method in FITTED
    fits = ", by least squares where none is sampled" if fit else ""
    return f"dyadic intervals{fits}: for ranges where few labels have rows"


def _sketch_forecast(request: SelectRequest, chosen: bool) -> Forecast:
    design = sketch_design(request)
    buckets, variance = design.rows * design.width, design.predicted[0] ** 2 / SUBSETS[0]
    shape = f"{design.rows} rows of {design.width} buckets"
    notes = (f"{design.noise.kind.value} noise", shape, "errors of sums of point queries")
    seconds, further = buckets / DRAWS_PER_SECOND, _errors(design.predicted)
    return Forecast("sketch", chosen, buckets, 1, notes, variance, sqrt(variance), seconds, further)


def _note(request: SelectRequest, design: SummaryDesign) -> str:
    parts = [f"about {round(design.rows)} of {design.cells} cells"]
    worth = contribution_of(request).unit
    if design.theta > 1:
        parts.append(f"theta = {float(design.theta * worth):.12g}")
    if design.tau:
        parts.append(f"tau = {float(design.tau * worth):.6g}")
    if request.question.summary is not None and request.question.summary.expect_rows is None:
        parts.append("errors over empty cells: EXPECT ROWS in the policy tells more")
    else:
        parts.append("EXPECT ROWS spread by Zipf's law")
    if request.question.summary is not None and request.question.summary.total_epsilon is not None:
        parts.append(f"after epsilon = {float(request.question.summary.total_epsilon):.6g} for the number of rows")
    if shape := _shape_note(request, design):
        parts.append(shape)
    unit = request.rows.unit_text
    return "; ".join([*parts, f"privacy unit {unit}"])


_SKETCH = "sketch"

SUMMARIES = Mechanism[SelectRequest, SummaryProposal, Drawn](
    name="summary",
    serves=lambda question: (
        isinstance(question, SelectRequest)
        and question.question.summary is not None
        and question.question.summary.method != _SKETCH
    ),
    plan=propose_summary,
    asks=summary_asks,
    header=summary_header,
    measure=draw_layers,
    recover=summary_table,
    describe=explain_summary,
    columns=lambda proposal: summary_columns(proposal.request),
)
SKETCHES = Mechanism[SelectRequest, SketchProposal, Sketched](
    name="sketch",
    serves=lambda question: (
        isinstance(question, SelectRequest)
        and question.question.summary is not None
        and question.question.summary.method == _SKETCH
    ),
    plan=propose_sketch,
    asks=lambda proposal: [proposal.ask],
    header=sketch_header,
    measure=answer_of,
    recover=sketch_table,
    describe=explain_summary,
    columns=lambda proposal: SKETCH_COLUMNS,
)
