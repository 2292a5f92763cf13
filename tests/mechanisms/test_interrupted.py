"""Ctrl-C: one line that says what stays spent, and a charge without an answer is taken up."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from dpduck.database.functions import database_of
from dpduck.kernel.door import Door
from dpduck.values.errors import InternalError, Interrupted, StoreError
from tests.support.clinics import Clinic, by, one_line

OpenClinic = Callable[..., Clinic]


class CtrlC:
    """Sends this process a real SIGINT at one step of a release, once."""

    def __init__(self, step: str) -> None:
        self.step: str | None = step

    def __call__(self, name: str) -> None:
        if name == self.step:
            self.step = None
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(autouse=True)
def python_hears_ctrl_c() -> Iterator[None]:
    """A background job ignores SIGINT: this sets Python's handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt(clinic: Clinic, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Lets the next release be interrupted at a step."""
    database = database_of(clinic.con)
    assert database is not None
    monkeypatch.setattr(database._releaser, "_steps", CtrlC(step))


def stopped(clinic: Clinic, statement: str) -> str:
    """Returns the one line of an interrupted statement."""
    with pytest.raises(duckdb.Error) as caught:
        clinic.dp(statement)
    return one_line(caught.value)


@pytest.mark.parametrize("step", ["after the charge", "after the count", "after the noise"])
def test_a_charge_without_an_answer_is_taken_up(clinic: Clinic, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The line names the entry. Asked again there is an answer and no second charge, and the entry is gone."""
    interrupt(clinic, monkeypatch, step)
    before = clinic.charges()
    line = stopped(clinic, by("sex"))
    assert re.search(r"interrupted; ledger entry \d+, epsilon = 1, stays charged; asked again", line)
    assert "Traceback" not in line and ".py" not in line
    charged = clinic.charges()
    assert charged == before + 1
    assert len(clinic.dp(by("sex"))) == 2
    assert clinic.charges() == charged
    clinic.dp(by("sex", more="refresh = 'x'"))
    assert clinic.charges() == charged + 1


def test_rows_that_change_meanwhile_are_counted_as_they_are(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the interrupted count is stored."""
    interrupt(clinic, monkeypatch, "after the count")
    stopped(clinic, by("sex", epsilon="9"))
    clinic.rows("DELETE FROM visits WHERE sex = 0")
    rows = dict(clinic.dp(by("sex", epsilon="9")))
    assert abs(rows[0]) < 30 and abs(rows[1] - 500) < 30, "a fault of the noise has odds below 1e-20"


def test_a_charge_is_taken_up_twice_and_no_more(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end could tell of rows. The last line says that another one is paid for anew."""
    for _ in range(2):
        interrupt(clinic, monkeypatch, "after the noise")
        assert "goes on for the same charge" in stopped(clinic, by("sex"))
    charged = clinic.charges()
    interrupt(clinic, monkeypatch, "after the noise")
    assert "begun 3 times and is not begun again" in stopped(clinic, by("sex"))
    assert "failed after its charge" in stopped(clinic, by("sex"))
    assert clinic.charges() == charged


def test_a_stored_answer_is_free(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is in the store, Ctrl-C takes nothing away."""
    interrupt(clinic, monkeypatch, "after the release")
    assert "the answer is stored: asking again is free" in stopped(clinic, by("sex"))
    charged = clinic.charges()
    assert len(clinic.dp(by("sex"))) == 2 and clinic.charges() == charged


def test_before_the_charge_nothing_is_spent(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, too."""
    interrupt(clinic, monkeypatch, "before the charge")
    before = clinic.charges()
    assert "interrupted; nothing more was charged than dp_ledger() shows" in stopped(clinic, by("sex"))
    assert clinic.charges() == before


def test_a_query_that_duckdb_interrupts(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's client turns Ctrl-C during a query into a RuntimeError. Other errors of that type are failures."""

    def count(door: Door) -> None:
        raise RuntimeError("Query interrupted")

    with monkeypatch.context() as patched:
        patched.setattr(Door, "count", count)
        assert "goes on for the same charge" in stopped(clinic, by("sex"))
    charged = clinic.charges()
    assert len(clinic.dp(by("sex"))) == 2 and clinic.charges() == charged


def test_another_charge_is_not_taken_up(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of less, or of another mechanism, opens no door. Nothing is counted."""
    database = database_of(clinic.con)
    assert database is not None
    clinic.dp(by("sex", epsilon="0.5"))
    entry = clinic.value("SELECT max(id) FROM dp_ledger()")
    interrupt(clinic, monkeypatch, "after the count")
    stopped(clinic, by("sex"))
    clinic.rows("CREATE TABLE noted AS FROM private.dpduck.unanswered")
    clinic.rows(f"UPDATE private.dpduck.unanswered SET ledger_id = {entry}")
    charged = clinic.charges()
    assert "the release failed after its charge" in stopped(clinic, by("sex")), "that entry has had its answer"
    monkeypatch.setattr(database.ledger, "times_begun", lambda _: 1)
    database._releaser._failed.clear()
    clinic.rows("DELETE FROM private.dpduck.failures")
    clinic.rows(f"INSERT INTO private.dpduck.unanswered (digest, ledger_id) SELECT digest, {entry} FROM noted")
    assert "asks cost more than the statement; nothing was charged" in stopped(clinic, by("sex"))
    assert clinic.charges() == charged


def files_of(folder: Path) -> list[Path]:
    """The store and its secrets."""
    return [path for path in folder.iterdir() if path.name.startswith("clinic_private")]


def restore(place: Path, copy: Path, *, secrets: bool) -> None:
    """Puts a copy of the store in the place of the present one."""
    for path in files_of(place):
        if secrets or "secrets" not in path.name:
            path.unlink()
    for path in files_of(copy):
        if secrets or "secrets" not in path.name:
            shutil.copy2(path, place / path.name)


def end_between(database: Path, step: str, statement: str) -> None:
    """A process that is gone at a step of the release of a statement: nobody tidies up."""
    script = (
        "import os, sys, duckdb, dpduck\n"
        "con = duckdb.connect(sys.argv[1])\n"
        "dpduck.load(con, steps=lambda name: os._exit(9) if name == sys.argv[2] else None)\n"
        "con.execute('FROM dp(?)', [sys.argv[3]]).fetchall()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(database), step, statement], check=False)
    assert done.returncode == 9


@pytest.mark.sampled
@pytest.mark.parametrize("secrets", [False, True])
@pytest.mark.parametrize("step", ["row committed", "charge returns", "after the noise"])
def test_a_copy_from_between_charge_and_answer_gives_no_second_answer(
    clinic_file: Path, open_clinic: OpenClinic, tmp_path: Path, step: str, secrets: bool
) -> None:
    """The charge is answered once, for nothing. The restored copy says, every time, that it had its answer."""
    copy = tmp_path / "copy"
    copy.mkdir()
    end_between(clinic_file, step, by("age"))
    for path in files_of(clinic_file.parent):
        shutil.copy2(path, copy / path.name)
    clinic = open_clinic(clinic_file)
    charged = clinic.charges()
    assert len(clinic.dp(by("age"))) == 10 and clinic.charges() == charged == 2
    clinic.con.close()
    if secrets and step == "row committed":
        refused_as_older(clinic_file, copy, open_clinic, secrets=True)
        return
    for more in ("", "", "refresh = 'x'"):
        restore(clinic_file.parent, copy, secrets=secrets)
        clinic = open_clinic(clinic_file)
        if more:
            assert len(clinic.dp(by("age", more=more))) == 10 and clinic.charges() == 3, "which pays"
        else:
            assert "the release failed after its charge" in stopped(clinic, by("age"))
            assert clinic.charges() == 2
        clinic.con.close()
    refused_as_older(clinic_file, copy, open_clinic, secrets=secrets)


def refused_as_older(database: Path, copy: Path, open_clinic: OpenClinic, *, secrets: bool) -> None:
    restore(database.parent, copy, secrets=secrets)
    with pytest.raises(StoreError, match=r"older|two copies"):
        open_clinic(database)


@pytest.mark.slow
def test_two_copies_at_work_give_one_answer(
    clinic_file: Path, open_clinic: OpenClinic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both take up one charge. The second copy, once the first has answered, does not give its answer."""
    copy = tmp_path / "copy"
    copy.mkdir()
    end_between(clinic_file, "after the count", by("age"))
    for path in (clinic_file, *files_of(clinic_file.parent)):
        shutil.copy2(path, copy / path.name)
    first, second = open_clinic(clinic_file), open_clinic(copy / clinic_file.name)

    def overtaken(name: str) -> None:
        if name == "after the noise":
            assert len(first.dp(by("age"))) == 10

    database = database_of(second.con)
    assert database is not None
    monkeypatch.setattr(database._releaser, "_steps", overtaken)
    assert "is not kept" in stopped(second, by("age"))
    for _ in range(2):
        assert "the release failed after its charge" in stopped(second, by("age"))
    assert second.rows("SELECT count(*) FROM dp_releases()") == [(1,)]


def test_an_interruption_is_still_one() -> None:
    """Programs that stop at Ctrl-C stop."""
    assert issubclass(Interrupted, KeyboardInterrupt) and not issubclass(Interrupted, InternalError)
