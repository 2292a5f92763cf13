"""A worker with DuckDB functions that no allowlist would accept. Its path replaces the path of worker.py.

faulty(mode, text) is text = 'bad'. On a bad text it raises, ends the process, allocates without end, computes or sleeps
without end, or makes DuckDB invalid.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path

import duckdb
from duckdb.func import SPECIAL
from duckdb.sqltypes import BOOLEAN, VARCHAR

MODES = ("raise", "kill", "allocate", "hang", "sleep", "internal")


def faulty(mode: str, text: str | None) -> bool:
    """Fails in the given mode where the text is bad."""
    if text != "bad":
        return False
    if mode == "kill":
        os._exit(9)
    if mode == "allocate":
        held = []
        while True:
            held.append(bytearray(1 << 26))
    while mode == "hang":
        pass
    if mode == "sleep":
        time.sleep(3600)
    raise ValueError("a patient's own words")


def busy(text: str) -> bool:
    """Uses the processor for so many seconds."""
    end = time.process_time() + float(text)
    while time.process_time() < end:
        pass
    return True


def main() -> None:
    """Serves as worker.py does, with the functions registered."""
    path = Path(__file__).resolve().parents[3] / "dpduck" / "kernel" / "worker" / "worker.py"
    spec = importlib.util.spec_from_file_location("worker", path)
    if spec is None or spec.loader is None:
        raise ImportError(str(path))
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    own = worker.open_database

    def opened(threads: int, memory: int) -> duckdb.DuckDBPyConnection:
        connection: duckdb.DuckDBPyConnection = own(threads, memory)
        connection.create_function("faulty", faulty, [VARCHAR, VARCHAR], BOOLEAN, null_handling=SPECIAL)
        connection.create_function("busy", busy, [VARCHAR], BOOLEAN)
        return connection

    setattr(worker, "open_database", opened)  # noqa: B010
    os.chdir("/")
    worker.serve(*map(int, sys.argv[1:5]))


if __name__ == "__main__":
    main()
