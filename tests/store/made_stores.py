"""Stores that are created once, and copied for each test that changes or publishes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.database.functions import database_of
from dpduck.store.cursors import Caller
from tests.support.clinics import Clinic


def made_store(
    folder: Path,
    statements: Sequence[str],
    change: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
    caller: Caller | None = None,
) -> Path:
    """Returns the closed store of a clinic after these statements. change: a change of the store by hand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(folder / "state"))
        with dpduck.connect(folder / "clinic.duckdb") as connection:
            clinic = Clinic(connection)
            clinic.fill()
            clinic.protect()
            database = database_of(connection)
            assert database is not None
            for statement in statements:
                connection.execute(database.run(statement, caller or Caller("owner", owner=True)))
    store = folder / "clinic_private.duckdb"
    if change is not None:
        with duckdb.connect(str(store)) as opened:
            change(opened)
    return store


def copied(store: Path, folder: Path) -> Path:
    """Copies the clinic with its store and its secrets into a folder, and returns the store's path."""
    for path in store.parent.glob("clinic*"):
        shutil.copy(path, folder / path.name)
    return folder / store.name
