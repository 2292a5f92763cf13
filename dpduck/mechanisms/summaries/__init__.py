"""Summaries and sketches of sparse data."""

from dpduck.frontend.select.request import Request
from dpduck.mechanisms.mechanism import Mechanism, answer_of
from dpduck.mechanisms.summaries.describe import summary_listing
from dpduck.mechanisms.summaries.measure import (
    Drawn,
    SummaryProposal,
    draw_layers,
    propose_summary,
    summary_asks,
    summary_header,
    summary_table,
)
from dpduck.mechanisms.summaries.recover import summary_columns
from dpduck.mechanisms.summaries.sketch import (
    SKETCH_COLUMNS,
    Sketched,
    SketchProposal,
    propose_sketch,
    sketch_header,
    sketch_table,
)


def _method(request: object) -> str:
    summary = request.question.summary if isinstance(request, Request) else None
    return "" if summary is None else summary.method


SUMMARIES = Mechanism[Request, SummaryProposal, Drawn](
    name="summary",
    serves=lambda question: _method(question) not in ("", "sketch"),
    plan=propose_summary,
    asks=summary_asks,
    header=summary_header,
    measure=draw_layers,
    recover=summary_table,
    describe=summary_listing,
    columns=lambda proposal: summary_columns(proposal.request),
)
SKETCHES = Mechanism[Request, SketchProposal, Sketched](
    name="sketch",
    serves=lambda question: _method(question) == "sketch",
    plan=propose_sketch,
    asks=lambda proposal: [proposal.ask],
    header=sketch_header,
    measure=answer_of,
    recover=sketch_table,
    describe=summary_listing,
    columns=lambda proposal: SKETCH_COLUMNS,
)
