"""Any change in the ledger's tables behind its back is noticed, when it is opened and when it is verified."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dpduck.kernel.ledger.entries import GENESIS, LedgerRow, row_hash
from dpduck.values.errors import StoreError
from dpduck.values.privacy import ZERO, Budget

ENTRIES = "private.dpduck.ledger_entries"
EDITS = {
    "a cheaper epsilon": f"UPDATE {ENTRIES} SET epsilon = '1/1000' WHERE id = 3",
    "a cheaper rho": f"UPDATE {ENTRIES} SET rho = '0/1' WHERE id = 3",
    "no epsilon": f"UPDATE {ENTRIES} SET epsilon = NULL WHERE id = 3",
    "another delta": f"UPDATE {ENTRIES} SET delta = '1/2' WHERE id = 3",
    "equal but not the same text": f"UPDATE {ENTRIES} SET epsilon = '2/20' WHERE id = 3",
    "not a number": f"UPDATE {ENTRIES} SET epsilon = 'x' WHERE id = 3",
    "another unit": f"UPDATE {ENTRIES} SET unit_key = 'main.other.id' WHERE id = 3",
    "another table": f"UPDATE {ENTRIES} SET table_name = 'other' WHERE id = 3",
    "another principal": f"UPDATE {ENTRIES} SET principal = 'bob' WHERE id = 3",
    "another statement": f"UPDATE {ENTRIES} SET statement = 'x' WHERE id = 3",
    "another mechanism": f"UPDATE {ENTRIES} SET mechanism = 'x' WHERE id = 3",
    "another time": f"""UPDATE {ENTRIES} SET "at" = "at" - INTERVAL 1 MICROSECOND WHERE id = 3""",
    "another previous hash": f"UPDATE {ENTRIES} SET previous_hash = repeat('0', 64) WHERE id = 3",
    "another hash": f"UPDATE {ENTRIES} SET hash = repeat('0', 64) WHERE id = 3",
    "a hash that is no hash": f"UPDATE {ENTRIES} SET hash = 'é' WHERE id = 3",
    "a wider budget": f"UPDATE {ENTRIES} SET budget = replace(budget, '3/1', '30/1') WHERE id = 1",
    "no budget": f"UPDATE {ENTRIES} SET budget = NULL WHERE id = 1",
    "a budget on a charge": f"UPDATE {ENTRIES} SET budget = (SELECT budget FROM {ENTRIES} WHERE id = 1) WHERE id = 3",
    "the last one cheaper": f"UPDATE {ENTRIES} SET epsilon = '1/1000' WHERE id = 5",
    "the first one gone": f"DELETE FROM {ENTRIES} WHERE id = 1",
    "one in the middle gone": f"DELETE FROM {ENTRIES} WHERE id = 3",
    "the last one gone": f"DELETE FROM {ENTRIES} WHERE id = 5",
    "the last three gone": f"DELETE FROM {ENTRIES} WHERE id > 2",
    "all gone": f"DELETE FROM {ENTRIES}",
    "one gone and the others renumbered": f"""
        DELETE FROM {ENTRIES} WHERE id = 3;
        UPDATE {ENTRIES} SET id = id + 100 WHERE id > 3; UPDATE {ENTRIES} SET id = id - 101 WHERE id > 100""",
    "two swapped": f"""
        UPDATE {ENTRIES} SET id = 99 WHERE id = 3; UPDATE {ENTRIES} SET id = 3 WHERE id = 4;
        UPDATE {ENTRIES} SET id = 4 WHERE id = 99""",
    "a forged one at the end": f"""
        INSERT INTO {ENTRIES} SELECT * REPLACE (6 AS id, hash AS previous_hash) FROM {ENTRIES} WHERE id = 5""",
    "a forged wider budget at the end": f"""
        INSERT INTO {ENTRIES} SELECT * REPLACE (6 AS id, replace(budget, '3/1', '30/1') AS budget,
            (SELECT hash FROM {ENTRIES} WHERE id = 5) AS previous_hash) FROM {ENTRIES} WHERE id = 1""",
    "one before the first": f"INSERT INTO {ENTRIES} SELECT * REPLACE (0 AS id) FROM {ENTRIES} WHERE id = 1",
    "the tables gone": f"DROP TABLE {ENTRIES}; DROP TABLE private.dpduck.ledger_identity",
    "the entries' table gone": f"DROP TABLE {ENTRIES}",
    "no identity": "DELETE FROM private.dpduck.ledger_identity",
    "another identity": "UPDATE private.dpduck.ledger_identity SET store_id = 'x'",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_noticed_when_the_store_is_opened(begun_place: Any, edit: str) -> None:
    """An edited ledger is not opened, with a witness or without, and the error quotes no part of the ledger."""
    store_place = begun_place
    store_place.sql(EDITS[edit])
    for witness in (False, True):
        with pytest.raises(StoreError) as raised:
            store_place.open(witness=witness)
        assert "statement 1" not in str(raised.value)
        assert "accepted:" in str(raised.value)


@pytest.mark.parametrize("edit", [name for name in EDITS if "identity" not in name and "tables" not in name])
def test_an_edit_is_noticed_by_verify(begun_place: Any, edit: str) -> None:
    """A ledger that is open reports the edit when it is asked to verify."""
    ledger = begun_place.open()
    ledger.verify()
    begun_place.connection.execute(EDITS[edit])
    with pytest.raises(StoreError):
        ledger.verify()


def test_the_first_bad_entry_is_named(store_place: Any) -> None:
    """The error tells the owner the number of the first bad entry."""
    ledger = store_place.begin(charges=4)
    store_place.connection.execute(f"UPDATE {ENTRIES} SET statement = 'canary' WHERE id IN (4, 3)")
    with pytest.raises(StoreError, match="ledger entry 3 is not what was written") as raised:
        ledger.verify()
    assert "canary" not in str(raised.value)
    with pytest.raises(StoreError, match="ledger entry 3 "):
        ledger.entries()
    store_place.connection.execute(f"DELETE FROM {ENTRIES} WHERE id = 2")
    with pytest.raises(StoreError, match="ledger entry 2 is missing"):
        ledger.verify()


@pytest.mark.parametrize("edit", ["the last one cheaper", "the last one gone", "all gone", "a forged one at the end"])
def test_an_edit_at_the_end_stops_the_next_charge(store_place: Any, edit: str) -> None:
    """Each charge reads the end of the chain again, and is refused if that was edited."""
    ledger = store_place.begin(charges=4)
    edits = {**EDITS, "the last one cheaper": f"UPDATE {ENTRIES} SET hash = repeat('1', 64) WHERE id = 5"}
    store_place.connection.execute(edits[edit])
    with pytest.raises(StoreError):
        store_place.charge(ledger)
    with pytest.raises(StoreError):
        ledger.spent(store_place.unit)


def test_a_chain_rehashed_without_the_key_is_noticed(store_place: Any) -> None:
    """A consistent chain under another key is refused: the algorithm of the chain alone is not enough to forge it."""
    store_place.begin(charges=2)
    connection = store_place.attach()
    columns = """id, epoch_us("at"), principal, unit_key, table_name, statement, mechanism, epsilon, rho, delta,
        budget, previous_hash, hash"""
    rows = [
        LedgerRow._make(row) for row in connection.execute(f"SELECT {columns} FROM {ENTRIES} ORDER BY id").fetchall()
    ]
    store_id = connection.execute("SELECT store_id FROM private.dpduck.ledger_identity").fetchone()[0]
    previous = GENESIS
    for row in rows:
        cheaper = row._replace(epsilon="0/1", previous_hash=previous)
        previous = row_hash(b"guessed key", store_id, cheaper)
        connection.execute(
            f"UPDATE {ENTRIES} SET epsilon = '0/1', previous_hash = ?, hash = ? WHERE id = ?",
            [cheaper.previous_hash, previous, row.id],
        )
    with pytest.raises(StoreError, match="ledger entry 1 is not what was written"):
        store_place.open()


def test_secrets_of_another_store_are_refused(store_place: Any, tmp_path: Any) -> None:
    """A store opens with the secrets it was created with, and with no others."""
    store_place.begin()
    other = type(store_place)(tmp_path / "other", tmp_path / "state")
    other.begin()
    store_place.restore_from(other, store=False)
    with pytest.raises(StoreError, match="the secrets do not belong to this store"):
        store_place.open()


def test_without_its_secrets_a_store_is_refused_and_none_are_made(store_place: Any) -> None:
    """A lost secrets file is not quietly replaced by a fresh one."""
    store_place.begin()
    store_place.close()
    store_place.secrets.unlink()
    with pytest.raises(StoreError, match="the secrets file of this store is missing"):
        store_place.open()
    assert not store_place.secrets.exists()
    store_place.secrets.touch(0o600)
    with pytest.raises(StoreError):
        store_place.open()


def test_a_budget_row_is_bound_to_its_unit(store_place: Any) -> None:
    """Two units' budgets cannot be exchanged."""
    ledger = store_place.begin(charges=0)
    ledger.declare_budget("main.other.ROW", "other", Budget(Fraction(9), ZERO, ZERO, None), "owner", "CREATE")
    store_place.sql(f"UPDATE {ENTRIES} SET unit_key = CASE id WHEN 1 THEN 'main.other.ROW' ELSE 'main.patients.id' END")
    with pytest.raises(StoreError, match="ledger entry 1 is not what was written"):
        store_place.open()
