"""Messages between the window and the vault: JSON and, for rows, an Arrow stream. Nothing that is read is ever run."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from dpduck.server.vault import Reply, Rows

Message = dict[str, Any]
_ALIGNMENT = 64


def packed(message: Message, table: pa.Table | None = None) -> bytes:
    """A message as bytes: the length of its JSON, the JSON, the rows."""
    head = json.dumps(message).encode()
    head += b" " * (-(4 + len(head)) % _ALIGNMENT)  # Arrow reads in place
    return b"".join((len(head).to_bytes(4, "big"), head, b"" if table is None else _stream(table)))


def unpacked(data: bytes) -> tuple[Message, pa.Table | None]:
    """What packed wrote."""
    end = 4 + int.from_bytes(data[:4], "big")
    message: Message = json.loads(data[4:end])
    if end == len(data):
        return message, None
    with pa.ipc.open_stream(pa.py_buffer(memoryview(data)[end:])) as reader:
        return message, reader.read_all()


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


def _stream(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())
