"""Describes tables: for everybody from public facts, and for the owner also from the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from dpduck.engines.tables import EngineTables
from dpduck.language.rows.facts import Policy
from dpduck.language.rows.relation import RowReading, relation_of, require_no_engine
from dpduck.language.rows.sql import compile_rows
from dpduck.language.rows.tree import of_relation
from dpduck.language.statements.parse import parse_statement
from dpduck.language.statements.synthetic import CreateSynthetic
from dpduck.language.text.dialect import TokenReader, tokenize_statement
from dpduck.language.text.names import TableName
from dpduck.language.text.words import meant_or
from dpduck.mechanisms.certificate import certificate_sql
from dpduck.mechanisms.synthetic.data import data_sql
from dpduck.mechanisms.synthetic.request import analyse_synthetic
from dpduck.owner.draft import draft_lines, open_columns
from dpduck.owner.policies import resolve_owner_table
from dpduck.owner.policy_text import MOST_ROWS, domain_text, twin_sql
from dpduck.owner.private_draft import AskPrivately, questions, read_price
from dpduck.owner.suggestions import Answered, suggest
from dpduck.store.attaching import STORE_NAME
from dpduck.store.catalog import Catalog
from dpduck.store.check import check_columns, check_table, code_rows, distances
from dpduck.store.cursors import Caller, OpenCursor, require_owner
from dpduck.store.policies import PolicyStore
from dpduck.store.prepared import PreparedTables
from dpduck.store.releases import ReleaseStore
from dpduck.store.tables import Value, check, comparison, rows_sql
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

MOST_LABELS = 20

COLUMNS = (
    ("table_name", "VARCHAR"), ("column_name", "VARCHAR"), ("data_type", "VARCHAR"), ("privacy_unit", "VARCHAR"),
    ("domain", "VARCHAR"), ("cells", "BIGINT"), ("clamp", "VARCHAR"), ("kind", "VARCHAR"),
)  # fmt: skip
PRIVATE_VIEW, PRIVATE_TABLE, PUBLIC_TABLE = "private view", "private table", "public table"
"""Kinds of tables in dp_columns: to read, to ask about, and to join with these."""


MOST_PARTS, _QUOTES = 3, frozenset("'\"")
"""Most parts of a name (database.schema.table), and characters that need quotes around a name."""


def read_table_name(text: str) -> TableName:
    """Returns the table name in a text: written as in SQL, or without quotes even if it has blanks.

    >>> read_table_name('"a b".c').parts, read_table_name("a b.c").parts
    (('a b', 'c'), ('a b', 'c'))
    """
    reader = TokenReader(text, tokenize_statement(text))
    try:
        name = reader.table_name()
        reader.expect_end()
    except Refusal:
        parts = tuple(text.strip().split("."))
        if len(parts) > MOST_PARTS or _QUOTES & set(text) or not all(map(str.strip, parts)):
            raise
        return TableName(parts)
    return name


@dataclass(frozen=True)
class AboutTables:
    """Answers to dp_check, dp_compare, dp_draft, dp_columns, dp_twin and dp_certificate."""

    open_cursor: OpenCursor
    policies: PolicyStore
    releases: ReleaseStore
    prepared: PreparedTables
    engines: EngineTables

    def check(self, text: str, caller: Caller) -> str:
        """Returns SQL with exact facts about a table, for its owner alone. A table of an engine must have a policy."""
        require_owner(caller)
        written = read_table_name(text)
        with self.open_cursor() as cursor:
            catalog = Catalog(cursor, self.policies)
            table = catalog.resolve(written)
            if table is None or catalog.is_view(table):
                require_no_engine(written, catalog)
                accepted = meant_or(written.table, catalog.known_names(), "a table that has one")
                raise Refusal(f"{str(written)!r} has no privacy policy", accepted=accepted)
            policy = catalog.policy(table)
            reads = self.engines.columns(cursor, table, catalog.columns(table))
            if policy is None:
                if self.engines.has(table):
                    raise Refusal(
                        f"{table} lies in an engine, and has no privacy policy",
                        accepted="a CREATE PRIVACY POLICY first",
                    )
                return check(check_columns(reads, table, catalog.columns(table)))
            relation = relation_of(table, policy, RowReading(catalog, {}))
            there = self.engines.has(table)
            rows, unit = (self.engines.prepared if there else self.prepared).rows(table), relation.unit
            period = relation.number
            unit_sql = None if unit is None else unit.sql if period is None else f"({unit.sql})"
            from_sql = compile_rows(of_relation(relation)).from_sql
            return check(check_table(reads, policy, from_sql, unit_sql, rows, period, averages=not there))

    def compare(self, text: str, caller: Caller) -> str:
        """Returns SQL with the exact distances between a synthetic table and the data, for the owner alone.

        The WHERE of a synthetic table runs in this process. So a table with another principal's WHERE is refused.
        """
        require_owner(caller)
        name = read_table_name(text).table
        view = self.releases.view(name)
        statement = None if view is None else parse_statement(view.statement)
        if view is None or not isinstance(statement, CreateSynthetic):
            raise Refusal(f"{name!r} is no synthetic table", accepted="the name of a CREATE PRIVATE TABLE .. AS SELECT")
        with self.open_cursor() as cursor:
            catalog = Catalog(cursor, self.policies)
            request = analyse_synthetic(statement, catalog)
            has_where, sql = bool(statement.query.args.get("where")), data_sql(statement, request)
            owned = view.principal == caller.name or not has_where
            if sql is None or not owned or self.engines.has(request.base.rows.table):
                raise Refusal(
                    f"{name!r} is of several tables, of an engine's, or has a WHERE of somebody else's",
                    accepted="a CREATE PRIVATE TABLE of the owner's FROM one stored table",
                )
            data = code_rows(cursor, request.base.question, sql)
            rows = code_rows(cursor, request.base.question, f"FROM {self.releases.table_sql(name)}")
        return comparison(distances(request.base.question, data, rows))

    def draft(self, argument: str, caller: Caller, ask: AskPrivately) -> str:
        """Returns SQL with a policy's draft, line by line: from the schema alone, or with noisy facts for a price.

        argument: JSON of the table's name and the price, which may be NULL. ask: answers all of several statements, or
        none.
        """
        require_owner(caller)
        name, price = json.loads(argument)
        if not isinstance(name, str):
            raise Refusal("no table is named", accepted="dp_draft('a_table')")
        public, home = self.policies.public_tables(), self.policies.home
        with self.open_cursor() as cursor:
            catalog = Catalog(cursor, self.policies)
            table = resolve_owner_table(catalog, read_table_name(name))
            given = None
            if price is not None:
                epsilon, policy = read_price(price), catalog.policy(table)
                if policy is None:
                    raise Refusal(
                        f"{table} has no privacy policy yet, and so no budget that a private draft could be charged to",
                        accepted=f"CREATE PRIVACY POLICY ON {table.table} (PRIVACY UNIT .. MAX ROWS 1, BUDGET (..))",
                    )
                if policy.unit.period is not None or policy.unit.columns:
                    kind = "by periods" if policy.unit.period is not None else "held by several columns"
                    raise Refusal(
                        f"a private draft looks at whole units, and this policy's are {kind}",
                        accepted=f"dp_draft('{table.table}'), from the schema alone, which is free",
                    )
                columns = open_columns(cursor, table, catalog, public, home)
                left = [(column, null) for column, null in columns if not _unit(policy, column.name)]
                asked = questions(policy, [column for column, _ in left], epsilon, home)
                answers = [Answered(one, *got) for one, got in zip(asked, ask([one.sql for one in asked]), strict=True)]
                given = suggest(policy, answers, left, f"epsilon = {float(epsilon):g}", home)
            lines = draft_lines(cursor, table, catalog, public, home, given)
        return rows_sql([("draft", "VARCHAR")], [[line] for line in lines])

    def twin(self, argument: str, caller: Caller) -> str:
        """Returns SQL with made-up rows that fit a table's policy. argument: JSON of its name and a row count."""
        name, rows = json.loads(argument)
        if not isinstance(name, str) or not isinstance(rows, int) or not 1 <= rows <= MOST_ROWS:
            raise Refusal("these are no arguments of dp_twin", accepted=f"dp_twin('a_table', 1 to {MOST_ROWS} rows)")
        written = read_table_name(name)
        with self.open_cursor() as cursor:
            catalog = Catalog(cursor, self.policies, None, caller)
            table = catalog.resolve(written)
            policy = None if table is None else catalog.policy(table)
            if table is None or policy is None:
                accepted = meant_or(written.table, catalog.known_names(), "a table that has one")
                raise Refusal(f"{str(written)!r} has no privacy policy to make a twin of", accepted=accepted)
            return twin_sql(policy, catalog.columns(table), catalog.unique_keys(table), rows)

    def certificate(self, name: str, caller: Caller) -> str:
        """Returns SQL with a release's certificate. The caller sees no more than in dp_releases."""
        releases, reader = [release for release, _ in self.releases.all()], None if caller.owner else caller.name
        with self.open_cursor() as cursor:
            return certificate_sql(cursor, STORE_NAME, releases, name, reader)

    def columns(self, text: str | None, caller: Caller) -> str:
        """Returns SQL with the columns of a table or private view, or, for None, of all that the caller may see."""
        with self.open_cursor() as cursor:
            catalog = Catalog(cursor, self.policies, None, caller)
            views = {fold(release.name): release.name for release, _ in self.releases.all() if release.kind == "view"}
            if text is None:
                rows = [row for table in self._askable(catalog, caller) for row in _columns(table, catalog)]
                rows += [row for name in views.values() for row in _of_view(name, catalog)]
            else:
                rows = self._of_one(read_table_name(text), views, catalog)
        return rows_sql(COLUMNS, rows)

    def _of_one(self, written: TableName, views: dict[str, str], catalog: Catalog) -> list[list[Value]]:
        *place, name = map(fold, written.parts)
        in_store = place in ([STORE_NAME], [STORE_NAME, "main"])
        table = None if in_store else catalog.resolve(written)
        if table is None and name in views and (in_store or place in ([], ["main"])):
            return _of_view(views[name], catalog)
        if table is None:
            require_no_engine(written, catalog)
            accepted = meant_or(written.table, [*catalog.known_names(), *views.values()], "a name of dp_columns()")
            raise Refusal(f"there is no table {str(written)!r}", accepted=accepted)
        return list(_columns(table, catalog))

    def _askable(self, catalog: Catalog, caller: Caller) -> Iterator[TableName]:
        """Yields the existing tables that the caller may query: tables with a policy, and public tables. No views."""
        with_policy = [policy.table for policy in self.policies.policies() if caller.may_ask(str(policy.table))]
        for table in dict.fromkeys([*with_policy, *self.policies.public_tables()]):
            if catalog.resolve(table) is not None and not catalog.is_view(table):
                yield table


def _columns(table: TableName, catalog: Catalog) -> Iterator[list[Value]]:
    policy = catalog.policy(table)
    for column in catalog.columns(table):
        domain = None if policy is None else policy.domain(column.name)
        clamp = None if policy is None else policy.clamp(column.name)
        yield [
            table.table,
            column.name,
            column.type_name,
            None if policy is None else _unit(policy, column.name),
            None if domain is None else domain_text(domain, MOST_LABELS),
            None if domain is None else domain.size,
            None if clamp is None else f"BETWEEN {clamp.low} AND {clamp.high} STEP {clamp.step}",
            PUBLIC_TABLE if policy is None else PRIVATE_TABLE,
        ]


def _unit(policy: Policy, column: str) -> str | None:
    if fold(column) in map(fold, policy.unit.own_columns):
        return f"{policy.unit.key}, MAX ROWS {policy.unit.max_rows}"
    period = policy.unit.period
    return f"PER {period.word}" if period is not None and fold(period.column) == fold(column) else None


def _of_view(name: str, catalog: Catalog) -> list[list[Value]]:
    columns = catalog.columns(TableName((STORE_NAME, "main", name)))
    return [[name, column.name, column.type_name, None, None, None, None, PRIVATE_VIEW] for column in columns]
