"""Keys that nobody declared, chosen privately."""

from dpduck.frontend.select.request import Request
from dpduck.mechanisms.keys.describe import explained_keys
from dpduck.mechanisms.keys.measure import KeyOffer, key_columns, key_header, key_table, offer_keys, publish
from dpduck.mechanisms.mechanism import Mechanism
from dpduck.trusted.private.key_delta import PublishedKeys

KEYS = Mechanism[Request, KeyOffer, PublishedKeys](
    name="selected keys",
    serves=lambda request: isinstance(request, Request) and request.question.selection is not None,
    plan=offer_keys,
    asks=lambda offer: [offer.ask],
    header=key_header,
    measure=publish,
    recover=key_table,
    describe=explained_keys,
    columns=key_columns,
)
