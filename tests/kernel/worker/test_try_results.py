"""Between TRY and a COALESCE under it there is always a node with a result vector of its own."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest

from dpduck.kernel.worker.added_calls import with_results_of_their_own
from dpduck.values.errors import InternalError

PASSING = ("CASE", "CAST")
"""What hands the place of its result on to what it is over."""

EXPRESSIONS = (
    "try(coalesce(a, b))",
    "try(CAST((coalesce(a, b)) AS BOOLEAN))",
    "try(CASE WHEN a > 1 THEN coalesce(a, b) ELSE b END)",
    "try(try(coalesce(a, b)))",
    "try ((COALESCE(a, ifnull(b, 1))))",
    "try(a = coalesce(b, 'try(coalesce(''(')) AND try(coalesce(a, b) = 1)",
    'try(coalesce("try(", ")"))',
    "coalesce(try(a), try(b), 1)",
    "count(CASE WHEN try(coalesce(a, b)) THEN 1 END)",
)


def unsafe(value: Any, under_try: bool = False) -> bool:
    """Tells whether in DuckDB's own tree a COALESCE writes into the result of TRY."""
    if isinstance(value, list):
        return any(unsafe(part, under_try) for part in value)
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if under_try and kind == "OPERATOR_COALESCE":
        return True
    hands_on = kind == "OPERATOR_TRY" or (under_try and (value.get("class") in PASSING or "class" not in value))
    return any(unsafe(part, hands_on) for part in value.values())


def tree(sql: str) -> Any:
    with duckdb.connect() as connection:
        row = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchone()
    found = json.loads(row[0]) if row else {"error": True}
    assert not found["error"]
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_coalesce_has_a_result_of_its_own(expression: str) -> None:
    """In DuckDB's own tree of the SQL no COALESCE writes into TRY's result, which has room for one value."""
    found = with_results_of_their_own(f"SELECT {expression} FROM t")
    assert not unsafe(tree(found))
    assert found.replace("greatest(", "").count("(") == f"SELECT {expression} FROM t".count("(")


def test_the_check_sees_what_it_is_for() -> None:
    """Most of the expressions as written are unsafe, so that the check above can fail."""
    assert [unsafe(tree(f"SELECT {expression} FROM t")) for expression in EXPRESSIONS].count(True) == 7


def test_sql_without_coalesce_stays() -> None:
    """Only SQL with a COALESCE under TRY is changed."""
    sql = "SELECT try(a), 'try(coalesce(', coalesce(a, b), try(nullif(a, 1)) FROM t WHERE (a) IN (1, 2)"
    assert with_results_of_their_own(sql) == sql


@pytest.mark.parametrize("broken", ["SELECT try(coalesce(a)", "SELECT a)", "SELECT 'a", 'SELECT "a'])
def test_what_cannot_be_read_is_not_run(broken: str) -> None:
    """SQL with brackets or quotes that do not match fails before it reads a row."""
    with pytest.raises(InternalError):
        with_results_of_their_own(broken)
