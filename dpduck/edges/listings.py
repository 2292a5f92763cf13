"""Small tables that dp_explain, dp_budget, dp_ledger and their kin answer with, as SQL over VALUES."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from fractions import Fraction

from dpduck.domain import Domain, RangeDomain
from dpduck.edges.release_store import StoredRelease
from dpduck.frontend.names import quote_identifier, quote_text
from dpduck.frontend.policy import Policy
from dpduck.trusted.ledger import Ledger
from dpduck.trusted.ledger_values import LedgerEntry
from dpduck.trusted.owner_check import Finding

Value = str | int | float | bool | Fraction | None
EXPLAINED = (
    ("strategy", "VARCHAR"), ("chosen", "BOOLEAN"), ("total_variance", "DOUBLE"), ("worst_stderr", "DOUBLE"),
    ("epsilon", "DOUBLE"), ("delta", "DOUBLE"), ("rho", "DOUBLE"), ("cells", "BIGINT"), ("groups", "BIGINT"),
    ("note", "VARCHAR"), ("seconds", "DOUBLE"),
)  # fmt: skip


def rows_sql(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Value]]) -> str:
    """A SELECT that yields the rows with these column names and types."""
    casts = ", ".join(
        f"CAST(column{number} AS {type_name}) AS {quote_identifier(name)}"
        for number, (name, type_name) in enumerate(columns)
    )
    listed = ", ".join(f"({', '.join(_literal(value) for value in row)})" for row in rows)
    nothing = f"({', '.join('NULL' for _ in columns)})"
    names = ", ".join(f"column{number}" for number in range(len(columns)))
    return f"SELECT {casts} FROM (VALUES {listed or nothing}) AS listed({names})" + ("" if rows else " WHERE false")


def _literal(value: Value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, Fraction)):
        return quote_text(repr(float(value)) if not isinstance(value, int) else str(value))
    return quote_text(value)


def status(text: str) -> str:
    """One row that says what was done."""
    return rows_sql([("status", "VARCHAR")], [[text]])


def budgets(policies: Sequence[Policy], ledger: Ledger) -> str:
    """dp_budget: a line per table and measure."""
    rows: list[list[Value]] = []
    for policy in policies:
        spent, budget = ledger.spent(policy.unit.key), policy.budget
        table = policy.table.table
        if budget.pure:
            used, whole = spent.epsilon or Fraction(0), budget.epsilon or Fraction(0)
            rows.append([table, "epsilon", whole, used, whole - used])
        else:
            whole = budget.rho or Fraction(0)
            rows.append([table, "rho", whole, spent.rho, whole - spent.rho])
            if budget.delta_keys > 0:
                rows.append([table, "delta", budget.delta_keys, spent.delta, budget.delta_keys - spent.delta])
    columns = [
        ("table_name", "VARCHAR"), ("measure", "VARCHAR"), ("budget", "DOUBLE"), ("spent", "DOUBLE"),
        ("remaining", "DOUBLE"),
    ]  # fmt: skip
    return rows_sql(columns, rows)


def entries(listed: Sequence[LedgerEntry]) -> str:
    """dp_ledger: every charge."""
    columns = [
        ("id", "BIGINT"), ("at", "TIMESTAMP"), ("principal", "VARCHAR"), ("table_name", "VARCHAR"),
        ("statement", "VARCHAR"), ("mechanism", "VARCHAR"), ("epsilon", "DOUBLE"), ("rho", "DOUBLE"),
        ("delta", "DOUBLE"), ("privacy_unit", "VARCHAR"),
    ]  # fmt: skip
    rows: list[list[Value]] = [
        [
            entry.id, entry.at.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" "), entry.principal,
            entry.table_name, entry.statement, entry.mechanism, entry.epsilon, entry.rho, entry.delta, entry.unit_key,
        ]
        for entry in listed
    ]  # fmt: skip
    return rows_sql(columns, rows)


def policies(listed: Sequence[Policy]) -> str:
    """dp_policies: what is public about each table."""
    columns = [
        ("table_name", "VARCHAR"), ("privacy_unit", "VARCHAR"), ("max_rows", "BIGINT"), ("domains", "VARCHAR"),
        ("clamps", "VARCHAR"), ("expect_rows", "BIGINT"), ("revision", "BIGINT"), ("epoch", "BIGINT"),
    ]  # fmt: skip
    rows: list[list[Value]] = [
        [
            str(policy.table),
            policy.unit.key,
            policy.unit.max_rows,
            ", ".join(f"{column} ({_domain(domain)})" for column, domain in policy.domains),
            ", ".join(f"{clamp.column} {clamp.low} to {clamp.high} step {clamp.step}" for clamp in policy.clamps),
            policy.expect_rows,
            policy.revision,
            policy.epoch,
        ]
        for policy in listed
    ]
    return rows_sql(columns, rows)


def _domain(domain: Domain) -> str:
    extra = " and NULL" if domain.with_null else ""
    if isinstance(domain, RangeDomain):
        return f"{len(domain.edges)} bins{extra}"
    return f"{len(domain.values)} values{extra}" + (" and others" if domain.other is not None else "")


def releases(listed: Sequence[tuple[StoredRelease, str]], reader: str | None) -> str:
    """dp_releases: every released table; of another's, a reader who is not the owner sees views and what they cost.

    That much is in the comments of the views, which everybody reads; the statement and its time are the asker's own.
    """
    columns = [
        ("name", "VARCHAR"), ("statement", "VARCHAR"), ("strategy", "VARCHAR"), ("epsilon", "DOUBLE"),
        ("delta", "DOUBLE"),
        ("rho", "DOUBLE"), ("released_at", "TIMESTAMP"), ("rows", "BIGINT"), ("kind", "VARCHAR"),
        ("ledger_id", "BIGINT"),
    ]  # fmt: skip
    rows: list[list[Value]] = []
    for release, at in listed:
        if reader in (None, release.principal):
            rows.append([
                release.name, release.statement, release.strategy, release.epsilon, release.delta, release.rho, at,
                release.rows, release.kind, release.ledger_id,
            ])  # fmt: skip
        elif release.kind == "view":
            rows.append([
                release.name, None, release.strategy, release.epsilon, release.delta, release.rho, None, release.rows,
                release.kind, None,
            ])  # fmt: skip
    return rows_sql(columns, rows)


def check(findings: Sequence[Finding]) -> str:
    """dp_check: exact facts for the owner."""
    columns = [("finding", "VARCHAR"), ("value", "DOUBLE"), ("advice", "VARCHAR")]
    return rows_sql(columns, [[finding.what, finding.value, finding.advice] for finding in findings])
