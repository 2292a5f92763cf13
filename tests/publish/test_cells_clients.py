"""Every client adds up a published view of cells to the release's own margins: by its own sum, and without NULLs."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from dpduck.publish.publish import publish
from dpduck.server.flight.listener import FlightListener
from dpduck.server.limits import Limits
from tests.server.served import Served, open_served
from tests.server.shell import shell, shell_path
from tests.store.made_stores import made_store
from tests.support.postgres_server import binaries, postgres_server

CUBE = "SELECT ward, sex, count(*) AS n FROM visits GROUP BY CUBE (ward, sex)"
VIEWS = [
    f"CREATE PRIVATE VIEW cells OPTIONS (epsilon = 1, form = 'cells') AS {CUBE}",
    f"CREATE PRIVATE VIEW margins OPTIONS (epsilon = 1) AS {CUBE}",
]
"""The same release twice, so that the margins of one are what sums over the other must give."""
MARGIN = "SELECT ward, n FROM margins WHERE sex IS NULL AND ward IS NOT NULL ORDER BY ward"
SUMS = "SELECT ward, sum(n) AS n FROM cells GROUP BY ward ORDER BY ward"
Margin = dict[str, float]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_store(tmp_path_factory.mktemp("made"), VIEWS)


@pytest.fixture(scope="module")
def published(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("public") / "published.duckdb"
    publish(store, target)
    return target


@pytest.fixture(scope="module")
def margin(published: Path) -> Margin:
    with duckdb.connect(str(published), read_only=True) as reader:
        return as_margin(reader.execute(MARGIN).fetchall())


@pytest.fixture(scope="module")
def postgres(store: Path) -> Iterator[str]:
    pytest.importorskip("duckdb_extension_postgres_scanner", reason="the extension's wheel is not installed")
    with postgres_server() as uri:
        publish(store, uri)
        yield uri


def as_margin(rows: Iterable[Iterable[object]]) -> Margin:
    """Returns a client's answers by ward."""
    found = {str(ward): float(str(n)) for ward, n in rows}
    assert sorted(found) == ["w0", "w1", "w2", "w3", "w4", "w5"]
    return found


@pytest.mark.skipif(shell_path() is None, reason="the stock shell (duckdb-cli) is not installed")
def test_the_stock_shell(published: Path, margin: Margin) -> None:
    """Over the published file."""
    said, wrong = shell(f"ATTACH '{published}' AS p (READ_ONLY); USE p; {SUMS};")
    assert wrong == ""
    assert as_margin(list(csv.reader(io.StringIO(said)))[1:]) == pytest.approx(margin, rel=1e-9)


def test_pandas(published: Path, margin: Margin) -> None:
    """A data frame, read through SQLAlchemy, grouped and summed by pandas. No row has a NULL."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
    pytest.importorskip("duckdb_sqlalchemy", reason="duckdb-sqlalchemy is not installed")
    engine = sqlalchemy.create_engine(f"duckdb:///{published}", connect_args={"read_only": True})
    try:
        frame = pandas.read_sql("SELECT ward, sex, n FROM cells", engine)
    finally:
        engine.dispose()
    assert len(frame) == 12 and not frame.isna().any().any()
    assert as_margin(frame.groupby("ward")["n"].sum().items()) == pytest.approx(margin, rel=1e-9)


@pytest.mark.slow
def test_adbc(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The ADBC driver over Flight SQL, of a served database, as a principal."""
    adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="the ADBC driver is not installed")
    served: Served = open_served(tmp_path_factory.mktemp("served"))
    with closing(served.service), closing(FlightListener("localhost:0", served.service, Limits())) as listener:
        given = {"username": "alice", "password": served.tokens["alice"]}
        address = listener.address.replace("grpc+tcp", "grpc")
        with adbc.connect(address, db_kwargs=given, autocommit=True) as connection, connection.cursor() as cursor:
            for view in VIEWS:
                quoted = view.replace("'", "''")
                cursor.execute(f"SELECT * FROM dp('{quoted}')")
                cursor.fetchall()
            cursor.execute(MARGIN)
            margin = {str(ward): float(n) for ward, n in cursor.fetchall()}
            cursor.execute(SUMS)
            assert {str(ward): float(n) for ward, n in cursor.fetchall()} == pytest.approx(margin, rel=1e-9)
            assert len(margin) > 1


def test_psql(postgres: str, margin: Margin) -> None:
    """PostgreSQL's own client, of a publication."""
    place = binaries()
    program = None if place is None else shutil.which("psql", path=f"{place}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        pytest.skip("psql is not installed")
    done = subprocess.run([program, postgres, "--csv", "-t", "-c", SUMS], capture_output=True, text=True, check=True)
    assert as_margin(csv.reader(io.StringIO(done.stdout))) == pytest.approx(margin, rel=1e-9)


READERS = {
    "ibis": (
        ("ibis-framework[duckdb]==12.0.0", f"duckdb=={duckdb.__version__}"),
        "cells = ibis.duckdb.connect(sys.argv[1], read_only=True).table('cells')\n"
        "frame = cells.group_by('ward').agg(n=cells.n.sum()).to_pandas()\n"
        "found = list(zip(frame['ward'], frame['n']))\n",
    ),
    "psycopg": (
        ("psycopg[binary]==3.3.9",),
        f"found = psycopg.connect(sys.argv[1]).execute({SUMS!r}).fetchall()\n",
    ),
}
"""Clients that have an environment of their own: its packages, and what they run."""


@pytest.mark.peer
@pytest.mark.parametrize("client", READERS)
def test_clients_of_their_own(
    client: str, published: Path, margin: Margin, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """ibis over the published file, psycopg over the publication in PostgreSQL."""
    packages, script = READERS[client]
    place = str(published) if client == "ibis" else request.getfixturevalue("postgres")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / client)], check=True)
    python = str(tmp_path / client / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-qq", *packages], check=True)
    script = f"import csv, sys, {client}\n{script}csv.writer(sys.stdout).writerows(found)\n"
    done = subprocess.run([python, "-W", "ignore", "-c", script, place], capture_output=True, text=True, check=True)
    assert as_margin(csv.reader(io.StringIO(done.stdout))) == pytest.approx(margin, rel=1e-9)
