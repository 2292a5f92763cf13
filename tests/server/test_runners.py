"""Every statement has a clock, a place and a memory limit. Statements that may cost much run in a separate process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import duckdb
import pytest

from dpduck.server import runner_process
from dpduck.server.gate import STREAMED
from dpduck.server.limits import Limits, Places, parse_size
from dpduck.server.runner_process import pack, unpack
from dpduck.server.runners import BEHIND
from dpduck.values.errors import Refusal
from tests.server.served import Served, open_served
from tests.server.shell import eventually

LONG = "x" * 15_000
HEAVY = {
    # neither can be interrupted, and its time is the product of the lengths
    "levenshtein": f"SELECT sum(levenshtein('{LONG}' || n, n || '{LONG}') + levenshtein('{LONG}' || age, n || "
    f"'{LONG}')) FROM ages, range(1000000)",
    # texts lie outside the memory that DuckDB counts
    "replace": f"SELECT max(length(replace(replace('{LONG}' || n, 'x', '{LONG[:800]}'), 'x', '{LONG}'))) FROM ages",
    # by aliases of aliases a short text grows long
    "aliases": "SELECT n + n AS a0, " + ", ".join(f"a{i} + a{i} AS a{i + 1}" for i in range(40)) + " FROM ages",
    "rows": "SELECT sum(hash(a.range)) FROM range(3000000000) AS a",
    "lists": "SELECT length(list(a.range + b.range)::VARCHAR) FROM range(100000) AS a, range(100000) AS b",
}
READ, JOIN = "SELECT sum(n) FROM ages", "SELECT count(*) FROM ages AS a JOIN ages AS b USING (age)"


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory, state_directory: Path) -> Iterator[Served]:
    opened = open_served(tmp_path_factory.mktemp("bounded"), Limits(seconds=4, memory=parse_size("400MB")))
    yield opened
    opened.service.close()


def resident(process: int | str = "self") -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096


def test_a_process_that_does_not_begin_is_told_in_one_line(
    tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it begins, as by a system without memory: no defect of the gate, and the next process is tried."""
    served = open_served(tmp_path, Limits(seconds=4, memory=parse_size("400MB")))
    ends = tmp_path / "ends.py"
    ends.write_text("raise SystemExit(1)")
    heavy = "SELECT sum(hash(a.range)) FROM range(1000) AS a"
    with monkeypatch.context() as patched:
        patched.setattr(runner_process, "__file__", str(ends))
        told = served.refused("alice", heavy)
    assert told == "no process began that would run the statement; accepted: the same statement again"
    assert len(served.rows("alice", heavy)) == 1
    served.service.close()


@pytest.mark.sampled
@pytest.mark.parametrize("kind", list(HEAVY))
def test_a_statement_without_measure_ends(bounded: Served, kind: str) -> None:
    """In time, within memory, in one line. The server itself grows by nothing, and the next statement is answered."""
    before, start, most = resident(), time.monotonic(), 0
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.02):
            with suppress(OSError, IndexError):  # one ended between the list and the look
                most = max([most, *(resident(process) for process in bounded.service.public.processes())])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        told = bounded.refused("alice", HEAVY[kind])
    finally:
        done.set()
        watcher.join()
    assert told.startswith(
        ("the statement takes too long; accepted: ", "the statement needs too much memory; accepted: ",
         "the statement ended the process that ran it; accepted: ")
    ), told  # fmt: skip
    assert time.monotonic() - start < 60, "a busy machine is slow, but not by minutes"
    assert resident() - before < 100 * 2**20 and most < 600 * 2**20
    assert bounded.rows("alice", JOIN) == [(10,)]


@pytest.mark.slow
def test_others_are_answered_meanwhile(bounded: Served) -> None:
    """With a principal's places all taken by statements without measure, others read and join."""
    with ThreadPoolExecutor(8) as pool:
        at_work = [pool.submit(bounded.refused, "alice", HEAVY["rows"]) for _ in range(8)]
        for _ in range(3):
            assert len(bounded.rows("bob", READ)) == 1
            assert bounded.rows("bob", JOIN) == [(10,)]
        told = [each.result() for each in at_work]
    assert all(
        line.startswith(("the statement takes too long", "the server is busy: no place was free in ")) for line in told
    ), told


def test_what_streams_is_bounded(bounded: Served) -> None:
    """A scan with too many rows times parts, or with anything that is not cheap, runs in a runner."""
    gate = bounded.service.gate
    for text in (READ, "FROM ages", "SELECT age, n FROM ages WHERE n > 10 ORDER BY n DESC", "SELECT #1, #2 FROM ages"):
        assert gate.inspect(text).plain, text
    for text in (
        "SELECT age || age FROM ages", "SELECT n + 1 AS m, m + m FROM ages", "SELECT (SELECT 1) FROM ages", JOIN,
        "SELECT sum(n) OVER () FROM ages", "SELECT list(n) FROM ages", "SELECT levenshtein('a', 'b')",
        "FROM ages WHERE age::VARCHAR ILIKE '%a%a_'", "SELECT unnest([1, 2])", "FROM range(10)",
    ):  # fmt: skip
        assert not gate.inspect(text).plain, text
    wide = f"SELECT {', '.join(f'n + {number}' for number in range(900))} FROM ages"
    assert bounded.sql("bob", wide).startswith("SELECT n + 0, ")
    few = Served(bounded.database, bounded.service, bounded.tokens, bounded.log)
    limits, few.service.gate._limits = few.service.gate._limits, Limits(work=1_000)
    try:
        assert few.sql("bob", wide).startswith("FROM answers.main.")
        assert few.sql("bob", "FROM ages") == "FROM memory.main.ages"
    finally:
        few.service.gate._limits = limits


def test_arguments_of_dp_functions_are_written_out(bounded: Served) -> None:
    """The parser evaluates them, without clock or limit: so there is nothing to evaluate but texts, numbers, lists."""
    start, before = time.monotonic(), resident()
    for argument in ("'a' || 'b'", "upper('a')", "concat('a', 'b')", "hex('a')",
                     "[1, 2] || [3]", "2 ** 10", "replace('aaa', 'a', 'aaaa')"):  # fmt: skip
        told = bounded.refused("alice", f"FROM dp({argument})")
        assert told == "an argument of dp is computed; accepted: texts and numbers, and lists of them", told
    for form in ("format('{:>200000000}', 'a')", "SELECT max(length(format('{:>200000000}', n))) FROM ages"):
        told = bounded.refused("alice", f"FROM dp({form})" if "SELECT" not in form else form)
        assert "is computed" in told or "the function 'format' is not on the list" in told
    assert time.monotonic() - start < 10 and resident() - before < 100 * 2**20


def test_types_of_results_are_duckdbs(bounded: Served) -> None:
    """Results from a runner have the types and values that DuckDB itself gives."""
    values = (
        "1::HUGEINT", "340282366920938463463374607431768211455::UHUGEINT", "json_array(1, 2)", "'10101'::BIT",
        "'12:00:00+01'::TIMETZ", "TIME '12:00:01.5'", "INTERVAL 14 MONTH + INTERVAL 3 DAY", "[1, 2]", "map(['a'], [1])",
        "{'a': 1, 'b': 'x'}", "'x'::ENUM('x', 'y')", "'\\xAA'::BLOB", "1.5::DECIMAL(38, 10)", "DATE '300000-01-01'",
        "NULL", "TIMESTAMP_NS '2020-01-01'", "array_value(1, 2, 3)", "[[1], [NULL]]",
    )  # fmt: skip
    sql = (
        f"SELECT {', '.join(f'{value} AS c{number}' for number, value in enumerate(values))}, unnest([1]) AS u, 1 AS u"
    )
    with duckdb.connect() as plain, bounded.service.public.cursor() as cursor:
        wanted, given = plain.sql(f"SELECT * FROM ({sql})"), cursor.sql(bounded.sql("bob", sql))
        assert given.types == wanted.types and given.fetchall() == wanted.fetchall()
        assert given.columns == wanted.columns and given.columns[-2:] == ["u", "u_1"]


def test_a_runner_can_do_nothing_else(bounded: Served) -> None:
    """It has no way to files, no environment, and no table but those of the statement."""
    found = bounded.rows("bob", "SELECT table_name FROM duckdb_tables() AS a JOIN range(2) ON true ORDER BY 1")
    assert {name for (name,) in found} == {"ages", "ward_cube"}
    for process in bounded.service.public.processes():
        environment = Path(f"/proc/{process}/environ").read_bytes()
        assert b"DPDUCK" not in environment and b"HOME" not in environment
        opened = {str(link.readlink()) for link in Path(f"/proc/{process}/fd").iterdir()}
        assert not any(str(bounded.database.parent) in name for name in opened), opened


@pytest.mark.slow
def test_a_runner_that_is_killed_is_replaced(bounded: Served) -> None:
    """An idle runner that ends is replaced unnoticed. If one ends at work, its statement is refused."""
    assert bounded.rows("bob", JOIN) == [(10,)]
    runners = bounded.service.public._runners
    for runner in list(runners._all):
        runner.process.kill()
        runner.process.wait()
    assert bounded.rows("bob", JOIN) == [(10,)]
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(bounded.refused, "bob", HEAVY["rows"])
        busy = runners._places._taken
        assert eventually(lambda: busy["bob"] == 1 and not dict(runners._idle).get("bob"))
        time.sleep(0.5)
        for process in bounded.service.public.processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        assert "ended the process" in told.result()
    assert bounded.rows("bob", JOIN) == [(10,)]


@pytest.mark.slow
def test_who_works_long_stands_back(bounded: Served) -> None:
    """After a second of work a principal's runners stand back. Others keep theirs, and their runners."""
    runners = bounded.service.public._runners

    def prompt(name: str) -> bool:
        """Runs a statement after a pause: on a busy machine it may take more than a second, and then stands back.

        The last of the idle runners ran it. Another runner may have stood back before.
        """
        runners._places._debts._amounts.clear()  # time passes
        assert bounded.rows(name, JOIN) == [(10,)]
        return not dict(runners._idle)[name].behind

    assert eventually(lambda: prompt("bob"))
    own = dict(runners._idle)["bob"]
    bounded.refused("alice", HEAVY["lists"])
    assert own.alive and ("bob", own) in runners._idle, "bob's is not in the place of one that alice had killed"
    bounded.refused("alice", HEAVY["rows"])
    behind = [runner for name, runner in runners._idle if name == "alice"]
    for runner in behind:
        assert runner.behind
        for thread in Path(f"/proc/{runner.process.pid}/task").iterdir():
            assert os.getpriority(os.PRIO_PROCESS, int(thread.name)) == BEHIND
    assert bounded.rows("alice", JOIN) == [(10,)]
    assert all(runner.behind for name, runner in runners._idle if name == "alice")
    last = dict(runners._idle)["alice"]
    assert os.getpriority(os.PRIO_PROCESS, last.process.pid) == BEHIND
    assert os.getpriority(os.PRIO_PROCESS, own.process.pid) < BEHIND and own.alive
    assert eventually(lambda: prompt("alice"))


def test_streaming_without_end_is_done_in_a_runner(bounded: Served) -> None:
    """Much streaming in a short time moves to a process that stands back. Others' statements still stream."""
    gate = bounded.service.gate
    assert bounded.sql("alice", "FROM ages") == "FROM memory.main.ages"
    gate._streamed.add("alice", STREAMED + 10)
    assert bounded.sql("alice", "FROM ages").startswith("FROM answers.main.")
    assert bounded.sql("bob", "FROM ages") == "FROM memory.main.ages"


def test_who_worked_much_waits_for_who_worked_little() -> None:
    """A place is free, and given only when the other's work is done or has become as much. Others do not wait."""
    now = [0.0]
    places = Places(3, 1, clock=lambda: now[0])
    with places.place("hog", 1):
        now[0] += 8.0
    assert places.debt("hog") > 4
    with places.place("bob", 1):
        now[0] += 0.5
        with pytest.raises(Refusal, match="the server is busy: no place was free in"), places.place("hog", 0.1):
            pass
        with places.place("carol", 0.1):
            pass
        now[0] += 6.0  # bob's statement is long, too
        with places.place("hog", 1):
            pass
    now[0] += 100.0
    assert places.debt("hog") < 0.1
    with places.place("bob", 1), places.place("hog", 1):
        pass


def test_places_are_given_by_turns() -> None:
    """A principal without a place comes first. Nobody exceeds a share. A wait that is too long ends in a message."""
    places, order = Places(3, 2), list[str]()
    with places.place("hog", 1), places.place("hog", 1):
        with pytest.raises(Refusal, match="the server is busy: no place was free in"), places.place("hog", 0.05):
            pass
        with places.place("bob", 1):
            order.append("bob")

            def wait(name: str) -> None:
                with places.place(name, 10):
                    order.append(name)

            threads = []
            for name in ("hog", "hog", "hog", "carol"):
                threads.append(threading.Thread(target=wait, args=(name,)))
                threads[-1].start()
                time.sleep(0.05)
        while "carol" not in order:
            time.sleep(0.01)
        assert order == ["bob", "carol"]
    for thread in threads:
        thread.join()
    assert order == ["bob", "carol", "hog", "hog", "hog"]
    places.close()
    with pytest.raises(Refusal, match="the server is ending"), places.place("bob", 1):
        pass


def test_a_runner_ends_with_its_server() -> None:
    """If the server is killed, its runner sees the closed pipe and ends the statement at work."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", runner_process.__file__]
    with subprocess.Popen(command, stdin=theirs.fileno()) as process:
        theirs.close()
        pipe = Connection(ours.detach())
        try:
            setup = ["CREATE TABLE ages AS SELECT range AS n, range AS age FROM range(9)"]
            pipe.send_bytes(pack({"setup": setup, "memory": "100MiB", "threads": 1}))
            assert unpack(pipe.recv_bytes())[0] == {"ready": True}
            run = {"do": "run", "sql": HEAVY["levenshtein"], "seconds": 9e5, "rows": 9, "bytes": 9**9}
            pipe.send_bytes(pack(run))
            assert not pipe.poll(1)
            pipe.close()
            assert process.wait(60) == 0
        finally:
            process.kill()
