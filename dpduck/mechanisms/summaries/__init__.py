"""Summaries and sketches of sparse data."""

from dpduck.frontend.select.request import Request
from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.summaries.describe import summary_listing
from dpduck.mechanisms.summaries.measure import (
    Drawn,
    SummaryOffer,
    draw_layers,
    offer_summary,
    summary_asks,
    summary_header,
    summary_table,
)
from dpduck.mechanisms.summaries.recover import summary_columns
from dpduck.mechanisms.summaries.sketch import (
    SKETCH_COLUMNS,
    Sketched,
    SketchOffer,
    draw_buckets,
    offer_sketch,
    sketch_header,
    sketch_table,
)


def _method(request: object) -> str:
    summary = request.question.summary if isinstance(request, Request) else None
    return "" if summary is None else summary.method


SUMMARIES = Mechanism[Request, SummaryOffer, Drawn](
    name="summary",
    serves=lambda question: _method(question) not in ("", "sketch"),
    plan=offer_summary,
    asks=summary_asks,
    header=summary_header,
    measure=draw_layers,
    recover=summary_table,
    describe=summary_listing,
    columns=lambda offer: summary_columns(offer.request),
)
SKETCHES = Mechanism[Request, SketchOffer, Sketched](
    name="sketch",
    serves=lambda question: _method(question) == "sketch",
    plan=offer_sketch,
    asks=lambda offer: [offer.ask],
    header=sketch_header,
    measure=draw_buckets,
    recover=sketch_table,
    describe=summary_listing,
    columns=lambda offer: SKETCH_COLUMNS,
)
