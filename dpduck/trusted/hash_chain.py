"""The rows of the ledger as texts, and the keyed hash that chains each of them to the one before.

The hash is HMAC-SHA256 under a key that only the secrets file holds, over every field of the row, the store's
identity and the previous hash: a row cannot be changed, swapped, removed from the middle or forged without the key.
That the end of the chain was not cut off is what the counters outside the store are for (see outside_counters).
"""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import NamedTuple

from dpduck.errors import StoreError

GENESIS = "0" * 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LedgerRow(NamedTuple):
    """One row of the ledger table as it is stored; amounts are texts "numerator/denominator".

    at: microseconds since 1970 in UTC. epsilon: None for a release that has no pure guarantee. budget: the budget
    that this row declares, None for charges.
    """

    id: int
    at: int
    principal: str
    unit_key: str
    table_name: str
    statement: str
    mechanism: str
    epsilon: str | None
    rho: str
    delta: str
    budget: str | None
    previous_hash: str
    hash: str


def row_hash(chain_key: bytes, store_id: str, row: LedgerRow) -> str:
    """Hash every field but the hash itself; lengths in front keep fields from running into each other."""
    message = b"".join(_marked(field) for field in (store_id, *row[:-1]))
    return hmac.digest(chain_key, message, "sha256").hex()


def _marked(field: str | int | None) -> bytes:
    if field is None:
        return b"n"
    text = str(field).encode()
    return b"%d:%b" % (len(text), text)


def sealed(chain_key: bytes, store_id: str, row: LedgerRow) -> LedgerRow:
    """The row with its own hash."""
    return row._replace(hash=row_hash(chain_key, store_id, row))


def require_next(chain_key: bytes, store_id: str, row: LedgerRow, last_id: int, last_hash: str) -> None:
    """Fail closed unless this row is the very one that was written after `last_id`."""
    if row.id != last_id + 1:
        raise StoreError(
            f"ledger entry {last_id + 1} is missing; accepted: the store as it was last written, or its newest backup"
        )
    if row.previous_hash != last_hash:
        raise _changed(row)
    require_untouched(chain_key, store_id, row)


def require_untouched(chain_key: bytes, store_id: str, row: LedgerRow) -> None:
    """Fail closed unless every field of this row is what was written."""
    if not hmac.compare_digest(str(row.hash).encode(), row_hash(chain_key, store_id, row).encode()):
        raise _changed(row)


def _changed(row: LedgerRow) -> StoreError:
    return StoreError(
        f"ledger entry {row.id} is not what was written; "
        "accepted: the store as it was last written with its own secrets file"
    )


def rational_text(amount: Fraction) -> str:
    """An exact rational as "numerator/denominator".

    >>> rational_text(Fraction(3))
    '3/1'
    """
    return f"{amount.numerator}/{amount.denominator}"


def microseconds_of(at: datetime) -> int:
    """Whole microseconds since 1970 in UTC."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def datetime_of(microseconds: int) -> datetime:
    """The moment in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)
