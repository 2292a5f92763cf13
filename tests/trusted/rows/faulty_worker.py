"""A worker whose DuckDB has functions that no allowlist would let through: run by its path in the place of worker.py.

faulty(mode, text) is text = 'bad', but on a bad text it raises, ends the process, allocates without end, never returns
or makes DuckDB invalid.
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

MODES = ("raise", "kill", "allocate", "hang", "internal")


def faulty(mode: str, text: str | None) -> bool:
    """What the mode says, where the text is bad."""
    if text != "bad":
        return False
    if mode == "kill":
        os._exit(9)
    if mode == "allocate":
        held = []
        while True:
            held.append(bytearray(1 << 26))
    if mode == "hang":
        time.sleep(3600)
    raise ValueError("a patient's own words")


def main() -> None:
    """Serves as worker.py does, with the functions registered."""
    path = Path(__file__).resolve().parents[3] / "dpduck" / "trusted" / "rows" / "worker.py"
    spec = importlib.util.spec_from_file_location("worker", path)
    if spec is None or spec.loader is None:
        raise ImportError(str(path))
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    own = worker.opened

    def opened(threads: int, memory: int) -> duckdb.DuckDBPyConnection:
        connection: duckdb.DuckDBPyConnection = own(threads, memory)
        connection.create_function("faulty", faulty, [VARCHAR, VARCHAR], BOOLEAN, null_handling=SPECIAL)
        return connection

    setattr(worker, "opened", opened)  # noqa: B010
    os.chdir("/")
    worker.serve(*map(int, sys.argv[1:4]))


if __name__ == "__main__":
    main()
