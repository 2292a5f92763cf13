"""Carries out owner statements: creates, alters and drops policies, declares public tables, records budgets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpduck.engines.tables import EngineTables
from dpduck.kernel.ledger.budgets import require_change
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.ledger.shares import Reservation
from dpduck.language.rows.facts import CatalogColumn, Policy
from dpduck.language.rows.relation import comparable, require_key, require_no_engine, require_plain_unit
from dpduck.language.statements.kinds import (
    AlterPolicy,
    CreatePolicy,
    DeclarePublicTable,
    DropPolicy,
    OwnerStatement,
    PolicyClauses,
    PreparePolicy,
    ReserveBudget,
    UnitClause,
)
from dpduck.language.text.names import TableName, require_plain_names
from dpduck.language.text.words import meant_or
from dpduck.owner.domains import build_clamp, build_domain, column_of, notes, spread
from dpduck.owner.periods import (
    budget_of,
    period_of,
    preparation_refusal,
    require_no_null,
    require_other_name,
    require_same_word,
    unit_by_periods,
    unit_together,
)
from dpduck.store.catalog import COMPUTES, Catalog
from dpduck.store.policies import PolicyStore
from dpduck.store.prepared import PreparedTables
from dpduck.store.terms import same_answers
from dpduck.values.errors import Refusal
from dpduck.values.per_cent import in_per_cent
from dpduck.values.periods import Period
from dpduck.values.privacy import PrivacyUnit, Reference
from dpduck.values.quoting import fold, quote_text

FILES = ("parquet", "csv", "json", "tsv", "xlsx")
ANEW = "; repeating an earlier question will cost again"
KEPT = "; repeating an earlier question stays free"


@dataclass(frozen=True)
class OwnerDesk:
    """Executor of one owner statement, with the catalog, the stores and the engines that it needs."""

    catalog: Catalog
    policies: PolicyStore
    ledger: Ledger
    principal: str
    statement_text: str
    prepared: PreparedTables
    engines: EngineTables

    def apply(self, statement: OwnerStatement) -> str:
        try:
            return self._apply(statement)
        except Refusal as error:
            raise error.at(statement.position) from None

    def _apply(self, statement: OwnerStatement) -> str:
        if isinstance(statement, DeclarePublicTable):
            return self._declare_public(statement)
        if isinstance(statement, CreatePolicy):
            return self._create(statement)
        if isinstance(statement, AlterPolicy):
            table = self._table(statement.table)
            before = self.policies.policy(table)
            done, prepared = self._alter(statement)
            after = self.policies.policy(table)
            if before is not None and after is not None and before.revision == after.revision:
                before = self.policies.before_last(table) or before  # DuckDB carries a statement out twice
            same = before is not None and after is not None and same_answers(before, after)
            return done + (KEPT if same else ANEW) + prepared
        if isinstance(statement, ReserveBudget):
            return self._reserve(statement)
        if isinstance(statement, PreparePolicy):
            if statement.undo:
                named = [self.prepared.find(table) or self._table(table) for table in statement.tables]
                return "; ".join(map(self._unprepare, named))
            tables = dict.fromkeys(map(self._table, statement.tables))
            policies = list(map(self.policies.require_policy, tables))
            for table, period in ((policy.table, policy.unit.period) for policy in policies):
                if period is not None:
                    raise preparation_refusal(table, period.word)
            if any(self.engines.has(policy.table) for policy in policies):
                self.engines.engine_name([policy.table for policy in policies])
                return self.engines.prepared.prepare(policies, self.ledger.bounding_key)
            return self.prepared.prepare([policy.table for policy in policies])
        return self._drop(statement)

    def _declare_public(self, statement: DeclarePublicTable) -> str:
        table = self._table(statement.table)
        if statement.withdraw:
            self.policies.withdraw_public(table)
            return f"{table} is no longer public"
        if self.policies.last_revision(table)[0] > 0:
            raise Refusal(f"{table} has or had a privacy policy", accepted="a table that never held protected rows")
        self.engines.require_here(table, "declared public", "a copy of it in DuckDB")
        self.policies.declare_public(table)
        return f"{table} is public"

    def _create(self, statement: CreatePolicy) -> str:
        table = self._table(statement.table)
        require_plain_names(*table.parts)
        existing = self.policies.policy(table)
        if existing is None:
            self._unprepare(table)
        if existing is not None and not statement.replace:
            raise Refusal(f"{table} has a privacy policy", accepted="CREATE OR REPLACE, or ALTER PRIVACY POLICY")
        if self.policies.is_public(table):
            raise Refusal(f"{table} is declared public", accepted="UNDECLARE PUBLIC TABLE first")
        if self.catalog.computes(table):
            raise Refusal(
                f"{table} is a table {COMPUTES}: private rows could make it raise, or take hours",
                accepted="a table of stored columns, without such a COLLATE",
            )
        if statement.clauses.unit is None:
            raise Refusal("PRIVACY UNIT is missing", accepted="PRIVACY UNIT column MAX ROWS m, or PRIVACY UNIT ROW")
        columns = self.catalog.columns(table)
        unit = self._unit(table, statement.clauses.unit, columns)
        epoch = self.policies.last_revision(table)[1]
        budget = budget_of(statement.clauses, unit, self.ledger.budget(unit.key))
        bare = Policy(table, unit, budget, (), (), None, None, 0, epoch)
        done, prepared = self._put_in_force(self._apply_clauses(bare, statement.clauses, columns))
        done += notes(statement.clauses, columns, table)
        short = TableName((table.table,))
        name = short if self.catalog.resolve(short) == table else table
        return f"{done}; dp_check({quote_text(str(name))}) tells what its answers leave out{prepared}"

    def propose(self, statement: AlterPolicy) -> tuple[Policy, ...]:
        """Returns the policies that a statement would put in force. Refuses whatever the statement would refuse."""
        try:
            policies = self._without_present(self._policies_after(statement))
            for policy in policies:
                self._check_change(policy)
                budget, key = policy.budget, policy.unit.key
                require_change(key, budget, self.ledger.spent(key))
                if budget.lifetime is not None:
                    require_change(f"LIFETIME of {key}", budget.lifetime, self.ledger.spent_of_person(key))
        except Refusal as error:
            raise error.at(statement.position) from None
        return policies

    def _alter(self, statement: AlterPolicy) -> tuple[str, str]:
        done, prepared = self._put_in_force(*self._policies_after(statement))
        table = self._table(statement.table)
        return done + notes(statement.changes, self.catalog.columns(table), table), prepared

    def _policies_after(self, statement: AlterPolicy) -> tuple[Policy, ...]:
        table = self._table(statement.table)
        policy = self.policies.require_policy(table)
        if statement.new_epoch:
            tables = dict.fromkeys([table, *map(self._table, statement.others)])
            policies = map(self.policies.require_policy, tables)
            return tuple(replace(current, epoch=current.epoch + 1) for current in policies)
        columns = self.catalog.columns(table)
        if statement.drop_domain is not None:
            if policy.domain(statement.drop_domain) is None:
                raise Refusal(f"{statement.drop_domain!r} has no domain", accepted="a column that has one")
            domains = tuple(pair for pair in policy.domains if fold(pair[0]) != fold(statement.drop_domain))
            return (replace(policy, domains=domains),)
        if statement.drop_clamp is not None:
            if not any(fold(clamp.column) == fold(statement.drop_clamp) for clamp in policy.clamps):
                raise Refusal(f"{statement.drop_clamp!r} has no clamp", accepted="a column that has one")
            clamps = tuple(clamp for clamp in policy.clamps if fold(clamp.column) != fold(statement.drop_clamp))
            return (replace(policy, clamps=clamps),)
        if statement.changes.unit is not None:
            unit = self._unit(table, statement.changes.unit, columns)
            require_same_word(policy, unit)
            policy = replace(policy, unit=unit)
        if statement.changes.budget is not None or statement.changes.lifetime is not None:
            budget = self.ledger.budget(policy.unit.key)
            policy = replace(policy, budget=budget_of(statement.changes, policy.unit, budget))
        return (self._apply_clauses(policy, statement.changes, columns),)

    def _reserve(self, statement: ReserveBudget) -> str:
        """Makes or releases a reservation. Projects and principals are not checked: they may be added later."""
        policy = self.policies.require_policy(self._table(statement.table))
        unit, table, payer = policy.unit.key, str(policy.table), statement.payer
        if statement.share is None:
            self.ledger.release_reservation(unit, table, payer, self.principal)
            return f"the reservation for {payer} is released; what it did not spend is everybody's again"
        reservation = Reservation(payer, statement.share, statement.until)
        self.ledger.reserve(unit, table, reservation, self.principal)
        until = "it is released" if statement.until is None else f"the end of {statement.until.date()}, in UTC"
        part = in_per_cent(statement.share, up=False)
        return f"{part} of the budget of {unit} is reserved for {payer} until {until}: nobody else can spend it"

    def _drop(self, statement: DropPolicy) -> str:
        table = self.catalog.resolve(statement.table)
        if table is None or self.policies.policy(table) is None:
            if statement.if_exists:
                return "there was no policy"
            accepted = meant_or(statement.table.table, self.catalog.known_names(), "a table that has one, or IF EXISTS")
            raise Refusal(f"{statement.table} has no privacy policy", accepted=accepted)
        self._unprepare(table)
        self.policies.drop(table)
        return f"the policy of {table} is dropped; what was spent stays spent"

    def _unprepare(self, table: TableName) -> str:
        self.engines.prepared.unprepare(table)
        return self.prepared.unprepare(table)

    def _table(self, written: TableName) -> TableName:
        return resolve_owner_table(self.catalog, written)

    def _unit(self, table: TableName, clause: UnitClause, columns: tuple[CatalogColumn, ...]) -> PrivacyUnit:
        try:
            return self._unit_of(table, clause, columns)
        except Refusal as error:
            raise error.at(clause.position) from None

    def _unit_of(self, table: TableName, clause: UnitClause, columns: tuple[CatalogColumn, ...]) -> PrivacyUnit:
        period = self._period(table, clause, columns)
        if clause.columns:
            names = [column_of(name, columns, clause).name for name in clause.columns]
            self.engines.require_here(table, "protected by several columns", "a unit of one column")
            return unit_together(table, names, clause.max_rows, self.catalog, self.policies.unit_key)
        if clause.column is None:
            self.engines.require_policy(table, None)
            return PrivacyUnit(self._key(f"{table}.ROW", period), None, 1, period=period)
        column = column_of(clause.column, columns, clause)
        require_plain_names(column.name)
        require_other_name(column, period)
        require_plain_unit(table, column.name, self.catalog)
        self.engines.require_policy(table, column.type_name)
        if clause.references is None:
            return PrivacyUnit(self._key(f"{table}.{column.name}", period), column.name, clause.max_rows, period=period)
        written, referenced = clause.references
        target = self._table(written)
        key_column = column_of(referenced, self.catalog.columns(target), clause)
        require_plain_names(*target.parts, key_column.name)
        require_other_name(key_column, None)
        parent = self.policies.policy(target)
        if parent is None or target == table:
            key = self._key(f"{target}.{key_column.name}", period)
            return PrivacyUnit(key, column.name, clause.max_rows, period=period)
        if period is not None or parent.unit.period is not None:
            return unit_by_periods(parent, column, key_column, clause.max_rows, period)
        return self._unit_through(parent, column, key_column, clause.max_rows)

    def _key(self, unit: str, period: Period | None) -> str:
        return self.policies.unit_key(unit if period is None else f"{unit} PER {period.word}")

    def _period(self, table: TableName, clause: UnitClause, columns: tuple[CatalogColumn, ...]) -> Period | None:
        if clause.period is None:
            return None
        word, name = clause.period
        self.engines.require_here(table, f"protected PER {word}", "a copy of it in DuckDB")
        if table.sql in self.prepared.at():
            raise preparation_refusal(table, word)
        return period_of(word, column_of(name, columns, clause))

    def _unit_through(
        self, parent: Policy, column: CatalogColumn, key_column: CatalogColumn, max_rows: int
    ) -> PrivacyUnit:
        """Returns the unit of a table that refers to a table with a policy: to its unit's column, or a unique key."""
        if parent.unit.column is not None and fold(parent.unit.column) == fold(key_column.name):
            return PrivacyUnit(parent.unit.key, column.name, max_rows)
        if parent.unit.column is None:
            raise Refusal(
                f"the policy of {parent.table} protects single rows", accepted="PRIVACY UNIT column in that policy"
            )
        require_key(parent.table, key_column.name, self.catalog)
        if not comparable(column.type_name, key_column.type_name):
            raise Refusal(
                f"{column.name} is {column.type_name}, {parent.table}.{key_column.name} is {key_column.type_name}",
                accepted="a reference of the same type",
            )
        return PrivacyUnit(parent.unit.key, "", max_rows, Reference(column.name, parent.table.parts, key_column.name))

    def _apply_clauses(self, policy: Policy, clauses: PolicyClauses, columns: tuple[CatalogColumn, ...]) -> Policy:
        domains = {fold(column): (column, domain) for column, domain in policy.domains}
        for clause in spread(clauses.domains, columns):
            column = column_of(clause.column, columns, clause)
            domains[fold(column.name)] = (column.name, build_domain(clause, column.type_name, self.catalog))
        clamps = {fold(clamp.column): clamp for clamp in policy.clamps}
        for clamp in clauses.clamps:
            column = column_of(clamp.column, columns, clamp)
            clamps[fold(column.name)] = build_clamp(replace(clamp, column=column.name), column.type_name)
        largest = clauses.max_epsilon or policy.max_epsilon
        smallest = clauses.min_epsilon or policy.min_epsilon
        if largest is not None and smallest is not None and smallest > largest:
            raise Refusal("MIN EPSILON is above MAX EPSILON", accepted="a MIN EPSILON that is not above MAX EPSILON")
        return replace(
            policy,
            domains=tuple(domains.values()),
            clamps=tuple(clamps.values()),
            expect_rows=clauses.expect_rows or policy.expect_rows,
            max_epsilon=largest,
            min_epsilon=smallest,
        )

    def _put_in_force(self, *policies: Policy) -> tuple[str, str]:
        """Puts policies in force. A policy without a change gets no new revision, so that stored answers stay free.

        Returns the outcome, and the outcome for prepared tables, which may be empty.
        """
        current = self.policies.policy(policies[0].table)
        policies = self._without_present(policies)
        for policy in policies:
            self._check_change(policy)
        stored = [current] if current is not None and not policies else []
        packed = self.engines.prepared.changing(policies, self.ledger.bounding_key)
        with self.prepared.changing(policies) as prepared, packed as there:
            for policy in policies:
                self.ledger.declare_budget(
                    policy.unit.key, str(policy.table), policy.budget, self.principal, self.statement_text
                )
                stored.append(self.policies.save(policy))
        done = [f"the policy of {new.table} is in force (revision {new.revision}, epoch {new.epoch})" for new in stored]
        return "; ".join(done), "".join([*prepared, *there])

    def _without_present(self, policies: tuple[Policy, ...]) -> tuple[Policy, ...]:
        """Returns policies to be put in force. They are none if there is only one, and it is in force already."""
        current = self.policies.policy(policies[0].table)
        same = current is not None and [current] == [replace(new, revision=current.revision) for new in policies]
        return () if same else policies

    def _check_change(self, policy: Policy) -> None:
        self._check_unit_change(policy)
        require_no_null(policy)
        self._check_references(policy)

    def _check_unit_change(self, policy: Policy) -> None:
        previous = self.policies.last_policy(policy.table)
        if previous is None or (previous.unit.key, previous.unit.period) == (policy.unit.key, policy.unit.period):
            return
        spent = self.ledger.spent(previous.unit.key)
        if spent.rho > 0 or spent.delta > 0:
            raise Refusal(
                f"the privacy unit of {policy.table} cannot change once something is spent",
                accepted="the unit that it had",
            )

    def _check_references(self, policy: Policy) -> None:
        """Refuses a new unit of a table if other tables refer to the old unit, since there would be two budgets."""
        for other in self.policies.policies():
            table, _, _ = other.unit.key.rpartition(".")  # a unit's column has no dot, and PER has none
            refers = fold(table) == fold(str(policy.table)) and other.table != policy.table
            reference = other.unit.reference
            leads_here = reference is not None and reference.parent == policy.table.parts
            if (refers or leads_here) and other.unit.key != policy.unit.key:
                raise Refusal(
                    f"the policy of {other.table} refers to {policy.table} for another privacy unit",
                    accepted=f"that unit; or DROP PRIVACY POLICY ON {other.table}, and declare it after this one",
                )


def resolve_owner_table(catalog: Catalog, written: TableName) -> TableName:
    """Returns the table that an owner names. Refuses a view or a file."""
    table = catalog.resolve(written)
    if table is None:
        require_no_engine(written, catalog)
        accepted = meant_or(written.table, catalog.table_names(), "an existing table")
        if fold(written.table) in FILES:
            accepted = f"CREATE TABLE {written.parts[-2]} AS FROM '{written}', and that name"
        raise Refusal(f"there is no table {str(written)!r}", accepted=accepted)
    if catalog.is_view(table):
        raise Refusal(
            f"{str(written)!r} is a view", accepted="the table that it reads; of a file, CREATE TABLE t AS FROM 'file'"
        )
    catalog.require_stored(table)
    return table
