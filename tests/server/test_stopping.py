"""A server that is ended at work, and one that cannot listen at the given address."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from dpduck.database.connection import verify_store
from dpduck.server.limits import Limits
from dpduck.server.quack import QuackListener
from dpduck.values.errors import Refusal
from tests.server.served import NoAudit, add_principals, count, make_clinic
from tests.server.shell import attach, eventually, needs_quack, serving, shell, start

HEAVY = (
    "SELECT sum(hash(a.range)) FROM range(3000000000) AS a",
    "SELECT count(*) FROM ages a, ages b, ages c, ages d, ages e, ages f, ages g, ages h, ages i",
    "SELECT count(*) FROM (SELECT a.range + b.range AS x FROM range(100000) AS a, range(100000) AS b)",
)


@pytest.mark.slow
@needs_quack
def test_a_server_at_work_stops_when_it_is_told(tmp_path: Path, own_state: Path) -> None:
    """Statements and releases at work, answers that nobody fetches: status 0, in a bounded time, the ledger whole."""
    database = make_clinic(tmp_path)
    tokens = add_principals(database)
    with serving(database, "--seconds", "600") as server:
        texts = [*HEAVY, "FROM range(5000000)", count("ward", "0.01"), "FROM ages"]
        begin = attach(server.address, tokens["bob"])
        scripts = [f"{begin}FROM clinic.query($o$ {text} $o$);" for text in texts]
        clients = [threading.Thread(target=shell, args=(script,)) for script in scripts]
        for client in clients:
            client.start()
        log = tmp_path / "clinic_private_audit.jsonl"
        assert eventually(lambda: log.read_text().count("connected") >= len(texts), 120)
        time.sleep(1.0)
        start = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - start < 60
        for client in clients:
            client.join()
    assert verify_store(database) >= 2


@pytest.mark.slow
@needs_quack
def test_the_audit_log_is_rotated_while_the_server_runs(tmp_path: Path, own_state: Path) -> None:
    """SIGHUP: notes go on in a new file."""
    database = make_clinic(tmp_path)
    tokens = add_principals(database)
    log = tmp_path / "clinic_private_audit.jsonl"
    with serving(database) as server:
        assert server.process.stdout is not None
        assert server.process.stdout.readline() == "principals: alice, bob, carol\n"
        assert server.process.stdout.readline() == f"audit log: {log}\n"
        log.rename(tmp_path / "moved")
        os.kill(server.process.pid, signal.SIGHUP)
        assert eventually(log.exists)
        assert shell(attach(server.address, tokens["carol"]) + "FROM clinic.ages;")[1] == ""
        assert {json.loads(line)["principal"] for line in log.read_text().splitlines()} == {"carol"}
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--listen", "none"], "there is nothing to listen on; accepted: --listen quack:localhost:9494, --flight"),
        pytest.param(
            ["--listen", "quack:localhost:99999"],
            "quack:localhost:99999 cannot be listened on; accepted: a free port",
            marks=needs_quack,
        ),
        pytest.param(
            ["--listen", "quack:a..b:9494", "--in-the-clear"],
            "quack:a..b:9494 cannot be listened on; accepted: a free",
            marks=needs_quack,
        ),
        (["--memory", "lots"], "'lots' is no amount of memory; accepted: 4GB or 512MiB"),
        (["--listen", "quack:0.0.0.0:9494"], "tokens would travel in the clear: Quack listens without TLS; accepted: "),
    ],
)
def test_what_cannot_be_served_is_refused(tmp_path: Path, own_state: Path, words: list[str], says: str) -> None:
    """Nothing to listen on, no amount of memory, tokens in the clear: one line, in words of dpduck."""
    database = make_clinic(tmp_path)
    command = [sys.executable, "-m", "dpduck.commands.command_line", "serve", str(database), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 1 and done.stderr.startswith(f"Error: {says}") and done.stderr.count("\n") == 1


@pytest.mark.slow
@needs_quack
def test_an_address_that_is_listened_on_is_refused(tmp_path: Path, state_directory: Path) -> None:
    """Quack and gRPC would share it, or be content with another address of localhost: clients would meet either."""
    folders = tmp_path / "served", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    served, other = (make_clinic(folder) for folder in folders)
    with serving(served) as server:
        port = server.address.rpartition(":")[2]
        for words, said in (
            (["--listen", server.address], server.address),
            (["--listen", "none", "--flight-sql", f"localhost:{port}"], f"localhost:{port}"),
        ):
            command = [sys.executable, "-m", "dpduck.commands.command_line", "serve", str(other), *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            assert done.stderr.startswith(f"Error: {said} is listened on already; accepted: a free port"), done.stderr
            assert done.returncode == 1 and done.stderr.count("\n") == 1


@needs_quack
def test_a_server_that_was_killed_has_its_address_again(tmp_path: Path, own_state: Path) -> None:
    """At once, while connections of its clients still fade: nobody listens there."""
    database = make_clinic(tmp_path)
    tokens = add_principals(database)
    with serving(database) as server:
        port = int(server.address.rpartition(":")[2])
        with closing(socket.create_connection(("127.0.0.1", port))):
            assert shell(attach(server.address, tokens["bob"]) + "FROM clinic.ages;")[1] == ""
            server.stop(signal.SIGKILL)
            again = start(database, address=server.address)
        assert again.stop() == 0
        for pipe in filter(None, (again.process.stdout, again.process.stderr)):
            pipe.close()


def test_beyond_this_machine_needs_a_word() -> None:
    """The owner may say that somebody else sees to it that nobody listens."""
    with pytest.raises(Refusal, match="in the clear"):
        QuackListener("quack:127.0.0.2:9494", NoAudit(), Limits())
    assert QuackListener("quack:127.0.0.2:9494", NoAudit(), Limits(), in_the_clear=True).address
