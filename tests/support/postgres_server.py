"""Starts a private PostgreSQL server for tests from this machine's binaries, and skips where there are none."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl, the newest version's where there are several."""
    found = shutil.which("pg_ctl")
    if found is not None:
        return Path(found).resolve().parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    return places[-1].parent if places else None


def other_user() -> list[str]:
    """Returns words before a command that run it as another user, since PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        if shutil.which("setpriv"):
            return ["setpriv", f"--reuid={name}", "--clear-groups", "--regid", str(pwd.getpwnam(name).pw_gid)]
    pytest.skip("no PostgreSQL: it refuses to run as root, and there is no other user to run it as")


@contextmanager
def postgres_server() -> Iterator[str]:
    """Yields the URI of a server's database, with a password. The server ends with the test."""
    place = binaries()
    if place is None:
        pytest.skip("no PostgreSQL on this machine (apt-get install postgresql)")
    words = other_user()
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        data, port = Path(folder) / "data", free_port()
        secret = Path(folder) / "password"
        secret.write_text("secret4711\n")
        if words:
            shutil.chown(folder, user=words[1].partition("=")[2])
        secret.chmod(0o644)

        def run(*command: str, must: bool = True) -> None:
            done = subprocess.run(
                [*words, str(place / command[0]), *command[1:]],
                stdout=subprocess.DEVNULL,  # a pipe would stay open as long as the server runs
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                check=False,
            )
            if done.returncode and must:
                pytest.skip(f"no PostgreSQL: {command[0]} fails on this machine")

        run("initdb", "-D", str(data), "-U", "owner", "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync")
        settings = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder} -c fsync=off"
        run("pg_ctl", "-D", str(data), "-w", "-l", str(Path(folder) / "log"), "-o", settings, "start")
        try:
            yield f"postgresql://owner:secret4711@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop", must=False)
