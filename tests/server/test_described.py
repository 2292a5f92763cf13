"""What analysts may know of tables before they ask: columns, types, domains and unit, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpduck.values.errors import DpduckError
from tests.server.served import CANARY, Served
from tests.server.test_attacks import FORBIDDEN
from tests.server.test_permission import opened

OWNED = {"visits", "wards"}
"""Of the forbidden sources of rows, those whose columns may be known."""


def test_columns_are_listed_without_a_value(served: Served) -> None:
    """Names, types, domains, clamps and unit of the caller's tables. Free, and no release."""
    before = served.spent()
    found = {row[1]: row[2:] for row in served.rows("alice", "FROM dp_columns('visits')")}
    assert found["sex"][:1] + found["sex"][2:4] == ("BIGINT", "IN (0, 1)", 2)
    assert "MAX ROWS" in found["patient"][1]
    tables = {row[0] for row in served.rows("alice", "SHOW TABLES")}
    assert {"visits", "wards", "ages", "ward_cube"} <= tables and "secret" not in tables
    described = served.rows("alice", "DESCRIBE ages")
    assert [row[:2] for row in described][:2] == [("age", "BIGINT"), ("n", "BIGINT")]
    assert served.spent() == before


def test_the_catalog_lists_what_one_may_read_and_ask(served: Served) -> None:
    """information_schema has private views, and the tables of dp_columns with their kind. duckdb_tables has the former.

    Clients make tables of their own from duckdb_tables, and read them whole. The rest nobody reads whole.
    """
    before = served.spent()
    read, asked = {("ages", "BASE TABLE"), ("ward_cube", "BASE TABLE")}, {("wards", "PUBLIC TABLE")}
    tables, columns = "information_schema.tables", "information_schema.columns"
    for who, others in (
        ("alice", {("visits", "PRIVATE TABLE")}),
        ("bob", {("visits", "PRIVATE TABLE")}),
        ("carol", set()),
    ):
        assert set(served.rows(who, f"SELECT table_name, table_type FROM {tables}")) == read | asked | others
        shown = dict(served.rows(who, "SHOW TABLES"))
        assert shown == {
            name: kind.lower().replace("base table", "private view") for name, kind in read | asked | others
        }
        listed = served.rows(who, f"SELECT DISTINCT table_name FROM {columns}")
        assert {name for (name,) in listed} == set(shown)
        whole = {row[2]: row[3:5] for row in served.rows(who, "SHOW ALL TABLES")}
        assert whole["wards"] == (["name", "region"], ["VARCHAR", "VARCHAR"]) and set(whole) == set(shown)
        assert {name for (name,) in served.rows(who, "SELECT table_name FROM duckdb_tables()")} == {"ages", "ward_cube"}
    ordered = f"SELECT c.column_name FROM {columns} AS c WHERE c.table_name = 'visits' ORDER BY c.ordinal_position"
    assert served.rows("alice", ordered) == [("sex",), ("age",), ("patient",), ("ward",)]
    renamed = f"SELECT named FROM {tables} AS t(place, scheme, named) WHERE named = 'visits'"
    assert (served.rows("alice", renamed), served.rows("carol", renamed)) == ([("visits",)], [])
    assert CANARY not in repr(served.rows("alice", f"FROM {tables}")) + repr(served.rows("alice", f"FROM {columns}"))
    assert served.spent() == before


def test_describe_names_a_table_and_nothing_else(served: Served) -> None:
    """Every forbidden source of rows is refused, or its public columns are told. No private value either way."""
    for thing in FORBIDDEN:
        for text in (f"DESCRIBE {thing}", f"FROM dp_columns($x${thing}$x$)", f"DESC {thing};"):
            try:
                rows = served.rows("alice", text)
            except DpduckError as error:
                assert CANARY not in str(error)
                continue
            assert CANARY not in repr(rows)
            assert thing.strip('"').lower().rpartition(".")[2] in OWNED | {"ages", "ward_cube"}, text


def test_permission_comes_before_existence(tmp_path: Path, state_directory: Path) -> None:
    """Another's table is not described. A table without a policy seems not to exist, by either form."""
    served = opened(tmp_path)
    try:
        for form in ("FROM dp_columns('{}')", "DESCRIBE {}", "FROM dp_twin('{}', 3)"):
            told = {
                table: served.refused("alice", form.format(table)).replace(table, "NAME")
                for table in ("secret", "nosuch", "main.secret", "main.nosuch")
            }
            assert len(set(told.values())) == 1, told
            assert served.refused("alice", form.format("hiv")) == "alice may not ask about 'hiv'; accepted: visits"
            assert served.rows("bob", form.format("hiv")) != []
        listed = {row[0] for row in served.rows("alice", "SHOW TABLES")}
        assert listed - {"ages", "ward_cube"} == {"visits", "wards"}
        assert "hiv" in {row[0] for row in served.rows("bob", "SHOW TABLES")}
    finally:
        served.service.close()


@pytest.mark.parametrize("function", ["dp_draft", "dp_check"])
def test_what_is_the_owners_stays_the_owners(served: Served, function: str) -> None:
    """A draft would list every column of a table without a policy, and dp_check its rows."""
    for table in ("visits", "secret", "nosuch"):
        assert "the data owner's" in served.refused("alice", f"FROM {function}('{table}')")
        assert "the data owner's" in served.refused("bob", f"FROM {function}('{table}')")


def test_no_text_around_a_name_reaches_the_vault(served: Served) -> None:
    """DESCRIBE is rewritten where it holds one plain name: a quote, a remark or a second statement is refused."""
    for tail in (
        "'); DROP TABLE ages --",
        "') UNION ALL FROM ages --",
        " -- x",
        "; SELECT 1",
        ".a.b.c",
        "\u00a0",
        " x",
    ):
        assert served.refused("alice", f"DESCRIBE ages{tail}"), tail
