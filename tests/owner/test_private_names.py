"""Names of private tables in SQL."""

from __future__ import annotations

import pytest

from dpduck.owner.private_names import private_names
from dpduck.values.errors import Refusal

VIEWS = {
    "old": "CREATE VIEW old AS SELECT name FROM main.visits;",
    "older": 'CREATE VIEW older AS WITH o AS (FROM "old") SELECT * FROM o;',
    "rows_of()": "SELECT * FROM query_table(name)",
    "most()": "(SELECT max(name) FROM old)",
    "plus()": "(a + b)",
    "odd()": "SELECT FROM FROM (",
    "by_ward": "CREATE VIEW by_ward AS SELECT * FROM private.main.visits;",
}


@pytest.mark.parametrize(("sql", "names"), [
    ("SELECT * FROM clinic.main.Visits", ["visits"]),
    ("SELECT 1 FROM a JOIN (SELECT * FROM older) USING (x)", ["older"]),
    ("SELECT (SELECT max(name) FROM 'visits')", ["visits"]),
    ("SUMMARIZE visits", ["visits"]),
    ("FROM by_ward", []),
    ("FROM private.visits", []),
    ("FROM private.main.visits", []),
    ("FROM clinic.private.visits", ["visits"]),
    ("WITH c AS (SELECT 1) SELECT * FROM c, wards", []),
    ("SELECT 1 FROM visits UNION ALL FROM old", ["old", "visits"]),
    ("FROM rows_of('visits')", ["rows_of()"]),
    ("SELECT main.most()", ["most()"]),
    ("SELECT odd()", ["odd()"]),
    ("SELECT plus(1, 2), visits(3) FROM range(3), unnest([1])", []),
    ("FROM wards, LATERAL unnest(wards.x), generate_series(1, 2)", []),
    ("FROM dp_margin('by_ward', ['ward'], []), dp_columns('visits'), dp_budget()", []),
    ("FROM query((SELECT max(name) FROM visits))", ["visits"]),
])  # fmt: skip
def test_private_tables_are_found_by_name(sql: str, names: list[str]) -> None:
    """Also through views, in subqueries and by the short form of a SELECT."""
    assert private_names(sql, ["clinic.main.visits"], VIEWS) == names


@pytest.mark.parametrize("sql", ["SELECT FROM FROM (", "CALL x(1)"])
def test_sql_that_cannot_be_read_is_refused(sql: str) -> None:
    """A text that is not parsed might read anything."""
    with pytest.raises(Refusal, match="cannot be parsed, so it may read private rows"):
        private_names(sql, ["visits"], {})


@pytest.mark.parametrize("sql", [
    "FROM query_table('visits')", "FROM query('FROM visits')", 'FROM system.main."query_table"([\'visits\'])',
    "SELECT (SELECT max(name) FROM Query_Table('visits'))", "FROM wards, LATERAL query_table('visits')",
    "SUMMARIZE FROM query('FROM visits')", "WITH x AS (FROM query('FROM visits')) FROM x", "FROM nobodys(1)",
    "FROM pragma_storage_info('visits')", "PRAGMA storage_info('visits')", "SELECT 1; PRAGMA storage_info('visits')",
    "FROM duckdb_tables()", "FROM duckdb_tables", "SELECT reltuples FROM pg_catalog.PG_CLASS",
    "FROM system.pg_catalog.pg_class", "SELECT (SELECT max(reltuples) FROM pg_class)",
    "FROM read_duckdb('clinic.duckdb')", "FROM 'clinic.duckdb'",
    "FROM dp_check('visits')", "FROM dp_compare('t')", "FROM dp_margin('main.visits', [], [])",
])  # fmt: skip
def test_what_may_read_a_table_by_a_text_is_refused(sql: str) -> None:
    """Table functions that are not on the short list, PRAGMA, and files of databases."""
    with pytest.raises(Refusal, match=r"may read private rows; |may tell of private rows; |reads released tables; "):
        private_names(sql, ["clinic.main.visits"], VIEWS)
