"""The hand-written protobuf messages of Flight SQL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpduck.server.flight.statements import PREFIX, Message, read_any, write, write_any
from dpduck.values.errors import Refusal

FIELDS = st.dictionaries(st.integers(1, 2**29 - 1), st.one_of(st.integers(1, 2**64 - 1), st.binary(min_size=1)))


@given(FIELDS)
def test_what_is_written_is_read(fields: dict[int, int | bytes]) -> None:
    """Every field of every size comes back."""
    message = read_any(write_any("CommandGetTables", fields))
    assert message == Message("CommandGetTables", {number: [value] for number, value in fields.items()})


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """Whatever a client sends, the reader answers or refuses in one line, with no other error."""
    try:
        message = read_any(body)
        message.numbers(1), message.text(2), message.texts(3), message.flag(5)
    except Refusal as refused:
        assert "\n" not in str(refused)


@given(st.binary(max_size=40), FIELDS)
def test_bytes_inside_the_message_are_read_or_refused(body: bytes, fields: dict[int, int | bytes]) -> None:
    """Likewise inside a message of the right name, and cut anywhere."""
    whole = write({1: (PREFIX + "CommandGetSqlInfo").encode(), 2: body}) + write(fields)
    for end in range(len(whole)):
        try:
            read_any(whole[:end]).numbers(1)
        except Refusal as refused:
            assert "\n" not in str(refused)


def test_bytes_are_those_of_protobuf() -> None:
    """Known encodings, from protobuf's own documentation: field 1 = 150, field 2 = 'testing', packed 3, 270, 86942."""
    assert write({1: 150}).hex() == "089601"
    assert write({2: b"testing"}).hex() == "120774657374696e67"
    body = write({1: (PREFIX + "CommandGetSqlInfo").encode(), 2: bytes.fromhex("0a06038e029ea705")})
    assert read_any(body).numbers(1) == (3, 270, 86942)
    unpacked = write({1: (PREFIX + "CommandGetSqlInfo").encode(), 2: bytes.fromhex("08030804")})
    assert read_any(unpacked).numbers(1) == (3, 4)


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a length of more than 64 bits
        b"\x0a\x05ab",  # cut
        b"\x0b",  # a group, which proto3 has not
        b"\x00\x01",  # field 0
        b"\x80" * 11,  # a number without end
        write({1: (PREFIX + "CommandStatementQuery").encode(), 2: write({1: b"\xff\xfe"})}),  # no UTF-8
        b"\x08\x01" * 10_001,
    ],
)
def test_malformed_messages_are_refused(body: bytes) -> None:
    """One line, and no work in proportion to a number from the client."""
    with pytest.raises(Refusal, match=r"malformed; accepted: messages as in FlightSql\.proto"):
        read_any(body).text(1)


def test_other_messages_are_refused() -> None:
    """Only Flight SQL's own messages are read."""
    for url in ("", "type.googleapis.com/google.protobuf.Empty"):
        with pytest.raises(Refusal, match=r"no command of Arrow Flight SQL"):
            read_any(write({1: url.encode(), 2: b"\x08\x01"}))
