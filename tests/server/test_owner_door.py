"""The owner at work while the server runs: through a socket of the owner's own account, which the vault listens at."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from dpduck.server.local_vault import LocalVault
from dpduck.server.owner import LONGEST, door_path, owner_of_server
from dpduck.server.owner_door import OwnerDoor
from dpduck.store.store_files import StoreFiles, store_files
from tests.server.served import CUBE, add_principals, make_clinic, serving_flight
from tests.server.shell import eventually


@contextmanager
def door(database: Path) -> Iterator[Path]:
    """A vault with its door, in this process."""
    path = door_path(store_files(database, None))
    assert path is not None
    vault = LocalVault(database)
    opened = OwnerDoor(vault, path)
    try:
        yield path
    finally:
        opened.close()
        vault.close()


def run(*words: str | Path) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "dpduck.commands.command_line", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, done.stdout, done.stderr


def lines(*words: str | Path) -> list[dict[str, object]]:
    status, out, err = run(*words, "--format", "json")
    assert (status, err) == (0, ""), err
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.slow
def test_the_owners_commands_work_while_the_server_runs(tmp_path: Path, own_state: Path) -> None:
    """Budget, ledger, policies, questions, changes, views, verifying and publishing. The public database follows."""
    adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="the ADBC driver for Flight SQL is not installed")
    database = make_clinic(tmp_path)
    tokens, store = add_principals(database), tmp_path / "clinic_private.duckdb"
    with serving_flight(database, "--flight-sql", "localhost:0") as address:
        assert lines("budget", database)[0]["spent"] == 2
        assert [row["principal"] for row in lines("ledger", database)] == ["owner"] * 3
        made = f"CREATE PRIVATE VIEW mine OPTIONS (epsilon = 0.1) AS {CUBE}"
        assert lines("sql", database, made) == [{"status": "private.mine is ready"}]
        named = "SELECT DISTINCT table_name FROM dp_columns('visits')"
        assert lines("sql", database, named) == [{"table_name": "visits"}]
        assert len(lines("sql", database, "FROM dp_twin('visits', number_of_rows := 7)")) == 7
        assert len(lines("show", database, "mine")) == 21
        assert run("verify", database) == (0, "the ledger is whole: 4 entries\n", "")
        target = tmp_path / "out.duckdb"
        said = run("publish", store, "--to", target, "--view", "Ages", "--view", "mine")
        assert said == (0, f"2 private views in {target}: ages, mine\n", "")
        with duckdb.connect(str(target), read_only=True) as published:
            assert published.execute("SELECT name FROM dpduck_releases ORDER BY 1").fetchall() == [("ages",), ("mine",)]
            (comment,) = published.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'mine'").fetchall()
            assert comment[0].startswith("differentially private, epsilon = 0.1 (pure)")
        status, _, err = run("publish", store, "--to", target, "--view", "nosuch")
        assert status == 1 and err == "Error: there is no private view 'nosuch'; accepted: ages, mine, ward_cube\n"
        status, _, err = run("sql", database, "DROP PRIVACY POLICY ON nosuch")
        assert status == 1 and "accepted: " in err and err.count("\n") == 1
        given = {"username": "bob", "password": tokens["bob"]}
        uri = address.replace("grpc+tcp", "grpc")
        with adbc.connect(uri, db_kwargs=given, autocommit=True) as connection, connection.cursor() as cursor:

            def there() -> bool:
                try:
                    cursor.execute("SELECT count(*) FROM mine")
                except adbc.Error:
                    return False
                return bool(cursor.fetchall() == [(21,)])

            assert eventually(there)
    assert run("verify", database) == (0, "the ledger is whole: 4 entries\n", "")


def test_the_door_is_the_owners(tmp_path: Path, own_state: Path) -> None:
    """Its socket is closed to others, and ends with the server. A dead socket can be replaced."""
    database = make_clinic(tmp_path)
    with door(database) as path:
        assert path.is_socket() and path.stat().st_mode & 0o077 == 0
        owner = owner_of_server(store_files(database, None))
        assert owner is not None and owner.verify() == 3
        owner.close()
        with socket.socket(socket.AF_UNIX) as garbage:
            garbage.connect(str(path))
            garbage.sendall(b"\xff" * 64)
        other = owner_of_server(store_files(database, None))
        assert other is not None and other.call("budget", None).table.num_rows == 1
        other.close()
    assert not path.exists() and owner_of_server(store_files(database, None)) is None
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert owner_of_server(store_files(database, None)) is None
    with door(database):
        pass


@pytest.mark.skipif(os.getuid() != 0, reason="only root can take another account's place")
def test_another_account_is_turned_away(tmp_path: Path, own_state: Path) -> None:
    """Even where the file's mode would let it in: the system tells who is at the other end."""
    vault = LocalVault(make_clinic(tmp_path))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "door"
        opened = OwnerDoor(vault, path)
        path.chmod(0o777)
        script = (
            "import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); "
            "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(60); print(s.recv(1))"
        )
        done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
        opened.close()
    vault.close()
    assert done.stdout == "b''\n", done.stderr


def test_long_names_go_to_the_state_directory(tmp_path: Path, state_directory: Path) -> None:
    """The name of a socket is short on every system."""
    files = StoreFiles(tmp_path / ("x" * 120) / "s.duckdb", None)
    path = door_path(files)
    assert path is not None and path.parent == state_directory and len(os.fsencode(path)) <= LONGEST + 40
    assert door_path(StoreFiles(None, None)) is None
