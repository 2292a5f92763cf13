"""Clinics on connections, for tests of what clients of a connection see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpduck
from tests.edges.clinics import Clinic, by


@pytest.fixture(autouse=True)
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Witnesses of stores stay inside the test."""
    directory = tmp_path / "state"
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(directory))
    return directory


@pytest.fixture
def open_clinic(tmp_path: Path) -> Iterator[Callable[..., Clinic]]:
    """Opens connections that are closed after the test."""
    opened: list[duckdb.DuckDBPyConnection] = []

    def open_one(database: str | Path = ":memory:", **options: Any) -> Clinic:
        connection = dpduck.connect(database, **options)
        opened.append(connection)
        return Clinic(connection)

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def clinic(open_clinic: Callable[..., Clinic]) -> Clinic:
    """A clinic in memory with its policy."""
    made = open_clinic()
    made.fill()
    made.protect()
    return made


@pytest.fixture
def clinic_file(open_clinic: Callable[..., Clinic], tmp_path: Path) -> Path:
    """A closed database file with a policy and one release."""
    path = tmp_path / "clinic.duckdb"
    made = open_clinic(path)
    made.fill()
    made.protect()
    made.dp(by("sex"))
    made.con.close()
    return path
