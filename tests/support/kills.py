"""Kills processes: children that report each of their steps through a pipe, and harnesses that run children.

A harness is a script that never opens DuckDB itself. Each child is forked clean, and reports each step before anything
else can happen to it. The harness prints lines `what: how often`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import scipy.linalg
import scipy.optimize
import scipy.sparse
import scipy.special

import dpduck.database.connection
import dpduck.database.database
from dpduck.values.no_pandas import do_without_pandas

BEFORE_THE_FORK = (
    dpduck.database.connection,
    dpduck.database.database,
    scipy.linalg,
    scipy.optimize,
    scipy.sparse,
    scipy.special,
)
"""What each child would import again."""


def run_child(work: Callable[[int], None], word: str = "", patience: float = 0.0) -> list[str]:
    """Forks a child and returns its reported lines. word: kills the child `patience` seconds after this report."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        do_without_pandas()
        try:
            work(writing)
        except BaseException as error:
            os.write(writing, f"failed {type(error).__name__}: {error}\n".encode())
        os._exit(0)
    os.close(writing)
    said = b""
    if word:
        while word.encode() not in said and (part := os.read(reading, 1 << 16)):
            said += part
        time.sleep(patience)
        os.kill(process, signal.SIGKILL)
    with os.fdopen(reading, "rb") as pipe:
        report = (said + pipe.read()).decode().splitlines()
    os.waitpid(process, 0)
    failures = [line for line in report if line.startswith("failed")]
    assert not failures, failures
    return report


def print_account(killed: Counter[str], what: str, times: int) -> None:
    """Prints where children were killed, and how often the checked event came about."""
    for name, count in [*sorted(killed.items()), (what, times)]:
        print(f"{name}: {count}")  # noqa: T201


def account(harness: Path, *words: object) -> dict[str, int]:
    """Runs a harness in a separate process, and returns the numbers that it prints."""
    result = subprocess.run(
        [sys.executable, str(harness), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=7200,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    pairs = (line.rpartition(": ") for line in result.stdout.splitlines())
    return {name: int(times) for name, _, times in pairs}
