"""Measurements of a release, stored beside it: noisy integers, their noise, and a digest of the rows' definition.

All of this was released or is public. mechanisms/known computes estimates from it. Answers are not stored here, since
options may have changed them after the noise.
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
from dpduck.language.rows.facts import RequestRows
from dpduck.store.cursors import OpenCursor
from dpduck.values.arrays import IntegerArray
from dpduck.values.domain import Domain
from dpduck.values.quoting import quote_identifier, written_values
from dpduck.values.records import as_object, read_record

MOST_BYTES = 1 << 30
"""Largest size of the cached measurements in bytes."""

_PLAIN: Mapping[str, type[IdentityFactor] | type[CentredFactor] | type[HadamardFactor]] = {
    "identity": IdentityFactor, "centred": CentredFactor, "hadamard": HadamardFactor,
}  # fmt: skip


@dataclass(frozen=True)
class MeasuredColumn:
    """Column that keys depend on. domain: digest of its public domain. size: number of codes of the domain."""

    sql: str
    domain: str
    size: int


@dataclass(frozen=True)
class MeasuredKey:
    """Key: positions of its columns, number of labels, and a label for each combination of codes, -1 for none."""

    columns: tuple[int, ...]
    labels: int
    codes: tuple[int, ...]


@dataclass(frozen=True)
class MeasuredTable:
    """Integers of rows that add up to tables, all under the same queries: see mechanisms.cubes.measures.Measure.

    group: number of its group of queries. keys: positions of the keys by which its rows were counted. Earlier stores
    have None for all keys.
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
        return self.degree + 1 + self.rest if self.form == "moments" else 1


@dataclass(frozen=True)
class MeasuredQuery:
    """One integer query: its keys, the factor along each key, and the parameter of its noise."""

    keys: tuple[int, ...]
    factors: tuple[Factor, ...]
    parameter: Fraction


@dataclass(frozen=True, eq=False)
class Measured:
    """Additive measurements of one release.

    rows: digest of the rows' definition, without the conditions `filters`. bounded: whether a unit's rows were cut to
    MAX ROWS after these conditions. queries: the queries of each group. values: noisy arrays by table, then by query of
    the table's group, then by part.
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
class MeasurementRecord:
    """Stored measurements. moment: a text that is equal for releases about the same rows, "" if this is unknown."""

    name: str
    released_at: str
    moment: str
    measured: Measured


def rows_digest(rows: RequestRows) -> str:
    """Returns a digest of the rows' definition without conditions: tables, epochs, joins, units and bounds."""
    reads = [[read.table.sql, read.epoch] for read in rows.reads]
    facts = [
        rows.table.sql, rows.epoch, rows.from_sql, rows.unit_key, rows.unit_sql, rows.max_rows, rows.unit_bound,
        rows.content_sql, [[table.sql, digest] for table, digest in rows.public_digests], reads,
    ]  # fmt: skip
    facts += [str(rows.periods)] if rows.periods is not None else []  # a unit's rows are cut in each period
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def domain_digest(domain: Domain) -> str:
    """Returns a digest of a domain, equal for equal domains."""
    facts = [type(domain).__name__, asdict(domain)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


class RowsMoment(Protocol):
    """Prepared rows, with the moment at which they were read."""

    @property
    def moment(self) -> str: ...


class MeasuredStore:
    """Reader and writer of a store's measurements, which never change, so that the reader caches them."""

    def __init__(self, open_cursor: OpenCursor, store: str) -> None:
        self._open_cursor = open_cursor
        self._table = f"{quote_identifier(store)}.dpduck.measured"
        self._releases = f"{quote_identifier(store)}.dpduck.releases"
        self._session = secrets.token_hex(16)
        self._remembered: OrderedDict[str, tuple[Measured, int]] = OrderedDict()

    def save(
        self,
        name: str,
        rows: RequestRows,
        prepared: RowsMoment | None,
        noisy: bytes | None,
        cursor: duckdb.DuckDBPyConnection,
    ) -> None:
        """Stores the measurements of a release, in the release's transaction. prepared: the counted prepared rows."""
        if noisy is None:
            return
        moment = self.moment(rows, prepared, cursor)
        marks, values = written_values([name, rows.table.sql, moment, noisy])
        cursor.execute(f"INSERT INTO {self._table} VALUES ({marks})", values)

    def moment(self, rows: RequestRows, prepared: RowsMoment | None, cursor: duckdb.DuckDBPyConnection) -> str:
        """Returns the moment of the rows that are counted now, "" for rows that may change at any time."""
        return unchanging(cursor, rows, self._session) if prepared is None else f"prepared {prepared.moment}"

    def of(self, table: str, reader: str | None) -> list[MeasurementRecord]:
        """Returns a private table's measurements that a reader may see, oldest first. `reader` is None for the owner.

        These are the reader's own measurements, and those of private views, which every permitted caller may read. A
        view names its release. In earlier stores, a view has its release's digest and ledger entry. A digest alone is
        not enough.
        """
        seen, asked = "true", {"table": table}
        if reader is not None:
            earlier = "v.source IS NULL AND v.digest = r.digest AND v.ledger_id = r.ledger_id"
            viewed = f"EXISTS (FROM {self._releases} AS v WHERE v.kind = 'view' AND (v.source = r.name OR {earlier}))"
            seen, asked = f"(r.principal = $reader OR {viewed})", {"table": table, "reader": reader}
        with self._open_cursor() as cursor:
            rows = cursor.execute(
                f"SELECT r.name, CAST(r.released_at AS VARCHAR), m.moment FROM {self._table} AS m "
                f"JOIN {self._releases} AS r USING (name) "
                f"WHERE m.table_name = $table AND r.kind = 'answer' AND {seen} ORDER BY r.ledger_id",
                asked,
            ).fetchall()
            return [
                MeasurementRecord(str(name), str(at), str(moment), self._parse_archive(cursor, name))
                for name, at, moment in rows
            ]

    def find(self, name: str) -> Measured | None:
        with self._open_cursor() as cursor:
            row = cursor.execute(f"SELECT 1 FROM {self._table} WHERE name = ?", [name]).fetchone()
            return None if row is None else self._parse_archive(cursor, name)

    def one(self, name: str) -> MeasurementRecord | None:
        with self._open_cursor() as cursor:
            row = cursor.execute(
                f"SELECT CAST(r.released_at AS VARCHAR), m.moment FROM {self._table} AS m "
                f"JOIN {self._releases} AS r USING (name) WHERE name = ? AND r.kind = 'answer'",
                [name],
            ).fetchone()
            if row is None:
                return None
            return MeasurementRecord(name, str(row[0]), str(row[1]), self._parse_archive(cursor, name))

    def _parse_archive(self, cursor: duckdb.DuckDBPyConnection, name: str) -> Measured:
        if name not in self._remembered:
            ((noisy,),) = cursor.execute(f"SELECT noisy FROM {self._table} WHERE name = ?", [name]).fetchall()
            measured = measurements_from_bytes(noisy)
            size = sum(array.nbytes for table in measured.values for query in table for array in query)
            self._remembered[name] = measured, size
            while len(self._remembered) > 1 and sum(size for _, size in self._remembered.values()) > MOST_BYTES:
                self._remembered.popitem(last=False)
        return self._remembered[name][0]


def measurements_to_bytes(measured: Measured) -> bytes:
    """Returns measurements as a compressed archive of arrays. The first array is their description."""
    arrays: list[NDArray[np.integer]] = []

    def add_array(array: IntegerArray) -> int:
        arrays.append(_narrow(array))
        return len(arrays) - 1

    def factor(operator: Factor) -> list[object]:
        if isinstance(operator, MatrixFactor):
            entries = scipy.sparse.coo_array(operator.entries)
            rows, columns = (np.asarray(part, np.int64) for part in entries.coords)
            return ["matrix", *entries.shape, add_array(rows), add_array(columns), add_array(entries.data)]
        return [next(name for name, kind in _PLAIN.items() if isinstance(operator, kind)), operator.size]

    queries = [
        [[query.keys, [factor(operator) for operator in query.factors], query.parameter] for query in group]
        for group in measured.queries
    ]
    facts = {
        "rows": measured.rows,
        "filters": measured.filters,
        "bounded": measured.bounded,
        "columns": measured.columns,
        "keys": [[key.columns, key.labels, add_array(np.array(key.codes, np.int64))] for key in measured.keys],
        "noise": measured.noise,
        "tables": [
            {name: value for name, value in as_object(table).items() if value is not None} for table in measured.tables
        ],
        "queries": queries,
    }
    flat = [part.ravel() for table in measured.values for query in table for part in query]
    add_array(np.concatenate([*flat, np.zeros(0, np.int64)]))
    listed: dict[str, Any] = {f"a{number}": array for number, array in enumerate(arrays)}
    file = io.BytesIO()
    np.savez_compressed(file, facts=np.frombuffer(json.dumps(facts, default=as_object).encode(), np.uint8), **listed)
    return file.getvalue()


def _narrow(array: IntegerArray) -> NDArray[np.integer]:
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    fitting = (
        kind for kind in (np.int8, np.int16, np.int32) if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max
    )
    return array.astype(next(fitting, np.int64))


def measurements_from_bytes(noisy: bytes) -> Measured:
    """Reads the measurements that measurements_to_bytes wrote."""
    bare, values = _load(noisy)
    place, tables = 0, list[tuple[tuple[IntegerArray, ...], ...]]()
    for table in bare.tables:
        of_table = []
        for query in bare.queries[table.group]:
            shape = tuple(factor.rows for factor in query.factors)
            parts = values[place : place + table.parts * prod(shape)].reshape(table.parts, *shape)
            place += parts.size
            of_table.append(tuple(parts))
        tables.append(tuple(of_table))
    return replace(bare, values=tuple(tables))


def _load(noisy: bytes) -> tuple[Measured, IntegerArray]:
    with np.load(io.BytesIO(noisy), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    facts = json.loads(arrays.pop("facts").tobytes())

    def array(number: int) -> IntegerArray:
        integers: IntegerArray = arrays[f"a{number}"].astype(np.int64)
        return integers

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
        read_record(tuple[MeasuredColumn, ...], facts["columns"]),
        tuple(
            MeasuredKey(tuple(columns), labels, tuple(array(codes).tolist()))
            for columns, labels, codes in facts["keys"]
        ),
        NoiseKind[facts["noise"]],
        read_record(tuple[MeasuredTable, ...], facts["tables"]),
        tuple(
            tuple(
                MeasuredQuery(tuple(keys), tuple(factor(*fields) for fields in factors), Fraction(parameter))
                for keys, factors, parameter in group
            )
            for group in facts["queries"]
        ),
        (),
    )
    return described, array(len(arrays) - 1)


def unchanging(cursor: duckdb.DuckDBPyConnection, rows: RequestRows, session: str) -> str:
    """Returns the moment of rows in databases that cannot change while they are attached, "" if they can change.

    DuckDB locks the file of a database that is open for reading, so that nobody writes it meanwhile. Changes before or
    after are not checked, since the check would look at private rows.
    """
    named = {table.parts[0] for table in (rows.table, *(read.table for read in rows.reads))}
    databases = cursor.execute(
        "SELECT database_name, database_oid FROM duckdb_databases() WHERE readonly AND type = 'duckdb' "
        "AND NOT internal AND NOT contains(path, '://') ORDER BY database_oid"
    ).fetchall()
    fixed = {str(name): int(oid) for name, oid in databases}
    return f"{session} {sorted(fixed[name] for name in named)}" if named <= fixed.keys() else ""
