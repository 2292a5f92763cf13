"""Arrow Flight SQL as its clients see it: the ADBC driver, and pyarrow's own client for what drivers do not do."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from dpduck.server.flight.listener import FlightListener
from dpduck.server.flight.statements import Statements, read_any, write_any
from dpduck.server.limits import Limits
from dpduck.values.errors import Refusal
from tests.server.served import CANARY, WRONG_CASTS, Served, ask, count
from tests.server.shell import eventually

GUIDE = Path(__file__).resolve().parent.parent.parent / "docs" / "flight_sql.md"
adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="the ADBC driver for Flight SQL is not installed")


@pytest.fixture(scope="module")
def listener(served: Served) -> Iterator[FlightListener]:
    opened = FlightListener("localhost:0", served.service, Limits())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def alice(served: Served, listener: FlightListener) -> Iterator[Any]:
    options = {"username": "alice", "password": served.tokens["alice"]}
    with adbc.connect(uri(listener), db_kwargs=options, autocommit=True) as connection:
        yield connection


@pytest.fixture
def raw(listener: FlightListener) -> Iterator[flight.FlightClient]:
    client = flight.FlightClient(listener.address)
    yield client
    client.close()


def uri(listener: FlightListener) -> str:
    return listener.address.replace("grpc+tcp", "grpc")


def rows(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def refused(connection: Any, served: Served, sql: str) -> str:
    """The line of a refusal. Nothing is charged and nothing leaks."""
    before = served.spent()
    with pytest.raises(Exception, match="accepted: ") as caught:
        rows(connection, sql)
    assert served.spent() == before
    message = str(caught.value)
    assert CANARY not in message and "Traceback" not in message and "\n" not in message
    return message


def options(token: str) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])


def command(name: str, fields: dict[int, int | bytes] | None = None) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(write_any(name, fields or {}))


def test_released_tables_are_read(alice: Any, served: Served) -> None:
    """An ADBC client reads private views, also under the names that the catalog gives."""
    wanted = sorted(served.rows("alice", "FROM ages"))
    for name in ("ages", "private.ages", 'private."main"."ages"', '"main"."ages"'):
        assert sorted(rows(alice, f"SELECT * FROM {name}")) == wanted
    assert rows(alice, "SELECT count(*) AS c FROM ward_cube WHERE ward IS NULL") == [(3,)]
    plain, spent = "SELECT ward, count(*) AS n FROM visits WHERE sex = 1 GROUP BY ward ORDER BY n", served.spent()
    assert rows(alice, plain) == served.rows("alice", f"FROM dp_known($$ {plain} $$)")
    assert served.spent() == spent, "a plain SELECT over a private table is what is known of it"


def test_statements_end_as_one_likes(alice: Any) -> None:
    """With a semicolon or a comment, as over Quack, also where a runner answers."""
    for sql in ("FROM ages", "SELECT count(*) FROM ages AS a, ages AS b"):
        assert rows(alice, f"{sql};") == rows(alice, f"{sql} -- all of them") == rows(alice, sql)


def test_the_catalog_lists_private_views(alice: Any) -> None:
    """BI tools list catalogs, schemas, tables and columns."""
    found = alice.adbc_get_objects(depth="all").read_all().to_pylist()
    assert [entry["catalog_name"] for entry in found] == ["private"]
    (schema,) = found[0]["catalog_db_schemas"]
    tables = {table["table_name"]: table for table in schema["db_schema_tables"]}
    assert {"ages", "ward_cube"} <= set(tables) and schema["db_schema_name"] == "main"
    assert [column["column_name"] for column in tables["ward_cube"]["table_columns"]] == [
        "sex",
        "ward",
        "n",
        "n_stderr",
        "grouping_level",
    ]
    some = alice.adbc_get_objects(depth="tables", table_name_filter="ag%").read_all().to_pylist()
    names = [table["table_name"] for table in some[0]["catalog_db_schemas"][0]["db_schema_tables"]]
    assert names == ["ages"]
    assert alice.adbc_get_table_types() == ["TABLE"]
    assert alice.adbc_get_table_schema("ages").names == ["age", "n", "n_stderr"]
    info = alice.adbc_get_info()
    assert info["vendor_name"] == "dpduck"


def test_the_catalog_lists_tables_that_one_may_ask_about(served: Served, raw: flight.FlightClient) -> None:
    """In no catalog, with their columns. Nobody sees a table that is not theirs, and nothing is charged."""
    before, listed = served.spent(), {}
    for who in ("alice", "bob", "carol"):
        given = options(served.tokens[who])
        info = raw.get_flight_info(command("CommandGetTables", {5: 1}), given)
        found = raw.do_get(info.endpoints[0].ticket, given).read_all().to_pylist()
        private = {row["table_name"]: row for row in found if row["catalog_name"] is None}
        assert {"ages", "ward_cube"} <= {row["table_name"] for row in found if row["catalog_name"] == "private"}
        listed[who] = set(private)
        if who == "alice":
            columns = pa.ipc.read_schema(pa.py_buffer(private["visits"]["table_schema"]))
            assert {"sex", "age", "ward"} <= set(columns.names)
    assert "visits" in listed["alice"] & listed["bob"] and "visits" not in listed["carol"]
    assert served.spent() == before


def test_schema_probes_never_charge(alice: Any, served: Served) -> None:
    """Looking at the columns of a dp() statement, prepared or not, leaves the ledger as it is."""
    before = served.spent()
    sql = f"SELECT ward, n + 1 AS more FROM ({count('ward', '0.03')})"
    with alice.cursor() as cursor:
        schema = cursor.adbc_execute_schema(sql)
        assert schema.names == ["ward", "more"]
        cursor.adbc_prepare(sql)
        view = (
            "CREATE PRIVATE VIEW probed OPTIONS (epsilon = 0.01) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
        )
        assert cursor.adbc_execute_schema(ask(view)).names == ["status"]
    assert served.spent() == before
    with alice.cursor() as cursor:
        cursor.execute(sql)
        answer = cursor.fetch_arrow_table()
    assert answer.schema.types == schema.types and answer.num_rows == 6
    assert len(served.spent()) == len(before) + 1
    assert served.spent()[-1][1] == "alice"


def test_bare_statements_are_charged_when_they_run(alice: Any, served: Served) -> None:
    """Their columns and prepared statements are free. docs/flight_sql.md has a statement of each kind, in order."""
    (block,) = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    statements = [line.replace("epsilon = 0.1", "epsilon = 0.013") for line in block.splitlines()]
    asks, explains, makes, wraps, drops = statements
    before = served.spent()
    with alice.cursor() as cursor:
        for statement, names in ((asks, ["sex", "n"]), (makes, ["status"]), (f"-- x\n{asks}", ["sex", "n"])):
            assert cursor.adbc_execute_schema(statement).names == names
            cursor.adbc_prepare(statement)
        assert len(cursor.adbc_execute_schema(explains).names) > 10
        assert len(rows(alice, explains)) > 1
    assert served.spent() == before
    assert len(rows(alice, asks)) == 2
    assert len(served.spent()) == len(before) + 1 and served.spent()[-1][1] == "alice"
    assert len(rows(alice, wraps)) == 1 and rows(alice, asks.rstrip(";")) == rows(alice, f"/* again */ {asks}")
    assert len(served.spent()) == len(before) + 1
    assert rows(alice, makes) == [("private.by_sex is ready",)] and len(rows(alice, "FROM by_sex")) == 2
    rows(alice, drops)
    refused(alice, served, "FROM by_sex")


def test_the_same_statement_is_free(alice: Any, served: Served) -> None:
    """A statement is charged once, however often a driver asks for it."""
    first = rows(alice, count("sex", "0.02"))
    before = served.spent()
    assert rows(alice, count("sex", "0.02")) == first
    assert served.spent() == before


def test_a_view_that_is_made_over_flight_sql_is_read(alice: Any, served: Served) -> None:
    """CREATE PRIVATE VIEW is a query here. The view is in the catalog at once."""
    made = "CREATE PRIVATE VIEW flown OPTIONS (epsilon = 0.05) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
    assert rows(alice, ask(made)) == [("private.flown is ready",)]
    assert len(rows(alice, "FROM private.main.flown")) == 2
    assert alice.adbc_get_table_schema("flown").names == ["sex", "n", "n_stderr"]
    rows(alice, ask("DROP PRIVATE VIEW flown"))
    refused(alice, served, "FROM flown")


def test_statements_pass_the_gate(alice: Any, served: Served) -> None:
    """As over Quack, a refusal is one line. Nothing is charged or leaked, and no right of the owner is used."""
    statement, owner = "this statement is refused", "this statement is the data owner's"
    for sql, reason in (
        ("FROM read_csv('/etc/passwd')", "the table function 'read_csv' is not on the list"),
        ("SELECT * FROM secret", "there is no private view 'secret'"),
        ("SELECT 1; SELECT 2", "two statements in one text"),
        ("COPY ages TO '/tmp/x'", statement),
        ("ATTACH ':memory:' AS x", statement),
        ("SELECT * FROM duckdb_secrets()", "the table function 'duckdb_secrets' is not on the list"),
        ("FROM visits", "no aggregate over private rows"),
        ("FROM clinic.main.visits", "no aggregate over private rows"),
        ("SELECT * FROM clinic.main.secret", "there is no private view 'clinic.main.secret'"),
        ("FROM memory.main.visits", "the table 'memory.main.visits' is not served"),
        ("CREATE TABLE x AS FROM ages", statement),
        ("(" * 10_000, "the statement is nested too deeply"),
        ("SELECT $1", "a parameter is refused"),
        (ask("DROP PRIVACY POLICY ON visits"), owner),
        ("DROP PRIVACY POLICY ON visits", owner),
        ("EXPLAIN ALTER PRIVACY POLICY ON visits NEW EPOCH;", owner),
        ("DROP PRIVATE VIEW ages", "the private view 'ages' belongs to somebody else"),
        (ask("ALTER PRIVACY POLICY ON visits NEW EPOCH"), owner),
        (ask("SELECT count(*) FROM visits"), "the statement is not annotated"),
        (ask("DROP PRIVATE VIEW ages"), "the private view 'ages' belongs to somebody else"),
        ("FROM dp_check('visits')", owner),
        ("FROM dp_trial('SELECT 1')", owner),
    ):
        assert f"{reason}; accepted: " in refused(alice, served, sql), sql[:100]


def test_wrong_casts_are_refused_in_one_line(alice: Any, served: Served) -> None:
    """DuckDB's own texts have several lines. The hint says what to change, since the same statement fails again."""
    for sql in WRONG_CASTS:
        said = refused(alice, served, sql)
        assert "DuckDB does not accept this" in said or "accepted: expressions that every value" in said, said


def test_tokens_are_needed(served: Served, listener: FlightListener, raw: flight.FlightClient) -> None:
    """No token, a wrong one, somebody else's name: one refusal for all, before anything is read."""
    probe = command("CommandGetTables")
    for headers in ([], [(b"authorization", b"Bearer x")], [(b"authorization", b"Basic %%%")],
                    [(b"authorization", b"Basic " + base64.b64encode(b"bob:" + served.tokens["alice"].encode()))],
                    [(b"authorization", f"Bearer {served.tokens['alice']}".encode()), (b"authorization", b"Bearer x")],
                    [(b"authorization", b"Basic /////w==")]):  # fmt: skip
        for call in (raw.get_flight_info, raw.get_schema):
            with pytest.raises((flight.FlightUnauthenticatedError, OSError), match="no such token; accepted: "):
                call(probe, flight.FlightCallOptions(headers=headers))
    with pytest.raises(Exception, match="no such token"):
        adbc.connect(uri(listener), db_kwargs={"username": "alice", "password": "guess"}, autocommit=True)
    header, value = raw.authenticate_basic_token("alice", served.tokens["alice"])
    assert (
        raw.get_flight_info(probe, flight.FlightCallOptions(headers=[(header, value)])).schema.names[0]
        == "catalog_name"
    )
    assert any(line["event"] == "turned away" for line in served.audited())
    assert served.tokens["alice"] not in served.log.read_text(encoding="utf-8")


def test_a_revoked_token_ends_at_once(served: Served, raw: flight.FlightClient) -> None:
    """A revocation counts for the next call, also for a result that waits to be fetched."""
    token = served.service.book.add("dave")
    info = raw.get_flight_info(command("CommandStatementQuery", {1: b"FROM ages"}), options(token))
    served.service.book.revoke("dave")
    with pytest.raises(flight.FlightUnauthenticatedError):
        raw.do_get(info.endpoints[0].ticket, options(token)).read_all()


def test_a_ticket_of_another_gives_nothing(served: Served, raw: flight.FlightClient) -> None:
    """A ticket is no right: its bearer passes the gate as themselves."""
    statement = write_any("CommandStatementQuery", {1: count("age", "0.04").encode()})
    info = raw.get_flight_info(flight.FlightDescriptor.for_command(statement), options(served.tokens["alice"]))
    ticket = info.endpoints[0].ticket
    with pytest.raises(flight.FlightError, match="carol may not ask about 'visits'"):
        raw.do_get(ticket, options(served.tokens["carol"])).read_all()
    before = served.spent()
    for _ in range(2):  # used up, it is asked again, which is free
        assert raw.do_get(ticket, options(served.tokens["alice"])).read_all().num_rows == 10
    assert served.spent() == before


@pytest.mark.parametrize(
    ("name", "fields"),
    [("CommandStatementUpdate", {1: b"DELETE FROM ages"}), ("CommandPreparedStatementQuery", {1: b"FROM ages"}),
     ("CommandStatementIngest", {2: b"ages"}), ("CommandStatementSubstraitPlan", {})],
)  # fmt: skip
def test_nothing_is_taken_in(
    served: Served, raw: flight.FlightClient, name: str, fields: dict[int, int | bytes]
) -> None:
    """Updates, parameters, uploads and plans are refused in one line."""
    with pytest.raises(flight.FlightError, match="accepted: ") as caught:
        writer, _ = raw.do_put(command(name, fields), pa.schema([("x", pa.int64())]), options(served.tokens["alice"]))
        writer.write_batch(pa.record_batch({"x": pa.array([1])}))
        writer.done_writing()
        writer.close()
    assert "Traceback" not in str(caught.value)


def test_other_calls_are_refused(served: Served, raw: flight.FlightClient) -> None:
    """Paths, unknown actions, malformed messages and exchanges: one line, no traceback, no file names."""
    given = options(served.tokens["alice"])
    calls = [
        lambda: raw.get_flight_info(flight.FlightDescriptor.for_path("ages"), given),
        lambda: raw.get_flight_info(flight.FlightDescriptor.for_command(b"\xff\xff"), given),
        lambda: raw.get_flight_info(command("CommandNothing"), given),
        lambda: raw.do_get(flight.Ticket(b"\x00"), given).read_all(),
        lambda: raw.do_get(flight.Ticket(write_any("TicketStatementQuery", {1: b"short"})), given).read_all(),
        lambda: list(raw.do_action(flight.Action("BeginTransaction", b""), given)),
        lambda: list(raw.do_action(flight.Action("CreatePreparedStatement", b"\x0a"), given)),
        lambda: raw.do_exchange(command("CommandStatementQuery"), given)[1].read_all(),  # noqa: PLW0108
    ]
    for call in calls:
        with pytest.raises(flight.FlightError, match="accepted: ") as caught:
            call()
        assert "Traceback" not in str(caught.value) and ".py" not in str(caught.value)


def test_catalog_commands_have_the_shapes_of_the_standard(served: Served, raw: flight.FlightClient) -> None:
    """GetSchema, GetFlightInfo and DoGet of every catalog command agree."""
    given = options(served.tokens["bob"])
    for name in ("GetSqlInfo", "GetCatalogs", "GetDbSchemas", "GetTables", "GetTableTypes", "GetXdbcTypeInfo",
                 "GetPrimaryKeys", "GetExportedKeys", "GetImportedKeys", "GetCrossReference"):  # fmt: skip
        asked = command(f"Command{name}")
        info = raw.get_flight_info(asked, given)
        table = raw.do_get(info.endpoints[0].ticket, given).read_all()
        assert raw.get_schema(asked, given).schema == info.schema == table.schema, name
    some = raw.get_flight_info(command("CommandGetSqlInfo", {1: 3}), given)
    ((number, value),) = [
        tuple(row.values()) for row in raw.do_get(some.endpoints[0].ticket, given).read_all().to_pylist()
    ]
    assert (number, value) == (3, True)
    elsewhere = raw.get_flight_info(command("CommandGetTables", {1: b"other"}), given)
    assert raw.do_get(elsewhere.endpoints[0].ticket, given).read_all().num_rows == 0
    (made,) = list(raw.do_action(flight.Action("CreatePreparedStatement", write_any(
        "ActionCreatePreparedStatementRequest", {1: b"FROM ages"})), given))  # fmt: skip
    assert read_any(made.body.to_pybytes()).name == "ActionCreatePreparedStatementResult"


def test_many_readers_at_once(served: Served, listener: FlightListener) -> None:
    """Eight clients read and ask at the same time. Each gets the same rows."""

    def read(_number: int) -> list[Any]:
        given = {"username": "bob", "password": served.tokens["bob"]}
        with adbc.connect(uri(listener), db_kwargs=given, autocommit=True) as connection:
            return [sorted(rows(connection, "FROM ages")) for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read, range(8)))
    assert all(table == found[0][0] for tables in found for table in tables)


def test_results_that_are_given_up_make_room(served: Served) -> None:
    """Open results are counted. A place is free again when its reader goes away."""
    statements = Statements(served.service, Limits(running=1))
    alice = served.service.book.find("alice")
    for _ in range(3):
        first, second = (statements.run(alice, "FROM ages")[0] for _ in range(2))
        _, batches = statements.stream(alice, first)
        with pytest.raises(Refusal, match="too many results are read at once; accepted: 1 at a time"):
            statements.stream(alice, second)
        del batches
    assert sum(batch.num_rows for batch in statements.stream(alice, second)[1]) == 10


def test_readers_of_one_leave_places_for_others(served: Served) -> None:
    """So many results at once are of one principal, and others are read meanwhile."""
    statements = Statements(served.service, Limits(running_each=1))
    alice, bob = served.service.book.find("alice"), served.service.book.find("bob")
    _, batches = statements.stream(alice, statements.run(alice, "FROM ages")[0])
    with pytest.raises(Refusal, match="too many results are read at once; accepted: 1 at a time"):
        statements.stream(alice, statements.run(alice, "FROM ages")[0])
    assert sum(batch.num_rows for batch in statements.stream(bob, statements.run(bob, "FROM ages")[0])[1]) == 10
    del batches


def test_addresses_beyond_this_machine_need_tls(served: Served) -> None:
    """Tokens do not travel in the clear. A taken port and a wrong address are refused in one line."""
    for address, reason in (
        ("0.0.0.0:32010", "in the clear"),
        ("nonsense", "no address"),
        ("localhost:99999", "no address"),
    ):
        with pytest.raises(Refusal, match=reason):
            FlightListener(address, served.service, Limits())


@pytest.mark.slow
def test_a_cancel_reaches_the_statement(served: Served, listener: FlightListener, raw: flight.FlightClient) -> None:
    """A client that does not wait any longer: its statement ends at once, and its place is free."""
    served.rows("bob", "SELECT count(*) FROM ages AS a JOIN ages AS b USING (age)")
    heavy = b"SELECT sum(hash(a.range)) FROM range(3000000000000) AS a"
    places = served.service.public._runners._places
    header = [(b"authorization", f"Bearer {served.tokens['bob']}".encode())]
    start = time.monotonic()
    with pytest.raises(flight.FlightTimedOutError):
        raw.get_flight_info(
            command("CommandStatementQuery", {1: heavy}), flight.FlightCallOptions(timeout=2.0, headers=header)
        )
    assert eventually(lambda: places._taken["bob"] == 0, 20)
    assert time.monotonic() - start < Limits().seconds - 5
    assert any("gave the statement up" in line.get("why", "") for line in served.audited())


def test_enums_arrive_as_texts_also_inside_of_lists_structs_and_maps(alice: Any) -> None:
    """A stream has no dictionaries, which a client would want before its rows: the twin of a table with an ENUM."""
    one = "CAST('a' AS ENUM('a', 'b'))"
    found = rows(alice, f"SELECT {one} AS e, [{one}] AS l, {{'x': {one}}} AS s, MAP {{{one}: {one}}} AS m")
    assert found == [("a", ["a"], {"x": "a"}, [("a", "a")])]
