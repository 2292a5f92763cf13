"""One page over one served clinic for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.served import Served
from tests.server.web.client import Browser, listening


@pytest.fixture(scope="module")
def port(served: Served) -> Iterator[int]:
    with listening(served.service) as found:
        yield found


@pytest.fixture
def stranger(port: int) -> Browser:
    return Browser(port)


@pytest.fixture
def alice(served: Served, port: int) -> Browser:
    browser = Browser(port)
    assert browser.login(served.tokens["alice"]).status == 303
    return browser
