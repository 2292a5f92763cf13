"""Interface of the vault to the public database, and the messages between the two.

The vault itself is local_vault, which runs in a process of its own. No code that counts is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from dpduck.store.cursors import Ceiling


@dataclass(frozen=True)
class Reply:
    """Outcome of a question. key: the key for reading its rows, None if it was refused.

    charged: its ledger entry, if it made one. refused: the one line for the client.
    """

    key: str | None
    charged: int | None = None
    refused: str | None = None


@dataclass(frozen=True)
class ReleasedRows:
    """Released rows. columns: names and DuckDB types. comment, comments: those on a view and on its columns."""

    columns: tuple[tuple[str, str], ...]
    table: pa.Table
    comment: str | None = None
    comments: tuple[str | None, ...] = ()


class Vault(Protocol):
    """Vault, as the public database sees it."""

    def ask(
        self, principal: str, action: str, argument: str | None, seconds: float, ceiling: Ceiling | None = None
    ) -> Reply: ...

    def rows(self, principal: str, key: str, most: int, most_bytes: int) -> ReleasedRows: ...

    def views(self) -> dict[str, str]: ...

    def view(self, name: str) -> ReleasedRows: ...

    def close(self) -> None: ...
