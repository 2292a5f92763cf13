"""Errors over Flight SQL: pyarrow would send a traceback, so every call of the protocol is wrapped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from dpduck.server.flight import listener as module
from dpduck.server.gate import UNEXPECTED
from dpduck.values.errors import DpduckError, PermissionRefusal, Refusal
from tests.server.served import CANARY

CALLS = (
    "get_flight_info", "get_schema", "do_get", "do_put", "do_action", "list_actions", "list_flights", "do_exchange",
)  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_wrapped(name: str) -> None:
    """A method that pyarrow calls by itself and that is not wrapped would tell a client where it failed and on what."""
    assert module._FlightServer.__dict__[name].__wrapped__.__name__ == name
    assert name in dir(flight.FlightServerBase)


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (ValueError(f"could not convert {CANARY}"), flight.FlightInternalError, UNEXPECTED),
        (KeyError(CANARY), flight.FlightInternalError, UNEXPECTED),
        (pa.ArrowInvalid(CANARY), flight.FlightInternalError, UNEXPECTED),
        (Refusal("too long", accepted="less"), flight.FlightServerError, "too long; accepted: less"),
        (
            PermissionRefusal("not yours", accepted="yours"),
            flight.FlightUnauthorizedError,
            "not yours; accepted: yours",
        ),
    ],
)
def test_an_error_is_one_line(error: Exception, kind: type[Exception], told: str) -> None:
    """dpduck's errors as they are. Any other by one fixed text, without message and cause. Also for rows under way."""

    def fails() -> None:
        raise error

    def rows() -> Iterator[Any]:
        yield 1
        raise error

    with pytest.raises(kind) as caught:
        module._flight_errors(fails)()
    careful = module._careful(rows())
    assert next(careful) == 1
    with pytest.raises(kind) as late:
        next(careful)
    for shown in (caught.value, late.value):
        assert told in str(shown) and "\n" not in str(shown)
        assert CANARY not in str(shown)
        assert shown.__cause__ is None and shown.__suppress_context__
    assert isinstance(error, DpduckError) == (kind is not flight.FlightInternalError)
