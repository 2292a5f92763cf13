"""Synthetic tables by multiplicative weights."""

from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.synthetic.measure import (
    COLUMNS,
    Model,
    SyntheticProposal,
    fit_model,
    model_table,
    propose_synthetic,
    synthetic_asks,
    synthetic_header,
)
from dpduck.mechanisms.synthetic.plan import explain_synthetic, far_off
from dpduck.mechanisms.synthetic.request import SyntheticRequest

SYNTHETIC = Mechanism[SyntheticRequest, SyntheticProposal, Model](
    name="synthetic table",
    serves=lambda question: isinstance(question, SyntheticRequest),
    plan=propose_synthetic,
    asks=synthetic_asks,
    header=synthetic_header,
    measure=fit_model,
    recover=model_table,
    describe=lambda question, proposal: explain_synthetic(question, proposal.fits),
    columns=lambda proposal: COLUMNS,
    seconds=lambda proposal: proposal.fits[0].seconds,
    warn=lambda proposal, _: far_off(proposal.question, proposal.fits[0]),
)
