"""A served database: the vault, the public database, the gate and the book of principals, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dpduck.database.attached import store_files
from dpduck.server.audit import Audit
from dpduck.server.gate import Gate
from dpduck.server.limits import Limits
from dpduck.server.principals import PrincipalBook, WatchedSecrets
from dpduck.server.public_database import PublicDatabase
from dpduck.server.vault import Vault
from dpduck.server.vault_client import Keeping, VaultProcess
from dpduck.values.errors import StoreError

Prepare = Callable[[duckdb.DuckDBPyConnection], None]


@dataclass(frozen=True)
class Service:
    """What listeners of any protocol need: whom a token belongs to, what may run, and where it runs."""

    book: PrincipalBook
    gate: Gate
    public: PublicDatabase
    vault: Vault
    audit: Audit

    def close(self) -> None:
        """Ends the vault after its releases at work, then the public database."""
        self.vault.close()
        self.public.close()
        self.audit.close()


def open_service(
    database: Path,
    store: Path | None,
    audit: Audit,
    limits: Limits,
    *,
    prepare: Prepare | None = None,
    vault: Vault | None = None,
    keeping: Keeping | None = None,
) -> Service:
    """Opens the vault, in a process of its own unless one is given, and a public database with its private views."""
    files = store_files(database, store)
    if files.secrets is None or not files.secrets.exists():
        raise StoreError("this database has no store; accepted: a database with a privacy policy (dpduck sql)")
    vault = vault or VaultProcess(database, store, keeping)
    try:
        public = PublicDatabase(limits, prepare=prepare)
        gate = Gate(vault, public, audit, limits)
        gate.sync()
    except BaseException:
        vault.close()
        raise
    return Service(PrincipalBook(WatchedSecrets(files.secrets)), gate, public, vault, audit)
