"""Prints how large the house is, and how much of it one plain count runs through: `python -m benchmarks.house`.

tests/test_house.py holds the figures of paths below ceilings.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import dpduck

PACKAGE = Path(dpduck.__file__).resolve().parent
POLICY = "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 10), DOMAIN sex IN (0, 1))"
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {}) sex, count(*) AS n FROM visits GROUP BY sex"


def sizes() -> dict[str, int]:
    """Modules, lines with their docstrings and blanks, files of the largest folder."""
    paths = list(PACKAGE.rglob("*.py"))
    modules = [path for path in paths if path.name != "__init__.py"]
    return {
        "modules": len(modules),
        "lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths),
        "files of the largest folder": max(Counter(path.parent for path in modules).values()),
    }


def traced(work: Callable[[], object]) -> tuple[int, int]:
    """The functions of dpduck that a piece of work calls, and the modules that they are in."""
    found: set[tuple[str, str, int]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and not code.co_name.startswith("<"):
            found.add((code.co_filename, code.co_name, code.co_firstlineno))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(found), len({file for file, _, _ in found})


def paths() -> dict[str, int]:
    """What a plain count runs through, new and from the store, after another one that fills the caches."""
    with dpduck.connect(config={"threads": 1}) as connection:
        connection.execute("CREATE TABLE visits AS SELECT range % 2 AS sex FROM range(100)")
        connection.execute("FROM dp(?)", [POLICY]).fetchall()

        def ask(epsilon: str) -> object:
            return connection.execute("FROM dp(?)", [COUNT.format(epsilon)]).fetchall()

        ask("0.5")
        new, stored = traced(lambda: ask("1")), traced(lambda: ask("1"))
    return {
        "functions of a plain count": new[0],
        "modules of a plain count": new[1],
        "functions of a stored answer": stored[0],
        "modules of a stored answer": stored[1],
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPDUCK_STATE_DIR"] = folder
        for name, count in {**sizes(), **paths()}.items():
            print(f"{name}: {count:,}")


if __name__ == "__main__":
    main()
