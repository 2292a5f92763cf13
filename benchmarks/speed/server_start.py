"""How long a server takes: until its first answer after a start, and after its vault, or all of it, is killed.

Gates: an answer 3 s after a start and after the vault's death where nobody else asks, and 5 s after either under 16
clients, medians. `--before FOLDER`: a tree of another commit, whose servers take turns with those of this one, on files
of their own; each figure is then shown beside its. Traps avoided: the question is a new one each time, so that it needs
the vault and its ledger; whoever asks was attached before where the server lives on, and knocks without a pause where
it does not; every client had an answer before something dies (a quarter asks, the others read without a pause).
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
from dpduck.publish.postgres import extension_file, load_extension

ROOT = Path(__file__).resolve().parents[2]
IDLE, CROWDED = 3.0, 5.0
ROUNDS, CLIENTS = 9, 16
SETTLED = 3.0
"""Seconds between two deaths: long enough for a process that waits to have imported everything."""

PATIENCE = 120.0
STARTED, VAULT, SERVER = "start", "vault killed", "server killed"


@dataclass
class Tree:
    """A tree of the project, with a clinic of its own. asked: how many questions it was asked."""

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
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPDUCK_STATE_DIR"] = f"{folder}/state"
        trees = [made("now", ROOT, Path(folder), 9751)]
        if given.before is not None:
            trees.append(made("before", given.before.resolve(), Path(folder), 9752))
        missed = 0
        for clients, gate in ((0, IDLE), (given.clients, CROWDED)):
            for kind in (STARTED, VAULT) if clients == 0 else (VAULT, SERVER):
                seconds = measured(kind, trees, given.rounds, clients)
                missed += told(kind, clients, seconds, gate)
    return 1 if missed else 0


def made(name: str, folder: Path, within: Path, port: int) -> Tree:
    """A tree with the clinic of server_load."""
    (within / name).mkdir()
    database, tokens = server_load.made(within / name)
    return Tree(name, folder, database, tokens, port)


def told(kind: str, clients: int, seconds: dict[str, list[float]], gate: float) -> bool:
    """Prints medians and the longest; tells whether the gate is missed."""
    now = statistics.median(seconds["now"])
    shown = "  ".join(f"{name} {statistics.median(s):.2f} s (most {max(s):.2f})" for name, s in seconds.items())
    print(f"{'PASS' if now <= gate else 'FAIL'}  {kind}, {clients} clients: {shown} (gate: {gate:g} s)", flush=True)
    return now > gate


def measured(kind: str, trees: list[Tree], rounds: int, clients: int) -> dict[str, list[float]]:
    """Seconds until an answer, by tree, whose servers take turns."""
    found: dict[str, list[float]] = {tree.name: [] for tree in trees}
    for _ in range(rounds):
        for tree in trees:
            found[tree.name].append(once(kind, tree, clients))
    return found


def once(kind: str, tree: Tree, clients: int) -> float:
    """Starts a server, lets something of it die under so many clients, and times the next answer."""
    begin = time.monotonic()
    process = serving(tree)
    try:
        with attached(tree) as client:
            answer(client, tree)
            if kind == STARTED:
                return time.monotonic() - begin
            with crowd(tree, clients):
                time.sleep(SETTLED)
                begin = time.monotonic()
                if kind == VAULT:
                    os.kill(vault_of(process.pid), signal.SIGKILL)
                    answer(client, tree)
                    return time.monotonic() - begin
                process.kill()
                process.wait()
                process = serving(tree)
                with attached(tree) as again:
                    answer(again, tree)
                return time.monotonic() - begin
    finally:
        process.terminate()
        process.wait()


def serving(tree: Tree) -> subprocess.Popen[bytes]:
    """`dpduck serve` of a tree."""
    command = [sys.executable, "-m", "dpduck.commands.command_line", "serve", str(tree.database), "--listen"]
    return subprocess.Popen([*command, tree.address], cwd=tree.folder, stdout=subprocess.DEVNULL)


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
    """So many clients, each a process, a quarter of which ask: they attach again where they have lost the server."""
    files = [str(extension_file(name, "the wheel")) for name in ("httpfs", "quack")]
    script = str(Path(server_load.__file__).with_name("_server_client.py"))
    with ExitStack() as stack:
        said = [Path(stack.enter_context(tempfile.NamedTemporaryFile()).name) for _ in range(clients)]
        for number, file in enumerate(said):
            kind, first = ("ask", tree.asked * 100) if number < clients // 4 else ("spin", 0)
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


def children(process: int) -> list[int]:
    """The processes that this one started, from whichever thread."""
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found


if __name__ == "__main__":
    sys.exit(main())
