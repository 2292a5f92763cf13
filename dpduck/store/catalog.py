"""Public facts read from DuckDB's catalog, the policies of the store and declared public tables."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import duckdb

from dpduck.kernel.columns.conditions import where_sql
from dpduck.kernel.rows.stand_ins import TABLES
from dpduck.language.rows.facts import CatalogColumn, Image, ImageInput, Policy, PrivateTable, RequestRows
from dpduck.language.select.request import Key
from dpduck.language.text.names import TableName
from dpduck.store.attached import Databases, Looked, Still, look_up_fact
from dpduck.store.cursors import Caller
from dpduck.store.policies import PolicyStore, table_from_sql, with_budget
from dpduck.store.sandbox import Sandbox
from dpduck.store.stored import require_stored
from dpduck.store.terms import PolicyTerms
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Budget
from dpduck.values.quoting import fold, quote_identifier, quote_text
from dpduck.values.sqltypes import sql_type

_COLLATION = re.compile(r'\bCOLLATE\s+"?([\w.]+)', re.IGNORECASE)
_FAST_COLLATIONS = frozenset(("nocase", "noaccent", "binary", "c", "posix"))
"""Collations that take one pass over a text. NFC and some ICU collations take quadratic time: 6 s for 64 KB."""
COMPUTES = "with generated columns, or a COLLATION other than NOCASE and NOACCENT"

Facts = dict[tuple[str, str, str], tuple[Any, tuple[Any, ...], dict[str, Any]]]
"""Known facts, by method and the text of the method's arguments, each with the arguments themselves."""

_Namesakes = dict[str, dict[tuple[str, ...], tuple[TableName, str | None]]]
"""Tables and views by name, then by full name, both in small letters. Each has its definition, None for a view."""

_Constraints = dict[tuple[str, ...], tuple[tuple[str, ...], ...]]
"""Columns of primary and unique keys, by table."""

P = ParamSpec("P")
Fact = TypeVar("Fact")


def _memoise(method: Callable[Concatenate[Catalog, P], Fact]) -> Callable[Concatenate[Catalog, P], Fact]:
    """Wraps a method so that one statement looks up each fact only once."""

    @wraps(method)
    def remembering(self: Catalog, /, *asked: P.args, **named: P.kwargs) -> Fact:
        question = (method.__name__, repr(asked), repr(named))
        if question not in self.facts:
            self.facts[question] = method(self, *asked, **named), asked, named
        fact: Fact = self.facts[question][0]
        return fact

    return remembering


class Catalog:
    """Public facts for one statement, each looked up once: names and types, and rows of declared public tables only.

    facts: facts by method and arguments.
    box: the statement's sandbox. Without it, each question opens its own sandbox.
    caller: the user for whom names are resolved. Every user but the owner sees only public tables and tables under a
    policy. A table that the user may not ask about is refused before any fact about it is revealed.
    looked: the attached databases, and a search in the background for hidden built-in functions.
    terms: earlier terms of the policies, None for those in force.
    """

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        policies: PolicyStore,
        box: Sandbox | None = None,
        caller: Caller | None = None,
        looked: Looked | None = None,
        terms: PolicyTerms | None = None,
    ) -> None:
        self._terms = terms
        self._cursor = cursor
        self._looked = looked
        self._caller = caller
        self._policies = policies
        self._box = box
        self.facts: Facts = {}
        self._names = set[str]()
        self._tables: _Namesakes = {}
        self._constraints: _Constraints = {}

    def holds(self, facts: Facts) -> bool:
        """Tells whether all these facts are the same now, for this caller.

        Hidden functions are checked last, since the search for them runs meanwhile.
        """
        last = Catalog.list_shadows.__name__
        questions = sorted(facts.items(), key=lambda fact: fact[0][0] == last)
        try:
            return all(
                getattr(self, question[0])(*asked, **named) == fact for question, (fact, asked, named) in questions
            )
        except Refusal:
            return False

    @cached_property
    def _here(self) -> tuple[str, str]:
        row = self._row("SELECT current_database(), current_schema()")
        if row is None:
            raise Refusal("this connection has no current database", accepted="an open database")
        return str(row[0]), str(row[1])

    @cached_property
    def _databases(self) -> Databases:
        return self._policies.shadows.databases(self._cursor) if self._looked is None else self._looked.databases

    @cached_property
    def _still(self) -> Still | None:
        return self._policies.shadows.still(self._databases, self._looked is not None)

    @cached_property
    def _budgets(self) -> Mapping[str, Budget]:
        return self._policies.budgets() if self._terms is None else self._terms.budgets

    def _look_up_fact(self, table: TableName, asked: tuple[object, ...], ask: Callable[[], Fact]) -> Fact:
        own = table.parts[0] == self._policies.shadows.store  # the store changes with every release
        return ask() if own else look_up_fact(self._still, table, asked, ask)

    def _namesakes(self, table: str) -> dict[tuple[str, ...], tuple[TableName, str | None]]:
        """Returns the tables and views of a name, with definitions, by the parts of full names in small letters."""
        return self._listing(table)[0].get(fold(table), {})

    def _listing(self, table: str) -> tuple[_Namesakes, _Constraints]:
        """Returns listed tables and keys. Each query scans all tables, so the first one is for all declared tables."""
        if fold(table) not in self._names:
            beside = () if self._names else (*self._in_force, *self._policies.public_tables())
            names = {base for base in (table, *(base.table for base in beside)) if fold(base) not in self._names}
            self._list(", ".join(f"lower({quote_text(name)})" for name in sorted(names)))
            self._names.update(map(fold, names))
        return self._tables, self._constraints

    def _list(self, names: str) -> None:
        rows = self._cursor.execute(
            "SELECT database_name, schema_name, view_name, NULL FROM duckdb_views() "
            f"WHERE lower(view_name) IN ({names}) UNION ALL "
            f"SELECT database_name, schema_name, table_name, sql FROM {TABLES} WHERE lower(table_name) IN ({names})"
        ).fetchall()
        for *parts, sql in rows:
            listed, place = self._tables.setdefault(fold(parts[2]), {}), tuple(map(fold, parts))
            if sql is not None or place not in listed:  # a stand-in is listed as a table, and as the view that it is
                listed[place] = TableName(tuple(parts)), sql
        keys = self._cursor.execute(
            "SELECT database_name, schema_name, table_name, list(constraint_column_names ORDER BY constraint_type, "
            f"constraint_index) FROM duckdb_constraints() WHERE lower(table_name) IN ({names}) "
            "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') GROUP BY ALL"
        ).fetchall()
        own = [row for row in keys if self._databases.kinds.get(fold(row[0])) == "duckdb"]
        self._constraints.update({tuple(row[:3]): tuple(map(tuple, row[3])) for row in own})

    @cached_property
    def _in_force(self) -> dict[TableName, Policy]:
        """Returns the policies by table. Their budgets are as written, and the budgets in force may differ."""
        policies = (self._policies.now() if self._terms is None else self._terms).policies
        return {policy.table: policy for policy in policies.values()}

    def _look_up_table(self, table: TableName) -> tuple[TableName, str | None] | None:
        def ask() -> tuple[TableName, str | None] | None:
            return self._namesakes(table.table).get(tuple(map(fold, table.parts)))

        return self._look_up_fact(table, ("listed",), ask)

    @_memoise
    def resolve(self, name: TableName) -> TableName | None:
        places = (self._look_up_table(TableName((*place, name.table))) for place in self._places(name))
        match = next((listed for listed in places if listed is not None), None)
        table = None if match is None else self._policies.known_as(match[0])
        return table if table is None or self._caller is None or self._caller.owner else self._require_permission(table)

    def engine_of(self, name: TableName) -> str | None:
        tables = {fold(TableName((*place, name.table)).sql) for place in self._places(name)}
        store = quote_identifier(self._policies.shadows.store)
        rows = self._cursor.execute(f"SELECT table_name, engine FROM {store}.dpduck.engine_tables").fetchall()
        for recorded, engine in rows:
            may_ask = self._caller is None or self._caller.may_ask(str(table_from_sql(recorded)))
            if fold(str(recorded)) in tables and may_ask:
                return str(engine)
        return None

    def _require_permission(self, table: TableName) -> TableName | None:
        """Returns the table, or None if principals know no such table. Refuses other principals' tables."""
        if self._caller is not None and table in self._in_force:
            self._caller.require_table(str(table))
            return table
        return table if self._policies.is_public(table) else None

    @_memoise
    def known_names(self) -> tuple[str, ...]:
        mine = (policy.table for policy in self._in_force.values())
        if self._caller is not None and not self._caller.owner:
            mine = (table for table in mine if self._caller.may_ask(str(table)))
        return tuple(
            dict.fromkeys([*(table.table for table in mine), *(name.table for name in self._policies.public_tables())])
        )

    @_memoise
    def table_names(self) -> tuple[str, ...]:
        rows = self._cursor.execute(
            f"SELECT DISTINCT table_name FROM {TABLES} WHERE schema_name <> 'dpduck' ORDER BY 1"
        ).fetchall()
        return tuple(row[0] for row in rows)

    def _places(self, name: TableName) -> list[tuple[str, str]]:
        database, schema = self._policies.home or self._here
        if len(name.parts) == 3:
            return [(name.parts[0], name.parts[1])]
        if len(name.parts) == 2:
            return [(database, name.parts[0]), (name.parts[0], "main")]
        return [(database, schema), (database, "main")]

    @_memoise
    def is_view(self, table: TableName) -> bool:
        listed = self._look_up_table(table)
        return listed is not None and listed[1] is None

    @_memoise
    def columns(self, table: TableName) -> tuple[CatalogColumn, ...]:
        return self._look_up_fact(table, ("columns", table), lambda: self._describe(table))

    def _describe(self, table: TableName) -> tuple[CatalogColumn, ...]:
        try:
            rows = self._cursor.execute(f"DESCRIBE {table.sql}").fetchall()
        except (duckdb.CatalogException, duckdb.BinderException):
            return ()  # the table is gone, or its database is not attached
        return tuple(CatalogColumn(row[0], row[1]) for row in rows)

    @_memoise
    def computes(self, table: TableName) -> bool:
        """Tells whether reading a column computes an expression, which could raise, or compares by a slow COLLATION."""
        listed = self._look_up_table(table)
        text = "" if listed is None else listed[1] or ""
        rules = {part for rule in _COLLATION.findall(text) for part in rule.lower().split(".")}
        return "GENERATED ALWAYS AS" in text.upper() or not rules <= _FAST_COLLATIONS

    def definition(self, table: TableName) -> str:
        """Returns the CREATE TABLE of a table, "" for a view or a missing table."""
        listed = self._look_up_table(table)
        return "" if listed is None else listed[1] or ""

    @_memoise
    def has_collations(self, table: TableName) -> bool:
        listed = self._look_up_table(table)
        return listed is None or listed[1] is None or " COLLATE " in listed[1].upper()

    def numbers_rows(self, table: TableName) -> bool:
        return self._databases.kinds.get(fold(table.parts[0]), "duckdb") in ("duckdb", "ducklake")

    @_memoise
    def unique_keys(self, table: TableName) -> tuple[tuple[str, ...], ...]:
        listed = self._look_up_table(table)
        names = table if listed is None else listed[0]
        return self._look_up_fact(names, ("keys", names), lambda: self._listing(names.table)[1].get(names.parts, ()))

    @_memoise
    def policy(self, table: TableName) -> Policy | None:
        """Returns the policy in force. Refuses a table that now is a view or has computed columns."""
        policy = self._stands(table)
        return None if policy is None else with_budget(policy, self._budgets)

    def _stands(self, table: TableName) -> Policy | None:
        """Returns the policy with its budget as written. Refuses a table that is no longer a plain table."""
        policy = self._in_force.get(table)
        if policy is not None and (self.is_view(table) or self.computes(table)):
            raise Refusal(
                f"{table} was replaced by a view, or by a table {COMPUTES}",
                accepted="a table of stored columns, without such a COLLATE",
            )
        if policy is not None:
            self.require_stored(table)
        return policy

    @_memoise
    def require_stored(self, table: TableName) -> None:
        """Refuses a table of a foreign database that is no table there, or has rows that could make reading fail."""
        if self._databases.kinds.get(fold(table.parts[0])) != "duckdb":
            require_stored(self._cursor, table)

    @_memoise
    def is_public(self, table: TableName) -> bool:
        """Tells whether the table is declared public. False for a view, which could read anything."""
        if not self._policies.is_public(table) or self.is_view(table):
            return False
        if self.definition(table) == "" and self.engine_of(table) is not None:
            raise Refusal(
                f"{table} is an engine's table, and cannot be read as a public table",
                accepted="a public copy in DuckDB",
            )
        self.require_stored(table)
        return True

    @_memoise
    def public_digest(self, table: TableName) -> str:
        self._require_public(table)
        return self._look_up_fact(table, ("digest", table), lambda: self._digest(table))

    def _digest(self, table: TableName) -> str:
        columns = ", ".join(f"t.{quote_identifier(column.name)}" for column in self.columns(table))
        row = self._row(
            f"SELECT count(*), coalesce(bit_xor(hash({columns})), 0), coalesce(sum(hash(1, {columns})), 0) "
            f"FROM {table.sql} AS t"
        )
        return hashlib.sha256(repr(row).encode()).hexdigest()

    def require_unchanged(self, rows: RequestRows) -> None:
        """Refuses rows if their public facts, in this cursor's transaction, differ from the facts of the analysis.

        A public table with more rows than at the analysis could multiply private rows more often than the price allows.
        """
        first = PrivateTable(rows.table, rows.revision, rows.epoch)
        now = all(self._as_read(table) for table in (first, *rows.reads))
        now = now and all(
            (self.columns(table), self.has_collations(table)) == (columns, collated)
            for table, columns, collated in rows.shapes
        )
        if not now or any(self.public_digest(table) != digest for table, digest in rows.public_digests):
            raise Refusal("a policy, a key or a public table changed meanwhile", accepted="the same statement again")
        # a setting of the database that makes different texts equal would merge units and keys
        if self._databases.collation.lower() not in ("", "binary", "c", "posix"):
            raise Refusal("default_collation makes texts equal that differ", accepted="RESET default_collation")
        self._policies.shadows.keep_plans_plain(self._cursor, self._databases)

    def _as_read(self, read: PrivateTable) -> bool:
        policy = self._stands(read.table)
        if policy is None or (policy.revision, policy.epoch) != (read.revision, read.epoch):
            return False
        return not read.unique or {(column,) for column in read.unique} <= set(self.unique_keys(read.table))

    def integer_rows(self, table: TableName, columns: Sequence[str], most: int) -> list[tuple[int, ...]]:
        self._require_public(table)
        names = [quote_identifier(column) for column in columns]
        missing = set(columns) - {column.name.lower() for column in self.columns(table)}
        if missing:
            raise Refusal(f"{table} has no column {min(missing)}", accepted=f"columns {', '.join(columns)}")
        casts = [f"TRY_CAST({name} AS BIGINT)" for name in names]
        whole = " AND ".join(f"coalesce({cast} = {name}, FALSE)" for cast, name in zip(casts, names, strict=True))
        try:
            rows = self._cursor.execute(
                f"SELECT {', '.join(casts)}, {whole} FROM {table.sql} ORDER BY ALL LIMIT {most + 1}"
            ).fetchall()
        except duckdb.Error:
            raise Refusal(f"{table} holds something else than numbers", accepted="whole numbers") from None
        if not all(row[-1] for row in rows):
            raise Refusal(f"{table} holds something else than whole numbers", accepted="whole numbers")
        return [tuple(row[:-1]) for row in rows]

    def label_rows(
        self, table: TableName, keys: Mapping[str, Key], others: Sequence[str], most: int
    ) -> list[tuple[tuple[int | None, ...], tuple[str | None, ...]]]:
        """Returns the rows of a public table: the position of each key's label, None for NULL, and texts of `others`.

        keys: the keys by the names of their columns. Refuses a value that is no label of its key.
        """
        self._require_public(table)
        columns = [quote_identifier(column) for column in keys]
        cast = "CAST(TRY_CAST({} AS {}) AS VARCHAR)"
        texts = [cast.format(name, key.type_name) for name, key in zip(columns, keys.values(), strict=True)]
        texts += [f"CAST({name} AS VARCHAR)" for name in [*columns, *map(quote_identifier, others)]]
        rows = self._cursor.execute(f"SELECT {', '.join(texts)} FROM {table.sql} ORDER BY ALL LIMIT {most + 1}")
        read, places = rows.fetchall(), list[dict[str, int]]()
        for key in keys.values():
            listed = f"[{cast.format('label', key.type_name)} FOR label IN CAST(? AS VARCHAR[])]"
            (labels,) = self._cursor.execute(f"SELECT {listed}", [list(key.labels)]).fetchall()[0]
            places.append({label: place for place, label in enumerate(labels) if label is not None})
        found = []
        for row in read:
            written, others_of_row = row[len(keys) : 2 * len(keys)], row[2 * len(keys) :]
            for text, value, place, name in zip(row, written, places, keys, strict=False):
                if value is not None and text not in place:
                    raise Refusal(
                        f"{table} has a row for {name} = {quote_text(value[:60])}, which no group of the statement has",
                        accepted=f"values of {name} in its domain, and NULL for all of them",
                    )
            cells = (None if text is None else place[text] for text, place in zip(row, places, strict=False))
            found.append((tuple(cells), tuple(others_of_row)))
        return found

    @_memoise
    def public_values(self, table: TableName, column: str) -> tuple[str | None, ...]:
        self._require_public(table)
        return self._look_up_fact(table, ("values", table, column), lambda: self._values(table, column))

    def _values(self, table: TableName, column: str) -> tuple[str | None, ...]:
        name = quote_identifier(column)
        rows = self._cursor.execute(
            f"SELECT CAST(value AS VARCHAR) FROM (SELECT DISTINCT {name} AS value FROM {table.sql}) "
            "ORDER BY value NULLS LAST"
        ).fetchall()
        return tuple(dict.fromkeys(row[0] for row in rows))

    @_memoise
    def multiplicity(self, table: TableName, columns: Sequence[str], distinct: Sequence[str] = ()) -> int:
        self._require_public(table)
        if self._is_key(table, columns):
            return 1
        asked = ("multiplicity", table, *columns, None, *distinct)
        return self._look_up_fact(table, asked, lambda: self._most_repeated(table, columns, distinct))

    def _most_repeated(self, table: TableName, columns: Sequence[str], distinct: Sequence[str]) -> int:
        names = ", ".join(quote_identifier(column) for column in columns)
        present = where_sql(f"{quote_identifier(column)} IS NOT NULL" for column in columns)
        selected = ", ".join(quote_identifier(column) for column in distinct)
        rows = f"(SELECT DISTINCT {selected} FROM {table.sql})" if distinct else table.sql
        row = self._row(
            f"SELECT coalesce(max(repeated), 0) FROM (SELECT count(*) AS repeated FROM {rows}"
            f"{present} GROUP BY {names})"
        )
        return int(row[0]) if row is not None else 0

    def _is_key(self, table: TableName, columns: Sequence[str]) -> bool:
        """Tells whether DuckDB enforces a key on some of these columns, with types that store equal values in one way.

        UNIQUE permits several NULLs, but NULL equals nothing in a join.
        """
        given = {fold(column) for column in columns}
        types = {fold(column.name): column.type_name for column in self.columns(table)}
        return not self.has_collations(table) and any(
            given.issuperset(map(fold, key)) and all(sql_type(types.get(fold(name), "")).is_own_key for name in key)
            for key in self.unique_keys(table)
        )

    def _row(self, sql: str) -> tuple[Any, ...] | None:
        """Returns the only row. Fetches all rows. Before that, DuckDB 2.0 does nothing else on the cursor."""
        rows = self._cursor.execute(sql).fetchall()
        return rows[0] if rows else None

    def _require_public(self, table: TableName) -> None:
        if not self.is_public(table) or self.policy(table) is not None:
            raise Refusal(f"{table} is not declared public", accepted="DECLARE PUBLIC TABLE")

    def bind(self, select_sql: str, tables: Sequence[TableName]) -> tuple[CatalogColumn, ...]:
        with self._sandbox() as box:
            return box.bind(select_sql, {table: self.columns(table) for table in tables})

    def bind_rows(self, row_sql: str, once_sql: str, tables: Sequence[TableName]) -> None:
        with self._sandbox() as box:
            box.bind_rows(row_sql, once_sql, {table: self.columns(table) for table in tables})

    def image(self, expression_sql: str, columns: Sequence[ImageInput]) -> Image:
        with self._sandbox() as box:
            return box.image(expression_sql, columns)

    def _sandbox(self) -> AbstractContextManager[Sandbox]:
        return Sandbox() if self._box is None else nullcontext(self._box)

    @_memoise
    def list_shadows(self) -> frozenset[str]:
        shadows = self._policies.shadows
        return shadows.names(self._cursor, self._databases) if self._looked is None else self._looked.names()
