"""Prepared tables of an engine: they are packed into a table of the engine's own, as pieces of whole privacy units.

Tables that share their units are packed into one table, at one moment. A statement reads only the columns that it needs
from each piece, and no rows are grouped or sent from task to task.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from dpduck.engines.spark import Columns, Packed, SparkEngine, TablePlace
from dpduck.kernel.rows.bounding import key_integer
from dpduck.language.rows.facts import Policy
from dpduck.language.text.names import TableName
from dpduck.store.cursors import OpenCursor
from dpduck.store.policies import PolicyStore, table_from_sql
from dpduck.values.errors import Refusal, StoreError
from dpduck.values.quoting import fold, quote_identifier
from dpduck.values.records import as_array, read_record


@dataclass(frozen=True)
class TablesInEngine:
    """Tables of one engine as they are now. there: the name of the first one there. buckets: the number of buckets."""

    name: str
    engine: SparkEngine
    there: str
    places: Mapping[str, TablePlace]
    buckets: int


@dataclass(frozen=True)
class TablePack:
    """Packed tables of an engine. facts: the unit column and epoch of each table. at: the time of packing, in UTC."""

    engine: str
    packed: Packed
    facts: tuple[tuple[str | None, int], ...]
    at: str

    @property
    def tables(self) -> list[str]:
        return [name for name, _ in self.packed.tables]

    def is_of(self, policy: Policy) -> bool:
        """Tells whether the packed rows are of a policy's epoch and are packed by its units."""
        place = self.tables.index(policy.table.sql)
        return self.facts[place] == (unit_column(policy, self.packed.tables[place][1]), policy.epoch)

    def require_same(
        self, engine: SparkEngine, policies: Sequence[Policy], shapes: Mapping[TableName, Columns]
    ) -> None:
        """Refuses packed rows that were moved or replaced, or do not fit the present policies and columns."""
        columns = dict(self.packed.tables)
        same = all(self.is_of(policy) and columns[policy.table.sql] == shapes[policy.table] for policy in policies)
        if not same or not engine.is_packed(self.packed):
            names = ", ".join(str(policy.table) for policy in policies)
            raise Refusal(
                f"{names}, or what was prepared of it, changed since then",
                accepted=f"ALTER PRIVACY POLICY ON {names} PREPARE, which reads its rows anew, or UNPREPARE",
            )


class PreparedThere:
    """Prepared tables of engines, as the store has them. placed: locates tables. engine: finds an engine by name."""

    def __init__(
        self,
        open_cursor: OpenCursor,
        store: str,
        policies: PolicyStore,
        placed: Callable[[Sequence[Policy]], TablesInEngine],
        engine: Callable[[str], SparkEngine | None],
    ) -> None:
        self._open_cursor, self._policies = open_cursor, policies
        self._table = f"{quote_identifier(store)}.dpduck.engine_packs"
        self._placed, self._engine = placed, engine
        self._packs = list[TablePack]()

    def read_records(self) -> None:
        with self._open_cursor() as cursor:
            rows = cursor.execute(f"SELECT facts FROM {self._table} WHERE facts IS NOT NULL").fetchall()
            self._packs = [read_record(TablePack, facts) for (facts,) in rows]

    def at(self) -> dict[str, str]:
        return {table: record.at for record in self._packs for table in record.tables}

    def rows(self, table: TableName) -> float | None:
        """Returns the number of prepared rows, for the owner alone. None if no such rows can be read."""
        record = self.of([table])
        engine = None if record is None else self._engine(record.engine)
        if record is None or engine is None or not engine.is_packed(record.packed):
            return None
        return float(engine.count_rows(record.packed, table.sql))

    def of(self, private: Sequence[TableName]) -> TablePack | None:
        """Returns the pack with the rows of these tables, if they have one. Refuses tables of several moments."""
        records = [next((record for record in self._packs if table.sql in record.tables), None) for table in private]
        if any(record != records[0] for record in records):
            names = ", ".join(map(str, private))
            raise Refusal(f"{names} are not of one moment", accepted=f"ALTER PRIVACY POLICY ON {names} PREPARE")
        return records[0]

    def prepare(self, policies: Sequence[Policy], bounding_key: bytes, anew: bool = False) -> str:
        """Prepares tables at one moment. Without `anew`, does so only if one is not prepared under its policy."""
        if anew or not all(map(self._is_prepared, policies)):
            self._take(self._pack_groups(policies, bounding_key))
        return self._done(policies)

    @contextmanager
    def changing(self, policies: Sequence[Policy], bounding_key: bytes) -> Iterator[list[str]]:
        """Prepares tables again for policies with new units or epochs that the block puts in force. Yields messages."""
        packs = {table: entry for entry in self._packs for table in entry.tables}
        changed = [entry for entry in policies if entry.table.sql in packs and not packs[entry.table.sql].is_of(entry)]
        written, said = self._pack_groups(changed, bounding_key) if changed else [], list[str]()
        try:
            yield said
        except BaseException:
            self._take([])
            raise
        self._take(written)
        said.extend(["; " + self._done(changed)] if changed else [])

    def unprepare(self, table: TableName) -> None:
        """Goes back to the live rows of a table, and of all tables in its pack, since they are of one moment."""
        if table.sql in self.at():
            self._keep([record for record in self._packs if table.sql not in record.tables])

    def clear(self, name: str) -> None:
        """Deletes packed tables of an engine that are not in use: they were replaced, or not written completely."""
        engine = self._engine(name)
        if engine is None:
            return
        with self._open_cursor() as cursor:
            left = cursor.execute(f"SELECT there FROM {self._table} WHERE engine = ? AND facts IS NULL", [name])
            for (there,) in left.fetchall():
                with suppress(Exception):  # the rest is deleted when the engine is attached next
                    engine.unpack(str(there))
                    cursor.execute(f"DELETE FROM {self._table} WHERE there = ?", [there])

    def _is_prepared(self, policy: Policy) -> bool:
        record = next((pack for pack in self._packs if policy.table.sql in pack.tables), None)
        engine = None if record is None else self._engine(record.engine)
        return record is not None and record.is_of(policy) and engine is not None and engine.is_packed(record.packed)

    def _done(self, policies: Sequence[Policy]) -> str:
        at = self.at()
        text = (f"{one.table} is prepared: new questions are about its rows of {at[one.table.sql]}" for one in policies)
        return "; ".join(text) + ", until NEW EPOCH or UNPREPARE"

    def _pack_groups(self, policies: Sequence[Policy], bounding_key: bytes) -> list[TablePack]:
        """Packs tables, and repacks the packed tables that share their units. No new pack is in use yet."""
        units, named = {policy.unit.key for policy in policies}, {entry.table.sql for entry in policies}
        beside = (self._policies.policy(table_from_sql(name)) for name in self.at() if name not in named)
        every = [*policies, *(entry for entry in beside if entry is not None and entry.unit.key in units)]
        shared = ([entry for entry in every if entry.unit.key == unit] for unit in sorted(units))
        return [self._pack(entry, key_integer(bounding_key)) for entry in shared]

    def _pack(self, policies: Sequence[Policy], key: int) -> TablePack:
        placed, nonce, packed = self._placed(policies), secrets.token_hex(16), None
        there, at = f"{placed.there.rpartition('.')[0]}.dpduck_packed_{nonce}", datetime.now(UTC)
        with self._open_cursor() as cursor:
            cursor.execute(f"INSERT INTO {self._table} VALUES (?, ?, NULL)", [placed.name, there])
        with suppress(Exception):  # its error could quote data
            packed = placed.engine.pack(placed.places, placed.buckets, there, nonce, key)
        if packed is None:
            self.clear(placed.name)
            raise StoreError(
                f"{', '.join(str(owned.table) for owned in policies)} cannot be prepared: the engine could not write a "
                f"table beside {placed.there}; accepted: a schema in which its session may create tables"
            )
        facts = tuple((placed.places[owned.table.sql].unit, owned.epoch) for owned in policies)
        return TablePack(placed.name, packed, facts, f"{at:%Y-%m-%d %H:%M:%S}")

    def _take(self, written: Sequence[TablePack]) -> None:
        replaced = {table for record in written for table in record.tables}
        self._keep([*(record for record in self._packs if not replaced & set(record.tables)), *written])

    def _keep(self, prepared: Sequence[TablePack]) -> None:
        with self._open_cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"UPDATE {self._table} SET facts = NULL")
            for record in prepared:
                facts = json.dumps(record, default=as_array)
                cursor.execute(f"UPDATE {self._table} SET facts = ? WHERE there = ?", [facts, record.packed.there])
            left = cursor.execute(f"SELECT DISTINCT engine FROM {self._table} WHERE facts IS NULL").fetchall()
            cursor.execute("COMMIT")
        self._packs = list(prepared)
        for (name,) in left:
            self.clear(str(name))


def unit_column(policy: Policy, columns: Columns) -> str | None:
    """Returns the unit's column in the table's own spelling. None if each row is a unit."""
    names = {fold(name): name for name, _ in columns}
    return None if policy.unit.column is None else names.get(fold(policy.unit.column))
