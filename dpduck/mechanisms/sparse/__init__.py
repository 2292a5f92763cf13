"""Projections, histograms and sessions over sparse keys."""

from dpduck.kernel.queries.projections import Projected
from dpduck.language.statements.kinds import HISTOGRAM, PROJECTION, SESSION
from dpduck.mechanisms.mechanism import Mechanism, answer_of
from dpduck.mechanisms.sparse import projection, session
from dpduck.mechanisms.sparse.describe import explain_sparse
from dpduck.mechanisms.sparse.request import SparseRequest

PROJECTIONS = Mechanism[SparseRequest, projection.ProjectionProposal, Projected](
    name=PROJECTION,
    serves=lambda question: isinstance(question, SparseRequest) and question.kind == PROJECTION,
    plan=projection.propose_projection,
    asks=lambda proposal: [proposal.ask],
    header=projection.projection_header,
    measure=answer_of,
    recover=projection.projection_table,
    describe=lambda sparse, proposal: explain_sparse(sparse),
    columns=lambda proposal: projection.COLUMNS,
)
HISTOGRAMS = Mechanism[SparseRequest, session.HistogramProposal, None](
    name=HISTOGRAM,
    serves=lambda question: isinstance(question, SparseRequest) and question.kind == HISTOGRAM,
    plan=session.propose_histogram,
    asks=lambda proposal: [proposal.ask],
    header=session.histogram_header,
    measure=session.open_histogram,
    recover=session.histogram_facts,
    describe=lambda sparse, proposal: explain_sparse(sparse),
    columns=lambda proposal: session.FACTS,
)
SESSIONS = Mechanism[SparseRequest, session.SessionProposal, session.Opened](
    name=SESSION,
    serves=lambda question: isinstance(question, SparseRequest) and question.kind == SESSION,
    plan=session.propose_session,
    asks=lambda proposal: [proposal.total, proposal.gates],
    header=session.session_header,
    measure=session.open_session,
    recover=session.session_facts,
    describe=lambda sparse, proposal: explain_sparse(sparse),
    columns=lambda proposal: session.FACTS,
    unplanned=explain_sparse,  # if alpha is out of reach, the other ways are still listed
)
