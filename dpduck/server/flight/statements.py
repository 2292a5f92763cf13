"""Statements that came over Arrow Flight SQL: their columns, which cost nothing, and their rows."""

from __future__ import annotations

import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from dpduck.server.flight.messages import Message
from dpduck.server.limits import Limits
from dpduck.server.places import GivenUp, never
from dpduck.server.principals import Principal
from dpduck.server.service import Service
from dpduck.values.errors import Refusal

MOST_ADMITTED = 256
ROWS_AT_ONCE = 131_072
"""Rows of a batch: large enough that Python's work for each does not show."""
_HANDLE = 16


@dataclass(frozen=True)
class _Admitted:
    """A statement that passed the gate and waits for its reader. sql: what to run in the public database."""

    principal: str
    token_hash: str
    sql: str


class Statements:
    """Remembers what passed the gate until it is read; safe to use from many threads.

    A handle is random bytes, then the statement's text: where the rest was forgotten, the text passes the gate again,
    which is free.
    """

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service = service
        self._lock = threading.RLock()  # a result that is given up may be collected while it is held
        self._admitted: OrderedDict[bytes, _Admitted] = OrderedDict()
        self._reading: Counter[str] = Counter()
        self._most, self._each = limits.running, limits.running_each

    def text_of(self, command: Message) -> str | None:
        """Returns the statement of a command; None where it is about the catalog. A prepared statement's handle is its
        text.
        """
        if command.name in ("CommandStatementQuery", "CommandPreparedStatementQuery"):
            return command.text(1) or ""
        return None

    def columns(self, principal: Principal, text: str) -> pa.Schema:
        """Returns the columns that a statement would have; it is not run and charges nothing."""
        return self._schema(self._service.gate.probe(principal, text))

    def run(self, principal: Principal, text: str, given_up: GivenUp = never) -> tuple[bytes, pa.Schema]:
        """Passes the gate, which may charge. Returns a handle for reading, and the columns."""
        sql = self._service.gate.admit(principal, text, given_up)
        schema = self._schema(sql)
        handle = secrets.token_bytes(_HANDLE) + text.encode()
        with self._lock:
            self._admitted[handle[:_HANDLE]] = _Admitted(principal.name, principal.token_hash, sql)
            while len(self._admitted) > MOST_ADMITTED:
                self._admitted.popitem(last=False)
        return handle, schema

    def stream(
        self, principal: Principal, handle: bytes, given_up: GivenUp = never
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Returns the rows, once a handle; only for whom passed the gate with it, others pass it themselves."""
        with self._lock:
            found = self._admitted.get(handle[:_HANDLE])
            mine = found is not None and (found.principal, found.token_hash) == (principal.name, principal.token_hash)
            if mine:
                del self._admitted[handle[:_HANDLE]]
        self._begin(principal.name)
        try:
            cursor = self._service.public.cursor()
            try:
                reader = None
                if found is not None and mine:
                    reader = _reader(cursor, found.sql)
                if reader is None:  # never seen, forgotten, or its answer has left the public database
                    text = handle[_HANDLE:].decode("utf-8", "replace")
                    reader = _reader(cursor, self._service.gate.admit(principal, text, given_up))
                if reader is None:
                    raise Refusal("the statement fails over the released tables", accepted="the same statement again")
            except BaseException:
                cursor.close()
                raise
        except BaseException:
            self.ended(principal.name)
            raise
        return reader.schema, _Rows(self, principal.name, cursor, reader)

    def _schema(self, sql: str) -> pa.Schema:
        with self._service.public.cursor() as cursor:
            try:
                return as_texts(cursor.sql(f"SELECT * FROM ({sql}) LIMIT 0").to_arrow_table().schema)
            except duckdb.Error as error:
                said = str(error).strip().split("\n", 1)[0][:300].split(": ", 1)[-1]
                raise Refusal(f"DuckDB does not accept this: {said}", accepted="DuckDB's SQL") from None

    def _begin(self, name: str) -> None:
        """Takes a place among those who read, of which each principal has so many."""
        with self._lock:
            most = self._each if self._reading[name] >= self._each else self._most
            if self._reading[name] >= self._each or self._reading.total() >= self._most:
                raise Refusal("too many results are read at once", accepted=f"{most} at a time")
            self._reading[name] += 1

    def ended(self, name: str) -> None:
        """Ends one reader."""
        with self._lock:
            self._reading[name] -= 1


def _reader(cursor: duckdb.DuckDBPyConnection, sql: str) -> pa.RecordBatchReader | None:
    try:
        reader = cursor.execute(sql).to_arrow_reader(ROWS_AT_ONCE)
    except duckdb.Error:
        return None
    shown = as_texts(reader.schema)
    return reader if shown.equals(reader.schema) else reader.cast(shown)


def as_texts(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with texts for ENUM: clients want a dictionary before the rows, where streams have none."""
    return pa.schema([column.with_type(_as_text(column.type)) for column in schema])


def _as_text(shown: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(shown):
        return shown.value_type
    if pa.types.is_map(shown):
        return pa.map_(_as_text(shown.key_type), _as_text(shown.item_type))
    if pa.types.is_list(shown):
        return pa.list_(shown.value_field.with_type(_as_text(shown.value_type)))
    if pa.types.is_struct(shown):
        return pa.struct([part.with_type(_as_text(part.type)) for part in shown])
    return shown


class _Rows:
    """Batches of a result; its place among the readers is free again when it ends or is given up."""

    def __init__(
        self, statements: Statements, name: str, cursor: duckdb.DuckDBPyConnection, reader: pa.RecordBatchReader
    ) -> None:
        self._statements, self._name = statements, name
        self._cursor: duckdb.DuckDBPyConnection | None = cursor
        self._reader = reader

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return self._reader.read_next_batch()
        except BaseException:
            self._end()
            raise

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        if self._cursor is not None:
            cursor, self._cursor = self._cursor, None
            cursor.close()
            self._statements.ended(self._name)
