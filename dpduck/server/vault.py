"""Interface of the vault to the public database, and the messages between the two.

The vault itself is local_vault, which runs in a process of its own. No code that counts is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from dpduck.server.runner_process import Message
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


# The contents of messages between the public database and the vault. runner_process has their format. No message is
# ever run.


def rows_message(rows: ReleasedRows) -> Message:
    """Returns the message for released rows, without their table."""
    return {"columns": rows.columns, "comment": rows.comment, "comments": rows.comments}


def rows_from(message: Message, table: pa.Table | None) -> ReleasedRows:
    """Reads released rows from their message and their table."""
    columns = tuple((str(name), str(kind)) for name, kind in message["columns"])
    return ReleasedRows(columns, table, message["comment"], tuple(message["comments"]))


def reply_from(message: Message) -> Reply:
    """Reads a Reply from its message."""
    return Reply(message["key"], message["charged"], message["refused"])
