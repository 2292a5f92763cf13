"""The conformance file: each form of BigQuery and GoogleSQL is answered as by exact SQL, or refused by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pytest

from tests.language.bigquery_tables import open_university
from tests.language.clinic import ask, charges, told, without_duckdb
from tests.language.golden_files import Golden, read_golden

STATEMENTS = read_golden("bigquery_*.sql")
FARTHEST = 0.1  # of an answer, or 2 where that is small: false alarms below 1e-9 each at epsilon 100


@pytest.fixture(scope="module")
def university() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_university() as connection:
        yield connection


def close(value: Any, exact: Any) -> bool:
    """Tells whether an answer is the exact one, up to noise."""
    if isinstance(value, list):
        return len(value) == len(exact) and all(map(close, value, exact))
    if isinstance(exact, str) or exact is None or value is None:
        return bool(value == exact)
    return math.isclose(float(value), float(exact), rel_tol=FARTHEST, abs_tol=2)


def as_rows(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: [str(value) for value in row if isinstance(value, str)])


@pytest.mark.sampled
@pytest.mark.parametrize("golden", STATEMENTS, ids=str)
def test_conformance(golden: Golden, university: duckdb.DuckDBPyConnection) -> None:
    """A statement of BigQuery's is answered correctly, or refused with the pinned reason and nothing charged."""
    expected = dict(golden.expected)
    if "exact" in expected:
        rows = as_rows(ask(university, golden.statement).fetchall())
        exact = as_rows(university.execute(expected["exact"]).fetchall())
        assert len(rows) == len(exact)
        for row, exact_row in zip(rows, exact, strict=True):
            assert list(map(close, row, exact_row)) == [True] * len(exact_row), (row, exact_row)
    else:
        charged = charges(university)
        assert without_duckdb(told(university, golden.statement)) == expected["refused"]
        assert charges(university) == charged


def test_enough_statements() -> None:
    """There are at least 80 statements, most are answered, and each title is there once."""
    assert len(STATEMENTS) >= 80
    assert len(set(map(str, STATEMENTS))) == len(STATEMENTS)
    assert sum("exact" in dict(golden.expected) for golden in STATEMENTS) >= 50
