"""Runners: processes that run statements of principals, each killed if it takes too long or too much memory."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from dpduck.database.analyst_macros import macros_sql
from dpduck.database.macros import read_macro_files
from dpduck.server import runner_process
from dpduck.server.limits import PROMPT, GivenUp, Limits, Places, limit_memory, never, stand_back
from dpduck.server.runner_process import Message, pack, unpack
from dpduck.server.vault import ReleasedRows
from dpduck.values.child_process import ChildProcess
from dpduck.values.errors import Refusal
from dpduck.values.sqltypes import NAMES, sql_type

GRACE = 1.0
"""Seconds after its time limit in which a runner may still report the limit. Then it is killed."""

KINDNESS, BEHIND = 5, 12
"""Steps of nice for runners, so that they leave the processor to readers. BEHIND is for principals with more than
limits.PROMPT seconds of recent work. A process cannot go back to fewer steps."""

KILLED = 1.0
"""Seconds of work that a killed runner adds to its principal, since another runner has to be started."""

BESIDE = 192 * 2**20
"""Bytes that a runner may use beyond DuckDB's own limit, for results, texts and Arrow's copies."""

ENDED, NOT_BEGUN = "ended", "not begun"
_SETUP_SECONDS = 60.0
_LOOK_AGAIN = 0.1


@dataclass(frozen=True)
class TableRead:
    """Table that a statement reads. table: full name. mark: changes with the rows, "" if nobody else reads it."""

    table: str
    mark: str
    rows: Callable[[], ReleasedRows]


class Runners:
    """Pool of runners. Many threads may use it."""

    def __init__(self, limits: Limits, lock: Sequence[str]) -> None:
        """lock: the statements that lock the settings of an instance."""
        self._limits = limits
        self._setup = [
            "ATTACH ':memory:' AS answers", "ATTACH ':memory:' AS listing", macros_sql(),
            *read_macro_files(), "SET arrow_lossless_conversion = true", *lock,
        ]  # fmt: skip
        self._places = Places(limits.runners, max(1, limits.runners // 2))
        self._lock = threading.Lock()
        self._idle: list[tuple[str, _Runner]] = []
        self._spare: _Runner | None = None
        self._sparing = False
        self._all: set[_Runner] = set()
        self._closed = False

    def run(
        self,
        principal: str,
        sql: str,
        sources: Sequence[TableRead],
        seconds: float,
        rows: int,
        given_up: GivenUp = never,
        letters: int | None = None,
    ) -> ReleasedRows:
        """Returns the rows of a SELECT over these tables. Refuses it beyond a limit, or if its client has gone."""
        most: Message = {"seconds": seconds, "rows": rows, "bytes": self._limits.result_bytes, "letters": letters}
        if letters is not None:
            most["short"] = [*(name for name in NAMES if sql_type(name).is_short), "DECIMAL"]
        with self._places.place(principal, seconds, given_up):
            used, message, table = self._try_run(principal, sql, sources, most, given_up)
            if used and message.get("why") == runner_process.MEMORY:  # allocators keep memory of earlier statements
                _, message, table = self._try_run(principal, sql, sources, most, given_up)
        if table is None:
            raise self._refusal(message, seconds, rows)
        return ReleasedRows(tuple((str(name), str(kind)) for name, kind in message["columns"]), table)

    def _try_run(
        self, principal: str, sql: str, sources: Sequence[TableRead], most: Message, given_up: GivenUp
    ) -> tuple[bool, Message, pa.Table | None]:
        """Runs a SELECT once. Returns whether its runner had run a SELECT before, and the runner's answer."""
        start = time.monotonic()
        try:
            runner = self._take_runner(principal)
        except OSError:  # a new runner was killed at its start, or the system has no room for it
            return False, {"why": NOT_BEGUN}, None
        self._places.owe(principal, start - time.monotonic())  # the wait for the start of a process is no work
        used, runner.used = runner.used, True
        prompt = max(0.0, PROMPT - self._places.debt(principal))
        try:
            runner.provide(sources, self._limits.runner_bytes // 2)
            message, table = runner.ask({"do": "run", "sql": sql, **most}, most["seconds"] + GRACE, prompt, given_up)
            if message.get("why") == runner_process.MEMORY:
                runner.kill()
        except TimeoutError:
            message, table = {"why": runner_process.LATE}, None
            runner.kill()
        except OSError:  # it died without memory, or by a fatal error of DuckDB
            message, table = {"why": ENDED}, None
            runner.kill()
        except BaseException:
            runner.kill()
            raise
        finally:
            self._given_back(principal, runner)
        return used, message, table

    def close(self) -> None:
        """Ends every runner, even at work. Waiting statements are refused."""
        self._places.close()
        with self._lock:
            self._closed = True
            runners = list(self._all)
        for runner in runners:
            runner.kill()

    def processes(self) -> list[int]:
        with self._lock:
            return [runner.process.pid for runner in self._all]

    def _take_runner(self, principal: str) -> _Runner:
        """Returns the principal's idle runner, or an unused one. Ends others' idle runners if there are too many."""
        behind = self._places.debt(principal) > PROMPT
        spare = None
        with self._lock:
            dead = {runner for runner in self._all if runner.process.poll() is not None}
            self._all -= dead
            self._idle = [(name, runner) for name, runner in self._idle if runner not in dead]
            self._spare = None if self._spare in dead else self._spare
            own = next((runner for name, runner in self._idle if name == principal), None)
            if own is not None:
                self._idle.remove((principal, own))
            if not behind and (own is None or own.behind):
                spare, self._spare = self._spare, None
            gone = [own] if own is not None and own.behind and not behind else []
            if own is None:  # limits the number of processes, without the spare one
                while self._idle and len(self._all) - (self._spare is not None) - len(gone) >= self._limits.runners:
                    gone.append(self._idle.pop(0)[1])
            self._all.difference_update(gone)
        for runner in gone:
            runner.kill()
        if own is not None and own not in gone:
            if behind:
                own.stand_back()
            return own
        self._start_a_spare()
        return spare or self._start_runner(BEHIND if behind else KINDNESS)

    def _start_runner(self, kindness: int) -> _Runner:
        runner = _Runner(self._setup, self._limits, kindness)
        with self._lock:
            self._all.add(runner)
            closed = self._closed
        if closed:
            runner.kill()
        return runner

    def _start_a_spare(self) -> None:
        def start() -> None:
            runner = None
            with suppress(OSError):
                runner = self._start_runner(KINDNESS)
            with self._lock:
                self._spare, self._sparing = runner, False

        with self._lock:
            if self._sparing or self._closed or self._spare is not None:
                return
            self._sparing = True
        threading.Thread(target=start, daemon=True).start()

    def _given_back(self, principal: str, runner: _Runner) -> None:
        with self._lock:
            if runner.alive and not self._closed:
                self._idle.append((principal, runner))
                return
            self._all.discard(runner)
        self._places.owe(principal, KILLED)

    def _refusal(self, message: Message, seconds: float, rows: int) -> Refusal:
        if self._closed:
            return Refusal("the server is ending", accepted="the same statement when it is there again")
        why = message["why"]
        if why == runner_process.LATE:
            return Refusal("the statement takes too long", accepted=f"at most {seconds:g} s")
        if why == runner_process.ROWS:
            return Refusal("the result has too many rows", accepted=f"at most {rows}")
        if why == runner_process.BYTES:
            return Refusal("the result is too large", accepted=f"at most {self._limits.result_bytes} bytes")
        memory = self._limits.runner_bytes // 2**20
        if why == runner_process.MEMORY:
            return Refusal("the statement needs too much memory", accepted=f"what needs at most {memory} MiB")
        if why == ENDED:
            what = "the statement ended the process that ran it"
            return Refusal(what, accepted=f"another form of it, which needs at most {memory} MiB")
        if why == NOT_BEGUN:
            return Refusal("no process began that would run the statement", accepted="the same statement again")
        return Refusal(f"DuckDB does not accept this: {message['said']}", accepted="DuckDB's SQL")


class _Runner(ChildProcess):
    """Process of a runner, with a record of the tables that it has."""

    def __init__(self, setup: Sequence[str], limits: Limits, kindness: int) -> None:
        environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "ARROW_DEFAULT_MEMORY_POOL": "system"}
        super().__init__([sys.executable, "-I", runner_process.__file__], environment, _SETUP_SECONDS)
        self._held: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self.used, self.behind = False, kindness == BEHIND
        stand_back(kindness, self.process.pid)
        threads = max(1, (os.cpu_count() or 1) // 2)
        memory = f"{limits.runner_bytes // 2**20}MiB"
        try:
            self.ask({"setup": list(setup), "memory": memory, "threads": threads}, _SETUP_SECONDS)
            limit_memory(limits.runner_bytes + BESIDE, self.process.pid)
        except BaseException:
            self.kill()
            raise

    def provide(self, sources: Sequence[TableRead], most: int) -> None:
        """Sends missing tables. First drops changed and temporary tables, and unused tables beyond `most` bytes."""
        gone = [table for table, (mark, _) in self._held.items() if not mark]
        wanted = {source.table for source in sources}
        gone += [s.table for s in sources if s.table in self._held and self._held[s.table][0] != s.mark]
        missing = [(s, s.rows()) for s in sources if s.table not in self._held or s.table in gone]
        size = sum(rows.table.nbytes for _, rows in missing)
        for table in [table for table in self._held if table not in wanted and table not in gone]:
            if sum(nbytes for name, (_, nbytes) in self._held.items() if name not in gone) + size <= most:
                break
            gone.append(table)
        if gone:
            self.send(pack({"do": "drop", "names": list(dict.fromkeys(gone))}))
            for table in set(gone):
                del self._held[table]
        for source, rows in missing:
            self.send(pack({"do": "put", "name": source.table, "columns": rows.columns}, rows.table))
            self._held[source.table] = (source.mark, rows.table.nbytes)
        for table in wanted:
            self._held.move_to_end(table)

    def ask(
        self, message: Message, seconds: float, prompt: float = math.inf, given_up: GivenUp = never
    ) -> tuple[Message, pa.Table | None]:
        """Returns the answer to a message. Raises TimeoutError if it is late, OSError if the process has ended.

        prompt: seconds until the process yields to all others. given_up: tells whether the client has gone.
        """
        self.send(pack(message))
        start = time.monotonic()
        while not self.pipe.poll(min(_LOOK_AGAIN, max(0.0, start + seconds - time.monotonic()))):
            passed = time.monotonic() - start
            if passed >= prompt:
                self.stand_back()
            if passed >= seconds:
                raise TimeoutError
            if given_up():
                raise Refusal("the client gave the statement up", accepted="the same statement again")
        return unpack(self.receive(0))

    def stand_back(self) -> None:
        if not self.behind:
            self.behind = True
            stand_back(BEHIND, self.process.pid)
