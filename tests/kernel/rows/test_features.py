"""Features of each unit's rows are those that DuckDB computes, and depend on these rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import date, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpduck
from dpduck.kernel.columns.expressions import RelationColumn
from dpduck.kernel.relations import Feature, RowValue, Source, Stored, Units
from dpduck.kernel.rows.bounding import KEY, ORDER
from dpduck.kernel.rows.features import comparable_sql, feature_sql
from dpduck.kernel.rows.scan import JobScan, scan_of
from dpduck.kernel.worker.answered import Asking, answer_rows
from dpduck.kernel.worker.program import stage_question
from dpduck.kernel.worker.workers import Workers
from dpduck.mechanisms.jobs import counting_job
from dpduck.values.errors import InternalError
from tests.language.facts import request_of
from tests.support.nodes import adds

CLAUSE = "WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)"
TABLE = (
    "CREATE TABLE visits (k INTEGER, u VARCHAR, t VARCHAR, n INTEGER, b BIGINT, d DATE, x DOUBLE, f BOOLEAN, "
    "p DECIMAL(9, 2), e ENUM ('z', 'a'))"
)
POLICY = (
    "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT u MAX ROWS 20, BUDGET (epsilon = 1e6), "
    "DOMAIN t IN ('a', 'b', '') WITH NULL, DOMAIN f BOOLEAN)"
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["p", "q", None]),
        st.sampled_from(["a", "b", "", "ab" * 20, None]),
        st.one_of(st.none(), st.integers(-3, 9), st.sampled_from([2**31 - 1, -(2**31)])),
        st.one_of(st.none(), st.sampled_from([2**63 - 1, -(2**63), 0, 5])),
        st.one_of(st.none(), st.integers(0, 4).map(lambda days: str(date(2024, 1, 1) + timedelta(days)))),
        st.one_of(st.none(), st.sampled_from(["nan", "inf", "-inf", "-0.0", "0.0", "1.5"])),
        st.one_of(st.none(), st.booleans()),
        st.one_of(st.none(), st.sampled_from(["9999999.99", "-0.01", "3.00"])),
        st.one_of(st.none(), st.sampled_from(["z", "a"])),
    ),
    max_size=12,
)
Row = tuple[object, ...]

OF_UNITS = (
    "min(n)", "max(n)", "max(t)", "min(t)", "min(d)", "max(x)", "min(x)", "max(p)", "min(b)", "min(f)", "max(e)",
    "sum(n)", "sum(b)", "sum(p)", "sum(n * 2)", "sum(CAST(x AS DECIMAL(18, 3)))", "sum(n) FILTER (WHERE t = 'a')",
    "first(t ORDER BY d, k)", "first(t ORDER BY d DESC, k DESC)", "first(n ORDER BY x NULLS FIRST, k)",
    "last(t ORDER BY d, k)", "last(n ORDER BY d DESC NULLS FIRST, t, k)", "first(e ORDER BY k)",
    "first(n ORDER BY length(t) DESC, k) FILTER (WHERE f)", "first(upper(t) ORDER BY k)", "first(f ORDER BY k DESC)",
    "arg_min(t, k)", "arg_max(n, k)", "arg_max(t, CASE WHEN f THEN k ELSE -k END)",
    "bool_or(f)", "bool_and(f)", "bool_or(n > 3)", "bool_and(n > 3) FILTER (WHERE f)", "bool_or(length(t) > n)",
    "bool_and(upper(t) = 'A')", "count(DISTINCT t)", "count(DISTINCT n)", "count(DISTINCT upper(t))", "count(*)",
    "count(n)", "count(*) FILTER (WHERE t = 'a')", "count(n) FILTER (WHERE upper(t) = 'A')", "count_if(n > 3)",
)  # fmt: skip
BY = "OVER (PARTITION BY u ORDER BY"
WINDOWS = (
    f"row_number() {BY} k)", f"row_number() {BY} d DESC, k)", f"rank() {BY} d)", f"dense_rank() {BY} t NULLS FIRST)",
    f"lag(t) {BY} d, k)", f"lead(n, 2) {BY} k)", f"first_value(t) {BY} d, k)", f"first_value(n) {BY} upper(t), k)",
    f"sum(n) {BY} d)", f"sum(b) {BY} d)", "sum(n) OVER (PARTITION BY u)", f"count(*) {BY} d)",
    f"count(n) FILTER (WHERE f) {BY} d)", f"max(x) {BY} d)", "min(t) OVER (PARTITION BY u)", f"bool_or(f) {BY} k)",
    f"sum(n * 2) {BY} n + 1)",
    f"lag(upper(t)) {BY} CASE WHEN f THEN k ELSE -k END, k)",
)  # fmt: skip


class World:
    """A table with rows that each test replaces, and worker processes."""

    def __init__(self, threads: int = 1) -> None:
        self.connection = dpduck.connect(config={"threads": threads})
        self.connection.execute(TABLE)
        self.connection.execute("FROM dp(?)", [POLICY])
        self.workers = Workers()
        self.asked: dict[str, tuple[JobScan, list[Asking]]] = {}

    def close(self) -> None:
        self.workers.close()
        self.connection.close()

    def put(self, rows: Sequence[Row]) -> None:
        self.connection.execute("DELETE FROM visits")
        if rows:
            listed = ", ".join(f"({', '.join('NULL' if one is None else repr(one) for one in row)})" for row in rows)
            self.connection.execute(f"INSERT INTO visits VALUES {listed}")

    def made(self, inner: str, columns: int | Sequence[str], key: int = 7) -> list[str]:
        """Returns the rows that a subquery makes, as they are counted: with a worker's answers, before any noise."""
        if inner not in self.asked:
            request = request_of(self.connection, f"SELECT {CLAUSE} count(*) FROM ({inner})")
            scan = scan_of(counting_job(request, [adds("")]))
            self.asked[inner] = scan, [stage_question(one, self.workers, scan.longest_lookup) for one in scan.stages]
        scan, stages = self.asked[inner]
        name = "dpduck_" if "OVER" in inner else "c"
        names = [f"{name}{number}" for number in range(columns)] if isinstance(columns, int) else columns
        listed = ", ".join(f'"r0"."{one}"' for one in names)
        sql = f"SELECT * EXCLUDE (o) FROM (SELECT {listed}, {scan.ordering()[ORDER]} AS o FROM {scan.from_sql})"
        with ExitStack() as stack:
            cursor = stack.enter_context(self.connection.cursor())
            asking = Asking(sql, parameters={KEY: key})
            second, own = stack.enter_context(answer_rows(cursor, stages, asking, self.workers))
            return sorted(map(repr, second.execute(sql, dict(own)).fetchall()))


def numbered(rows: Sequence[Row]) -> list[Row]:
    return [(number, *row) for number, row in enumerate(rows)]


def inner(columns: Sequence[str], grouped: bool, *beside: str) -> str:
    listed = ", ".join([*(f"{column} AS c{number}" for number, column in enumerate(columns)), *beside])
    return f"SELECT {listed} FROM visits{' GROUP BY u' if grouped else ''}"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    found = World()
    yield found
    found.close()


SEVERAL = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize(
    ("columns", "grouped"),
    [(OF_UNITS, True), (WINDOWS[:9], False), (WINDOWS[9:], False)],
    ids=["of units", "windows", "more"],
)
@settings(SEVERAL, max_examples=15)
@given(rows=ROWS)
def test_columns_are_what_duckdb_makes_of_the_rows(
    world: World, columns: Sequence[str], grouped: bool, rows: list[Row]
) -> None:
    """Each unit's columns are DuckDB's own, for values of every kind, NULL, ties, NaN and the largest integers."""
    world.put(numbered(rows))
    found = world.made(inner(columns, grouped), len(columns))
    assert found == sorted(map(repr, world.connection.execute(plain(inner(columns, grouped))).fetchall()))


def plain(text: str) -> str:
    """Returns the subquery for DuckDB by itself: no rows without a unit, 0 for -0, and NULL for an error."""
    for ours, theirs in {
        "FROM visits": "FROM visits WHERE u IS NOT NULL", "CAST(x": "TRY_CAST(x", "n * 2": "TRY(n * 2)",
        "(x)": "(CASE WHEN x = 0 THEN 0 ELSE x END)", "n + 1": "TRY(n + 1)", "count_if(n > 3)":
        "count(*) FILTER (WHERE n > 3)",
    }.items():  # fmt: skip
        text = text.replace(ours, theirs)
    return text


TIED = (
    ("first(t ORDER BY d)", "last(n ORDER BY d)", "any_value(t)", "arg_min(n, d)", "first(x ORDER BY x)", "min(x)"),
    ("row_number() OVER (PARTITION BY u ORDER BY d)", "lag(t) OVER (PARTITION BY u ORDER BY d)",
     "first_value(n) OVER (PARTITION BY u ORDER BY f)"),
)  # fmt: skip


@pytest.mark.parametrize("columns", TIED, ids=["of units", "windows"])
def test_ties_are_broken_by_the_rows_of_the_unit_alone(world: World, columns: Sequence[str]) -> None:
    """Tied rows give the same columns in whatever order they are stored, and with or without another unit."""
    grouped = "OVER" not in columns[0]
    mine = [
        ("p", "ab"[n % 2], n % 3, n, "2024-01-01", ["-0.0", "0.0", "nan"][n % 3], True, None, "z") for n in range(9)
    ]
    text = inner(columns, grouped)
    found = []
    for rows in (mine, mine[::-1], [*mine[4:], *mine[:4]], [("q", *row[1:]) for row in mine] + mine):
        world.put([(1, *row) for row in rows])
        own = text.replace("FROM visits", "FROM visits WHERE u = 'p'")
        found.append(world.made(own, len(columns)))
        both = world.made(text, len(columns))
        assert set(found[0]) <= set(both)
    assert found.count(found[0]) == 4
    keys = {str(world.made(own, len(columns), key)) for key in range(12)}
    assert len(keys) > 1


def test_the_sign_of_zero_decides_nothing(world: World) -> None:
    """The sign of a zero, which storage may take from other rows, is in no column and orders no tied rows."""
    text = f"SELECT x, t, row_number() {BY} d) AS c FROM visits"
    found = set()
    for zeros in (["0.0"] * 4, ["-0.0"] * 4, ["0.0", "-0.0"] * 2, ["-0.0", "0.0", "0.0", "-0.0"]):
        signed = enumerate(zeros * 20)
        world.put([(1, f"unit {n // 4}", "ab"[n % 2], n % 4, None, None, x, None, None, None) for n, x in signed])
        found.add(str(world.made(text, ("x", "t", "dpduck_2"))))
    assert len(found) == 1 and "-0.0" not in found.pop()


def test_units_with_the_same_rows_choose_by_themselves(world: World) -> None:
    """A hundred units with the same rows choose independently: a key that favours one value would make them alike."""
    world.put([(n, f"unit {n // 2}", "ab"[n % 2], *[None] * 7) for n in range(200)])
    found = world.made(inner(["any_value(t)"], True), 1)
    assert 20 < found.count("('a',)") < 80  # beyond 6 standard deviations of 100 fair coins


def test_sums_do_not_overflow(world: World) -> None:
    """Sums of the largest integers of one unit, in all and beside each row, are exact, and no statement fails."""
    most = 2**63 - 1
    world.put([(n, "p", "a", 2**31 - 1, most, None, None, None, "9999999.99", None) for n in range(300)])
    assert world.made(inner(["sum(b)", "sum(p)", "sum(n)"], True), 3) == [
        f"({300 * most}, Decimal('2999999997.00'), {300 * (2**31 - 1)})"
    ]
    running = world.made(inner(["sum(b) OVER (PARTITION BY u)"], False), 1)
    assert set(running) == {f"({300 * most},)"}


UNITS = Units(Source(Stored("t", "r0")), RelationColumn("r0", "u", "INTEGER"), (), (), "r1")
KINDS = ("DOUBLE", "DECIMAL(38,2)", "HUGEINT", "INTEGER", "INTERVAL")
VALUE = {kind: RowValue(RelationColumn("r0", "x", kind), kind) for kind in KINDS}


@pytest.mark.parametrize("windowed", [False, True])
def test_what_could_fail_is_not_written(windowed: bool) -> None:
    """Trusted code refuses a sum that overflows, a condition of another type, and unknown words in any form."""
    units = Units(UNITS.source, UNITS.unit, (), (), "r1", (), windowed)
    for form, kind in (
        ("sum", "DOUBLE"), ("sum", "DECIMAL(38,2)"), ("sum", "HUGEINT"), ("any", "INTEGER"), ("list", "INTEGER"),
        ("median", "INTEGER"),
    ):  # fmt: skip
        with pytest.raises(InternalError):
            feature_sql(Feature(form, '"c"', VALUE[kind]), {VALUE[kind]: "x"}, "", units, ("h",))
    with pytest.raises(InternalError):
        comparable_sql(VALUE["INTERVAL"], "x")
    with pytest.raises(InternalError):
        feature_sql(Feature("count", '"c"', distance=-1), {}, "", UNITS, ("h",))
