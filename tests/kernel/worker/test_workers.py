"""Workers: whatever a row does to a program, that row becomes NULL and the other rows are computed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from dpduck.kernel.worker import worker
from dpduck.kernel.worker import workers as module
from dpduck.kernel.worker.worker import Room
from dpduck.kernel.worker.workers import COMMAND, Runner, StrictWorkers, Worker, WorkerProgram, Workers
from dpduck.values.errors import InternalError

FAULTY = (sys.executable, "-I", str(Path(__file__).with_name("faulty_worker.py")))
TEXT = pa.schema([pa.field("y", pa.bool_())])


@pytest.fixture(scope="module")
def faulty() -> Iterator[Workers]:
    """Worker processes that know the function that fails."""
    pool = Workers(FAULTY)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[Workers]:
    pool = Workers()
    yield pool
    pool.close()


def program(mode: str) -> WorkerProgram:
    return WorkerProgram(f"SELECT faulty('{mode}', x) AS y FROM dpduck_batch", TEXT)


def texts(*bad: int, count: int = 100) -> pa.Table:
    return pa.table({"x": pa.array(["bad" if place in bad else f"n{place}" for place in range(count)])})


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["raise", "kill", "allocate", "hang"])
def test_a_row_that_fails_is_null_and_all_others_are_computed(
    faulty: Workers, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """A row that raises, ends the process, or takes memory or time without end is NULL. All other rows are answered."""
    monkeypatch.setattr(module, "ROW_SECONDS", 0.2)
    with faulty.runner(program(mode)) as runner:
        found = runner.compute(texts(5, count=16))["y"].to_pylist()
    assert found == [None if place == 5 else False for place in range(16)]


@pytest.mark.slow
def test_a_row_that_sleeps_is_null_in_the_end(faulty: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that sleeps is given up by the clock. No allowed function sleeps, but a defect may."""
    monkeypatch.setattr(module, "PATIENCE", 2.0)
    with faulty.runner(program("sleep")) as runner:
        assert runner.compute(texts(1, count=2))["y"].to_pylist() == [False, None]


@pytest.mark.slow
def test_no_row_is_lost_where_the_machine_gives_no_time(faulty: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker stopped for ten times the processor limit of a row answers every row of its batch.

    With a limit in wall-clock time both rows were NULL, and nobody was told.
    """
    monkeypatch.setattr(module, "ROW_SECONDS", 0.2)
    with faulty.runner(program("raise")) as runner:
        runner.check(texts(count=0))
        assert runner._worker is not None
        process = runner._worker.process.pid
        os.kill(process, signal.SIGSTOP)
        later = threading.Timer(2.0, os.kill, (process, signal.SIGCONT))
        later.start()
        assert runner.compute(texts(count=2))["y"].to_pylist() == [False, False]
        assert runner._worker.process.pid == process
        later.join()


@pytest.mark.sampled
@pytest.mark.parametrize("count", [1, 2, 4])
def test_what_a_row_may_use_does_not_depend_on_those_beside_it(
    faulty: Workers, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Any number of rows at two thirds of the limit are computed. A row at four times the limit never is."""
    monkeypatch.setattr(module, "ROW_SECONDS", 0.15)
    with faulty.runner(WorkerProgram("SELECT busy(x) AS y FROM dpduck_batch", TEXT)) as runner:
        assert runner.compute(pa.table({"x": ["0.1"] * count}))["y"].to_pylist() == [True] * count
        assert runner.compute(pa.table({"x": ["0.6"] + ["0.05"] * (count - 1)}))["y"][0].as_py() is None


def test_what_passes_in_a_batch_passes_alone() -> None:
    """A row that passes in a batch passes alone, with room for differences between runs, and for a second attempt.

    Whatever planning takes: a batch may use for its rows the rest of its time, and a row alone more than twice that.
    """
    for planning, rows in product((0.0, 0.1, 1.0, 5.0), (2, 3, 122_880)):
        in_company = worker.processor_seconds(1.0, rows, planning) - planning
        assert 2 * (2 * in_company) + planning <= worker.processor_seconds(1.0, 1, planning)


@pytest.mark.slow
@pytest.mark.parametrize("times", [100, *(pytest.param(times, marks=pytest.mark.audit) for times in (8, 70, 130, 400))])
def test_what_fits_into_memory_in_a_batch_fits_alone(plain: Workers, times: int) -> None:
    """A long row has the same answer beside short ones and alone. Its texts take 4 MB, `times` over.

    That is a little more than a block of DuckDB's for texts, which it doubles.

    100 times were too much for a row alone, which is computed twice, and not too much beside others. One person's long
    rows would have decided which rows of others are computed alone, and so are counted.
    """
    long = f"length(concat({', '.join(['x'] * 64)}, '{'y' * 80}'))"
    sql = f"SELECT greatest({', '.join([long] * times)}) > 1000000 AS y FROM dpduck_batch"
    row, found = "a" * 65_535, []
    for rows in ([row], [row, "b", "c"]):
        with plain.runner(WorkerProgram(sql, TEXT)) as runner:
            answers = runner.compute(pa.table({"x": pa.array(rows, pa.large_string())}))["y"].to_pylist()
        found += [answer for text, answer in zip(rows, answers, strict=True) if text == row]
        assert all(answer is False for text, answer in zip(rows, answers, strict=True) if text != row)
    assert len(set(found)) == 1, found


LIMITED = """
import sys, pyarrow as pa
from dpduck.kernel.worker.workers import WorkerProgram, Workers
from dpduck.server.limits import limit_memory
assert limit_memory(400 << 20)
row, found, pool = "a" * 65_535, [], Workers()
for rows in ([row, "x"], [row, row, "x"], [row]):
    with pool.runner(WorkerProgram(sys.argv[1], pa.schema([pa.field("y", pa.bool_())]))) as runner:
        found.append(runner.compute(pa.table({"x": pa.array(rows, pa.large_string())}))["y"].to_pylist())
pool.close()
print(found)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is Linux's")
def test_a_limit_of_the_parent_is_shared_alike() -> None:
    """Where a vault's limit of memory leaves a row less, a batch has a sixth of that, too.

    Before, a batch had a sixth of the address space, and a row alone only the rest of the vault's limit. 40 texts of 4
    MB passed beside a short one, and were left out as soon as another person's long row stood beside them.
    """
    long = f"length(concat({', '.join(['x'] * 64)}))"
    sql = f"SELECT greatest({', '.join([long] * 40)}) > 1000000 AS y FROM dpduck_batch"
    ran = subprocess.run([sys.executable, "-c", LIMITED, sql], capture_output=True, text=True, check=True, timeout=300)
    found = json.loads(ran.stdout.replace("None", "null").replace("True", "true").replace("False", "false"))
    assert found[0][1] is found[1][2] is False
    assert found[0][0] == found[1][0] == found[1][1] == found[2][0], found


@pytest.mark.parametrize("count", [1, 100])
def test_planning_is_not_taken_for_work_on_a_row(plain: Workers, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A program that takes ten times a row's limit to plan answers every row. Before, it would have lost them all."""
    monkeypatch.setattr(module, "ROW_SECONDS", 0.02)
    listed = ", ".join(map(str, range(25_000)))
    with plain.runner(WorkerProgram(f"SELECT x <> '' AND len([{listed}]) > 0 AS y FROM dpduck_batch", TEXT)) as runner:
        assert runner.compute(texts(count=count))["y"].to_pylist() == [True] * count
        assert runner._most == sys.maxsize


@pytest.mark.slow
def test_after_a_slow_batch_smaller_ones_are_sent(faulty: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow row in each of many batches costs the halving of small batches, and not of full ones each time."""
    monkeypatch.setattr(module, "ROW_SECONDS", 0.1)
    monkeypatch.setattr(module, "LEAST_ROWS", 16)
    with faulty.runner(program("hang")) as runner:
        runner.compute(texts(7, count=64))
        assert runner._most == 16
        runner.begin(texts(count=32))
        assert runner._sent is None
        assert runner.finish(texts(count=32))["y"].to_pylist() == [False] * 32


def test_rows_that_fail_are_found_wherever_they_are(faulty: Workers) -> None:
    """Failing rows are identified at the first, last and neighbouring places, and in batches of failures alone."""
    with faulty.runner(program("raise")) as runner:
        for bad in ((0,), (99,), (3, 4, 50), tuple(range(100))):
            found = runner.compute(texts(*bad))["y"].to_pylist()
            assert [place for place, value in enumerate(found) if value is None] == list(bad)
        assert runner.compute(texts(0, count=1))["y"].to_pylist() == [None]


def test_without_halving_a_row_would_decide(faulty: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: a runner that gives up a failed batch loses the other rows."""

    def given_up(self: Runner, batch: pa.Table) -> pa.Table:
        return pa.table({"y": pa.nulls(batch.num_rows, pa.bool_())})

    monkeypatch.setattr(Runner, "_halve", given_up)
    with faulty.runner(program("raise")) as runner:
        assert set(runner.compute(texts(5))["y"].to_pylist()) == {None}


def test_a_process_that_has_failed_is_not_kept(faulty: Workers) -> None:
    """After a process has failed, the next statement gets a fresh one."""
    with faulty.runner(program("kill")) as runner:
        runner.compute(texts(1, count=2))
    with faulty.runner(program("raise")) as runner:
        assert runner.compute(texts())["y"].to_pylist() == [False] * 100


def test_a_row_is_computed_even_if_the_one_before_ended_the_process(plain: Workers) -> None:
    """A row is computed by a fresh process if the row before ended the process after its own answer."""
    program = WorkerProgram("SELECT x + 1 AS y FROM dpduck_batch", pa.schema([pa.field("y", pa.int64())]))
    with plain.runner(program) as runner:
        assert runner.compute(pa.table({"x": [1]})).to_pydict() == {"y": [2]}
        assert runner._worker is not None
        runner._worker.process.kill()
        runner._worker.process.wait()
        assert runner.compute(pa.table({"x": [5]})).to_pydict() == {"y": [6]}


def test_a_broken_answer_is_the_failure_of_a_row(plain: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no Arrow stream, or offsets outside of a buffer, end the process and nothing else."""
    text = pa.schema([pa.field("y", pa.large_string())])
    offset, beyond = ((0).to_bytes(8, "little") + end.to_bytes(8, "little") for end in (7919, 1 << 40))
    whole = bytes(Room().stream(pa.table({"y": pa.array(["a" * 7919], pa.large_string())})))
    assert whole.count(offset) == 1
    for answer in (b"", whole[:20], whole[:-8000], whole.replace(offset, beyond)):
        monkeypatch.setattr(Worker, "_receive", lambda self, answer=answer: (b"R", memoryview(answer)))
        with plain.runner(WorkerProgram("SELECT x AS y FROM dpduck_batch", text)) as runner:
            monkeypatch.setattr(Worker, "prepare", lambda self, program: None)
            assert runner.compute(pa.table({"x": pa.array(["a"], pa.large_string())}))["y"].to_pylist() == [None]
        monkeypatch.undo()


def test_a_stop_within_a_frame_ends_no_process() -> None:
    """A process that is stopped and goes on while it reads a frame reads the rest. A signal cuts its read short."""
    schema = pa.schema([pa.field("y", pa.int64())])
    child = Worker()
    try:
        child.prepare(WorkerProgram("SELECT length(x)::BIGINT AS y FROM dpduck_batch", schema))
        batch = pa.table({"x": pa.array(["a" * 100] * 1000, pa.large_string())})
        body = bytes(Room().stream(batch))
        child.send(b"B")
        os.write(child.pipe.fileno(), len(body).to_bytes(4, "big") + body[:50_000])
        for number in (signal.SIGSTOP, signal.SIGCONT):
            time.sleep(0.2)
            os.kill(child.process.pid, number)
        time.sleep(0.2)
        os.write(child.pipe.fileno(), body[50_000:])
        answer = child.finish(batch, schema)
        assert answer is not None and answer["y"].to_pylist() == [100] * 1000
    finally:
        child.kill()


def test_an_answer_that_nobody_waits_for_ends_the_process(plain: Workers) -> None:
    """An answer left in a pipe by a statement that ended early is never read as the answer to another one."""
    doubled = WorkerProgram("SELECT x * 2 AS y FROM dpduck_batch", pa.schema([pa.field("y", pa.int64())]))
    with plain.runner(doubled) as runner:
        runner.begin(pa.table({"x": pa.array([1, 2], pa.int64())}))
    with plain.runner(doubled) as runner:
        assert runner.compute(pa.table({"x": pa.array([5], pa.int64())}))["y"].to_pylist() == [10]


def test_a_rehearsal_has_a_process_that_never_saw_a_private_row(plain: Workers) -> None:
    """A rehearsal has a warm process that is never given private rows, so that its outcome depends on none."""
    doubled = WorkerProgram("SELECT x * 2 AS y FROM dpduck_batch", pa.schema([pa.field("y", pa.int64())]))
    found = []
    for pool in (StrictWorkers(plain), plain, StrictWorkers(plain), plain, StrictWorkers(plain)):
        with pool.runner(doubled) as runner:
            runner.compute(pa.table({"x": pa.array([1], pa.int64())}))
            assert runner._worker is not None
            found.append(runner._worker.process.pid)
    assert found[0::2] == [found[0]] * 3 and found[1::2] == [found[1]] * 2
    assert found[0] != found[1]


def test_a_program_that_does_not_run_is_a_defect(plain: Workers) -> None:
    """A program that does not run fails on a batch without rows, before any row could be the reason."""
    with (
        pytest.raises(InternalError, match="does not run"),
        plain.runner(WorkerProgram("SELECT nothing", TEXT)) as runner,
    ):
        runner.check(pa.table({"x": pa.array([], pa.string())}))


def test_a_worker_runs_no_pass_that_was_not_looked_at() -> None:
    """All optimizer passes of DuckDB are off but one, in each version, and nobody can switch them on again."""
    with worker.open_database(1, 1 << 28) as connection:
        passes = {name for (name,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()}
        (off,) = connection.execute("SELECT current_setting('disabled_optimizers')").fetchall()[0]
        assert set(off.split(",")) == passes - {"expression_rewriter"}
        with pytest.raises(duckdb.InvalidInputException, match="locked"):
            connection.execute("RESET disabled_optimizers")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT content AS y FROM read_text('/etc/hostname')",
        "COPY (SELECT 1 AS y) TO '/tmp/dpduck_worker_was_here'",
        "SELECT getenv('HOME') AS y",
        "ATTACH '/tmp/dpduck_worker_was_here.duckdb'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "FROM 'http://127.0.0.1:9/x.csv'",
    ],
)
def test_a_worker_reaches_nothing(plain: Workers, sql: str) -> None:
    """A program that asks for a file, the environment, an extension or a setting does not run."""
    with pytest.raises(InternalError), plain.runner(WorkerProgram(sql, TEXT)) as runner:
        runner.check(pa.table({"x": pa.array([], pa.string())}))
    assert not list(Path("/tmp").glob("dpduck_worker_was_here*"))


def test_a_worker_cannot_open_a_file_even_by_its_process(tmp_path: Path) -> None:
    """The operating system refuses more files and sockets to the process, whatever code asks."""
    script = tmp_path / "probe.py"
    script.write_text(
        "import importlib.util, os, socket, sys\n"
        f"spec = importlib.util.spec_from_file_location('worker', {COMMAND[2]!r})\n"
        "worker = importlib.util.module_from_spec(spec); spec.loader.exec_module(worker)\n"
        "own = worker.evaluate\n"
        "def evaluate(connection, sql, parameters, batch):\n"
        "    if sql.startswith('probe'):\n"
        "        for reach in (lambda: open('/etc/hostname'), socket.socket, os.pipe):\n"
        "            try:\n"
        "                reach()\n"
        "            except OSError:\n"
        "                continue\n"
        "            os._exit(1)\n"
        "        assert set(os.environ) <= {'LC_CTYPE'}\n"
        "        sql = 'SELECT true AS y FROM dpduck_batch'\n"
        "    return own(connection, sql, parameters, batch)\n"
        "worker.evaluate = evaluate\n"
        "worker.serve(*map(int, sys.argv[1:5]))\n"
    )
    pool = Workers((sys.executable, "-I", str(script)))
    with pool.runner(WorkerProgram("probe", TEXT)) as runner:
        assert runner.compute(pa.table({"x": ["a"]}))["y"].to_pylist() == [True]
    pool.close()
