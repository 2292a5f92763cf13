"""A served clinic with a prepared table: the same answers, and no client or reader sees its rows anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.publish.publish import publish
from tests.server.served import CANARY, Served, ask, catalog, make_clinic, open_served, serving_flight
from tests.server.statement_lists import statements

ATTACKS, HONEST = statements("attacks.sql"), statements("honest.sql")
SELECT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01)"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, state_directory: Path) -> Iterator[Served]:
    opened = open_served(tmp_path_factory.mktemp("prepared"), prepared=True)
    yield opened
    opened.service.close()


def twin_file(database: Path) -> Path:
    (found,) = database.parent.glob("clinic_prepared_*.duckdb")
    return found


@pytest.mark.slow
def test_prepared_tables_are_asked_as_others(prepared: Served) -> None:
    """Statements of a principal are counted over the prepared rows: the canary's are in the file, and in no answer."""
    assert CANARY.encode() in twin_file(prepared.database).read_bytes()
    for text in HONEST:
        assert CANARY not in str(prepared.rows("alice", text)), text
    statement = f"{SELECT} ward, count(*) AS n FROM visits WHERE age > 20 GROUP BY ward"
    assert len(prepared.rows("alice", ask(statement))) > 1


def test_no_name_reaches_prepared_rows(prepared: Served) -> None:
    """Names of the file and its content are refused, outside of dp() and within, without any detail."""
    path = twin_file(prepared.database)
    nonce = path.stem.removeprefix("clinic_prepared_")
    names = (
        f"'{path}'", f'"{path}"', f"dpduck_{nonce}.main.twin", f"dpduck_{nonce}.twin", "twin", "main.twin", "header",
        f"clinic_prepared_{nonce}.main.twin", f"{path.stem}.twin", "private.dpduck.prepared", "dpduck.prepared",
        "dpduck_public", "dpduck_public.main.wards", f"read_duckdb('{path}')",
    )  # fmt: skip
    for name in names:
        for text in (f"FROM {name}", ask(f"{SELECT} count(*) FROM {name}")):
            assert "accepted: " in prepared.refused("bob", text), text
    for text in ATTACKS[:60]:
        assert CANARY not in prepared.refused("alice", text)


def test_no_listing_and_no_log_has_prepared_rows(prepared: Served) -> None:
    """Neither the public database's catalog nor the audit log. When it was prepared is public."""
    with prepared.service.public.cursor() as cursor:
        assert not any("twin" in name or "dpduck_" in database for database, name in catalog(cursor))
    assert CANARY not in prepared.log.read_text(encoding="utf-8")
    (status,) = prepared.rows("alice", "SELECT prepared_at IS NOT NULL FROM dp_policies()")
    assert status == (True,)


def test_publication_of_a_prepared_clinic(tmp_path: Path, own_state: Path) -> None:
    """Only releases are published. The window of the owner's connection lists no prepared table."""
    database = make_clinic(tmp_path, prepared=True)
    with dpduck.connect(database) as connection:
        listed = connection.execute("SELECT database_name FROM duckdb_databases() WHERE NOT internal").fetchall()
        assert sorted(name for (name,) in listed) == ["clinic", "private"]
        names = connection.execute("SELECT table_name FROM duckdb_tables() WHERE table_name = 'twin'").fetchall()
        assert names == []
    target = tmp_path / "published.duckdb"
    publish(database.with_name("clinic_private.duckdb"), str(target))
    assert CANARY.encode() not in target.read_bytes()
    with duckdb.connect(str(target), read_only=True) as reader:
        found = reader.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    assert ("ages",) in found and ("twin",) not in found


@pytest.mark.slow
def test_serve_prepares_what_is_not_prepared(tmp_path: Path, own_state: Path) -> None:
    """`dpduck serve --prepare` prepares before it answers. Started again, it finds its table prepared."""
    database = make_clinic(tmp_path)
    kept = []
    for expected in ("is prepared: new questions are about its rows of 20",) * 2:
        with serving_flight(database, "--flight-sql", "localhost:0", "--prepare") as said:
            assert expected in said
        kept.append(twin_file(database))
    assert kept[0] == kept[1]
    with dpduck.connect(database) as connection:
        (row,) = connection.execute("SELECT prepared_at FROM dp_policies() WHERE prepared_at IS NOT NULL").fetchall()
        assert row[0]
