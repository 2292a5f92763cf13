"""A round of a session that was looked into and not committed is spent: nobody runs it a second time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.database.functions import OWNER, database_of
from dpduck.kernel.queries.sessions import Questions, SessionGate
from tests.mechanisms.sparse.sparse import ask, fill
from tests.support.clinics import Clinic

PRICE = "epsilon = 50, delta = 1e-6, beta = 1e-9"  # the gate is 40 scales of its noise above an absent key
DEAR = f"CREATE PRIVATE SESSION s OPTIONS ({PRICE}, sparsity = 8, queries = 100, updates = 2) ON "


class Broken:
    """Fails at one step, once that step is set."""

    def __init__(self) -> None:
        self.at = ""
        self.error: BaseException = MemoryError()

    def __call__(self, step: str) -> None:
        if step == self.at:
            self.at = ""
            raise self.error


@pytest.fixture
def broken() -> Broken:
    return Broken()


@pytest.fixture
def visits(broken: Broken) -> Iterator[Clinic]:
    with duckdb.connect() as con:
        made = Clinic(dpduck.load(con, steps=broken))
        fill(made)
        made.dp("ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 200, delta = 1e-5)")
        made.dp(DEAR + "visits (code)")
        yield made


def state(visits: Clinic) -> tuple[int, int]:
    """Answers and updates left."""
    (row,) = visits.rows("SELECT answered, updates_left FROM dp_sessions()")
    return row


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
def test_an_abort_after_a_measurement_spends_its_round(visits: Clinic, broken: Broken, error: BaseException) -> None:
    """A look that fired, even if nobody saw its answer, has used its thresholds. False alarm 1e-9: 'K0' is far off."""
    broken.at, broken.error = "answers computed", error
    database = database_of(visits.con)
    assert database is not None
    with pytest.raises(type(error)):
        database.sparse.ask('["s", ["K0"], null]', OWNER)
    assert state(visits) == (0, 1)
    assert ask(visits, "s", "['K0']")[3] == "measured"
    assert state(visits) == (1, 0)


def test_an_abort_after_quiet_looks_spends_nothing(visits: Clinic, broken: Broken) -> None:
    """Quiet looks belong to a round that goes on. False alarm 1e-9: nothing is expected of an absent key."""
    broken.at = "answers computed"
    with pytest.raises(duckdb.Error, match="unexpected"):
        ask(visits, "s", "['absent']")
    assert state(visits) == (0, 2)


def test_an_abort_after_the_commit_spends_nothing_twice(visits: Clinic, broken: Broken) -> None:
    """A committed answer is given when it is asked again, and costs no other round."""
    broken.at = "answers committed"
    with pytest.raises(duckdb.Error, match="unexpected"):
        ask(visits, "s", "['K0']")
    assert state(visits) == (1, 1)
    assert ask(visits, "s", "['K0']")[3] == "measured"
    assert state(visits) == (1, 1)


def test_an_abort_inside_a_look_spends_the_round(visits: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows then whether the look fired, so it counts as fired."""

    def fails(self: SessionGate, questions: Questions, number: int, hypothesis: int, round_number: int) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(SessionGate, "look", fails)
        with pytest.raises(duckdb.Error, match="unexpected"):
            ask(visits, "s", "['absent']")
    assert state(visits) == (0, 1)
