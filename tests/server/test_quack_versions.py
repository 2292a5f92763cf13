"""Quack of DuckDB 1.5 and 2.0: where it comes from, and how it is told to listen.

No wheel has Quack of 2.0, so its arguments are checked as text here, and are not run.
"""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from dpduck.publish.extensions import extension_file
from dpduck.server import Tls, quack
from dpduck.server.limits import Limits
from dpduck.server.quack import EXTENSIONS, QuackListener, installing, serving_options
from dpduck.store.attaching import copying
from dpduck.values.errors import Refusal
from tests.server.served import NoAudit, add_principals, count, make_clinic
from tests.server.shell import attach, needs_quack, shell, start

TLS = Tls(Path("it's.pem"), Path("key.pem"))


def test_beyond_this_machine_needs_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quack of 1.5 has no TLS. That of 2.0 gets the owner's certificate, and never makes one by itself."""
    elsewhere = "quack:clinic.example.org:9494"
    monkeypatch.setattr(quack, "OF_1_5", True)
    with pytest.raises(Refusal, match="in the clear"):
        QuackListener(elsewhere, NoAudit(), Limits(), tls=TLS)
    monkeypatch.setattr(quack, "OF_1_5", False)
    assert QuackListener(elsewhere, NoAudit(), Limits(), tls=TLS).address == elsewhere
    with pytest.raises(Refusal, match="in the clear"):
        QuackListener(elsewhere, NoAudit(), Limits())


@pytest.mark.parametrize(
    ("is_local", "tls", "options"),
    [
        (True, None, ""),
        (True, TLS, ""),
        (False, None, ", allow_other_hostname := true, disable_ssl := true"),
        (False, TLS, ", allow_other_hostname := true, ssl_cert_file := 'it''s.pem', ssl_key_file := 'key.pem'"),
    ],
)
def test_what_quack_is_told(is_local: bool, tls: Tls | None, options: str) -> None:
    assert serving_options(is_local, tls) == options


def test_without_quack_the_message_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("dpduck.publish.extensions._package_file", lambda _name: None)
    with duckdb.connect() as con, pytest.raises(Refusal, match=r"INSTALL httpfs; INSTALL quack") as caught:
        QuackListener("quack:localhost:9494", NoAudit(), Limits()).prepare(con)
    assert ("FROM core_nightly" in str(caught.value)) == duckdb.__version__.startswith("1.")
    assert installing("1.5.4").endswith("which puts DuckDB 1.5.5 in the place of this one")
    assert installing("2.0.1").endswith(f"that reads no file that 2.0.1 wrote: first {copying('clinic.duckdb')}")


@needs_quack
@pytest.mark.slow
def test_a_server_takes_what_duckdb_installed(tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no package has Quack: the server says from which folder it is, and the stock shell asks as ever."""
    database, home, hidden = make_clinic(tmp_path), tmp_path / "home", tmp_path / "hidden"
    home.mkdir()
    install = "".join(f"INSTALL '{extension_file(name, '')}'; " for name in EXTENSIONS)
    for name in EXTENSIONS:  # an empty package before the real one
        (hidden / f"duckdb_extension_{name}").mkdir(parents=True)
        (hidden / f"duckdb_extension_{name}" / "__init__.py").write_text("")
    environment = {"HOME": str(home), "PYTHONPATH": f"{hidden}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    with monkeypatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(home))  # which is the shell's home
        shell(install)
    token = add_principals(database)["alice"]
    server = start(database, environment=environment)
    try:
        lines = [server.process.stdout.readline() for _ in range(3)] if server.process.stdout else []
        assert lines[2].startswith(f"Quack of DuckDB {duckdb.__version__}, from DuckDB's own folder {home}/.duckdb/")
        told, errors = shell(attach(server.address, token) + f"FROM clinic.query($${count('ward', '1')}$$);")
        assert errors == "" and len(told.splitlines()) > 3
    finally:
        assert server.stop() == 0
        for pipe in filter(None, (server.process.stdout, server.process.stderr)):
            pipe.close()


@needs_quack
def test_no_extension_of_strangers_is_loaded() -> None:
    """Before Quack is loaded, DuckDB is told to take its own developers' signatures alone. The source is named."""
    listener = QuackListener("quack:localhost:9494", NoAudit(), Limits())
    with duckdb.connect() as con:
        listener.prepare(con)
        assert con.execute("SELECT current_setting('allow_community_extensions')").fetchone() == (False,)
    assert listener.source == f"Quack of DuckDB {duckdb.__version__}, from the package duckdb-extension-quack"
