"""Rows of a statement as trusted SQL: what an analyst wrote is set apart, and copies by public joins are bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest

from dpduck.frontend.rows.parts import Branch, Join, Lookup, Source, Stored, Union, Units
from dpduck.trusted.private.contributions import Contribution
from dpduck.trusted.private.counting import count_exactly
from dpduck.trusted.private.jobs import CountingJob, row_copies
from dpduck.trusted.rows import plain, reader
from dpduck.trusted.rows.placed import placed
from dpduck.trusted.rows.plain import is_plain
from dpduck.values.errors import InternalError, Refusal

TYPES = {
    '"r0"."unit"': "INTEGER",
    '"r0"."note"': "VARCHAR",
    '"r0"."day"': "DATE",
    '"r0"."price"': "DECIMAL(8,2)",
    '"r0"."big"': "HUGEINT",
    '"r0"."tags"': "VARCHAR[]",
    '"r1"."unit"': "INTEGER",
    '"r1"."text"': "VARCHAR",
    '"p1"."name"': "VARCHAR",
    '"p1"."id"': "INTEGER",
}
KEYS = ('"p1"."name"',)
LEFT, RIGHT = Stored("a", "r0"), Source(Stored("b", "r1"))
ON = '"r0"."unit" = "r1"."unit"'
ODD = 'try(CAST("r1"."text" AS INTEGER) > 1)'


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Two tables of three units, and a public one that has two rows for 'x'."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE a AS FROM (VALUES (1, 'x'), (2, 'y'), (3, 'x')) AS v(unit, note)")
        connection.execute("CREATE TABLE b AS FROM (VALUES (1, '5'), (1, 'no'), (2, '0'), (2, NULL)) AS v(unit, text)")
        connection.execute("CREATE TABLE p AS FROM (VALUES ('x', 1), ('x', 2), ('y', 3)) AS v(name, id)")
        yield connection


def counted(
    connection: duckdb.DuckDBPyConnection, source: Source, unit: str | None = '"r0"."unit"', copies: int = 1
) -> int:
    """All rows of a source."""
    job = CountingJob(
        "", (), unit, 100, ('"r0"."unit"',), (), (), (Contribution(""),), source=source, unit_type="INTEGER",
        copies=copies,
    )  # fmt: skip
    return int(count_exactly(connection.cursor(), job, b"key")._exact_counts[0].sum())


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
    """The database may evaluate them itself: nothing is cast, called or computed."""
    assert is_plain(condition, TYPES)


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
        '"r0"."unit" = 1 --',
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
    """What the reader does not know goes to a worker."""
    assert not is_plain(condition, TYPES)


PIECES = ("", "a", "ab", "aab", "é", "\\", "'", "\n", "\x00", "*", "%", "_", "\U0001f986", "a" * 300)


@pytest.mark.parametrize("seed", range(2))
def test_plain_patterns_match_any_text_and_never_raise(seed: int) -> None:
    """With every optimizer pass on and statistics present, LIKE says of odd texts what a regular expression says."""
    rng = np.random.default_rng(seed)
    texts = ["".join(rng.choice(PIECES, size=4)) for _ in range(100)]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT unnest(?) AS note", [[*texts, None]])
        for _ in range(30):
            pattern = "".join(rng.choice([*PIECES[:-1], "%", "%"], size=rng.integers(0, 6))).replace("_", "")
            quoted = pattern.replace("'", "''")
            condition = f'"r0"."note" LIKE \'{quoted}\''
            assert is_plain(condition, TYPES)
            found = connection.execute(f'SELECT note FROM t AS "r0" WHERE {condition}').fetchall()
            expected = re.compile(".*".join(map(re.escape, pattern.split("%"))), re.DOTALL)
            assert sorted(text for (text,) in found) == sorted(text for text in texts if expected.fullmatch(text))


def test_a_condition_of_an_inner_join_moves_behind_it() -> None:
    """The database joins by stored columns alone; the worker decides the rest of the joined row."""
    source = Source(LEFT, (Join("JOIN", RIGHT, (ON, ODD)),), types=tuple(TYPES.items()))
    found = placed(source, ('length("r0"."note") > 1',), TYPES)
    fits = "({1} IS NULL OR strlen({1}) <= 1024)) IS NOT DISTINCT FROM (current_transaction_id() >= 0"
    short = f'(SELECT dpduck_t.* FROM {{0}} AS dpduck_t WHERE (({fits}))) AS "{{2}}"'
    left, right = short.format("a", 'dpduck_t."note"', "r0"), short.format("b", 'dpduck_t."text"', "r1")
    assert found.from_sql == f"{left} JOIN {right} ON {ON}"
    assert found.moved == (ODD, 'length("r0"."note") > 1') and found.stages == () and found.where == ()


@pytest.mark.parametrize(("kind", "rows"), [("JOIN", 1), ("LEFT JOIN", 3), ("SEMI JOIN", 1), ("ANTI JOIN", 2)])
def test_a_condition_that_an_outer_join_depends_on_is_asked_beforehand(
    connection: duckdb.DuckDBPyConnection, kind: str, rows: int
) -> None:
    """The worker is asked about one table; its answers come back by row number. A text that converts to no number is
    no partner."""
    source = Source(LEFT, (Join(kind, RIGHT, (ON, ODD)),), types=tuple(TYPES.items()))
    assert counted(connection, source) == rows


def test_a_condition_of_two_tables_that_an_outer_join_depends_on_is_refused() -> None:
    """It could be asked neither before nor after the join."""
    source = Source(LEFT, (Join("LEFT JOIN", RIGHT, (ON, 'length("r0"."note") < length("r1"."text")')),))
    with pytest.raises(Refusal, match="more than one table"):
        placed(source, (), TYPES)


def test_a_condition_before_a_right_join_is_not_moved() -> None:
    """Behind it, it would take away rows that have no partner."""
    joins = (
        Join("JOIN", RIGHT, (ON, ODD)),
        Join("RIGHT JOIN", Source(Stored("c", "r2")), ('"r0"."unit" = "r0"."unit"',)),
    )
    found = placed(Source(LEFT, joins), (), TYPES)
    assert found.moved == () and len(found.stages) == 1


def test_an_expression_meets_a_public_column(connection: duckdb.DuckDBPyConnection) -> None:
    """What the worker computes of a table is joined as a stored column."""
    lookup = Lookup('lower("r0"."note")', "VARCHAR", '"p1"."name"')
    source = Source(LEFT, (Join("JOIN", Source(Stored("p", "p1")), (lookup,), 2, KEYS),), types=tuple(TYPES.items()))
    assert counted(connection, source) == 5


def test_branches_and_units_are_asked_by_themselves(connection: duckdb.DuckDBPyConnection) -> None:
    """Conditions inside a UNION ALL, and what is counted for each unit."""
    inner = (('"r1"."unit"', "INTEGER"), ('"r1"."text"', "VARCHAR"))
    branch = Branch(Source(Stored("b", "r1"), (), (ODD,), inner), (('"r1"."unit"', '"unit"'),))
    whole = Branch(Source(Stored("b", "r1"), (), (), inner), (('"r1"."unit"', '"unit"'),))
    types = (('"r0"."unit"', "INTEGER"),)
    assert counted(connection, Source(Union((branch, whole), "r0"), types=types)) == 5
    units = Units(
        Source(Stored("b", "r1"), (), (), inner), '"r1"."unit"', (('"r1"."unit"', '"unit"'),), ((ODD, '"n"'),), "r0"
    )
    wider = (('"r0"."unit"', "INTEGER"), ('"r0"."n"', "BIGINT"))
    job = CountingJob(
        "",
        ('"r0"."n" > 0',),
        '"r0"."unit"',
        1,
        (),
        (),
        (),
        (Contribution(""),),
        source=Source(units, types=wider),
        unit_type="INTEGER",
    )
    assert count_exactly(connection.cursor(), job, b"key")._exact_counts.tolist() == [[1]]


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_a_row_is_repeated_no_more_often_than_its_price_says(
    connection: duckdb.DuckDBPyConnection, copies: int
) -> None:
    """PRIVACY UNIT ROW: the public side is cut, whatever the catalog said of it."""
    join = Join("JOIN", Source(Stored("p", "p1")), ('"r0"."note" = "p1"."name"',), copies, KEYS)
    source = Source(LEFT, (join,), types=tuple(TYPES.items()))
    assert counted(connection, source, None, copies) == 3 + (2 if copies > 1 else 0)
    if copies > 1:
        with pytest.raises(InternalError, match="more often than its price"):
            counted(connection, source, None, copies - 1)


def test_units_that_are_rows_are_rows_of_one_table(connection: duckdb.DuckDBPyConnection) -> None:
    """PRIVACY UNIT ROW: no union, and no private rows beside, whose copies nobody bounds."""
    union = Source(Union((Branch(Source(LEFT), (('"r0"."unit"', '"unit"'),)),), "r1"), types=tuple(TYPES.items()))
    by_name = Join("JOIN", Source(Stored("p", "p1")), ('"r0"."note" = "p1"."name"',), 2, KEYS)
    unbounded = [
        union,
        Source(LEFT, (replace(by_name, copies=0),), types=tuple(TYPES.items())),
        Source(LEFT, (replace(by_name, keys=()),), types=tuple(TYPES.items())),
        Source(LEFT, (replace(by_name, on=()),), types=tuple(TYPES.items())),
        Source(LEFT, (replace(by_name, on=('"r0"."unit" = "p1"."id"',)),), types=tuple(TYPES.items())),
        Source(LEFT, (replace(by_name, on=('TRUE OR "r0"."note" = "p1"."name"',)),), types=tuple(TYPES.items())),
        Source(LEFT, (replace(by_name, kind="CROSS JOIN"),), types=tuple(TYPES.items())),
        Source(LEFT, (replace(by_name, right=RIGHT, on=(ON,)),), types=tuple(TYPES.items())),
    ]
    for source in unbounded:
        with pytest.raises(InternalError, match="one table, joined by keys"):
            counted(connection, source, None, 2)


@pytest.mark.parametrize(
    ("ours", "theirs", "accepted"),
    [
        ("INTEGER", "BIGINT", True),
        ("DATE", "DATE", True),
        ("INTERVAL", "INTERVAL", True),
        ("INTEGER", "VARCHAR", False),
        ("VARCHAR", "INTEGER", False),
        ("DATE", "TIMESTAMP", False),
        ("DECIMAL(4,1)", "DECIMAL(4,2)", False),
        ("HUGEINT", "BIGINT", False),
        ("UNION(a INTEGER)", "UNION(a INTEGER)", False),
        ("INTEGER", "", False),
    ],
)
def test_keys_are_of_types_that_are_grouped_as_they_are_compared(ours: str, theirs: str, accepted: bool) -> None:
    """Where 1 is equal to 1 and to 01, a row would be joined more often than a key is cut to."""
    types = tuple((name, kind) for name, kind in (('"r0"."unit"', ours), ('"p1"."name"', theirs)) if kind)
    for on in ('"r0"."unit" = "p1"."name"', Lookup('lower("r0"."note")', ours, '"p1"."name"')):
        source = Source(LEFT, (Join("JOIN", Source(Stored("p", "p1")), (on,), 2, KEYS),), types=types)
        if accepted and (ours == theirs or isinstance(on, str)):
            assert row_copies(source) == 2
        else:
            with pytest.raises(InternalError, match="joined by keys"):
                row_copies(source)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DOUBLE", ("0.0", "-0.0", "nan", "-nan")),
        ("FLOAT", ("0.0", "-0.0")),
        ("INTERVAL", ("1 month", "30 days", "720 hours")),
        ("TIME WITH TIME ZONE", ("10:00:00+00", "11:00:00+01")),
        ("BIT", ("1", "01")),
        ("DECIMAL(4,2)", ("1", "1.00")),
        ("STRUCT(a DOUBLE)", ("{'a': 0.0}", "{'a': -0.0}")),
        ("INTERVAL[]", ("[1 day]", "[24 hours]")),
    ],
)
def test_values_that_are_equal_are_one_group(kind: str, values: tuple[str, ...]) -> None:
    """Of one type DuckDB keeps as many rows of a partition as there are values that differ."""
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT CAST(text AS {kind}) AS k FROM (SELECT unnest($1) AS text)", [list(values)]
        )
        kept = "(SELECT k FROM t QUALIFY row_number() OVER (PARTITION BY k) <= 1)"
        joined = f"SELECT count(*) FROM {kept} AS a JOIN {kept} AS b ON a.k = b.k"
        assert connection.execute(joined).fetchone() == connection.execute(f"SELECT count(*) FROM {kept}").fetchone()


def test_values_of_odd_types_reach_the_worker_unchanged(connection: duckdb.DuckDBPyConnection) -> None:
    """They go as texts and come out as what they were."""
    columns = {
        "h": ("HUGEINT", "170141183460469231731687303715884105727"),
        "u": ("UUID", "00000000-0000-0000-0000-00000000000f"),
        "t": ("TIME", "12:34:56.789"),
        "v": ("INTERVAL", "3 months -2 days 00:00:01"),
        "e": ("ENUM('low', 'mid')", "mid"),
        "d": ("DATE", "5877642-06-25 (BC)"),
        "m": ("TIMESTAMP", "infinity"),
        "n": ("DECIMAL(38,10)", "-0.0000000001"),
        "f": ("DOUBLE", "nan"),
        "s": ("VARCHAR", "ä\u0301"),
        "b": ("BOOLEAN", "true"),
        "w": ("UBIGINT", "18446744073709551615"),
    }
    listed = ", ".join(f"CAST('{text}' AS {kind}) AS {name}" for name, (kind, text) in columns.items())
    connection.execute(f"CREATE TABLE odd AS SELECT 1 AS unit, {listed}")
    types = {f'"r0"."{name}"': kind for name, (kind, _) in columns.items()} | {'"r0"."unit"': "INTEGER"}
    for name, (kind, text) in columns.items():
        same = f'coalesce("r0"."{name}" = CAST(\'{text}\' AS {kind}), FALSE)'
        job = CountingJob(
            "",
            (same,),
            '"r0"."unit"',
            1,
            (),
            (),
            (),
            (Contribution(""),),
            source=Source(Stored("odd", "r0"), types=tuple(types.items())),
            unit_type="INTEGER",
        )
        assert count_exactly(connection.cursor(), job, b"key")._exact_counts.tolist() == [[1]], name


def test_units_of_any_type_are_told_apart(connection: duckdb.DuckDBPyConnection) -> None:
    """Through a worker or not, as many units are bounded as there are."""
    connection.execute("CREATE TABLE many AS SELECT i % 5 AS i, i AS n FROM range(50) AS r(i)")
    for kind, sql in (
        ("BIGINT", "i"),
        ("VARCHAR", "'u' || i"),
        ("UUID", "('00000000-0000-0000-0000-00000000000' || i)::UUID"),
        ("DOUBLE", "i / 2"),
        ("DATE", "DATE '2024-01-01' + i::INTEGER"),
        ("HUGEINT", "i::HUGEINT"),
    ):
        connection.execute(f"CREATE OR REPLACE TABLE of_kind AS SELECT {sql} AS unit, n FROM many")
        types = (('"r0"."unit"', kind), ('"r0"."n"', "BIGINT"))
        for filters in ((), ('"r0"."n" + 0 >= 0',)):
            job = CountingJob(
                "",
                filters,
                '"r0"."unit"',
                3,
                ('"r0"."n"',),
                (),
                (),
                (
                    Contribution(""),
                    Contribution('"r0"."n" % 2 = 0', "sum", 'CAST("r0"."n" AS DOUBLE)', Fraction(0), Fraction(9), 9),
                ),
                source=Source(Stored("of_kind", "r0"), types=types),
                unit_type=kind,
            )
            counts = count_exactly(connection.cursor(), job, b"key")
            assert counts._exact_counts[0].tolist() == [15] and counts._exact_counts.dtype == np.int64


def test_long_numbers_beside_floats_are_not_plain() -> None:
    """DuckDB 2.0 casts the column to BIGNUM there, and raises for a NaN after the charge; a worker gets them."""
    types = {'"r0"."f"': "FLOAT", '"r0"."d"': "DOUBLE"}
    for column in types:
        assert is_plain(f"{column} < 1234567.12345678", types)
        for number in ("1" + "0" * 39, "0." + "1" * 40, "12345678901234567"):
            assert not is_plain(f"{column} < {number}", types)
            assert not is_plain(f"{column} IN (1, {number})", types)
            assert not is_plain(f"{column} BETWEEN -{number} AND 1", types)


MOVING = {
    *("in_clause", "common_subexpressions", "statistics_propagation", "top_n_window_elimination", "extension"),
    *("row_group_pruner", "join_filter_pushdown", "compressed_materialization"),
}
MOVING_OF_2 = {"scalar_fn_pushdown", "type_pushdown", "remote_pushdown", "projection_pullup", "projection_placement"}


def test_counts_join_by_equalities_whatever_is_set() -> None:
    """DuckDB takes joins of ranges where it is told to: a count sets that back for itself, and for nobody else."""
    with duckdb.connect() as connection:
        connection.execute("SET GLOBAL prefer_range_joins = true")
        with connection.cursor() as cursor:
            reader.begin(cursor)
            asked = "SELECT current_setting('prefer_range_joins')"
            assert cursor.execute(asked).fetchall() == [(False,)]
            assert connection.cursor().execute(asked).fetchall() == [(True,)]


def test_passes_that_nobody_looked_at_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that move expressions or read statistics, and any that a later DuckDB brings: top_n stands for one here."""
    known = MOVING if duckdb.__version__.startswith("1.") else MOVING | MOVING_OF_2
    monkeypatch.setattr(plain, "STAY", plain.STAY.replace(" top_n ", " ").replace(" top_n\n", " "))
    with duckdb.connect() as connection:
        plain.keep_plans_plain(connection)
        (off,) = connection.execute("SELECT current_setting('disabled_optimizers')").fetchall()[0]
        assert set(off.split(",")) == known | {"top_n"}
