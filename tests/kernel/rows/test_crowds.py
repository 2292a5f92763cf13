"""Units with too many rows are looked for first, and ranked alone. Each cell has the count of ranking all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.jobs import Attribute, CountingJob
from dpduck.kernel.relations import Source, Stored
from dpduck.kernel.rows import bounding, reader
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.values.domain import ValueDomain
from dpduck.values.sqltypes import sql_type
from tests.kernel.rows.test_no_scan_filters import Watch
from tests.support.nodes import adds, counts, key

UNITS = {
    "BIGINT": "n",
    "UTINYINT": "n % 256",
    "HUGEINT": "n * 100000000000000000000::HUGEINT",
    "UUID": "md5(n::VARCHAR)::UUID",
    "DECIMAL(18,3)": "n / 8",
    "DATE": "DATE '2000-01-01' + n::INTEGER",
}
TABLE = '"memory"."main"."visits"'
WARD = ValueDomain("VARCHAR", ("a", "b", "c"), with_null=True)
TYPES = {'"r0"."ward"': "VARCHAR", '"r0"."score"': "INTEGER"}
AGGREGATES = (adds(""), adds('"r0"."score" > 3'))
ARE_CROWDED = bounding._are_crowded
BY_UNIT = (adds("", "sum", per_group="sum"),)


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 2}) as found:
        keep_plans_plain(found)
        yield found


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks for crowds in small tables, too, in parts, and however many crowds there are."""
    monkeypatch.setattr(bounding, "FEW", 1)
    monkeypatch.setattr(bounding, "SAMPLE", 1)
    monkeypatch.setattr(bounding, "_are_crowded", lambda *_: False)
    monkeypatch.setattr(bounding, "PART", 4000)


def make_table(connection: duckdb.DuckDBPyConnection, unit: str, seed: int, longest: int) -> None:
    """Makes rows of units with a heavy tail, rows without a unit, and texts within and outside of the domain."""
    connection.execute(
        f"CREATE OR REPLACE TABLE visits AS SELECT CAST(nullif(n, 7) AS BIGINT) AS n, "
        f"CAST(CASE WHEN n <> 7 THEN {UNITS[unit]} END AS {unit}) AS unit, "
        f"['a', 'b', 'c', 'd', NULL][1 + (hash(i, n, {seed}) % 5)::INTEGER] AS ward, "
        f"(hash(i, {seed}) % 9)::INTEGER AS score "
        f"FROM range(400) AS u(n), range({longest}) AS r(i) WHERE i < 1 + {longest} // (1 + hash(n, {seed}) % 200) "
        f"ORDER BY hash(i, n)"
    )


def job_of(unit: str, max_rows: int, where: tuple[str, ...], aggregates: tuple[Contribution, ...]) -> CountingJob:
    types = {**TYPES, '"r0"."unit"': unit}
    ward = key('"r0"."ward"', WARD)
    return counts(
        Source(Stored(TABLE, "r0")), where, '"r0"."unit"', max_rows, tuple(types), (ward,),
        (Attribute((0,), np.arange(WARD.size), WARD.size),), aggregates, types,
    )  # fmt: skip


def cells(connection: duckdb.DuckDBPyConnection, job: CountingJob) -> dict[int, list[int]]:
    with connection.cursor() as cursor:
        reader.begin(cursor)
        counts = count_exactly(cursor, job, b"key")
    codes, values = counts._exact_coordinates[0].tolist(), counts._exact_counts.T.tolist()
    found: Counter[tuple[int, int]] = Counter()
    for code, row in zip(codes, values, strict=True):
        found.update({(code, number): value for number, value in enumerate(row)})
    return {code: [found[code, number] for number in range(len(values[0]))] for code in set(codes)}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Lists the answer of each call of put_crowds."""
    answers: list[int | None] = []
    put = bounding.put_crowds

    def watched(*given: Any) -> int | None:
        answers.append(put(*given))
        return answers[-1]

    monkeypatch.setattr(bounding, "put_crowds", watched)
    return answers


@pytest.mark.parametrize("unit", UNITS)
def test_each_cell_is_as_if_all_rows_were_ranked(
    connection: duckdb.DuckDBPyConnection, unit: str, used: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts equal those of the plain window: random tables, heavy tails, NULL units, conditions, any MAX ROWS."""
    for seed, longest in ((1, 300), (2, 40)):
        make_table(connection, unit, seed, longest)
        for where in ((), ('"r0"."score" <> 2',)):
            for max_rows in (1, 4, 33, 400):
                for aggregates in (AGGREGATES, BY_UNIT):
                    job = job_of(unit, max_rows, where, aggregates)
                    found = cells(connection, job)
                    with monkeypatch.context() as patch:
                        patch.setattr(bounding, "rows_of", lambda *_: 0)
                        assert found == cells(connection, job), (seed, where, max_rows)
    assert len(used) == 32 and None not in used and 0 in used and max(number or 0 for number in used) > 20


WEIGHED = (
    (adds("", norm=16),),
    (adds("", norm=900), adds('"r0"."score" > 3', norm=2)),
    (
        adds("", "valued", '"r0"."score"', Fraction(0), Fraction(8), 8, norm=100, shared=True),
        adds("", "sum", '"r0"."score"', Fraction(0), Fraction(8), 8, norm=4000, centre=Fraction(5)),
    ),
)
"""Counts and sums of weighed units, of which some are surely counted whole."""


@pytest.mark.parametrize("unit", ["BIGINT", "DATE"])
def test_light_units_are_counted_as_if_all_were_weighed(
    connection: duckdb.DuckDBPyConnection, unit: str, used: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units with few rows have the same weights whether they are separated from crowds or all units are weighed."""
    make_table(connection, unit, 4, 300)
    for where in ((), ('"r0"."score" <> 2',)):
        for max_rows in (2, 50, 400):
            for aggregates in WEIGHED:
                job = job_of(unit, max_rows, where, aggregates)
                found = cells(connection, job)
                with monkeypatch.context() as patch:
                    patch.setattr(bounding, "rows_of", lambda *_: 0)
                    assert found == cells(connection, job), (where, max_rows, aggregates)
    assert len(used) >= 12 and max(number or 0 for number in used) > 20


def test_units_with_too_many_rows_are_all_found(connection: duckdb.DuckDBPyConnection) -> None:
    """The listed units are exactly those with more rows than are kept, each once, whichever part has their hash."""
    make_table(connection, "BIGINT", 3, 300)
    sql = f"SELECT unit AS dpduck_unit FROM {TABLE}"
    assert bounding.put_crowds(connection, sql, 20_000, 5, {}) is not None
    (found,) = connection.execute(f"SELECT list_sort(list(dpduck_unit_hash)) FROM {bounding.CROWDS}").fetchone() or ()
    asked = "SELECT hash(unit) >> 32 AS h FROM visits GROUP BY unit HAVING count(*) > 5"
    assert found == sorted(h for (h,) in connection.execute(asked).fetchall())


def test_no_scan_is_given_a_condition(connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """No condition is given to a scan by the search for crowds, or by counting with crowds and without."""
    make_table(connection, "BIGINT", 4, 300)
    watch = Watch(monkeypatch)
    cells(connection, job_of("BIGINT", 5, ('"r0"."score" <> 2',), AGGREGATES))
    assert watch.given == [] and watch.plans >= 5


def test_where_rows_are_ranked_as_they_are(
    connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are ranked as they are: texts, small tables, other databases, most rows crowded, or few rows left."""
    kinds = {"VARCHAR": False, "DOUBLE": False, "INTEGER": True, "ENUM('a')": False, "STRUCT(a INTEGER)": False}
    assert {kind: sql_type(kind).has_one_hash for kind in kinds} == kinds
    make_table(connection, "BIGINT", 5, 300)
    assert bounding.rows_of(connection, TABLE) > 400
    sql = f"SELECT unit AS dpduck_unit FROM {TABLE}"
    assert ARE_CROWDED(connection, sql, 1, {}) and not ARE_CROWDED(connection, sql, 300, {})
    monkeypatch.setattr(bounding, "_are_crowded", ARE_CROWDED)
    assert bounding.put_crowds(connection, sql, 20_000, 1, {}) is None
    rows = bounding.rows_of(connection, TABLE)
    few = f"SELECT 1 FROM {bounding.sample_sql(TABLE, rows)} WHERE score = 5"
    assert not bounding.are_many(connection, few, rows, {})
    assert bounding.are_many(connection, few.replace("=", "<>"), rows, {})
    monkeypatch.setattr(bounding, "FEW", rows + 1)
    assert bounding.rows_of(connection, TABLE) == 0
    monkeypatch.setattr(bounding, "FEW", 1)
    monkeypatch.setattr(reader, "columns", lambda _, sql, __: [["memory"]] if "databases" in sql else [[9]])
    assert bounding.rows_of(connection, TABLE) == 0
