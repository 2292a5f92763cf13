"""Interface of the vault for the public database, with the values that both exchange. Imports no code that counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from dpduck.store.cursors import Ceiling


@dataclass(frozen=True)
class Reply:
    """Outcome of a question. key: for reading the answer's rows. charged: a ledger entry. refused: the reason.

    warning: for the owner's log alone, about a budget that is nearly spent after the charge.
    """

    key: str | None
    charged: int | None = None
    refused: str | None = None
    warning: str = ""


@dataclass(frozen=True)
class ReleasedRows:
    """Released rows. columns: names and DuckDB types. comment, comments: on a view and on its columns."""

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

    def spending(self) -> dict[str, float]: ...

    def close(self) -> None: ...
