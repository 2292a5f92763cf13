"""What messages between the window and the vault say; how they are written: see runner_process. None is ever run."""

from __future__ import annotations

import pyarrow as pa

from dpduck.server.runner_process import Message
from dpduck.server.vault import Reply, Rows


def rows_message(rows: Rows) -> Message:
    """All of a Rows but its table."""
    return {"columns": rows.columns, "comment": rows.comment, "comments": rows.comments}


def rows_from(message: Message, table: pa.Table | None) -> Rows:
    """What rows_message and its table were."""
    columns = tuple((str(name), str(kind)) for name, kind in message["columns"])
    return Rows(columns, table, message["comment"], tuple(message["comments"]))


def reply_from(message: Message) -> Reply:
    """A Reply from its fields."""
    return Reply(message["key"], message["charged"], message["refused"])
