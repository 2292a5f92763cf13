"""Prepared tables of an engine: they lie packed in a table of the engine's own, as pieces of whole privacy units.

Tables that share their units are packed into one table, and are of one moment. A statement reads the columns that it
needs of each piece; nothing is grouped, or sent from task to task.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import Any

from dpduck.engines.spark import Columns, Packed, Place, SparkEngine
from dpduck.kernel.contributions import key_integer
from dpduck.language.rows.facts import Policy
from dpduck.language.text.names import TableName
from dpduck.store.cursors import OpenCursor
from dpduck.store.policies import PolicyStore, named_in_sql
from dpduck.values.errors import Refusal, StoreError
from dpduck.values.quoting import fold, quote_identifier


@dataclass(frozen=True)
class Placed:
    """Tables of one engine, as they lie there now. there: the name of the first. buckets: of their units."""

    name: str
    engine: SparkEngine
    there: str
    places: Mapping[str, Place]
    buckets: int


@dataclass(frozen=True)
class Prepared:
    """Tables of an engine that lie packed. facts: the column of the units of each, and the epoch. at: when, in UTC."""

    engine: str
    packed: Packed
    facts: tuple[tuple[str | None, int], ...]
    at: str

    @property
    def tables(self) -> list[str]:
        """Returns their names in SQL."""
        return [name for name, _ in self.packed.tables]

    def is_of(self, policy: Policy) -> bool:
        """Tells whether rows are those of a policy's epoch, and lie by its units."""
        place = self.tables.index(policy.table.sql)
        return self.facts[place] == (unit_column(policy, self.packed.tables[place][1]), policy.epoch)

    def require_same(
        self, engine: SparkEngine, policies: Sequence[Policy], shapes: Mapping[TableName, Columns]
    ) -> None:
        """Refuses rows that lie elsewhere than they were written, or not by the policies and columns in force."""
        columns = dict(self.packed.tables)
        same = all(self.is_of(one) and columns[one.table.sql] == shapes[one.table] for one in policies)
        if not same or not engine.is_packed(self.packed):
            names = ", ".join(str(one.table) for one in policies)
            raise Refusal(
                f"{names}, or what was prepared of it, changed since then",
                accepted=f"ALTER PRIVACY POLICY ON {names} PREPARE, which reads its rows anew, or UNPREPARE",
            )


class PreparedThere:
    """What is prepared in engines, as the store says. placed: looks at tables. engine: one that is attached."""

    def __init__(
        self,
        open_cursor: OpenCursor,
        store: str,
        policies: PolicyStore,
        placed: Callable[[Sequence[Policy]], Placed],
        engine: Callable[[str], SparkEngine | None],
    ) -> None:
        self._open_cursor, self._policies = open_cursor, policies
        self._table = f"{quote_identifier(store)}.dpduck.engine_packs"
        self._placed, self._engine = placed, engine
        self._known = list[Prepared]()

    def read_records(self) -> None:
        """Reads the list of prepared tables."""
        with self._open_cursor() as cursor:
            rows = cursor.execute(f"SELECT facts FROM {self._table} WHERE facts IS NOT NULL").fetchall()
            self._known = [_read(*json.loads(facts)) for (facts,) in rows]

    def at(self) -> dict[str, str]:
        """Tells when each table was prepared, by its name in SQL."""
        return {table: one.at for one in self._known for table in one.tables}

    def rows(self, table: TableName) -> float | None:
        """Returns how many rows were prepared, for their owner alone; None where none were, or none can be read."""
        known = self.of([table])
        engine = None if known is None else self._engine(known.engine)
        if known is None or engine is None or not engine.is_packed(known.packed):
            return None
        return float(engine.packed_rows(known.packed, table.sql))

    def of(self, private: Sequence[TableName]) -> Prepared | None:
        """Returns where the rows of tables lie packed; a Refusal where they are not of one moment."""
        found = [next((one for one in self._known if table.sql in one.tables), None) for table in private]
        if any(one != found[0] for one in found):
            names = ", ".join(map(str, private))
            raise Refusal(f"{names} are not of one moment", accepted=f"ALTER PRIVACY POLICY ON {names} PREPARE")
        return found[0]

    def prepare(self, policies: Sequence[Policy], bounding_key: bytes, anew: bool = False) -> str:
        """Prepares tables, in one moment; unless anew, only where they are not prepared as their policies say."""
        if anew or not all(map(self._is_prepared, policies)):
            self._take(self._written(policies, bounding_key))
        return self._done(policies)

    @contextmanager
    def changing(self, policies: Sequence[Policy], bounding_key: bytes) -> Iterator[list[str]]:
        """Prepares anew for policies that will be in force after this, of other units or epochs; says so."""
        known = {table: one for one in self._known for table in one.tables}
        changed = [one for one in policies if one.table.sql in known and not known[one.table.sql].is_of(one)]
        written, said = self._written(changed, bounding_key) if changed else [], list[str]()
        try:
            yield said
        except BaseException:
            self._take([])
            raise
        self._take(written)
        said.extend(["; " + self._done(changed)] if changed else [])

    def unprepare(self, table: TableName) -> None:
        """Goes back to a table itself, and to those that were prepared with it: they are of one moment."""
        if table.sql in self.at():
            self._keep([one for one in self._known if table.sql not in one.tables])

    def clear(self, name: str) -> None:
        """Deletes what lies packed in an engine and is not in use: it was replaced, or never finished."""
        engine = self._engine(name)
        if engine is None:
            return
        with self._open_cursor() as cursor:
            left = cursor.execute(f"SELECT there FROM {self._table} WHERE engine = ? AND facts IS NULL", [name])
            for (there,) in left.fetchall():
                with suppress(Exception):  # what is left is deleted when the engine is attached next
                    engine.unpack(str(there))
                    cursor.execute(f"DELETE FROM {self._table} WHERE there = ?", [there])

    def _is_prepared(self, policy: Policy) -> bool:
        known = next((one for one in self._known if policy.table.sql in one.tables), None)
        engine = None if known is None else self._engine(known.engine)
        return known is not None and known.is_of(policy) and engine is not None and engine.is_packed(known.packed)

    def _done(self, policies: Sequence[Policy]) -> str:
        at = self.at()
        told = (f"{one.table} is prepared: new questions are about its rows of {at[one.table.sql]}" for one in policies)
        return "; ".join(told) + ", until NEW EPOCH or UNPREPARE"

    def _written(self, policies: Sequence[Policy], bounding_key: bytes) -> list[Prepared]:
        """Packs tables, and anew those that share their units and are packed; none is in use yet."""
        units, named = {policy.unit.key for policy in policies}, {one.table.sql for one in policies}
        beside = (self._policies.policy(named_in_sql(name)) for name in self.at() if name not in named)
        every = [*policies, *(one for one in beside if one is not None and one.unit.key in units)]
        shared = ([one for one in every if one.unit.key == unit] for unit in sorted(units))
        return [self._pack(one, key_integer(bounding_key)) for one in shared]

    def _pack(self, policies: Sequence[Policy], key: int) -> Prepared:
        """Packs tables that share their units into one table, beside the first of them."""
        found, nonce, packed = self._placed(policies), secrets.token_hex(16), None
        there, at = f"{found.there.rpartition('.')[0]}.dpduck_packed_{nonce}", datetime.now(UTC)
        with self._open_cursor() as cursor:
            cursor.execute(f"INSERT INTO {self._table} VALUES (?, ?, NULL)", [found.name, there])
        with suppress(Exception):  # whatever it says could quote data
            packed = found.engine.pack(found.places, found.buckets, there, nonce, key)
        if packed is None:
            self.clear(found.name)
            raise StoreError(
                f"{', '.join(str(one.table) for one in policies)} cannot be prepared: the engine could not write a "
                f"table beside {found.there}; accepted: a schema in which its session may create tables"
            )
        facts = tuple((found.places[one.table.sql].unit, one.epoch) for one in policies)
        return Prepared(found.name, packed, facts, f"{at:%Y-%m-%d %H:%M:%S}")

    def _take(self, written: Sequence[Prepared]) -> None:
        """Puts packed tables into use, all at once, and deletes those that they replace."""
        replaced = {table for one in written for table in one.tables}
        self._keep([*(one for one in self._known if not replaced & set(one.tables)), *written])

    def _keep(self, prepared: Sequence[Prepared]) -> None:
        with self._open_cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"UPDATE {self._table} SET facts = NULL")
            for one in prepared:
                facts = json.dumps(astuple(one))
                cursor.execute(f"UPDATE {self._table} SET facts = ? WHERE there = ?", [facts, one.packed.there])
            left = cursor.execute(f"SELECT DISTINCT engine FROM {self._table} WHERE facts IS NULL").fetchall()
            cursor.execute("COMMIT")
        self._known = list(prepared)
        for (name,) in left:
            self.clear(str(name))


def unit_column(policy: Policy, columns: Columns) -> str | None:
    """Returns the column that holds the unit, as the table writes it; None where each row is one."""
    names = {fold(name): name for name, _ in columns}
    return None if policy.unit.column is None else names.get(fold(policy.unit.column))


def _read(engine: str, packed: Sequence[Any], facts: Sequence[Sequence[Any]], at: str) -> Prepared:
    there, identity, mark, pieces, tables = packed
    read = tuple((str(name), tuple((str(one), str(of)) for one, of in columns)) for name, columns in tables)
    place = Packed(str(there), str(identity), str(mark), int(pieces), read)
    return Prepared(engine, place, tuple((unit, int(epoch)) for unit, epoch in facts), at)
