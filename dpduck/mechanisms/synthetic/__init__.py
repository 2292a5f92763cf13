"""Synthetic tables by multiplicative weights."""

from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.synthetic.measure import (
    COLUMNS,
    Model,
    SyntheticOffer,
    fitted,
    model_table,
    offer_synthetic,
    synthetic_asks,
    synthetic_header,
)
from dpduck.mechanisms.synthetic.plan import explained_synthetic
from dpduck.mechanisms.synthetic.request import SyntheticRequest

SYNTHETIC = Mechanism[SyntheticRequest, SyntheticOffer, Model](
    name="synthetic table",
    serves=lambda question: isinstance(question, SyntheticRequest),
    plan=offer_synthetic,
    asks=synthetic_asks,
    header=synthetic_header,
    measure=fitted,
    recover=model_table,
    describe=lambda question, offer: explained_synthetic(question, offer.fits),
    columns=lambda offer: COLUMNS,
)
