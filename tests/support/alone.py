"""How a failed test is run alone, with the seed that it drew."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence

import pytest

SEED = "seed of "
"""How a recorded property begins that is a seed; an environment variable with the name that follows draws it again."""


def fresh_seed(record_property: Callable[[str, object], None], variable: str) -> str:
    """Draws a seed, or takes the seed in the environment, and keeps it for the report of a failure."""
    seed = os.environ.get(variable) or os.urandom(4).hex()
    record_property(f"{SEED}{variable}", seed)
    return seed


def alone(reports: Sequence[pytest.TestReport]) -> list[str]:
    """Returns for each failed test the command that runs it alone, with the same seeds, each once."""
    lines = {}
    for report in reports:
        kept = [(name, value) for name, value in report.user_properties if name.startswith(SEED)]
        seeds = [f"{name.removeprefix(SEED)}={shlex.quote(str(value))}" for name, value in kept]
        python = [sys.executable, "-m", "pytest", "-n", "0", report.nodeid]
        lines[report.nodeid] = " ".join(["alone:", *seeds, shlex.join(python)])
    return list(lines.values())
