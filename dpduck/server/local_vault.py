"""Vault: has the private database, its store and its ledger, and gives principals released rows alone."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections import Counter, OrderedDict
from dataclasses import replace
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from dpduck.database.connection import attach_known, load
from dpduck.database.database import Database
from dpduck.database.functions import OWNER, database_of, run_call
from dpduck.kernel.door import PAID
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.kernel.rows.reader import SMALL_BUFFER
from dpduck.language.text.words import meant_or
from dpduck.mechanisms.certificate import Entry, read_certificates
from dpduck.mechanisms.release import WAITING
from dpduck.publish.published_views import LEDGER_ENTRY
from dpduck.server.earlier_answers import AnswerCache
from dpduck.server.limits import SECONDS, Places, Quota, TimeGrid, remember
from dpduck.server.principals import PrincipalBook
from dpduck.server.runner_process import ROWS_AT_ONCE, clock, distinct
from dpduck.server.vault import ReleasedRows, Reply
from dpduck.store.attaching import STORE_NAME, no_store, not_opened
from dpduck.store.cursors import Ceiling
from dpduck.store.releases import BEFORE_STORING
from dpduck.store.spending import spent_shares, warn_of_entry
from dpduck.store.store_files import store_files
from dpduck.values.errors import DpduckError, InternalError, Refusal, StoreError
from dpduck.values.quoting import quote_identifier

CHARGED = "charge returns"
MOST_KEYS = 1_000
QUESTIONS, QUESTIONS_EACH, READERS = 8, 1, 4
"""Questions at the same time, of all and of one principal, and reads of answers at the same time."""

TEXTS_OF_MEMORY = 32
"""The vault's memory over the limit for the texts of one table. There are several copies and several principals, and a
computed key may have labels of thousands of characters."""

STORED = "after the release"
ANSWERS_COMPUTED = ("answers computed", "values computed")
READ_AT_ONCE = 2_048
"""Rows of a batch of an answer. The limit on bytes is checked after each batch, since texts may be long."""

SERVED_KINDS = ("view",)


class LocalVault:
    """Vault in this process. The command line runs one in a separate process (see vault_process)."""

    def __init__(
        self,
        database: Path,
        store: Path | None = None,
        quota: Quota | None = None,
        grid: TimeGrid | None = None,
        seconds: float = SECONDS,
        memory: int = 0,
        engines: tuple[str, ...] = (),
    ) -> None:
        """seconds: the time limit of a SELECT over released answers. memory: bytes of this process, 0 for no limit."""
        self._quota, self._grid, self._seconds = quota or Quota(), grid or TimeGrid(0.0), seconds
        self._places = Places(QUESTIONS, QUESTIONS_EACH)
        self._reading = Places(READERS, QUESTIONS_EACH)
        self._files = store_files(database, store)
        if self._files.store is None or self._files.secrets is None or not self._files.store.exists():
            raise no_store(database)
        self._charging = threading.local()
        self._most_characters = memory // TEXTS_OF_MEMORY or None
        self._connection = _open_database(database)
        try:
            load(self._connection, self._files.store, steps=self._note)
            loaded = database_of(self._connection)
            if loaded is None:
                raise InternalError("the vault has no database")
            self._database: Database = loaded  # imported with this file: the first question does not wait for it
            loaded.limit_selects(seconds)
            for named in engines:
                attach_known(self._connection, named)
            self._book = PrincipalBook(SecretsFile.open(self._files.secrets, create=False))
            self._connection.execute("SET enable_external_access = false")
            if memory:  # DuckDB spills to disk before the system refuses: an allocator's reserve counts, too
                self._connection.execute(f"SET memory_limit = '{memory // 2}B'")
        except BaseException:
            self._connection.close()
            raise
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._coming: Counter[str] = Counter()
        self._coming_rows: Counter[str] = Counter()
        self._statements: OrderedDict[str, str] = OrderedDict()
        self._remembered = AnswerCache(loaded.has_copies)

    def ask(
        self, principal: str, action: str, argument: str | None, seconds: float, ceiling: Ceiling | None = None
    ) -> Reply:
        """Runs a dp function for a principal, whom the server names. The permissions come from the store's secrets.

        ceiling: the price that the principal saw. A call that would cost more is refused, and nothing is charged.
        """
        self._charging.principal = None
        self._grid.begin()
        try:
            caller, changes = self._book.find(principal).caller, self._remembered.changes
            room = partial(self._take_room, principal)
            caller = replace(caller, room=room, most_characters=self._most_characters, ceiling=ceiling)
            known_sql = self._remembered.get(caller, action, argument)
            if known_sql is not None:  # nothing is read or computed, so no place and no wait are needed
                return Reply(self._remember_sql(principal, known_sql))
            self._places.take(principal, seconds)
        except DpduckError as error:
            return Reply(None, None, str(error))
        self._charging.placed, self._charging.principal = True, principal
        try:
            answer = run_call(self._database, caller, action, argument)
            self._remembered.save(caller, action, argument, answer.sql, changes)
        except DpduckError as error:
            self._hold(principal)
            return Reply(None, error.entry, str(error))
        finally:
            self._charging.principal = None
            self._give_place_back(principal)
            self._give_room_back(principal)
        warning = "" if answer.entry is None else warn_of_entry(self._database.ledger, answer.entry)
        return Reply(self._remember_sql(principal, answer.sql), answer.entry, warning=warning)

    def _remember_sql(self, principal: str, sql: str) -> str:
        key = hmac.new(self._key, f"{principal}\n{sql}".encode(), hashlib.sha256).hexdigest()[:40]
        with self._lock:
            remember(self._statements, key, sql, MOST_KEYS)
        return key

    def rows(self, principal: str, key: str, most: int, most_bytes: int) -> ReleasedRows:
        """Returns the rows of an answer. A principal reads one answer at a time. Refuses rows beyond a limit."""
        with self._lock:
            sql = self._statements.get(key)
        if sql is None:
            raise Refusal("this answer is not kept any longer", accepted="the same statement again: it is free")
        with (
            self._reading.place(principal, self._seconds),
            self._connection.cursor() as cursor,
            clock(cursor, self._seconds) as late,
        ):
            try:
                return _fetch_rows(cursor, sql, most, most_bytes)
            except Exception as error:  # while rows are read, Arrow replaces DuckDB's errors by its own
                if late():
                    raise Refusal(
                        "the SELECT takes too long over the released answers, which are kept: asking for them again "
                        "is free",
                        accepted=f"at most {self._seconds:g} s",
                    ) from None
                if not isinstance(error, (duckdb.Error, pa.ArrowException)):
                    raise
                raise Refusal(
                    "the SELECT fails over the released answers, which are kept: asking for them again is free",
                    accepted="expressions that every number can go through",
                ) from None

    def alive(self) -> bool:
        """Tells whether DuckDB still answers. After an internal error in any statement, it never answers again."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        except duckdb.Error as error:
            return not isinstance(error, (duckdb.FatalException, duckdb.InternalException))
        return True

    def well(self) -> None:
        """Uses a new thread, DuckDB and the ledger, as each question does. Fails or hangs if one of the three does."""
        threading.Thread(target=len, args=("",)).start()
        self.views()
        self._database.ledger.budgets()

    def spending(self) -> dict[str, float]:
        """Returns the spent share of each budget, for the owner."""
        return spent_shares(self._database.ledger)

    def views(self) -> dict[str, str]:
        """Returns "principal|mark" of each private view, the owner's views first. A mark changes with the rows."""
        kinds = ", ".join(f"'{kind}'" for kind in SERVED_KINDS)
        with self._connection.cursor() as cursor:
            listed = cursor.execute(
                "SELECT name, concat_ws('|', principal, ledger_id, released_at, digest) "
                f"FROM {STORE_NAME}.dpduck.releases WHERE kind IN ({kinds}) "
                "ORDER BY principal <> 'owner', ledger_id, name"
            ).fetchall()
        return {row[0]: row[1] for row in listed}

    def view(self, name: str) -> ReleasedRows:
        """Returns a private view with its comments, without the number of its ledger entry, which is for the owner."""
        rows = self.view_with_entry(name)
        return replace(rows, comment=None if rows.comment is None else LEDGER_ENTRY.sub("", rows.comment))

    def view_with_entry(self, name: str) -> ReleasedRows:
        table = f"{STORE_NAME}.main.{quote_identifier(name)}"
        with self._connection.cursor() as cursor:
            if name not in self.views():
                accepted = meant_or(name, list(self.views()), "a name of dp_releases()")
                raise Refusal(f"there is no private view {name!r}", accepted=accepted)
            rows = _fetch_rows(cursor, f"FROM {table}")
            comment = cursor.execute(
                "SELECT comment FROM duckdb_tables() WHERE database_name = $1 AND table_name = $2", [STORE_NAME, name]
            ).fetchone()
            comments = cursor.execute(
                "SELECT comment FROM duckdb_columns() WHERE database_name = $1 AND schema_name = 'main' "
                "AND table_name = $2 ORDER BY column_index",
                [STORE_NAME, name],
            ).fetchall()
        return ReleasedRows(
            rows.columns, rows.table, comment[0] if comment else None, tuple(row[0] for row in comments)
        )

    def end(self) -> None:
        self._places.close()
        self._reading.close()

    def owner(self, action: str, argument: str | None) -> ReleasedRows:
        """Returns the owner's answer of a dp function, without the time grid and the quota."""
        try:
            sql = run_call(self._database, OWNER, action, argument).sql
        finally:
            self._remembered.forget()  # the call may have changed a policy
        with self._connection.cursor() as cursor:
            return _fetch_rows(cursor, sql)

    def verify(self) -> int:
        self._database.ledger.verify()
        return len(self._database.ledger.entries())

    def certificates(self) -> tuple[list[Entry], list[Entry]]:
        """Returns the verified ledger's entries, and the certificates of their releases, for the owner."""
        with self._connection.cursor() as cursor:
            return read_certificates(cursor, STORE_NAME, self.verify())

    def view_records(self) -> ReleasedRows:
        with self._connection.cursor() as cursor:
            return _fetch_rows(cursor, f"FROM {STORE_NAME}.dpduck.releases WHERE kind = 'view'")

    def close(self) -> None:
        self._connection.close()

    def _note(self, step: str) -> None:
        """Acts on a step of a question: gives back its place or its room, or waits for the grid."""
        principal = getattr(self._charging, "principal", None)
        if principal is None:  # the owner, from whom nothing is hidden
            return
        if step == STORED:
            self._give_room_back(principal)
        elif step == WAITING:  # a waiting question holds no place, not even of its own principal
            self._give_place_back(principal)
        elif step in (CHARGED, PAID):
            self._grid.note_reading()
        elif step in ANSWERS_COMPUTED:
            self._grid.note_reading()
            self._hold(principal)
        elif step == BEFORE_STORING:
            self._hold(principal)

    def _hold(self, principal: str) -> None:
        """Waits for the time grid. A waiting question holds no place."""
        if self._grid.holds():
            self._give_place_back(principal)
            self._grid.hold()

    def _give_place_back(self, principal: str) -> None:
        if getattr(self._charging, "placed", False):
            self._charging.placed = False
            self._places.give_back(principal)

    def _take_room(self, principal: str, rows: int | None) -> int:
        """Takes room in the quota for a release, before its charge. Returns the number of rows that still have room.

        Running releases count, too. rows: 0 if the answers decide the number of rows. Then there must be room for one
        row. None takes no room.
        """
        with self._lock:  # one at a time, from the check to the entry
            releases, stored_rows = self._database.kept_by(principal)
            left = self._quota.rows - stored_rows - self._coming_rows[principal]
            if rows is None:
                return max(0, left)
            for present, most, wanted, what in (
                (releases + self._coming[principal], self._quota.releases, 1, "releases"),
                (self._quota.rows - left, self._quota.rows, max(1, rows), "rows"),
            ):
                if present + wanted > most:
                    raise Refusal(
                        f"{principal} keeps {present} {what} in the store already, and this is {wanted} more",
                        accepted=f"at most {most}; questions that were asked before are answered as they were",
                    )
            self._charging.coming = rows
            self._coming[principal] += 1
            self._coming_rows[principal] += rows
        return left - rows

    def _give_room_back(self, principal: str) -> None:
        rows, self._charging.coming = getattr(self._charging, "coming", None), None
        if rows is not None:
            with self._lock:
                self._coming[principal] -= 1
                self._coming_rows[principal] -= rows


def _open_database(database: Path) -> duckdb.DuckDBPyConnection:
    try:
        return duckdb.connect(
            str(database),
            read_only=True,
            config={
                "python_enable_replacements": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
            },
        )
    except duckdb.Error as error:
        raise not_opened(error, database) or StoreError(
            "the database cannot be opened: it is no DuckDB file, or another process writes to it; "
            "accepted: a DuckDB file that no other process has open for writing"
        ) from None


def _fetch_rows(
    cursor: duckdb.DuckDBPyConnection, sql: str, most: int | None = None, most_bytes: int | None = None
) -> ReleasedRows:
    cursor.execute(SMALL_BUFFER)
    relation = cursor.sql(sql)
    columns = tuple(zip(distinct(relation.columns), map(str, relation.types), strict=True))
    batches: list[pa.RecordBatch] = []
    count = size = 0
    with relation.to_arrow_reader(ROWS_AT_ONCE if most_bytes is None else READ_AT_ONCE) as reader:
        schema = reader.schema
        for batch in reader:
            batches.append(batch)
            count, size = count + batch.num_rows, size + batch.nbytes
            if most is not None and count > most:
                raise Refusal("the result has too many rows", accepted=f"at most {most}")
            if most_bytes is not None and size > most_bytes:
                raise Refusal("the result is too large", accepted=f"at most {most_bytes} bytes")
    return ReleasedRows(columns, pa.Table.from_batches(batches, schema))
