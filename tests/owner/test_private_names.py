"""Names of private tables in SQL."""

from __future__ import annotations

import pytest

from dpduck.owner.private_names import private_names
from dpduck.values.errors import Refusal

VIEWS = {
    "old": "CREATE VIEW old AS SELECT name FROM main.visits;",
    "older": 'CREATE VIEW older AS WITH o AS (FROM "old") SELECT * FROM o;',
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
])  # fmt: skip
def test_private_tables_are_found_by_name(sql: str, names: list[str]) -> None:
    """Also through views, in subqueries and by the short form of a SELECT."""
    assert private_names(sql, ["clinic.main.visits"], VIEWS) == names


@pytest.mark.parametrize("sql", ["SELECT FROM FROM (", "CALL x(1)"])
def test_sql_that_cannot_be_read_is_refused(sql: str) -> None:
    """What is not parsed might read anything."""
    with pytest.raises(Refusal, match="cannot be parsed, so it may read private rows"):
        private_names(sql, ["visits"], {})
