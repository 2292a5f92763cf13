"""Records of prepared tables in the store.

A record is written before its table is begun, and again when the table is complete. If a process ends in between, the
unfinished table is deleted when the store is opened next.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from dpduck.kernel.places.clamps import ClampedColumn
from dpduck.store.cursors import OpenCursor, transaction
from dpduck.store.layout import READY
from dpduck.values.quoting import quote_identifier
from dpduck.values.records import as_array, read_record

Columns = tuple[tuple[str, str], ...]
WRITING, LEFT = "writing", "left"


@dataclass(frozen=True)
class PreparedRecord:
    """Record of a prepared table. moment: token of the transaction that read the rows, equal for tables of one moment.

    layout: digest of everything that the table depends on. revisions: the revision of its policy, then of the policies
    along its references. columns: names and types of the columns of these tables. keys: columns that are each a key.
    size,
    digest: of the file. cuts: columns that the table also has in clamped form. keys_together: keys of one or more
    columns, which earlier versions did not record.
    """

    table: str
    nonce: str
    at: str
    moment: str
    layout: str
    epoch: int
    revisions: tuple[tuple[str, int], ...]
    columns: tuple[tuple[str, Columns], ...]
    keys: tuple[str, ...]
    unit_type: str
    size: int
    digest: str
    cuts: tuple[ClampedColumn, ...] = ()
    keys_together: tuple[tuple[str, ...], ...] = ()


class Records:
    """Records of one store's prepared tables."""

    def __init__(self, open_cursor: OpenCursor, store: str) -> None:
        self._open_cursor = open_cursor
        self._table = f"{quote_identifier(store)}.dpduck.prepared"

    def read_all(self) -> tuple[dict[str, PreparedRecord], list[str]]:
        """Returns the prepared tables by name, and the nonces of tables that are unfinished or still to be deleted."""
        with self._open_cursor() as cursor:
            rows = cursor.execute(f"SELECT table_name, nonce, state, facts, prepared_at FROM {self._table}").fetchall()
        ready = {
            table: read_record(PreparedRecord, [table, nonce, str(at), *json.loads(facts)])
            for table, nonce, state, facts, at in rows
            if state == READY
        }
        return ready, [nonce for _, nonce, state, _, _ in rows if state != READY]

    def begin(self, table: str, nonce: str) -> None:
        with self._open_cursor() as cursor:
            cursor.execute(f"INSERT INTO {self._table} VALUES (?, ?, ?, '{{}}', NULL)", [table, nonce, WRITING])

    def save(self, written: Sequence[PreparedRecord]) -> None:
        """Records in one transaction that prepared tables are complete and in use, and their predecessors are not."""
        with transaction(self._open_cursor) as cursor:
            for record in written:
                table, nonce, at, *facts = as_array(record)
                row = [table, nonce, READY, json.dumps(facts, default=as_array), at]
                cursor.execute(f"DELETE FROM {self._table} WHERE nonce = ?", [nonce])
                cursor.execute(f"UPDATE {self._table} SET state = ? WHERE table_name = ?", [LEFT, table])
                cursor.execute(f"INSERT INTO {self._table} VALUES (?, ?, ?, ?, ?)", row)

    def leave(self, nonce: str) -> None:
        with self._open_cursor() as cursor:
            cursor.execute(f"UPDATE {self._table} SET state = ? WHERE nonce = ?", [LEFT, nonce])

    def delete(self, nonce: str) -> None:
        with self._open_cursor() as cursor:
            cursor.execute(f"DELETE FROM {self._table} WHERE nonce = ?", [nonce])
