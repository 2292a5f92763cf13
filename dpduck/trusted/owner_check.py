"""dp_check: exact facts about a table for its owner, who holds the rows anyway; never for anybody else."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from dpduck.errors import InternalError
from dpduck.frontend.names import quote_identifier
from dpduck.frontend.policy import Policy
from dpduck.trusted.binning_sql import code_expression
from dpduck.trusted.counting_job import KeyColumn


@dataclass(frozen=True)
class Finding:
    """One exact fact and what to make of it."""

    what: str
    value: float | None
    advice: str


def check_table(
    cursor: duckdb.DuckDBPyConnection, policy: Policy, from_sql: str, unit_sql: str | None
) -> list[Finding]:
    """Rows per unit, values outside the domains, a MAX ROWS to consider.

    from_sql, unit_sql: the table with what finds the unit of its rows, and that unit; None for PRIVACY UNIT ROW.
    """
    try:
        return [*_unit_findings(cursor, policy, from_sql, unit_sql), *_domain_findings(cursor, policy)]
    except duckdb.Error:
        raise InternalError("the check failed while reading the table") from None


def _unit_findings(
    cursor: duckdb.DuckDBPyConnection, policy: Policy, from_sql: str, unit_sql: str | None
) -> list[Finding]:
    total = _one(cursor, f"SELECT count(*) FROM {policy.table.sql}")
    findings = [Finding("rows", total[0], "EXPECT ROWS is a public guess: round it, or leave it out")]
    if unit_sql is None:
        return findings
    bound = policy.unit.max_rows
    per_unit = f"(SELECT count(*) AS rows FROM {from_sql} WHERE {unit_sql} IS NOT NULL GROUP BY {unit_sql})"
    units, median, high, most, lost, owned = _one(
        cursor,
        f"SELECT count(*), quantile_disc(rows, 0.5), quantile_disc(rows, 0.99), max(rows), "
        f"coalesce(sum(greatest(rows - {bound}, 0)), 0), coalesce(sum(rows), 0) FROM {per_unit}",
    )
    without = (total[0] or 0) - (owned or 0)
    return [
        *findings,
        Finding("privacy units", units, ""),
        Finding("median rows of a unit", median, ""),
        Finding(
            "99 % of units have at most this many rows", high, "a MAX ROWS to consider: less bias against less noise"
        ),
        Finding("most rows of a unit", most, ""),
        Finding(f"rows dropped by MAX ROWS {bound}", lost, "a larger MAX ROWS drops fewer and adds noise"),
        Finding(
            "rows whose unit is NULL",
            without,
            "they are never counted, nor are rows without a parent",
        ),
    ]


def _domain_findings(cursor: duckdb.DuckDBPyConnection, policy: Policy) -> list[Finding]:
    findings = []
    for position, (column, domain) in enumerate(policy.domains):
        code = code_expression(KeyColumn(f"t.{quote_identifier(column)}", domain), position)
        outside = cursor.execute(
            f"SELECT count(*) FROM {policy.table.sql} AS t WHERE ({code.sql}) IS NULL", dict(code.parameters)
        ).fetchone()
        value = float(outside[0]) if outside is not None else None
        findings.append(
            Finding(
                f"rows outside the domain of {column}", value, "WITH NULL, WITH OTHER or WITH EDGES would keep them"
            )
        )
    return findings


def _one(cursor: duckdb.DuckDBPyConnection, sql: str) -> list[float | None]:
    row = cursor.execute(sql).fetchone()
    return [None if value is None else float(value) for value in row or ()]
