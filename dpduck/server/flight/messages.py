"""The few protobuf messages of Arrow Flight SQL (arrow/format/FlightSql.proto), read and written by hand.

Every message there is flat: fields of texts, bytes, booleans and small numbers. So a reader of wire types is enough;
what is malformed or too large is refused, and unknown fields are skipped, as protobuf demands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpduck.values.errors import Refusal

PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
MOST_FIELDS = 10_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}

Value = int | bytes


@dataclass(frozen=True)
class Message:
    """A message by its name in FlightSql.proto. fields: by number, every occurrence in order."""

    name: str
    fields: Mapping[int, Sequence[Value]] = field(default_factory=dict)

    def text(self, number: int) -> str | None:
        """Returns the last text of a field, None where it is absent."""
        value = self.raw(number)
        if value is None:
            return None
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise _malformed() from None

    def raw(self, number: int) -> bytes | None:
        """Returns the last bytes of a field."""
        values = self.fields.get(number, ())
        if not values:
            return None
        if not isinstance(values[-1], bytes):
            raise _malformed()
        return values[-1]

    def texts(self, number: int) -> tuple[str, ...]:
        """Returns every text of a repeated field."""
        return tuple(Message("", {1: [value]}).text(1) or "" for value in self.fields.get(number, ()))

    def numbers(self, number: int) -> tuple[int, ...]:
        """Returns every number of a repeated field, packed or not."""
        found: list[int] = []
        for value in self.fields.get(number, ()):
            if isinstance(value, int):
                found.append(value)
                continue
            position = 0
            while position < len(value):
                one, position = _varint(value, position)
                found.append(one)
        return tuple(found)

    def flag(self, number: int) -> bool:
        """Returns a boolean, false where it is absent."""
        return any(self.numbers(number)[-1:])


def read_any(body: bytes) -> Message:
    """Returns the message in a google.protobuf.Any; Refusal where it is none of Flight SQL's.

    >>> read_any(write_any("CommandGetTables", {3: b"by_%", 5: 1})).text(3)
    'by_%'
    """
    outer = Message("Any", _fields(body))
    url = outer.text(1) or ""
    if not url.startswith(PREFIX):
        raise Refusal("this is no command of Arrow Flight SQL", accepted="a Flight SQL client (ADBC, JDBC, ODBC)")
    return Message(url.removeprefix(PREFIX), _fields(outer.raw(2) or b""))


def write_any(name: str, fields: Mapping[int, Value]) -> bytes:
    """Returns a message in a google.protobuf.Any."""
    return write({1: (PREFIX + name).encode(), 2: write(fields)})


def write(fields: Mapping[int, Value]) -> bytes:
    """Returns a message's bytes; empty bytes and 0 are left out, as proto3 does."""
    written = bytearray()
    for number, value in fields.items():
        if not value:
            continue
        if isinstance(value, int):
            written += _written(number << 3 | _VARINT) + _written(value)
        else:
            written += _written(number << 3 | _BYTES) + _written(len(value)) + value
    return bytes(written)


def _fields(body: bytes) -> dict[int, list[Value]]:
    found: dict[int, list[Value]] = {}
    position = count = 0
    while position < len(body):
        tag, position = _varint(body, position)
        number, kind, count = tag >> 3, tag & 7, count + 1
        if not number or count > MOST_FIELDS:
            raise _malformed()
        value: Value
        if kind == _VARINT:
            value, position = _varint(body, position)
        else:
            if kind == _BYTES:
                length, position = _varint(body, position)
            elif kind in _FIXED:
                length = _FIXED[kind]
            else:
                raise _malformed()
            if length > len(body) - position:
                raise _malformed()
            value, position = body[position : position + length], position + length
        found.setdefault(number, []).append(value)
    return found


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """Returns an unsigned number of up to 64 bits, seven of them a byte, the lowest first; and where it ends."""
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
    raise _malformed()


def _written(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _malformed() -> Refusal:
    return Refusal("this message of Arrow Flight SQL is malformed", accepted="messages as in FlightSql.proto")
