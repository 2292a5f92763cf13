"""New answers are given on a grid of times, to principals. Stored ones, and those of the owner, at once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from dpduck.server.limits import TimeGrid, next_point
from dpduck.server.local_vault import LocalVault
from tests.server.served import Served, ask, count, open_served
from tests.server.test_served_releases import POLICY

FLOOR = 64.0


class Clock:
    """Time that passes when somebody sleeps, and each sleeper's time."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.offset = 0.0

    def now(self) -> float:
        return time.monotonic() + self.offset

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.offset += seconds


def asked(served: Served, text: str, clock: Clock) -> float:
    """Returns the time of an answer by that clock."""
    start = clock.now()
    served.rows("bob", text)
    return clock.now() - start


def test_new_answers_come_on_the_grid(tmp_path: Path, own_state: Path) -> None:
    """A new release, or session answer, comes at a point of the grid. Repeated answers and refusals come at once."""
    clock = Clock()
    opened = open_served(tmp_path, policy=POLICY, grid=TimeGrid(FLOOR, clock=clock.now, sleep=clock.sleep))
    try:
        assert FLOOR <= asked(opened, count("sex", "0.01"), clock) < FLOOR + 30
        assert asked(opened, count("sex", "0.01"), clock) < 30
        told, slept = opened.refused("carol", count("ward", "0.01")), len(clock.slept)
        assert "may not ask" in told and len(clock.slept) == slept == 1
        asked(opened, "FROM dp_policies()", clock)
        assert len(clock.slept) == 1
        price = "epsilon = 1, delta = 1e-6, sparsity = 1, queries = 20"
        opened.rows("bob", ask(f"CREATE PRIVATE SESSION s OPTIONS ({price}) ON visits (ward)"))
        for times in (1, 0):
            slept = len(clock.slept)
            opened.rows("bob", "FROM dp_ask('s', ['w1'])")
            assert len(clock.slept) == slept + times, "an answer that is there already is given at once"
    finally:
        opened.service.close()


def test_a_failure_after_the_charge_comes_on_the_grid(tmp_path: Path, own_state: Path, monkeypatch) -> None:
    """A release that fails says so at a point of the grid too."""
    clock = Clock()
    opened = open_served(tmp_path, grid=TimeGrid(FLOOR, clock=clock.now, sleep=clock.sleep))
    try:
        vault = opened.service.vault
        assert isinstance(vault, LocalVault)
        monkeypatch.setattr(vault._database._releases, "put_table", lambda *_: 1 / 0)
        reply = vault.ask("bob", "run", count("sex", "0.02")[len("FROM dp($ask$ ") : -len(" $ask$)")], 600)
        assert reply.charged is not None and "after its charge" in str(reply.refused)
        assert len(clock.slept) == 1 and clock.offset > FLOOR - 30
    finally:
        opened.service.close()


def test_nobody_sees_a_release_before_its_point(tmp_path: Path, own_state: Path) -> None:
    """Neither a client with the same question at the same time, nor one who lists the releases."""
    asleep, awake = threading.Event(), threading.Event()

    def sleep(_seconds: float) -> None:
        asleep.set()
        assert awake.wait(600)

    opened = open_served(tmp_path, grid=TimeGrid(FLOOR, sleep=sleep))
    answered: list[int] = []
    try:
        threads = [
            threading.Thread(target=lambda who=who: answered.append(len(opened.rows(who, count("sex", "0.01")))))
            for who in ("bob", "alice")
        ]
        listed = opened.rows("bob", "SELECT count(*) FROM dp_releases()")
        threads[0].start()
        assert asleep.wait(600)
        threads[1].start()
        time.sleep(0.5)
        for who in ("bob", "alice"):  # neither who is answered nor who waits for the same answer has their place taken
            assert opened.rows(who, "SELECT count(*) FROM dp_releases()") == listed and answered == []
        awake.set()
        for thread in threads:
            thread.join()
        assert answered == [2, 2]
    finally:
        awake.set()
        opened.service.close()


def test_releases_of_one_principal_wait_for_their_points_together(tmp_path: Path, own_state: Path) -> None:
    """One after the other, each would be past the point of the one before and wait twice as long: 64 s for eight."""
    lock, awake, asleep = threading.Lock(), threading.Event(), threading.Semaphore(0)

    def sleep(_seconds: float) -> None:
        asleep.release()
        assert awake.wait(600)

    opened = open_served(tmp_path, policy=POLICY, grid=TimeGrid(FLOOR, sleep=sleep))
    made: list[object] = []

    def create(kind: str, number: int) -> None:
        price = "epsilon = 1, delta = 1e-6, sparsity = 1, queries = 20"
        if kind == "VIEW":
            text = f"VIEW v{number} OPTIONS (epsilon = 0.0{number + 1}) AS SELECT count(*) AS n FROM visits"
        elif kind == "SESSION":
            text = f"SESSION s{number} OPTIONS ({price}) ON visits (ward)"
        else:
            text = f"HISTOGRAM h{number} OPTIONS (epsilon = 0.1{number}) ON visits (ward)"
        rows = opened.rows("bob", ask(f"CREATE PRIVATE {text}"))
        with lock:
            made.append(rows)

    kinds = ["VIEW", "VIEW", "SESSION", "SESSION", "HISTOGRAM", "HISTOGRAM"]
    threads = [threading.Thread(target=create, args=(kind, number)) for number, kind in enumerate(kinds)]
    try:
        for thread in threads:
            thread.start()
        for kind in kinds:
            assert asleep.acquire(timeout=60), f"{kind}: not all of them wait at the same time"
        assert made == []
        awake.set()
        for thread in threads:
            thread.join()
        assert len(made) == len(kinds)
    finally:
        awake.set()
        opened.service.close()


def test_the_grid_is_of_powers_of_two() -> None:
    """Its points double, from the floor on. Without a floor nobody waits."""
    assert {next_point(elapsed / 100, 0.5) for elapsed in range(1, 1_000)} == {0.5, 1, 2, 4, 8, 16}
    slept: list[float] = []
    grid = TimeGrid(0.0, sleep=slept.append)
    grid.begin()
    grid.note_reading()
    grid.hold()
    assert slept == []
