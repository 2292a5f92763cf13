"""The tests that `make test` leaves out at times: slow functions that no planted fault needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planted.faults import faults
from tests.support.alone import SEED, alone
from tests.support.long import LONG, in_turn, listed, of_every_change

ROOT = Path(__file__).resolve().parent.parent


def test_what_takes_long_is_there() -> None:
    """Whoever moves or renames a test changes the list, too, or it runs each time."""
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in {name.partition("::")[0] for name in listed()}}
    gone = [name for name in listed() for file, _, test in [name.partition("::")] if f"def {test}(" not in texts[file]]
    assert gone == []
    assert min(listed().values()) >= LONG


def test_what_finds_a_planted_fault_is_never_left_out() -> None:
    """However long it takes."""
    assert in_turn() & {test for fault in faults() for test in fault.tests} == set()
    assert len(in_turn()) > 100


def test_a_failure_says_how_it_is_run_alone() -> None:
    """The hint has the drawn seed, and each test once, however many of its phases failed."""
    properties = [(f"{SEED}DPDUCK_SEARCH_SEED", "0a1b"), ("other", 1)]
    reports = [
        pytest.TestReport("a.py::one[x y]", ("a.py", 1, "one"), {}, "failed", None, when, user_properties=properties)
        for when in ("call", "teardown")
    ]
    (line,) = alone(reports)
    assert line.startswith("alone: DPDUCK_SEARCH_SEED=0a1b ") and line.endswith(" -m pytest -n 0 'a.py::one[x y]'")


def test_kills_are_of_every_change() -> None:
    """Of releases, the ledger, streams, sessions and preparing. The auditor's search."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    kept = {path.name for path, text in texts.items() if "def test_a_kill_at_any_" in text}
    assert kept >= {"test_release_kill.py", "test_ledger_kill.py", "test_stream_kill.py", "test_session_kill.py"}
    assert of_every_change("tests/auditor/test_search.py::test_a_search_with_a_fresh_seed_finds_nothing")
    assert not of_every_change("tests/server/test_quotas.py::test_releases_of_one_are_bounded")
