"""Histograms and sessions in the store: their names, their answers, and the states of sessions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dpduck.mechanisms.sparse.keys import KeyPart
from dpduck.mechanisms.sparse.request import SparseRequest
from dpduck.store.cursors import OpenCursor, transaction
from dpduck.values.errors import InternalError
from dpduck.values.quoting import quote_identifier
from dpduck.values.records import as_object, read_record

LOW = (1 << 64) - 1


@dataclass(frozen=True)
class SparseRecord:
    """Entry of a histogram or session under its name. release: the table with its public facts."""

    name: str
    kind: str
    digest: str
    statement: str
    principal: str
    table: str
    keys: tuple[KeyPart, ...]
    sparsity: int
    queries: int
    beta: float
    release: str


@dataclass(frozen=True)
class SessionAnswer:
    """First answer of a session to one question. updates: the number of updates used by then."""

    number: int
    answer: float
    source: str
    updates: int


@dataclass(frozen=True)
class Believed:
    """Public state of a session. scale, weights: its hypothesis. commits: how often it was written."""

    updates: int
    scale: float
    commits: int
    weights: Mapping[int, float]
    answers: Mapping[str, SessionAnswer]


class SparseStore:
    """Tables of sparse queries in a store that is attached under a name."""

    def __init__(self, open_cursor: OpenCursor, store: str) -> None:
        self._open_cursor = open_cursor
        self._schema = f"{quote_identifier(store)}.dpduck"
        self._main = f"{quote_identifier(store)}.main"

    def find(self, name: str) -> SparseRecord | None:
        return next((entry for entry in self.all() if entry.name.lower() == name.lower()), None)

    def all(self) -> list[SparseRecord]:
        with self._open_cursor() as cursor:
            rows = cursor.execute(f"FROM {self._schema}.sparse_names ORDER BY lower(name)").fetchall()
        return [read_record(SparseRecord, row) for row in rows]

    def put_name(self, sparse: SparseRequest, text: str, principal: str, release: str) -> None:
        options = sparse.options
        row = [
            sparse.name, sparse.kind, sparse.digest(), text, principal, str(sparse.table),
            json.dumps(sparse.keys, default=as_object), options.sparsity, options.queries, float(options.beta),
            release,
        ]  # fmt: skip
        with self._open_cursor() as cursor:
            cursor.execute(f"INSERT INTO {self._schema}.sparse_names VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def drop_name(self, name: str) -> None:
        """Drops a name. State and answers stay."""
        with self._open_cursor() as cursor:
            cursor.execute(f"DELETE FROM {self._schema}.sparse_names WHERE lower(name) = lower(?)", [name])

    def paid_by(self, named: SparseRecord) -> int:
        with self._open_cursor() as cursor:
            row = cursor.execute(
                f"SELECT ledger_id FROM {self._schema}.releases WHERE name = ? AND kind = 'answer'", [named.release]
            ).fetchone()
        if row is None:
            raise InternalError("a session of no release")
        return int(row[0])

    def facts(self, named: SparseRecord) -> str:
        with self._open_cursor() as cursor:
            row = cursor.execute(f"SELECT facts FROM {self._main}.{quote_identifier(named.release)}").fetchone()
        return "" if row is None else str(row[0])

    def updates_used(self, digest: str) -> tuple[int, int]:
        """Returns the number of updates that a session has used, and the number of different answered questions."""
        with self._open_cursor() as cursor:
            row = cursor.execute(
                f"SELECT coalesce((SELECT updates FROM {self._schema}.session_states WHERE digest = $1), 0), "
                f"(SELECT count(*) FROM {self._schema}.session_answers WHERE digest = $1)",
                [digest],
            ).fetchone()
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    def read_state(self, digest: str) -> Believed:
        with self._open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            state = cursor.execute(
                f"SELECT updates, scale, commits FROM {self._schema}.session_states WHERE digest = ?", [digest]
            ).fetchone()
            weights = cursor.execute(
                f"SELECT high, low, weight FROM {self._schema}.session_weights WHERE digest = ?", [digest]
            ).fetchall()
            answers = cursor.execute(
                f"SELECT question, number, answer, source, updates FROM {self._schema}.session_answers "
                "WHERE digest = ?",
                [digest],
            ).fetchall()
        updates, scale, commits = (0, 1.0, 0) if state is None else state
        return Believed(
            updates, scale, commits, {_key(high, low): weight for high, low, weight in weights},
            {row[0]: SessionAnswer(*row[1:]) for row in answers},
        )  # fmt: skip

    def commit(
        self,
        digest: str,
        updates: int,
        scale: float,
        commits: int,
        weights: Mapping[int, float],
        answers: Mapping[str, SessionAnswer],
    ) -> None:
        """Writes new answers, changed weights and the state in one transaction: all or nothing."""
        changed = _key_table(weights)
        answer_rows = pa.table(
            {
                "question": pa.array(list(answers), pa.string()),
                "number": pa.array([answer.number for answer in answers.values()], pa.int64()),
                "answer": pa.array([answer.answer for answer in answers.values()], pa.float64()),
                "source": pa.array([answer.source for answer in answers.values()], pa.string()),
                "updates": pa.array([answer.updates for answer in answers.values()], pa.int64()),
            }
        )
        with transaction(self._open_cursor) as cursor:
            cursor.register("dpduck_changed", changed)
            cursor.register("dpduck_given", answer_rows)
            if len(weights):
                cursor.execute(
                    f"DELETE FROM {self._schema}.session_weights WHERE digest = ? AND (high, low) IN "
                    "(SELECT (high, low) FROM dpduck_changed)",
                    [digest],
                )
                cursor.execute(f"INSERT INTO {self._schema}.session_weights SELECT ?, * FROM dpduck_changed", [digest])
            cursor.execute(f"INSERT INTO {self._schema}.session_answers SELECT ?, * FROM dpduck_given", [digest])
            cursor.execute(f"DELETE FROM {self._schema}.session_states WHERE digest = ?", [digest])
            cursor.execute(
                f"INSERT INTO {self._schema}.session_states VALUES (?, ?, ?, ?)", [digest, updates, scale, commits]
            )

    def store_first_values(self, digest: str, keys: Sequence[int], values: Sequence[int]) -> list[int]:
        """Returns the first released values of a histogram's keys. Stores `values` for keys that have none."""
        once = dict(zip(keys, values, strict=True))
        wanted = _key_table(dict.fromkeys(once, 0.0)).set_column(2, "value", pa.array(list(once.values()), pa.int64()))
        with transaction(self._open_cursor) as cursor:
            cursor.register("dpduck_wanted", wanted)
            cursor.execute(
                f"INSERT INTO {self._schema}.histogram_values SELECT $1, * FROM dpduck_wanted ANTI JOIN "
                f"(SELECT high, low FROM {self._schema}.histogram_values WHERE digest = $1) USING (high, low)",
                [digest],
            )
            rows = cursor.execute(
                f"SELECT high, low, stored.value FROM {self._schema}.histogram_values AS stored "
                "JOIN dpduck_wanted USING (high, low) WHERE digest = ?",
                [digest],
            ).fetchall()
        first_values = {_key(high, low): int(value) for high, low, value in rows}
        return [first_values[key] for key in keys]


def _to_bigint(half: int) -> int:
    """Returns half of a digest as a BIGINT, since filters over Arrow tables fail on larger unsigned numbers."""
    return half - (1 << 64) if half >> 63 else half


def _key(high: int, low: int) -> int:
    return (high & LOW) << 64 | low & LOW


def _key_table(weights: Mapping[int, float]) -> pa.Table:
    return pa.table(
        {
            "high": pa.array([_to_bigint(key >> 64) for key in weights], pa.int64()),
            "low": pa.array([_to_bigint(key & LOW) for key in weights], pa.int64()),
            "weight": pa.array(list(weights.values()), pa.float64()),
        }
    )
