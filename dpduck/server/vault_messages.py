"""Released rows in messages between the public database and the vault, and as tables. No message is run as code."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from dpduck.server.runner_process import Message, create_table
from dpduck.server.vault import ReleasedRows, Reply
from dpduck.values.quoting import quote_identifier, quote_text


def create_view_table(cursor: duckdb.DuckDBPyConnection, table: str, rows: ReleasedRows) -> None:
    """Creates a table of released rows with its comments. table: the full name, quoted."""
    create_table(cursor, table, list(rows.columns), rows.table)
    if rows.comment:
        cursor.execute(f"COMMENT ON TABLE {table} IS {quote_text(rows.comment)}")
    for (column, _), comment in zip(rows.columns, rows.comments, strict=bool(rows.comments)):
        if comment:
            cursor.execute(f"COMMENT ON COLUMN {table}.{quote_identifier(column)} IS {quote_text(comment)}")


def rows_message(rows: ReleasedRows) -> Message:
    """Returns the message for released rows, without their table."""
    return {"columns": rows.columns, "comment": rows.comment, "comments": rows.comments}


def rows_from(message: Message, table: pa.Table | None) -> ReleasedRows:
    """Returns released rows from their message and their table."""
    columns = tuple((str(name), str(kind)) for name, kind in message["columns"])
    return ReleasedRows(columns, table, message["comment"], tuple(message["comments"]))


def reply_from(message: Message) -> Reply:
    """Returns a Reply from its message."""
    return Reply(message["key"], message["charged"], message["refused"], message["warning"])
