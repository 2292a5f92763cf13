"""A table of an attached database must be a table there: at the policy, at each statement, and before the count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpduck
from dpduck.language.text.names import TableName
from dpduck.publish.extensions import load_extension
from dpduck.store import stored
from dpduck.values.errors import Refusal
from tests.support.clinics import Clinic
from tests.support.postgres_server import postgres_server


def needs(name: str) -> pytest.MarkDecorator:
    missing = find_spec(f"duckdb_extension_{name}") is None or not duckdb.__version__.startswith("1.")
    return pytest.mark.skipif(missing, reason=f"the extension {name} is not installed for this DuckDB")


needs_postgres, needs_ducklake = needs("postgres_scanner"), needs("ducklake")
POLICY = "CREATE PRIVACY POLICY ON pg.public.{} (PRIVACY UNIT id MAX ROWS 2, BUDGET (epsilon = 10))"
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 5) count(*) AS n FROM pg.public.{}"
Sql = Callable[[str], object]

NO_TABLES = {
    "a view": "CREATE VIEW t AS SELECT id, 100 / (id - 5) AS x FROM base",
    "a materialized view": "CREATE MATERIALIZED VIEW t AS SELECT id FROM base",
    "row-level security": "CREATE TABLE t (id integer); ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    "an array": "CREATE TABLE t (id integer, x integer[])",
    "a domain of arrays": "CREATE DOMAIN pair AS integer[]; CREATE TABLE t (id integer, x pair)",
    "rows": "CREATE TYPE pair AS (a integer, b integer); CREATE TABLE t (id integer, x pair)",
    "a byte": 'CREATE TABLE t (id integer, x "char")',
    "a type that takes a name": "CREATE DOMAIN date AS text; CREATE TABLE t (id integer, x public.date)",
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as uri:
        yield uri


@pytest.fixture(scope="module")
def behind(server: str) -> Iterator[Sql]:
    """Runs SQL in PostgreSQL by another client, which DuckDB's memory of PostgreSQL does not follow."""
    with duckdb.connect() as other:
        load_extension(other, "postgres_scanner", "")
        other.execute(f"ATTACH '{server}' AS pg (TYPE postgres)")
        yield lambda sql: other.execute("CALL postgres_execute('pg', ?)", [sql]).fetchall()


@pytest.fixture
def lent(server: str, behind: Sql) -> Iterator[tuple[Clinic, Sql]]:
    """Returns a connection with an attached PostgreSQL, and a function that changes it so that DuckDB looks anew."""
    with dpduck.connect() as connection:
        load_extension(connection, "postgres_scanner", "")
        connection.execute(f"ATTACH '{server}' AS pg (TYPE postgres)")

        def run(sql: str) -> None:
            behind(sql)
            connection.execute("CALL pg_clear_cache()")

        run(
            "DROP SCHEMA public CASCADE; CREATE SCHEMA public; CREATE TABLE base AS SELECT generate_series(1, 99) AS id"
        )
        yield Clinic(connection), run


@needs_postgres
@pytest.mark.parametrize("kind", NO_TABLES)
def test_what_is_no_table_there_gets_no_policy(lent: tuple[Clinic, Sql], kind: str) -> None:
    """A view of PostgreSQL, which DuckDB lists as a table, is refused, and so are arrays, which one row may break."""
    clinic, run = lent
    run(NO_TABLES[kind])
    assert "accepted: a" in clinic.refused(POLICY.format("t"))
    assert "accepted: a" in clinic.refused("DECLARE PUBLIC TABLE pg.public.t")
    assert clinic.value("SELECT count(*) FROM dp_policies()") == 0


@needs_postgres
def test_tables_and_partitioned_tables_are_answered(lent: tuple[Clinic, Sql]) -> None:
    """Rows in PostgreSQL are counted, also those of partitions."""
    clinic, run = lent
    run("CREATE TABLE parts (id integer) PARTITION BY RANGE (id)")
    run("CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (1000)")
    run("INSERT INTO parts SELECT id FROM base")
    for name in ("base", "parts"):
        clinic.dp(POLICY.format(name))
        assert 60 < clinic.dp(COUNT.format(name))[0][0] < 140  # by chance 1e-8 or less: Laplace of scale 2/5


@needs_postgres
def test_what_is_a_text_here_alone_is_compared_here(lent: tuple[Clinic, Sql]) -> None:
    """PostgreSQL refuses to compare a json or an inet with a text. Where DuckDB cannot be set to compare by itself,
    such a table is refused before the charge."""
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
def test_distinct_from_below_or_is_answered(lent: tuple[Clinic, Sql]) -> None:
    """IS DISTINCT FROM below OR is answered: DuckDB gave PostgreSQL a form of it that failed after the charge."""
    clinic, run = lent
    run("CREATE TABLE odd (id integer, k integer, b boolean); INSERT INTO odd SELECT id, NULL, NULL FROM base")
    clinic.dp(POLICY.format("odd"))
    for condition in ("k = 1 OR k IS DISTINCT FROM 0", "b IS NOT TRUE OR b IS FALSE"):
        ask = COUNT.format("odd").replace("epsilon = 5", "epsilon = 2") + f" WHERE {condition}"
        assert 49 < clinic.dp(ask)[0][0] < 149  # by chance 4e-22 or less: Laplace of scale 1


@needs_postgres
def test_what_needs_numbers_of_rows_is_refused(lent: tuple[Clinic, Sql]) -> None:
    """rowid is NULL in every row of PostgreSQL. A worker's answers met no row, and the count was 0: now refused."""
    clinic, run = lent
    run("CREATE TABLE notes (id integer, note text); INSERT INTO notes SELECT id, 'abc' FROM base")
    clinic.dp(POLICY.format("notes"))
    units = "(SELECT id, max(length(note)) AS most FROM pg.public.notes GROUP BY id) AS u WHERE most = 3"
    said = clinic.refused(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM {units}")
    assert "or over a table of PostgreSQL, whose rows have no number" in said
    assert clinic.charges() == 0
    assert 60 < clinic.dp(COUNT.format("notes") + " WHERE length(note) = 3")[0][0] < 140  # Laplace of scale 2/5


@needs_postgres
def test_a_table_that_has_become_a_view_is_refused(lent: tuple[Clinic, Sql]) -> None:
    """The kind of table is asked again for each statement."""
    clinic, run = lent
    clinic.dp(POLICY.format("base"))
    run("ALTER TABLE base RENAME TO rows; CREATE VIEW base AS SELECT (SELECT max(id) FROM rows) AS id FROM rows")
    assert "is a view, or no plain table, in PostgreSQL" in clinic.refused(COUNT.format("base"))


@needs_postgres
def test_a_table_that_becomes_a_view_before_the_count_is_refused(
    lent: tuple[Clinic, Sql], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction that counts asks the kind once more, and nothing is charged."""
    clinic, run = lent
    run("CREATE VIEW later AS SELECT id FROM base")
    clinic.dp(POLICY.format("base"))
    real, transactions = stored.require_stored, []

    def swapped(cursor: duckdb.DuckDBPyConnection, table: TableName) -> None:
        transactions.append(cursor.execute("SELECT txid_current()").fetchall())
        real(cursor, table if len(transactions) == 1 else TableName((*table.parts[:2], "later")))

    monkeypatch.setattr("dpduck.store.catalog.require_stored", swapped)
    assert "is a view, or no plain table, in PostgreSQL" in clinic.refused(COUNT.format("base"))
    assert len(transactions) == 2 and transactions[0] != transactions[1]


CHANGES = {
    "a label": ("mood", "'a'", "ALTER TYPE mood ADD VALUE 'c'"),
    "a renamed label": ("mood", "'a'", "ALTER TYPE mood RENAME VALUE 'b' TO 'c'"),
    "a wider integer": ("integer", "1", "ALTER TABLE t ALTER x TYPE bigint"),
    "more digits": ("numeric(5, 2)", "1", "ALTER TABLE t ALTER x TYPE numeric(30, 2)"),
    "digits without end": ("numeric(5, 2)", "1", "ALTER TABLE t ALTER x TYPE numeric"),
    "a moment": ("date", "'2024-01-01'", "ALTER TABLE t ALTER x TYPE timestamp"),
    "a text": ("integer", "1", "ALTER TABLE t ALTER x TYPE text"),
    "a column of that name": ("integer", "1", "ALTER TABLE t DROP x; ALTER TABLE t ADD x text"),
    "no such column": ("integer", "1", "ALTER TABLE t DROP x"),
}
"""A type, a value of it, and what another client does: then a value that DuckDB cannot read may be in a row."""


def changing(lent: tuple[Clinic, Sql], kind: str) -> tuple[Clinic, str]:
    """A clinic with a policy over a table t, and SQL that changes t."""
    clinic, run = lent
    type_name, value, change = CHANGES[kind]
    run("DROP TABLE IF EXISTS t; DROP TYPE IF EXISTS mood; CREATE TYPE mood AS ENUM ('a', 'b')")
    run(f"CREATE TABLE t (id integer, x {type_name}); INSERT INTO t SELECT id, {value} FROM base")
    clinic.dp(POLICY.format("t"))
    return clinic, change


@needs_postgres
def test_what_another_client_changed_is_refused(lent: tuple[Clinic, Sql], behind: Sql) -> None:
    """DuckDB remembers columns and labels. A row with a new value would end the statement that reads it."""
    for kind in CHANGES:
        clinic, change = changing(lent, kind)
        behind(change)
        said = clinic.refused(COUNT.format("t"))
        assert "pg.public.t.x changed in PostgreSQL since DuckDB looked" in said, kind
        assert "accepted: CALL pg_clear_cache()" in said
        assert clinic.charges() == 0
        clinic.dp("DROP PRIVACY POLICY ON pg.public.t")
    clinic.con.execute("CALL pg_clear_cache()")
    clinic.dp(POLICY.format("t"))
    assert 60 < clinic.dp(COUNT.format("t"))[0][0] < 140


@needs_postgres
@pytest.mark.parametrize("kind", ["a label", "a wider integer"])
def test_what_changes_before_the_count_is_refused(
    lent: tuple[Clinic, Sql], behind: Sql, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The transaction that counts sees a change after the analysis, and nothing is charged."""
    clinic, change = changing(lent, kind)
    real, calls = stored.require_stored, list[int]()

    def later(cursor: duckdb.DuckDBPyConnection, table: TableName) -> None:
        calls.append(1)
        if len(calls) == 2:
            cursor.execute("SELECT count(*) FROM pg.public.base").fetchall()  # its snapshot is older than the change
            behind(change)
        real(cursor, table)

    monkeypatch.setattr("dpduck.store.catalog.require_stored", later)
    assert "changed in PostgreSQL since DuckDB looked" in clinic.refused(COUNT.format("t"))
    assert len(calls) == 2
    assert clinic.charges() == 0


@needs_postgres
def test_a_table_stays_as_it_was_until_it_is_counted(lent: tuple[Clinic, Sql], behind: Sql) -> None:
    """The checked table stays locked, as by SELECT, until the transaction ends. Others may still write rows."""
    clinic, _ = lent
    with clinic.con.cursor() as cursor:
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        stored.require_stored(cursor, TableName(("pg", "public", "base")))
        behind("INSERT INTO base VALUES (100)")
        for change in ("ALTER TABLE base ALTER id TYPE bigint", "ALTER TABLE base RENAME TO other", "DROP TABLE base"):
            with pytest.raises(duckdb.Error, match="lock timeout"):
                behind(f"SET LOCAL lock_timeout = '50ms'; {change}")
        assert cursor.execute("SELECT count(*) FROM pg.public.base").fetchall() == [(99,)]
        cursor.execute("COMMIT")
    behind("ALTER TABLE base ALTER id TYPE bigint")


@needs_postgres
def test_each_type_is_the_one_that_duckdb_reads(lent: tuple[Clinic, Sql]) -> None:
    """stored.py lists the types that DuckDB gives PostgreSQL's types, so that a change would be noticed."""
    clinic, run = lent
    types = [
        "bool", "smallint", "bigint", "real", "double precision", "numeric", "numeric(5, 2)", "numeric(38, 10)",
        "numeric(60, 2)", "numeric(10)", "text", "varchar(5)", "char(3)", "bpchar", "bytea", "date", "time", "time(3)",
        "timetz", "timestamp(3)", "timestamptz", "interval", "interval second(2)", "uuid", "json", "jsonb", "inet",
        "mood", "other.quoted", "dom", "oid", "int4range", "name", "xml", "money", "bit(3)", "varbit", "point", "box",
    ]  # fmt: skip
    run("CREATE TYPE mood AS ENUM ('a', 'b''x', 'ü, c'); CREATE DOMAIN dom AS integer")
    run("DROP SCHEMA IF EXISTS other CASCADE; CREATE SCHEMA other; CREATE TYPE other.quoted AS ENUM ('q')")
    run(f"CREATE TABLE t (id integer, {', '.join(f'x{place} {kind}' for place, kind in enumerate(types))})")
    run("INSERT INTO t (id) SELECT id FROM base")
    clinic.dp(POLICY.format("t"))
    assert 60 < clinic.dp(COUNT.format("t"))[0][0] < 140


@needs_postgres
@pytest.mark.parametrize("encoding", ["LATIN1", "WIN1252", "SQL_ASCII"])
def test_texts_of_another_encoding_are_refused(lent: tuple[Clinic, Sql], server: str, encoding: str) -> None:
    """PostgreSQL hands over its own bytes, which DuckDB reads as UTF-8: one name with an accent ended a statement."""
    clinic, _ = lent
    make = f"CREATE DATABASE in_{encoding} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    clinic.con.execute("CALL postgres_execute('pg', ?, use_transaction = false)", [make])
    place = server.replace("/postgres", f"/in_{encoding.lower()}")
    clinic.con.execute(f"ATTACH '{place}' AS apart (TYPE postgres)")
    clinic.con.execute("CREATE TABLE apart.public.t (id INTEGER, name VARCHAR)")
    assert "another encoding than UTF8" in clinic.refused(POLICY.format("t").replace("pg.", "apart."))
    clinic.con.execute("DETACH apart")


@needs_postgres
def test_a_transaction_without_one_snapshot_is_refused(lent: tuple[Clinic, Sql], server: str) -> None:
    """At READ COMMITTED a transaction would read rows with a label that was added after the check."""
    clinic, _ = lent
    clinic.con.execute(f"ATTACH '{server}' AS apart (TYPE postgres, ISOLATION_LEVEL 'READ COMMITTED')")
    said = clinic.refused(POLICY.format("base").replace("pg.", "apart."))
    assert "read at read committed" in said
    assert "without isolation_level" in said
    clinic.con.execute("DETACH apart")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Clinic]:
    """A connection with a DuckLake that has a table of 99 people, and a file that another program wrote."""
    with dpduck.connect() as connection:
        load_extension(connection, "ducklake", "")
        connection.execute(f"ATTACH 'ducklake:{tmp_path}/l.ducklake' AS lake (DATA_PATH '{tmp_path}/files')")
        connection.execute("CREATE TABLE lake.main.t AS SELECT range::INTEGER AS id, 'a' AS x FROM range(99)")
        odd = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
        pq.write_table(pa.table({"id": pa.array([99], pa.int32()), "x": odd}), tmp_path / "added.parquet")
        yield Clinic(connection)


LAKE_POLICY = "CREATE PRIVACY POLICY ON lake.main.{} (PRIVACY UNIT id MAX ROWS 2, BUDGET (epsilon = 10))"
LAKE_COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 5) count(*) AS n FROM lake.main.{} WHERE x = 'a'"


def add_file(clinic: Clinic, place: Path) -> None:
    clinic.con.execute(f"CALL ducklake_add_data_files('lake', 't', '{place}/added.parquet')")


@needs_ducklake
@pytest.mark.parametrize("type_name", ["HUGEINT", "UHUGEINT", "STRUCT(a HUGEINT[])"])
def test_wide_integers_of_a_lake_are_refused(lake: Clinic, type_name: str) -> None:
    """Parquet holds wide integers as DOUBLE, and rounds the largest one out of range: one row ended a statement."""
    lake.con.execute(f"CREATE TABLE lake.main.wide (id INTEGER, code {type_name})")
    said = lake.refused(LAKE_POLICY.format("wide"))
    assert "lake.main.wide.code is HUGEINT or UHUGEINT" in said
    assert 'accepted: a copy: CREATE TABLE .. AS SELECT * REPLACE (CAST("code" AS DECIMAL(38, 0)) AS "code")' in said
    assert "code is HUGEINT" in lake.refused("DECLARE PUBLIC TABLE lake.main.wide")


@needs_ducklake
@pytest.mark.parametrize("type_name", ["INTERVAL", "TIME WITH TIME ZONE", "INTERVAL[]"])
def test_times_that_a_lake_shortens_are_refused(lake: Clinic, type_name: str) -> None:
    """Ten rows inserted at once keep microseconds and zones, and eleven do not: their number would decide."""
    lake.con.execute(f"CREATE TABLE lake.main.waits (id INTEGER, length {type_name})")
    said = lake.refused(LAKE_POLICY.format("waits"))
    assert "lake.main.waits.length is an INTERVAL or a time with a zone" in said
    assert 'accepted: a copy: CREATE TABLE .. AS SELECT * REPLACE (CAST("length" AS VARCHAR) AS "length")' in said


@needs_ducklake
def test_files_that_ducklake_did_not_write_are_refused(lake: Clinic, tmp_path: Path) -> None:
    """A text in a foreign file that is no UTF-8 ended its statement, even where the policy came before the file."""
    lake.dp(LAKE_POLICY.format("t"))
    add_file(lake, tmp_path)
    said = lake.refused(LAKE_COUNT.format("t"))
    assert "lake.main.t has files that DuckLake did not write" in said
    assert "accepted: a copy, which DuckLake writes: CREATE TABLE .. AS FROM lake.main.t" in said
    assert lake.charges() == 0
    assert "did not write" in lake.refused("DECLARE PUBLIC TABLE lake.main.t")
    assert "did not write" in lake.refused("ALTER PRIVACY POLICY ON lake.main.t PREPARE")
    lake.con.execute("CREATE TABLE lake.main.copied AS FROM lake.main.t WHERE id < 99")
    lake.dp(LAKE_POLICY.format("copied"))
    assert 60 < lake.dp(LAKE_COUNT.format("copied"))[0][0] < 140


@needs_ducklake
@pytest.mark.parametrize("seen", [True, False])
def test_a_file_that_comes_before_the_count_is_refused(
    lake: Clinic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    """The transaction that counts checks again for foreign files. One that does not see the file counts without it."""
    lake.dp(LAKE_POLICY.format("t"))
    real, calls = stored.require_stored, list[int]()

    def later(cursor: duckdb.DuckDBPyConnection, table: TableName) -> None:
        calls.append(1)
        if len(calls) == 2:
            if seen:  # so that the transaction has no snapshot of the lake yet
                cursor.execute("COMMIT; BEGIN TRANSACTION READ ONLY")
            with lake.con.cursor() as other:
                other.execute(f"CALL ducklake_add_data_files('lake', 't', '{tmp_path}/added.parquet')")
        real(cursor, table)

    monkeypatch.setattr("dpduck.store.catalog.require_stored", later)
    if seen:
        assert "did not write" in lake.refused(LAKE_COUNT.format("t"))
        assert lake.charges() == 0
    else:
        assert 60 < lake.dp(LAKE_COUNT.format("t"))[0][0] < 140
    assert len(calls) == 2


@needs_ducklake
def test_a_file_that_is_merged_away_meanwhile_is_refused(lake: Clinic, tmp_path: Path) -> None:
    """The transaction still reads a file that DuckLake's present list no longer has, so nobody knows who wrote it."""
    add_file(lake, tmp_path)
    table = TableName(("lake", "main", "t"))
    with lake.con.cursor() as cursor, lake.con.cursor() as other:
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        cursor.execute("SELECT count(*) FROM lake.main.t").fetchall()
        other.execute("UPDATE __ducklake_metadata_lake.ducklake_data_file SET path = 'merged.parquet'")
        with pytest.raises(Refusal, match="did not write"):
            stored.require_stored(cursor, table)


@needs_ducklake
def test_a_lake_whose_metadata_has_another_name_is_asked_there(tmp_path: Path) -> None:
    """Catalog and schema of the metadata are those of ATTACH. If they are missing, nothing is counted."""
    with dpduck.connect() as connection:
        load_extension(connection, "ducklake", "")
        place = f"DATA_PATH '{tmp_path}/files', METADATA_CATALOG 'the books', METADATA_SCHEMA 'of it'"
        connection.execute(f"ATTACH 'ducklake:{tmp_path}/l.ducklake' AS \"La ke\" ({place})")
        connection.execute('CREATE TABLE "La ke".main.t AS SELECT range::INTEGER AS id FROM range(99)')
        table = TableName(("La ke", "main", "t"))
        stored.require_stored(connection, table)
        connection.execute('ALTER TABLE "the books"."of it".ducklake_data_file RENAME TO gone')
        with pytest.raises(Refusal, match="does not say which files of La ke"):
            stored.require_stored(connection, table)


@pytest.mark.parametrize(
    ("kind", "said"),
    [("sqlite", "lies in a database of kind 'sqlite'"), ("mysql", "of kind 'mysql'"), ("quack", "of kind 'quack'")],
)
def test_unknown_kinds_of_databases_are_refused(kind: str, said: str) -> None:
    """A reader that nobody has checked could fail by one row, or show a view as a table."""

    class Listing:
        def execute(self, sql: str) -> Listing:
            assert "duckdb_databases()" in sql
            return self

        def fetchall(self) -> list[tuple[str]]:
            return [(kind,)]

    with pytest.raises(Refusal, match=said) as caught:
        stored.require_stored(Listing(), TableName(("other", "main", "t")))  # type: ignore[arg-type]
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
        stored.require_stored(connection, TableName(("other", "main", "t")))
