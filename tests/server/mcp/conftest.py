"""One listener of agents over one served clinic for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.mcp.client import Agent, serving_agents
from tests.server.served import Served


@pytest.fixture(autouse=True, scope="session")
def _sdk() -> None:
    """Nothing here is tried without the SDK."""
    pytest.importorskip("mcp", reason="the extra mcp is not installed")


@pytest.fixture(scope="module")
def agent_port(served: Served) -> Iterator[int]:
    with serving_agents(served.service) as port:
        yield port


@pytest.fixture
def alice(served: Served, agent_port: int) -> Agent:
    return Agent(agent_port, served.tokens["alice"])


@pytest.fixture
def bob(served: Served, agent_port: int) -> Agent:
    return Agent(agent_port, served.tokens["bob"])
