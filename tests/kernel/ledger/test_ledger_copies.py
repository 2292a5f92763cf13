"""Older copies and second copies of a store are noticed and refused, and the owner has one explicit way out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpduck.values.errors import BudgetRefusal, Refusal, StoreError
from dpduck.values.privacy import ZERO, Budget, Charge

UNIT = "main.patients.id"


@pytest.mark.parametrize("charges", [1, 2, 5])
@pytest.mark.parametrize(("store", "secrets"), [(True, False), (False, True), (True, True)])
def test_an_older_copy_is_refused(store_place: Any, tmp_path: Path, charges: int, store: bool, secrets: bool) -> None:
    """With the store, its secrets or both restored from before the last charges, nothing is answered."""
    store_place.begin()
    backup = store_place.copy_to(tmp_path / "backup")
    ledger = store_place.open()
    for _ in range(charges):
        store_place.charge(ledger)
    store_place.restore_from(backup, store=store, secrets=secrets)
    with pytest.raises(StoreError, match=r"copy|older"):
        store_place.open()


@pytest.mark.parametrize(("store", "secrets"), [(True, False), (False, True)])
def test_without_a_witness_half_a_copy_is_still_refused(
    store_place: Any, tmp_path: Path, store: bool, secrets: bool
) -> None:
    """The secrets file alone notices a store that is behind it, or that is two entries ahead."""
    store_place.begin()
    backup = store_place.copy_to(tmp_path / "backup")
    ledger = store_place.open(witness=False)
    store_place.charge(ledger)
    store_place.charge(ledger)
    store_place.restore_from(backup, store=store, secrets=secrets)
    with pytest.raises(StoreError, match="older copy"):
        store_place.open(witness=False)


def test_a_store_that_was_deleted_does_not_begin_anew(store_place: Any) -> None:
    """The secrets of a deleted store know that there were entries: opening is refused, and no table is created."""
    store_place.begin()
    store_place.close()
    for path in store_place.directory.glob("clinic_private*"):
        path.unlink()
    with pytest.raises(StoreError, match="the ledger ends at entry 0"):
        store_place.open()
    made = store_place.connection.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'private'")
    assert made.fetchone() == (0,)
    with pytest.raises(StoreError, match="the ledger ends at entry 0"):
        store_place.open()


def test_a_current_copy_on_another_machine_is_accepted(store_place: Any, tmp_path: Path) -> None:
    """A store that moves with all its files is accepted on another machine, which writes a new witness."""
    store_place.begin()
    moved = store_place.copy_to(tmp_path / "moved")
    moved.state = tmp_path / "another machine"
    ledger = moved.open()
    assert ledger.spent(UNIT).epsilon == Fraction(3, 10)
    moved.charge(ledger)
    assert moved.witness.exists()
    moved.open().verify()
    moved.close()


def test_the_second_copy_is_refused_before_its_first_charge(store_place: Any, tmp_path: Path) -> None:
    """Two current copies are open. Once the first one charges, the second one cannot, and records nothing."""
    store_place.begin()
    copy = store_place.copy_to(tmp_path / "copy")
    first, second = store_place.open(), copy.open()
    store_place.charge(first)
    with pytest.raises(StoreError, match="the witness of this machine has seen entry 5"):
        copy.charge(second)
    assert len(second.entries()) == 4
    store_place.charge(first)
    with pytest.raises(StoreError):
        copy.charge(second)
    with pytest.raises(StoreError):
        copy.open()
    copy.close()


def test_two_copies_that_charge_at_the_same_moment_do_not_both_go_through(store_place: Any, tmp_path: Path) -> None:
    """The witness is swapped in one step: the copy that comes second in the race gets no answer."""
    store_place.begin()
    copy = store_place.copy_to(tmp_path / "copy")
    first = store_place.open()

    def overtake(step: str) -> None:
        if step == "row committed":
            store_place.charge(first)

    second = copy.open(steps=overtake)
    with pytest.raises(StoreError, match="two copies of the store were used"):
        copy.charge(second)
    store_place.charge(first)
    first.verify()
    copy.close()


def test_two_processes_on_copies_are_noticed(store_place: Any, tmp_path: Path) -> None:
    """A second process that opened a copy before this one charged is refused at its own charge."""
    store_place.begin()
    copy = store_place.copy_to(tmp_path / "copy")
    script = """
import sys
from fractions import Fraction
from pathlib import Path
import duckdb
from dpduck.values.privacy import Charge
from dpduck.kernel.ledger.ledger import Ledger
directory, state = map(Path, sys.argv[1:])
connection = duckdb.connect()
connection.execute(f"ATTACH '{directory}/clinic_private.duckdb' AS private")
ledger = Ledger.open(connection.cursor, "private", secrets_path=directory / "clinic_secrets", witness_directory=state)
print("open", flush=True)
sys.stdin.readline()
ledger.charge("main.patients.id", "visits", Charge.pure(Fraction(1, 10)), "alice", "statement", "noise")
print("charged", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(copy.directory), str(copy.state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    ) as other:
        assert other.stdout is not None
        ready = other.stdout.readline()
        store_place.charge(store_place.open())
        output, errors = other.communicate("go\n", timeout=600)
    assert (ready, output) == ("open\n", "")
    assert "StoreError: the ledger ends at entry 4 but the witness" in errors


def test_another_instance_on_the_same_file_is_noticed(store_place: Any) -> None:
    """DuckDB may let one process attach a file in two instances. The second instance does not charge."""
    first = store_place.begin()
    twin = type(store_place)(store_place.directory, store_place.state)
    try:
        second = twin.open()
    except StoreError:
        return
    except Exception as error:  # DuckDB refused to attach the file, which is as good
        assert type(error).__module__.endswith("duckdb")
        return
    store_place.charge(first)
    with pytest.raises(StoreError):
        twin.charge(second)
    twin.close()


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"\xff", b'{"counter": 1, "head": "", "spent": {"a": 3}}'])
def test_a_damaged_witness_is_refused(store_place: Any, damage: bytes) -> None:
    """A witness that cannot be read is not taken for an absent one."""
    store_place.begin()
    store_place.witness.write_bytes(damage)
    with pytest.raises(StoreError):
        store_place.open()


def test_the_owner_may_adopt_an_older_copy_but_gets_no_budget_back(store_place: Any, tmp_path: Path) -> None:
    """Adopting charges the amounts that the secrets or the witness know. The copy left behind is refused afterwards."""
    store_place.begin()
    backup = store_place.copy_to(tmp_path / "backup")
    ledger = store_place.open()
    ledger.declare_budget("main.other.ROW", "other", Budget(None, ZERO, ZERO, Fraction(1)), "owner", "CREATE")
    ledger.charge("main.other.ROW", "other", Charge.zcdp(Fraction(1, 7)), "alice", "s", "m")
    store_place.charge(ledger, epsilon=Fraction(2))
    newest = store_place.copy_to(tmp_path / "newest")
    store_place.restore_from(backup)
    adopted = store_place.adopt()
    assert adopted.spent(UNIT) == Charge(Fraction(23, 10), Fraction(3, 200) + 2, ZERO)
    assert adopted.spent("main.other.ROW") == Charge(None, Fraction(1, 7), ZERO)
    adopted.verify()
    with pytest.raises(BudgetRefusal, match=r"has 0\.7 of 3 left"):
        store_place.charge(adopted, epsilon=Fraction(1))
    store_place.charge(adopted)
    store_place.open().verify()
    with pytest.raises(StoreError):
        newest.open()
    assert [entry.mechanism for entry in store_place.open().entries("owner")][1:] == [
        "adopted an older copy",
        "adopted charges",
        "adopted charges",
    ]


def test_adopting_what_is_whole_records_nothing(store_place: Any) -> None:
    """Adopting a store that opens records nothing."""
    before = store_place.begin().entries()
    assert store_place.adopt().entries() == before


def test_a_lost_store_can_be_adopted_with_what_it_had_spent(store_place: Any) -> None:
    """The secrets of a lost store still know the spent amounts, and a new budget starts from them."""
    store_place.begin(charges=20)
    store_place.close()
    for path in store_place.directory.glob("clinic_private*"):
        path.unlink()
    ledger = store_place.adopt()
    assert ledger.spent(UNIT).epsilon == 2
    with pytest.raises(Refusal, match="2 is already spent"):
        ledger.declare_budget(UNIT, "visits", Budget(Fraction(1), ZERO, ZERO, None), "owner", "CREATE")


def test_a_forged_chain_cannot_be_adopted(store_place: Any) -> None:
    """An older store can be adopted, an edited one cannot."""
    store_place.begin()
    store_place.sql("UPDATE private.dpduck.ledger_entries SET epsilon = '0/1' WHERE id = 3")
    with pytest.raises(StoreError, match="ledger entry 3 is not what was written"):
        store_place.adopt()


def interrupted(place: Any, step: str) -> Callable[[], None]:
    """Returns a call that charges, and fails at this step as on a full disk."""

    def fail(name: str) -> None:
        if name == step:
            raise OSError("disk full")

    def run() -> None:
        place.charge(place.open(steps=fail))

    return run


@pytest.mark.parametrize("step", ["row committed", "secrets begun", "secrets written", "witness written"])
def test_a_charge_that_failed_half_way_stays_charged(store_place: Any, step: str) -> None:
    """An entry that was committed counts, whatever failed after it, and the store opens and goes on."""
    store_place.begin()
    with pytest.raises((OSError, StoreError)):
        interrupted(store_place, step)()
    ledger = store_place.open()
    assert ledger.spent(UNIT).epsilon == Fraction(4, 10)
    store_place.charge(ledger)
    ledger.verify()


def test_the_same_ledger_goes_on_after_a_failure(store_place: Any) -> None:
    """A charge after a failed one sees the committed entry, and writes the counters that the failed one left out."""
    store_place.begin()
    failures: list[str] = []

    def fail_once(name: str) -> None:
        if name in failures:
            failures.remove(name)
            raise OSError("disk full")

    ledger = store_place.open(steps=fail_once)
    failures.append("row committed")
    with pytest.raises(OSError, match="disk full"):
        store_place.charge(ledger)
    store_place.charge(ledger)
    assert ledger.spent(UNIT).epsilon == Fraction(5, 10)
    ledger.verify()


def test_a_charge_is_ended_once_and_begun_again_until_then(store_place: Any, tmp_path: Path) -> None:
    """Store and secrets count the beginnings of an answer. An ended answer stays ended in every copy of both."""
    ledger = store_place.begin()
    entry = store_place.charge(ledger)
    backup = store_place.copy_to(tmp_path / "backup")
    ledger = store_place.open()
    assert ledger.times_begun(entry) == 1
    ledger.begin_again(entry)
    assert store_place.open().times_begun(entry) == 2
    ledger = store_place.open()
    ledger.end(entry)
    with pytest.raises(StoreError, match="has had its answer"):
        ledger.end(entry)
    for store, secrets in ((True, False), (True, True), (False, True)):
        store_place.restore_from(backup, store=store, secrets=secrets)
        again = store_place.open()
        assert again.times_begun(entry) == 0
        for attempt in (again.end, again.begin_again):
            with pytest.raises(StoreError, match="has had its answer"):
                attempt(entry)


def test_an_adopted_copy_answers_nothing_for_an_old_charge(store_place: Any, tmp_path: Path) -> None:
    """An adopted copy gives its entries the numbers of others, so an answer that is missing there is paid for again."""
    store_place.begin()
    backup = store_place.copy_to(tmp_path / "backup")
    ledger = store_place.open()
    entry = store_place.charge(ledger)
    assert ledger.times_begun(entry) == 1
    store_place.charge(ledger)
    store_place.restore_from(backup)
    adopted = store_place.adopt()
    assert all(adopted.times_begun(number) == 0 for number in range(1, adopted.last_entry() + 1))


@pytest.mark.parametrize("step", ["row committed", "secrets begun", "secrets written", "witness written"])
def test_a_charge_that_was_recorded_half_way_has_no_answer_yet(store_place: Any, step: str) -> None:
    """A process died after recording the charge, before a door opened: the answer may be begun, and ended once."""
    store_place.begin()
    with pytest.raises((OSError, StoreError)):
        interrupted(store_place, step)()
    ledger = store_place.open()
    entry = ledger.last_entry()
    assert ledger.times_begun(entry) == 1
    ledger.end(entry)
    assert store_place.open().times_begun(entry) == 0
