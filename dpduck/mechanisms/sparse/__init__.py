"""Projections, histograms and sessions over sparse keys."""

from dpduck.frontend.statements.kinds import HISTOGRAM, PROJECTION, SESSION
from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.sparse import projection, session
from dpduck.mechanisms.sparse.describe import explained
from dpduck.mechanisms.sparse.request import SparseRequest

PROJECTIONS = Mechanism[SparseRequest, projection.ProjectionOffer, projection.Projected](
    name=PROJECTION,
    serves=lambda question: isinstance(question, SparseRequest) and question.kind == PROJECTION,
    plan=projection.offer_projection,
    asks=lambda offer: [offer.ask],
    header=projection.projection_header,
    measure=projection.project,
    recover=projection.projection_table,
    describe=lambda sparse, offer: explained(sparse),
    columns=lambda offer: projection.COLUMNS,
)
HISTOGRAMS = Mechanism[SparseRequest, session.HistogramOffer, None](
    name=HISTOGRAM,
    serves=lambda question: isinstance(question, SparseRequest) and question.kind == HISTOGRAM,
    plan=session.offer_histogram,
    asks=lambda offer: [offer.ask],
    header=session.histogram_header,
    measure=session.open_histogram,
    recover=session.histogram_facts,
    describe=lambda sparse, offer: explained(sparse),
    columns=lambda offer: session.FACTS,
)
SESSIONS = Mechanism[SparseRequest, session.SessionOffer, session.Opened](
    name=SESSION,
    serves=lambda question: isinstance(question, SparseRequest) and question.kind == SESSION,
    plan=session.offer_session,
    asks=lambda offer: [offer.total, offer.gates],
    header=session.session_header,
    measure=session.open_session,
    recover=session.session_facts,
    describe=lambda sparse, offer: explained(sparse),
    columns=lambda offer: session.FACTS,
    unplanned=explained,  # an alpha out of reach: the other ways are shown all the same
)
