"""Rows that find their unit by references are filtered and narrowed before the unit is looked up."""

from __future__ import annotations

import dpduck

POLICIES = (
    "people (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 1))",
    "houses (PRIVACY UNIT person REFERENCES people.id MAX ROWS 4)",
    "calls (PRIVACY UNIT house REFERENCES houses.number MAX ROWS 4)",
)


def test_the_lookup_comes_last() -> None:
    """What dp_explain shows of a chain: conditions stand inside, then the hidden join, then the bounding."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE houses (number INTEGER PRIMARY KEY, person INTEGER)")
        connection.execute("CREATE TABLE calls (house INTEGER, minutes INTEGER)")
        for policy in POLICIES:
            connection.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON {policy}"])
        row = connection.execute(
            "SELECT private_sql FROM dp_explain('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) "
            "FROM calls WHERE minutes > 3')"
        ).fetchone()
    assert row is not None
    rows, lookup = row[0].split(") AS dpduck_rows ")
    assert 'WHERE (("r0"."minutes" > 3))' in rows and "houses" not in rows
    assert lookup.startswith(
        'JOIN "memory"."main"."houses" AS "r0_1" ON "dpduck_rows"."dpduck_reference" = "r0_1"."number" '
        'WHERE "r0_1"."person" IS NOT NULL'
    )
    assert "PARTITION BY dpduck_unit" in lookup
