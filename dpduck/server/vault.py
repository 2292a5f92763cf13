"""What the public database knows of the vault, and what passes between the two.

The vault itself is local_vault, which runs in a process of its own: nothing that counts is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from dpduck.server.runner_process import Message
from dpduck.store.cursors import Ceiling


@dataclass(frozen=True)
class Reply:
    """What became of a question. key: under which its rows can be had, None where it was refused.

    charged: the ledger entry that it made, if it made one. refused: the one line for the client.
    """

    key: str | None
    charged: int | None = None
    refused: str | None = None


@dataclass(frozen=True)
class ReleasedRows:
    """Released rows. columns: names and DuckDB types. comment, comments: of a view and of its columns."""

    columns: tuple[tuple[str, str], ...]
    table: pa.Table
    comment: str | None = None
    comments: tuple[str | None, ...] = ()


class Vault(Protocol):
    """What the public database knows of the vault."""

    def ask(
        self, principal: str, action: str, argument: str | None, seconds: float, ceiling: Ceiling | None = None
    ) -> Reply: ...

    def rows(self, principal: str, key: str, most: int, most_bytes: int) -> ReleasedRows: ...

    def views(self) -> dict[str, str]: ...

    def view(self, name: str) -> ReleasedRows: ...

    def close(self) -> None: ...


# What messages between the public database and the vault say; how they are written: see runner_process. None is ever
# run.


def rows_message(rows: ReleasedRows) -> Message:
    """Returns all of released rows but its table."""
    return {"columns": rows.columns, "comment": rows.comment, "comments": rows.comments}


def rows_from(message: Message, table: pa.Table | None) -> ReleasedRows:
    """Reads rows from what rows_message and its table were."""
    columns = tuple((str(name), str(kind)) for name, kind in message["columns"])
    return ReleasedRows(columns, table, message["comment"], tuple(message["comments"]))


def reply_from(message: Message) -> Reply:
    """Returns a Reply from its fields."""
    return Reply(message["key"], message["charged"], message["refused"])
