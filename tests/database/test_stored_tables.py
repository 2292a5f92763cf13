"""A table that another database lends is a table there: at the policy, at each statement, and before the count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import duckdb
import pytest

import dpduck
from dpduck.database import attached
from dpduck.frontend.text.names import TableName
from dpduck.publish.postgres import load_extension
from dpduck.values.errors import Refusal
from tests.support.clinics import Clinic
from tests.support.postgres_server import postgres_server

needs_postgres = pytest.mark.skipif(
    find_spec("duckdb_extension_postgres_scanner") is None or not duckdb.__version__.startswith("1."),
    reason="the extension postgres_scanner is not installed for this DuckDB",
)
POLICY = "CREATE PRIVACY POLICY ON pg.public.{} (PRIVACY UNIT id MAX ROWS 2, BUDGET (epsilon = 10))"
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 5) count(*) AS n FROM pg.public.{}"
Sql = Callable[[str], None]

NO_TABLES = {
    "a view": "CREATE VIEW t AS SELECT id, 100 / (id - 5) AS x FROM base",
    "a materialized view": "CREATE MATERIALIZED VIEW t AS SELECT id FROM base",
    "row-level security": "CREATE TABLE t (id integer); ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    "an array": "CREATE TABLE t (id integer, x integer[])",
    "a domain of arrays": "CREATE DOMAIN pair AS integer[]; CREATE TABLE t (id integer, x pair)",
    "rows": "CREATE TYPE pair AS (a integer, b integer); CREATE TABLE t (id integer, x pair)",
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as uri:
        yield uri


@pytest.fixture
def lent(server: str) -> Iterator[tuple[Clinic, Sql]]:
    """A connection with an attached PostgreSQL, and words to change that from another one."""
    with duckdb.connect() as other, dpduck.connect() as connection:
        for one in (other, connection):
            load_extension(one, "postgres_scanner", "")
            one.execute(f"ATTACH '{server}' AS pg (TYPE postgres)")

        def run(sql: str) -> None:
            other.execute("CALL postgres_execute('pg', ?)", [sql]).fetchall()
            connection.execute("CALL pg_clear_cache()")

        run(
            "DROP SCHEMA public CASCADE; CREATE SCHEMA public; CREATE TABLE base AS SELECT generate_series(1, 99) AS id"
        )
        yield Clinic(connection), run


@needs_postgres
@pytest.mark.parametrize("kind", NO_TABLES)
def test_what_is_no_table_there_gets_no_policy(lent: tuple[Clinic, Sql], kind: str) -> None:
    """DuckDB lists views of PostgreSQL as tables; arrays and rows may fail to be read by one row."""
    clinic, run = lent
    run(NO_TABLES[kind])
    assert "accepted: a" in clinic.refused(POLICY.format("t"))
    assert "accepted: a" in clinic.refused("DECLARE PUBLIC TABLE pg.public.t")
    assert clinic.value("SELECT count(*) FROM dp_policies()") == 0


@needs_postgres
def test_tables_and_partitioned_tables_are_answered(lent: tuple[Clinic, Sql]) -> None:
    """Rows that lie in PostgreSQL are counted, those of partitions too."""
    clinic, run = lent
    run("CREATE TABLE parts (id integer) PARTITION BY RANGE (id)")
    run("CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (1000)")
    run("INSERT INTO parts SELECT id FROM base")
    for name in ("base", "parts"):
        clinic.dp(POLICY.format(name))
        assert 60 < clinic.dp(COUNT.format(name))[0][0] < 140  # by chance 1e-8 or less: Laplace of scale 2/5


@needs_postgres
def test_what_is_a_text_here_alone_is_compared_here(lent: tuple[Clinic, Sql]) -> None:
    """PostgreSQL refuses to compare a json or an inet with a text; where DuckDB cannot be told to compare by itself,
    such a table is refused before the charge.
    """
    clinic, run = lent
    run("CREATE TABLE odd (id integer, j json, i inet); INSERT INTO odd SELECT id, '{}', '1.2.3.4' FROM base")
    clinic.dp(POLICY.format("odd"))
    for condition in ("j > 'a'", "i = 'zz'", "i <> '1.2.3.4'"):
        assert len(clinic.dp(COUNT.format("odd").replace("epsilon = 5", "epsilon = 1") + f" WHERE {condition}")) == 1
    assert clinic.charges() == 3
    clinic.con.execute("SET lock_configuration = true")
    said = clinic.refused(COUNT.format("odd") + " WHERE j > 'b'")
    assert "configuration is locked; accepted: SET GLOBAL pg_experimental_filter_pushdown = false" in said


@needs_postgres
def test_a_table_that_has_become_a_view_is_refused(lent: tuple[Clinic, Sql]) -> None:
    """The kind is asked again for each statement."""
    clinic, run = lent
    clinic.dp(POLICY.format("base"))
    run("ALTER TABLE base RENAME TO rows; CREATE VIEW base AS SELECT (SELECT max(id) FROM rows) AS id FROM rows")
    assert "is a view, or no plain table, in PostgreSQL" in clinic.refused(COUNT.format("base"))


@needs_postgres
def test_a_table_that_becomes_a_view_before_the_count_is_refused(
    lent: tuple[Clinic, Sql], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between analysis and count it is asked once more, in the transaction that counts; nothing is charged."""
    clinic, run = lent
    run("CREATE VIEW later AS SELECT id FROM base")
    clinic.dp(POLICY.format("base"))
    real, transactions = attached.require_stored, []

    def swapped(cursor: duckdb.DuckDBPyConnection, table: TableName) -> None:
        transactions.append(cursor.execute("SELECT txid_current()").fetchall())
        real(cursor, table if len(transactions) == 1 else TableName((*table.parts[:2], "later")))

    monkeypatch.setattr("dpduck.database.catalog.require_stored", swapped)
    assert "is a view, or no plain table, in PostgreSQL" in clinic.refused(COUNT.format("base"))
    assert len(transactions) == 2 and transactions[0] != transactions[1]


@pytest.mark.parametrize(
    ("kind", "said"),
    [("sqlite", "lies in a database of kind 'sqlite'"), ("mysql", "of kind 'mysql'"), ("quack", "of kind 'quack'")],
)
def test_unknown_kinds_of_databases_are_refused(kind: str, said: str) -> None:
    """A reader that nobody has looked at could fail by one row, or show a view as a table."""

    class Listing:
        def execute(self, sql: str) -> Listing:
            assert "duckdb_databases()" in sql
            return self

        def fetchall(self) -> list[tuple[str]]:
            return [(kind,)]

    with pytest.raises(Refusal, match=said) as caught:
        attached.require_stored(Listing(), TableName(("other", "main", "t")))  # type: ignore[arg-type]
    assert "accepted: a table with rows of its own" in str(caught.value)


def test_attached_files_of_duckdb_are_known() -> None:
    """DuckDB's own databases list views as views."""
    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS \"Other\"")
        connection.execute('CREATE VIEW "Other".t AS SELECT 1 AS a')
        views = connection.execute(
            "SELECT view_name FROM duckdb_views() WHERE database_name = 'Other' AND temporary = internal"
        )
        assert views.fetchall() == [("t",)]
        attached.require_stored(connection, TableName(("other", "main", "t")))
