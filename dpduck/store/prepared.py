"""Prepared tables of a store: which there are, of which policies and columns, and when they may stand for a table.

Twins of tables that share a privacy unit are of one moment: whenever one is written, the others are written anew, in
one transaction. A row that is one unit's in an older twin, and is joined with rows of another one, would be counted as
one of each: its unit would move counts by more than its price says.
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
from dpduck.kernel.places.clamps import ClampedColumn, clamped_column
from dpduck.kernel.places.prepared import PreparedPlace, PreparedTable
from dpduck.kernel.places.twin_writer import PERSON, Layout, write_twin
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.kernel.units import Referenced, Together, unit_type
from dpduck.language.rows.facts import Column, Policy, Rows
from dpduck.language.rows.relation import PrivateRelation, Reading, relation_of
from dpduck.language.rows.sql import with_units_sql
from dpduck.language.text.names import TableName
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import OpenCursor
from dpduck.store.policies import PolicyStore, named_in_sql, policy_to_text
from dpduck.store.twin_files import Columns, Prepared, Records, TwinFiles
from dpduck.values.domain import Domain
from dpduck.values.errors import InternalError, Refusal, StoreError
from dpduck.values.quoting import fold, quote_identifier
from dpduck.values.sqltypes import sql_type

AGAIN = "ALTER PRIVACY POLICY ON {table} PREPARE, which reads its rows anew, or UNPREPARE"


@dataclass(frozen=True)
class Facts:
    """What is written of a table, and what this rests on."""

    policy: Policy
    relation: PrivateRelation
    layout: Layout
    columns: tuple[tuple[str, Columns], ...]

    @property
    def digest(self) -> str:
        """Returns all that a twin depends on: an amount of a budget is nothing of it."""
        bare, layout = json.loads(policy_to_text(self.policy)), self.layout
        kept = {name: bare[name] for name in ("table", "domains", "epoch")}
        held = None if layout.held is None else layout.held.sql
        facts = (kept, layout.from_sql, layout.content, held, layout.unit_type, layout.unit, self.columns)
        return hashlib.sha256(repr(facts).encode()).hexdigest()


class PreparedTables:
    """Prepares tables, and says what is counted in place of a request's tables."""

    def __init__(
        self, open_cursor: OpenCursor, store: str, policies: PolicyStore, ledger: Ledger, files: TwinFiles, steps: Steps
    ) -> None:
        self._open_cursor, self._policies, self._ledger = open_cursor, policies, ledger
        self._files, self._steps = files, steps
        self._records = Records(open_cursor, store)
        self._known: dict[str, Prepared] = {}

    def read_records(self) -> None:
        """Reads the list of prepared tables, and deletes unfinished ones."""
        known, left = self._records.opened()
        self._known = {
            table: one for table, one in known.items() if self._policies.policy(named_in_sql(table)) is not None
        }
        left += [one.nonce for table, one in known.items() if table not in self._known]
        for nonce in left:
            self._forget(nonce)

    def at(self) -> Mapping[str, str]:
        """Tells when each table was prepared, by its name in SQL."""
        return {table: known.at for table, known in self._known.items()}

    def rows(self, table: TableName) -> float | None:
        """Returns how many rows were prepared, for their owner alone; None where none were, or a file is damaged."""
        known = self._known.get(table.sql)
        if known is None or not self._whole(known):
            return None
        name = self._files.table(known)
        with self._open_cursor() as first, self._files.reading(first, (name,), (), ()) as (cursor, _):
            ((count,),) = reader.columns(cursor, f"SELECT count(*) FROM {name}", {})
        return float(count)

    def prepare(self, tables: Sequence[TableName], anew: bool = False) -> str:
        """Prepares tables, in one moment; unless anew, only those that are not prepared as their policies say."""
        with self._open_cursor() as cursor:
            reader.begin(cursor)
            keep_plans_plain(cursor)
            catalog = Catalog(cursor, self._policies)
            self._follow([])
            facts = [self._facts(catalog, table) for table in tables]
            needed = [one for one in facts if anew or not self._is_prepared(one)]
            written = self._written(cursor, needed) if needed else []
        self._take(written)
        return _done([self._known[table.sql] for table in tables], written)

    def named(self, written: TableName) -> TableName | None:
        """Returns the prepared table of a name, where there is one, whatever became of the table."""
        parts = [fold(part) for part in written.parts]
        found = [named_in_sql(table) for table in self._known]
        alike = [table for table in found if [fold(part) for part in table.parts[-len(parts) :]] == parts]
        return alike[0] if len(alike) == 1 else None

    def has_key(self, rows: Rows) -> bool:
        """Tells whether the table had the key of a request's cells when it was prepared, or is not prepared."""
        known = self._known.get(rows.table.sql)
        return known is None or rows.cell_key in known.keys_together

    def unprepare(self, table: TableName) -> str:
        """Goes back to the table itself."""
        known = self._known.get(table.sql)
        if known is not None:
            self._forget(known.nonce)
            del self._known[table.sql]
        return f"{table} is not prepared: new questions are about the rows that it has"

    @contextmanager
    def changing(self, policies: Sequence[Policy]) -> Iterator[list[str]]:
        """Writes twins for policies that will be in force after this, and uses them from then on; says so.

        What cannot be prepared under it is refused before anything has changed.
        """
        said, written = list[str](), list[Prepared]()
        known = [policy for policy in policies if policy.table.sql in self._known]
        if known:
            with self._open_cursor() as cursor:
                reader.begin(cursor)
                keep_plans_plain(cursor)
                catalog = Catalog(cursor, self._policies)
                facts = [self._facts(catalog, policy.table, policy) for policy in known]
                changed = [one for one in facts if not self._is_prepared(one)]
                if changed:
                    written = self._written(cursor, changed)
                    said.append("; " + _done([], written))
        try:
            yield said
        except BaseException:
            for one in written:
                self._forget(one.nonce)
            raise
        self._follow(written)

    def _follow(self, written: Sequence[Prepared]) -> None:
        """Puts twins into use, and notes the revisions of policies that changed in nothing that twins depend on."""
        taken = []
        with self._open_cursor() as cursor:
            catalog = Catalog(cursor, self._policies)
            for known in {**self._known, **{one.table: one for one in written}}.values():
                with suppress(Refusal, duckdb.Error):  # no statement over such a table is answered
                    facts = self._facts(catalog, named_in_sql(known.table))
                    if facts.digest == known.layout:
                        taken.append(replace(known, revisions=_revisions(facts.relation)))
        self._take(taken)
        for one in written:
            if one.nonce not in {known.nonce for known in taken}:
                self._forget(one.nonce)

    def place(self, rows: Rows) -> PreparedPlace | None:
        """Returns what is counted in place of a request's tables; None where none of them was prepared."""
        tables = list(dict.fromkeys([rows.table, *(one.table for one in rows.reads if not one.hidden)]))
        if not any(table.sql in self._known for table in tables):
            return None
        found, moments, nonces, policies = {}, set(), [], self._policies.now().policies
        for table in tables:
            known = self._known.get(table.sql)
            if known is None:
                prepared = ", ".join(str(one) for one in tables if one.sql in self._known)
                raise Refusal(
                    f"{prepared} is prepared, and {table.table} is not: their rows are not of one moment",
                    accepted=f"ALTER PRIVACY POLICY ON {table} PREPARE; or ON {prepared} UNPREPARE",
                )
            found[table.sql] = self._twin(known, table, rows, policies)
            moments.add(known.moment)
            nonces.append(known.nonce)
        if len(moments) > 1:
            raise Refusal(
                f"{', '.join(table.table for table in tables)} were not prepared in one moment",
                accepted=f"ALTER PRIVACY POLICY ON {', '.join(map(str, tables))} PREPARE",
            )
        names = tuple(twin.sql for twin in found.values())
        still = self._policies.shadows.still_here
        read = {table for table, *_ in rows.shapes}  # not a strategy's table, which is part of the request
        public = tuple(pair for pair in rows.public_digests if pair[0] in read)
        beside = partial(self._files.reading, twins=names, public=public, shapes=rows.shapes, still=still)
        return PreparedPlace(found, beside, partial(self._files.doubt, nonces), moments.pop())

    def _twin(self, known: Prepared, table: TableName, rows: Rows, policies: Mapping[str, Policy]) -> PreparedTable:
        """Returns the twin of a table; a Refusal where table, policy or references are no longer what they were."""
        reads = [(rows.table.sql, rows.revision, rows.epoch), *((r.table.sql, r.revision, r.epoch) for r in rows.reads)]
        now = {name: (revision, epoch) for name, revision, epoch in reads}
        unique = {column for read in rows.reads if read.table == table for column in read.unique}
        columns = {shape.sql: _names(listed) for shape, listed, _ in rows.shapes}
        same = now[table.sql][1] == known.epoch and unique <= set(known.keys)
        same = same and all(columns.get(name) == listed for name, listed in known.columns)
        same = same and all(now.get(name, (-1, 0))[0] == one and name in policies for name, one in known.revisions)
        holder, stored = known.columns[-1]  # the table, or the last that its references lead through
        policy, held = policies.get(table.sql), policies.get(holder)
        if not same or policy is None or held is None:
            raise Refusal(
                f"{table.table}, its policy, or one that it refers to changed since it was prepared",
                accepted=AGAIN.format(table=table),
            )
        try:
            name = self._files.table(known)
        except StoreError:
            if self._known.get(table.sql) is known:
                raise
            raise Refusal(f"{table} was prepared anew meanwhile", accepted="the same statement again") from None
        own = policy.unit.reference is None
        unit = policy.unit.column if own else PERSON.strip('"')
        domains = _domains(policy, columns[table.sql])
        together = tuple(one for name in held.unit.columns for one in stored if fold(one[0]) == fold(name))
        most, keys = policy.unit.max_rows, known.keys_together
        return PreparedTable(name, domains, unit, known.unit_type, own, known.cuts, most, together, keys)

    def _facts(self, catalog: Catalog, table: TableName, policy: Policy | None = None) -> Facts:
        """Returns what is written of a table; refused where DuckDB has columns that cannot be carried over.

        policy: one that is not in force yet.
        """
        policy = policy or catalog.policy(table)
        if policy is None:
            raise Refusal(f"{table} has no privacy policy", accepted="CREATE PRIVACY POLICY ON it first")
        relation = relation_of(table, policy, Reading(catalog, {}))
        for column in relation.columns:
            if not sql_type(column.type_name).is_carried:
                raise Refusal(
                    f"{table.table}.{column.name} is {sql_type(column.type_name).word}: such a column cannot be "
                    "prepared",
                    accepted="a table of numbers, texts, moments, BOOLEAN, BLOB, ENUM and UUID"
                    + (f"; or ALTER PRIVACY POLICY ON {table} UNPREPARE" if table.sql in self._known else ""),
                )
            if is_reserved(fold(column.name)) or fold(column.name) == "rowid":
                whose = "dpduck's" if is_reserved(fold(column.name)) else "DuckDB's"
                raise Refusal(f"the name {column.name} is {whose} own", accepted=f"ALTER TABLE .. RENAME {column.name}")
        if catalog.has_collations(table):
            raise Refusal(f"{table} has a COLLATION", accepted="a table without COLLATE; or it stays unprepared")
        domains = _domains(policy, _names(relation.columns))
        for column_name, _ in domains:
            relation.domain(column_name)
        held = relation.person
        unit = PERSON.strip('"') if isinstance(held, Referenced | Together) else policy.unit.column
        content = tuple(f"{quote_identifier(relation.alias)}.{quote_identifier(name)}" for name in relation.row_key)
        columns = _names(relation.columns)
        links = {name for name, _ in relation.links} | set(map(fold, policy.unit.own_columns))
        linked = frozenset(name for name, _ in columns if fold(name) in links)
        cuts = () if held is None else cuts_of(policy, columns)
        layout = Layout(with_units_sql(relation), columns, content, held, unit_type(held), unit, domains, linked, cuts)
        shapes = [(one.table.sql, _names(catalog.columns(one.table))) for one in relation.reads]
        return Facts(policy, relation, layout, tuple(shapes))

    def _is_prepared(self, facts: Facts) -> bool:
        """Tells whether a table is prepared as its policy says, in one moment with all that share its unit."""
        known = self._known.get(facts.policy.table.sql)
        if known is None or known.layout != facts.digest or not self._whole(known):
            return False
        if not set(_keys(facts.relation)) <= set(known.keys):
            return False
        return {known.moment} == {self._known[table].moment for table in self._sharing([facts])}

    def _sharing(self, facts: Sequence[Facts]) -> list[str]:
        """Returns the prepared tables that have the privacy unit of one of these."""
        units = {one.policy.unit.key for one in facts}
        policies = ((table, self._policies.policy(named_in_sql(table))) for table in self._known)
        return [table for table, policy in policies if policy is not None and policy.unit.key in units]

    def _written(self, cursor: duckdb.DuckDBPyConnection, facts: Sequence[Facts]) -> list[Prepared]:
        """Writes twins of tables, and anew those of prepared tables that share their units; none is in use yet."""
        named = {one.policy.table.sql for one in facts}
        beside = [named_in_sql(table) for table in self._sharing(facts) if table not in named]
        every = list(facts)
        for table in beside:  # one that is gone stays of an older moment, and is joined with none of these
            with suppress(Refusal, duckdb.Error), self._open_cursor() as aside:  # an error would end the transaction
                every.append(self._facts(Catalog(aside, self._policies), table))
        moment, written = secrets.token_hex(16), list[Prepared]()
        at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        for one in every:  # each database's transaction has begun before the first row is read
            reader.columns(cursor, f"SELECT 1 FROM {one.layout.from_sql} LIMIT 0", {})
        try:
            for one in every:
                written.append(self._write(cursor, one, moment, at))
        except BaseException:
            for done in written:
                self._forget(done.nonce)
            raise
        self._steps("prepared, not yet in use")
        return written

    def _write(self, cursor: duckdb.DuckDBPyConnection, facts: Facts, moment: str, at: str) -> Prepared:
        nonce, digest, relation, table = secrets.token_hex(16), facts.digest, facts.relation, facts.relation.table
        self._steps("preparing")
        self._records.begin(table.sql, nonce)
        try:
            with self._files.written(nonce, digest) as (second, name):
                write_twin(cursor, second, facts.layout, name, self._ledger.bounding_key, self._steps)
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
        return Prepared(
            table.sql, nonce, moment, digest, epoch, revisions, facts.columns, _keys(relation), kind, size,
            content, at, facts.layout.cuts, relation.keys,
        )  # fmt: skip

    def _take(self, written: Sequence[Prepared]) -> None:
        """Puts twins into use, all at once, and deletes those that they replace."""
        before = [self._known.get(one.table) for one in written]
        self._records.put(written)
        self._known |= {one.table: one for one in written}
        for old, new in zip(before, written, strict=True):
            if old is not None and old.nonce != new.nonce:
                self._forget(old.nonce)
        if any(old is None or old.nonce != new.nonce for old, new in zip(before, written, strict=True)):
            self._steps("prepared")

    def _forget(self, nonce: str) -> None:
        """Deletes a twin and its record, the file first."""
        self._records.leave(nonce)
        with suppress(OSError):  # what is left is deleted when the store is opened next
            self._files.remove(nonce)
            self._records.delete(nonce)

    def _whole(self, known: Prepared) -> bool:
        try:
            self._files.table(known)
        except StoreError:
            return False
        return True


def _names(columns: Sequence[Column]) -> Columns:
    return tuple((column.name, column.type_name) for column in columns)


def _domains(policy: Policy, columns: Columns) -> tuple[tuple[str, Domain], ...]:
    """Returns domains of columns that are there still."""
    names = {fold(name) for name, _ in columns}
    return tuple((name, domain) for name, domain in policy.domains if fold(name) in names)


def _keys(relation: PrivateRelation) -> tuple[str, ...]:
    """Returns columns of a relation's table of which each is a key by itself."""
    return tuple(chain.from_iterable(read.unique for read in relation.reads if read.table == relation.table))


def _revisions(relation: PrivateRelation) -> tuple[tuple[str, int], ...]:
    return tuple((read.table.sql, read.revision) for read in relation.reads)


def _done(asked: Sequence[Prepared], written: Sequence[Prepared]) -> str:
    """Says which tables are prepared, and of when: the same if asked again. written: also those beside them."""
    by_moment: dict[str, dict[str, None]] = {}
    for one in (*asked, *written):
        by_moment.setdefault(one.at, {})[str(named_in_sql(one.table))] = None
    told = []
    for at, tables in by_moment.items():
        their = "is prepared: new questions are about its rows" if len(tables) == 1 else "are prepared: new questions"
        their += "" if len(tables) == 1 else " are about their rows"
        told.append(f"{', '.join(tables)} {their} of {at}, until NEW EPOCH or UNPREPARE")
    return "; ".join(told)


def cuts_of(policy: Policy, columns: Columns) -> tuple[ClampedColumn, ...]:
    """Returns the columns with a CLAMP that a twin holds cut to it."""
    types = {fold(name): (name, type_name) for name, type_name in columns}
    clamps = ((types.get(fold(clamp.column)), clamp) for clamp in policy.clamps)
    found = (clamped_column(*known, clamp.low, clamp.high, clamp.step) for known, clamp in clamps if known is not None)
    return tuple(one for one in found if one is not None)
