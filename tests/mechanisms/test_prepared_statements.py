"""Statements over prepared tables count as they do unprepared: golden ones, those of the docs and random ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpduck
from tests.language.clinic import ask
from tests.language.full_clinic import open_full_clinic
from tests.language.golden_files import Golden, read_golden
from tests.support.twins import prepare_all, watch_twins

ROOT = Path(__file__).resolve().parents[2]
ACCEPTED = read_golden("accepted_*.sql")
ODD = ("memory.main.odd",)
"""A table whose column has a name of dpduck's own: it cannot be prepared."""


@pytest.fixture(scope="module")
def clinic() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_full_clinic() as connection:
        prepare_all(connection, ODD)
        yield connection


@pytest.mark.sampled
@pytest.mark.parametrize("golden", ACCEPTED, ids=str)
def test_golden_statements(golden: Golden, clinic: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every accepted golden statement has equal counts, each scan cell by cell."""
    compared = watch_twins(monkeypatch)
    tag = f"OPTIONS (refresh = '{ACCEPTED.index(golden)}', "
    ask(clinic, golden.statement.replace("OPTIONS (", tag, 1)).fetchall()
    assert compared or "odd" in golden.statement
    for plain, twin in compared:
        assert twin == plain


def statements(text: str) -> list[str]:
    return [part for part in re.split(r";\s*$", text, flags=re.MULTILINE) if part.strip()]


def page(name: str) -> list[str]:
    """The statements of a page."""
    blocks = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"), re.DOTALL)
    return statements(";\n".join(blocks))


def example(name: str) -> list[str]:
    """The statements of an example, after those that make its clinic."""
    files = (ROOT / "sql" / "examples" / f"{stem}.sql" for stem in ("clinic", name))
    return [statement for file in files for statement in statements(file.read_text(encoding="utf-8"))]


EXAMPLES = {
    **{f"docs/{name}": page(name) for name in ("sql", "synthetic_data")},
    **{
        f"sql/{path.stem}": example(path.stem)
        for path in sorted((ROOT / "sql" / "examples").glob("*.sql"))
        if path.stem not in ("clinic", "analyst_macros")
    },
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", EXAMPLES)
def test_statements_of_the_docs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal: the pages and the examples, with every table prepared as soon as it has a policy."""
    compared = watch_twins(monkeypatch)
    with dpduck.connect() as connection:
        for statement in EXAMPLES[name]:
            connection.execute(statement).fetchall()
            prepare_all(connection)
    assert compared
    for plain, twin in compared:
        assert twin == plain


VALUES = ("'a'", "'b'", "'outside'", "''", "NULL")
NUMBERS = ("-1", "0", "3", "9.5", "10", "20", "'nan'::DOUBLE", "NULL")
LABELS = ("IN ('a', 'b')", "IN ('a') WITH NULL", "IN ('a', 'b') WITH OTHER 'else'", "IN ('') WITH NULL WITH OTHER 'o'")
BINS = ("RANGE 0 TO 20 STEP 10", "RANGE 0 TO 20 STEP 5 WITH EDGES", "RANGE 0 TO 10 STEP 5 WITH NULL")
KEYS = ("label", "number", "label, number", "CUBE (label, number)", "kind", "upper(label)", "line")
CONDITIONS = (
    "", "WHERE label = 'a'", "WHERE number > 2", "WHERE free <> 'x'", "WHERE length(free) > 1",
    "WHERE label IN ('a', 'b') AND number BETWEEN 0 AND 12", "WHERE label IS NULL OR free IS NOT NULL",
    "WHERE upper(label) >= 'B'", "WHERE coalesce(label, 'a') = 'a' AND label <> 'outside'", "WHERE length(label) > 1",
)  # fmt: skip
AGGREGATES = ("count(*)", "count(number)", "sum(number)", "avg(number)", "count(DISTINCT person)",
              "count(*) FILTER (WHERE free = 'x')", "median(number)")  # fmt: skip
UNITS = ("person MAX ROWS 1", "person MAX ROWS 2", "person MAX ROWS 5", "ROW")
SOURCES = (
    "visits", "visits", "visits", "visits JOIN kinds ON label = value", "visits LEFT JOIN kinds ON label = value",
    "visits SEMI JOIN kinds ON label = value", "visits JOIN calls ON person = caller",
    "visits LEFT JOIN calls ON person = caller", "visits FULL JOIN calls ON person = caller AND line = 'a'",
    "visits JOIN calls ON person = caller AND upper(line) = 'A'",
    "(SELECT * FROM visits WHERE number > 0 UNION ALL SELECT * FROM visits)",
)  # fmt: skip
ROWS = st.lists(
    st.tuples(st.sampled_from(("1", "1", "2", "3", "NULL")), st.sampled_from(VALUES), st.sampled_from(NUMBERS),
              st.sampled_from(("'x'", "'yy'", "NULL"))),
    max_size=24,
)  # fmt: skip
ASKED = st.tuples(
    st.sampled_from(KEYS), st.sampled_from(AGGREGATES), st.sampled_from(SOURCES), st.sampled_from(CONDITIONS)
)


def rows_sql(rows: list[tuple[str, str, str, str]]) -> str:
    listed = ", ".join(f"({', '.join(row)})" for row in rows) or "(NULL, NULL, NULL, NULL)"
    typed = "p::INTEGER AS person, l::VARCHAR AS label, n::DOUBLE AS number, f::VARCHAR AS free"
    return f"SELECT {typed} FROM (VALUES {listed}) AS v(p, l, n, f) {'' if rows else 'WHERE FALSE'}"


def open_random(rows: list[tuple[str, str, str, str]], unit: str, label: str, number: str) -> duckdb.DuckDBPyConnection:
    connection = dpduck.connect()
    connection.execute(f"CREATE TABLE visits AS {rows_sql(rows)}")
    connection.execute("CREATE TABLE calls AS SELECT person AS caller, label AS line FROM visits")
    connection.execute("CREATE TABLE kinds AS FROM (VALUES ('a', 'k'), ('b', 'k'), ('b', 'm')) AS k(value, kind)")
    ask(connection, "DECLARE PUBLIC TABLE kinds")
    items = f"DOMAIN label {label}, DOMAIN number {number}, CLAMP number BETWEEN 0 AND 20 STEP 0.5"
    ask(connection, f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT {unit}, BUDGET (epsilon = 1000), {items})")
    if unit != "ROW":
        shared = unit.replace("person", "caller REFERENCES visits.person")
        ask(connection, f"CREATE PRIVACY POLICY ON calls (PRIVACY UNIT {shared}, DOMAIN line {label})")
    prepare_all(connection)
    return connection


@pytest.mark.slow
@pytest.mark.parametrize("examples", [10, pytest.param(400, marks=pytest.mark.audit)])
def test_random_statements(examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal: NULL, OTHER, EDGES, bins, crowded units, ties, empty tables, joins, UNION ALL."""
    compared = watch_twins(monkeypatch)
    answered = []

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        ROWS,
        st.sampled_from(UNITS),
        st.sampled_from(LABELS),
        st.sampled_from(BINS),
        st.lists(ASKED, min_size=4, max_size=4),
    )
    def counted_alike(rows: list[tuple[str, str, str, str]], unit: str, label: str, number: str, asked: list) -> None:
        compared.clear()
        with open_random(rows, unit, label, number) as connection:
            for keys, aggregate, source, condition in asked:
                selected = f"{keys.removeprefix('CUBE (').removesuffix(')')}, {aggregate} AS n"
                statement = f"{selected} FROM {source} {condition} GROUP BY {keys}"
                try:
                    ask(connection, f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) {statement}").fetchall()
                except duckdb.Error as refused:
                    assert "; accepted: " in str(refused), statement
                    continue
                answered.append(statement)
        for plain, twin in compared:
            assert twin == plain, answered[-4:]

    counted_alike()
    assert len(answered) > examples
