"""Which functions of tests take long: `make times` measures and writes the list, `make test` tries them in turn.

Tests of planted faults (tests/planted), pinned tests, and the rules of the house are in every run, however long they
take.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.planted.faults import faults

LIST = Path(__file__).with_name("long.tsv")
LONG = 0.5
"""Seconds of a processor for all values of a function, what its module shares left out. They are those of the machine
that measured, beside what else it did: the list says what takes long of the suite, not how long it takes elsewhere."""

ALWAYS = (
    *("tests/language/test_golden.py", "tests/database/test_pinned.py", "tests/database/test_corpus.py"),
    "tests/mechanisms/test_prices.py",
    *("tests/test_house.py", "tests/test_house_counts.py", "tests/test_import_direction.py"),
    "tests/test_reading_list.py",
)
"""What is pinned, and the rules of the house."""

SPENT = "seconds of a processor"


def listed() -> dict[str, float]:
    """Reads the time that each function of the list takes."""
    rows = [line.split("\t") for line in LIST.read_text(encoding="utf-8").splitlines()]
    return {name: float(seconds) for seconds, name in rows}


def in_turn() -> set[str]:
    """Returns the functions that take long, without those that are in every run."""
    found_by = {test for fault in faults() for test in fault.tests}
    return {name for name in listed() if name not in found_by and name.partition("::")[0] not in ALWAYS}


def of_every_change(name: str) -> bool:
    """Tells whether a test is in every `.ci/run`: kills at any step, and the auditor's search with a fresh seed."""
    return "::test_a_kill_at_any_" in name or name.startswith("tests/auditor/test_search.py::")


def write(seconds: dict[str, float]) -> None:
    """Writes the list anew: only functions that take long, the longest first."""
    rows = sorted(
        ((spent, name) for name, spent in seconds.items() if spent >= LONG), key=lambda row: (-row[0], row[1])
    )
    LIST.write_text("".join(f"{spent:.1f}\t{name}\n" for spent, name in rows), encoding="utf-8")


def used() -> float:
    """Returns the processor time of this process and of the children that it has waited for."""
    return sum(os.times()[:4])


class Times:
    """A plugin that measures each function and writes the list at the end."""

    def __init__(self, writes: bool) -> None:
        self._writes, self._spent, self._shared = writes, 0.0, 0.0
        self._seconds: dict[str, float] = defaultdict(float)

    def _phase(self, item: pytest.Item) -> Generator[None, None, None]:
        begin, self._shared = used(), 0.0
        yield
        self._spent += used() - begin - self._shared

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        self._spent = 0.0
        yield from self._phase(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from self._phase(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from self._phase(item)
        item.user_properties.append((SPENT, self._spent))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        begin = used()
        made = yield
        if fixturedef.scope != "function":
            self._shared += used() - begin
        return made

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            function = report.nodeid.partition("[")[0]
            self._seconds[function] += sum(float(str(spent)) for name, spent in report.user_properties if name == SPENT)

    def pytest_sessionfinish(self) -> None:
        if self._writes:
            write(dict(self._seconds))
