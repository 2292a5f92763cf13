"""A worker runs one expression of one row, whatever code read the statement before."""

from __future__ import annotations

import pytest

from dpduck.kernel.worker.functions import require_row_local
from dpduck.kernel.worker.program import Division, Output
from dpduck.language.rows.compiled import program_of
from dpduck.values.errors import Refusal
from tests.support.nodes import columns_of

COLUMNS = frozenset(("dpduck_x_0", "dpduck_x_1"))
OTHER_ROWS = (
    "sum(dpduck_x_0)",
    "sum(dpduck_x_0) OVER ()",
    "(SELECT max(dpduck_x_0) FROM dpduck_batch)",
    "EXISTS (SELECT 1 FROM dpduck_batch)",
    "dpduck_x_0 IN (SELECT dpduck_x_0 FROM dpduck_batch)",
    "dpduck_x_0) FROM dpduck_batch GROUP BY (dpduck_x_0",
    "dpduck_x_0), (dpduck_x_1",
    "dpduck_x_0) LIMIT (1",
    "dpduck_x_0); SELECT (1",
    "dpduck_x_0 -- ",
    "dpduck_x_0 /*",
    "nextval('s')",
    "random()",
    "getvariable('a')",
    "list_transform([dpduck_x_0], x -> x)",
    "[dpduck_x_0]",
    "COLUMNS(*)",
    "*",
    "$1",
    "main2.upper(dpduck_x_0)",
    "upper(dpduck_keep)",
    "dpduck_batch.dpduck_x_0",
    "rowid",
)
TUPLES = (
    "(dpduck_x_0, dpduck_x_1)",
    "length(CAST((dpduck_x_0, dpduck_x_1) AS VARCHAR)) > 0",
    "(dpduck_x_0, dpduck_x_1) = dpduck_x_0",
    "dpduck_x_0 IN ((dpduck_x_0, dpduck_x_1))",
    "(dpduck_x_0, dpduck_x_1) BETWEEN dpduck_x_0 AND (1, 2)",
    "(dpduck_x_0, dpduck_x_1) || 'a' = 'b'",
    "((dpduck_x_0, 1), 2) = ((dpduck_x_1, 1), 2)",
    "coalesce((dpduck_x_0, 1), (dpduck_x_1, 1)) = (1, 2)",
    "CASE WHEN TRUE THEN (dpduck_x_0, 1) END = (1, 2)",
    "(dpduck_x_0, dpduck_x_1) IS NULL",
    "row(dpduck_x_0, dpduck_x_1) = CAST(dpduck_x_0 AS VARCHAR)",
    "struct_pack(a := dpduck_x_0) = 'a'",
)


def refusal(sql: str) -> str:
    """Returns the refusal of an expression, or '' if it may run."""
    try:
        require_row_local(sql, COLUMNS)
    except Refusal as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("sql", OTHER_ROWS)
def test_other_rows_are_out_of_reach(sql: str) -> None:
    """Aggregates, windows, subqueries, other columns, and SQL that leaves its brackets are refused."""
    with pytest.raises(Refusal, match="DuckDB reads"):
        require_row_local(sql, COLUMNS)


@pytest.mark.parametrize("sql", TUPLES)
def test_tuples_stand_beside_tuples_alone(sql: str) -> None:
    """No text is made from a tuple, and no tuple from a text."""
    with pytest.raises(Refusal, match="a tuple that is not compared with tuples"):
        require_row_local(sql, COLUMNS)


@pytest.mark.parametrize(
    "sql",
    [
        "(dpduck_x_0, 1) IN ((1, 2), (dpduck_x_1, 3))",
        "CAST(1 AS HUGEINT) + 340282366920938463463374607431768211455 > dpduck_x_0",
        "NOT (dpduck_x_0, dpduck_x_1) BETWEEN (1, 2) AND (3, 4) OR (dpduck_x_0, 1) < (1, 2)",
        "(dpduck_x_0, dpduck_x_1) NOT IN ((1, 2))",
        "dpduck_x_0 + 1 > dpduck_x_1",
        "try(CAST(dpduck_x_0 AS INTEGER)) IN (1, 2, 3, 4, 5)",
        "CASE WHEN dpduck_x_0 LIKE 'a%' THEN upper(dpduck_x_0) ELSE coalesce(dpduck_x_1, 'b') END",
        "date_trunc('month', dpduck_x_0) BETWEEN DATE '2024-01-01' AND DATE '2024-02-01'",
        "regexp_matches(dpduck_x_0, 'a|b') IS NOT TRUE",
    ],
)
def test_plain_expressions_pass(sql: str) -> None:
    """Listed functions of one row pass. The same call with another column is refused."""
    assert refusal(sql) == ""
    assert "DuckDB reads" in refusal(sql.replace("dpduck_x_0", "secret"))


@pytest.mark.parametrize("sql", ['sum("r0"."a")', '(SELECT max("r0"."a"))', 'upper("r0"."a") OVER ()', "secret"])
def test_no_program_is_made_of_anything_else(sql: str) -> None:
    """Conditions and outputs of a worker's program are all checked."""
    program = program_of(sql, columns_of({'"r0"."a"': "INTEGER"}))
    for division in (Division({}, (program,)), Division({"o": Output("integer", program)}, ())):
        with pytest.raises(Refusal, match="DuckDB reads"):
            division.program()
