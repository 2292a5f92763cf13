"""Rows of a statement as trusted SQL: analysts' expressions are separated, and copies by public joins are bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest

from dpduck.kernel.columns.comparisons import Constant, Junction
from dpduck.kernel.columns.expressions import Expression, Lookup, RelationColumn
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.jobs import row_copies
from dpduck.kernel.relations import Branch, Join, Source, Stored, Union, Units
from dpduck.kernel.rows import plans, reader
from dpduck.kernel.rows.placed import render_source
from dpduck.language.rows.compiled import condition_of, program_of
from dpduck.values.errors import InternalError, Refusal
from tests.support.nodes import adds, columns_of, counts

TYPES = {
    '"r0"."unit"': "INTEGER",
    '"r0"."note"': "VARCHAR",
    '"r0"."day"': "DATE",
    '"r0"."price"': "DECIMAL(8,2)",
    '"r0"."big"': "HUGEINT",
    '"r0"."tags"': "VARCHAR[]",
    '"r0"."dpduck_unit"': "INTEGER",
    '"r1"."unit"': "INTEGER",
    '"r1"."text"': "VARCHAR",
    '"p1"."name"': "VARCHAR",
    '"p1"."id"': "INTEGER",
}
COLUMNS = columns_of(TYPES)
KEYS = (COLUMNS['"p1"."name"'],)
LEFT, RIGHT = Stored("a", "r0"), Source(Stored("b", "r1"))
ON = condition_of('"r0"."unit" = "r1"."unit"', COLUMNS)
BY_NAME = condition_of('"r0"."note" = "p1"."name"', COLUMNS)
LONG = program_of('length("r0"."note") > 1', COLUMNS)
ODD = program_of('try(CAST("r1"."text" AS INTEGER) > 1)', COLUMNS)


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Two private tables of three units, and a public table with two rows for 'x'."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE a AS FROM (VALUES (1, 'x'), (2, 'y'), (3, 'x')) AS v(unit, note)")
        connection.execute("CREATE TABLE b AS FROM (VALUES (1, '5'), (1, 'no'), (2, '0'), (2, NULL)) AS v(unit, text)")
        connection.execute("CREATE TABLE p AS FROM (VALUES ('x', 1), ('x', 2), ('y', 3)) AS v(name, id)")
        yield connection


def counted(
    connection: duckdb.DuckDBPyConnection, source: Source, unit: str | None = '"r0"."unit"', copies: int = 1
) -> int:
    """Counts all rows of a source."""
    content = ('"r0"."unit"',)
    job = counts(source, (), unit, 100, content, (), (), (adds(""),), TYPES, copies=copies)
    return int(count_exactly(connection.cursor(), job, b"key")._exact_counts[0].sum())


def test_a_condition_of_an_inner_join_moves_behind_it() -> None:
    """The database joins by stored columns alone. The worker then decides the rest of the condition on joined rows."""
    source = Source(LEFT, (Join("JOIN", RIGHT, (ON, ODD)),))
    found = render_source(source, (LONG,))
    fits = "({1} IS NULL OR strlen({1}) <= 1024)) IS NOT DISTINCT FROM (current_transaction_id() >= 0"
    short = f'(SELECT dpduck_t.* FROM {{0}} AS dpduck_t WHERE (({fits}))) AS "{{2}}"'
    left, right = short.format("a", 'dpduck_t."note"', "r0"), short.format("b", 'dpduck_t."text"', "r1")
    assert found.from_sql == f"{left} JOIN {right} ON {ON.sql}"
    assert found.moved == (ODD, LONG) and found.stages == () and found.where == ()


@pytest.mark.parametrize(("kind", "rows"), [("JOIN", 1), ("LEFT JOIN", 3), ("SEMI JOIN", 1), ("ANTI JOIN", 2)])
def test_a_condition_that_an_outer_join_depends_on_is_asked_beforehand(
    connection: duckdb.DuckDBPyConnection, kind: str, rows: int
) -> None:
    """A worker answers for the rows of one table before the join, by row number. A text that converts to no number
    meets no row."""
    source = Source(LEFT, (Join(kind, RIGHT, (ON, ODD)),))
    assert counted(connection, source) == rows


def test_a_condition_of_two_tables_that_an_outer_join_depends_on_is_refused() -> None:
    """A condition of two tables is refused if an outer join depends on it: no worker could be asked before or after."""
    of_both = program_of('length("r0"."note") < length("r1"."text")', COLUMNS)
    source = Source(LEFT, (Join("LEFT JOIN", RIGHT, (ON, of_both)),))
    with pytest.raises(Refusal, match="more than one table"):
        render_source(source, ())


def test_a_condition_before_a_right_join_is_not_moved() -> None:
    """After a right join the condition would drop rows that have no partner."""
    joins = (
        Join("JOIN", RIGHT, (ON, ODD)),
        Join("RIGHT JOIN", Source(Stored("c", "r2")), (condition_of('"r0"."unit" = "r0"."unit"', COLUMNS),)),
    )
    found = render_source(Source(LEFT, joins), ())
    assert found.moved == () and len(found.stages) == 1


def test_an_expression_meets_a_public_column(connection: duckdb.DuckDBPyConnection) -> None:
    """A worker's answer about a table is joined as if it were a stored column."""
    lookup = Lookup(program_of('lower("r0"."note")', COLUMNS), KEYS[0])
    source = Source(LEFT, (Join("JOIN", Source(Stored("p", "p1")), (lookup,), 2, KEYS),))
    assert counted(connection, source) == 5


def test_branches_and_units_are_asked_by_themselves(connection: duckdb.DuckDBPyConnection) -> None:
    """A worker is asked about conditions in a branch of UNION ALL, and about values counted for each unit."""
    unit = COLUMNS['"r1"."unit"']
    branch = Branch(Source(Stored("b", "r1"), (), (ODD,)), unit, ((unit, "unit"),))
    whole = Branch(Source(Stored("b", "r1")), unit, ((unit, "unit"),))
    assert counted(connection, Source(Union((branch, whole), "r0")), '"r0"."dpduck_unit"') == 5
    units = Units(Source(Stored("b", "r1")), unit, ((unit, '"unit"'),), ((ODD, '"n"'),), "r0")
    job = counts(
        Source(units), ('"r0"."n" > 0',), '"r0"."unit"', 1, (), (), (), (adds(""),),
        {**TYPES, '"r0"."n"': "BIGINT"},
    )  # fmt: skip
    assert count_exactly(connection.cursor(), job, b"key")._exact_counts.tolist() == [[1]]


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_a_row_is_repeated_no_more_often_than_its_price_says(
    connection: duckdb.DuckDBPyConnection, copies: int
) -> None:
    """With PRIVACY UNIT ROW the public side is cut to the priced number of copies, whatever the catalog said."""
    join = Join("JOIN", Source(Stored("p", "p1")), (BY_NAME,), copies, KEYS)
    source = Source(LEFT, (join,))
    assert counted(connection, source, None, copies) == 3 + (2 if copies > 1 else 0)
    if copies > 1:
        with pytest.raises(InternalError, match="more often than its price"):
            counted(connection, source, None, copies - 1)


def test_units_that_are_rows_are_rows_of_one_table(connection: duckdb.DuckDBPyConnection) -> None:
    """PRIVACY UNIT ROW takes no union, and no private rows beside, since nobody bounds the copies of these."""
    union = Source(Union((Branch(Source(LEFT), COLUMNS['"r0"."unit"'], ()),), "r1"))
    by_name = Join("JOIN", Source(Stored("p", "p1")), (BY_NAME,), 2, KEYS)
    unbounded = [
        union,
        Source(LEFT, (replace(by_name, copies=0),)),
        Source(LEFT, (replace(by_name, keys=()),)),
        Source(LEFT, (replace(by_name, on=()),)),
        Source(LEFT, (replace(by_name, on=(condition_of('"r0"."unit" = "p1"."id"', COLUMNS),)),)),
        Source(LEFT, (replace(by_name, on=(Junction("OR", (Constant("TRUE"), BY_NAME)),)),)),
        Source(LEFT, (replace(by_name, kind="CROSS JOIN"),)),
        Source(LEFT, (replace(by_name, right=RIGHT, on=(ON,)),)),
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
    """Keys have types where equal values are one group. If 1 equals 01, a row is joined more often than cut to."""
    columns = columns_of({'"r0"."unit"': ours, '"p1"."name"': theirs})
    key = columns['"p1"."name"']
    source = joined_by(condition_of('"r0"."unit" = "p1"."name"', columns), key)
    if accepted:
        assert row_copies(source) == 2
    else:
        with pytest.raises(InternalError, match="joined by keys"):
            row_copies(source)


def joined_by(on: Expression, key: RelationColumn) -> Source:
    """Returns rows joined with at most two public rows for each value of a key."""
    return Source(LEFT, (Join("JOIN", Source(Stored("p", "p1")), (on,), 2, (key,)),))


@pytest.mark.parametrize(
    ("theirs", "accepted"), [("BIGINT", True), ("VARCHAR", True), ("UNION(a INTEGER)", False), ("", False)]
)
def test_what_is_looked_up_is_of_the_type_of_its_key(theirs: str, accepted: bool) -> None:
    """A worker's answer is cast to the key's type, whatever its own type is: 1 meets '1', and never 01."""
    columns = columns_of({'"r0"."unit"': "INTEGER", '"p1"."name"': theirs, '"p1"."id"': theirs})
    key, other = columns['"p1"."name"'], columns['"p1"."id"']
    source = joined_by(Lookup(program_of('"r0"."unit" + 0', columns), key), key)
    refused = [joined_by(Lookup(program_of('"r0"."unit" + 0', columns), other), key)]
    if accepted:
        assert row_copies(source) == 2
        (stage,) = render_source(source, ()).stages
        assert [type_name for _, type_name in stage.values] == [theirs]
    else:
        refused.append(source)
    for wrong in refused:
        with pytest.raises(InternalError, match="joined by keys"):
            row_copies(wrong)


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
    """DuckDB keeps one row of each partition, and these rows meet only themselves: equal values are one group."""
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT CAST(text AS {kind}) AS k FROM (SELECT unnest($1) AS text)", [list(values)]
        )
        kept = "(SELECT k FROM t QUALIFY row_number() OVER (PARTITION BY k) <= 1)"
        joined = f"SELECT count(*) FROM {kept} AS a JOIN {kept} AS b ON a.k = b.k"
        assert connection.execute(joined).fetchone() == connection.execute(f"SELECT count(*) FROM {kept}").fetchone()


def test_values_of_odd_types_reach_the_worker_unchanged(connection: duckdb.DuckDBPyConnection) -> None:
    """Values go to the worker as texts, and are converted back to the same values."""
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
        job = counts(Source(Stored("odd", "r0")), (same,), '"r0"."unit"', 1, (), (), (), (adds(""),), types)
        assert count_exactly(connection.cursor(), job, b"key")._exact_counts.tolist() == [[1]], name


def test_units_of_any_type_are_told_apart(connection: duckdb.DuckDBPyConnection) -> None:
    """As many units are bounded as there are, of any type, through a worker or not."""
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
        types = {'"r0"."unit"': kind, '"r0"."n"': "BIGINT"}
        even = adds('"r0"."n" % 2 = 0', "sum", 'CAST("r0"."n" AS DOUBLE)', Fraction(0), Fraction(9), 9)
        for filters in ((), ('"r0"."n" + 0 >= 0',)):
            job = counts(
                Source(Stored("of_kind", "r0")), filters, '"r0"."unit"', 3, ('"r0"."n"',), (), (), (adds(""), even),
                types,
            )  # fmt: skip
            found = count_exactly(connection.cursor(), job, b"key")
            assert found._exact_counts[0].tolist() == [15] and found._exact_counts.dtype == np.int64


MOVING = {
    *("in_clause", "common_subexpressions", "statistics_propagation", "top_n_window_elimination", "extension"),
    *("row_group_pruner", "join_filter_pushdown", "compressed_materialization"),
}
MOVING_OF_2 = {"scalar_fn_pushdown", "type_pushdown", "remote_pushdown", "projection_pullup", "projection_placement"}
NEW_IN_2 = {"self_join_aggregate"}  # of 2.0.1, off until somebody has looked at it


def test_counts_join_by_equalities_whatever_is_set() -> None:
    """DuckDB may be set to join by ranges. A count resets that for itself, and for nobody else."""
    with duckdb.connect() as connection:
        connection.execute("SET GLOBAL prefer_range_joins = true")
        with connection.cursor() as cursor:
            reader.begin(cursor)
            asked = "SELECT current_setting('prefer_range_joins')"
            assert cursor.execute(asked).fetchall() == [(False,)]
            assert connection.cursor().execute(asked).fetchall() == [(True,)]


def test_passes_that_nobody_looked_at_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimizer passes are off if they move expressions or read statistics, or if they are new, as top_n is here."""
    known = MOVING if duckdb.__version__.startswith("1.") else MOVING | MOVING_OF_2 | NEW_IN_2
    monkeypatch.setattr(plans, "STAY", plans.STAY.replace(" top_n ", " ").replace(" top_n\n", " "))
    with duckdb.connect() as connection:
        plans.keep_plans_plain(connection)
        (off,) = connection.execute("SELECT current_setting('disabled_optimizers')").fetchall()[0]
        assert set(off.split(",")) == known | {"top_n"}
