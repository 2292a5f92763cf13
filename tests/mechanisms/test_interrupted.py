"""Ctrl-C: one line that says what stays spent, and a charge without an answer is taken up."""

from __future__ import annotations

import os
import re
import signal

import duckdb
import pytest

from dpduck.engine.functions import engine_of
from dpduck.trusted.private.door import Door
from dpduck.values.errors import InternalError, Interrupted
from tests.support.clinics import Clinic, by, one_line


class CtrlC:
    """Sends this process a real SIGINT at one step of a release, once."""

    def __init__(self, step: str) -> None:
        self.step: str | None = step

    def __call__(self, name: str) -> None:
        if name == self.step:
            self.step = None
            os.kill(os.getpid(), signal.SIGINT)


def interrupt(clinic: Clinic, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Lets the next release be interrupted at a step."""
    engine = engine_of(clinic.con)
    assert engine is not None
    monkeypatch.setattr(engine._releaser, "_steps", CtrlC(step))


def stopped(clinic: Clinic, statement: str) -> str:
    """Our one line, whatever it cost."""
    with pytest.raises(duckdb.Error) as caught:
        clinic.dp(statement)
    return one_line(caught.value)


@pytest.mark.parametrize("step", ["after the charge", "after the count", "after the noise"])
def test_a_charge_without_an_answer_is_taken_up(clinic: Clinic, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The line names the entry; asked again there is an answer and no second charge, and after that it is gone."""
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
    """Nothing of the count that was interrupted is kept."""
    interrupt(clinic, monkeypatch, "after the count")
    stopped(clinic, by("sex", epsilon="9"))
    clinic.rows("DELETE FROM visits WHERE sex = 0")
    rows = dict(clinic.dp(by("sex", epsilon="9")))
    assert abs(rows[0]) < 30 and abs(rows[1] - 500) < 30, "a fault of the noise has odds below 1e-20"


def test_a_charge_is_taken_up_twice_and_no_more(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end could tell of rows; the last line says that another one is paid for anew."""
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
    """DuckDB's client turns Ctrl-C during a query into a RuntimeError; other errors of that type are failures."""

    def count(door: Door) -> None:
        raise RuntimeError("Query interrupted")

    with monkeypatch.context() as patched:
        patched.setattr(Door, "count", count)
        assert "goes on for the same charge" in stopped(clinic, by("sex"))
    charged = clinic.charges()
    assert len(clinic.dp(by("sex"))) == 2 and clinic.charges() == charged


def test_another_charge_is_not_taken_up(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of less, or of another mechanism, opens no door; nothing is counted."""
    engine = engine_of(clinic.con)
    assert engine is not None
    clinic.dp(by("sex", epsilon="0.5"))
    entry = clinic.value("SELECT max(id) FROM dp_ledger()")
    interrupt(clinic, monkeypatch, "after the count")
    stopped(clinic, by("sex"))
    (digest,) = engine._releaser._unanswered
    engine._releaser._unanswered[digest] = entry, 1
    charged = clinic.charges()
    assert "asks cost more than the statement; nothing was charged" in stopped(clinic, by("sex"))
    assert clinic.charges() == charged


def test_an_interruption_is_still_one() -> None:
    """Programs that stop at Ctrl-C stop."""
    assert issubclass(Interrupted, KeyboardInterrupt) and not issubclass(Interrupted, InternalError)
