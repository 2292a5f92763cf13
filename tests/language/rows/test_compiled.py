"""Plain conditions are those that the database evaluates itself: they fail on no row, and in no plan."""

from __future__ import annotations

import random
import re

import duckdb
import numpy as np
import pytest

import dpduck
from dpduck.kernel.columns.arithmetic import Double, StoredNumber
from dpduck.kernel.columns.expressions import AnalystSql
from dpduck.kernel.columns.stored import AsText
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.language.rows.compiled import condition_of, number_of, program_of, raw_program, text_of, value_of
from tests.support.nodes import columns_of
from tests.support.plain_conditions import COLUMNS as ALL
from tests.support.plain_conditions import Conditions, rows_sql

TYPES = {
    '"r0"."unit"': "INTEGER",
    '"r0"."note"': "VARCHAR",
    '"r0"."day"': "DATE",
    '"r0"."price"': "DECIMAL(8,2)",
    '"r0"."big"': "HUGEINT",
    '"r0"."tags"': "VARCHAR[]",
    '"r1"."unit"': "INTEGER",
}
COLUMNS = columns_of(TYPES)
ON = '"r0"."unit" = "r1"."unit"'


@pytest.mark.parametrize(
    "condition",
    [
        '"r0"."unit" > 3',
        '("r0"."unit" BETWEEN 1 AND 9) AND NOT "r0"."note" IS NULL',
        "\"r0\".\"note\" IN ('a', 'b')",
        '"r0"."day" >= CAST(\'2024-01-01\' AS DATE)',
        '"r0"."price" < 24',
        '3 < "r0"."unit"',
        ON,
        "FALSE",
        '"r0"."tags" IS NULL',
        "\"r0\".\"note\" IS NOT DISTINCT FROM 'it''s'",
        '"r0"."big" = "r0"."big"',
        '"r0"."note" LIKE \'a%b\'',
        "(try(\"r0\".\"note\" NOT LIKE '%it''s%'))",
        'try("r0"."unit" > 1) AND NOT try(("r0"."unit" < 9))',
    ],
)
def test_comparisons_of_stored_columns_are_plain(condition: str) -> None:
    """Comparisons of stored columns are plain, since nothing is cast, called or computed."""
    assert condition_of(condition, COLUMNS).plain


@pytest.mark.parametrize(
    "condition",
    [
        'CAST("r0"."note" AS INTEGER) = 1',
        '"r0"."note" = 1',
        '"r0"."unit" = \'1\'',
        '"r0"."unit" + 1 > 2',
        "error('x')",
        '"r0"."note" LIKE \'a_\'',
        '"r0"."note" ILIKE \'a%\'',
        "\"r0\".\"note\" LIKE 'a%' ESCAPE '!'",
        '"r0"."note" LIKE "r0"."note"',
        '"r0"."unit" LIKE \'1%\'',
        f'"r0"."note" LIKE \'{"a" * 100}\'',
        '"r0"."unit" = "r0"."note"',
        'try(CAST("r0"."note" AS INTEGER) > 1)',
        "try",
        'try "r0"."unit" > 1',
        "try()",
        '"r0"."tags" = "r0"."tags"',
        '"r0"."unit" IN (SELECT 1)',
        '"r0"."other" = 1',
        '"r0"."day" > \'2024-02-30\'',
        '"r0"."price" > 0.001',
        '"r0"."unit" = 1; SELECT 1',
        '"r0"."unit" BETWEEN SYMMETRIC 1 AND 2',
        '"r0"."unit" = 99999999999',
        'length("r0"."note") = 1',
        '"r0"."note"',
        '"r0"."unit"',
        "x",
        "",
        "(",
        '"r0"."unit" BETWEEN 1',
        "CASE WHEN TRUE THEN TRUE END",
    ],
)
def test_all_else_is_not_plain(condition: str) -> None:
    """A condition that the reader does not know goes to a worker."""
    assert not condition_of(condition, COLUMNS).plain


PIECES = ("", "a", "ab", "aab", "é", "\\", "'", "\n", "\x00", "*", "%", "_", "\U0001f986", "a" * 300)


@pytest.mark.parametrize("seed", range(2))
def test_plain_patterns_match_any_text_and_never_raise(seed: int) -> None:
    """With every optimizer pass and with statistics, LIKE agrees with a regular expression on odd texts."""
    rng = np.random.default_rng(seed)
    texts = ["".join(rng.choice(PIECES, size=4)) for _ in range(100)]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT unnest(?) AS note", [[*texts, None]])
        for _ in range(30):
            pattern = "".join(rng.choice([*PIECES[:-1], "%", "%"], size=rng.integers(0, 6))).replace("_", "")
            quoted = pattern.replace("'", "''")
            condition = condition_of(f'"r0"."note" LIKE \'{quoted}\'', COLUMNS)
            assert condition.plain
            found = connection.execute(f'SELECT note FROM t AS "r0" WHERE {condition.sql}').fetchall()
            expected = re.compile(".*".join(map(re.escape, pattern.split("%"))), re.DOTALL)
            assert sorted(text for (text,) in found) == sorted(text for text in texts if expected.fullmatch(text))


def test_long_numbers_beside_floats_are_not_plain() -> None:
    """A worker compares long numbers with floats: DuckDB 2.0 casts the column to BIGNUM, and raises for a NaN."""
    columns = columns_of({'"r0"."f"': "FLOAT", '"r0"."d"': "DOUBLE"})
    for column in columns:
        assert condition_of(f"{column} < 1234567.12345678", columns).plain
        for number in ("1" + "0" * 39, "0." + "1" * 40, "12345678901234567"):
            assert not condition_of(f"{column} < {number}", columns).plain
            assert not condition_of(f"{column} IN (1, {number})", columns).plain
            assert not condition_of(f"{column} BETWEEN -{number} AND 1", columns).plain


@pytest.mark.parametrize("seed", range(2))
def test_a_condition_is_what_was_written(seed: int) -> None:
    """A random condition as a node is TRUE, FALSE or NULL for the same rows as its text, over rows of every type."""
    source = random.Random(seed)  # noqa: S311
    columns = columns_of({f'"r0"."{name}"': kind for name, kind in ALL.items()})
    names = re.compile(rf"\b({'|'.join(ALL)})\b")
    with duckdb.connect() as connection:
        keep_plans_plain(connection)
        connection.execute(f"CREATE TABLE t AS {rows_sql(source, rows=64)}")
        for _ in range(150):
            written = names.sub(r'"r0"."\1"', Conditions(source).one())
            written = re.sub(r"\b(DATE|TIMESTAMP) ('[^']*')", r"CAST(\2 AS \1)", written)
            condition = condition_of(written, columns)
            assert condition.plain, written
            differing = f'SELECT count(*) FROM t AS "r0" WHERE ({written}) IS DISTINCT FROM ({condition.sql})'
            assert connection.execute(differing).fetchall() == [(0,)], (written, condition.sql)


NODES = {
    '3 < "r0"."unit"': '"r0"."unit" > 3', '3 >= "r0"."unit"': '"r0"."unit" <= 3', '3 <> "r0"."unit"':
    '"r0"."unit" <> 3', '("r0"."unit") = ((1))': None, '(("r0"."unit")) = 1': '"r0"."unit" = 1',
    'NOT NOT "r0"."unit" IS NULL': 'NOT (NOT ("r0"."unit" IS NULL))',
    '"r0"."unit" = 1 OR "r0"."unit" = 2 AND NOT "r0"."unit" = 3':
    '("r0"."unit" = 1) OR (("r0"."unit" = 2) AND (NOT ("r0"."unit" = 3)))',
    'try("r0"."unit" > - 1)': '"r0"."unit" > -1', '"r0"."died" AND true': '("r0"."died") AND (TRUE)',
    '"r0"."died" = true': '"r0"."died" = TRUE', '"r0"."note" = \'"r0"."unit"\'': '"r0"."note" = \'"r0"."unit"\'',
    '"r0"."unit" BETWEEN 1 AND 2 AND "r0"."died"': '("r0"."unit" BETWEEN 1 AND 2) AND ("r0"."died")',
    '3 IS DISTINCT FROM "r0"."unit"': '"r0"."unit" IS DISTINCT FROM 3',
    '"r0"."died" = - true': None, '"r0"."day" > - CAST(\'2024-01-01\' AS DATE)': None, 'NOT': None,
    '"r0"."unit" IS': None, '"r0"."unit" NOT': None, '"r0"."died" "r0"."died"': None, '"r0"."note" = \'a': None,
}  # fmt: skip
"""Texts with the SQL of their nodes; None for programs."""


@pytest.mark.parametrize("text", NODES)
def test_which_node_a_text_is(text: str) -> None:
    """Signs are turned, brackets and TRY are dropped, and AND binds before OR. Any other text is a program."""
    columns = columns_of({**TYPES, '"r0"."died"': "BOOLEAN"})
    found = condition_of(text, columns)
    assert found.plain is (NODES[text] is not None) and found.sql == (NODES[text] or text)


def test_deep_brackets_are_a_program() -> None:
    """Brackets deeper than Python's reader goes to are a program. In the worker DuckDB's own limit refuses them."""
    text = f"{'NOT (' * 5000}{ON}{')' * 5000}"
    assert not condition_of(text, COLUMNS).plain and not number_of(f"CAST({text} AS DOUBLE)", COLUMNS).plain


def test_programs_know_their_columns() -> None:
    """A program lists each column once, in order. Columns inside of texts and columns of like names are not listed."""
    unit, note = COLUMNS['"r0"."unit"'], COLUMNS['"r0"."note"']
    text = """f("r0"."note", '"r0"."day"', "r0"."unit", "r0"."note", "r0"."day"."a", "R0"."day", 'it''s "r0"."day"')"""
    found = program_of(text, COLUMNS)
    assert found.sql == text and found.columns == (note, unit) and not found.plain
    assert raw_program("") is None and raw_program(text) == AnalystSql((text,))


def test_values_and_texts() -> None:
    """Stored values and texts are nodes that the database reads as they are. Computed ones are programs."""
    unit, note, price = (COLUMNS[f'"r0"."{name}"'] for name in ("unit", "note", "price"))
    for column in (unit, note):
        assert value_of(column.sql, COLUMNS) == column
        assert text_of(f"CAST({column.sql} AS VARCHAR)", COLUMNS) == AsText(column)
    assert value_of('CAST("r0"."unit" AS DOUBLE)', COLUMNS) == number_of('CAST("r0"."unit" AS DOUBLE)', COLUMNS)
    assert value_of('CAST("r0"."price" AS DOUBLE)', COLUMNS) == Double(StoredNumber(price))
    for text in ('CAST("r0"."unit" + 1 AS DOUBLE)', 'upper("r0"."note")', '"r0"."other"', 'CAST("r0"."big" AS DOUBLE)'):
        assert value_of(text, COLUMNS) == program_of(text, COLUMNS)
    for text in ('"r0"."note"', 'CAST("r0"."tags" AS VARCHAR)', 'CAST(upper("r0"."note") AS VARCHAR)'):
        assert text_of(text, COLUMNS) == program_of(text, COLUMNS)


PREFIXES = ("\xff", "\u07ff", "\uffff", "\U0010ffff", "\xe4z\xe9\uffff", "\xbf", "\xff\xff", "a\xbf")
"""Texts whose last byte is 0xBF in UTF-8: DuckDB makes a range of a LIKE, whose end is no UTF-8 for these."""

PEOPLE = columns_of({'"p"."name"': "VARCHAR", '"p"."person"': "INTEGER"})
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM people WHERE {}"


@pytest.mark.parametrize("prepared", [False, True])
def test_like_with_any_prefix_is_answered(prepared: bool) -> None:
    """DuckDB raised while it planned, whatever the rows, when a scan was given a LIKE with such a prefix."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE people (person INTEGER, name VARCHAR)")
        rows = [(number, f"{PREFIXES[number % len(PREFIXES)]}x") for number in range(200)]
        connection.executemany("INSERT INTO people VALUES (?, ?)", rows)

        def dp(statement: str) -> list[tuple[int, ...]]:
            return connection.execute("FROM dp(?)", [statement]).fetchall()

        dp("CREATE PRIVACY POLICY ON people (PRIVACY UNIT person MAX ROWS 1, BUDGET (epsilon = 100))")
        if prepared:
            dp("ALTER PRIVACY POLICY ON people PREPARE")
        for prefix in PREFIXES:
            exact = sum(name.startswith(prefix) and name.endswith("x") for _, name in rows)
            for condition in (f"name LIKE '{prefix}%x'", f"person >= 0 AND name LIKE '{prefix}%x'"):
                written = condition.replace("name", '"p"."name"').replace("person", '"p"."person"')
                assert condition_of(written, PEOPLE).plain
                assert abs(dp(COUNT.format(condition))[0][0] - exact) < 40  # by chance 2e-16 in all: Laplace of scale 1
