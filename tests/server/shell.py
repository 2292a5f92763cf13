"""A served clinic as users have it: `dpduck serve` as a process, the stock DuckDB shell as another."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import duckdb
import pytest

from dpduck.publish.extensions import extension_file
from dpduck.values.errors import Refusal
from tests.support.ports import free_port

STOCK = "1.5.5"
_PATIENCE = 600  # seconds for whatever must come: a busy machine is no failure
EXTENSIONS = ("httpfs", "quack")


def shell_path() -> Path | None:
    """The stock shell, which its package puts beside the interpreter."""
    beside = Path(sys.executable).with_name("duckdb")
    found = beside if beside.is_file() else shutil.which("duckdb")
    return None if found is None else Path(found)


def why_not() -> str:
    """Why Quack cannot be tested here. Empty where it can."""
    if duckdb.__version__ != STOCK:
        return f"Quack's wheels are for DuckDB {STOCK}, this is {duckdb.__version__}"
    try:
        for name in EXTENSIONS:
            extension_file(name, "the extension's wheel")
    except Refusal as refusal:
        return str(refusal)
    return "" if shell_path() is not None else "the stock shell (duckdb-cli) is not installed"


needs_quack = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can")


@dataclass
class Server:
    """A running `dpduck serve`."""

    process: subprocess.Popen[str]
    address: str

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(_PATIENCE)


def start(
    database: Path, *options: str, address: str = "", environment: Mapping[str, str] = MappingProxyType({})
) -> Server:
    """Serves on a free port. Waits until it says that it is ready."""
    wanted = address or f"quack:localhost:{free_port()}"
    command = [sys.executable, "-m", "dpduck.commands.command_line", "serve", str(database), "--listen", wanted]
    command += options
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    assert process.stdout is not None and process.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(_PATIENCE):
            process.kill()
            raise AssertionError("the server does not say that it is ready")
    line = process.stdout.readline().strip()
    if line != wanted:
        raise AssertionError(f"the server said {line!r} {process.stderr.read()!r}")
    return Server(process, wanted)


@contextmanager
def serving(database: Path, *options: str) -> Iterator[Server]:
    server = start(database, *options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)
        assert server.process.stdout is not None and server.process.stderr is not None
        server.process.stdout.close()
        server.process.stderr.close()


def attach(address: str, token: str) -> str:
    """Returns a user's first statements. The extensions come from files where nothing can be downloaded."""
    loads = "".join(f"LOAD '{extension_file(name, '')}'; " for name in EXTENSIONS)
    return f"{loads}ATTACH '{address}' AS clinic (TOKEN '{token}');\n"


def shell(script: str, *arguments: str, mode: str = "csv") -> tuple[str, str]:
    """Returns the stock shell's output for a script: answers and errors, without colours."""
    path = shell_path()
    assert path is not None
    environment = dict(os.environ, NO_COLOR="1", HOME=os.environ.get("DPDUCK_STATE_DIR", "/tmp"))
    done = subprocess.run(
        [str(path), f"-{mode}", "-init", "/dev/null", *arguments], input=script, capture_output=True, text=True,
        timeout=_PATIENCE, env=environment, check=False,
    )  # fmt: skip
    return _plain(done.stdout), _plain(done.stderr)


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def eventually(condition: object, seconds: float = 30.0) -> bool:
    """Whether a condition comes true."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False
