"""Even with the gate removed by hand, the public database cannot read one private row."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from dpduck.server.gate import open_service
from dpduck.server.limits import Limits
from dpduck.server.quack import QuackListener
from dpduck.server.vault_client import VaultProcess
from tests.server.served import CANARY, NoAudit, Served, make_clinic
from tests.server.shell import attach, needs_quack, shell
from tests.server.statement_lists import statements
from tests.support.ports import free_port

READS = statements("public_reads.sql")
CHANGES = re.compile(r"(?i)(drop|detach|truncate|delete|update|set|use|attach|commit|rollback|abort)")
HEAVY = re.compile(r"(?i)000000|sleep|recursive|serve|quack_stop|checkpoint|vacuum")
LISTS = ("SELECT * FROM duckdb_secrets()", "FROM duckdb_logs()", "FROM duckdb_settings()", "FROM duckdb_tables()")


def test_without_the_gate_nothing_private_is_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cursor of its own: files, other databases, settings and Python's variables are out of reach."""
    private_frame = [CANARY]
    assert private_frame
    for file in (served.database, *served.database.parent.glob("clinic_private*"), Path(__file__)):
        for pattern in READS:
            statement = pattern.format(file=file, folder=served.database.parent)
            with served.service.public.cursor() as cursor, pytest.raises(duckdb.Error) as caught:
                pytest.fail(f"{statement} gives {cursor.execute(statement).fetchall()}")
            assert CANARY not in str(caught.value)
    assert not (served.database.parent / "out.csv").exists()


def test_without_the_gate_no_statement_shows_a_private_value(served: Served) -> None:
    """Every attack of the list that runs at all, and what lists the whole instance, shows released values alone."""
    texts = [text for text in statements("attacks.sql") if not CHANGES.match(text) and not HEAVY.search(text)]
    ran = 0
    for text in (*LISTS, *texts):
        with served.service.public.cursor() as cursor:
            try:
                cursor.execute("BEGIN")
                found = cursor.execute(text).fetchmany(1_000)
            except (duckdb.Error, UnicodeError) as error:
                assert CANARY not in str(error), text
                continue
            ran += 1
            assert CANARY not in repr(found), text
            assert not any(token in repr(found) for token in served.tokens.values()), text
    assert ran > 100


@pytest.mark.slow
@needs_quack
def test_a_server_whose_gate_lets_everything_pass(
    tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the protocol, with the authorization switched off: the server's process has no private file open."""
    database = make_clinic(tmp_path)
    listener = QuackListener(f"quack:localhost:{free_port()}", NoAudit(), Limits())
    monkeypatch.setattr(QuackListener, "_authorize", lambda self, session, text: text)
    monkeypatch.setattr(QuackListener, "_authenticate", lambda self, session, token, server: True)
    service = open_service(database, None, NoAudit(), Limits(), prepare=listener.prepare)
    try:
        listener.open(service.public, service.gate, service.book)
        script = attach(listener.address, "anybody") + "".join(
            f"FROM clinic.query($q$ {text} $q$);\n"
            for text in (f"FROM read_blob('{database}')", f"ATTACH '{database}' AS v", "FROM visits", "FROM secret")
        )
        for statement in script.splitlines()[1:]:
            out, err = shell(script.splitlines()[0] + "\n" + statement)
            assert out == "" and err != "" and CANARY not in err
        assert isinstance(service.vault, VaultProcess)
        ours, theirs = open_files(os.getpid()), open_files(service.vault._vault.process.pid)
        assert str(database) in theirs and str(database.with_name("clinic_private.duckdb")) in theirs
        assert not {path for path in ours if path.startswith(str(tmp_path))}
        listener.close()
    finally:
        service.close()


def open_files(process: int) -> set[str]:
    """The files that a process has open."""
    folder = Path(f"/proc/{process}/fd")
    if not folder.is_dir():
        pytest.skip("this system does not say which files a process has open")
    found = set()
    for entry in folder.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.add(str(entry.readlink()))
    return found
