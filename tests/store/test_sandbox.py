"""Questions about types and public values: nothing that one leaves behind is seen by the next one."""

from __future__ import annotations

from contextlib import suppress

import duckdb
import pytest

from dpduck.language.rows.facts import CatalogColumn, ImageInput
from dpduck.language.text.names import TableName
from dpduck.store import cursors
from dpduck.store.cursors import MOST_ANSWERS, DatabaseConnections, SandboxAnswers
from dpduck.store.sandbox import Sandbox
from dpduck.values.errors import Refusal

VISITS = TableName(("clinic", "main", "visits"))
WHOLE, TEXT = (CatalogColumn("age", "INTEGER"),), (CatalogColumn("age", "VARCHAR"),)
SELECT = "SELECT age FROM clinic.main.visits"


def test_an_answer_belongs_to_its_tables_columns() -> None:
    """The same SQL over other columns is another question, within a statement and between statements."""
    answered = SandboxAnswers()
    for _ in range(2):
        with Sandbox(answered) as box:
            assert box.bind(SELECT, {VISITS: WHOLE}) == WHOLE
            assert box.bind(SELECT, {VISITS: TEXT}) == TEXT
            assert box.bind(SELECT, {VISITS: WHOLE}) == WHOLE
            with pytest.raises(Refusal):
                box.bind_rows("SELECT age + 1 FROM clinic.main.visits", "SELECT 1", {VISITS: TEXT})
            box.bind_rows("SELECT age + 1 FROM clinic.main.visits", "SELECT 1", {VISITS: WHOLE})


def test_what_was_refused_is_refused_again() -> None:
    """Only answers are remembered: a refusal is worded anew each time."""
    answered = SandboxAnswers()
    for _ in range(2):
        with Sandbox(answered) as box, pytest.raises(Refusal, match="DuckDB does not accept this"):
            box.bind("SELECT nowhere FROM clinic.main.visits", {VISITS: WHOLE})


def test_a_remembered_answer_opens_nothing() -> None:
    """A statement of a known form opens no DuckDB: opening one takes longer than all the rest."""
    answered = SandboxAnswers()
    with Sandbox(answered) as box:
        box.bind(SELECT, {VISITS: WHOLE})
    with Sandbox(answered) as box:

        def never(connection: duckdb.DuckDBPyConnection) -> str:
            raise AssertionError("it was asked")

        answered.save("known", "this")
        assert box.answer("known", never) == "this"
        assert box.bind(SELECT, {VISITS: WHOLE}) == WHOLE
        assert box._root is None


def test_the_oldest_answer_goes_first() -> None:
    """The memory of answers is bounded. A recently used answer stays, and the oldest one goes."""
    answered = SandboxAnswers()
    for number in range(MOST_ANSWERS):
        answered.save(number, number)
    answered.get(0)
    answered.save("one more", True)
    assert answered.get(0) == 0
    assert answered.get(1) is None


def test_questions_of_a_statement_leave_nothing_to_each_other() -> None:
    """Temporary tables, labels and settings end with their question, and copies hold one row of NULLs each."""
    with Sandbox() as box:
        box.bind_rows(SELECT, "SELECT age IS NULL FROM clinic.main.visits", {VISITS: WHOLE})
        for _ in range(2):
            image = box.image("r0.age % 2", [ImageInput("r0", "age", "INTEGER", ("1", "2", "3"))])
            assert image.codes == (1, 0, 1)
        with box.cursor() as connection:
            assert connection.execute(SELECT).fetchall() == [(None,)]
            named = "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'image'"
            views = "SELECT count(*) FROM duckdb_views() WHERE view_name LIKE 'labels%'"
            for count in (named, views):
                assert connection.execute(count).fetchall() == [(0,)]


def test_two_statements_share_no_database() -> None:
    """Tables that one statement's sandbox holds are not in the next one's."""
    with Sandbox() as box:
        box.bind(SELECT, {VISITS: WHOLE})
    with Sandbox() as box, box.cursor() as connection, pytest.raises(duckdb.Error, match="does not exist"):
        connection.execute(SELECT)


def test_a_sandbox_reaches_no_file() -> None:
    """Files, extensions and Python's variables are out of reach, from any of its cursors."""
    outside = [1, 2, 3]
    with Sandbox() as box, box.cursor() as connection:
        for sql, reason in (
            ("FROM read_text('/etc/hostname')", "file system operations are disabled"),
            ("FROM outside", "Table with name outside does not exist"),
            ("LOAD httpfs", "disabled"),
            ("SET enable_external_access = true", "Cannot enable external access"),
        ):
            with pytest.raises(duckdb.Error, match=reason):
                connection.execute(sql)
    assert len(outside) == 3


def test_cursors_know_no_macros() -> None:
    """SQL on a database's own cursors calls DuckDB's functions, also where a macro has the same name."""
    with duckdb.connect() as connection:
        connection.execute("CREATE MACRO upper(x) AS 'hidden'")
        connection.execute('CREATE MACRO "+"(a, b) AS 0')
        connections = DatabaseConnections()
        connections.add(connection)
        assert connections.home == ("memory", "main")
        with connections.cursor() as cursor:
            assert cursor.execute("SELECT upper('a'), 1 + 2").fetchall() == [("A", 3)]
        assert connection.execute("SELECT upper('a'), 1 + 2").fetchall() == [("hidden", 0)]


def test_a_sandbox_is_empty_when_another_statement_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next statement gets the same DuckDB, emptied of copies, schemas and settings. After a failure it is new."""
    monkeypatch.setattr(cursors, "MOST_KEPT", 1)
    answered, odd = SandboxAnswers(), TableName(("memory", 'a "schema"', 'a "table"'))
    copies = {VISITS: WHOLE, odd: TEXT, TableName(("memory", "main", "visits")): TEXT}
    with Sandbox(answered) as box, box.cursor(copies) as cursor:
        cursor.execute("SET GLOBAL disabled_optimizers = 'in_clause'")
        used = box._root
    with Sandbox(answered) as box, box.cursor() as cursor:
        assert box._root is used
        assert cursor.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]
        assert cursor.execute("SELECT count(*) FROM duckdb_schemas() WHERE NOT internal").fetchall() == [(0,)]
        assert cursor.execute("SELECT count(*) FROM duckdb_databases()").fetchall() == [(3,)]
        assert cursor.execute("SELECT current_setting('disabled_optimizers')").fetchall() == [("",)]
        assert box.bind(SELECT, {VISITS: TEXT}) == TEXT, "what is copied anew has the columns of now"
    with suppress(ZeroDivisionError), Sandbox(answered) as box, box.cursor():
        raise ZeroDivisionError
    with Sandbox(answered) as box, box.cursor():
        assert box._root is not used


def test_copies_are_kept_for_statements_about_the_same_tables() -> None:
    """Copies are lent to statements about exactly the same tables, unchanged, with one row of NULLs each."""
    answered, wards = SandboxAnswers(), TableName(("clinic", "main", "wards"))
    both = {VISITS: WHOLE, wards: TEXT}
    used = []
    for tables in ({VISITS: WHOLE}, {VISITS: WHOLE}, both, both):
        with Sandbox(answered) as box, box.cursor(tables) as cursor:
            used.append(box._root)
            assert cursor.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(len(tables),)]
            assert cursor.execute(SELECT).fetchall() == [(None,)]
    assert len(set(map(id, used))) == 1
    for other in ({VISITS: WHOLE}, {VISITS: TEXT, wards: TEXT}, {wards: TEXT}):
        with Sandbox(answered) as box, box.cursor(other) as cursor:
            assert cursor.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(len(other),)]


def test_made_up_rows_are_for_statements_that_want_them() -> None:
    """Copies that were filled are not lent to a question that expects one row of NULLs."""
    answered = SandboxAnswers()

    def fill(cursor: duckdb.DuckDBPyConnection, table: TableName, columns: object) -> None:
        cursor.execute(f"INSERT INTO {table.sql} VALUES (1), (2)")

    for wanted, rows in ((fill, 3), (None, 1), (fill, 3), (None, 1)):
        with Sandbox(answered, wanted) as box, box.cursor({VISITS: WHOLE}) as cursor:
            assert len(cursor.execute(SELECT).fetchall()) == rows


def test_a_refused_statement_leaves_no_copies() -> None:
    """Copies may be incomplete when a question fails, so they are dropped."""
    answered = SandboxAnswers()
    with pytest.raises(Refusal), Sandbox(answered) as box:
        box.bind("SELECT nowhere FROM clinic.main.visits", {VISITS: WHOLE})
    assert [one.copies for one in answered._kept] == [frozenset()]
