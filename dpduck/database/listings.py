"""Listings that need no full database: budgets and charges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.store import tables
from dpduck.store.cursors import Caller, DatabaseConnections
from dpduck.store.policies import PolicyStore
from dpduck.store.spending import SpendingRates


def policies_of(connections: DatabaseConnections, store: str, ledger: Ledger) -> PolicyStore:
    """Returns the policies of a store, with the budgets that its ledger has in force."""
    return PolicyStore(connections.cursor, store, ledger.budgets, connections.home)


@dataclass(frozen=True)
class Listings:
    """The policies and the ledger of a database, with their listings."""

    policies: PolicyStore
    ledger: Ledger
    rates: SpendingRates

    def budget(self, caller: Caller) -> str:
        """Returns SQL that lists budgets, with the spent and the remaining amounts, and the day on which they end."""
        dropped = self.policies.list_dropped() if caller.owner else []
        now = datetime.now(UTC)
        rates = self.rates.by_unit(None if caller.owner else caller.name, now)
        return tables.budgets(self.policies.policies(), dropped, self.ledger, caller, rates, now)

    def ledger_entries(self, caller: Caller) -> str:
        """Returns SQL that lists all charges for the owner, and their own charges for all other callers."""
        listed = self.ledger.entries(None if caller.owner else caller.name)
        return tables.entries(listed, self.ledger.budgets(), caller.share)
