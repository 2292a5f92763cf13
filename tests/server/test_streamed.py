"""Every function allowed in a streaming statement costs little for a row, and makes no long text. Others are ended."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from dpduck.server import syntax
from dpduck.server.inspection import inspect
from dpduck.server.limits import Limits, parse_size
from dpduck.server.syntax import Syntax
from dpduck.values.errors import Refusal
from tests.server.served import Served, open_served
from tests.server.test_runners import JOIN, resident
from tests.support.alone import fresh_seed

ROWS, LENGTH = 4_096, 2_000
ARGUMENTS = ("n", "x", "d", "s", "t", "b", "'year'")
NOT_BY_NAME = ("!", "round_even", "!__postfix", "struct_extract", "&&", "@")
GIVEN = f"""SELECT range AS n, range / 7.0 AS x, DATE '2000-01-01' + range::INTEGER AS d,
    TIMESTAMP '2000-01-01' + INTERVAL (range) HOUR AS s, range::VARCHAR || repeat('aB%_', {LENGTH // 4}) AS t,
    range % 2 = 0 AS b FROM range({ROWS})"""
TABLE = f"CREATE TABLE given AS {GIVEN}"


@pytest.fixture(scope="module")
def given() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(TABLE)
        yield connection


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory, state_directory: Path) -> Iterator[Served]:
    opened = open_served(
        tmp_path_factory.mktemp("bounded"), Limits(seconds=0.2, rows=100_000, memory=parse_size("400MB"))
    )
    yield opened
    opened.service.close()


def calls(name: str) -> Iterator[str]:
    """The function with no and up to two arguments of every type. With a text or a part of a date and two more.

    Aggregates have one argument: with more they keep many values, and do not stream.
    """
    counts = (0, 1) if name in syntax.AGGREGATE else (0, 1, 2, 3)
    for count in counts:
        first = ARGUMENTS if count < 3 else ("t", "'year'")
        for arguments in itertools.product(*[first, *[ARGUMENTS[:6]] * (count - 1)][:count]):
            yield f'"{name}"({", ".join(arguments)})'


@pytest.mark.parametrize("name", sorted(syntax.STREAMED - {"ifnull", "coalesce"}))
def test_a_function_that_streams_is_cheap(given: duckdb.DuckDBPyConnection, name: str) -> None:
    """Two seconds for thousands of rows with texts, where it takes milliseconds. Texts no longer than those given."""
    tried = 0
    for call in calls(name):
        length = f"strlen(CAST({call} AS VARCHAR))"
        try:
            given.execute(
                f"PREPARE tried AS SELECT {length if name in syntax.AGGREGATE else f'max({length})'} FROM given"
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


OTHERS = sorted(syntax.FUNCTIONS - syntax.STREAMED)
COSTLY = (
    "'x'", "'%a%_%'", "100000000", "-1", "[n, n]", "map([n], [t])", "{'a': n}", "NULL", "1e308",
    "INTERVAL 1 DAY", "t || t || t",
)  # fmt: skip


def costly_calls(name: str) -> Iterator[str]:
    """The function with up to three arguments, of columns, long texts, large numbers, lists."""
    for count in range(4):
        for arguments in itertools.product(
            (*ARGUMENTS, *COSTLY) if count < 3 else ("t", "n", *COSTLY[1:4]), repeat=count
        ):
            yield f'"{name}"({", ".join(arguments)})'


def fuzz_functions(served: Served, names: Sequence[str], tries: int, seed: int) -> int:
    """Calls functions that may cost much. Each call ends within its clock and memory. Returns how many ran."""
    source, ran = random.Random(seed), 0  # noqa: S311
    public, before = served.service.public, resident()
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(TABLE.replace(f"range({ROWS})", "range(1)"))
        for name in names:
            known = []
            for call in source.sample(calls_of := list(costly_calls(name)), len(calls_of)):
                with suppress(duckdb.Error):
                    connection.execute(f"PREPARE tried AS SELECT {call} FROM given")
                    known.append(call)
                if len(known) >= tries:
                    break
            for call in known:
                rows = f"FROM (SELECT * FROM ages, range(400)) AS a, ({GIVEN}) AS given"
                start = time.monotonic()
                try:
                    public.run("alice", f"SELECT {call} {rows}", [("memory", "ages")])
                except Refusal as refusal:
                    assert "\n" not in str(refusal), call
                assert time.monotonic() - start < 60, call
                ran += 1
    assert resident() - before < 300 * 2**20
    require_answer(served)
    return ran


def require_answer(served: Served) -> None:
    """The other principal is answered. A clock of 0.2 s may strike on a machine that does much else."""
    for left in reversed(range(20)):
        with suppress(Refusal):
            assert served.rows("bob", JOIN) == [(10,)]
            return
        time.sleep(0.5)
        assert left, "never answered"


@pytest.mark.slow
def test_functions_have_a_clock_and_a_memory(bounded: Served, record_property: Callable[[str, object], None]) -> None:
    """One call of each of a third, drawn anew each time: the public database answers afterwards and has not grown."""
    seed = int(fresh_seed(record_property, "DPDUCK_FUNCTIONS_SEED"), 16)
    names = random.Random(seed).sample(OTHERS, len(OTHERS) // 3)  # noqa: S311
    assert fuzz_functions(bounded, names, 1, seed) > len(names) // 4


@pytest.mark.audit
def test_every_function_at_length(bounded: Served) -> None:
    """Many calls of each."""
    for seed in range(3):
        assert fuzz_functions(bounded, OTHERS, 40, seed) > 10 * len(OTHERS)
