"""Conditions over private rows never raise, since an error would reveal the contents of a row."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.relations import Source, Stored
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.kernel.worker.program import Division, Output
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.compiled import condition_of
from dpduck.language.rows.expressions import safe_sql, sql_of
from dpduck.language.rows.functions import check_row_local, temporal_arguments
from dpduck.language.text.dialect import PrivateDuckDB
from dpduck.values.errors import Refusal
from tests.language.nasty_rows import TYPES, Writer, create
from tests.support.nodes import adds, columns_of, counts

POOL = Workers()
COLUMN_TYPES = {f'"r0"."{name}"': type_name for name, type_name in TYPES.items()}


@pytest.fixture(scope="module")
def tables() -> Iterator[duckdb.DuckDBPyConnection]:
    """Tables of extreme rows, of the same columns without rows, and of one row of NULLs."""
    with duckdb.connect(config={"threads": 1}) as connection:
        keep_plans_plain(connection)
        create(connection)
        for name in ("empty", "nulls"):
            connection.execute(f"CREATE TABLE {name} AS FROM nasty LIMIT 0")
        connection.execute("INSERT INTO nulls DEFAULT VALUES")
        yield connection
    POOL.close()


def parsed(text: str) -> exp.Expr:
    """Returns the condition over columns as the frontend resolves them."""
    query = PrivateDuckDB().parse(f"SELECT 1 WHERE {text}")[0]
    assert query is not None
    condition: exp.Expr = query.args["where"].this.transform(
        lambda node: (
            exp.column(exp.to_identifier(node.name, True), exp.to_identifier("r0", True))
            if isinstance(node, exp.Column)
            else node
        )
    )
    return condition


def require_computable(condition: str) -> None:
    """Refuses a condition that a worker cannot compute."""
    expression = condition_of(condition, columns_of(COLUMN_TYPES))
    if not expression.plain:
        division = Division({"y": Output("flag", expression)}, ())
        division.inputs()
        division.program()


def accepted(tables: duckdb.DuckDBPyConnection, text: str) -> str | None:
    """Returns the condition as the frontend lets it run on these tables, or None where it is refused."""
    try:
        condition = parsed(text)
        check_row_local(condition)
        for argument in temporal_arguments(condition):
            described = tables.execute(f"DESCRIBE SELECT {sql_of(argument)} FROM empty AS r0").fetchall()
            if described[0][1] in ("INTERVAL", "TIME"):
                return None
        safe = safe_sql(condition, COLUMN_TYPES)
        require_computable(safe)
        tables.execute(f"SELECT count(*) FROM empty AS r0 WHERE {safe}")
        tables.execute("PRAGMA disable_optimizer")
        tables.execute(f"SELECT ({sql_of(condition)}) IS NULL FROM nulls AS r0").fetchall()
    except (Refusal, SqlglotError, duckdb.Error):
        return None
    finally:
        tables.execute("PRAGMA enable_optimizer")
    return safe


def count(tables: duckdb.DuckDBPyConnection, filters: list[str], conditions: list[str], unit: str | None) -> list[int]:
    """Counts the rows of each condition as trusted code does: plain conditions in the database, others in a worker."""
    job = counts(
        Source(Stored("nasty", "r0")), filters, unit, 3, tuple(COLUMN_TYPES), (), (), list(map(adds, conditions)),
        COLUMN_TYPES,
    )  # fmt: skip
    found: list[int] = count_exactly(tables, job, b"key", POOL)._exact_counts.sum(axis=1).tolist()
    return found


@pytest.mark.slow
@settings(max_examples=150)
@given(source=st.randoms(use_true_random=False))
def test_no_condition_raises(tables: duckdb.DuckDBPyConnection, source: random.Random) -> None:
    """Counting by accepted conditions does not fail whatever rows hold: as filters, as aggregates, or as both."""
    writer = Writer(source)
    texts = [writer.condition(3) for _ in range(8)]
    safe = [condition for text in texts if (condition := accepted(tables, text)) is not None]
    if safe:
        assert len(count(tables, safe[:2], safe, '"r0"."s"')) == len(safe)
        twice = count(tables, [], [*safe, *reversed(safe)], None)
        assert twice == twice[::-1], "a condition selects the same rows wherever it stands"
        assert len(twice) == 2 * len(safe) and min(twice) >= 0


@pytest.mark.parametrize(
    "text",
    [
        "s::INTEGER > 1 AND s::INTEGER < 7",
        "s::INTEGER BETWEEN 1 AND 7",
        "s IN (s, '1') AND s::DATE > d",
        "i + i > 2147483647 OR i + i < 0",
        "i * i > b OR i * i < b",
        "s",
        "NOT s",
        "s IS TRUE",
        "s::DATE = '2024-02-29'",
        "g = 'none'",
        "CASE WHEN o THEN s::DATE END < d",
        "substring(s, b, b) = ''",
        "b // i > 0 AND b % i > 0",
        "CASE WHEN s = 'a' THEN CAST('x' AS INTEGER) ELSE i END > 0",
        "make_date(i, t, t) > d",
        "k + INTERVAL '2147483647' MONTH > k",
        "ub - 1 > 0 AND ub * ub > 0",
        "m * m > 1 OR n / m > 1",
        "regexp_matches(s, 'a+') AND s LIKE '%a_[%'",
    ],
)
def test_known_traps(tables: duckdb.DuckDBPyConnection, text: str) -> None:
    """An overflow, a failed conversion or a division by zero counts as not true, also in parts that DuckDB shares."""
    safe = accepted(tables, text)
    assert safe is not None
    for unit in (None, '"r0"."i"'):
        holds, fails, again = count(tables, [safe], [safe, f"NOT ({safe})", safe], unit)
        assert (fails, again) == (0, holds)


@pytest.mark.parametrize(
    "text",
    [
        "d = '2024-02-30'",
        "d > DATE 'x'",
        "d IN ('2024-02-29', 'x')",
        "o = 'maybe'",
        "i = 'one'",
        "d BETWEEN 'a' AND 'b'",
        "s = 'q' AND d = CAST('x' AS DATE)",
        "i < 9223372036854775807 + 1",
        "regexp_matches(s, '[')",
        "date_trunc('nonsense', d) = d",
    ],
)
def test_bad_constants_are_refused(tables: duckdb.DuckDBPyConnection, text: str) -> None:
    """A constant that cannot be evaluated is refused at once, since it would raise only where there are rows."""
    assert accepted(tables, text) is None


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("i = 5", True),
        ("ub > -5", True),
        ("i IN (1, -2)", True),
        ("e > 1e400", True),
        ("s = 'x'", True),
        ("d >= '2024-02-29'", True),
        ("d >= DATE '2024-02-29'", True),
        ("k < TIMESTAMP '2024-02-29 10:00:00'", True),
        ("o AND NOT o", True),
        ("x IS NULL OR NOT c IS NULL", True),
        ("n BETWEEN -0.05 AND 99999999.99", True),
        ("n < 300 OR n IN (1, 2.5)", True),
        ("m > 9999999999999999999999999999.5 AND m <> -1", True),
        ("n = 0.001", False),
        ("n < 999999999", False),
        ("m <= 99999999999999999999999999999", False),
        ("n = 1e2", False),
        ("s", False),
        ("d >= '2024-02-30'", False),
        ("d >= DATE '2024-2-9'", False),
        ("i = '5'", False),
        ("i = 99999999999", False),
        ("g = 'low'", False),
        ("s IS TRUE", False),
        ("i + 1 = 2", False),
        ("s = -'x'", False),
        ("i = i", False),
    ],
)
def test_what_needs_no_try(tables: duckdb.DuckDBPyConnection, text: str, plain: bool) -> None:
    """Plain comparisons stay as they are, so that DuckDB can push them down. They cannot raise on any row."""
    safe = safe_sql(parsed(text), COLUMN_TYPES)
    assert ("try(" not in safe) is plain
    if plain:
        count(tables, [safe], [safe, safe], None)
