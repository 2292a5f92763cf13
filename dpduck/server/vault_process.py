"""Vault in a process of its own, with a socket as its standard input. The first message names the database.

The process that clients talk to has no private row, and a slow release does not stop its readers. When the socket is
closed, the vault finishes its running releases, so that no charge is wasted, and ends.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dpduck.database.macros import UNEXPECTED
from dpduck.server.limits import SWITCH_SECONDS, Quota, TimeGrid, limit_memory, stand_back
from dpduck.server.local_vault import LocalVault
from dpduck.server.owner import door_path
from dpduck.server.owner_door import OwnerDoor
from dpduck.server.runner_process import Message, pack, unpack
from dpduck.server.vault import Vault
from dpduck.server.vault_messages import rows_message
from dpduck.store.store_files import store_files
from dpduck.values.errors import DpduckError, StoreError
from dpduck.values.no_pandas import do_without_pandas

TOO_MUCH = "the server does too much at once; accepted: the same statement later"
MOST_AT_ONCE = 128
"""Messages at once: twice the number of statements that the server admits, since releases outlast their clients."""

_ATTEMPTS, _PAUSE = 40, 0.25
_OPENING, _SILENT, _LOOK_AGAIN = 20.0, 1.0, 0.1
_LAST_RELEASES = 40.0


def main() -> int:
    """Opens the vault that the first message names, and answers messages until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the other end decides
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_SECONDS)
    os.umask(0o077)  # DuckDB's files beside the store show its content
    pipe = Connection(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # no process that this one starts may hold the socket
    try:
        setup, _ = unpack(pipe.recv_bytes())
    except (EOFError, OSError):  # the server has ended, so it needs no vault
        return 0
    database, store, keeping = Path(setup["database"]), setup["store"] and Path(setup["store"]), setup["keeping"]
    if not keeping["engines"]:  # the client of an engine needs pandas
        do_without_pandas()
    try:
        vault = _open_vault(database, store, keeping)
    except DpduckError as error:
        pipe.send_bytes(pack({"failed": str(error)}))
        return 1
    stand_back(setup["kindness"], os.getpid())  # not before: until here, everyone waits for the vault alone
    crew = Crew()
    if keeping["memory"]:
        limit_memory(keeping["memory"])
    path = door_path(store_files(database, store))
    door = None if path is None else OwnerDoor(vault, path)
    end_at_once()
    with suppress(BrokenPipeError):  # the server has ended: answer_all returns at once
        pipe.send_bytes(pack({"ready": True}))
    answer_all(pipe, vault, vault.end, crew)
    if door is not None:
        door.close()
    vault.close()
    return 0


def end_at_once() -> None:
    """Makes a library's call of exit() end the process without other handlers, so that another process starts.

    OpenBLAS calls exit() from any thread if it gets no memory. A handler of Arrow would then wait for threads that wait
    for Python's lock. The handler that is registered last is called first.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "on_exit"):  # of the GNU C library
        library.on_exit(ctypes.cast(library._exit, ctypes.c_void_p), None)


class Crew:
    """Threads that answer messages. They start before the process's memory is limited.

    A thread that starts without memory may never report its start, and the thread that started it waits for ever.
    """

    def __init__(self, threads: int = MOST_AT_ONCE) -> None:
        self._messages = queue.SimpleQueue[Callable[[], None]]()
        self._free, self._threads = threading.Semaphore(threads), threads
        for _ in range(threads):
            threading.Thread(target=self._work, daemon=True).start()

    def do(self, work: Callable[[], None]) -> bool:
        """Gives work, which must not raise, to a free thread. Returns False if no thread is free."""
        if not self._free.acquire(blocking=False):
            return False
        self._messages.put(work)
        return True

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for _ in range(self._threads):
            if not self._free.acquire(timeout=max(0.0, deadline - time.monotonic())):
                return

    def _work(self) -> None:
        while True:
            self._messages.get()()
            self._free.release()


def answer_all(pipe: Connection, vault: Vault, end: Callable[[], None], crew: Crew) -> None:
    """Answers each message in a thread of the crew, until the pipe is closed. Then calls `end` and waits."""
    sending = threading.Lock()

    def send(data: bytes) -> None:
        with suppress(OSError), sending:
            pipe.send_bytes(data)

    def answer(message: Message) -> None:
        try:
            send(_answer_message(vault, message))
        except MemoryError:
            refuse(message)

    def refuse(message: Message) -> None:
        for _ in range(_ATTEMPTS):
            with suppress(MemoryError):
                return send(pack({"id": message["id"], "error": TOO_MUCH}))
            time.sleep(_PAUSE)
        os._exit(1)  # the public database starts another vault, but would wait for a silent one

    while True:
        try:
            message, _ = unpack(pipe.recv_bytes())
        except (EOFError, OSError):
            break
        if not crew.do(partial(answer, message)):
            refuse(message)
    end()
    crew.wait(_LAST_RELEASES)


def _answer_message(vault: Vault, message: Message) -> bytes:
    number, operation, given = message["id"], message["do"], message["with"]
    try:
        if operation == "ask":
            reply = vault.ask(*given)
            told = {"key": reply.key, "charged": reply.charged, "refused": reply.refused, "warning": reply.warning}
            return pack({"id": number, **told})
        if operation == "views":
            return pack({"id": number, "views": vault.views()})
        if operation == "spending":
            return pack({"id": number, "spending": vault.spending()})
        if operation == "well":
            if isinstance(vault, LocalVault):
                vault.well()
            return pack({"id": number})
        rows = vault.view(*given) if operation == "view" else vault.rows(*given)
        return pack({"id": number, **rows_message(rows)}, rows.table)
    except DpduckError as error:
        _require_alive(vault)
        return pack({"id": number, "error": str(error)})
    except MemoryError:
        raise
    except Exception:  # its text could quote data
        _require_alive(vault)
        return pack({"id": number, "error": UNEXPECTED})


def _require_alive(vault: Vault) -> None:
    """Ends this process if an internal error has stopped its DuckDB. The public database starts another process."""
    if isinstance(vault, LocalVault) and not vault.alive():
        os._exit(1)


def _open_vault(database: Path, store: Path | None, keeping: dict[str, Any]) -> LocalVault:
    """Opens the vault. Tries again for a while, with a note, since an earlier vault may still finish its releases."""
    begun, silent = time.monotonic(), True
    while True:
        try:
            grid = TimeGrid(keeping["floor"])
            quota, engines = Quota(**keeping["quota"]), tuple(keeping["engines"])
            return LocalVault(database, store, quota, grid, keeping["seconds"], keeping["memory"], engines)
        except StoreError as error:
            waited = time.monotonic() - begun
            if waited > _OPENING or not database.exists():
                raise
            if silent and waited > _SILENT and "another process" in str(error):
                silent, prefix = False, "the store of " * str(error).startswith("the store")
                name = f"{prefix}{database.name}"
                sys.stderr.write(f"waiting up to {_OPENING:g} s for {name}, which another process may have open\n")
            time.sleep(_LOOK_AGAIN)


if __name__ == "__main__":
    sys.exit(main())
