"""What a release measured, kept beside it: noisy integers, of which noise, and which rows they are about.

All of it was released or is public. Answers that options moved after the noise are no part of it: what is known is
worked out from what was measured (mechanisms/known).
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any, Protocol

import duckdb
import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.queries.operators import CentredFactor, Factor, HadamardFactor, IdentityFactor, MatrixFactor
from dpduck.language.rows.facts import Rows
from dpduck.store.cursors import OpenCursor
from dpduck.values.arrays import IntegerArray
from dpduck.values.domain import Domain
from dpduck.values.quoting import quote_identifier, written_values

MOST_BYTES = 1 << 30
"""Of measurements that are remembered."""

_PLAIN: Mapping[str, type[IdentityFactor] | type[CentredFactor] | type[HadamardFactor]] = {
    "identity": IdentityFactor, "centred": CentredFactor, "hadamard": HadamardFactor,
}  # fmt: skip


@dataclass(frozen=True)
class MeasuredColumn:
    """A column that keys depend on. domain: a digest of its public domain. size: how many codes that has."""

    sql: str
    domain: str
    size: int


@dataclass(frozen=True)
class MeasuredKey:
    """A key: positions of its columns, and for each combination of their codes its label, -1 where it has none."""

    columns: tuple[int, ...]
    labels: int
    codes: tuple[int, ...]


@dataclass(frozen=True)
class MeasuredTable:
    """What rows added up to tables that were measured alike: see cubes.measures.Measure. group: which queries.

    keys: positions of the keys by which its rows were counted. None stands for all keys.
    """

    form: str
    condition: str
    value: str
    low: Fraction
    high: Fraction
    step: Fraction
    steps: int
    degree: int
    rest: bool
    group: int
    keys: tuple[int, ...] | None = None

    @property
    def parts(self) -> int:
        """Tells how many tables of integers it has."""
        return self.degree + 1 + self.rest if self.form == "moments" else 1


@dataclass(frozen=True)
class MeasuredQuery:
    """One integer query: its keys, and what it asks along them. parameter: of its noise."""

    keys: tuple[int, ...]
    factors: tuple[Factor, ...]
    parameter: Fraction


@dataclass(frozen=True, eq=False)
class Measured:
    """All that one release measured and that adds up.

    rows: a digest of which rows were counted, but for the conditions `filters`. bounded: whether a unit's rows were
    cut to its MAX ROWS after these conditions. queries: of each group. values: of each table in turn an array for each
    query of its group, and of each of these for each of its parts.
    """

    rows: str
    filters: tuple[str, ...]
    bounded: bool
    columns: tuple[MeasuredColumn, ...]
    keys: tuple[MeasuredKey, ...]
    noise: NoiseKind
    tables: tuple[MeasuredTable, ...]
    queries: tuple[tuple[MeasuredQuery, ...], ...]
    values: tuple[tuple[tuple[IntegerArray, ...], ...], ...]

    def keys_of(self, table: MeasuredTable) -> dict[int, MeasuredKey]:
        """Returns the keys by which the rows of a table were counted, by position."""
        return {place: key for place, key in enumerate(self.keys) if table.keys is None or place in table.keys}


@dataclass(frozen=True, eq=False)
class Kept:
    """Measurements in the store. moment: of the rows, equal for releases about the same ones; "" where nobody knows."""

    name: str
    released_at: str
    moment: str
    measured: Measured


def rows_digest(rows: Rows) -> str:
    """Tells which rows are counted, but for conditions: of which tables and epochs, joined how, of whom, at most how
    many.
    """
    reads = [[read.table.sql, read.epoch] for read in rows.reads]
    facts = [
        rows.table.sql, rows.epoch, rows.from_sql, rows.unit_key, rows.unit_sql, rows.max_rows, rows.unit_bound,
        rows.content_sql, [[table.sql, digest] for table, digest in rows.public_digests], reads,
    ]  # fmt: skip
    facts += [str(rows.periods)] if rows.periods is not None else []  # a unit's rows are cut in each of them
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def domain_digest(domain: Domain) -> str:
    """Returns equal for equal domains."""
    facts = [type(domain).__name__, asdict(domain)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


class Moment(Protocol):
    """Rows of one moment."""

    @property
    def moment(self) -> str: ...


class MeasuredStore:
    """Reads and writes measurements of a store; those that were read are remembered, since they never change."""

    def __init__(self, open_cursor: OpenCursor, store: str) -> None:
        self._open_cursor = open_cursor
        self._table = f"{quote_identifier(store)}.dpduck.measured"
        self._releases = f"{quote_identifier(store)}.dpduck.releases"
        self._session = secrets.token_hex(16)
        self._known: OrderedDict[str, tuple[Measured, int]] = OrderedDict()

    def put(
        self, name: str, rows: Rows, prepared: Moment | None, noisy: bytes | None, cursor: duckdb.DuckDBPyConnection
    ) -> None:
        """Stores the measurements of a release, in the transaction that stores it. prepared: what was counted."""
        if noisy is None:
            return
        moment = self.moment(rows, prepared, cursor)
        marks, values = written_values([name, rows.table.sql, moment, noisy])
        cursor.execute(f"INSERT INTO {self._table} VALUES ({marks})", values)

    def moment(self, rows: Rows, prepared: Moment | None, cursor: duckdb.DuckDBPyConnection) -> str:
        """Names the moment of the rows that are counted now; "" of rows that may change at any time."""
        return unchanging(cursor, rows, self._session) if prepared is None else f"prepared {prepared.moment}"

    def of(self, table: str, reader: str | None) -> list[Kept]:
        """Returns measurements of a private table that a reader may know of, oldest first; None for its owner.

        They are the reader's own, and those behind private views, which whoever may ask at all may read. What is
        behind a view is named by it, or was paid for by its charge (in stores of before): not all of the same digest.
        """
        seen, asked = "true", {"table": table}
        if reader is not None:
            earlier = "v.source IS NULL AND v.digest = r.digest AND v.ledger_id = r.ledger_id"
            viewed = f"EXISTS (FROM {self._releases} AS v WHERE v.kind = 'view' AND (v.source = r.name OR {earlier}))"
            seen, asked = f"(r.principal = $reader OR {viewed})", {"table": table, "reader": reader}
        with self._open_cursor() as cursor:
            found = cursor.execute(
                f"SELECT r.name, CAST(r.released_at AS VARCHAR), m.moment FROM {self._table} AS m "
                f"JOIN {self._releases} AS r USING (name) "
                f"WHERE m.table_name = $table AND r.kind = 'answer' AND {seen} ORDER BY r.ledger_id",
                asked,
            ).fetchall()
            return [Kept(str(name), str(at), str(moment), self._read(cursor, name)) for name, at, moment in found]

    def kept(self, name: str) -> Measured | None:
        """Returns what a release measured; None where that is not kept."""
        with self._open_cursor() as cursor:
            found = cursor.execute(f"SELECT 1 FROM {self._table} WHERE name = ?", [name]).fetchone()
            return None if found is None else self._read(cursor, name)

    def one(self, name: str) -> Kept | None:
        """Returns the measurements of one release, with their moment; None where they are not kept."""
        with self._open_cursor() as cursor:
            found = cursor.execute(
                f"SELECT CAST(r.released_at AS VARCHAR), m.moment FROM {self._table} AS m "
                f"JOIN {self._releases} AS r USING (name) WHERE name = ? AND r.kind = 'answer'",
                [name],
            ).fetchone()
            return None if found is None else Kept(name, str(found[0]), str(found[1]), self._read(cursor, name))

    def _read(self, cursor: duckdb.DuckDBPyConnection, name: str) -> Measured:
        if name not in self._known:
            ((noisy,),) = cursor.execute(f"SELECT noisy FROM {self._table} WHERE name = ?", [name]).fetchall()
            measured = measured_from_bytes(noisy)
            size = sum(array.nbytes for table in measured.values for query in table for array in query)
            self._known[name] = measured, size
            while len(self._known) > 1 and sum(size for _, size in self._known.values()) > MOST_BYTES:
                self._known.popitem(last=False)
        return self._known[name][0]


def measured_to_bytes(measured: Measured) -> bytes:
    """Returns measurements as a compressed archive of arrays, whose first one is their description."""
    arrays: list[NDArray[np.integer]] = []

    def kept(array: IntegerArray) -> int:
        arrays.append(_narrowed(array))
        return len(arrays) - 1

    def factor(one: Factor) -> list[object]:
        if isinstance(one, MatrixFactor):
            entries = scipy.sparse.coo_array(one.entries)
            rows, columns = (np.asarray(part, np.int64) for part in entries.coords)
            return ["matrix", *entries.shape, kept(rows), kept(columns), kept(entries.data)]
        return [next(name for name, kind in _PLAIN.items() if isinstance(one, kind)), one.size]

    queries = [
        [[query.keys, [factor(one) for one in query.factors], str(query.parameter)] for query in group]
        for group in measured.queries
    ]
    facts = {
        "rows": measured.rows,
        "filters": measured.filters,
        "bounded": measured.bounded,
        "columns": [asdict(column) for column in measured.columns],
        "keys": [[key.columns, key.labels, kept(np.array(key.codes, np.int64))] for key in measured.keys],
        "noise": measured.noise.name,
        "tables": [
            {name: value for name, value in asdict(table).items() if value is not None} for table in measured.tables
        ],
        "queries": queries,
    }
    flat = [part.ravel() for table in measured.values for query in table for part in query]
    kept(np.concatenate([*flat, np.zeros(0, np.int64)]))
    listed: dict[str, Any] = {f"a{number}": array for number, array in enumerate(arrays)}
    file = io.BytesIO()
    np.savez_compressed(file, facts=np.frombuffer(json.dumps(facts, default=str).encode(), np.uint8), **listed)
    return file.getvalue()


def _narrowed(array: IntegerArray) -> NDArray[np.integer]:
    """Returns the same integers in the fewest bytes."""
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    fitting = (
        kind for kind in (np.int8, np.int16, np.int32) if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max
    )
    return array.astype(next(fitting, np.int64))


def measured_from_bytes(noisy: bytes) -> Measured:
    """Returns what measured_to_bytes wrote."""
    bare, values = _read(noisy)
    place, found = 0, list[tuple[tuple[IntegerArray, ...], ...]]()
    for table in bare.tables:
        of_table = []
        for query in bare.queries[table.group]:
            shape = tuple(one.rows for one in query.factors)
            parts = values[place : place + table.parts * prod(shape)].reshape(table.parts, *shape)
            place += parts.size
            of_table.append(tuple(parts))
        found.append(tuple(of_table))
    return replace(bare, values=tuple(found))


def _read(noisy: bytes) -> tuple[Measured, IntegerArray]:
    """Returns the description, and all values one after the other."""
    with np.load(io.BytesIO(noisy), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    facts = json.loads(arrays.pop("facts").tobytes())

    def array(number: int) -> IntegerArray:
        found: IntegerArray = arrays[f"a{number}"].astype(np.int64)
        return found

    def factor(kind: str, *numbers: int) -> Factor:
        if kind != "matrix":
            return _PLAIN[kind](*numbers)
        height, width, rows, columns, data = numbers
        placed = scipy.sparse.coo_array((array(data), (array(rows), array(columns))), shape=(height, width))
        return MatrixFactor(scipy.sparse.csr_array(placed))

    described = Measured(
        facts["rows"],
        tuple(facts["filters"]),
        facts["bounded"],
        tuple(MeasuredColumn(**column) for column in facts["columns"]),
        tuple(
            MeasuredKey(tuple(columns), labels, tuple(array(codes).tolist()))
            for columns, labels, codes in facts["keys"]
        ),
        NoiseKind[facts["noise"]],
        tuple(
            MeasuredTable(
                **{**table, **{name: Fraction(table[name]) for name in ("low", "high", "step")}, **_keys(table)}
            )
            for table in facts["tables"]
        ),
        tuple(
            tuple(
                MeasuredQuery(tuple(keys), tuple(factor(*one) for one in factors), Fraction(parameter))
                for keys, factors, parameter in group
            )
            for group in facts["queries"]
        ),
        (),
    )
    return described, array(len(arrays) - 1)


def _keys(table: Mapping[str, Any]) -> dict[str, tuple[int, ...] | None]:
    """Returns the keys of a table. Earlier stores have no such list, and mean all."""
    keys = table.get("keys")
    return {"keys": None if keys is None else tuple(keys)}


def unchanging(cursor: duckdb.DuckDBPyConnection, rows: Rows, session: str) -> str:
    """Returns a moment that rows keep because their databases cannot change while they are attached; "" where they can.

    DuckDB locks the file of a database that it has opened for reading, so that nobody writes it meanwhile. Whether it
    was written before or after is not looked at: that would be a look at private rows.
    """
    named = {table.parts[0] for table in (rows.table, *(read.table for read in rows.reads))}
    found = cursor.execute(
        "SELECT database_name, database_oid FROM duckdb_databases() WHERE readonly AND type = 'duckdb' "
        "AND NOT internal AND NOT contains(path, '://') ORDER BY database_oid"
    ).fetchall()
    fixed = {str(name): int(oid) for name, oid in found}
    return f"{session} {sorted(fixed[name] for name in named)}" if named <= fixed.keys() else ""
