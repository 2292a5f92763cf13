"""Counting: several aggregates in one scan, released attributes, and no data in errors or representations."""

from __future__ import annotations

import ast
import copy
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from dpduck.kernel.counting.exact import FEW_GROUPS, count_exactly
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.counting.jobs import Attribute, CountingJob, GroupKey
from dpduck.kernel.queries.sparse_counts import SparseCounts
from dpduck.values.domain import RangeDomain, ValueDomain
from dpduck.values.errors import InternalError
from tests.support.nodes import adds, counts, key

PRODUCT = Path(__file__).resolve().parents[3] / "dpduck"
CANARY = "canary-7f3a"

SEX = key("v.sex", ValueDomain("VARCHAR", ("F", "M"), with_null=True))
AGE = key("v.age", RangeDomain("INTEGER", ("0", "20", "40"), "60", "20", "", 1))


def attribute(source: int, size: int) -> Attribute:
    return Attribute((source,), np.arange(size), size)


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    """Sixty visits. Every eleventh has the sex "canary", which is outside the domain."""
    connection = duckdb.connect()
    connection.execute(
        f"CREATE TABLE visits AS SELECT i % 9 AS unit, i % 70 AS age, i % 2 = 0 AS urgent, CASE "
        f"WHEN i % 11 = 0 THEN '{CANARY}' WHEN i % 5 = 0 THEN NULL WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex "
        f"FROM range(600) AS r(i)"
    )
    return connection


def job_of(
    keys: tuple[GroupKey, ...] = (SEX, AGE),
    attributes: tuple[Attribute, ...] = (attribute(0, 3), attribute(1, 3)),
    aggregates: tuple[str, ...] = ("",),
    filters: tuple[str, ...] = (),
    unit_sql: str | None = None,
) -> CountingJob:
    counted = tuple(map(adds, aggregates))
    return counts("visits AS v", filters, unit_sql, 1000, ("v.sex",), keys, attributes, counted)


def table_of(counts: ExactCounts) -> list[dict[tuple[int, ...], int]]:
    """Returns one dictionary for each aggregate, without cells that have no rows."""
    tables: list[dict[tuple[int, ...], int]] = []
    for values in counts._exact_counts:
        table: dict[tuple[int, ...], int] = {}
        for *cell, value in zip(*counts._exact_coordinates, values, strict=True):
            place = tuple(int(code) for code in cell)
            table[place] = table.get(place, 0) + int(value)
        tables.append({place: value for place, value in table.items() if value})
    return tables


EXPECTED = (
    "SELECT CASE sex WHEN 'F' THEN 0 WHEN 'M' THEN 1 ELSE 2 END, age // 20, count(*) FILTER (WHERE {condition}) "
    "FROM visits WHERE (sex IS NULL OR sex IN ('F', 'M')) AND age < 60 AND {filter} GROUP BY ALL"
)


@pytest.mark.parametrize("unit_sql", [None, "v.unit"])
def test_aggregates_and_filters(connection: duckdb.DuckDBPyConnection, unit_sql: str | None) -> None:
    """Each aggregate of a scan equals DuckDB's own count with FILTER, inside the domains."""
    conditions = ("", "v.urgent", "v.age > 30 AND v.urgent", "v.sex = 'F'", "NULL", "v.sex IS NULL")
    job = job_of(aggregates=conditions, filters=("v.age <> 7", "v.urgent OR v.age < 50"), unit_sql=unit_sql)
    found = table_of(count_exactly(connection.cursor(), job, b"key"))
    for condition, table in zip(conditions, found, strict=True):
        sql = EXPECTED.format(
            condition=condition.replace("v.", "") or "true", filter="age <> 7 AND (urgent OR age < 50)"
        )
        assert table == {(sex, age): n for sex, age, n in connection.execute(sql).fetchall() if n}


def test_no_keys(connection: duckdb.DuckDBPyConnection) -> None:
    """Without GROUP BY there is one cell, also where no row is left."""
    for filters, total in (((), 600), (("false",), 0)):
        job = job_of((), (), ("", "v.urgent"), filters)
        counts = count_exactly(connection.cursor(), job, b"key")
        assert counts._exact_counts.tolist() == [[total], [total // 2]]


@pytest.mark.parametrize("unit_sql", [None, "v.unit"])
def test_empty_table(connection: duckdb.DuckDBPyConnection, unit_sql: str | None) -> None:
    """A table without rows gives an empty sparse table, and no error."""
    counts = count_exactly(connection.cursor(), job_of(filters=("false",), unit_sql=unit_sql), b"key")
    assert counts._exact_counts.shape == (1, 0)
    assert [codes.shape for codes in counts._exact_coordinates] == [(0,), (0,)]


def test_attributes_are_images_of_keys(connection: duckdb.DuckDBPyConnection) -> None:
    """An attribute may merge two keys, and drop combinations with -1. Dropped rows count in no attribute."""
    both = np.array([[0, 0, 1], [0, -1, 1], [-1, 2, 2]])
    job = job_of(attributes=(Attribute((0, 1), both, 3), attribute(1, 3)))
    found = table_of(count_exactly(connection.cursor(), job, b"key"))[0]
    expected: dict[tuple[int, ...], int] = {}
    rows = connection.execute(EXPECTED.format(condition="true", filter="true")).fetchall()
    for sex, age, count in rows:
        if both[sex, age] >= 0:
            place = (int(both[sex, age]), age)
            expected[place] = expected.get(place, 0) + count
    assert found == expected


def test_exact_filters_do_not_change_counts(connection: duckdb.DuckDBPyConnection) -> None:
    """Above FEW_GROUPS groups rows outside a domain are dropped before grouping, and counts stay the same."""
    few = count_exactly(connection.cursor(), job_of(), b"key")
    ages = key("v.age", ValueDomain("INTEGER", tuple(str(7 * i) for i in range(60)), with_null=True))
    sexes = key("v.sex", ValueDomain("VARCHAR", ("F", "M"), with_null=True, other="other"))
    wide = key("v.age", ValueDomain("VARCHAR", tuple(str(i) for i in range(100))))
    for extra in ((ages, wide, sexes, wide), (ages,)):
        keys = (SEX, AGE, *extra)
        attributes = tuple(attribute(i, key.domain.size) for i, key in enumerate(keys))
        slots = 4 * 4 * np.prod([key.domain.size + 1 for key in extra])
        assert (slots > FEW_GROUPS) == (len(extra) > 1)
        found = table_of(count_exactly(connection.cursor(), job_of(keys, attributes), b"key"))[0]
        inside = "age % 7 = 0"
        rows = connection.execute(EXPECTED.format(condition=inside, filter="true")).fetchall()
        rolled: dict[tuple[int, ...], int] = {}
        for place, value in found.items():
            rolled[place[:2]] = rolled.get(place[:2], 0) + value
        assert rolled == {(sex, age): n for sex, age, n in rows if n}
    assert sum(table_of(few)[0].values()) > sum(rolled.values())


def test_one_statement(connection: duckdb.DuckDBPyConnection) -> None:
    """All aggregates come from one statement over the private table."""
    executed: list[str] = []

    class Counter:
        def execute(self, sql: str, parameters: object = None) -> duckdb.DuckDBPyConnection:
            executed.append(sql)
            return connection.cursor().execute(sql, parameters)

    count_exactly(Counter(), job_of(aggregates=("", "v.urgent", "NOT v.urgent"), unit_sql="v.unit"), b"key")  # type: ignore[arg-type]
    over_rows = [sql for sql in executed if "visits" in sql]  # the others look at the optimizer's settings
    assert len(over_rows) == 1
    assert over_rows[0].count("visits") == 1


@pytest.mark.parametrize("failing", ["CAST(v.sex AS INTEGER) = 1", "error(v.sex)", "v.no_such_column", "1/0 >"])
def test_errors_have_one_text(connection: duckdb.DuckDBPyConnection, failing: str) -> None:
    """DuckDB's message quotes data. The error that leaves count_exactly and its traceback do not."""
    with pytest.raises(InternalError) as caught:
        count_exactly(connection.cursor(), job_of(filters=(failing,)), b"a secret key")
    assert str(caught.value) == "counting failed"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    text = "".join(traceback.format_exception(caught.value))
    assert CANARY not in text
    assert "secret" not in text.replace('b"a secret key"', "")


def test_exact_counts_are_hidden(connection: duckdb.DuckDBPyConnection) -> None:
    """No repr, str, length, iteration, comparison, pickling, copying or size reveals anything of exact counts."""
    large = count_exactly(connection.cursor(), job_of(), b"key")
    empty = count_exactly(connection.cursor(), job_of(filters=("false",)), b"key")
    assert repr(large) == str(large) == f"{large}" == f"{large!r}" == "ExactCounts(hidden)"
    assert sys.getsizeof(large) == sys.getsizeof(empty)
    assert large != empty
    assert large != count_exactly(connection.cursor(), job_of(), b"key")
    peeks: tuple[Callable[[Any], object], ...] = (len, iter, list, vars, pickle.dumps, copy.copy, copy.deepcopy)
    for peek in peeks:
        with pytest.raises((TypeError, InternalError)):
            peek(large)
    assert all(name.startswith("_") for name in dir(large))


@pytest.mark.slow
def test_only_trusted_code_reads_exact_counts() -> None:
    """Outside the doors to noise no code names a field of ExactCounts or SparseCounts, or returns one of these."""
    slots = ExactCounts.__slots__ + SparseCounts.__slots__
    fields = {name for name in slots if name.startswith(("_exact", "_occupied"))}
    doors = {
        *("exact.py", "families.py", "histograms.py", "hidden.py", "key_counts.py", "marginals.py", "projections.py"),
        *("sketches.py", "sparse_counts.py", "stream_state.py", "summaries.py", "tables.py"),
    }
    assert len(fields) == 5
    for path in PRODUCT.rglob("*.py"):
        if path.name in doors and "kernel" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert not fields & (attributes | {text for text in texts if isinstance(text, str)}), path.name
