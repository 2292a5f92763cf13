"""Rows that are filtered first and then look up their unit are the rows of the plain join, unit by unit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest

from dpduck.kernel.columns.expressions import RelationColumn
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.exact import count_exactly, job_sql
from dpduck.kernel.counting.jobs import Attribute, CountingJob
from dpduck.kernel.rows.bounding import COUNTED_FIRST
from dpduck.kernel.units import Referenced, ReferenceStep
from dpduck.values.domain import ValueDomain
from tests.support.nodes import adds, counts, key, rows

KIND = ValueDomain("VARCHAR", ("a", "b"), with_null=True)
PRICE = adds("l.price > 2", "sum", "CAST(l.price AS DOUBLE)", steps=20, high=Fraction(20))
PER_GROUP = replace(PRICE, form="sum", per_group="sum")
PARCEL = RelationColumn("l", "parcel", "UBIGINT")
PERSON = RelationColumn("o", "person", "UBIGINT")
ORDERS, PEOPLE = (
    ReferenceStep("orders", RelationColumn("o", "id", "BIGINT")),
    ReferenceStep("people", RelationColumn("p", "id", "BIGINT")),
)
ONE = Referenced(PARCEL, (ORDERS,), PERSON)
TWO = Referenced(PARCEL, (replace(ORDERS, reference=PERSON), PEOPLE), RelationColumn("p", "household", "BIGINT"))
ROWS = {ONE: "lines AS l", TWO: "lines AS l LEFT JOIN kinds AS k ON k.name = l.kind"}
PLAIN = {
    ONE: "lines AS l JOIN orders AS o ON l.parcel = o.id",
    TWO: "lines AS l LEFT JOIN kinds AS k ON k.name = l.kind JOIN orders AS o ON l.parcel = o.id "
    "JOIN people AS p ON o.person = p.id",
}
UNIT = {ONE: "o.person", TWO: "p.household"}


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """Lines of orders of people of households. Some lead nowhere, or to a person without a household."""
    connection = duckdb.connect()
    for table in (
        "people AS SELECT i AS id, nullif(i // 3, 2) AS household FROM range(30) AS r(i)",
        "orders AS SELECT i AS id, nullif(hash(i, 1) % 33, 5) AS person FROM range(200) AS r(i)",
        "lines AS SELECT nullif(hash(i, 2) % 220, 7) AS parcel, "
        "['a', 'b', NULL, 'c'][CAST(1 + hash(i, 3) % 4 AS BIGINT)] AS kind, "
        "nullif(hash(i, 4) % 30, 9) AS price, i AS number FROM range(3000) AS r(i)",
        "kinds AS FROM (VALUES ('a', 1), ('a', 2), ('b', 3)) AS v(name, floor)",
    ):
        connection.execute(f"CREATE TABLE {table}")
    return connection


def found(database: duckdb.DuckDBPyConnection, job: CountingJob) -> dict[int, list[int]]:
    """Returns exact totals of every aggregate by the code of the cell."""
    counts = count_exactly(database.cursor(), job, b"key")
    totals: dict[int, list[int]] = {}
    for code, values in zip(counts._exact_coordinates[0].tolist(), counts._exact_counts.T.tolist(), strict=True):
        totals[code] = [
            first + second for first, second in zip(totals.get(code, [0] * len(values)), values, strict=True)
        ]
    return totals


@pytest.mark.parametrize("aggregates", [(adds(""), PRICE), (adds(""), PER_GROUP)])
@pytest.mark.parametrize("max_rows", [1, 5, COUNTED_FIRST, 1000])
@pytest.mark.parametrize("lookup", [ONE, TWO])
def test_a_lookup_finds_what_the_join_finds(
    database: duckdb.DuckDBPyConnection, lookup: Referenced, max_rows: int, aggregates: tuple[Contribution, ...]
) -> None:
    """As after a plain join, rows that lead to no unit are dropped, and rows of a unit are bounded after the lookup."""
    attribute = Attribute((0,), np.arange(KIND.size, dtype=np.int64), KIND.size)
    floor = ("k.floor",) if lookup is TWO else ()
    job = counts(
        PLAIN[lookup], ("l.price IS NULL OR l.price < 25",), UNIT[lookup], max_rows, ("l.number", *floor),
        (key("l.kind", KIND),), (attribute,), aggregates,
    )  # fmt: skip
    looked_up = replace(job, source=rows(ROWS[lookup]), unit=lookup)
    assert job_sql(job) != job_sql(looked_up)
    expected = found(database, job)
    assert found(database, looked_up) == expected
    (units,) = database.execute(f"SELECT count(DISTINCT {UNIT[lookup]}) FROM {PLAIN[lookup]}").fetchone() or (0,)
    total = sum(values[0] for values in expected.values())
    assert total <= units * max_rows
    if max_rows == 1000:
        where = (
            f"(l.price IS NULL OR l.price < 25) AND (l.kind IS NULL OR l.kind <> 'c') AND {UNIT[lookup]} IS NOT NULL"
        )
        row = database.execute(f"SELECT count(*) FROM {PLAIN[lookup]} WHERE {where}").fetchone()
        assert row == (total,) and len(expected) == KIND.size
