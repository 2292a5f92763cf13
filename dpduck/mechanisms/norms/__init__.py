"""Mechanism for answers that scale each unit's rows down to a norm. The statement itself measures norms or totals."""

from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.norms.plan import (
    NormMeasurements,
    NormProposal,
    describe,
    errors_of,
    norm_asks,
    norm_columns,
    norm_header,
    propose_norms,
)
from dpduck.mechanisms.norms.search import measure_norms, recover_norms

NORMS = Mechanism[SelectRequest, NormProposal, NormMeasurements](
    name="norms",
    serves=lambda question: (
        isinstance(question, SelectRequest)
        and (question.question.treatment.finds_norm or question.question.treatment.widens)
    ),
    plan=propose_norms,
    asks=norm_asks,
    header=norm_header,
    measure=measure_norms,
    recover=recover_norms,
    describe=describe,
    columns=norm_columns,
    errors=errors_of,
)
