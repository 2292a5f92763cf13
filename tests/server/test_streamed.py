"""Every function that a streaming statement may have costs little for a row, and makes no long text."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import duckdb
import pytest

from dpduck.server import allowed
from dpduck.server.inspection import inspect
from dpduck.server.syntax import Syntax

ROWS, LENGTH = 4_096, 2_000
ARGUMENTS = ("n", "x", "d", "s", "t", "b", "'year'")
NOT_BY_NAME = ("!", "round_even", "!__postfix", "struct_extract", "&&", "@")
TABLE = f"""CREATE TABLE given AS SELECT range AS n, range / 7.0 AS x, DATE '2000-01-01' + range::INTEGER AS d,
    TIMESTAMP '2000-01-01' + INTERVAL (range) HOUR AS s, range::VARCHAR || repeat('aB%_', {LENGTH // 4}) AS t,
    range % 2 = 0 AS b FROM range({ROWS})"""


@pytest.fixture(scope="module")
def given() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(TABLE)
        yield connection


def calls(name: str) -> Iterator[str]:
    """The function with no and up to two arguments of every type; with a text or a part of a date and two more.

    Aggregates have one argument: with more they keep many values, and do not stream.
    """
    counts = (0, 1) if name in allowed.AGGREGATE else (0, 1, 2, 3)
    for count in counts:
        first = ARGUMENTS if count < 3 else ("t", "'year'")
        for arguments in itertools.product(*[first, *[ARGUMENTS[:6]] * (count - 1)][:count]):
            yield f'"{name}"({", ".join(arguments)})'


@pytest.mark.parametrize("name", sorted(allowed.STREAMED - {"ifnull", "coalesce"}))
def test_a_function_that_streams_is_cheap(given: duckdb.DuckDBPyConnection, name: str) -> None:
    """Two seconds for thousands of rows with texts, where it takes milliseconds; texts no longer than those given."""
    tried = 0
    for call in calls(name):
        length = f"strlen(CAST({call} AS VARCHAR))"
        try:
            given.execute(
                f"PREPARE tried AS SELECT {length if name in allowed.AGGREGATE else f'max({length})'} FROM given"
            )
        except duckdb.Error:
            continue
        start = time.process_time()
        try:
            found = given.execute("EXECUTE tried").fetchall()
        except duckdb.Error:
            found = [(None,)]
        tried += 1
        assert time.process_time() - start < 2.0, call
        assert found[0][0] is None or found[0][0] <= 2 * LENGTH + 100, call
    assert tried > 0 or name in NOT_BY_NAME, name


def test_aggregates_that_keep_many_values_do_not_stream() -> None:
    """max(n, 1000) is a list of a thousand for each group."""
    syntax = Syntax()
    assert inspect("SELECT max(n) FROM ages", syntax).plain
    assert not inspect("SELECT max(n, 1000) FROM ages GROUP BY age", syntax).plain
