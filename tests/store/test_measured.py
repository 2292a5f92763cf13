"""Which measurements a reader may know of, also in a store that an earlier version wrote."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.database.functions import database_of
from dpduck.store.cursors import Caller
from dpduck.values.errors import DpduckError
from tests.store.made_stores import made_store

BY_WARD = "SELECT ward, count(*) AS n FROM visits GROUP BY ward"
BY_SEX = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex"


def forget_sources(store: duckdb.DuckDBPyConnection) -> None:
    """Drops the column that says which release a view shows, as an earlier version had none."""
    store.execute("ALTER TABLE dpduck.releases DROP COLUMN source")


def make_charges_differ(store: duckdb.DuckDBPyConnection) -> None:
    """Changes the store as if the view had another charge than the release of the same digest."""
    store.execute("UPDATE dpduck.releases SET source = NULL, ledger_id = ledger_id + 1 WHERE kind = 'view'")


def is_known(folder: Path, question: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Tells whether a caller who is not the owner is answered."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(folder / "state"))
    with dpduck.connect(folder / "clinic.duckdb") as connection:
        database = database_of(connection)
        assert database is not None
        asked = json.dumps([question, 0.95, None])
        try:
            found = connection.execute(database.known(asked, Caller("alice", owner=False))).fetchall()
        except DpduckError:
            return False
    return len(found) > 0


def test_views_of_an_earlier_version_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views that everybody could read stay known to everybody. A release behind no view does not become known."""
    view = f"CREATE PRIVATE VIEW seen OPTIONS (epsilon = 1) AS {BY_WARD}"
    made_store(tmp_path, [view, BY_SEX], forget_sources)
    assert is_known(tmp_path, BY_WARD, monkeypatch)
    assert not is_known(tmp_path, "SELECT sex, count(*) AS n FROM visits GROUP BY sex", monkeypatch)


def test_a_view_of_another_charge_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest is not enough: with reuse a view of another charge measured something else under the same digest."""
    made_store(tmp_path, [f"CREATE PRIVATE VIEW seen OPTIONS (epsilon = 1) AS {BY_WARD}"], make_charges_differ)
    assert not is_known(tmp_path, BY_WARD, monkeypatch)
