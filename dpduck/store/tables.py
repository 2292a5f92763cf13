"""Small result tables of dp_explain, dp_budget, dp_ledger and similar functions, as SQL over VALUES."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from dpduck.kernel.ledger.budgets import Payer, for_person, share_of
from dpduck.kernel.ledger.entries import LedgerEntry
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.language.rows.facts import Policy
from dpduck.store.cursors import Caller
from dpduck.store.spending import SpendingRate, last_day, warn_of
from dpduck.values.accounting import epsilon_of
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.per_cent import describe_price, in_per_cent
from dpduck.values.periods import each, format_run, last_number, split_key
from dpduck.values.privacy import NOTHING, Budget, Charge
from dpduck.values.quoting import fold, quote_identifier, quote_text

if TYPE_CHECKING:
    from dpduck.store.check import CheckFinding, Distance
    from dpduck.store.releases import StoredRelease

SMALLEST_RHO = Fraction(1, 10**12)
"""Up to this remaining rho, the remaining epsilon is shown as 0."""

MOST_SHOWN = 400
"""Longest run of periods with a line for each period in dp_budget. A longer run, of equal spending, has one line."""

BUDGETS = (
    ("table_name", "VARCHAR"), ("measure", "VARCHAR"), ("budget", "DOUBLE"), ("spent", "DOUBLE"),
    ("remaining", "DOUBLE"), ("share", "DOUBLE"), ("declared", "VARCHAR"), ("epsilon_left", "DOUBLE"),
    ("policy", "VARCHAR"), ("period", "VARCHAR"), ("per_day", "DOUBLE"), ("lasts_until", "DATE"),
    ("warning", "VARCHAR"), ("project", "VARCHAR"), ("reserved", "DOUBLE"), ("reserved_for", "VARCHAR"),
    ("a_day", "DOUBLE"), ("left_today", "DOUBLE"),
)  # fmt: skip
"""Columns of dp_budget."""

Value = str | int | float | bool | Fraction | None


def rows_sql(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Value]]) -> str:
    """Returns a SELECT that yields the rows with these column names and types."""
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
    """Returns SQL of one row with a message."""
    return rows_sql([("status", "VARCHAR")], [[text]])


def budgets(
    policies: Sequence[Policy],
    dropped: Sequence[Policy],
    ledger: Ledger,
    caller: Caller,
    rates: Mapping[str, SpendingRate],
    now: datetime,
) -> str:
    """Renders dp_budget: a line per table and measure. Dropped policies have lines if their unit has spent something.

    A principal with a share sees the share, its own spending, and its rest, which is at most what the budget has left.
    declared: the budget as its owner wrote it. epsilon_left: for a budget that adds up rho, the largest epsilon that a
    statement may still ask for at the budget's own delta. A table has its full name if another one has the same last
    name. period: only for units by periods. Such a unit has a line for each period with spending, one for all other
    periods, and one for LIFETIME. per_day, lasts_until: the rate of the last 30 days, and the day on which it uses up
    the rest, for units without periods. A principal's rate is of their own charges. project: of the principal. What
    its members spent lowers the rest. reserved, reserved_for: what others may still spend of reservations, for the
    owner alone. a_day, left_today: the part of each budget that a principal may spend on one day in UTC, and the rest.
    """
    rows: list[list[Value]] = []
    alike = Counter(fold(policy.table.table) for policy in (*policies, *dropped))
    project = None if caller.project is None else ledger.project(caller.project)
    part, members = (Fraction(1), ()) if project is None else (project.share, project.members)
    for policy, state in [*((entry, "in force") for entry in policies), *((entry, "dropped") for entry in dropped)]:
        spent = ledger.spent(policy.unit.key)
        if state == "dropped" and not (spent.rho or spent.delta):
            continue
        name = policy.table.table if alike[fold(policy.table.table)] == 1 else str(policy.table)
        for account in _accounts(policy, ledger, caller, members):
            for measure, whole, used, own, team, kept, today in _measures(account):
                total = whole if caller.share is None else whole * caller.share
                left = max(Fraction(0), min(whole - used - kept, total - own, whole * part - team))
                left_today = None if caller.a_day is None else max(Fraction(0), min(left, whole * caller.a_day - today))
                now_left = left if left_today is None else left_today
                rho = _epsilon_left(account.budget, now_left) if measure == "rho" else None
                most = now_left if measure == "epsilon" else rho
                declared = _declaration(account.budget)
                per_day = None if policy.unit.period is not None else _per_day(rates, policy.unit.key, measure)
                until = None if per_day is None else last_day(left, per_day, now)
                rows.append([
                    name, measure, total, own, left, caller.share, declared, most, state, account.period, per_day,
                    until, warn_of(own, total), caller.project, kept if caller.owner else None,
                    _reservations(ledger, policy.unit.key) if caller.owner else None, caller.a_day, left_today,
                ])  # fmt: skip
    return rows_sql(BUDGETS, rows)


def _reservations(ledger: Ledger, unit_key: str) -> str | None:
    """Lists the reservations of a unit in words, for its owner. None if there are none."""
    said = []
    for reservation, unspent in ledger.reservations(unit_key):
        until = "" if reservation.until is None else f" until {reservation.until.date()}"
        over = "" if unspent.rho or unspent.epsilon else ", spent"
        said.append(f"{reservation.payer}: {in_per_cent(reservation.share)}{until}{over}")
    return "; ".join(said) or None


def _per_day(rates: Mapping[str, SpendingRate], unit_key: str, measure: str) -> float:
    rate = rates.get(unit_key)
    return 0.0 if rate is None else float(f"{rate.of(measure):.6g}")


@dataclass(frozen=True)
class _Account:
    """Budget with the spending of all principals, of one principal (mine), and of the principal's project (team).

    reserved: the rest of others' reservations. period: None for all time. today: the principal's
    spending today.
    """

    budget: Budget
    spent: Charge
    mine: Charge
    period: str | None = None
    team: Charge = NOTHING
    reserved: Charge = NOTHING
    today: Charge = NOTHING


def _accounts(policy: Policy, ledger: Ledger, caller: Caller, team: Payer) -> Iterator[_Account]:
    """Yields a unit's account. A unit by periods has one for each period with spending, any other, and the lifetime.

    team: the members of the caller's project, () without a project.
    """
    key, budget, who = policy.unit.key, policy.budget, None if caller.share is None else caller.name
    today = ledger.today(caller.name)
    if policy.unit.period is None:
        reserved = ledger.kept_for_others(key, caller.name)
        mine, others = ledger.spent(key, who), ledger.spent(key, team)
        yield _Account(budget, ledger.spent(key), mine, None, others, reserved, ledger.spent(key, today))
        return
    touched = ledger.spent_by_run(key)
    for run, spent in touched:
        for period in each(run) if run.count <= MOST_SHOWN else [run]:
            mine = spent if who is None else ledger.spent(key, who, period)
            others, own_day = ledger.spent(key, team, period), ledger.spent(key, today, period)
            yield _Account(budget, spent, mine, format_run(period), others, today=own_day)
    if sum(run.count for run, _ in touched) <= last_number(policy.unit.period.word):
        other = f"any other {policy.unit.period.word.lower()}"
        yield _Account(budget, NOTHING, NOTHING, other)
    if budget.lifetime is not None:
        person = ledger.spent_of_person(key)
        mine = person if who is None else ledger.spent_of_person(key, who)
        others, own_day = ledger.spent_of_person(key, team), ledger.spent_of_person(key, today)
        yield _Account(budget.lifetime, person, mine, "LIFETIME", others, today=own_day)


def _measures(account: _Account) -> list[tuple[str, Fraction, Fraction, Fraction, Fraction, Fraction, Fraction]]:
    """Lists the measures that add up: each with its budget, and the amounts of an account in the order of its fields.

    These are the spending of all, of the principal and of the project, the reservations, and the principal's day.
    """
    budget, none = account.budget, Fraction(0)
    charges = (account.spent, account.mine, account.team, account.reserved, account.today)
    if budget.pure:
        spent, mine, team, reserved, today = (charge.epsilon or none for charge in charges)
        return [("epsilon", budget.epsilon or none, spent, mine, team, reserved, today)]
    spent, mine, team, reserved, today = (charge.rho for charge in charges)
    rho = ("rho", budget.rho or none, spent, mine, team, reserved, today)
    spent, mine, team, reserved, today = (charge.delta for charge in charges)
    keys = ("delta", budget.delta_keys, spent, mine, team, reserved, today)
    return [rho, keys] if budget.delta_keys > 0 else [rho]


def _epsilon_left(budget: Budget, left: Fraction) -> Fraction | None:
    """Returns the largest epsilon, at the budget's delta, for the remaining rho. None for a budget in rho."""
    delta = budget.delta - budget.delta_keys
    if budget.epsilon is None or delta <= 0 or left <= SMALLEST_RHO:
        return None if budget.epsilon is None else Fraction(0)
    return epsilon_of(left, delta) * (1 - Fraction(1, 10**9))  # so that a statement may ask for the shown value


def _declaration(budget: Budget) -> str:
    if budget.epsilon is None:
        return f"rho = {float(budget.rho or 0):g}"
    parts = [("epsilon", budget.epsilon), ("delta", budget.delta), ("delta_keys", budget.delta_keys)]
    return ", ".join(f"{name} = {float(amount):g}" for name, amount in parts if amount)


def entries(listed: Sequence[LedgerEntry], in_force: Mapping[str, Budget], share: Fraction | None) -> str:
    """Renders dp_ledger: every charge, with its price as a part of the budget in force.

    share: the caller's part of each budget, None for all.
    """
    budgets = {key: share_of(budget, Fraction(1) if share is None else share) for key, budget in in_force.items()}
    columns = [
        ("id", "BIGINT"), ("charged_at", "TIMESTAMP"), ("principal", "VARCHAR"), ("table_name", "VARCHAR"),
        ("statement", "VARCHAR"), ("mechanism", "VARCHAR"), ("epsilon", "DOUBLE"), ("rho", "DOUBLE"),
        ("delta", "DOUBLE"), ("privacy_unit", "VARCHAR"), ("price", "VARCHAR"),
    ]  # fmt: skip
    rows: list[list[Value]] = [
        [
            entry.id, entry.at.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" "), entry.principal,
            entry.table_name, entry.statement, entry.mechanism, entry.epsilon, entry.rho, entry.delta, entry.unit_key,
            _price(entry, budgets),
        ]
        for entry in listed
    ]  # fmt: skip
    return rows_sql(columns, rows)


def _price(entry: LedgerEntry, budgets: Mapping[str, Budget | None]) -> str | None:
    """Returns the price of an entry in words, None for an entry that cost nothing."""
    charge = Charge(entry.epsilon, entry.rho, entry.delta)
    if charge == NOTHING:
        return None
    unit, periods = split_key(entry.unit_key)
    person = None if periods is None or periods.every else for_person(charge, periods.count)
    return describe_price(charge, budgets.get(unit), unit, person)


def policies(listed: Sequence[Policy], prepared: Mapping[str, str], texts: Sequence[str | None]) -> str:
    """Renders dp_policies: public facts of each table. prepared: times by table name in SQL. texts: policies' DDL."""
    columns = [
        ("table_name", "VARCHAR"), ("privacy_unit", "VARCHAR"), ("max_rows", "BIGINT"), ("domains", "VARCHAR"),
        ("clamps", "VARCHAR"), ("expect_rows", "BIGINT"), ("revision", "BIGINT"), ("epoch", "BIGINT"),
        ("min_epsilon", "DOUBLE"), ("max_epsilon", "DOUBLE"), ("prepared_at", "TIMESTAMP"),
        ("ddl", "VARCHAR"), ("guarantee", "VARCHAR"),
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
            None if policy.min_epsilon is None else float(policy.min_epsilon),
            None if policy.max_epsilon is None else float(policy.max_epsilon),
            prepared.get(policy.table.sql),
            text,
            _guarantee(policy),
        ]
        for policy, text in zip(listed, texts, strict=True)
    ]
    return rows_sql(columns, rows)


def _guarantee(policy: Policy) -> str:
    """Returns the protected unit and the budget. For units by periods, also the guarantee for a whole person."""
    period, names = policy.unit.period, policy.unit.own_columns
    column = f"({', '.join(names)})" if len(names) > 1 else next(iter(names), None)
    unit, amounts = "one row" if column is None else f"all rows of one {column}", _declaration(policy.budget)
    if period is None:
        return f"{unit}: {amounts}, over all statements"
    word = period.word.lower()
    sentence = f"{unit} of one {word} of {period.column}: {amounts}, over all statements that read that {word}"
    if column is None:
        return sentence
    more = f"k times as much for one {column} with rows in k {word}s"
    if not policy.budget.pure:
        more += f" from statements that read one {word} each, up to k^2 times from others"
    if policy.budget.delta_keys:
        more += f" (no bound for keys that are selected over several {word}s)"
    lifetime = policy.budget.lifetime
    most = (
        f"; never more than {_declaration(lifetime)} in all (LIFETIME)" if lifetime is not None else ", without an end"
    )
    return f"{sentence}; {more}{most}"


def _domain(domain: Domain) -> str:
    extra = " and NULL" if domain.with_null else ""
    if isinstance(domain, RangeDomain):
        return f"{len(domain.edges)} bins{extra}"
    return f"{len(domain.values)} values{extra}" + (" and others" if domain.other is not None else "")


def releases(listed: Sequence[tuple[StoredRelease, str]], reader: str | None) -> str:
    """Renders dp_releases. A reader other than the owner sees their own releases, and others' views with prices.

    Comments of views, which everybody reads, name the prices. A statement and its time are for its caller alone.
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


def check(findings: Sequence[CheckFinding]) -> str:
    """Renders dp_check: exact facts for the owner."""
    columns = [("finding", "VARCHAR"), ("value", "DOUBLE"), ("advice", "VARCHAR"), ("percent", "DOUBLE")]
    listed = [[finding.what, finding.value, finding.advice, finding.percent] for finding in findings]
    return rows_sql(columns, listed)


def comparison(distances: Sequence[Distance]) -> str:
    """Renders dp_compare: exact distances for the owner."""
    columns = [
        ("columns", "VARCHAR"), ("ways", "INTEGER"), ("distance", "DOUBLE"), ("worst_value", "VARCHAR"),
        ("in_data", "DOUBLE"), ("in_rows", "DOUBLE"),
    ]  # fmt: skip
    listed: list[list[Value]] = [
        [distance.columns, distance.ways, distance.distance, distance.value, distance.in_data, distance.in_rows]
        for distance in distances
    ]
    return rows_sql(columns, listed)
