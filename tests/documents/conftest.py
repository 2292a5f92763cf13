"""Stores that the documents' tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documented import KINDS, make_store


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stores, and of their counters for as long as the stores are made."""
    folder = tmp_path_factory.mktemp("documented")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(folder / "state"))
        for name, kind in KINDS.items():
            make_store(folder / name, kind)
    return folder


@pytest.fixture
def stores(state: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The database of each kind."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(state / "state"))
    return {name: state / name / "clinic.duckdb" for name in KINDS}
