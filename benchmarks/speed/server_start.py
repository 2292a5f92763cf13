"""How long a server takes: until its first answer after a start, and after its vault, or all of it, is killed.

Gates: an answer 3 s after a start and after the vault's death where nobody else asks, and 5 s after either under 16
clients, medians. `--before FOLDER`: a tree of another commit, whose servers take turns with those of this one, on files
of their own. Each figure stands beside the other tree's, and is at most SLOWER times as large. `--only PART`: one part.
Traps avoided: the question is a new one each time, so that it needs the vault and its ledger. Clients stay attached if
the server lives on, and else try to attach without a pause. Every client had an answer before something dies (a quarter
asks without a pause, the others read four times a second). Where nobody else asks, the processor seconds of all
processes of the server are shown as well.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from benchmarks.speed import server_load
from dpduck.publish.extensions import extension_file, load_extension
from tests.support.processes import children

ROOT = Path(__file__).resolve().parents[2]
IDLE, CROWDED = 3.0, 5.0
ROUNDS, TOGETHER, CLIENTS = 9, 3, 16
"""Deaths in all, and while the same clients are at work."""

SETTLED = 12.0
"""Seconds between two deaths: long enough for a process that waits to have imported everything (IDLE_AFTER)."""

PATIENCE = 120.0
SLOWER = 1.2
"""How many times as long as in the other tree a median may be."""

STARTED, VAULT, SERVER = "start", "vault killed", "server killed"


@dataclass(frozen=True)
class Taken:
    """The time to an answer: seconds, and processor seconds of all processes of the server."""

    seconds: float
    processor: float


@dataclass
class Tree:
    """A tree of the project, with a clinic of its own. asked: the number of questions so far."""

    name: str
    folder: Path
    database: Path
    tokens: list[str]
    port: int
    asked: int = 0

    @property
    def address(self) -> str:
        """Where its servers listen."""
        return f"quack:localhost:{self.port}"

    def question(self) -> str:
        """A question that nobody asked before, at about the least price that a server takes."""
        self.asked += 1
        return f"FROM clinic.query($$ FROM dp($q$ {_question(self.asked)} $q$) $$)"


def _question(number: int) -> str:
    options = f"OPTIONS (epsilon = 0.0105{number:05d})"
    return f"SELECT WITH DIFFERENTIAL_PRIVACY {options} sex, count(*) AS n FROM visits GROUP BY sex"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path, help="a tree of another commit")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--only", choices=("idle", "crowded vault", "crowded server"), help="one part of it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPDUCK_STATE_DIR"] = f"{folder}/state"
        os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # processes read what the first one compiled
        trees = [made("now", ROOT, Path(folder), 9751)]
        if given.before is not None:
            trees.append(made("before", given.before.resolve(), Path(folder), 9752))
        missed = 0
        for part, kind, clients, gate in (
            ("idle", STARTED, 0, IDLE), ("idle", VAULT, 0, IDLE),
            ("crowded vault", VAULT, given.clients, CROWDED), ("crowded server", SERVER, given.clients, CROWDED),
        ):  # fmt: skip
            if given.only in (None, part):
                seconds = measured(kind, trees, given.rounds, clients)
                missed += told(kind, clients, seconds, gate)
    return 1 if missed else 0


def made(name: str, folder: Path, within: Path, port: int) -> Tree:
    """A tree with the clinic of server_load."""
    (within / name).mkdir()
    database, tokens = server_load.made(within / name)
    return Tree(name, folder, database, tokens, port)


def told(kind: str, clients: int, times: dict[str, list[Taken]], gate: float) -> bool:
    """Prints medians and the longest, and tells whether the gate is missed."""
    median = {name: statistics.median(one.seconds for one in taken) for name, taken in times.items()}
    shown = []
    for name, taken in times.items():
        processor = f", processor {statistics.median(one.processor for one in taken):.2f} s" if clients == 0 else ""
        shown.append(f"{name} {median[name]:.2f} s (most {max(one.seconds for one in taken):.2f}{processor})")
    missed = median["now"] > gate or median["now"] > SLOWER * median.get("before", gate)
    said = f"{'FAIL' if missed else 'PASS'}  {kind}, {clients} clients: {'  '.join(shown)} (gate: {gate:g} s)"
    print(f"{said}; load {os.getloadavg()[0]:.1f}", flush=True)
    return missed


def measured(kind: str, trees: list[Tree], rounds: int, clients: int) -> dict[str, list[Taken]]:
    """Seconds until an answer, by tree. Servers of the trees take turns."""
    found: dict[str, list[Taken]] = {tree.name: [] for tree in trees}
    while len(found["now"]) < rounds:
        for tree in trees:
            times = min(TOGETHER, rounds - len(found[tree.name]))
            found[tree.name] += [started(tree)] if kind == STARTED else deaths(kind, tree, times, clients)
    return found


def started(tree: Tree) -> Taken:
    """Times of a server from its start to its first answer."""
    begin = time.monotonic()
    with serving(tree) as server, attached(tree) as client:
        answer(client, tree)
        return Taken(time.monotonic() - begin, processor_of(server.pid))


def deaths(kind: str, tree: Tree, times: int, clients: int) -> list[Taken]:
    """Times each death of a vault, or of a server, until the next answer, under so many clients."""
    found = []
    with ExitStack() as servers:
        server = servers.enter_context(serving(tree))
        client = servers.enter_context(attached(tree))
        answer(client, tree)
        with crowd(tree, clients):
            for _ in range(times):
                time.sleep(SETTLED)
                begin, before = time.monotonic(), processor_of(server.pid)
                if kind == VAULT:
                    os.kill(vault_of(server.pid), signal.SIGKILL)
                else:
                    server.kill()
                    server.wait()
                    server = servers.enter_context(serving(tree))
                    client = servers.enter_context(attached(tree))
                answer(client, tree)
                found.append(Taken(time.monotonic() - begin, processor_of(server.pid) - before))
    return found


@contextmanager
def serving(tree: Tree) -> Iterator[subprocess.Popen[bytes]]:
    """`dpduck serve` of a tree."""
    command = [sys.executable, "-m", "dpduck.commands.command_line", "serve", str(tree.database), "--listen"]
    process = subprocess.Popen([*command, tree.address], cwd=tree.folder, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def attached(tree: Tree) -> Iterator[duckdb.DuckDBPyConnection]:
    """A client that knocks until it is let in."""
    with duckdb.connect(config={"threads": 1}) as client:
        for name in ("httpfs", "quack"):
            load_extension(client, name, "the wheel")
        until(lambda: client.execute(f"ATTACH '{tree.address}' AS clinic (TOKEN '{tree.tokens[0]}')"))
        yield client


def answer(client: duckdb.DuckDBPyConnection, tree: Tree) -> None:
    """Asks until there is an answer."""
    until(lambda: client.execute(tree.question()).fetchall())


def until(call: Callable[[], object]) -> None:
    """Calls until nothing is raised."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(duckdb.Error):
            call()
            return
        time.sleep(0.02)
    raise TimeoutError(f"no answer in {PATIENCE:g} s")


@contextmanager
def crowd(tree: Tree, clients: int) -> Iterator[None]:
    """So many clients, each a process. A quarter ask. They attach again where they have lost the server."""
    files = [str(extension_file(name, "the wheel")) for name in ("httpfs", "quack")]
    script = str(Path(server_load.__file__).with_name("_server_client.py"))
    with ExitStack() as stack:
        said = [Path(stack.enter_context(tempfile.NamedTemporaryFile()).name) for _ in range(clients)]
        for number, file in enumerate(said):
            kind, first = ("ask", tree.asked * 100) if number < clients // 4 else ("read", 0)
            words = [tree.tokens[number % 2], kind, str(first + number), str(PATIENCE), *files]
            out = stack.enter_context(file.open("w"))
            process = subprocess.Popen([sys.executable, script, tree.address, *words], stdout=out)
            stack.callback(process.wait)
            stack.callback(process.kill)
        end = time.monotonic() + PATIENCE
        while not all(file.stat().st_size for file in said) and time.monotonic() < end:
            time.sleep(0.1)
        yield


def vault_of(server: int) -> int:
    """The process of a server that has a store open."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for child in children(server):
            with suppress(OSError):
                if any("_private.duckdb" in str(file.readlink()) for file in Path(f"/proc/{child}/fd").iterdir()):
                    return child
        time.sleep(0.05)
    raise TimeoutError("no process has the store open")


def processor_of(process: int) -> float:
    """Processor seconds of a process and of all that it started, also of processes that have ended."""
    times = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:15]
    own = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    with suppress(OSError):  # the process has ended meanwhile
        own += sum(map(processor_of, children(process)))
    return own


if __name__ == "__main__":
    sys.exit(main())
