"""Starts engines for tests: Sail, without Java, Spark behind Spark Connect, and Spark in the process of the test.

Each skips where it is not installed. Workers find a package called dpduck that refuses to be imported, and only duckdb
and pyarrow. How to start engines by hand: docs/engines.md.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpduck.engines.spark import open_session
from tests.support.ports import free_port

NO_DPDUCK = "raise ImportError('a worker has no dpduck')\n"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class Server:
    """An engine. address: "" where its session is the test's own. logs: files and folders of all its output."""

    address: str
    folder: Path
    logs: tuple[Path, ...]
    session: Any
    process: int | None = None

    def put(self, name: str, rows: pa.Table, files: int = 3) -> str:
        """Creates a table of Parquet files, with rows dealt out among the files. Returns its name as schema.table."""
        self.session.sql(f"DROP TABLE IF EXISTS db.{name}").collect()
        place = self.folder / f"{name}_{len(list(self.folder.iterdir()))}"
        place.mkdir()
        for number in range(files):
            dealt = pa.array(range(number, rows.num_rows, files), pa.int64())
            pq.write_table(rows.take(dealt), place / f"{number}.parquet")
        self.session.sql(f"CREATE TABLE db.{name} USING parquet LOCATION 'file://{place}'").collect()
        return f"db.{name}"

    def said(self) -> str:
        """Returns the output of driver and workers, and the log of events."""
        files = [file for place in self.logs for file in ([place] if place.is_file() else place.rglob("*"))]
        return "".join(file.read_text(errors="replace") for file in files if file.is_file())


@contextmanager
def sail_server(folder: Path, parallelism: int = 4) -> Iterator[Server]:
    """Starts Sail with a driver and two workers. Its address names the session, as each has its own catalog."""
    if not _installed("pysail"):
        pytest.skip("no Sail on this machine (pip install pysail==0.7.2 pyspark-client==4.2.0 'pandas<3')")
    port, log = free_port(), folder / "sail.log"
    workers = {f"SAIL_CLUSTER__WORKER_{count}_COUNT": "2" for count in ("INITIAL", "MAX")}
    workers["SAIL_CLUSTER__WORKER_TASK_SLOTS"] = "32"
    # one message for each pair of tasks, none of more than 4 MiB
    environment = {**workers, "SAIL_MODE": "local-cluster", "SAIL_EXECUTION__DEFAULT_PARALLELISM": str(parallelism)}
    command = [sys.executable, "-m", "pysail", "spark", "server", "--port", str(port), "--directory", str(folder)]
    with _started(command, environment, folder, log, "Spark Connect server on") as process:
        address = f"sc://127.0.0.1:{port}"
        with _ended(open_session(address)) as session:
            session.sql("CREATE DATABASE db").collect()
            yield Server(f"{address}/;session_id={session.session_id}", folder, (log,), session, process)


@contextmanager
def spark_connect(folder: Path, master: str = "local-cluster[2,1,1024]") -> Iterator[Server]:
    """Starts Spark Connect's server with a driver and two executors, each in a separate process."""
    home = _spark_home()
    port, log = free_port(), folder / "spark.log"
    command = [str(home / "bin" / "spark-submit"), "--class", CONNECT, "--master", master]
    for name, value in {**_settings(folder), "spark.connect.grpc.binding.port": str(port)}.items():
        command += ["--conf", f"{name}={value}"]
    environment = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    shutil.rmtree(home / "work", ignore_errors=True)
    with _started([*command, "spark-internal"], environment, folder, log, "Spark Connect server started") as process:
        address = f"sc://127.0.0.1:{port}"
        with _ended(open_session(address)) as session:
            session.sql("CREATE DATABASE db").collect()
            yield Server(address, folder, (log, folder / "events", home / "work"), session, process)


@contextmanager
def spark_classic(folder: Path) -> Iterator[Server]:
    """Starts a session of Spark in this process. Its JVM writes to a log."""
    home = _spark_home()
    from pyspark.sql import SparkSession  # noqa: PLC0415

    log = folder / "spark.log"
    new = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    new["PYTHONPATH"] = _without_dpduck(folder)
    builder: Any = SparkSession.builder
    with _writing_to(log), pytest.MonkeyPatch.context() as patch:
        for name, value in new.items():
            patch.setenv(name, value)
        for name, value in {**_settings(folder), "spark.log.level": "INFO"}.items():
            builder = builder.config(name, value)
        made = builder.master("local[2]").getOrCreate()
    with _ended(made) as session:
        session.sql("CREATE DATABASE db").collect()
        yield Server("", folder, (log, folder / "events"), session)


def _settings(folder: Path) -> dict[str, str]:
    (folder / "events").mkdir()
    return {
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder}/events",
    }


def _installed(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in ("pyspark", *names))


def _spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    home = Path(str(found.origin)).parent if found else None
    if home is None or not (home / "jars").is_dir() or shutil.which("java") is None:
        pytest.skip("no Spark on this machine: `make engines` has it, where Java 17 is installed")
    return home


@contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path, ready: str
) -> Iterator[int]:
    """Yields a server's process, once its log says that it is ready."""
    whole = {**os.environ, **environment, "PYTHONPATH": _without_dpduck(folder)}
    with log.open("wb") as said:
        process = subprocess.Popen(command, env=whole, stdout=said, stderr=said, cwd=folder)
    try:
        for _ in range(1200):
            if ready in log.read_text(errors="replace"):
                break
            assert process.poll() is None, log.read_text(errors="replace")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate() if "spark-submit" in command[0] else process.kill()
        process.wait()


@contextmanager
def _ended(session: Any) -> Iterator[Any]:
    yield session
    with suppress(Exception):  # the server of this session may have been killed
        session.stop()


@contextmanager
def _writing_to(log: Path) -> Iterator[None]:
    """Sends the output and errors of processes that start meanwhile to a file."""
    with ExitStack() as stack, log.open("wb") as said:
        for number in (1, 2):
            kept = os.dup(number)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, number)
            os.dup2(said.fileno(), number)
        yield


def _without_dpduck(folder: Path) -> str:
    place = folder / "without"
    place.mkdir(exist_ok=True)
    (place / "dpduck.py").write_text(NO_DPDUCK)
    return str(place)
