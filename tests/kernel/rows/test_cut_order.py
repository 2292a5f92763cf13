"""A cut keeps those rows of a unit that come first by all their values, bit by bit, in joins with many rows."""

from __future__ import annotations

import pytest

import dpduck
from dpduck.kernel.columns.stored import shorten_sql
from dpduck.kernel.counting.exact import job_sql
from dpduck.kernel.places.prepared import over_prepared
from tests.kernel.places.test_prepared import asked, cells, jobs_of, prepared

JOINED = "count(*) AS n FROM visits AS a JOIN visits AS b ON a.patient = b.patient WHERE {}"
EQUAL = {
    "two zeros": ("DOUBLE", "'0.0'::DOUBLE", "'-0.0'::DOUBLE", "1 / b.v > 0", "1 / b.v < 0"),
    "short zeros": ("FLOAT", "'0.0'::FLOAT", "'-0.0'::FLOAT", "1 / b.v > 0", "1 / b.v < 0"),
    "two NaN": ("DOUBLE", "'nan'::DOUBLE", "-'nan'::DOUBLE", "b.v::VARCHAR = 'nan'", "b.v::VARCHAR = '-nan'"),
    "a month": (
        "INTERVAL", "INTERVAL '1 month'", "INTERVAL '30 days'", "b.v::VARCHAR = '1 month'", "b.v::VARCHAR = '30 days'",
    ),
}  # fmt: skip
ROWS, CUT = 300, 128


def counted(kind: str, rows: str, *, twins: bool = False) -> list[int]:
    """Counts pairs of one person's rows, for each of two equal values. rows: a condition on i for the first one."""
    type_name, first, second, *conditions = EQUAL[kind]
    with dpduck.connect() as connection:
        connection.execute(f"CREATE TABLE visits (patient BIGINT, v {type_name})")
        connection.execute(
            f"INSERT INTO visits SELECT 1, CASE WHEN {rows} THEN {first} ELSE {second} END FROM range({ROWS}) AS r(i)"
        )
        connection.execute(
            "FROM dp('CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 100000, BUDGET (epsilon = 1))')"
        )
        jobs = [job for condition in conditions for job in jobs_of(connection, JOINED.format(condition))]
        cursor = connection.cursor()
        if twins:
            cursor, found = prepared(connection, "visits")
            return [total(cells(cursor, over_prepared(job, found, {}, asked(cursor)))) for job in jobs]
        return [total(cells(cursor, job)) for job in jobs]


def total(found: dict[tuple[int, ...], list[int]]) -> int:
    return sum(count for counts in found.values() for count in counts)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", EQUAL)
def test_where_rows_lie_does_not_decide(kind: str) -> None:
    """Equal values that differ, but have one hash: the same rows are joined in whatever order rows lie.

    Otherwise the kept rows of a person could depend on where others' rows are, and on which thread came first.
    """
    half = f"i < {ROWS // 2}"
    found = counted(kind, half)
    assert counted(kind, f"NOT {half}") == counted(kind, "i % 2 = 0") == found
    assert sum(found) == ROWS * CUT
    if EQUAL[kind][0] != "INTERVAL":  # tables with this column are not prepared
        assert counted(kind, f"NOT {half}", twins=True) == found


@pytest.mark.parametrize("kind", EQUAL)
def test_rows_that_are_joined_are_as_they_are_stored(kind: str) -> None:
    """A joined row holds the value of its table, though DuckDB may replace one of two equal values where it sorts.

    Zeros and NaN of either sign are one value to expressions (kernel/columns/stored.py).
    """
    assert counted(kind, "TRUE") == [ROWS * CUT, 0]
    assert counted(kind, "FALSE") == ([0, ROWS * CUT] if kind == "a month" else [ROWS * CUT, 0])


def test_all_columns_are_in_the_order() -> None:
    """All columns that may be read, bit by bit, separate two rows of one hash. A list is NULL or not."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE visits (patient BIGINT, v DOUBLE, t VARCHAR, w INTERVAL, f FLOAT, l DOUBLE[])")
        connection.execute(
            "FROM dp('CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 9, BUDGET (epsilon = 1))')"
        )
        (job,) = jobs_of(connection, JOINED.format("TRUE"))
        content = [f'dpduck_t."{name}"' for name in ["patient", "v", "t", "w", "f", "l"]]
        apart = [
            content[0], f"CAST({content[1]} AS BIT)", shorten_sql(content[2], "VARCHAR"),
            f"CAST({content[3]} AS VARCHAR)",
            f"CAST({content[4]} AS BIT)", f"{content[5]} IS NULL",
        ]  # fmt: skip
        hashed = f"hash(CAST($dpduck_bounding_key AS UBIGINT), {', '.join(content)})"
        listed = [f"{sql} AS dpduck_cut_{number}" for number, sql in enumerate([hashed, *apart])]
        names = ", ".join(f"dpduck_cut_{number}" for number in range(len(listed)))
        window = f"OVER (PARTITION BY {content[0]} ORDER BY {names}) <= {CUT}"
        assert job_sql(job).count(", ".join(listed)) == 1
        assert job_sql(job).count(window) == 1
