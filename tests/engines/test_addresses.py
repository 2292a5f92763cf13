"""Addresses and sessions of engines: refusals, how soon they come, and their words."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main
from dpduck.database.functions import database_of
from dpduck.engines import listener
from dpduck.engines.listener import plain_address
from dpduck.engines.spark import SparkEngine, open_session
from dpduck.language.text.names import TableName
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import Caller
from dpduck.values.errors import Refusal
from tests.engines.conftest import Lake
from tests.support.engine_servers import Server
from tests.support.ports import free_port

ROWS = pa.table({"unit": [1, 2, 3], "kind": [0, 1, 1]})
POLICY = (
    "CREATE PRIVACY POLICY ON lake.db.{} (PRIVACY UNIT unit MAX ROWS 2, BUDGET (epsilon = 10), DOMAIN kind IN (0, 1))"
)
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) kind, count(*) FROM lake.db.{} GROUP BY kind"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@contextmanager
def silent_port() -> Iterator[int]:
    """A port where connections are taken, and nothing is said."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(20)
        yield listening.getsockname()[1]


def refused(address: str) -> str:
    with dpduck.connect() as con, pytest.raises(Refusal) as caught:
        dpduck.attach_spark(con, address, name="lake", tables=["db.visits"])
    return str(caught.value)


def test_an_address_without_a_server_is_refused_in_ten_seconds() -> None:
    """A closed port, an unknown host, and a port where nobody speaks the protocol. The token is in no message."""
    pytest.importorskip("pyspark", reason="the client of Spark Connect is not installed")
    assert listener.CONNECTS_SECONDS + listener.ANSWERS_SECONDS < 10
    accepted = "; accepted: sc://host:15002 of a server that runs"
    port = free_port()
    assert refused(f"sc://127.0.0.1:{port}/;token=secret") == f"nothing listens at sc://127.0.0.1:{port}{accepted}"
    assert refused("sc://nosuch.invalid:15002") == f"there is no host of sc://nosuch.invalid:15002{accepted}"
    with silent_port() as silent:
        began = time.monotonic()
        said = refused(f"sc://127.0.0.1:{silent}/;token=secret")
    assert said == f"no server of Spark Connect answers at sc://127.0.0.1:{silent}{accepted}"
    assert time.monotonic() - began < 60  # a client alone tries for minutes
    assert "this is no address of an engine" in refused("sc://")


def test_a_proxy_is_asked_for_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a proxy is set, this machine need not know the host, and connects to nothing itself."""
    asked = list[object]()

    def connect(*given: object, **_: object) -> socket.socket:
        asked.append(given)
        raise socket.gaierror

    monkeypatch.setattr(listener, "create_connection", connect)
    with pytest.raises(Refusal, match="there is no host of"):
        listener.require_listener("sc://nosuch.invalid:15002")
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:9")
    listener.require_listener("sc://nosuch.invalid:15002")
    assert len(asked) == 1


def test_another_session_may_not_see_a_table(server: Server) -> None:
    """The message names the address, and says that the session itself can be passed."""
    there = server.put("of_one_session", ROWS)
    if not server.address:
        pytest.skip("this engine has no address")
    address = server.address.partition("/;")[0]
    session = open_session(address)
    try:
        if address != server.address:  # on Sail each session has its own catalog
            with pytest.raises(Refusal) as caught:
                SparkEngine(session, f"{address}/;token=secret").describe(there)
            assert str(caught.value).startswith(
                f"the engine at {address} has no table {there} in this session: a session may not see tables that "
                "another session made; accepted: a table with rows of its own (MANAGED or EXTERNAL), named as "
                "schema.table, or attach_spark(con, session, ..) with the session that made it"
            )
        assert SparkEngine(server.session).describe(there).columns == (("unit", "BIGINT"), ("kind", "BIGINT"))
    finally:
        session.stop()


def test_a_query_of_a_stand_in_says_what_it_is(lake: Lake) -> None:
    """Rows in an engine are not counted as 0 here: each query fails, and names the statement that is meant."""
    lake.put(1, plain=ROWS)
    for query in (
        "SELECT count(*) FROM lake.db.plain", "FROM lake.db.plain",
        "SELECT sum(kind) FROM lake.db.plain WHERE unit = 1",
        "SELECT count(*) FROM lake.db.plain AS a JOIN lake.db.plain AS b USING (unit)", "SUMMARIZE lake.db.plain",
    ):  # fmt: skip
        with pytest.raises(duckdb.Error) as caught:
            lake.con.execute(query).fetchall()
        assert "lake.db.plain lies in the engine 'lake', and its rows are not read here; accepted: FROM dp($$" in str(
            caught.value
        )
    names = [row[:2] for row in lake.con.execute("DESCRIBE lake.db.plain").fetchall()]
    assert names == [("unit", "BIGINT"), ("kind", "BIGINT")]
    assert ("lake", "db", "plain") in [row[:3] for row in lake.con.execute("SHOW ALL TABLES").fetchall()]
    lake.con.execute("PREPARE later AS SELECT count(*) FROM lake.db.plain")
    lake.dp(POLICY.format("plain"))
    assert len(lake.dp(ASK.format("plain"))) == 2


def test_a_table_of_an_engine_that_is_not_attached(lake: Lake, tmp_path: Path) -> None:
    """In a new process the store knows the table. Statements, checks and policies say how to attach the engine."""
    database = tmp_path / "clinic.duckdb"
    there = lake.server.put("later", ROWS)
    with dpduck.connect(database) as con:
        dpduck.attach_spark(con, lake.server.session, name="lake", tables=[there], buckets=1)
        con.execute("FROM dp(?)", [POLICY.format("later")])
    told = r"lake.db.later lies in the engine 'lake', which is not attached; accepted: --engine lake=sc://host:15002 of"
    with dpduck.connect(database) as con:
        for call, text in (
            ("dp", ASK.format("later")), ("dp_explain", ASK.format("later")), ("dp_check", "lake.db.later"),
            ("dp", POLICY.format("later")), ("dp_columns", "lake.db.later"), ("dp_draft", "lake.db.later"),
        ):  # fmt: skip
            with pytest.raises(duckdb.Error, match=told):
                con.execute(f"FROM {call}(?)", [text])
        with pytest.raises(duckdb.Error, match=r"there is no table 'lake.db.nothing'"):
            con.execute("FROM dp(?)", [ASK.format("nothing")])
        assert len(con.execute("FROM dp_policies()").fetchall()) == 1


def test_who_may_not_ask_about_a_table_is_told_of_no_engine(lake: Lake) -> None:
    """A principal without the table gets no answer to whether it lies in an engine."""
    lake.put(1, hidden=ROWS)
    lake.dp(POLICY.format("hidden"))
    loaded, name = database_of(lake.con), TableName(("lake", "db", "hidden"))
    assert loaded is not None
    policies = loaded.engines._policies
    with lake.con.cursor() as cursor:
        for caller, told in (
            (None, "lake"),
            (Caller("owner", owner=True), "lake"),
            (Caller("alice", owner=False, tables=("lake.db.hidden",)), "lake"),
            (Caller("eve", owner=False, tables=("visits",)), None),
        ):
            assert Catalog(cursor, policies, None, caller).engine_of(name) == told


def test_an_address_is_told_without_what_follows_it() -> None:
    assert plain_address("sc://host:15002/;use_ssl=true;token=t") == "sc://host:15002"
    assert plain_address("sc://host") == plain_address("sc://host/") == "sc://host"


@pytest.mark.slow
def test_the_command_line_attaches_an_engine(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """dpduck sql, explain and check take --engine. Without it they name the option."""
    if not server.address:
        pytest.skip("this engine has no address")
    monkeypatch.setattr("dpduck.engines.tables.probe_engine", lambda engine, workers: engine)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    database = tmp_path / "clinic.duckdb"
    there = server.put("typed", ROWS)
    with dpduck.connect(database) as con:
        dpduck.attach_spark(con, server.session, name="lake", tables=[there], buckets=1)
        con.execute("FROM dp(?)", [POLICY.format("typed")])
    named, asked = f"lake={server.address}", ASK.format("typed")
    for words in (("sql", asked), ("sql", asked, "--dry-run"), ("explain", asked), ("check", "lake.db.typed")):
        command, *rest = words
        without = CliRunner().invoke(main, [command, str(database), *rest])
        assert without.exit_code == 1 and "--engine lake=sc://host:15002 of dpduck sql" in without.output
        ran = CliRunner().invoke(main, [command, str(database), *rest, "--engine", named])
        assert ran.exit_code == 0, ran.output
    again = CliRunner().invoke(main, ["sql", str(database), asked, "--engine", named, "--format", "csv"])
    assert len(again.output.splitlines()) == 3
    wrong = CliRunner().invoke(main, ["sql", str(database), asked, "--engine", "lake"])
    assert wrong.exit_code == 1 and "accepted: --engine lake=sc://host:15002" in wrong.output
