"""What a stream has counted so far: a private file of its own, exact, bound to its store and stream, and never older.

The file has how many rows were kept of each unit, the exact counts of each period that closed, and the noisy answers
that were measured, version by version: a version is what one refresh adds, in one transaction that is on disk when it
is over. Each version has a seal, a keyed hash over the seal before it, the stream's identity, the number of periods,
how many rows and counts there are and what was measured. The ledger's chain holds the seal of the last version that
was published (Ledger.record), in one transaction with the publication. So, of a file:

* its last version is the one that the ledger has: it is the newest, and what comes next may be counted;
* it is one version ahead, and the one before is the ledger's: the process ended between count and publication. That
  version's noise may have been seen by whoever can read the file; it is published as it is, never drawn again;
* anything else is an older copy, another one, or another stream's file, and is refused.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from dpduck.kernel.contributions import UNIT
from dpduck.kernel.counting.hidden import ExactCounts, Hidden
from dpduck.kernel.rows import reader
from dpduck.kernel.stage import KEPT
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError, StoreError

TAKEN, ARRIVED, POURED = "dpduck_taken", "dpduck_arrived", "dpduck_poured"

FEW_KEPT = 100_000
"""Rows that are not worth merging."""


@dataclass(frozen=True)
class Recorded:
    """The last version of a stream that was published, as the ledger has it; 0 for none."""

    version: int
    seal: str


@dataclass(frozen=True)
class StreamShape:
    """identity: of the store, the statement and the charge, in one text. unit_type: of the file's column.

    attributes, tables: how many codes each count has, and how many integers.
    """

    identity: str
    unit_type: str
    attributes: int
    tables: int


@dataclass(frozen=True)
class Version:
    """What one refresh added. closed: periods that were measured by then. answers: by table, row and cell, in one."""

    version: int
    closed: int
    seal: str
    answers: IntegerArray


class StreamState(Hidden):
    """The open file of one stream; hidden. place: the attached database, quoted. key: of the seals."""

    __slots__ = ("_cursor", "_key", "_place", "_shape", "versions")

    def __init__(self, cursor: duckdb.DuckDBPyConnection, place: str, shape: StreamShape, key: bytes) -> None:
        self._cursor, self._place, self._shape, self._key = cursor, place, shape, key
        self.versions: list[Version] = []

    @property
    def kept(self) -> str:
        """Returns the table of kept rows by unit."""
        return f"{self._place}.main.kept"

    @property
    def closed(self) -> int:
        """Tells how many periods were measured."""
        return self.versions[-1].closed if self.versions else 0

    def create(self) -> None:
        """Makes the tables of a stream of which nothing was measured."""
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

    def open(self, recorded: Recorded) -> None:
        """Reads what was measured; StoreError for a file that is not the newest of this very stream."""
        try:
            identity, seal = self._columns("SELECT identity, seal FROM {}.main.header")
            found = self._columns("SELECT version, closed, sums, seal, answers FROM {}.main.versions ORDER BY version")
            sums = self._sums()
        except InternalError:
            raise refused("cannot be read") from None
        if list(identity) != [self._shape.identity] or not _same(str(seal[0]), self._seal("")):
            raise refused("is that of another stream, epoch or store")
        before, told = self._seal(""), " ".join(["0"] * (2 + self._shape.tables))
        for number, (version, closed, told, seal_now, answers) in enumerate(zip(*found, strict=True), 1):
            if len(answers) % 8:
                raise refused("is not what was written")
            known = Version(int(version), int(closed), str(seal_now), np.frombuffer(bytes(answers), np.int64))
            facts = (number, known.closed, str(told), known.answers)
            if known.version != number or not _same(known.seal, self._sealed(before, *facts)):
                raise refused("is not what was written")
            before = known.seal
            self.versions.append(known)
        if sums != told:
            raise refused("is not what was written")
        if not self._is_newest(recorded):
            raise refused("is an older copy, or another one")

    def _is_newest(self, recorded: Recorded) -> bool:
        ahead = len(self.versions) - recorded.version
        if ahead not in (0, 1):
            return False
        return recorded.version == 0 or _same(self.versions[recorded.version - 1].seal, recorded.seal)

    def counts(self, counts: ExactCounts) -> ExactCounts:
        """Returns counts of new periods together with those of the periods before."""
        columns = self._columns(f"SELECT {', '.join(self._count_columns())} FROM {{}}.main.counts")
        held = [np.ma.getdata(column).astype(np.int64) for column in columns]
        size = self._shape.attributes
        codes = tuple(np.concatenate([*both]) for both in zip(held[:size], counts._exact_coordinates, strict=True))
        tables = np.concatenate([np.array(held[size:], np.int64), counts._exact_counts], axis=1)
        return ExactCounts(codes, tables, counts._sizes, counts._unit_bounds)

    def add(self, closed: int, counts: ExactCounts, answers: IntegerArray) -> Version:
        """Writes a version: what was kept of whom, what that adds up to, and what was measured; all or nothing."""
        number, before = len(self.versions) + 1, self.versions[-1].seal if self.versions else self._seal("")
        flat = np.ascontiguousarray(answers, np.int64).reshape(-1)
        held = [*counts._exact_coordinates, *counts._exact_counts]
        cells = pa.Table.from_pydict({name: pa.array(of) for name, of in zip(self._count_columns(), held, strict=True)})
        place = f"{self._place}.main"
        try:
            self._run("BEGIN")
            kept = f"SELECT {number}, {UNIT}, count(*) FROM {TAKEN} GROUP BY {UNIT}"
            self._run(f"INSERT INTO {place}.kept {kept}")
            add = f"INSERT INTO {place}.counts SELECT {number}, * FROM {POURED}"
            reader.poured(
                self._cursor, add, {}, POURED, pa.RecordBatchReader.from_batches(cells.schema, cells.to_batches())
            )
            self._merge()
            sums = self._sums()
            seal = self._sealed(before, number, closed, sums, flat)
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
        """Tells how many rows were kept, how many counts there are, and all of these in one."""
        kept = f"SELECT CAST(ifnull(sum({KEPT}), 0) AS BIGINT) FROM {{0}}.main.kept"
        tables = [f"CAST(ifnull(bit_xor(t{number}), 0) AS BIGINT)" for number in range(self._shape.tables)]
        counts = f"SELECT count(*), {', '.join(tables)} FROM {{0}}.main.counts"
        return " ".join(str(int(column[0])) for sql in (kept, counts) for column in self._columns(sql))

    def _merge(self) -> None:
        """Makes one row of each unit's, once those of later versions are as many as those that were merged before.

        A refresh then looks through twice as many rows as there are units at most, however many refreshes there were.
        """
        (merged,), (every,) = self._columns("SELECT count(*) FILTER (version = 0), count(*) FROM {}.main.kept")
        if int(every) >= max(2 * int(merged), FEW_KEPT):
            sums = (
                f"SELECT 0 AS version, {UNIT}, CAST(sum({KEPT}) AS INTEGER) AS {KEPT} FROM {self.kept} GROUP BY {UNIT}"
            )
            self._run(f"CREATE OR REPLACE TABLE {self.kept} AS {sums}")

    def _count_columns(self) -> list[str]:
        codes = [f"c{number}" for number in range(self._shape.attributes)]
        return [*codes, *(f"t{number}" for number in range(self._shape.tables))]

    def _sealed(self, before: str, number: int, closed: int, sums: str, answers: IntegerArray) -> str:
        told = hashlib.sha256(np.ascontiguousarray(answers, np.int64).tobytes()).hexdigest()
        return self._seal(f"{before} {number} {closed} {sums} {told}")

    def _seal(self, text: str) -> str:
        message = f"dpduck stream\n{self._shape.identity}\n{text}".encode()
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()

    def _columns(self, sql: str) -> list[np.ndarray]:
        return reader.columns(self._cursor, sql.format(self._place), {})

    def _run(self, sql: str, **parameters: object) -> None:
        reader.run(self._cursor, sql, parameters)


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def refused(why: str) -> StoreError:
    """Returns the refusal of a stream's file."""
    return StoreError(
        f"the file of this stream {why}, and nothing is measured; accepted: the file as it was last written; or DROP "
        "PRIVATE STREAM, and CREATE, which pays again"
    )
