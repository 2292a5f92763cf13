"""Sail, an engine without Java, as a process of its own with a driver and workers; skips where it is not installed.

Its workers find a package called dpduck that refuses to be imported: they have duckdb and pyarrow alone.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpduck.engines.spark import connected
from tests.support.ports import free_port

READY = re.compile(r"Spark Connect server on")
NO_DPDUCK = "raise ImportError('a worker has no dpduck')\n"


@dataclass(frozen=True)
class Sail:
    """A server. folder: its files; log: what driver and workers say."""

    address: str
    folder: Path
    log: Path
    session: Any

    def put(self, name: str, rows: pa.Table, files: int = 3) -> str:
        """A new table of Parquet files, whose rows are dealt out to them; its name, schema.table."""
        self.session.sql(f"DROP TABLE IF EXISTS db.{name}").collect()
        place = self.folder / f"{name}_{len(list(self.folder.iterdir()))}"
        place.mkdir()
        for number in range(files):
            dealt = pa.array(range(number, rows.num_rows, files), pa.int64())
            pq.write_table(rows.take(dealt), place / f"{number}.parquet")
        self.session.sql(f"CREATE TABLE db.{name} USING parquet LOCATION 'file://{place}'").collect()
        return f"db.{name}"


@contextmanager
def sail_server(folder: Path) -> Iterator[Sail]:
    """A server whose tables lie in a folder."""
    if not all(importlib.util.find_spec(name) for name in ("pysail", "pyspark")):
        pytest.skip("no Sail on this machine (pip install pysail==0.7.2 pyspark-client==4.2.0 'pandas<3')")
    without = folder / "without"
    without.mkdir()
    (without / "dpduck.py").write_text(NO_DPDUCK)
    port, log = free_port(), folder / "sail.log"
    workers = {f"SAIL_CLUSTER__WORKER_{count}_COUNT": "2" for count in ("INITIAL", "MAX")}
    workers["SAIL_CLUSTER__WORKER_TASK_SLOTS"] = "32"
    environment = {**os.environ, **workers, "SAIL_MODE": "local-cluster", "PYTHONPATH": str(without)}
    command = [sys.executable, "-m", "pysail", "spark", "server", "--port", str(port), "--directory", str(folder)]
    with log.open("wb") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
    try:
        for _ in range(600):
            if READY.search(log.read_text(errors="replace")):
                break
            assert process.poll() is None, log.read_text(errors="replace")
            time.sleep(0.1)
        address = f"sc://127.0.0.1:{port}"
        session: Any = connected(address)
        session.sql("CREATE DATABASE db").collect()
        # Sail's catalog is a session's own: whoever connects by the address joins this one
        yield Sail(f"{address}/;session_id={session.session_id}", folder, log, session)
        session.stop()
    finally:
        process.kill()
        process.wait()
