"""One served clinic for the tests of a module: they may spend its budget, and leave its files alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.served import Served, open_served


@pytest.fixture(scope="module")
def state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Witnesses of stores stay inside the tests, also in processes that they start."""
    directory = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(directory))
        yield directory


@pytest.fixture
def own_state(state_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Witnesses of the test's own clinic stay with it, so that the clinic can be a copy of an earlier one."""
    directory = tmp_path / "state"
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(directory))
    return directory


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, state_directory: Path) -> Iterator[Served]:
    opened = open_served(tmp_path_factory.mktemp("served"))
    yield opened
    opened.service.close()
