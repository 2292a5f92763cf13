"""Fixtures that every test may use, and the settings of hypothesis."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from dpduck.trusted.workers import Worker, Workers

SEARCHES = (
    "dpduck.planning.search_clock",
    "dpduck.planning.optimised_views_plan",
    "dpduck.strategies.gaussian_ranges",
    "dpduck.strategies.p_identity",
    "dpduck.strategies.range_candidates",
)
"""Modules with searches that end after a number of steps, or earlier where their time is over."""

ROOT = Path(__file__).resolve().parent.parent

# A busy machine must not fail a property; every run tries the same examples, but where DPDUCK_EXPLORE asks for others.
settings.register_profile(
    "dpduck",
    deadline=None,
    derandomize=not os.environ.get("DPDUCK_EXPLORE"),
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dpduck")


@pytest.fixture(autouse=True)
def warm_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pool of worker processes for all databases of a test run: each would start its own, a quarter of a second."""
    for module in ("dpduck.edges.engine", "dpduck.trusted.scan"):
        monkeypatch.setattr(f"{module}.Workers", shared_workers)


@cache
def pool() -> Workers:
    return Workers()


class SharedWorkers(Workers):
    """The pool of the run under another owner, who may not close it."""

    def take(self) -> Worker:
        return pool().take()

    def give_back(self, worker: Worker) -> None:
        pool().give_back(worker)


def shared_workers() -> Workers:
    return SharedWorkers()


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still for searches: they take all of their steps, so a busy machine finds what an idle one does."""
    for module in SEARCHES:
        monkeypatch.setattr(f"{module}.monotonic", lambda: 0.0)


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """The folder of real data, `$DPDUCK_DATA` or `../shared/data` from the project's root; skips without one."""
    directory = Path(os.environ.get("DPDUCK_DATA") or ROOT.parent / "shared" / "data")
    if not directory.is_dir():
        pytest.skip("no real data: there is no ../shared/data beside the project, and DPDUCK_DATA names no folder")
    return directory


@pytest.fixture(scope="session")
def data_file(data_directory: Path) -> Callable[[str], Path]:
    """A function from the name of a data file to its path; skips where that file is absent."""

    def find(name: str) -> Path:
        path = data_directory / name
        if not path.is_file():
            pytest.skip(f"no real data: {name} is not in the data folder")
        return path

    return find
