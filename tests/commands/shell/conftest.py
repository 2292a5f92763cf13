"""A clinic of the owner with its witness, one for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.served import make_clinic


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clinic with two private views, a budget of epsilon = 10, and rows that must never be seen."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    folder = tmp_path / "clinic"
    folder.mkdir()
    return make_clinic(folder)
