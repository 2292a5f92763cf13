"""Prepared tables of a store: writes them, lists them, and decides whether requests may count them.

A prepared table is a copy of a private table. Prepared tables that share a privacy unit are of one moment: if one is
written, all are written again in the same transaction. Otherwise an older row of one unit could be joined with newer
rows of another. It would count for both, and move counts by more than the price allows.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain

import duckdb

from dpduck.kernel.facts import is_reserved
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.ledger.secrets import Steps
from dpduck.kernel.places.clamps import ClampedColumn, clamp_column
from dpduck.kernel.places.prepared import PreparedPlace, PreparedTable
from dpduck.kernel.places.prepared_writer import PERSON, Layout, write_prepared
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.kernel.units import Referenced, UnitTuple, unit_type
from dpduck.language.rows.facts import CatalogColumn, Policy, RequestRows
from dpduck.language.rows.relation import PrivateRelation, RowReading, relation_of
from dpduck.language.rows.sql import with_units_sql
from dpduck.language.text.names import TableName
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import OpenCursor
from dpduck.store.policies import PolicyStore, policy_to_text, table_from_sql
from dpduck.store.prepared_files import PreparedFiles
from dpduck.store.prepared_records import Columns, PreparedRecord, Records
from dpduck.values.domain import Domain
from dpduck.values.errors import InternalError, Refusal, StoreError
from dpduck.values.quoting import fold, quote_identifier
from dpduck.values.sqltypes import sql_type

AGAIN = "ALTER PRIVACY POLICY ON {table} PREPARE, which reads its rows anew, or UNPREPARE"


@dataclass(frozen=True)
class PreparedFacts:
    """Facts for writing a prepared table: its layout, and the policy and relation behind the layout."""

    policy: Policy
    relation: PrivateRelation
    layout: Layout
    columns: tuple[tuple[str, Columns], ...]

    @property
    def digest(self) -> str:
        """Returns a digest of all facts that a prepared table depends on. The budget is not among them."""
        bare, layout = json.loads(policy_to_text(self.policy)), self.layout
        fields = {name: bare[name] for name in ("table", "domains", "epoch")}
        held = None if layout.held is None else layout.held.sql
        facts = (fields, layout.from_sql, layout.content, held, layout.unit_type, layout.unit, self.columns)
        return hashlib.sha256(repr(facts).encode()).hexdigest()


class PreparedTables:
    """Prepares tables, and chooses the prepared tables that are counted in place of a request's tables."""

    def __init__(
        self,
        open_cursor: OpenCursor,
        store: str,
        policies: PolicyStore,
        ledger: Ledger,
        files: PreparedFiles,
        steps: Steps,
    ) -> None:
        self._open_cursor, self._policies, self._ledger = open_cursor, policies, ledger
        self._files, self._steps = files, steps
        self._records = Records(open_cursor, store)
        self._in_use: dict[str, PreparedRecord] = {}

    def read_records(self) -> None:
        """Reads the records of prepared tables. Deletes tables that are unfinished, or without a policy in force."""
        records, left = self._records.read_all()
        self._in_use = {
            table: record
            for table, record in records.items()
            if self._policies.policy(table_from_sql(table)) is not None
        }
        left += [record.nonce for table, record in records.items() if table not in self._in_use]
        for nonce in left:
            self._forget(nonce)

    def at(self) -> Mapping[str, str]:
        return {table: record.at for table, record in self._in_use.items()}

    def rows(self, table: TableName) -> float | None:
        """Returns a prepared table's number of rows, for its owner. None if there is none, or its file is damaged."""
        record = self._in_use.get(table.sql)
        if record is None or not self._whole(record):
            return None
        name = self._files.table(record)
        with self._open_cursor() as first, self._files.reading(first, (name,), (), ()) as (cursor, _):
            ((count,),) = reader.columns(cursor, f"SELECT count(*) FROM {name}", {})
        return float(count)

    def prepare(self, tables: Sequence[TableName], anew: bool = False) -> str:
        """Prepares tables at one moment. Without `anew`, leaves out tables already prepared under their policies."""
        with self._open_cursor() as cursor:
            reader.begin(cursor)
            keep_plans_plain(cursor)
            catalog = Catalog(cursor, self._policies)
            self._follow([])
            facts = [self._facts(catalog, table) for table in tables]
            needed = [table_facts for table_facts in facts if anew or not self._is_prepared(table_facts)]
            written = self._write_copies(cursor, needed) if needed else []
        self._take(written)
        return _done([self._in_use[table.sql] for table in tables], written)

    def find(self, written: TableName) -> TableName | None:
        """Returns the prepared table with this name, None if there are none or several. The original may be gone."""
        parts = [fold(part) for part in written.parts]
        names = [table_from_sql(table) for table in self._in_use]
        alike = [table for table in names if [fold(part) for part in table.parts[-len(parts) :]] == parts]
        return alike[0] if len(alike) == 1 else None

    def has_key(self, rows: RequestRows) -> bool:
        """Tells whether the table is not prepared, or is prepared with the key of the request's cells."""
        record = self._in_use.get(rows.table.sql)
        return record is None or rows.cell_key in record.keys_together

    def unprepare(self, table: TableName) -> str:
        record = self._in_use.get(table.sql)
        if record is not None:
            self._forget(record.nonce)
            del self._in_use[table.sql]
        return f"{table} is not prepared: new questions are about the rows that it has"

    @contextmanager
    def changing(self, policies: Sequence[Policy]) -> Iterator[list[str]]:
        """Prepares tables for policies that come into force in the block, and uses them afterwards. Yields messages.

        Refuses a table that cannot be prepared under its new policy, before anything has changed.
        """
        messages, written = list[str](), list[PreparedRecord]()
        affected = [policy for policy in policies if policy.table.sql in self._in_use]
        if affected:
            with self._open_cursor() as cursor:
                reader.begin(cursor)
                keep_plans_plain(cursor)
                catalog = Catalog(cursor, self._policies)
                facts = [self._facts(catalog, policy.table, policy) for policy in affected]
                changed = [record for record in facts if not self._is_prepared(record)]
                if changed:
                    written = self._write_copies(cursor, changed)
                    messages.append("; " + _done([], written))
        try:
            yield messages
        except BaseException:
            for record in written:
                self._forget(record.nonce)
            raise
        self._follow(written)

    def _follow(self, written: Sequence[PreparedRecord]) -> None:
        """Puts prepared tables into use. Records a policy's new revision if a table still fits it."""
        taken = []
        with self._open_cursor() as cursor:
            catalog = Catalog(cursor, self._policies)
            for record in {**self._in_use, **{record.table: record for record in written}}.values():
                with suppress(Refusal, duckdb.Error):  # no statement over such a table is answered
                    facts = self._facts(catalog, table_from_sql(record.table))
                    if facts.digest == record.layout:
                        taken.append(replace(record, revisions=_revisions(facts.relation)))
        self._take(taken)
        for record in written:
            if record.nonce not in {record.nonce for record in taken}:
                self._forget(record.nonce)

    def place(self, rows: RequestRows) -> PreparedPlace | None:
        """Returns the prepared tables that are counted in place of a request's tables. None if no table is prepared."""
        tables = list(dict.fromkeys([rows.table, *(source.table for source in rows.reads if not source.hidden)]))
        if not any(table.sql in self._in_use for table in tables):
            return None
        chosen, moments, nonces, policies = {}, set(), [], self._policies.now().policies
        for table in tables:
            record = self._in_use.get(table.sql)
            if record is None:
                prepared = ", ".join(str(source) for source in tables if source.sql in self._in_use)
                raise Refusal(
                    f"{prepared} is prepared, and {table.table} is not: their rows are not of one moment",
                    accepted=f"ALTER PRIVACY POLICY ON {table} PREPARE; or ON {prepared} UNPREPARE",
                )
            chosen[table.sql] = self._table_of(record, table, rows, policies)
            moments.add(record.moment)
            nonces.append(record.nonce)
        if len(moments) > 1:
            raise Refusal(
                f"{', '.join(table.table for table in tables)} were not prepared in one moment",
                accepted=f"ALTER PRIVACY POLICY ON {', '.join(map(str, tables))} PREPARE",
            )
        names = tuple(table.sql for table in chosen.values())
        still = self._policies.shadows.still_here
        read = {table for table, *_ in rows.shapes}  # without a strategy's matrix table, whose rows the request holds
        public = tuple(pair for pair in rows.public_digests if pair[0] in read)
        beside = partial(self._files.reading, tables=names, public=public, shapes=rows.shapes, still=still)
        return PreparedPlace(chosen, beside, partial(self._files.doubt, nonces), moments.pop())

    def _table_of(
        self, record: PreparedRecord, table: TableName, rows: RequestRows, policies: Mapping[str, Policy]
    ) -> PreparedTable:
        """Returns a prepared table. Refuses it if the table, its policy or its references have changed since."""
        reads = [(rows.table.sql, rows.revision, rows.epoch), *((r.table.sql, r.revision, r.epoch) for r in rows.reads)]
        now = {name: (revision, epoch) for name, revision, epoch in reads}
        unique = {column for read in rows.reads if read.table == table for column in read.unique}
        columns = {shape.sql: _names(listed) for shape, listed, _ in rows.shapes}
        same = now[table.sql][1] == record.epoch and unique <= set(record.keys)
        same = same and all(columns.get(name) == listed for name, listed in record.columns)
        same = same and all(now.get(name, (-1, 0))[0] == entry and name in policies for name, entry in record.revisions)
        holder, stored = record.columns[-1]  # the table, or the last table of its references
        policy, held = policies.get(table.sql), policies.get(holder)
        if not same or policy is None or held is None:
            raise Refusal(
                f"{table.table}, its policy, or one that it refers to changed since it was prepared",
                accepted=AGAIN.format(table=table),
            )
        try:
            name = self._files.table(record)
        except StoreError:
            if self._in_use.get(table.sql) is record:
                raise
            raise Refusal(f"{table} was prepared again meanwhile", accepted="the same statement again") from None
        own = policy.unit.reference is None
        unit = policy.unit.column if own else PERSON.strip('"')
        domains = _domains(policy, columns[table.sql])
        together = tuple(entry for name in held.unit.columns for entry in stored if fold(entry[0]) == fold(name))
        most, keys = policy.unit.max_rows, record.keys_together
        return PreparedTable(name, domains, unit, record.unit_type, own, record.cuts, most, together, keys)

    def _facts(self, catalog: Catalog, table: TableName, policy: Policy | None = None) -> PreparedFacts:
        """Returns the facts for preparing a table under the given policy, or else under the policy in force.

        Refuses a table with columns that a prepared table cannot have.
        """
        policy = policy or catalog.policy(table)
        if policy is None:
            raise Refusal(f"{table} has no privacy policy", accepted="CREATE PRIVACY POLICY ON it first")
        relation = relation_of(table, policy, RowReading(catalog, {}))
        for column in relation.columns:
            if not sql_type(column.type_name).is_carried:
                raise Refusal(
                    f"{table.table}.{column.name} is {sql_type(column.type_name).word}: such a column cannot be "
                    "prepared",
                    accepted="a table of numbers, texts, moments, BOOLEAN, BLOB, ENUM and UUID"
                    + (f"; or ALTER PRIVACY POLICY ON {table} UNPREPARE" if table.sql in self._in_use else ""),
                )
            if is_reserved(fold(column.name)) or fold(column.name) == "rowid":
                owner = "dpduck's" if is_reserved(fold(column.name)) else "DuckDB's"
                raise Refusal(f"the name {column.name} is {owner} own", accepted=f"ALTER TABLE .. RENAME {column.name}")
        if catalog.has_collations(table):
            raise Refusal(f"{table} has a COLLATION", accepted="a table without COLLATE; or it stays unprepared")
        domains = _domains(policy, _names(relation.columns))
        for column_name, _ in domains:
            relation.domain(column_name)
        held = relation.person
        unit = PERSON.strip('"') if isinstance(held, Referenced | UnitTuple) else policy.unit.column
        content = tuple(f"{quote_identifier(relation.alias)}.{quote_identifier(name)}" for name in relation.row_key)
        columns = _names(relation.columns)
        links = {name for name, _ in relation.links} | set(map(fold, policy.unit.own_columns))
        linked = frozenset(name for name, _ in columns if fold(name) in links)
        cuts = () if held is None else cuts_of(policy, columns)
        layout = Layout(with_units_sql(relation), columns, content, held, unit_type(held), unit, domains, linked, cuts)
        shapes = [(read.table.sql, _names(catalog.columns(read.table))) for read in relation.reads]
        return PreparedFacts(policy, relation, layout, tuple(shapes))

    def _is_prepared(self, facts: PreparedFacts) -> bool:
        """Tells whether a table is prepared under its policy, at the same moment as all prepared tables of its unit."""
        record = self._in_use.get(facts.policy.table.sql)
        if record is None or record.layout != facts.digest or not self._whole(record):
            return False
        if not set(_keys(facts.relation)) <= set(record.keys):
            return False
        return {record.moment} == {self._in_use[table].moment for table in self._sharing([facts])}

    def _sharing(self, facts: Sequence[PreparedFacts]) -> list[str]:
        units = {table_facts.policy.unit.key for table_facts in facts}
        policies = ((table, self._policies.policy(table_from_sql(table))) for table in self._in_use)
        return [table for table, policy in policies if policy is not None and policy.unit.key in units]

    def _write_copies(self, cursor: duckdb.DuckDBPyConnection, facts: Sequence[PreparedFacts]) -> list[PreparedRecord]:
        """Writes prepared tables, and rewrites all others that share their units. No copy is in use yet."""
        named = {table_facts.policy.table.sql for table_facts in facts}
        beside = [table_from_sql(table) for table in self._sharing(facts) if table not in named]
        every = list(facts)
        for table in beside:  # a table that is gone keeps its older moment, and is joined with none of these
            with suppress(Refusal, duckdb.Error), self._open_cursor() as aside:  # an error would end the transaction
                every.append(self._facts(Catalog(aside, self._policies), table))
        moment, written = secrets.token_hex(16), list[PreparedRecord]()
        at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        for table_facts in every:  # begins each database's transaction before the first row is read
            reader.columns(cursor, f"SELECT 1 FROM {table_facts.layout.from_sql} LIMIT 0", {})
        try:
            for table_facts in every:
                written.append(self._write(cursor, table_facts, moment, at))
        except BaseException:
            for done in written:
                self._forget(done.nonce)
            raise
        self._steps("prepared, not yet in use")
        return written

    def _write(self, cursor: duckdb.DuckDBPyConnection, facts: PreparedFacts, moment: str, at: str) -> PreparedRecord:
        nonce, digest, relation, table = secrets.token_hex(16), facts.digest, facts.relation, facts.relation.table
        self._steps("preparing")
        self._records.begin(table.sql, nonce)
        try:
            with self._files.create(nonce, digest) as (second, name):
                write_prepared(cursor, second, facts.layout, name, self._ledger.bounding_key, self._steps)
                self._steps("closing the file")
            size, content = self._files.size(nonce), self._files.digest(nonce)
        except (duckdb.Error, OSError, InternalError) as error:
            self._forget(nonce)
            if isinstance(error, InternalError) and str(error) != reader.FAILED:
                raise
            raise StoreError(
                f"{table} cannot be prepared: there is no room for its rows, or no right to write beside the store; "
                "accepted: more room on that disk or in memory_limit and temp_directory"
            ) from None
        except BaseException:
            self._forget(nonce)
            raise
        revisions, epoch, kind = _revisions(relation), facts.policy.epoch, unit_type(relation.unit)
        return PreparedRecord(
            table.sql, nonce, at, moment, digest, epoch, revisions, facts.columns, _keys(relation), kind, size,
            content, facts.layout.cuts, relation.keys,
        )  # fmt: skip

    def _take(self, written: Sequence[PreparedRecord]) -> None:
        """Puts prepared tables into use, all in one transaction, and deletes the tables that they replace."""
        before = [self._in_use.get(record.table) for record in written]
        self._records.save(written)
        self._in_use |= {record.table: record for record in written}
        for old, new in zip(before, written, strict=True):
            if old is not None and old.nonce != new.nonce:
                self._forget(old.nonce)
        if any(old is None or old.nonce != new.nonce for old, new in zip(before, written, strict=True)):
            self._steps("prepared")

    def _forget(self, nonce: str) -> None:
        self._records.leave(nonce)
        with suppress(OSError):  # leftovers are deleted when the store is opened next
            self._files.remove(nonce)
            self._records.delete(nonce)

    def _whole(self, record: PreparedRecord) -> bool:
        try:
            self._files.table(record)
        except StoreError:
            return False
        return True


def _names(columns: Sequence[CatalogColumn]) -> Columns:
    return tuple((column.name, column.type_name) for column in columns)


def _domains(policy: Policy, columns: Columns) -> tuple[tuple[str, Domain], ...]:
    names = {fold(name) for name, _ in columns}
    return tuple((name, domain) for name, domain in policy.domains if fold(name) in names)


def _keys(relation: PrivateRelation) -> tuple[str, ...]:
    return tuple(chain.from_iterable(read.unique for read in relation.reads if read.table == relation.table))


def _revisions(relation: PrivateRelation) -> tuple[tuple[str, int], ...]:
    return tuple((read.table.sql, read.revision) for read in relation.reads)


def _done(asked: Sequence[PreparedRecord], written: Sequence[PreparedRecord]) -> str:
    by_moment: dict[str, dict[str, None]] = {}
    for record in (*asked, *written):
        by_moment.setdefault(record.at, {})[str(table_from_sql(record.table))] = None
    sentences = []
    for at, tables in by_moment.items():
        their = "is prepared: new questions are about its rows" if len(tables) == 1 else "are prepared: new questions"
        their += "" if len(tables) == 1 else " are about their rows"
        sentences.append(f"{', '.join(tables)} {their} of {at}, until NEW EPOCH or UNPREPARE")
    return "; ".join(sentences)


def cuts_of(policy: Policy, columns: Columns) -> tuple[ClampedColumn, ...]:
    """Returns the columns with a CLAMP in their clamped form, which a prepared table has beside the columns."""
    types = {fold(name): (name, type_name) for name, type_name in columns}
    clamps = ((types.get(fold(clamp.column)), clamp) for clamp in policy.clamps)
    cuts = (clamp_column(*field, clamp.low, clamp.high, clamp.step) for field, clamp in clamps if field is not None)
    return tuple(cut for cut in cuts if cut is not None)
