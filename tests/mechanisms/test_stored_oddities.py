"""Stored values and names that a reader stumbles over: moments without a text, joins that make rows of NULLs."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

import dpduck

EXACT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100{}) "
KEYS = ", delta = 1e-7, group_selection_strategy = LAPLACE_THRESHOLD"
BUDGET = "BUDGET (epsilon = 1e6, delta = 1e-3, delta_keys = 5e-4)"
LAST = 2**63 - 1
ODD = {
    "TIMESTAMP": (pa.timestamp("us"), -LAST - 1),
    "TIMESTAMP_S": (pa.timestamp("s"), LAST // 10**6 // 1000),
    "TIMESTAMP_MS": (pa.timestamp("ms"), LAST // 1000),
    "TIMESTAMP_NS": (pa.timestamp("ns"), -LAST),
    "TIME": (pa.time64("us"), LAST),
}
"""Values that Arrow files bring in and DuckDB cannot write as a text: some raise, some end the whole instance."""


def dp(connection: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[object, ...]]:
    return connection.execute("FROM dp(?)", [statement]).fetchall()


def moments(kind: str, her: bool) -> duckdb.DuckDBPyConnection:
    """Visits of 500 people at one moment, and whether person 7 has a moment without a text."""
    connection = dpduck.connect(config={"threads": 1})
    good = "'12:00:00'" if kind == "TIME" else "'2024-01-01 12:00:00'"
    connection.execute(
        f"CREATE TABLE visits AS SELECT i % 500 AS id, CAST({good} AS {kind}) AS seen, 'x' || i AS note "
        "FROM range(2000) AS r(i)"
    )
    if her:
        arrow_type, raw = ODD[kind]
        connection.register("hers", pa.table({"seen": pa.array([raw], pa.int64()).view(arrow_type)}))
        connection.execute("INSERT INTO visits SELECT 7, seen, 'x' FROM hers")
        connection.unregister("hers")
    dp(connection, f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT id MAX ROWS 4, {BUDGET})")
    return connection


@pytest.mark.sampled
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("kind", ODD)
def test_a_moment_without_a_text_fails_nothing(kind: str, prepared: bool) -> None:
    """As a selected key, in a sketch and in an expression: answered as without her row, also prepared."""
    key = "date_trunc('day', seen)" if kind == "TIMESTAMP_NS" else "seen"  # which is no key as it stands
    statements = (
        EXACT.format(KEYS) + f"{key} AS k, count(*) FROM visits GROUP BY k",
        EXACT.format(KEYS) + "note || seen AS k, count(*) FROM visits GROUP BY k",
        EXACT.format("") + "count(*) FROM visits WHERE CAST(seen AS VARCHAR) <> note",
        "CREATE PRIVATE HISTOGRAM h OPTIONS (epsilon = 1) AS SELECT seen FROM visits",
    )
    shapes = []
    for her in (False, True):
        with moments(kind, her) as connection:
            if prepared:
                dp(connection, "ALTER PRIVACY POLICY ON visits PREPARE")
            shapes.append([len(dp(connection, statement)) for statement in statements])
    assert shapes[0] == shapes[1] == [1, 0, 1, 1]


@pytest.mark.sampled
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("kind", ODD)
def test_a_unit_without_a_text_fails_nothing(kind: str, prepared: bool) -> None:
    """Her whole unit is such a value: where units travel as texts, she contributes nothing."""
    statement = EXACT.format("") + "count(*) FROM visits WHERE upper(note) > 'A'"
    for her in (False, True):
        with moments(kind, her) as connection:
            connection.execute("CREATE TABLE turned AS SELECT seen AS who, note FROM visits")
            dp(connection, f"CREATE PRIVACY POLICY ON turned (PRIVACY UNIT who MAX ROWS 4, {BUDGET})")
            if prepared:
                dp(connection, "ALTER PRIVACY POLICY ON turned PREPARE")
            (answer,) = dp(connection, statement.replace("visits", "turned"))
            assert isinstance(answer[0], int)


@pytest.fixture(scope="module")
def joined() -> Iterator[duckdb.DuckDBPyConnection]:
    """Three tables of people, each with fewer people than the one before, and a public table."""
    with dpduck.connect(config={"threads": 1}) as connection:
        for sql in (
            "CREATE TABLE a (id INTEGER PRIMARY KEY, note VARCHAR, dpduck_stage_1_f0 BOOLEAN)",
            "INSERT INTO a SELECT i, 'a' || i % 3, false FROM range(100) AS r(i)",
            "CREATE TABLE b AS SELECT i AS id, 'b' || i % 3 AS note FROM range(60) AS r(i)",
            "CREATE TABLE c AS SELECT i AS id, 'c' || i % 3 AS note FROM range(80) AS r(i)",
            "CREATE TABLE d AS SELECT i AS id, 'd' || i % 3 AS note FROM range(70) AS r(i)",
            "CREATE TABLE p AS SELECT 'b' || i AS name, 'r' || i AS region FROM range(2) AS r(i)",
            "CREATE TABLE q AS FROM (VALUES ('r0'), ('none')) AS v(k)",
        ):
            connection.execute(sql)
        dp(connection, "DECLARE PUBLIC TABLE p")
        dp(connection, "DECLARE PUBLIC TABLE q")
        dp(connection, f"CREATE PRIVACY POLICY ON a (PRIVACY UNIT id MAX ROWS 1, {BUDGET})")
        for table in "bcd":
            dp(connection, f"CREATE PRIVACY POLICY ON {table} (PRIVACY UNIT id REFERENCES a.id MAX ROWS 1)")
        yield connection


@pytest.mark.parametrize(
    "select",
    [
        "count(*) FROM c LEFT JOIN b ON c.id = b.id AND upper(b.note) = 'B1' WHERE b.id IS NOT NULL",
        "count(*) FROM c LEFT JOIN b ON c.id = b.id LEFT JOIN d ON c.id = d.id AND upper(b.note) = 'B1' "
        "WHERE d.id IS NULL",
        "count(*) FROM (SELECT c.id FROM c LEFT JOIN b ON c.id = b.id WHERE upper(b.note) = 'B1' "
        "UNION ALL SELECT id FROM d)",
        "count(*) FROM b SEMI JOIN c ON b.id = c.id AND upper(c.note) = 'C1'",
        "count(*) FROM c ANTI JOIN b ON c.id = b.id AND upper(b.note) = 'B1'",
        "count(*) FROM b RIGHT JOIN c ON b.id = c.id AND upper(b.note) = 'B1' WHERE b.id IS NULL",
        "count(*) FROM c LEFT JOIN b ON c.id = b.id WHERE coalesce(b.note, 'x') = 'x'",
        "count(*) FROM b JOIN p ON lower(b.note) = p.name WHERE upper(p.region) = 'R1'",
        "count(*) FROM b LEFT JOIN p ON lower(b.note) = p.name JOIN q ON lower(p.region) = q.k",
    ],
)
def test_what_is_asked_beforehand_joins_as_duckdb_does(joined: duckdb.DuckDBPyConnection, select: str) -> None:
    """Expressions around outer joins, against the plain SELECT. The noise at this epsilon is nothing."""
    exact = joined.execute(f"SELECT {select}").fetchall()
    found = dp(joined, EXACT.format("") + select)
    assert abs(float(str(found[0][0])) - exact[0][0]) <= 1


@pytest.mark.parametrize(
    "select",
    [
        "count(*) FROM c LEFT JOIN b ON c.id = b.id LEFT JOIN d ON c.id = d.id AND coalesce(b.note, 'x') = 'x' "
        "WHERE d.id IS NULL",
        "count(*) FROM (SELECT c.id FROM c LEFT JOIN b ON c.id = b.id WHERE coalesce(b.note, 'x') = 'x' "
        "UNION ALL SELECT id FROM d)",
        "count(*) FROM b LEFT JOIN p ON b.note = p.name JOIN q ON coalesce(p.region, 'none') = q.k",
    ],
)
def test_a_value_for_rows_of_nulls_is_refused_before_its_charge(joined: duckdb.DuckDBPyConnection, select: str) -> None:
    """Values computed from stored rows miss the rows that an outer join made NULL. An answer would be wrong."""
    entries = joined.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    with pytest.raises(duckdb.Error, match="a value for NULLs is asked of rows that an outer join made NULL"):
        dp(joined, EXACT.format("") + select)
    assert joined.execute("SELECT count(*) FROM dp_ledger()").fetchall() == entries


def test_a_column_with_a_name_of_dpduck_s_own_is_never_read_for_another(joined: duckdb.DuckDBPyConnection) -> None:
    """Tables that have one are not asked beforehand."""
    with pytest.raises(duckdb.Error, match="accepted:"):
        dp(joined, EXACT.format("") + "count(*) FROM b LEFT JOIN a ON a.id = b.id AND upper(a.note) = 'A1'")
