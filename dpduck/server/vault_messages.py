"""Contents of messages between the public database and the vault. Messages are data and are never run as code."""

from __future__ import annotations

import pyarrow as pa

from dpduck.server.runner_process import Message
from dpduck.server.vault import ReleasedRows, Reply


def rows_message(rows: ReleasedRows) -> Message:
    """Returns the message for released rows, without their table."""
    return {"columns": rows.columns, "comment": rows.comment, "comments": rows.comments}


def rows_from(message: Message, table: pa.Table | None) -> ReleasedRows:
    """Returns released rows from their message and their table."""
    columns = tuple((str(name), str(kind)) for name, kind in message["columns"])
    return ReleasedRows(columns, table, message["comment"], tuple(message["comments"]))


def reply_from(message: Message) -> Reply:
    """Returns a Reply from its message."""
    return Reply(message["key"], message["charged"], message["refused"])
