"""Connections that dpduck was loaded on, the callers of statements, and copies of the latest releases."""

from __future__ import annotations

import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb

from dpduck.values.errors import PermissionRefusal, Refusal, StoreError
from dpduck.values.privacy import Budget, Charge
from dpduck.values.quoting import fold, quote_identifier
from dpduck.values.sqltypes import sql_type

if TYPE_CHECKING:
    import pyarrow as pa

OpenCursor = Callable[[], duckdb.DuckDBPyConnection]

BUILT_IN_ONLY = "SET search_path = 'system.main'"
QUERY_INTERRUPTED = "Query interrupted"
CLOSED = "the connection that dpduck was loaded on is closed; accepted: dpduck.load(..) on the one that is in use"


def is_ctrl_c(error: BaseException) -> bool:
    """Tells whether an error is Ctrl-C, as Python or as DuckDB's client raises it."""
    return isinstance(error, KeyboardInterrupt) or (type(error), *error.args) == (RuntimeError, QUERY_INTERRUPTED)


class DatabaseConnections:
    """Open connections of one database, held weakly: whoever opened a connection decides how long it stays open.

    A strong reference would keep the database, and the locks on its files, until the process ends.
    home: database and schema in which a connection begins. Names of one part are looked up in that schema.
    """

    def __init__(self) -> None:
        self._connections: list[weakref.ref[duckdb.DuckDBPyConnection]] = []
        self.home: tuple[str, str] | None = None

    def add(self, connection: duckdb.DuckDBPyConnection) -> None:
        references = [reference for reference in self._connections if reference() not in (None, connection)]
        self._connections = [*references, weakref.ref(connection)]
        if self.home is None:
            with connection.cursor() as cursor:
                row = cursor.execute("SELECT system.main.current_database(), system.main.current_schema()").fetchone()
                self.home = None if row is None else (str(row[0]), str(row[1]))

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Returns a new cursor, which the caller closes, from any connection that is still open.

        Names of functions and operators are looked up only among DuckDB's own, so that no macro of the database or of a
        client replaces one. Names of tables are written in full.
        """
        for reference in self._connections:
            connection = reference()
            if connection is None:
                continue
            try:
                cursor = connection.cursor()
            except duckdb.Error:
                continue  # the connection was closed
            cursor.execute(BUILT_IN_ONLY)
            return cursor
        raise StoreError(CLOSED)

    def any_open(self) -> bool:
        try:
            self.cursor().close()
        except StoreError:
            return False
        return True


@contextmanager
def transaction(open_cursor: OpenCursor) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yields a cursor in a transaction, which is committed unless an exception is raised."""
    with open_cursor() as cursor:
        cursor.execute("BEGIN")
        yield cursor
        cursor.execute("COMMIT")


# In-memory databases with copies of fresh releases, for statements with an older snapshot of the store.

PREFIX = "dpduck_release_"
"""Prefix of these databases' names. It ends with `release_`, the prefix of releases' names."""

_COPY = re.compile(rf"\b{PREFIX.removesuffix('release_')}(release_(?:known_)?\d+(?:_\d+)?)\b")
MOST_COPIES, MOST_WRITTEN = 64, 256
MOST_ROWS = 5_000_000


class ReleaseCopies:
    """Copies of the latest releases of this process. If there are too many, the oldest are detached.

    A transaction that began before a release does not see the store's table. It sees the copy, since it has no snapshot
    yet of a database that is attached later. Later transactions need no copy. A copy of few values is SQL that lists
    the values.
    """

    def __init__(self, open_cursor: OpenCursor) -> None:
        self._open_cursor = open_cursor
        self._lock = threading.Lock()  # for the dictionaries only: copying and reading go on meanwhile
        self._rows: OrderedDict[str, int] = OrderedDict()
        self._written: OrderedDict[str, str] = OrderedDict()
        self._made = 0

    def write(self, name: str, values_sql: str) -> None:
        with self._lock:
            self._written[name] = f"({values_sql})"
            if len(self._written) > MOST_WRITTEN:
                self._written.popitem(last=False)

    def add(self, name: str, stored_table_sql: str, rows: int) -> None:
        """Copies a stored release, unless `write` has added it. If the copy fails, statements read the store."""
        if name in self._written:
            return
        database = quote_identifier(_database(name))
        with suppress(duckdb.Error), self._open_cursor() as cursor:
            cursor.execute(f"ATTACH ':memory:' AS {database} (READ_WRITE)")
            cursor.execute(f"CREATE TABLE {database}.main.t AS FROM {stored_table_sql}")
            for oldest in self._enter(name, rows):
                cursor.execute(f"DETACH {quote_identifier(_database(oldest))}")

    def save(self, columns: Sequence[tuple[str, str]], rows: pa.Table) -> str:
        """Adds rows that are in no store, as one more table in memory. Returns the table's name in SQL."""
        with self._lock:
            self._made += 1
            name = f"release_known_{self._made}"
        database = quote_identifier(_database(name))
        listed = ", ".join(f"{quote_identifier(column)} {type_name}" for column, type_name in columns)
        with self._open_cursor() as cursor:
            cursor.execute(f"ATTACH ':memory:' AS {database} (READ_WRITE)")
            cursor.execute(f"CREATE TABLE {database}.main.t ({listed})")
            cursor.register("dpduck_known_rows", rows)
            cursor.execute(f"INSERT INTO {database}.main.t FROM dpduck_known_rows")
            cursor.unregister("dpduck_known_rows")
            for oldest in self._enter(name, rows.num_rows):
                cursor.execute(f"DETACH {quote_identifier(_database(oldest))}")
        return f"{database}.main.t"

    def table_sql(self, name: str) -> str | None:
        with self._lock:
            copied = f"{quote_identifier(_database(name))}.main.t" if name in self._rows else None
            return self._written.get(name, copied)

    def has_all(self, sql: str) -> bool:
        with self._lock:
            return all(name in self._rows for name in _COPY.findall(sql))

    def _enter(self, name: str, rows: int) -> list[str]:
        """Registers a copy and returns the names of the copies to detach."""
        leaving = []
        with self._lock:
            self._rows[name] = rows
            while len(self._rows) > MOST_COPIES or (sum(self._rows.values()) > MOST_ROWS and len(self._rows) > 1):
                leaving.append(self._rows.popitem(last=False)[0])
        return leaving


def _database(name: str) -> str:
    return f"dpduck_{name}"


# Callers: the data owner, and principals with a share of the budget.

LEAST_EPSILON = 10_000
"""A principal's new release costs at least a budget's epsilon divided by this, or its rho divided by LEAST_RHO."""

LEAST_RHO = 1_000_000

DEARER = "the statement would be charged more than was shown"


Ceiling = tuple[float | None, float, float]
"""Epsilon, rho and delta. Epsilon is None for a Gaussian release, which costs rho."""

FREE_OF_CHARGE: Ceiling = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Caller:
    """Caller of a statement. share: part of a budget, for principals of a server. None if only the budget is a limit.

    tables: private tables that the caller may ask about, by name or with schema and database, None for all.
    room: reserves room in the store for a release of this many rows, or refuses. Returns the rows that fit afterwards.
    most_characters: most characters in the texts of one new table, in memory, None for no limit.
    charged: receives the ledger entry that pays for a release, as soon as it exists.
    ceiling: the largest price of a new release, as dp_plan showed epsilon, rho and delta. None means no limit.
    project: name of the caller's project, the members of which share a part of the budget. None for no project.
    a_day: part of a budget that the caller may spend on one day in UTC. None for no such limit.
    """

    name: str
    owner: bool
    share: Fraction | None = None
    tables: tuple[str, ...] | None = None
    room: Callable[[int | None], int] | None = field(default=None, compare=False)
    most_characters: int | None = field(default=None, compare=False)
    charged: Callable[[int], None] | None = field(default=None, compare=False)
    ceiling: Ceiling | None = field(default=None, compare=False)
    project: str | None = None
    a_day: Fraction | None = None

    def require_tables(self, tables: Iterable[object]) -> None:
        for table in tables:
            self.require_table(str(table))

    def require_price(self, charge: Charge, budget: Budget | None) -> None:
        """Refuses a principal's price near zero, at which failing statements would reveal bits nearly for free."""
        if self.owner or budget is None:
            return
        if budget.pure and budget.epsilon is not None and charge.epsilon is not None:
            least, price, word = budget.epsilon / LEAST_EPSILON, charge.epsilon, "epsilon"
        else:
            least, price, word = (budget.rho or Fraction(0)) / LEAST_RHO, charge.rho, "rho"
        if price < least:
            raise PermissionRefusal(
                f"a principal's statement costs at least {word} = {float(least):g}, and this one {float(price):g}",
                accepted="a larger epsilon",
            )

    def require_within(self, charge: Charge) -> None:
        """Refuses a price above the ceiling. The price is compared as a float, since dp_plan shows floats."""
        if self.ceiling is None:
            return
        epsilon, rho, delta = self.ceiling
        pure = charge.epsilon is None or (epsilon is not None and float(charge.epsilon) <= epsilon)
        if not (pure and float(charge.rho) <= rho and float(charge.delta) <= delta):
            raise Refusal(DEARER, accepted="the same statement again, with its price as it is now")

    def take_room(self, rows: int, characters: int) -> None:
        self.require_texts(rows, characters)
        if self.room is not None:
            self.room(rows)

    def with_room_for_a_view(self) -> Caller:
        """Returns a caller that reserves twice the rows, since they are stored as the answers and as the view."""
        room = self.room
        return self if room is None else replace(self, room=lambda rows: room(rows and 2 * rows))

    def require_texts(self, rows: int, characters: int) -> None:
        """Refuses a table if its texts, up to `characters` in each row, do not fit into memory."""
        if self.most_characters is not None and rows * characters > self.most_characters:
            raise Refusal(
                f"{rows} rows with texts of up to {characters} characters each are too much at once",
                accepted=f"at most {self.most_characters // characters} rows, or keys with shorter labels",
            )

    def require_table(self, table: str) -> None:
        """Raises PermissionRefusal for a private table, named in full, that this caller may not ask about.

        >>> Caller("alice", owner=False, tables=("visits",)).require_table("clinic.main.visits")
        """
        if not self.may_ask(table):
            accepted, name = ", ".join(self.tables or ()) or "no table", fold(table).split(".")[-1]
            raise PermissionRefusal(f"{self.name} may not ask about {name!r}", accepted=accepted)

    def may_ask(self, table: str) -> bool:
        parts = fold(table).split(".")
        named = [fold(name).split(".") for name in self.tables or ()]
        return self.tables is None or any(parts[-len(allowed) :] == allowed for allowed in named)


def require_owner(caller: Caller) -> None:
    """Refuses every caller except the data owner."""
    if not caller.owner:
        raise PermissionRefusal("this statement is the data owner's", accepted="SELECT WITH DIFFERENTIAL_PRIVACY ..")


# Work under one name is serialised. Work under different names runs in parallel.


class NamedLocks:
    """One lock for each name in use. Unused names are forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def hold(self, name: str, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Holds the lock of a name, as soon as no other thread holds it. `waits` is called if some thread does."""
        with self._lock:
            lock, waiting = self._locks.get(name, (threading.Lock(), 0))
            self._locks[name] = (lock, waiting + 1)
        try:
            if not lock.acquire(blocking=False):
                waits()
                lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._lock:
                _, waiting = self._locks[name]
                if waiting == 1:
                    del self._locks[name]
                else:
                    self._locks[name] = (lock, waiting - 1)


MOST_ANSWERS = 512
MOST_KEPT = 2
"""Most idle sandboxes. The next statement needs one, and another for its rehearsal."""


@dataclass(frozen=True)
class KeptSandbox:
    """Idle sandbox between two statements. copies: its tables, each with columns and the function that filled it."""

    root: duckdb.DuckDBPyConnection = field(repr=False)
    copies: frozenset[Hashable]


class SandboxAnswers:
    """Cache of recent sandbox answers. An answer follows from its question alone: SQL text, types, public labels.

    A refused question is asked again. Idle sandboxes are kept as well: opening one takes 10 ms, and filling one takes
    as long as all questions of a small statement. A statement sees the copies of its own tables, and no others.
    """

    def __init__(self, most: int = MOST_ANSWERS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()
        self._kept: list[KeptSandbox] = []

    def lend(self, copies: frozenset[Hashable]) -> KeptSandbox | None:
        """Lends one statement the idle sandbox with the most tables, if all its tables are in `copies`.

        If no sandbox fits, returns None, or the oldest sandbox if enough are kept. The statement has to empty it.
        """
        with self._lock:
            fitting = [sandbox for sandbox in self._kept if sandbox.copies <= copies]
            if not fitting and len(self._kept) < MOST_KEPT:
                return None
            lent = max(fitting, key=lambda sandbox: len(sandbox.copies), default=self._kept[0])
            self._kept.remove(lent)
            return lent

    def keep(self, sandbox: KeptSandbox) -> None:
        with self._lock:
            if len(self._kept) < MOST_KEPT:
                self._kept.append(sandbox)
                return
        sandbox.root.close()

    def get(self, question: Hashable) -> Any:
        with self._lock:
            if question in self._answers:
                self._answers.move_to_end(question)
            return self._answers.get(question)

    def save(self, question: Hashable, answer: object) -> None:
        with self._lock:
            self._answers[question] = answer
            if len(self._answers) > self._most:
                self._answers.popitem(last=False)


@contextmanager
def interrupt_after(seconds: float, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupts the cursor after this many seconds. 0 means never."""
    timer = threading.Timer(seconds, cursor.interrupt) if seconds else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
            timer.join()  # the cursor may be closed from here on


def characters_of(cursor: duckdb.DuckDBPyConnection, select_sql: str) -> int:
    """Returns the number of bytes of a SELECT's texts. Other values without a fixed length count as text."""
    types = [row[1] for row in cursor.execute(f"DESCRIBE FROM ({select_sql})").fetchall()]
    names = [f"c{number}" for number in range(len(types))]
    long = [name for name, kind in zip(names, types, strict=True) if not sql_type(str(kind)).is_short]
    if not long:
        return 0
    length = " + ".join(f"coalesce(strlen(CAST({name} AS VARCHAR)), 0)" for name in long)
    total = cursor.execute(f"SELECT sum({length}) FROM ({select_sql}) AS t({', '.join(names)})").fetchone()
    return 0 if total is None or total[0] is None else int(total[0])
