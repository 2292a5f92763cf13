"""A name has one meaning: the object that was checked under it runs under it later, or nothing does."""

from __future__ import annotations

import re

import duckdb
import pytest
from pyarrow import flight

from dpduck.server.flight.listener import FlightListener
from dpduck.server.flight.statements import write_any
from dpduck.server.inspection import inspect
from dpduck.server.limits import Limits
from dpduck.server.syntax import Syntax
from dpduck.server.vault import ReleasedRows
from dpduck.store.releases import ReleaseStore
from dpduck.values.errors import DpduckError, Refusal
from tests.server.served import Served, ask, table_of
from tests.server.statement_lists import statements

MADE = "CREATE PRIVATE VIEW {} OPTIONS (epsilon = 0.0001) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
SYSTEM = ("sqlite_master", "pg_settings", "pg_attribute", "duckdb_tables", "Pragma_Database_List", "pg_type")
_TABLE = re.compile(r"(?:FROM|JOIN|PIVOT|,)\s+(?:/\*.*?\*/)?\"?(?:ages|ward_cube)\b", re.IGNORECASE)


def names_that_resolve() -> list[str]:
    """The catalog names of an empty DuckDB that a bare FROM finds."""
    found = []
    with duckdb.connect() as empty:
        listed = empty.execute(
            "SELECT DISTINCT view_name FROM duckdb_views() UNION FROM (VALUES ('tables'))"
        ).fetchall()
        for (name,) in listed:
            try:
                empty.sql(f"FROM {name} LIMIT 0")
            except duckdb.CatalogException:
                continue
            found.append(name)
    return found


def test_names_of_system_tables_are_no_names_of_views(served: Served) -> None:
    """Every name that an empty DuckDB resolves is refused, and others are not."""
    for name in SYSTEM:
        told = served.refused("bob", ask(MADE.format(name)))
        assert told == f"the name {name!r} is one of DuckDB's own tables; accepted: another name"
    store = ReleaseStore(duckdb.connect, "private")
    resolved = names_that_resolve()
    assert len(resolved) > 30 and {name.lower() for name in SYSTEM} <= set(resolved)
    assert all(store.means_something(name) for name in resolved)
    assert not any(store.means_something(name) for name in ("tables", "columns", "ages", "schemata"))


def test_what_runs_names_views_in_full() -> None:
    """Honest statements, however rewritten: no bare name of a view is left in the executed text."""
    syntax, looked = Syntax(), 0
    for text in statements("honest.sql"):
        sql = inspect(text, syntax).sql
        if not text.startswith("WITH ages AS"):
            assert not _TABLE.search(sql), sql
            looked += "memory.main." in sql
    assert looked > 40
    assert inspect("TABLE ages", syntax).sql in ("TABLE memory.main.ages", "SELECT * FROM memory.main.ages")
    odd = "SELECT 'é', main.ages.n FROM main . ages JOIN \"Ages\" AS b USING (age) -- ages"
    assert inspect(odd, syntax).sql == odd.replace("main . ages", "memory.main . ages").replace(
        '"Ages"', 'memory.main."Ages"'
    )


def test_a_text_in_full_answers_as_the_bare_one(served: Served) -> None:
    """Columns, types and rows of honest statements are those of the client's own text."""
    compared = 0
    for text in statements("honest.sql"):
        inspected = served.service.gate.inspect(text)
        if (
            inspected.calls
            or "private." in text
            or "duckdb_" in text
            or "_schema" in text
            or "SAMPLE" in text
            or "visits" in text
        ):
            continue
        given, ran = table_of(served, text), table_of(served, inspected.sql)
        assert given.schema == ran.schema and sorted(map(repr, given.to_pylist())) == sorted(
            map(repr, ran.to_pylist())
        ), text
        compared += 1
    assert compared > 40


def test_a_view_that_went_is_not_a_system_table(served: Served) -> None:
    """An earlier store may hold such a name. If the view goes between check and use, nothing is read in its place."""
    public, bob = served.service.public, served.service.book.find("bob")
    ages = table_of(served, "FROM memory.main.ages")
    public.put_view(
        "sqlite_master", "mark", ReleasedRows((("age", "BIGINT"), ("n", "BIGINT"), ("n_stderr", "DOUBLE")), ages)
    )
    listener = FlightListener("localhost:0", served.service, Limits())
    try:
        given = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {served.tokens['bob']}".encode())])
        with flight.FlightClient(listener.address) as client:
            command = write_any("CommandStatementQuery", {1: b"FROM sqlite_master"})
            info = client.get_flight_info(flight.FlightDescriptor.for_command(command), given)
            quack = served.service.gate.admit(bob, "FROM sqlite_master")
            public.drop_view("sqlite_master")
            with pytest.raises(flight.FlightError, match="there is no private view 'sqlite_master'"):
                client.do_get(info.endpoints[0].ticket, given).read_all()
    finally:
        listener.close()
    with public.cursor() as cursor, pytest.raises(duckdb.CatalogException):
        cursor.execute(quack).fetchall()
    with pytest.raises(Refusal, match="there is no private view"):
        served.service.gate.admit(bob, "FROM sqlite_master")


@pytest.mark.parametrize("text", ["FROM memory.main.ages", "FROM answers.main.x", "FROM listing.main.tables"])
def test_full_names_are_not_for_clients(served: Served, text: str) -> None:
    """The gate writes full names into a statement's text, and accepts none from a client."""
    with pytest.raises(DpduckError, match="is not served"):
        served.sql("alice", text)
