"""Entries of the ledger, as values and as rows of texts, and the keyed hash that chains each row to the one before.

The hash is HMAC-SHA256, and only the secrets file has its key. It covers every field of the row, the store's identity
and the previous hash. Without the key, no row can be changed, swapped, forged, or removed from the middle unnoticed.
The counters outside the store show whether the end of the chain was cut off (see copies).
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from dpduck.values.errors import StoreError
from dpduck.values.privacy import Budget, Charge
from dpduck.values.records import read_record

GENESIS = "0" * 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LedgerRow(NamedTuple):
    """One row of the ledger table in its stored form. Amounts are texts "numerator/denominator".

    at: microseconds since 1970 in UTC. epsilon: None for Gaussian releases. budget: declared by this row, None for
    charges.
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
    """Returns the hash of all other fields. Each field's length precedes it, which keeps fields apart."""
    message = b"".join(_encode_field(field) for field in (store_id, *row[:-1]))
    return hmac.digest(chain_key, message, "sha256").hex()


def _encode_field(field: str | int | None) -> bytes:
    if field is None:
        return b"n"
    text = str(field).encode()
    return b"%d:%b" % (len(text), text)


def seal_row(chain_key: bytes, store_id: str, row: LedgerRow) -> LedgerRow:
    """Returns the row with its own hash."""
    return row._replace(hash=row_hash(chain_key, store_id, row))


def require_next(chain_key: bytes, store_id: str, row: LedgerRow, last_id: int, last_hash: str) -> None:
    """Raises StoreError unless this row is the one that was written after the entry `last_id`."""
    if row.id != last_id + 1:
        raise StoreError(
            f"ledger entry {last_id + 1} is missing; accepted: the store as it was last written, or its newest backup"
        )
    if row.previous_hash != last_hash:
        raise _change_error(row)
    require_untouched(chain_key, store_id, row)


def require_untouched(chain_key: bytes, store_id: str, row: LedgerRow) -> None:
    """Raises StoreError unless every field of this row is as it was written."""
    if not hmac.compare_digest(str(row.hash).encode(), row_hash(chain_key, store_id, row).encode()):
        raise _change_error(row)


def _change_error(row: LedgerRow) -> StoreError:
    return StoreError(
        f"ledger entry {row.id} is not what was written; "
        "accepted: the store as it was last written with its own secrets file"
    )


def rational_text(amount: Fraction) -> str:
    """Returns an exact rational as "numerator/denominator".

    >>> rational_text(Fraction(3))
    '3/1'
    """
    return f"{amount.numerator}/{amount.denominator}"


def microseconds_of(at: datetime) -> int:
    """Returns whole microseconds since 1970 in UTC."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def datetime_of(microseconds: int) -> datetime:
    """Returns the moment of these microseconds since 1970, in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


@dataclass(frozen=True)
class LedgerEntry:
    """One line of the ledger: a charge, or the declaration of a budget, which charges nothing."""

    id: int
    at: datetime
    principal: str
    unit_key: str
    table_name: str
    statement: str
    mechanism: str
    epsilon: Fraction | None
    rho: Fraction
    delta: Fraction
    budget: Budget | None
    previous_hash: str
    hash: str


def amounts_text(charge: Charge) -> tuple[str | None, str, str]:
    """Returns epsilon, rho and delta as exact texts."""
    epsilon = None if charge.epsilon is None else rational_text(charge.epsilon)
    return epsilon, rational_text(charge.rho), rational_text(charge.delta)


@lru_cache(maxsize=1024)  # prices recur, and so a whole ledger is read in three quarters of the time
def charge_of(epsilon: str | None, rho: str, delta: str) -> Charge:
    """Returns the charge that amounts_text wrote."""
    return Charge(epsilon=None if epsilon is None else Fraction(epsilon), rho=Fraction(rho), delta=Fraction(delta))


def budget_text(budget: Budget) -> str:
    """Returns a budget as one canonical text."""
    return json.dumps(_budget_fields(budget))


def _budget_fields(budget: Budget) -> dict[str, object]:
    amounts = {name: getattr(budget, name) for name in ("epsilon", "delta", "delta_keys", "rho")}
    fields: dict[str, object] = {
        name: None if amount is None else rational_text(amount) for name, amount in amounts.items()
    }
    return fields if budget.lifetime is None else {**fields, "lifetime": _budget_fields(budget.lifetime)}


def budget_of(text: str) -> Budget:
    """Returns the budget that budget_text wrote."""
    return read_record(Budget, text)


def entry_of(row: LedgerRow) -> LedgerEntry:
    """Returns the entry of a row with a verified hash."""
    charge = charge_of(row.epsilon, row.rho, row.delta)
    budget = None if row.budget is None else budget_of(row.budget)
    amounts = {"epsilon": charge.epsilon, "rho": charge.rho, "delta": charge.delta}
    return LedgerEntry(**{**row._asdict(), **amounts, "at": datetime_of(row.at), "budget": budget})
