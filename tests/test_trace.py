"""How far one statement travels through the product."""

from __future__ import annotations

import re
import subprocess
import sys

MOST = {"new": (602, 100), "from the store": (80, 20)}
"""Functions and modules that a plain count runs through."""


def test_a_plain_count_is_a_short_way() -> None:
    """A plain count, new or answered from the store, runs through no more functions and modules than it did."""
    command = [sys.executable, "-m", "benchmarks.trace"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.findall(r"^(.*): (\d+) functions in (\d+) modules$", told, re.MULTILINE)
    ran = {name: (int(functions), int(modules)) for name, functions, modules in found}
    assert ran.keys() == MOST.keys()
    assert {name: way for name, way in ran.items() if way[0] > MOST[name][0] or way[1] > MOST[name][1]} == {}
