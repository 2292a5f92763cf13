"""Imports of a server's processes: without unused modules they begin sooner, and take less memory."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from dpduck.server import vault_process
from dpduck.server.idle_vault import Keeping, begin_idle_vault
from dpduck.server.runner_process import pack
from dpduck.values.errors import StoreError
from tests.server.served import add_principals, make_clinic, serving_flight
from tests.server.shell import eventually
from tests.support.processes import children

ENGINE = (
    "dpduck.kernel.door",
    "dpduck.kernel.noise",
    "dpduck.strategies",
    "dpduck.mechanisms",
    "dpduck.database.database",
)
"""What plans, counts and adds noise: all of it is the vault's."""


def test_the_process_that_clients_talk_to_imports_no_engine() -> None:
    """Only the vault, which begins beside it, loads the code that plans, counts and parses."""
    asked = "import dpduck.commands.listening, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert "dpduck.server.gate" in modules
    assert [name for name in modules if name.startswith((*ENGINE, "scipy", "sqlglot"))] == []


BEGINS = """
import subprocess, sys
def begin(command, **_options):
    print(command[2], *sys.modules)
    raise SystemExit
subprocess.Popen = begin
from dpduck.commands.command_line import main
main(["serve", sys.argv[1]])
"""
FRONT = ("dpduck.server.gate", "dpduck.server.vault_client", "duckdb", "pyarrow", "numpy", "sqlglot")
"""What the command serves with, and what takes most of the time of importing it."""


def test_the_vault_begins_before_the_command_imports_what_it_serves_with(tmp_path: Path) -> None:
    """The first process of dpduck serve is its vault's, which imports beside it: neither waits for the other."""
    database = tmp_path / "clinic.duckdb"
    database.touch()
    done = subprocess.run([sys.executable, "-c", BEGINS, str(database)], capture_output=True, text=True, check=True)
    begun, *modules = done.stdout.split()
    assert begun == "dpduck.server.vault_process" and "dpduck.server.idle_vault" in modules
    assert [name for name in modules if name.startswith((*ENGINE, *FRONT, "scipy"))] == []


def test_an_idle_vault_holds_nothing(tmp_path: Path) -> None:
    """A process that waits has no file of anybody's open, and ends without a word when its server is gone."""
    idle = begin_idle_vault()
    try:
        assert eventually(lambda: "duckdb" in Path(f"/proc/{idle.process.pid}/maps").read_text())
        opened = [str(file.readlink()) for file in Path(f"/proc/{idle.process.pid}/fd").iterdir()]
        assert [name for name in opened if ".duckdb" in name or "_secrets" in name] == []
        idle.pipe.close()
        assert idle.process.wait(60) == 0
    finally:
        idle.kill()


def test_the_engine_is_imported_when_it_is_asked_for() -> None:
    """`import dpduck` alone is quick. An unknown name is refused as anywhere."""
    asked = (
        "import dpduck, sys; before = 'dpduck.database' in sys.modules or 'connect' not in dir(dpduck); "
        "dpduck.connect; "
        "print(before, 'dpduck.database.connection' in sys.modules, hasattr(dpduck, 'disconnect'))"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_scipy_is_imported_part_by_part_when_it_is_used() -> None:
    """A fifth of the start of every command were parts of scipy that most statements do not need."""
    asked = "import dpduck.server.vault_process, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert "dpduck.database.database" in modules
    assert {"scipy.sparse", "scipy.linalg", "scipy.optimize", "scipy.special"} & set(modules) == set()


def test_a_vault_whose_server_is_gone_ends_without_a_word(tmp_path: Path, own_state: Path) -> None:
    """Where a server is refused its address before its vault is ready, its one line is all that is printed."""
    ours, theirs = socket.socketpair()
    told = {"database": str(make_clinic(tmp_path)), "store": None, "kindness": 0, "keeping": asdict(Keeping())}
    Connection(ours.detach()).send_bytes(pack(told))  # and is closed
    words = [sys.executable, "-m", "dpduck.server.vault_process"]
    done = subprocess.run(words, stdin=theirs.fileno(), capture_output=True, text=True, check=False)
    theirs.close()
    assert done.returncode == 0 and "Traceback" not in done.stderr


@pytest.mark.parametrize(("held", "named"), [("", "clinic"), ("_private", "the store of clinic")])
def test_a_vault_that_waits_for_a_file_says_so(
    held: str,
    named: str,
    tmp_path: Path,
    own_state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Says one line after a second while another process has the file, then refuses. Nothing where it is free."""
    clinic = make_clinic(tmp_path)
    keeping, path = asdict(Keeping()), clinic.with_stem(clinic.stem + held)
    script = f"import duckdb; c = duckdb.connect({str(path)!r}); print('open', flush=True); input()"
    monkeypatch.setattr(vault_process, "_OPENING", 2.0)
    monkeypatch.setattr(vault_process, "_SILENT", 0.5)
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"open\n"
        with pytest.raises(StoreError, match="another process"):
            vault_process._open_vault(clinic, None, keeping)
        other.communicate(b"\n")
    said = f"waiting up to 2 s for {named}.duckdb, which another process may have open\n"
    assert capsys.readouterr().err == said
    vault_process._open_vault(clinic, None, keeping).close()
    assert capsys.readouterr().err == ""


def processes(parent: int) -> list[int]:
    """A process and all that it began."""
    return [parent, *(found for child in children(parent) for found in processes(child))]


def command(process: int) -> str:
    """Returns the command line of a process."""
    return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is not installed")
def test_no_process_of_a_server_imports_pandas(tmp_path: Path) -> None:
    """DuckDB imports it at the first bound parameter, with 90 MB. The vault's workers hold private rows besides."""
    database = make_clinic(tmp_path)
    add_principals(database)
    with serving_flight(database, "--flight-sql", "localhost:0"):
        statement = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count(*) FROM visits WHERE age + 1 < 50"
        words = [sys.executable, "-m", "dpduck.commands.command_line", "sql", str(database), statement]
        subprocess.run(words, check=True, capture_output=True)
        served = [one for one in processes(os.getpid()) if "command_line serve" in command(one)]
        found = {one: Path(f"/proc/{one}/maps").read_text() for one in processes(served[0])}
        kinds = {one: command(one) for one in found}
    assert any("vault_process" in kind for kind in kinds.values())
    assert any("worker.py" in kind for kind in kinds.values())
    assert [kinds[one] for one, maps in found.items() if "/pandas/" in maps] == []
