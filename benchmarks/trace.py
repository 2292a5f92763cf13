"""Prints how many functions and modules of dpduck one count runs through: `python -m benchmarks.trace [--functions]`.

tests/test_trace.py holds it: a plain count, new and answered from the store, may not need more than it does.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

import dpduck

PACKAGE = str(Path(dpduck.__file__).resolve().parent)
CLINIC = (
    "CREATE TABLE visits AS SELECT i % 500 AS patient, ['F', 'M'][1 + i % 2] AS sex FROM range(1000) AS rows(i)",
    "FROM dp($$ CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10), "
    "DOMAIN sex IN ('F', 'M')) $$)",
)
COUNT = "FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex')"


@dataclass(frozen=True)
class Trace:
    """What ran, each once: functions that have a name, and modules."""

    functions: tuple[str, ...]
    modules: tuple[str, ...]


def traced(work: Callable[[], object]) -> Trace:
    """What of dpduck runs while something is done, in any thread."""
    ran: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            ran.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    ours = {code for code in ran if code.co_filename.startswith(PACKAGE)}
    named = {f"{_module(code)}:{code.co_qualname}" for code in ours if not code.co_name.startswith("<")}
    return Trace(tuple(sorted(named)), tuple(sorted({_module(code) for code in ours})))


def _module(code: CodeType) -> str:
    return code.co_filename[len(PACKAGE) + 1 : -len(".py")]


def count_traces() -> dict[str, Trace]:
    """The same count twice: a new release, then the answer from the store."""
    with dpduck.connect() as connection:
        for statement in CLINIC:
            connection.execute(statement)
        return {name: traced(lambda: connection.execute(COUNT).fetchall()) for name in ("new", "from the store")}


def main() -> None:
    """Prints both."""
    for name, trace in count_traces().items():
        print(f"{name}: {len(trace.functions)} functions in {len(trace.modules)} modules")
        if "--functions" in sys.argv:
            print("\n".join(f"  {function}" for function in trace.functions))


if __name__ == "__main__":
    main()
