"""Fixtures that every test may use, and the settings of hypothesis."""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, settings

import dpduck
from dpduck.kernel.worker.workers import Worker, Workers
from dpduck.store.cursors import SandboxAnswers
from dpduck.store.sandbox import cast_texts
from tests.support.alone import alone
from tests.support.clinics import Clinic, by
from tests.support.long import Times, in_turn, of_every_change
from tests.support.samples import of_functions, of_values, one_of_each

SEARCHES = (
    "dpduck.strategies.ranges.candidates",
    "dpduck.strategies.ranges.gaussian_optimum",
    "dpduck.strategies.ranges.own",
    "dpduck.strategies.ranges.p_identity",
)
"""Modules with searches that end after a number of steps, or earlier where their time is over."""

ROOT = Path(__file__).resolve().parent.parent

# A busy machine must not fail a property. Every run tries the same examples, unless DPDUCK_EXPLORE asks for others.
settings.register_profile(
    "dpduck",
    deadline=None,
    derandomize=not os.environ.get("DPDUCK_EXPLORE"),
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dpduck")


PARTS = {"values": "sampled", "slow": "slow"}
"""Options that leave out a part of the tests of a mark."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options for the part of the suite that runs: all by default, a part by a fresh seed."""
    parser.addoption("--values", type=int, default=1, help="one of so many values of tests marked sampled")
    parser.addoption("--slow", type=int, default=1, help="one of so many functions marked slow, or measured as long")
    parser.addoption(
        "--change", action="store_true", help="all kills at any step and the auditor's search, whatever part"
    )
    parser.addoption("--times", action="store_true", help="measure all functions, and list those that take long")
    parser.addoption("--sample", metavar="PART:SEED", help="one of every PART functions, with one of its values")


MEMORY, ROOM = Path("/dev/shm"), 4 * 2**30
"""A file system in memory, and the room that it must have for the suite: its stores wait for a disk thousands of
times. That what is written is written before it is looked at is tested by kills, which a file system survives."""


def has_room(folder: Path) -> bool:
    """Tells whether the suite's files fit into a folder, and programs may run there."""
    if not os.access(folder, os.W_OK):
        return False
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize > ROOM and not disk.f_flag & os.ST_NOEXEC


def pytest_configure(config: pytest.Config) -> None:
    """Chooses a seed before xdist starts its workers, which all collect alike, and the place of temporary files."""
    os.environ.setdefault("DPDUCK_SAMPLE", str(secrets.randbelow(10**6)))
    if not config.getoption("basetemp") and has_room(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if config.getoption("times"):
        config.pluginmanager.register(Times(writes=not hasattr(config, "workerinput")))


def pytest_collection_finish() -> None:
    """Freezes the collected tests, a fourth of a million objects, so that garbage collections skip them."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks slow tests as slow, and leaves out tests that are not in the sample."""
    long = in_turn()
    for item in items:
        if item.nodeid.partition("[")[0] in long:
            item.add_marker(pytest.mark.slow)
    names, seed = {item.nodeid for item in items}, int(os.environ["DPDUCK_SAMPLE"])
    kept = set(names)
    for option, chosen in (("values", of_values), ("slow", of_functions)):
        marked = [item.nodeid for item in items if item.get_closest_marker(PARTS[option])]
        kept -= set(marked) - chosen(marked, config.getoption(option), seed)
    if config.getoption("change"):
        kept |= {name for name in names if of_every_change(name)}
    if given := config.getoption("--sample"):
        kept &= one_of_each(sorted(names), *map(int, given.split(":")))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says how to run the same part of the suite again, and each failed test alone."""
    parts = {option: config.getoption(option) for option in PARTS if config.getoption(option) > 1}
    if parts:
        said = ", ".join(f"one of {part} {option}" for option, part in parts.items())
        terminalreporter.write_line(f"{said}: DPDUCK_SAMPLE={os.environ['DPDUCK_SAMPLE']} runs the same again")
    reports = [one for kind in ("failed", "error") for one in terminalreporter.stats.get(kind, [])]
    for line in alone([one for one in reports if isinstance(one, pytest.TestReport)]):
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def warm_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pool of worker processes for all databases of a test run: each would start its own, a quarter of a second."""
    for module in ("dpduck.database.database", "dpduck.kernel.counting.exact"):
        monkeypatch.setattr(f"{module}.Workers", shared_workers)


@cache
def pool() -> Workers:
    return Workers()


class SharedWorkers(Workers):
    """The pool of the run under another owner, who may not close it."""

    def start(self) -> None:
        pool().start()

    def take(self, clean: bool = False) -> Worker:
        return pool().take(clean)

    def give_back(self, worker: Worker, clean: bool = False) -> None:
        pool().give_back(worker, clean)


def shared_workers() -> Workers:
    return SharedWorkers()


ANSWERED = SandboxAnswers(10_000)
"""What sandboxes answered to any database of the run: an answer follows from its question alone."""


@pytest.fixture(autouse=True)
def warm_sandboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines know what other engines of the run asked of sandboxes: a third of the time that a small clinic takes."""
    for module in ("dpduck.database.database", "dpduck.mechanisms.release", "dpduck.store.sandbox"):
        monkeypatch.setattr(f"{module}.SandboxAnswers", shared_answers)
    monkeypatch.setattr("dpduck.owner.domains.cast_texts", lambda texts, name: cast_once(tuple(texts), name))


def shared_answers(most: int | None = None) -> SandboxAnswers:
    return ANSWERED if most is None else SandboxAnswers(most)


@cache
def cast_once(texts: tuple[str, ...], type_name: str) -> tuple[str, ...]:
    return cast_texts(texts, type_name)


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still for searches: they take all their steps, so a busy machine finds as much as an idle one."""
    for module in SEARCHES:
        monkeypatch.setattr(f"{module}.monotonic", lambda: 0.0)


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """The folder of real data, `$DPDUCK_DATA` or `../shared/data` from the project's root. Skips without one."""
    directory = Path(os.environ.get("DPDUCK_DATA") or ROOT.parent / "shared" / "data")
    if not directory.is_dir():
        pytest.skip("no real data: there is no ../shared/data beside the project, and DPDUCK_DATA names no folder")
    return directory


@pytest.fixture(scope="session")
def data_file(data_directory: Path) -> Callable[[str], Path]:
    """A function from the name of a data file to its path. Skips where that file is absent."""

    def find(name: str) -> Path:
        path = data_directory / name
        if not path.is_file():
            pytest.skip(f"no real data: {name} is not in the data folder")
        return path

    return find


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
