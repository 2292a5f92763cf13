"""Units and budgets of a policy's clauses: units of several columns or by periods (PER .. OF), and LIFETIME."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from dpduck.language.rows.facts import CatalogColumn, Policy, PublicFacts
from dpduck.language.rows.relation import require_joint_columns
from dpduck.language.statements.kinds import BudgetClause, PolicyClauses
from dpduck.language.text.names import TableName, require_plain_names
from dpduck.values.accounting import rho_of
from dpduck.values.errors import Refusal
from dpduck.values.periods import Period, is_period_name
from dpduck.values.privacy import Budget, PrivacyUnit
from dpduck.values.quoting import fold
from dpduck.values.sqltypes import sql_type

_TOGETHER = re.compile(r"\(.+, .+\)", re.DOTALL)


def period_of(word: str, column: CatalogColumn) -> Period:
    """Returns the period for PER word OF a column. Refuses a type that does not determine the period of a row."""
    if not sql_type(column.type_name).is_moment:
        converted = ""
        if sql_type(column.type_name).is_text:
            format_ = "by the format that dp_check of the table without a policy names"
            converted = f": ALTER TABLE .. ALTER {column.name} TYPE TIMESTAMP USING try_strptime(..), {format_}"
        raise Refusal(
            f"{column.name} is {sql_type(column.type_name).word}, which does not say of which {word.lower()} a row "
            "is, whatever the session's time zone",
            accepted=f"a column of type DATE or TIMESTAMP{converted}",
        )
    return Period(word, column.name)


def preparation_refusal(table: TableName, word: str) -> Refusal:
    """Returns the refusal to prepare units by period."""
    return Refusal(
        f"units of one {word.lower()} are not prepared",
        accepted=f"{table.table} as it is; or UNPREPARE before PER {word}",
    )


def require_other_name(column: CatalogColumn, period: Period | None) -> None:
    """Refuses a unit's column if its name looks like a key of the ledger, or if PER does not work with its type."""
    if _TOGETHER.fullmatch(column.name):
        raise Refusal(
            f"{column.name!r} is a name that the ledger needs for several columns",
            accepted="ALTER TABLE .. RENAME COLUMN",
        )
    if is_period_name(column.name):
        raise Refusal(
            f"{column.name!r} is a name that the ledger needs for periods", accepted="a unit's column of another name"
        )
    if period is not None and not sql_type(column.type_name).is_unit_part:
        raise Refusal(
            f"{column.name} is {sql_type(column.type_name).word}, which is not told apart by period",
            accepted="a unit of whole numbers up to 64 bits, VARCHAR or UUID",
        )


def unit_together(
    table: TableName, names: Sequence[str], max_rows: int, facts: PublicFacts, spelled: Callable[[str], str]
) -> PrivacyUnit:
    """Returns a unit of several columns. spelled: returns the key "table.(a, b)" in the spelling of the ledger."""
    require_plain_names(*names)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Refusal(f"{twice!r} is named twice", accepted="each column of the unit once")
    odd = next((name for name in names if set(name) & set("(),")), None)
    if odd is not None:
        raise Refusal(f"the name {odd!r} has a bracket or comma", accepted="ALTER TABLE .. RENAME COLUMN")
    require_joint_columns(table, names, facts)
    return PrivacyUnit(spelled(f"{table}.({', '.join(names)})"), "", max_rows, columns=tuple(names))


def require_no_null(policy: Policy) -> None:
    """Refuses WITH NULL in the domain of a period's column. Rows with NULL are never counted, so the cell is noise."""
    period = policy.unit.period
    domain = None if period is None else policy.domain(period.column)
    if period is not None and domain is not None and domain.with_null:
        raise Refusal(
            f"a row whose {period.column} is NULL is of no {period.word.lower()}, and never counted",
            accepted=f"the DOMAIN of {period.column} without WITH NULL",
        )


def require_same_word(policy: Policy, unit: PrivacyUnit) -> None:
    """Refuses a change to periods of another length. The budget in force was meant for the old periods."""
    words = [None if each_unit.period is None else each_unit.period.word for each_unit in (policy.unit, unit)]
    if words[0] != words[1]:
        raise Refusal(
            "a unit of other periods has another budget",
            accepted=f"CREATE OR REPLACE PRIVACY POLICY ON {policy.table.table} (..) with BUDGET (..)"
            + (f" PER {words[1]}" if words[1] else ""),
        )


def unit_by_periods(
    parent: Policy, column: CatalogColumn, key_column: CatalogColumn, max_rows: int, period: Period | None
) -> PrivacyUnit:
    """Returns the unit by periods of a table that refers to another table's unit. Refuses different periods."""
    other = parent.unit.period
    words = [None if each_period is None else each_period.word for each_period in (period, other)]
    direct = parent.unit.column is not None and fold(parent.unit.column) == fold(key_column.name)
    if other is not None and not direct and words[0] in (None, words[1]):
        word = other.word.lower()
        raise Refusal(
            f"a row that refers to {parent.table}.{key_column.name} would be of two units: of the {word} of that row, "
            f"and of a {word} of its own",
            accepted=f"PRIVACY UNIT {parent.unit.column or 'column'} REFERENCES {parent.table.table}."
            f"{parent.unit.column or 'column'} PER {other.word} OF a column, with the unit's own column in the table",
        )
    if words[0] != words[1] or not direct:
        per = "" if other is None else f" PER {other.word} OF a column"
        raise Refusal(
            f"the unit of {parent.table} is {f'by {other.word.lower()}' if other is not None else 'for all time'}: a "
            "row would have units of two kinds",
            accepted=f"PRIVACY UNIT {column.name} without REFERENCES, which has a budget of its own"
            + (f"; or REFERENCES to its unit with{per}" if per else ""),
        )
    return PrivacyUnit(parent.unit.key, column.name, max_rows, period=period)


def budget_of(clauses: PolicyClauses, unit: PrivacyUnit, previous: Budget | None) -> Budget:
    """Returns the declared budget and lifetime. If either is not declared, the previous one stays."""
    per = "" if unit.period is None else unit.period.word
    if clauses.budget is not None and clauses.budget.per != per:
        raise Refusal(
            f"the budget is {f'PER {clauses.budget.per}' if clauses.budget.per else 'for all time'}, and the privacy "
            f"unit is {f'PER {per}' if per else 'for all time, too' if not clauses.budget.per else 'not'}",
            accepted=f"BUDGET (..) PER {per}" if per else "BUDGET (..), or PRIVACY UNIT .. PER .. OF a column",
        )
    budget = previous if clauses.budget is None else _amounts(clauses.budget)
    if budget is None:
        accepted = "BUDGET (epsilon = ..), or with delta, or (rho = ..)"
        raise Refusal("BUDGET is missing", accepted=f"{accepted}, and PER {per}" if per else accepted)
    lifetime = None if previous is None else previous.lifetime
    if clauses.lifetime is not None:
        _require_lifetime(unit)
        lifetime = _amounts(clauses.lifetime)
    if lifetime is not None and lifetime.pure != budget.pure:
        raise Refusal(
            "BUDGET and LIFETIME add up different measures",
            accepted="both with an epsilon alone, both with a delta, or both with rho",
        )
    return replace(budget, lifetime=lifetime)


def _require_lifetime(unit: PrivacyUnit) -> None:
    if unit.period is None:
        raise Refusal("LIFETIME adds up periods, and the privacy unit has none", accepted="BUDGET alone")
    if unit.column is None:
        raise Refusal(
            f"a row lies in one {unit.period.word.lower()}, so that its BUDGET is all that it may cost",
            accepted="BUDGET alone; or a column as the PRIVACY UNIT",
        )


def _amounts(clause: BudgetClause) -> Budget:
    rho = clause.rho
    if clause.epsilon is not None and clause.delta > 0:
        rho = rho_of(clause.epsilon, clause.delta - clause.delta_keys)
    return Budget(clause.epsilon, clause.delta, clause.delta_keys, rho)
