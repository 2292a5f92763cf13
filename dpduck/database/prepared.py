"""Prepared tables of a store: which there are, of which policies and columns, and when they may stand for a table.

The store has one record a table. A record is written before a twin is begun and says so, and again when the twin is
whole: whatever a process that ends in between leaves behind is deleted when the store is opened next.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain

import duckdb

from dpduck.database.catalog import Catalog
from dpduck.database.cursors import OpenCursor
from dpduck.database.policies import PolicyStore, policy_to_text
from dpduck.database.twin_files import TwinFiles
from dpduck.frontend.rows.facts import Policy, Rows
from dpduck.frontend.rows.relation import PrivateRelation, Reading, relation_of
from dpduck.frontend.rows.sql import with_units_sql
from dpduck.frontend.text.names import TableName, fold, quote_identifier, quote_text
from dpduck.trusted.ledger.ledger import Ledger
from dpduck.trusted.ledger.secrets import Steps
from dpduck.trusted.rows import reader
from dpduck.trusted.rows.plain import keep_plans_plain
from dpduck.trusted.rows.prepared import PERSON, RESERVED, Layout, Twin, Twins, carried, write_twin
from dpduck.values.errors import Refusal, StoreError

WRITING, READY = "writing", "ready"
AGAIN = "ALTER PRIVACY POLICY ON {table} PREPARE, which reads its rows anew, or UNPREPARE"


@dataclass(frozen=True)
class Prepared:
    """A table that is prepared. layout: a digest of all that its twin depends on.

    revisions: of its policy, first, and of those that its references lead through. columns: names and types.
    keys: columns of which each is a key by itself. size: bytes of the file.
    """

    table: str
    nonce: str
    layout: str
    epoch: int
    revisions: tuple[tuple[str, int], ...]
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    size: int
    at: str


class PreparedTables:
    """Prepares tables, and says what is counted in place of a request's tables."""

    def __init__(
        self,
        open_cursor: OpenCursor,
        store: str,
        policies: PolicyStore,
        ledger: Ledger,
        files: TwinFiles,
        steps: Steps,
    ) -> None:
        self._open_cursor, self._policies, self._ledger = open_cursor, policies, ledger
        self._files, self._steps = files, steps
        self._table = f"{quote_identifier(store)}.dpduck.prepared"
        self._known: dict[str, Prepared] = {}

    def create_tables(self) -> None:
        """The table of records, where it is not there yet; what was not finished is deleted."""
        with self._open_cursor() as cursor:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} "
                "(table_name VARCHAR, nonce VARCHAR, state VARCHAR, facts VARCHAR, prepared_at TIMESTAMP)"
            )
            rows = cursor.execute(f"SELECT table_name, nonce, state, facts, prepared_at FROM {self._table}").fetchall()
        for table, nonce, state, facts, at in rows:
            if state == READY:
                self._known[table] = _prepared(table, nonce, facts, at)
            else:
                self._forget(nonce)

    def at(self) -> Mapping[str, str]:
        """When each prepared table was prepared, by its name in SQL."""
        return {table: known.at for table, known in self._known.items()}

    def rows(self, table: TableName) -> float | None:
        """How many rows were prepared, for their owner's eyes only; None where none were."""
        known = self._known.get(table.sql)
        if known is None:
            return None
        with self._files.reading(self._open_cursor(), (), ()) as (cursor, _):
            name = self._files.table(known.nonce, known.layout, known.size)
            ((count,),) = reader.columns(cursor, f"SELECT count(*) FROM {name}", {})
        return float(count)

    def prepare(self, table: TableName) -> str:
        """Prepares a table, unless it is prepared as its policy says."""
        with self._open_cursor() as cursor:
            reader.begin(cursor)
            keep_plans_plain(cursor)
            policy, relation, layout = self._facts(Catalog(cursor, self._policies), table)
            known = self._known.get(table.sql)
            if known is not None and known.layout == _digest(policy, relation, layout) and self._whole(known):
                return f"{table} is prepared, since {known.at}; NEW EPOCH prepares it anew"
            self._write(cursor, policy, relation, layout)
        if known is not None:
            self._forget(known.nonce)
        return f"{table} is prepared: answers are about its rows of this moment, until NEW EPOCH or UNPREPARE"

    def unprepare(self, table: TableName) -> str:
        """Goes back to the table itself."""
        known = self._known.pop(table.sql, None)
        if known is None:
            return f"{table} was not prepared"
        self._forget(known.nonce)
        return f"{table} is not prepared any more: answers are about the rows that it has"

    def follow(self, table: TableName) -> str:
        """Prepares a table anew whose policy changed in what its twin depends on, and says so."""
        for known in list(self._known.values()):
            with self._open_cursor() as cursor:
                changed = _named(known.table)
                try:
                    policy, relation, layout = self._facts(Catalog(cursor, self._policies), changed)
                except Refusal:
                    continue  # no statement over it is answered; where one is, its revisions are compared
                if _digest(policy, relation, layout) == known.layout:
                    self._put(replace(known, revisions=_revisions(relation)))
        known_here = self._known.get(table.sql)
        policy_now = self._policies.policy(table)
        if known_here is None or policy_now is None or dict(known_here.revisions)[table.sql] == policy_now.revision:
            return ""
        return "; " + self.prepare(table)

    def twins(self, rows: Rows) -> Twins | None:
        """What is counted in place of a request's tables; None where none of them was prepared."""
        read = [rows.table, *(one.table for one in rows.reads if not one.hidden)]
        tables = list(dict.fromkeys(read))
        if not any(table.sql in self._known for table in tables):
            return None
        found = {}
        for table in tables:
            known = self._known.get(table.sql)
            if known is None:
                prepared = ", ".join(one.table for one in tables if one.sql in self._known)
                raise Refusal(
                    f"{prepared} is prepared, and {table.table} is not: their rows are not of one moment",
                    accepted=f"ALTER PRIVACY POLICY ON {table} PREPARE, or UNPREPARE of the other",
                )
            found[table.sql] = self._twin(known, table, rows)
        return Twins(found, partial(self._files.reading, public=rows.public_digests, shapes=rows.shapes))

    def _twin(self, known: Prepared, table: TableName, rows: Rows) -> Twin:
        """The twin of a table; a Refusal where table, policy or references are no longer what they were."""
        reads = [(rows.table.sql, rows.revision, rows.epoch), *((r.table.sql, r.revision, r.epoch) for r in rows.reads)]
        now = {name: (revision, epoch) for name, revision, epoch in reads}
        unique = {column for read in rows.reads if read.table == table for column in read.unique}
        columns = next(
            tuple((c.name, c.type_name) for c in listed) for shape, listed, _ in rows.shapes if shape == table
        )
        same = now[table.sql][1] == known.epoch and columns == known.columns and unique <= set(known.keys)
        if not same or any(now.get(name, (revision, 0))[0] != revision for name, revision in known.revisions):
            raise Refusal(
                f"{table.table}, its policy, or one that it refers to changed since it was prepared",
                accepted=AGAIN.format(table=table),
            )
        policy = self._policies.policy(table)
        if policy is None:
            raise Refusal(f"{table} has no privacy policy", accepted="CREATE PRIVACY POLICY ON it first")
        name = self._files.table(known.nonce, known.layout, known.size)
        own = policy.unit.reference is None
        unit = policy.unit.column if own else PERSON.strip('"')
        return Twin(name, policy.domains, unit, own)

    def _facts(self, catalog: Catalog, table: TableName) -> tuple[Policy, PrivateRelation, Layout]:
        """What is written of a table; refused where DuckDB has columns that cannot be carried over."""
        policy = catalog.policy(table)
        if policy is None:
            raise Refusal(f"{table} has no privacy policy", accepted="CREATE PRIVACY POLICY ON it first")
        relation = relation_of(table, policy, Reading(catalog, {}))
        for column in relation.columns:
            if not carried(column.type_name):
                raise Refusal(
                    f"{column.name} is {column.type_name.partition('(')[0]}: such a column cannot be prepared",
                    accepted="a table of numbers, texts, moments, BOOLEAN, BLOB, ENUM and UUID; or it stays unprepared",
                )
            if fold(column.name).startswith(RESERVED):
                raise Refusal(
                    f"the name {column.name} is dpduck's own", accepted=f"ALTER TABLE .. RENAME {column.name}"
                )
        if catalog.has_collations(table):
            raise Refusal(f"{table} has a COLLATION", accepted="a table without COLLATE; or it stays unprepared")
        from_sql, unit_sql = with_units_sql(relation)
        columns = tuple((column.name, column.type_name) for column in relation.columns)
        unit = PERSON.strip('"') if relation.parents else policy.unit.column
        content = tuple(f"{quote_identifier(relation.alias)}.{quote_identifier(name)}" for name in relation.row_key)
        layout = Layout(from_sql, columns, content, unit_sql, relation.unit_type, unit, policy.domains)
        return policy, relation, layout

    def _write(
        self, cursor: duckdb.DuckDBPyConnection, policy: Policy, relation: PrivateRelation, layout: Layout
    ) -> None:
        nonce, digest, table = secrets.token_hex(16), _digest(policy, relation, layout), relation.table
        self._steps("preparing")
        self._insert(table.sql, nonce, WRITING, "{}")
        try:
            with self._files.written(nonce, digest) as (second, name):
                write_twin(cursor, second, layout, name, self._ledger.bounding_key, self._steps)
                self._steps("closing the file")
            self._steps("prepared, not yet in use")
            keys = tuple(chain.from_iterable(read.unique for read in relation.reads if read.table == table))
            size, at = self._files.size(nonce), datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
            self._put(
                Prepared(table.sql, nonce, digest, policy.epoch, _revisions(relation), layout.columns, keys, size, at)
            )
        except (duckdb.Error, OSError):
            self._forget(nonce)
            raise StoreError(
                f"{table} cannot be prepared: there is no room for its rows, or no right to write beside the store; "
                "accepted: more room on that disk or in memory_limit and temp_directory"
            ) from None
        except BaseException:
            self._forget(nonce)
            raise
        self._steps("prepared")

    def _put(self, known: Prepared) -> None:
        facts = json.dumps([known.layout, known.epoch, known.revisions, known.columns, known.keys, known.size])
        with self._open_cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"DELETE FROM {self._table} WHERE nonce = ?", [known.nonce])
            cursor.execute(f"UPDATE {self._table} SET state = 'left' WHERE table_name = ?", [known.table])
            cursor.execute(
                f"INSERT INTO {self._table} VALUES (?, ?, ?, ?, ?)", [known.table, known.nonce, READY, facts, known.at]
            )
            cursor.execute("COMMIT")
        self._known[known.table] = known

    def _insert(self, table: str, nonce: str, state: str, facts: str) -> None:
        with self._open_cursor() as cursor:
            cursor.execute(f"INSERT INTO {self._table} VALUES (?, ?, ?, ?, NULL)", [table, nonce, state, facts])

    def _forget(self, nonce: str) -> None:
        """Deletes a twin and its record, the file first."""
        self._files.remove(nonce)
        with self._open_cursor() as cursor:
            cursor.execute(f"DELETE FROM {self._table} WHERE nonce = {quote_text(nonce)}")

    def _whole(self, known: Prepared) -> bool:
        try:
            self._files.table(known.nonce, known.layout, known.size)
        except StoreError:
            return False
        return True


def _prepared(table: str, nonce: str, facts: str, at: object) -> Prepared:
    layout, epoch, revisions, columns, keys, size = json.loads(facts)
    read = tuple((str(name), int(revision)) for name, revision in revisions)
    listed = tuple((str(name), str(type_name)) for name, type_name in columns)
    return Prepared(table, nonce, layout, epoch, read, listed, tuple(keys), size, str(at))


def _named(sql: str) -> TableName:
    """The table of a name that TableName.sql wrote."""
    return TableName(tuple(part.replace('""', '"') for part in sql[1:-1].split('"."')))


def _revisions(relation: PrivateRelation) -> tuple[tuple[str, int], ...]:
    return tuple((read.table.sql, read.revision) for read in relation.reads)


def _digest(policy: Policy, relation: PrivateRelation, layout: Layout) -> str:
    """All that a twin depends on: an amount of a budget is nothing of it."""
    bare = json.loads(policy_to_text(policy))
    kept = {name: bare[name] for name in ("table", "domains", "epoch")}
    facts = (kept, layout.from_sql, layout.columns, layout.content, layout.unit_sql, layout.unit_type, layout.unit)
    return hashlib.sha256(repr(facts).encode()).hexdigest()
