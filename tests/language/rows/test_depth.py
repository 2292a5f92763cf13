"""How deep the relations and conditions of a statement go: within the kernel's limit, and within Python's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import duckdb
import pytest

import dpduck
from dpduck.kernel.relations import MOST_LEVELS, every_source
from dpduck.language.rows.tree import MOST_BRANCHES, MOST_NESTED
from tests.language.clinic import ask, charges, told
from tests.language.facts import request_of

OPTIONS = "WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.001)"


@pytest.fixture(scope="module")
def clinic() -> Iterator[duckdb.DuckDBPyConnection]:
    with dpduck.connect() as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT i AS id, i % 90 AS age, i % 2 = 0 AS ill FROM range(300) r(i)"
        )
        ask(connection, "CREATE PRIVACY POLICY ON people (PRIVACY UNIT id MAX ROWS 4, BUDGET (epsilon = 1000))")
        yield connection


def chain(around: Callable[[str], str], number: int, last: str = "") -> str:
    """Returns a statement over CTEs, each around the one before."""
    tables = [f"t{place} AS ({around(f't{place - 1}')})" for place in range(1, number + 1)]
    listed = ", ".join(["t0 AS (SELECT id, age, ill FROM people)", *tables])
    return f"WITH {listed} SELECT {OPTIONS} count(*) AS n FROM t{number}{last}"


def union(inside: str) -> str:
    return f"SELECT id, age, ill FROM {inside} UNION ALL SELECT id, age, ill FROM people"


def look(inside: str) -> str:
    return f"SELECT p.id, p.age, p.ill FROM people AS p SEMI JOIN {inside} ON p.id = {inside}.id"


def group(inside: str) -> str:
    return f"{look(inside)} GROUP BY p.id".replace("p.age, p.ill", "max(p.age) AS age, bool_or(p.ill) AS ill")


@pytest.mark.parametrize(("around", "deepest"), [(union, 64), (look, 64)])
def test_the_kernel_accepts_the_deepest_statement(
    clinic: duckdb.DuckDBPyConnection, around: Callable[[str], str], deepest: int
) -> None:
    """MOST_BRANCHES tables are accepted, and one more is refused."""
    request = request_of(clinic, chain(around, MOST_BRANCHES - 1))
    assert request.rows.source is not None
    assert max(level for _, level in every_source(request.rows.source)) == deepest <= MOST_LEVELS == 2 * MOST_BRANCHES
    assert told(clinic, chain(around, MOST_BRANCHES)).endswith(f"accepted: at most {MOST_BRANCHES}, fewer joins")


def test_subqueries_by_unit_are_nested_as_deep_as_duckdb_plans_them(clinic: duckdb.DuckDBPyConnection) -> None:
    """MOST_NESTED levels are answered. One more is refused before DuckDB plans it, which would take for ever."""
    before = charges(clinic)
    assert len(ask(clinic, chain(group, MOST_NESTED)).fetchall()) == 1
    assert charges(clinic) == before + 1
    for deeper in (MOST_NESTED + 1, MOST_BRANCHES - 1):
        assert f"more than {MOST_NESTED} subqueries by privacy unit" in told(clinic, chain(group, deeper))
    assert charges(clinic) == before + 1


def test_high_conditions_are_answered_or_refused(clinic: duckdb.DuckDBPyConnection) -> None:
    """A condition of more nodes than the kernel takes goes to a worker. A deeper statement is refused uncharged."""
    before = charges(clinic)

    def above(inside: str) -> str:
        return f"SELECT id, age, ill AND age < {inside[1:]} OR age = 1 AS ill FROM {inside}"

    assert len(ask(clinic, chain(above, 130, " WHERE ill")).fetchall()) == 1
    assert charges(clinic) == before + 1
    assert "nested too deeply" in told(clinic, chain(above, 400, " WHERE ill"))
    assert charges(clinic) == before + 1
