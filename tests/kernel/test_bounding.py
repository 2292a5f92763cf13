"""Neighbours differ by one unit's rows: bounded answers differ by at most the claimed L1 and L2 sensitivity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations_with_replacement, product
from random import Random

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.jobs import Attribute, CountingJob
from dpduck.kernel.rows.bounding import key_integer
from dpduck.values.domain import RangeDomain, ValueDomain
from tests.support.nodes import adds, counts, key

Row = tuple[int | None, str | None, float | None]  # unit, ward, charge

WARDS = ValueDomain("VARCHAR", ("a", "b"), with_null=True)
CHARGES = RangeDomain("DOUBLE", ("0", "1"), "2", "1", "", 1)
KEYS = (key("t.ward", WARDS), key("t.charge", CHARGES))
CELLS = (WARDS.size, CHARGES.size)
CONTENT = ("t.unit", "t.ward", "t.charge")

SOURCES = {
    "plain": ("t", CONTENT),
    "join": ("t JOIN wards ON wards.name = t.ward", (*CONTENT, "wards.name", "wards.floor")),
    "left join": ("t LEFT JOIN wards ON wards.name = t.ward", (*CONTENT, "wards.name", "wards.floor")),
    "subquery": ("(SELECT unit, ward, charge FROM t WHERE charge < 1.5) AS t", CONTENT),
}
FILTERS = {"all": (), "some": ("t.charge IS NULL OR t.charge <> 0.5",)}
AGGREGATES = ("", "t.charge >= 1", "t.ward = 'a'", "NULL")


@cache
def database() -> duckdb.DuckDBPyConnection:
    """One database for the file. The public table has two rows for ward a, so that joins multiply rows."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("CREATE TABLE wards AS FROM (VALUES ('a', 1), ('a', 2), ('b', 1), ('c', 3)) AS w(name, floor)")
    return connection


def load(rows: Sequence[Row], connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyConnection:
    connection = connection or database()
    connection.execute("CREATE OR REPLACE TABLE t (unit BIGINT, ward VARCHAR, charge DOUBLE)")
    if rows:
        units, wards, charges = zip(*rows, strict=True)
        texts = [None if charge is None else repr(charge) for charge in charges]
        connection.execute(
            "INSERT INTO t SELECT unnest(CAST($1 AS BIGINT[])), unnest(CAST($2 AS VARCHAR[])), "
            "unnest(CAST($3 AS DOUBLE[]))",
            [list(units), list(wards), texts],
        )
    return connection


def job_of(
    max_rows: int, source: str = "plain", filters: str = "all", aggregates: tuple[str, ...] = AGGREGATES
) -> CountingJob:
    attributes = tuple(Attribute((i,), np.arange(size), size) for i, size in enumerate(CELLS))
    from_sql, content = SOURCES[source]
    counted = tuple(map(adds, aggregates))
    return counts(from_sql, FILTERS[filters], "t.unit", max_rows, content, KEYS, attributes, counted)


def answers(connection: duckdb.DuckDBPyConnection, job: CountingJob, key: bytes = b"key") -> NDArray[np.int64]:
    """Returns the exact bounded table of every aggregate, as a dense array."""
    counts = count_exactly(connection.cursor(), job, key)
    table = np.zeros((len(job.aggregates), *counts._sizes), dtype=np.int64)
    for number in range(len(job.aggregates)):
        np.add.at(table[number], counts._exact_coordinates, counts._exact_counts[number])
    return table


def assert_bounded(table: NDArray[np.int64], smaller: NDArray[np.int64], max_rows: int) -> None:
    """Requires that one unit changes each aggregate by at most m in L1, and so in L2, wherever its rows fall."""
    difference = (table - smaller).reshape(len(table), -1)
    assert (difference >= 0).all(), "another unit's rows were displaced"
    assert np.abs(difference).sum(axis=1).max() <= max_rows
    assert (difference * difference).sum(axis=1).max() <= max_rows**2


CHOICES: list[tuple[str | None, float | None]] = [("a", 0.0), ("b", 1.0), ("a", 1.5), ("c", 0.5), (None, 0.5)]


@pytest.mark.parametrize("max_rows", [1, 2, 3])
def test_exhaustive_neighbours(max_rows: int) -> None:
    """Every table of up to 4 rows of one unit beside two fixed units, against the table without that unit."""
    others: list[Row] = [(2, *CHOICES[0]), (2, *CHOICES[1]), (2, *CHOICES[0]), (3, *CHOICES[4])]
    job = job_of(max_rows)
    smaller = answers(load(others), job)
    for count in range(5):
        for chosen in combinations_with_replacement(CHOICES, count):
            table = answers(load([*others, *((1, *choice) for choice in chosen)]), job)
            assert_bounded(table, smaller, max_rows)
            inside = sum(ward != "c" for ward, _ in chosen)
            assert table[0].sum() - smaller[0].sum() == min(inside, max_rows), "fewer rows kept than allowed"


ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 3)),
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([0.0, -0.0, 0.5, 1.0, 1.5, 2.0, -1.0, float("nan"), float("inf"), None]),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(
    rows=ROWS,
    unit=st.integers(0, 3),
    max_rows=st.integers(1, 5),
    source=st.sampled_from(sorted(SOURCES)),
    filters=st.sampled_from(sorted(FILTERS)),
)
def test_random_neighbours(rows: list[Row], unit: int, max_rows: int, source: str, filters: str) -> None:
    """Filters, joins that multiply rows, subqueries, FILTER conditions and several aggregates at once."""
    job = job_of(max_rows, source, filters)
    table = answers(load(rows), job)
    smaller = answers(load([row for row in rows if row[0] != unit]), job)
    assert_bounded(table, smaller, max_rows)
    assert np.abs(table - smaller).reshape(len(table), -1).sum(axis=1).max() <= max_rows


def oracle(rows: Iterable[Row], max_rows: int, key: bytes) -> Counter[tuple[object, ...]]:
    """The plain definition: the first m rows of each unit by the keyed hash, ties by content, counted by cell."""
    hashed = database().execute(
        "SELECT unit, ward, charge, hash(CAST(? AS UBIGINT), unit, ward, charge) FROM t "
        "WHERE unit IS NOT NULL AND (ward IN ('a', 'b') OR ward IS NULL) AND charge >= 0 AND charge < 2",
        [key_integer(key)],
    )
    kept: Counter[tuple[object, ...]] = Counter()
    seen: Counter[int] = Counter()
    ordered = sorted(hashed.fetchall(), key=lambda row: (row[0], row[3], str(row[1]), row[2]))
    for unit, ward, charge, _ in ordered:
        seen[unit] += 1
        if seen[unit] <= max_rows:
            kept[(WARDS.labels.index(ward), int(charge >= 1))] += 1
    return kept


@settings(max_examples=60)
@given(rows=ROWS, max_rows=st.integers(1, 4), key=st.binary(min_size=1, max_size=40))
def test_plain_definition(rows: list[Row], max_rows: int, key: bytes) -> None:
    """Exactly the first m rows of each unit in the order of the keyed hash are kept."""
    table = answers(load(rows), job_of(max_rows, aggregates=("",)), key)[0]
    expected = oracle(rows, max_rows, key)
    assert {cell: n for cell, n in np.ndenumerate(table) if n} == dict(expected)


@settings(max_examples=30)
@given(rows=ROWS, max_rows=st.integers(1, 4), order=st.randoms(use_true_random=False))
def test_physical_order(rows: list[Row], max_rows: int, order: Random) -> None:
    """Permuting the table changes nothing: no row number and no order of insertion is used."""
    job = job_of(max_rows, "join")
    first = answers(load(rows), job)
    permuted = list(rows)
    order.shuffle(permuted)
    assert np.array_equal(answers(load(permuted), job), first)


def test_threads() -> None:
    """Three threads over many row groups, reversed and in order, keep the same rows."""
    rows = "SELECT i % 20011 AS unit, CASE i % 5 WHEN 0 THEN 'a' WHEN 1 THEN NULL ELSE 'b' END AS ward, "
    rows += "(i % 7) / 3.0 AS charge FROM range(300000) AS r(i)"
    found = []
    for threads, order in product((1, 3), ("i", "-i", "hash(i)")):
        connection = duckdb.connect(config={"threads": threads})
        connection.execute(f"CREATE TABLE t AS {rows} ORDER BY {order}")
        found.append(answers(connection, job_of(3)))
    assert all(np.array_equal(table, found[0]) for table in found)
    assert found[0][0].sum() > 20011 * 2


def test_equal_values_that_can_be_told_apart() -> None:
    """0.0 and -0.0 hash and sort alike, but a condition can separate them. The physical order still has no part."""
    rows: list[Row] = [(1, "a", 0.0), (1, "a", -0.0)] * 3
    job = job_of(3, aggregates=("", "signbit(t.charge)"))
    tables = [answers(load(list(order)), job) for order in (rows, rows[::-1], sorted(rows, key=str))]
    assert all(np.array_equal(table, tables[0]) for table in tables)


def test_null_units_and_their_conditions() -> None:
    """Rows without a unit are never counted, however many."""
    table = answers(load([(None, "a", 0.0)] * 10 + [(1, "a", 0.0)]), job_of(2))
    assert table[0].sum() == 1


def test_conditions_that_are_null_count_nothing() -> None:
    """count(*) FILTER (WHERE NULL) counts nothing, and neither does a comparison that is NULL."""
    table = answers(load([(1, None, 0.0), (2, "a", 1.0)]), job_of(2))
    assert table.sum(axis=(1, 2)).tolist() == [2, 1, 1, 0]


@pytest.mark.parametrize(
    "domain",
    [
        ValueDomain("VARCHAR", ("0", "2", "3")),
        ValueDomain("BIGINT", ("0", "2", "3")),
        RangeDomain("DOUBLE", ("2", "3"), "4", "1", "", 1),
    ],
)
def test_rows_outside_a_domain_take_no_place(domain: ValueDomain | RangeDomain) -> None:
    """A unit's values outside the domain, also in its gaps, are dropped before its rows are bounded."""
    connection = load([(unit, ward, float(ward)) for unit in range(40) for ward in ("1", "1", "7", "3")])
    keys = (key("t.ward" if domain.type_name != "DOUBLE" else "t.charge", domain),)
    attributes = (Attribute((0,), np.arange(domain.size), domain.size),)
    job = counts("t", (), "t.unit", 1, CONTENT, keys, attributes, (adds(""),))
    assert answers(connection, job).sum() == 40


def test_the_choice_depends_on_the_key() -> None:
    """Without the key nobody can say which rows of a unit are kept."""
    load([(unit, "ab"[i % 2], i % 4 / 2) for unit in range(60) for i in range(8)])
    tables = {answers(database(), job_of(1), bytes([key])).tobytes() for key in range(8)}
    assert len(tables) > 1


def test_the_key_is_in_no_text() -> None:
    """The key is a prepared parameter: not in the SQL that runs, so not in a profile, a log or an error."""
    key, texts, given = key_integer(b"a secret"), list[str](), list[object]()

    class Listening:
        def execute(self, sql: str, parameters: dict[str, object] | None = None) -> duckdb.DuckDBPyConnection:
            texts.append(sql)
            given.extend((parameters or {}).values())
            return database().cursor().execute(sql, parameters)

    load([(1, "a", 0.0)] * 5)
    count_exactly(Listening(), job_of(2), b"a secret")  # type: ignore[arg-type]
    assert key in given and not [text for text in texts if str(key) in text]


def test_multiplied_rows_are_bounded() -> None:
    """A join that makes many rows of one is bounded after the join."""
    connection = load([(1, "a", 0.0)] * 5)
    for max_rows in (1, 4, 10, 100):
        table = answers(connection, job_of(max_rows, "join", aggregates=("",)))
        assert table.sum() == min(max_rows, 10)


@pytest.mark.parametrize("keys", [0, 1, 12])
def test_any_number_of_keys(keys: int) -> None:
    """No key at all, and more cells than one packed integer can tell apart."""
    connection = load([(unit, "a", 0.5) for unit in range(3) for _ in range(unit + 1)])
    domain = ValueDomain("VARCHAR", ("a", *(f"never {i}" for i in range(99))), with_null=True)
    job = counts(
        "t",
        (),
        "t.unit",
        2,
        CONTENT,
        (key("t.ward", domain),) * keys,
        tuple(Attribute((i,), np.arange(101), 101) for i in range(keys)),
        (adds(""), adds("t.unit = 2")),
    )
    found = count_exactly(connection.cursor(), job, b"key")
    assert found._exact_counts.sum(axis=1).tolist() == [5, 2]
    assert all((codes == 0).all() for codes in found._exact_coordinates)
    assert len(found._exact_coordinates) == keys
