"""The list of planted faults is in order: each can be planted, and its tests are there.

`python -m tests.planted` plants them and runs their tests (tests/planted/README.md).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.planted.faults import LIST, ROOT, Fault, faults, planted

AREAS = {
    *("noise", "accounting", "ledger", "counts", "keys", "gate", "server", "messages", "planning", "streams"),
    *("summaries", "sparse", "synthetic", "prepared", "publishing", "units"),
}


def test_the_list_covers_every_area() -> None:
    """There are more than a hundred faults, with names of their own, and at least five in each area."""
    listed = faults()
    areas = Counter(fault.area for fault in listed)
    assert len(listed) > 100 and len({fault.name for fault in listed}) == len(listed)
    assert set(areas) == AREAS and min(areas.values()) >= 5, areas


def test_every_fault_can_be_planted() -> None:
    """The text that a fault replaces is in its file once. Whoever changes that text changes the list, too."""
    times = {fault.name: fault.times(ROOT) for fault in faults()}
    assert {name: count for name, count in times.items() if count != 1} == {}
    assert [fault.name for fault in faults() if fault.text == fault.replacement] == []


def test_the_tests_of_every_fault_are_there() -> None:
    """Whoever moves or renames a test changes the list, too."""
    missing = {fault.name: set(fault.tests) - set(fault.there(ROOT)) for fault in faults()}
    assert {name: tests for name, tests in missing.items() if tests} == {}
    assert [fault.name for fault in faults() if not fault.tests] == []


def test_every_fault_was_found() -> None:
    """Who adds a fault plants it: `python -m tests.planted --only NAME --record after`."""
    lines = LIST.with_name("found.tsv").read_text(encoding="utf-8").splitlines()
    found = {name: after for name, *_, after in (line.split("\t") for line in lines[1:])}
    assert {fault.name for fault in faults()} == set(found)
    assert [name for name, after in found.items() if not after.startswith(("quick: ", "test: "))] == []


def test_every_fault_is_python() -> None:
    """A fault changes a file's behaviour: reading the file raises no error."""
    broken = []
    for fault in faults():
        text = (ROOT / fault.file).read_text(encoding="utf-8").replace(fault.text, fault.replacement)
        try:
            compile(text, fault.file, "exec")
        except SyntaxError:
            broken.append(fault.name)
    assert broken == []


def test_a_fault_is_planted_in_a_copy_alone(tmp_path: Path) -> None:
    """It is taken out again, whatever happens meanwhile. The tree itself is never touched."""
    fault = Fault("a", "noise", "dpduck/a.py", "1\n", "2\n", "all", ())
    (tmp_path / "dpduck").mkdir()
    (tmp_path / "dpduck" / "a.py").write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(KeyError), planted(fault, tmp_path):
        assert (tmp_path / "dpduck" / "a.py").read_text(encoding="utf-8") == "x = 2\n"
        raise KeyError
    assert fault.times(tmp_path) == 1
    with pytest.raises(ValueError, match="in a copy alone"), planted(fault, ROOT):
        pytest.fail("planted")
