"""Tables of engines in a database: stand-ins in the catalog, records in the store, and places that count them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa

from dpduck.engines.prepared import PreparedThere, TablePack, TablesInEngine, unit_column
from dpduck.engines.probe import probe_engine
from dpduck.engines.spark import Columns, SparkEngine, TableDescription, TablePlace
from dpduck.kernel.places.engine import EnginePlace, EngineRows, columns_in_engine
from dpduck.kernel.places.orders import BATCH, Sent
from dpduck.kernel.places.prepared_writer import sent_sql
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.stand_ins import STAND_INS
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.facts import CatalogColumn, Policy, RequestRows
from dpduck.language.text.names import TableName, require_plain_names
from dpduck.store.cursors import OpenCursor
from dpduck.store.policies import PolicyStore, table_from_sql
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier, quote_text
from dpduck.values.sqltypes import sql_type

ROWS_OF_BUCKET = 1_000_000
FEWEST, USUAL, MOST = 8, 64, 4096
"""Numbers of buckets: the least, the number without EXPECT ROWS, and the most."""

LARGEST_PUBLIC = 64 << 20
"""Most bytes of a public table. Every task gets all its rows."""

ATTACHED = "dpduck.attach_spark(con, 'sc://host:15002', name={name!r}, tables=[..])"


@dataclass(frozen=True)
class EngineTableRecord:
    """Record of an engine's table in the store. there: the table's name in the engine."""

    table: str
    engine: str
    there: str
    identity: str


class EngineTables:
    """Engines that are attached to one database, and the store's records of all tables that were ever attached."""

    def __init__(self, open_cursor: OpenCursor, store: str, policies: PolicyStore, workers: Workers) -> None:
        self._open_cursor, self._policies, self._workers = open_cursor, policies, workers
        self._records = f"{quote_identifier(store)}.dpduck.engine_tables"
        self._engines: dict[str, tuple[SparkEngine, int | None]] = {}
        self._held: dict[str, EngineTableRecord] | None = None
        self.prepared = PreparedThere(open_cursor, store, policies, self._locate_tables, self._engine)
        self.prepared.read_records()

    def attach(self, name: str, engine: SparkEngine, tables: Sequence[str], buckets: int | None) -> list[str]:
        """Creates stand-ins of an engine's tables in the catalog, as name.schema.table, and returns their names."""
        require_plain_names(name)
        probe_engine(engine, self._workers)
        descriptions = {there: engine.describe(there) for there in tables}
        named = {there: TableName((name, *there.split(".")[-2:])) for there in tables}
        if len({table.sql for table in named.values()}) < len(descriptions):
            raise Refusal("two tables have one schema and name", accepted="one of them, or two names of engines")
        with self._open_cursor() as cursor:
            for there, described in descriptions.items():
                self._require_same(named[there], described)
            try:
                cursor.execute(f"ATTACH ':memory:' AS {quote_identifier(name)} (READ_WRITE)")
            except duckdb.Error:
                raise Refusal(f"{name!r} cannot be attached", accepted="a name that no database has") from None
            cursor.execute(f"CREATE SCHEMA {quote_identifier(name)}.{STAND_INS}")
            for there, described in descriptions.items():
                self._record_table(cursor, named[there], name, there, described)
        self._engines[name] = engine, buckets
        self.prepared.clear(name)
        return [str(table) for table in named.values()]

    def _require_same(self, table: TableName, described: TableDescription) -> None:
        """Refuses another table under the name of a table with a policy, since the budget is for the old table."""
        record = self._read_records().get(table.sql)
        if self._policies.last_revision(table)[0] and (record is None or record.identity != described.identity):
            raise Refusal(f"{table} has a policy, of another table", accepted="another name for this engine")

    def _record_table(
        self, cursor: duckdb.DuckDBPyConnection, table: TableName, name: str, there: str, described: TableDescription
    ) -> None:
        schema = f"{quote_identifier(name)}.{quote_identifier(table.parts[1])}"
        cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        cursor.execute(_stand_in_sql(table, name, described.columns))
        cursor.execute(f"DELETE FROM {self._records} WHERE table_name = ?", [table.sql])
        row = [table.sql, name, there, described.identity]
        cursor.execute(f"INSERT INTO {self._records} VALUES (?, ?, ?, ?)", row)
        self._held = None

    def _read_records(self) -> dict[str, EngineTableRecord]:
        if self._held is None:
            with self._open_cursor() as cursor:
                rows = cursor.execute(f"SELECT table_name, engine, there, identity FROM {self._records}").fetchall()
            self._held = {row[0]: EngineTableRecord(*map(str, row)) for row in rows}
        return self._held

    def attached_tables(self, name: str) -> list[str]:
        """Returns the tables that were ever attached from engines of this name, by their names in the engine."""
        return sorted(record.there for record in self._read_records().values() if record.engine == name)

    def has(self, table: TableName) -> bool:
        """Tells whether a table is in an engine, by the store's records or by the attached engines."""
        return table.parts[0] in self._engines or table.sql in self._read_records()

    def require_here(self, table: TableName, what: str, accepted: str) -> None:
        """Refuses an operation that is not possible for an engine's tables. what: the operation, for the message."""
        if self.has(table):
            raise Refusal(f"{table} is an engine's table, and cannot be {what}", accepted=accepted)

    def require_policy(self, table: TableName, unit_type: str | None) -> None:
        """Refuses a second budget for one table, and a type of units in which an engine may tell equal values apart."""
        recorded = self._read_records()
        own = recorded.get(table.sql)
        if own is None:
            return
        for other in recorded.values():
            named = table_from_sql(other.table)
            if other.identity == own.identity and named != table and self._policies.last_revision(named)[0]:
                raise Refusal(f"{table} is {named}, which has or had a policy", accepted=f"the policy on {named}")
        if unit_type is not None and not sql_type(unit_type).is_engine_unit:
            raise Refusal(
                f"{unit_type} is no privacy unit in an engine: equal values may be grouped apart there",
                accepted="a unit of whole or decimal numbers, texts, dates or BOOLEAN",
            )

    def place(self, rows: RequestRows) -> EnginePlace | None:
        """Returns the place that counts a statement's rows in an engine. None if none of its tables is in an engine."""
        private = list(dict.fromkeys([rows.table, *(item.table for item in rows.reads)]))
        for table, _ in rows.public_digests:  # declared when a DuckDB of this name was attached
            self.require_here(table, "read as a public table", "a public copy in DuckDB")
        if not any(map(self.has, private)):
            return None
        shapes = {table: tuple((item.name, item.type_name) for item in columns) for table, columns, _ in rows.shapes}
        name = self.engine_name(private)
        prepared, public = self.prepared.of(private), [table for table, _ in rows.public_digests]
        moment = "" if prepared is None else prepared.packed.mark
        return EnginePlace(partial(self._open_rows, name, private, public, shapes, prepared=prepared), moment)

    def columns(
        self, cursor: duckdb.DuckDBPyConnection, table: TableName, listed: Sequence[CatalogColumn]
    ) -> Callable[[str, Mapping[str, object]], list[Any]]:
        """Returns a function that runs SQL over a table's rows, for its owner. In an engine it only computes SUMS."""
        if not self.has(table):
            return partial(reader.columns, cursor)
        shapes = {table: tuple((column.name, column.type_name) for column in listed)}
        rows = self._open_rows(self.engine_name([table]), [table], [], shapes, cursor, every=True)
        return partial(columns_in_engine, cursor, rows, self._workers)

    def engine_name(self, private: Sequence[TableName]) -> str:
        """Returns the name of the engine with all these tables. Refuses several engines, or an unattached one."""
        name, recorded = next(table.parts[0] for table in private if self.has(table)), self._read_records()
        if any(table.parts[0] != name for table in private):
            raise Refusal(
                f"{', '.join(map(str, private))} are not of one engine", accepted="private tables of one engine"
            )
        if name not in self._engines or any(table.sql not in recorded for table in private):
            raise Refusal(f"the engine {name!r} is not attached", accepted=ATTACHED.format(name=name))
        return name

    def _open_rows(
        self,
        name: str,
        private: Sequence[TableName],
        public: Sequence[TableName],
        shapes: Mapping[TableName, Columns],
        cursor: duckdb.DuckDBPyConnection,
        every: bool = False,
        prepared: TablePack | None = None,
    ) -> EngineRows:
        (engine, buckets), policies = self._engines[name], list(map(self._policies.require_policy, private))
        if not every and prepared != self.prepared.of(private):
            raise Refusal("a table was prepared again meanwhile", accepted="the same statement again")
        sent = [Sent(one.table.parts, shapes[one.table], unit=unit_column(one, shapes[one.table])) for one in policies]
        sent += [public_table(cursor, table.sql, table.parts, shapes[table]) for table in public]
        if prepared is not None:
            prepared.require_same(engine, policies, shapes)
            return EngineRows(tuple(sent), partial(engine.carry_packed, prepared.packed), packed=True)
        places = self._places(name, policies, shapes, every)
        return EngineRows(tuple(sent), partial(engine.carry, places, buckets or _buckets(policies)))

    def _places(
        self, name: str, policies: Sequence[Policy], shapes: Mapping[TableName, Columns], every: bool = False
    ) -> dict[str, TablePlace]:
        """Returns the places of tables in their engine. Refuses tables that have changed there."""
        recorded, places = self._read_records(), dict[str, TablePlace]()
        for table, policy in ((entry.table, entry) for entry in policies):
            record, unit = recorded[table.sql], unit_column(policy, shapes[table])
            if self._engines[name][0].describe(record.there) != TableDescription(shapes[table], record.identity):
                raise Refusal(f"{table} changed in its engine", accepted=ATTACHED.format(name=name) + " again")
            places[table.sql] = TablePlace(record.there, shapes[table], unit, every)
            self.require_policy(table, None if unit is None else dict(shapes[table])[unit])
        _require_one_type(places.values())
        return places

    def _locate_tables(self, policies: Sequence[Policy]) -> TablesInEngine:
        """Returns tables of one engine as they are now, with the columns of their copies in the catalog."""
        name, shapes = self.engine_name([policy.table for policy in policies]), dict[TableName, Columns]()
        with self._open_cursor() as cursor:
            for policy in policies:
                rows = cursor.execute(f"DESCRIBE {policy.table.sql}").fetchall()
                shapes[policy.table] = tuple((str(row[0]), str(row[1])) for row in rows)
        engine, buckets = self._engines[name]
        there = self._read_records()[policies[0].table.sql].there
        return TablesInEngine(name, engine, there, self._places(name, policies, shapes), buckets or _buckets(policies))

    def _engine(self, name: str) -> SparkEngine | None:
        return self._engines[name][0] if name in self._engines else None


def _buckets(policies: Sequence[Policy]) -> int:
    expected = max(policy.expect_rows or 0 for policy in policies)
    return USUAL if not expected else min(MOST, max(FEWEST, -(-expected // ROWS_OF_BUCKET)))


def _require_one_type(places: Iterable[TablePlace]) -> None:
    """Refuses tables with units of different types, for which an engine could have different hashes."""
    types = {dict(place.columns)[place.unit] for place in places if place.unit is not None}
    kinds = {"BIGINT" if sql_type(type_name).is_integer else type_name for type_name in types}
    if len(kinds) > 1:
        raise Refusal("the tables' units are of different types", accepted="units of one type")


def _stand_in_sql(table: TableName, name: str, columns: Columns) -> str:
    """Returns the statement that makes a stand-in: a view with a table's columns. Queries of its rows fail.

    DESCRIBE and prepared statements read no rows, so they do not fail.
    """
    said = (
        f"{table} lies in the engine {name!r}, and its rows are not read here; accepted: "
        f"FROM dp($$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM {table} $$)"
    )
    listed = ", ".join(f"CAST(said AS {type_name}) AS {quote_identifier(column)}" for column, type_name in columns)
    told = f"SELECT error({quote_text(said)}) AS said FROM range(1)"
    return f"CREATE VIEW {table.sql} AS SELECT {listed} FROM ({told}) WHERE said IS NULL"


def public_table(
    cursor: duckdb.DuckDBPyConnection, name: str, parts: tuple[str, ...], columns: Sequence[tuple[str, str]]
) -> Sent:
    """Returns a public table with all its rows, in the form that is sent to every task."""
    other = next((column for column, type_name in columns if not sql_type(type_name).is_carried), None)
    if other is not None:
        raise Refusal(
            f"{parts[-1]}.{other} has a type that an engine cannot read",
            accepted="a public table of numbers, texts and moments",
        )
    sent = ", ".join(
        f"{sent_sql(quote_identifier(column), type_name)} AS {quote_identifier(column)}"
        for column, type_name in columns
    )
    sink, size = pa.BufferOutputStream(), 0
    tables = reader.batches(cursor, f"SELECT {sent} FROM {name}", {}, BATCH)
    first = next(tables)
    with pa.ipc.new_stream(sink, first.schema) as writer:
        for table in tables:
            size += table.nbytes
            if size > LARGEST_PUBLIC:
                raise Refusal(
                    f"{parts[-1]} has more than {LARGEST_PUBLIC >> 20} MiB, too much to be sent to every task",
                    accepted="a smaller public table",
                )
            writer.write_table(table)
    return Sent(parts, tuple(columns), sink.getvalue().to_pybytes())
