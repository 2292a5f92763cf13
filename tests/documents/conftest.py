"""Stores that the documents' tests share. Each is made when it is first asked for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.documented import KINDS, make_store


class Stores(Mapping[str, Path]):
    """The database of each kind, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, kind: str) -> Path:
        database = self.folder / kind / "clinic.duckdb"
        return database if database.exists() else make_store(database.parent, KINDS[kind])

    def __iter__(self) -> Iterator[str]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)


OLD = Path(__file__).parents[1] / "database" / "pinned" / "store_0_2.zip"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The database of a store that version 0.2 wrote."""
    shutil.unpack_archive(OLD, tmp_path)
    (tmp_path / "clinic_private_secrets").chmod(0o600)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "clinic.duckdb"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stores and of their counters."""
    return tmp_path_factory.mktemp("documented")


@pytest.fixture(scope="module")
def stores(folder: Path) -> Iterator[Mapping[str, Path]]:
    """The database of each kind, with the counters of their stores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(folder / "state"))
        yield Stores(folder)
