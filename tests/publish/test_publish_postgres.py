"""Publishing to PostgreSQL, against a real server where one is installed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpduck.publish.extensions import load_extension
from dpduck.publish.publish import publish
from dpduck.values.errors import DpduckError, Refusal, StoreError
from tests.store.made_stores import copied, made_store
from tests.support.clinics import Clinic
from tests.support.postgres_server import postgres_server

pytestmark = pytest.mark.skipif(
    find_spec("duckdb_extension_postgres_scanner") is None or not duckdb.__version__.startswith("1."),
    reason="the extension postgres_scanner is not installed for this DuckDB",
)
BY_SEX = "SELECT sex, count(*) AS n, dp_stderr(n) AS n_stderr FROM visits GROUP BY sex"
READ = "SELECT sex, n, n_stderr FROM by_sex"
PATIENCE = 600  # seconds
ODD = "CREATE PRIVATE VIEW odd OPTIONS (epsilon = 1) AS SELECT ward, count(*) AS n FROM visits GROUP BY ward"
ODD_TYPES = (
    "CREATE TABLE odd AS SELECT ward, {'a': n, 'b': [ward]} AS nested, CAST('x' AS ENUM ('x', 'y')) AS choice, "
    "CAST(9007199254740993 AS HUGEINT) AS huge, CAST(7 AS UBIGINT) AS big, DATE '2026-01-01' AS day, 1.25 AS price "
    "FROM plain"
)
"""Types and numbers that releases have seldom or not at all, put into the closed store by hand."""


def view(options: str, select: str = BY_SEX) -> str:
    return f"CREATE OR REPLACE PRIVATE VIEW by_sex OPTIONS ({options}) AS {select}"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as uri:
        yield uri


@pytest.fixture
def psql(server: str) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    """Runs PostgreSQL's own SQL over a connection of its own. An empty schema for each test."""
    with duckdb.connect() as connection:
        load_extension(connection, "postgres_scanner", "")
        connection.execute(f"ATTACH '{server}' AS pg (TYPE postgres)")

        def run(sql: str) -> list[tuple[Any, ...]]:
            quoted = sql.replace("'", "''")
            if sql.upper().startswith("SELECT"):
                return connection.execute(f"SELECT * FROM postgres_query('pg', '{quoted}')").fetchall()
            return connection.execute(f"CALL postgres_execute('pg', '{quoted}')").fetchall()

        run("DROP SCHEMA public CASCADE")
        run("CREATE SCHEMA public")
        yield run


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def odd_types(store: duckdb.DuckDBPyConnection) -> None:
        store.execute("ALTER TABLE odd RENAME TO plain")
        store.execute(ODD_TYPES)
        store.execute("DROP TABLE plain")
        store.execute("COMMENT ON COLUMN odd.ward IS 'of O''Hara; \"x\" -- y'")

    return made_store(tmp_path_factory.mktemp("made"), [view("epsilon = 1"), ODD], odd_types)


@pytest.fixture
def store(made_once: Path, tmp_path: Path) -> Path:
    return copied(made_once, tmp_path)


def again(open_clinic: Callable[..., Clinic], store: Path, refresh: str) -> None:
    """The view by_sex anew, at half the price: other noise, and for certain another standard error."""
    clinic = open_clinic(store.with_name("clinic.duckdb"))
    clinic.dp(view(f"epsilon = 0.5, refresh = '{refresh}'"))
    clinic.con.close()


def test_views_comments_and_metadata_arrive(store: Path, server: str, psql: Any) -> None:
    """Private views with their metadata and comments. ENUM as text, STRUCT and LIST as jsonb."""
    published = publish(store, server)
    assert published.views == ("by_sex", "odd")
    assert "secret4711" not in published.target
    with duckdb.connect(str(store), read_only=True) as made:
        assert sorted(psql("SELECT sex, n, n_stderr FROM by_sex")) == sorted(
            made.execute("SELECT sex, n, n_stderr FROM by_sex").fetchall()
        )
        exact = made.execute("SELECT ward, nested.a, huge FROM odd ORDER BY ward").fetchall()
    assert [
        (ward, int(a), int(huge))
        for ward, a, huge in psql("SELECT ward, nested->>'a', huge::text FROM odd ORDER BY ward COLLATE \"C\"")
    ] == [(ward, int(a), int(huge)) for ward, a, huge in exact]
    types = dict(
        psql("SELECT column_name::text, data_type::text FROM information_schema.columns WHERE table_name = 'odd'")
    )
    assert types == {
        "ward": "text", "nested": "jsonb", "choice": "text", "huge": "numeric", "big": "numeric", "day": "date",
        "price": "numeric",
    }  # fmt: skip
    ((comment,),) = psql("SELECT obj_description('by_sex'::regclass)")
    assert comment.startswith("differentially private, epsilon = 1 (pure)")
    assert "ledger" not in comment
    ((about,),) = psql("SELECT col_description('by_sex'::regclass, 2)")
    assert about.startswith("differentially private")
    assert psql("SELECT col_description('odd'::regclass, 1)") == [('of O\'Hara; "x" -- y',)]
    assert psql("SELECT name, epsilon, rows FROM dpduck_releases WHERE name = 'by_sex'") == [("by_sex", 1.0, 2)]
    assert [row[0] for row in psql("SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace "
                                   "AND relkind = 'r' ORDER BY 1")] == ["by_sex", "dpduck_releases", "odd"]  # fmt: skip


def test_grants_and_dependent_views_are_kept(
    store: Path, server: str, psql: Any, open_clinic: Callable[..., Clinic]
) -> None:
    """Rows are replaced, tables are not."""
    publish(store, server)
    psql("DROP ROLE IF EXISTS reader")
    psql("CREATE ROLE reader")
    psql("GRANT SELECT ON by_sex TO reader")
    psql("CREATE VIEW total AS SELECT sum(n)::bigint AS n, max(n_stderr) AS e FROM by_sex")
    before = psql("SELECT n, e FROM total")
    again(open_clinic, store, "a")
    publish(store, server)
    assert psql("SELECT has_table_privilege('reader', 'by_sex', 'SELECT')") == [(True,)]
    with duckdb.connect(str(store), read_only=True) as made:
        now = made.execute("SELECT CAST(sum(n) AS BIGINT), max(n_stderr) FROM by_sex").fetchall()
    assert psql("SELECT n, e FROM total") == now
    assert psql("SELECT count(*) FROM by_sex") == [(2,)]
    assert now[0][1] > 1.5 * before[0][1], "the new release has half the price, so twice the error"
    psql("DROP VIEW total")
    psql("REVOKE ALL ON by_sex FROM reader")


def test_readers_see_old_or_new(store: Path, server: str, psql: Any, open_clinic: Callable[..., Clinic]) -> None:
    """Concurrent readers never find half a publication. A failure before the end leaves the old one."""
    publish(store, server)
    old = sorted(psql(READ))
    again(open_clinic, store, "b")
    seen: list[list[Any]] = []
    written, go_on = threading.Event(), threading.Event()

    def step(_name: str) -> None:
        written.set()
        assert go_on.wait(PATIENCE)

    writer = threading.Thread(target=lambda: publish(store, server, steps=step))
    writer.start()
    assert written.wait(PATIENCE)
    seen.append(sorted(psql(READ)))
    go_on.set()
    writer.join()
    assert seen == [old], "everything is written but not committed: readers see the old"
    new = sorted(psql(READ))
    assert len(new) == 2 and new != old

    class Killed(BaseException):
        """As an interrupt would be."""

    def die(_name: str) -> None:
        raise Killed

    again(open_clinic, store, "c")
    with pytest.raises(Killed):
        publish(store, server, steps=die)
    assert sorted(psql(READ)) == new


def test_what_others_own_is_left_alone(store: Path, server: str, psql: Any) -> None:
    """A table of that name that dpduck did not publish is refused, and nothing is changed."""
    psql("CREATE TABLE by_sex (letter text)")
    psql("INSERT INTO by_sex VALUES ('keep me')")
    with pytest.raises(Refusal, match=r"has a 'by_sex' that was not published from here; accepted: another --schema"):
        publish(store, server)
    assert psql("SELECT letter FROM by_sex") == [("keep me",)]
    assert psql("SELECT count(*) FROM pg_class WHERE relname = 'odd'") == [(0,)]
    publish(store, server, schema="released")
    assert psql("SELECT count(*) FROM released.by_sex") == [(2,)]
    psql("DROP SCHEMA released CASCADE")


def test_other_columns_are_refused_and_withdrawn_views_emptied(
    store: Path, server: str, psql: Any, open_clinic: Callable[..., Clinic]
) -> None:
    """Rows of a view that is no longer published go. A table cannot change its columns under dependent views."""
    publish(store, server)
    clinic = open_clinic(store.with_name("clinic.duckdb"))
    clinic.dp("DROP PRIVATE VIEW odd")
    clinic.con.close()
    publish(store, server)
    assert psql("SELECT count(*) FROM odd") == [(0,)]
    assert psql("SELECT obj_description('odd'::regclass)")[0][0].startswith("withdrawn")
    clinic = open_clinic(store.with_name("clinic.duckdb"))
    clinic.dp(view("epsilon = 1", BY_SEX.replace("AS n,", "AS visits,").replace("(n)", "(visits)")))
    clinic.con.close()
    with pytest.raises(Refusal, match="'by_sex' with other columns"):
        publish(store, server)
    assert psql("SELECT count(*) FROM odd") == [(0,)], "nothing of it was published"


def test_a_password_stays_out_of_messages(store: Path, server: str) -> None:
    """One line with PostgreSQL's reason, without the URI's password, which DuckDB quotes."""
    wrong = server.replace("secret4711", "topsecret99")
    with pytest.raises(StoreError) as unknown:
        publish(store, wrong)
    assert "password authentication failed" in str(unknown.value)
    for target in (wrong, wrong.replace("/postgres", "/nothing"), "postgresql://owner:topsecret99@127.0.0.1:1/x"):
        with pytest.raises(DpduckError) as refused:
            publish(store, target)
        assert "topsecret99" not in str(refused.value)
        assert "\n" not in str(refused.value)


def test_two_publishers_make_one_publication(store: Path, server: str, psql: Any) -> None:
    """One waits for the other. Rows are never doubled."""
    publish(store, server)
    failures: list[DpduckError] = []

    def run() -> None:
        try:
            publish(store, server)
        except DpduckError as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert psql("SELECT count(*) FROM by_sex") == [(2,)]
    assert len(failures) < 4
