"""State of a stream: a private file of exact counts, for one store and one stream. Older copies are refused.

The file has, version by version, the number of kept rows of each unit, the exact counts of each closed period, and the
noisy answers. One refresh adds one version, in one transaction that is on disk at its end. A version has a seal: a
keyed hash over the seal before it, the stream's identity, the number of periods, the sums and the answers. The sums
cover rows and counts. The ledger's chain records the seal of the last published version (Ledger.record), in one
transaction with the publication. So there are three cases:

* The last version of the file is the ledger's: the file is the newest, and the next version may be counted.
* The file is one version ahead, and the version before is the ledger's: the process ended between count and
  publication. A reader of the file may have seen that version's noise. It is published unchanged, never drawn again.
* Anything else is an older copy, another file, or another stream's file, and is refused.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from dpduck.kernel.counting.hidden import ExactCounts, Hidden
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.bounding import UNIT
from dpduck.kernel.stage import KEPT
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError, StoreError

TAKEN, ARRIVED, POURED = "dpduck_taken", "dpduck_arrived", "dpduck_poured"

FEW_KEPT = 100_000
"""Number of rows of the table `kept` below which they are not merged."""


@dataclass(frozen=True)
class LedgerVersion:
    """Last published version of a stream, as the ledger recorded it. version: 0 if none was published."""

    version: int
    seal: str


@dataclass(frozen=True)
class StreamShape:
    """Shape of a stream's file. identity: text that names the store, the statement and the charge.

    unit_type: type of the unit column. attributes: number of codes of a cell. tables: number of integers of a cell.
    """

    identity: str
    unit_type: str
    attributes: int
    tables: int


@dataclass(frozen=True)
class Version:
    """Addition of one refresh to the file. closed: number of periods so far. answers: by row, ask, table and cell."""

    version: int
    closed: int
    seal: str
    answers: IntegerArray


class StreamState(Hidden):
    """Hidden open file of one stream. place: the attached database, quoted. key: the secret key of the seals."""

    __slots__ = ("_cursor", "_key", "_place", "_shape", "versions")

    def __init__(self, cursor: duckdb.DuckDBPyConnection, place: str, shape: StreamShape, key: bytes) -> None:
        self._cursor, self._place, self._shape, self._key = cursor, place, shape, key
        self.versions: list[Version] = []

    @property
    def kept_table(self) -> str:
        return f"{self._place}.main.kept"

    @property
    def number_closed(self) -> int:
        return self.versions[-1].closed if self.versions else 0

    def create(self) -> None:
        codes = ", ".join(f"c{number} BIGINT" for number in range(self._shape.attributes))
        counts = ", ".join(f"t{number} BIGINT" for number in range(self._shape.tables))
        self._run("BEGIN")
        for table in (
            "header (identity VARCHAR, seal VARCHAR)",
            f"kept (version INTEGER, {UNIT} {self._shape.unit_type}, {KEPT} INTEGER)",
            f"counts (version INTEGER, {codes}, {counts})",
            "versions (version INTEGER, closed INTEGER, sums VARCHAR, seal VARCHAR, answers BLOB)",
        ):
            self._run(f"CREATE TABLE {self._place}.main.{table}")
        self._run(f"INSERT INTO {self._place}.main.header VALUES ($a, $b)", a=self._shape.identity, b=self._seal(""))
        self._run("COMMIT")

    def open(self, recorded: LedgerVersion) -> None:
        """Reads the versions. Raises StoreError unless the file is the newest one of this stream."""
        try:
            identity, seal = self._columns("SELECT identity, seal FROM {}.main.header")
            arrays = self._columns("SELECT version, closed, sums, seal, answers FROM {}.main.versions ORDER BY version")
            sums = self._sums()
        except InternalError:
            raise file_refusal("cannot be read") from None
        if list(identity) != [self._shape.identity] or not _same(str(seal[0]), self._seal("")):
            raise file_refusal("is that of another stream, epoch or store")
        before, stored_sums = self._seal(""), " ".join(["0"] * (2 + self._shape.tables))
        for number, (version, closed, stored_sums, seal_now, answers) in enumerate(zip(*arrays, strict=True), 1):
            if len(answers) % 8:
                raise file_refusal("is not what was written")
            record = Version(int(version), int(closed), str(seal_now), np.frombuffer(bytes(answers), np.int64))
            facts = (number, record.closed, str(stored_sums), record.answers)
            if record.version != number or not _same(record.seal, self._version_seal(before, *facts)):
                raise file_refusal("is not what was written")
            before = record.seal
            self.versions.append(record)
        if sums != stored_sums:
            raise file_refusal("is not what was written")
        if not self._is_newest(recorded):
            raise file_refusal("is an older copy, or another one")

    def _is_newest(self, recorded: LedgerVersion) -> bool:
        ahead = len(self.versions) - recorded.version
        if ahead not in (0, 1):
            return False
        return recorded.version == 0 or _same(self.versions[recorded.version - 1].seal, recorded.seal)

    def counts(self, counts: ExactCounts) -> ExactCounts:
        columns = self._columns(f"SELECT {', '.join(self._count_columns())} FROM {{}}.main.counts")
        arrays = [np.ma.getdata(column).astype(np.int64) for column in columns]
        size = self._shape.attributes
        codes = tuple(np.concatenate([*pair]) for pair in zip(arrays[:size], counts._exact_coordinates, strict=True))
        tables = np.concatenate([np.array(arrays[size:], np.int64), counts._exact_counts], axis=1)
        return ExactCounts(codes, tables, counts._sizes, counts._unit_bounds)

    def add(self, closed: int, counts: ExactCounts, answers: IntegerArray) -> Version:
        """Writes a version: the kept rows by unit, their counts, and the answers, in one transaction."""
        number, before = len(self.versions) + 1, self.versions[-1].seal if self.versions else self._seal("")
        flat = np.ascontiguousarray(answers, np.int64).reshape(-1)
        rows = [*counts._exact_coordinates, *counts._exact_counts]
        cells = pa.Table.from_pydict({name: pa.array(of) for name, of in zip(self._count_columns(), rows, strict=True)})
        place = f"{self._place}.main"
        try:
            self._run("BEGIN")
            kept_sql = f"SELECT {number}, {UNIT}, count(*) FROM {TAKEN} GROUP BY {UNIT}"
            self._run(f"INSERT INTO {place}.kept {kept_sql}")
            add = f"INSERT INTO {place}.counts SELECT {number}, * FROM {POURED}"
            reader.pour_rows(
                self._cursor, add, {}, POURED, pa.RecordBatchReader.from_batches(cells.schema, cells.to_batches())
            )
            self._merge()
            sums = self._sums()
            seal = self._version_seal(before, number, closed, sums, flat)
            row = f"INSERT INTO {place}.versions VALUES ({number}, {int(closed)}, $sums, $seal, $answers)"
            self._run(row, sums=sums, seal=seal, answers=flat.tobytes())
            self._run("COMMIT")
        except InternalError:
            raise StoreError(
                "the file of the stream cannot be written; nothing was measured; accepted: the same when there is room"
            ) from None
        self.versions.append(Version(number, closed, seal, flat))
        return self.versions[-1]

    def _sums(self) -> str:
        """Returns one text with the number of kept rows, the number of counts, and the XOR of each table."""
        kept_sql = f"SELECT CAST(ifnull(sum({KEPT}), 0) AS BIGINT) FROM {{0}}.main.kept"
        tables = [f"CAST(ifnull(bit_xor(t{number}), 0) AS BIGINT)" for number in range(self._shape.tables)]
        counts = f"SELECT count(*), {', '.join(tables)} FROM {{0}}.main.counts"
        return " ".join(str(int(column[0])) for sql in (kept_sql, counts) for column in self._columns(sql))

    def _merge(self) -> None:
        """Merges the rows of each unit, if FEW_KEPT or more rows exist and at least half are new."""
        # so a refresh reads at most twice as many rows as there are units, or FEW_KEPT, after any number of refreshes
        (merged,), (every,) = self._columns("SELECT count(*) FILTER (version = 0), count(*) FROM {}.main.kept")
        if int(every) >= max(2 * int(merged), FEW_KEPT):
            added = f"CAST(sum({KEPT}) AS INTEGER) AS {KEPT}"
            sums = f"SELECT 0 AS version, {UNIT}, {added} FROM {self.kept_table} GROUP BY {UNIT}"
            self._run(f"CREATE OR REPLACE TABLE {self.kept_table} AS {sums}")

    def _count_columns(self) -> list[str]:
        codes = [f"c{number}" for number in range(self._shape.attributes)]
        return [*codes, *(f"t{number}" for number in range(self._shape.tables))]

    def _version_seal(self, before: str, number: int, closed: int, sums: str, answers: IntegerArray) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(answers, np.int64).tobytes()).hexdigest()
        return self._seal(f"{before} {number} {closed} {sums} {digest}")

    def _seal(self, text: str) -> str:
        message = f"dpduck stream\n{self._shape.identity}\n{text}".encode()
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()

    def _columns(self, sql: str) -> list[np.ndarray]:
        return reader.columns(self._cursor, sql.format(self._place), {})

    def _run(self, sql: str, **parameters: object) -> None:
        reader.run(self._cursor, sql, parameters)


def _same(first: str, other: str) -> bool:
    return hmac.compare_digest(first.encode(), other.encode())


def file_refusal(why: str) -> StoreError:
    """Returns the refusal of a stream's file."""
    return StoreError(
        f"the file of this stream {why}, and nothing is measured; accepted: the file as it was last written; or DROP "
        "PRIVATE STREAM, and CREATE, which pays again"
    )
