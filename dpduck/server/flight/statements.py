"""Statements that came over Arrow Flight SQL: their columns, which cost nothing, and their rows.

The few messages of the protocol (arrow/format/FlightSql.proto) have flat fields, so that no protobuf library is needed.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from dpduck.server.gate import Service
from dpduck.server.limits import GivenUp, Limits, never, remember
from dpduck.server.principals import Principal
from dpduck.values.errors import Refusal

PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
MOST_FIELDS = 10_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PLAIN = re.compile("[a-z_][a-z0-9_]*", re.IGNORECASE | re.ASCII)
_FIXED = {_FIXED64: 8, _FIXED32: 4}

Value = int | bytes


@dataclass(frozen=True)
class Message:
    """Message with its name in FlightSql.proto. fields: all values of each field number, in order."""

    name: str
    fields: Mapping[int, Sequence[Value]] = field(default_factory=dict)

    def text(self, number: int) -> str | None:
        value = self.raw(number)
        if value is None:
            return None
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise _format_refusal() from None

    def raw(self, number: int) -> bytes | None:
        values = self.fields.get(number, ())
        if not values:
            return None
        if not isinstance(values[-1], bytes):
            raise _format_refusal()
        return values[-1]

    def texts(self, number: int) -> tuple[str, ...]:
        return tuple(Message("", {1: [value]}).text(1) or "" for value in self.fields.get(number, ()))

    def numbers(self, number: int) -> tuple[int, ...]:
        """Returns every number of a repeated field, packed or not."""
        values: list[int] = []
        for value in self.fields.get(number, ()):
            if isinstance(value, int):
                values.append(value)
                continue
            position = 0
            while position < len(value):
                element, position = _varint(value, position)
                values.append(element)
        return tuple(values)

    def flag(self, number: int) -> bool:
        return any(self.numbers(number)[-1:])


def read_any(body: bytes) -> Message:
    """Returns the message in a google.protobuf.Any. Refuses a message outside Flight SQL.

    >>> read_any(write_any("CommandGetTables", {3: b"by_%", 5: 1})).text(3)
    'by_%'
    """
    outer = Message("Any", _fields(body))
    url = outer.text(1) or ""
    if not url.startswith(PREFIX):
        raise Refusal("this is no command of Arrow Flight SQL", accepted="a Flight SQL client, such as ADBC")
    return Message(url.removeprefix(PREFIX), _fields(outer.raw(2) or b""))


def write_any(name: str, fields: Mapping[int, Value]) -> bytes:
    """Writes a message in a google.protobuf.Any."""
    return write({1: (PREFIX + name).encode(), 2: write(fields)})


def write(fields: Mapping[int, Value]) -> bytes:
    """Writes a message as bytes, without empty bytes and 0, as in proto3."""
    written = bytearray()
    for number, value in fields.items():
        if not value:
            continue
        if isinstance(value, int):
            written += _write_varint(number << 3 | _VARINT) + _write_varint(value)
        else:
            written += _write_varint(number << 3 | _BYTES) + _write_varint(len(value)) + value
    return bytes(written)


def _fields(body: bytes) -> dict[int, list[Value]]:
    fields: dict[int, list[Value]] = {}
    position = count = 0
    while position < len(body):
        tag, position = _varint(body, position)
        number, kind, count = tag >> 3, tag & 7, count + 1
        if not number or count > MOST_FIELDS:
            raise _format_refusal()
        value: Value
        if kind == _VARINT:
            value, position = _varint(body, position)
        else:
            if kind == _BYTES:
                length, position = _varint(body, position)
            elif kind in _FIXED:
                length = _FIXED[kind]
            else:
                raise _format_refusal()
            if length > len(body) - position:
                raise _format_refusal()
            value, position = body[position : position + length], position + length
        fields.setdefault(number, []).append(value)
    return fields


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """Returns an unsigned number and the position after it. Each byte has seven bits, the lowest first."""
    value = 0
    for place in range(10):
        if position + place >= len(body):
            break
        byte = body[position + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if value >> 64:
                break
            return value, position + place + 1
    raise _format_refusal()


def _write_varint(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _format_refusal() -> Refusal:
    return Refusal("this message of Arrow Flight SQL is malformed", accepted="messages as in FlightSql.proto")


MOST_ADMITTED = 256
ROWS_AT_ONCE = 131_072
"""Rows of a batch. There are so many that Python's work for each batch does not matter."""
_HANDLE = 16


@dataclass(frozen=True)
class _Admitted:
    """Statement that passed the gate and waits for its reader. sql: the SQL to run in the public database."""

    principal: str
    token_hash: str
    sql: str


class Statements:
    """Statements that passed the gate, until their rows are read. Many threads may use it.

    A handle is random bytes, followed by the statement's text. If the statement is forgotten, its text passes the gate
    again, which is free.
    """

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service = service
        self._lock = threading.RLock()  # the garbage collector may end a result while the lock is held
        self._admitted: OrderedDict[bytes, _Admitted] = OrderedDict()
        self._reading: Counter[str] = Counter()
        self._most, self._each = limits.running, limits.running_each

    def text_of(self, command: Message) -> str | None:
        """Returns the statement of a command, or None for other commands. A prepared statement's handle is its text."""
        if command.name in ("CommandStatementQuery", "CommandPreparedStatementQuery"):
            return command.text(1) or ""
        return None

    def columns(self, principal: Principal, text: str) -> pa.Schema:
        """Returns the columns of a statement, without running it or charging."""
        return self._schema(self._service.gate.probe(principal, text))

    def private_tables(self, principal: Principal) -> dict[str, dict[str, str]]:
        """Returns the tables with plain names that a principal may ask about, with their columns' types."""
        handle, _ = self.run(principal, "SELECT table_name, column_name, data_type FROM dp_columns()")
        tables: dict[str, dict[str, str]] = {}
        for batch in self.stream(principal, handle)[1]:
            for table, column, kind in zip(*(array.to_pylist() for array in batch.columns), strict=True):
                if _PLAIN.fullmatch(table) and column is not None and kind is not None:
                    tables.setdefault(table, {})[column] = kind
        return tables

    def run(self, principal: Principal, text: str, given_up: GivenUp = never) -> tuple[bytes, pa.Schema]:
        """Sends a statement through the gate, which may charge. Returns a handle for its rows, and its columns."""
        sql = self._service.gate.admit(principal, text, given_up)
        schema = self._schema(sql)
        handle = secrets.token_bytes(_HANDLE) + text.encode()
        with self._lock:
            entry = _Admitted(principal.name, principal.token_hash, sql)
            remember(self._admitted, handle[:_HANDLE], entry, MOST_ADMITTED)
        return handle, schema

    def stream(
        self, principal: Principal, handle: bytes, given_up: GivenUp = never
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Returns the columns and rows of a handle. Its text passes the gate again if its rows are gone."""
        with self._lock:
            entry = self._admitted.get(handle[:_HANDLE])
            mine = entry is not None and (entry.principal, entry.token_hash) == (principal.name, principal.token_hash)
            if mine:
                del self._admitted[handle[:_HANDLE]]
        self._begin(principal.name)
        with ExitStack() as failing:
            failing.callback(self.end_reader, principal.name)
            cursor = self._service.public.cursor()
            failing.callback(cursor.close)
            reader = _reader(cursor, entry.sql) if entry is not None and mine else None
            if reader is None:  # unknown or forgotten, or its answer was removed
                text = handle[_HANDLE:].decode("utf-8", "replace")
                reader = _reader(cursor, self._service.gate.admit(principal, text, given_up))
            if reader is None:
                raise Refusal(
                    "the statement fails over the released tables",
                    accepted="expressions that every value can go through, or the same statement again",
                )
            failing.pop_all()  # from here on, the batches end the reader
        return reader.schema, _ResultBatches(self, principal.name, cursor, reader)

    def _schema(self, sql: str) -> pa.Schema:
        with self._service.public.cursor() as cursor:
            try:
                return as_texts(cursor.sql(sql).limit(0).to_arrow_table().schema)
            except duckdb.Error as error:
                said = str(error).strip().split("\n", 1)[0][:300].split(": ", 1)[-1]
                raise Refusal(f"DuckDB does not accept this: {said}", accepted="DuckDB's SQL") from None

    def _begin(self, name: str) -> None:
        """Counts one more reader of results. Refuses a reader beyond the limits for all or for this principal."""
        with self._lock:
            most = self._each if self._reading[name] >= self._each else self._most
            if self._reading[name] >= self._each or self._reading.total() >= self._most:
                raise Refusal("too many results are read at once", accepted=f"{most} at a time")
            self._reading[name] += 1

    def end_reader(self, name: str) -> None:
        with self._lock:
            self._reading[name] -= 1


def _reader(cursor: duckdb.DuckDBPyConnection, sql: str) -> pa.RecordBatchReader | None:
    try:
        reader = cursor.sql(sql).to_arrow_reader(ROWS_AT_ONCE)
    except duckdb.Error:
        return None
    shown = as_texts(reader.schema)
    return reader if shown.equals(reader.schema) else reader.cast(shown)


def as_texts(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with texts in place of ENUM. Clients want a dictionary first, which streams do not have."""
    return pa.schema([column.with_type(_as_text(column.type)) for column in schema])


def _as_text(shown: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(shown):
        return shown.value_type
    if pa.types.is_map(shown):
        return pa.map_(_as_text(shown.key_type), _as_text(shown.item_type))
    if pa.types.is_list(shown):
        return pa.list_(shown.value_field.with_type(_as_text(shown.value_type)))
    if pa.types.is_struct(shown):
        return pa.struct([member.with_type(_as_text(member.type)) for member in shown])
    return shown


class _ResultBatches:
    """Batches of a result. Once they end, or nobody uses this object, their reader is no longer counted."""

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
            self._statements.end_reader(self._name)
