"""Faults that are planted in a copy of the product, one after the other: each line of faults.tsv is one."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIST = Path(__file__).with_name("faults.tsv")
COLUMNS = ("name", "area", "file", "text", "replacement", "breaks", "tests")
_ESCAPED = re.compile(r"\\([n\\])")


@dataclass(frozen=True)
class Fault:
    """A fault: in which file which text is replaced by what, what that breaks, and the tests that are to find it.

    tests: functions of tests, or files of the product whose examples in docstrings are tests.
    """

    name: str
    area: str
    file: str
    text: str
    replacement: str
    breaks: str
    tests: tuple[str, ...]

    def times(self, root: Path) -> int:
        """Tells how often the text is in its file: once, or the line of the list is out of date."""
        path = root / self.file
        return path.read_text(encoding="utf-8").count(self.text) if path.is_file() else 0

    def there(self, root: Path) -> list[str]:
        """Returns those of its tests that a tree has."""
        return [test for test in self.tests if _is_there(root, test)]


def faults() -> list[Fault]:
    """Reads the list. In a text, `\\n` is the end of a line, and `\\\\` is a backslash."""
    with LIST.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    if tuple(rows[0]) != COLUMNS:
        raise ValueError(f"{LIST.name} has other columns than {COLUMNS}")
    return [
        Fault(name, area, file, _plain(text), _plain(replacement), breaks, tuple(tests.split()))
        for name, area, file, text, replacement, breaks, tests in rows[1:]
    ]


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else "\\", text)


def _is_there(root: Path, test: str) -> bool:
    file, _, function = test.partition("::")
    path = root / file
    return path.is_file() and f"def {function}(" in path.read_text(encoding="utf-8") + "def ("


@contextmanager
def planted(fault: Fault, root: Path) -> Iterator[None]:
    """Plants a fault in a throw-away copy of the tree, and takes it out again."""
    if root.resolve() == ROOT:
        raise ValueError("a fault is planted in a copy alone")
    path = root / fault.file
    before = path.read_text(encoding="utf-8")
    try:
        _put(path, before.replace(fault.text, fault.replacement))
        yield
    finally:
        _put(path, before)


def _put(path: Path, text: str) -> None:
    """Writes a file, and deletes what Python compiled of it: both texts may have one length and one second."""
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()
