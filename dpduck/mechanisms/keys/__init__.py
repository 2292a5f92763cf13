"""Keys that nobody declared, chosen privately."""

from dpduck.kernel.queries.keys import PublishedKeys
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.keys.explain import explain_keys, foreseen_of_keys
from dpduck.mechanisms.keys.plan import KeyProposal, key_columns, key_header, key_table, propose_keys, warn_of_keys
from dpduck.mechanisms.mechanism import Mechanism, answer_of

KEYS = Mechanism[SelectRequest, KeyProposal, PublishedKeys](
    name="selected keys",
    serves=lambda request: isinstance(request, SelectRequest) and request.question.selection is not None,
    plan=propose_keys,
    asks=lambda proposal: [proposal.ask],
    header=key_header,
    measure=answer_of,
    recover=key_table,
    describe=explain_keys,
    columns=key_columns,
    errors=foreseen_of_keys,
    warn=warn_of_keys,
)
