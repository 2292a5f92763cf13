"""The parts of a database that are open once dpduck is loaded: its ledger and its policies.

The class that plans, counts and answers (Database) is imported when a statement first needs it.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from dpduck.database.progress import Progress
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.ledger.secrets import Steps
from dpduck.store import layout
from dpduck.store.cursors import DatabaseConnections

if TYPE_CHECKING:
    from dpduck.database.database import Database
    from dpduck.database.listings import Listings


class Started:
    """A database that dpduck is loaded on. beside: the store's file, None in memory. progress: its visible line."""

    def __init__(
        self,
        connections: DatabaseConnections,
        store: str,
        ledger: Ledger,
        steps: Steps,
        beside: Path | None,
        progress: Progress | None,
    ) -> None:
        self.connections, self.store, self.ledger = connections, store, ledger
        self.steps, self.beside, self.progress = steps, beside, progress
        self._lock = threading.RLock()
        self._listings: Listings | None = None
        self._database: Database | None = None

    @property
    def listings(self) -> Listings:
        with self._lock:
            if self._listings is None:
                from dpduck.database.listings import Listings, policies_of  # noqa: PLC0415
                from dpduck.store.spending import SpendingRates  # noqa: PLC0415

                policies = policies_of(self.connections, self.store, self.ledger)
                rates = SpendingRates(self.connections.cursor, self.store)
                self._listings = Listings(policies, self.ledger, rates)
            return self._listings

    def whole(self) -> Database:
        """Returns the full database. The first thread that asks for it imports and builds it."""
        with self._lock:
            if self._database is None:
                from dpduck.database.database import Database  # noqa: PLC0415

                self._database = Database(self)
            return self._database


def complete_store(started: Started) -> None:
    """Creates the tables that the store does not have yet, and deletes the remains of an unfinished preparation."""
    with started.connections.cursor() as cursor:
        layout.create_tables(cursor, started.store)
        left = layout.has_left_copies(cursor, started.store)
    if left:
        started.whole()
