"""Policies and declared public tables in the store. Every change of a policy is a new revision, and stays on record."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace

import duckdb

from dpduck.language.rows.facts import Policy
from dpduck.language.text.names import TableName
from dpduck.store.attached import Shadows
from dpduck.store.cursors import OpenCursor, SandboxAnswers, transaction
from dpduck.store.terms import PolicyTerms, earlier_terms
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Budget
from dpduck.values.quoting import fold, quote_identifier
from dpduck.values.records import as_array, as_object, read_record

_MOST_READ = 64
"""Most cached policies, by definition. All readers share a cached policy, with its many labels."""

_PART = re.compile(r'"((?:[^"]|"")*)"')  # of a name in SQL


@dataclass(frozen=True)
class InForce:
    """Policies by their tables' names in SQL, declared public tables, and all table names in order of their first use.

    Policies have their budgets as written. The budgets in force may differ, and are in the ledger.
    """

    policies: Mapping[str, Policy]
    public: tuple[str, ...]
    spelled: tuple[str, ...]


class PolicyStore:
    """Reader and writer of the policy tables of an attached store.

    budgets: returns the budgets in force, by privacy unit. They differ from a policy's own if another table's policy
    has changed them since. home: database and schema where tables are looked up, None for the cursor's own.
    """

    def __init__(
        self,
        open_cursor: OpenCursor,
        store: str,
        budgets: Callable[[], Mapping[str, Budget]],
        home: tuple[str, str] | None = None,
    ) -> None:
        self.home = home
        self.shadows = Shadows(store)
        self._open_cursor = open_cursor
        self.budgets = budgets
        self._schema = f"{quote_identifier(store)}.dpduck"
        self._read = SandboxAnswers(_MOST_READ)
        self._lock = threading.RLock()
        self._held: InForce | None = None
        self._earlier: tuple[PolicyTerms, ...] | None = None
        self._proposed: tuple[Policy, ...] = ()
        self._changes = 0

    def policy(self, table: TableName) -> Policy | None:
        policy = self.now().policies.get(table.sql)
        return None if policy is None else with_budget(policy, self.budgets())

    def require_policy(self, table: TableName) -> Policy:
        policy = self.policy(table)
        if policy is None:
            raise Refusal(f"{table} has no privacy policy", accepted="CREATE PRIVACY POLICY ON it first")
        return policy

    def policies(self) -> list[Policy]:
        budgets = self.budgets()
        return [with_budget(policy, budgets) for policy in self.now().policies.values()]

    def now(self) -> InForce:
        """Returns the store's content, from a cache until the next change. Nobody else writes an attached store."""
        with self._lock:
            if self._held is not None:
                return self._held
            with self._open_cursor() as cursor:
                active = cursor.execute(
                    f"SELECT definition FROM {self._schema}.policies WHERE active ORDER BY table_name"
                ).fetchall()
                public = cursor.execute(f"SELECT table_name FROM {self._schema}.public_tables ORDER BY ALL").fetchall()
                spelled = cursor.execute(
                    f"SELECT table_name FROM (SELECT table_name, changed_at AS known_at FROM {self._schema}.policies "
                    f"UNION ALL SELECT table_name, declared_at FROM {self._schema}.public_tables) "
                    "GROUP BY table_name ORDER BY min(known_at), table_name"
                ).fetchall()
            defined = [self._policy_of(row[0]) for row in active]
            content = InForce(
                {policy.table.sql: policy for policy in defined},
                tuple(dict.fromkeys(row[0] for row in public)),
                tuple(row[0] for row in spelled),
            )
            self._held = content if len(defined) <= _MOST_READ else None
            return content

    def earlier(self) -> tuple[PolicyTerms, ...]:
        """Returns earlier terms under which answers are the same as now, the latest first. Reads them only once."""
        if (cached := self._earlier) is not None:
            return cached
        changes, budgets = self._changes, self.budgets()  # not under this lock, since the ledger has its own
        with self._lock:
            with self._open_cursor() as cursor:
                rows = cursor.execute(f"SELECT definition FROM {self._schema}.policies ORDER BY rowid").fetchall()
            terms: tuple[PolicyTerms, ...] = ()
            if len(rows) + len(self._proposed) > 1:
                in_force = {name: with_budget(policy, budgets) for name, policy in self.now().policies.items()}
                terms = earlier_terms((*(policy_from_text(row[0]) for row in rows), *self._proposed), in_force)
            self._earlier = terms if changes == self._changes else None
            return terms

    def after(self, changed: Sequence[Policy]) -> PolicyStore:
        """Returns the policies as they would be after a change. Callers may read this store, and may not save in it."""
        proposed = []
        for policy in changed:
            revision, epoch = self.last_revision(policy.table)
            proposed.append(replace(policy, revision=revision + 1, epoch=max(epoch, policy.epoch)))
        present, other = self.now(), copy(self)
        budgets = {**self.budgets(), **{policy.unit.key: policy.budget for policy in proposed}}
        policies = {**present.policies, **{policy.table.sql: policy for policy in proposed}}
        other.budgets, other._proposed, other._earlier = lambda: budgets, tuple(proposed), None
        other._held = replace(present, policies=policies)
        return other

    @contextmanager
    def _writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yields a cursor for changes of the policy tables. Nobody reads them meanwhile."""
        with self._lock, transaction(self._open_cursor) as cursor:
            try:
                yield cursor
            finally:
                self._held = self._earlier = None
                self._changes += 1

    def list_dropped(self) -> list[Policy]:
        """Returns the last policy of every table without a policy in force, sorted by the names of the tables."""
        query = (
            f"SELECT arg_max(definition, revision) FROM {self._schema}.policies GROUP BY table_name "
            "HAVING NOT bool_or(active) ORDER BY table_name"
        )
        with self._open_cursor() as cursor:
            rows = cursor.execute(query).fetchall()
        budgets = self.budgets()
        return [with_budget(self._policy_of(row[0]), budgets) for row in rows]

    def _policy_of(self, text: str) -> Policy:
        """Returns the policy of a definition. Equal definitions share one object, so that labels are in memory once."""
        policy: Policy | None = self._read.get(text)
        if policy is None:
            policy = policy_from_text(text)
            self._read.save(text, policy)
        return policy

    def known_as(self, table: TableName) -> TableName:
        """Returns the table as policies and declarations spell its name. Budgets and releases use that spelling.

        DuckDB ignores the case of names, and ALTER TABLE .. RENAME TO may change it.
        """
        spellings = [name for name in self.now().spelled if fold(name) == fold(table.sql)]
        if not spellings or table.sql in spellings:
            return table
        return table_from_sql(spellings[0])

    def unit_key(self, key: str) -> str:
        """Returns the key of a privacy unit as the first policy with that unit spelled it."""
        with self._open_cursor() as cursor:
            rows = cursor.execute(f"SELECT definition FROM {self._schema}.policies ORDER BY changed_at").fetchall()
        keys = [self._policy_of(row[0]).unit.key for row in rows]
        return key if key in keys else next((spelling for spelling in keys if fold(spelling) == fold(key)), key)

    def last_policy(self, table: TableName) -> Policy | None:
        """Returns a table's policy in force, or its last one if that was dropped."""
        text = self._definition(table, 0)
        return None if text is None else self._policy_of(text)

    def before_last(self, table: TableName) -> Policy | None:
        text = self._definition(table, 1)
        return None if text is None else policy_from_text(text)

    def _definition(self, table: TableName, later: int) -> str | None:
        """Returns the definition of a table's policy after which there are exactly `later` revisions."""
        of_table = f"FROM {self._schema}.policies WHERE table_name = ? ORDER BY revision DESC LIMIT 1 OFFSET {later}"
        with self._open_cursor() as cursor:
            row = cursor.execute(f"SELECT definition {of_table}", [table.sql]).fetchone()
        return None if row is None else str(row[0])

    def last_revision(self, table: TableName) -> tuple[int, int]:
        """Returns a table's last revision and epoch, (0, 0) if new. Revisions increase, epochs never decrease."""
        policy = self.last_policy(table)
        return (0, 0) if policy is None else (policy.revision, policy.epoch)

    def save(self, policy: Policy) -> Policy:
        """Puts a policy in force as the next revision of its table."""
        revision, epoch = self.last_revision(policy.table)
        stored = replace(policy, revision=revision + 1, epoch=max(epoch, policy.epoch))
        with self._writing() as cursor:
            cursor.execute(
                f"UPDATE {self._schema}.policies SET active = false WHERE table_name = ?", [policy.table.sql]
            )
            cursor.execute(
                f"INSERT INTO {self._schema}.policies VALUES (?, ?, true, ?, now() AT TIME ZONE 'UTC')",
                [policy.table.sql, stored.revision, policy_to_text(stored)],
            )
        return stored

    def drop(self, table: TableName) -> None:
        """Takes a policy out of force. Its revisions, and the spending of its unit, stay on record."""
        with self._writing() as cursor:
            cursor.execute(f"UPDATE {self._schema}.policies SET active = false WHERE table_name = ?", [table.sql])

    def is_public(self, table: TableName) -> bool:
        return table.sql in self.now().public

    def public_tables(self) -> list[TableName]:
        return [table_from_sql(text) for text in self.now().public]

    def all_tables(self) -> list[TableName]:
        return [*(policy.table for policy in self.now().policies.values()), *self.public_tables()]

    def declare_public(self, table: TableName) -> None:
        if not self.is_public(table):
            with self._writing() as cursor:
                cursor.execute(
                    f"INSERT INTO {self._schema}.public_tables VALUES (?, now() AT TIME ZONE 'UTC')", [table.sql]
                )

    def withdraw_public(self, table: TableName) -> None:
        """Withdraws a declaration. Domains that were taken from the table stay as they were."""
        with self._writing() as cursor:
            cursor.execute(f"DELETE FROM {self._schema}.public_tables WHERE table_name = ?", [table.sql])


def with_budget(policy: Policy, budgets: Mapping[str, Budget]) -> Policy:
    """Returns a policy with its unit's budget in force in place of its own."""
    return replace(policy, budget=budgets.get(policy.unit.key, policy.budget))


def table_from_sql(text: str) -> TableName:
    """Returns the table with a name that TableName.sql wrote."""
    return TableName(tuple(part.replace('""', '"') for part in _PART.findall(text)))


def policy_to_text(policy: Policy) -> str:
    """Returns a policy as JSON, with amounts as exact rationals.

    The fifth element of the unit is its period, and the sixth its several columns. Versions that do not know these
    elements fail on them and charge nothing.
    """
    unit, lifetime = policy.unit, policy.budget.lifetime
    own = [*(unit.key, unit.column, unit.max_rows), *([] if unit.period is None else [None, unit.period])]
    fields = {
        **as_object(policy),
        "table": policy.table.parts,
        "unit": [*own, *([None, None, unit.columns] if unit.columns else [])],
        "reference": unit.reference,
        "budget": as_array(policy.budget)[:4],
        "domains": [[column, as_object(domain)] for column, domain in policy.domains],
        **({} if lifetime is None else {"lifetime": as_array(lifetime)[:4]}),
    }
    return json.dumps(fields, sort_keys=True, default=as_array)


def policy_from_text(text: str) -> Policy:
    """Returns the policy that policy_to_text wrote."""
    fields = json.loads(text)
    (key, column, most, *rest), reference = fields["unit"], fields.pop("reference", None)
    period, columns = ([*rest, None, None, None])[1:3]
    fields |= {"table": [fields["table"]], "unit": [key, column, most, reference, period, columns or ()]}
    fields["budget"] = [*fields["budget"], fields.pop("lifetime", None)]
    return read_record(Policy, fields)
