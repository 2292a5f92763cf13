"""Keeps the connections that dpduck was loaded on, who asks through them, and copies of the latest releases."""

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


class Connections:
    """Open connections of one database, held weakly: whether they stay open is up to who opened them.

    A connection of dpduck's own would keep the database, and the locks on its files, until the process ends.
    home: the database and the schema in which a connection begins, where names of one part are looked up.
    """

    def __init__(self) -> None:
        self._connections: list[weakref.ref[duckdb.DuckDBPyConnection]] = []
        self.home: tuple[str, str] | None = None

    def add(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Adds one more connection of the same database."""
        known = [reference for reference in self._connections if reference() not in (None, connection)]
        self._connections = [*known, weakref.ref(connection)]
        if self.home is None:
            with connection.cursor() as cursor:
                row = cursor.execute("SELECT system.main.current_database(), system.main.current_schema()").fetchone()
                self.home = None if row is None else (str(row[0]), str(row[1]))

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Returns a new cursor, from any connection that is still open; to be closed by the caller.

        Names of functions and operators are looked up among DuckDB's own alone: no macro of the database or of a
        client can take the place of one in what runs here. Names of tables are written in full.
        """
        for reference in self._connections:
            connection = reference()
            if connection is None:
                continue
            try:
                cursor = connection.cursor()
            except duckdb.Error:
                continue  # it was closed
            cursor.execute(BUILT_IN_ONLY)
            return cursor
        raise StoreError(CLOSED)

    def any_open(self) -> bool:
        """Tells whether some connection is still open."""
        try:
            self.cursor().close()
        except StoreError:
            return False
        return True


@contextmanager
def transaction(open_cursor: OpenCursor) -> Iterator[duckdb.DuckDBPyConnection]:
    """Lends a cursor in a transaction, which is committed where nothing is raised."""
    with open_cursor() as cursor:
        cursor.execute("BEGIN")
        yield cursor
        cursor.execute("COMMIT")


# In-memory databases with copies of fresh releases, for statements whose snapshot of the store is older.

PREFIX = "dpduck_release_"
"""How the names of these databases begin, since those of releases begin with release_."""

_COPY = re.compile(rf"\b{PREFIX.removesuffix('release_')}(release_(?:known_)?\d+(?:_\d+)?)\b")
MOST_COPIES, MOST_WRITTEN = 64, 256
MOST_ROWS = 5_000_000


class ReleaseCopies:
    """Copies of the latest releases of this process; the oldest are detached when there are too many.

    A transaction that began before a release sees its copy, though not the store's table: attached databases have no
    snapshot yet. A copy that was detached is not needed by any transaction that began since. A copy of a few values is
    SQL that has them, and no database.
    """

    def __init__(self, open_cursor: OpenCursor) -> None:
        self._open_cursor = open_cursor
        self._lock = threading.Lock()  # for the books only: copying and reading go on meanwhile
        self._rows: OrderedDict[str, int] = OrderedDict()
        self._written: OrderedDict[str, str] = OrderedDict()
        self._made = 0

    def write(self, name: str, values_sql: str) -> None:
        """Keeps a release that is a SELECT of its few values."""
        with self._lock:
            self._written[name] = f"({values_sql})"
            if len(self._written) > MOST_WRITTEN:
                self._written.popitem(last=False)

    def add(self, name: str, stored_table_sql: str, rows: int) -> None:
        """Copies a stored release into a database of its own, unless its values are written.

        If that fails, the store is read.
        """
        if name in self._written:
            return
        database = quote_identifier(_database(name))
        with suppress(duckdb.Error), self._open_cursor() as cursor:
            cursor.execute(f"ATTACH ':memory:' AS {database} (READ_WRITE)")
            cursor.execute(f"CREATE TABLE {database}.main.t AS FROM {stored_table_sql}")
            for oldest in self._enter(name, rows):
                cursor.execute(f"DETACH {quote_identifier(_database(oldest))}")

    def put(self, columns: Sequence[tuple[str, str]], rows: pa.Table) -> str:
        """Puts rows that are in no store beside the copies, and returns the name in SQL of their table."""
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
        """Returns the copy: a table or a subquery. None where the release is read from the store."""
        with self._lock:
            copied = f"{quote_identifier(_database(name))}.main.t" if name in self._rows else None
            return self._written.get(name, copied)

    def has_all(self, sql: str) -> bool:
        """Tells whether none of the copies that SQL names was detached."""
        with self._lock:
            return all(name in self._rows for name in _COPY.findall(sql))

    def _enter(self, name: str, rows: int) -> list[str]:
        """Registers a copy and returns those to detach."""
        leaving = []
        with self._lock:
            self._rows[name] = rows
            while len(self._rows) > MOST_COPIES or (sum(self._rows.values()) > MOST_ROWS and len(self._rows) > 1):
                leaving.append(self._rows.popitem(last=False)[0])
        return leaving


def _database(name: str) -> str:
    return f"dpduck_{name}"


# Who asks: the data owner, or a principal with a share of the budget.

LEAST_EPSILON = 10_000
"""Parts of a budget in epsilon: a principal's new release costs one at least. LEAST_RHO: of a budget in rho."""

LEAST_RHO = 1_000_000

DEARER = "the statement would be charged more than was shown"


Ceiling = tuple[float | None, float, float]
"""Epsilon, rho and delta; epsilon is None for a Gaussian release, which costs rho."""

FREE_OF_CHARGE: Ceiling = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Caller:
    """Who asks. share: of a budget, for principals of a server; None for no limit but the budget.

    tables: the private tables that may be asked about, each as a name or with its schema and database; None for all.
    room: takes room in the store for a release of so many rows, or refuses; returns for how many more there is room.
    most_characters: of the texts of one table that is made, in memory; None for no limit.
    charged: is told the ledger entry that pays for a release, as soon as there is one.
    ceiling: the most that a new release may cost, epsilon, rho and delta as dp_plan showed them; None for no limit.
    """

    name: str
    owner: bool
    share: Fraction | None = None
    tables: tuple[str, ...] | None = None
    room: Callable[[int | None], int] | None = field(default=None, compare=False)
    most_characters: int | None = field(default=None, compare=False)
    charged: Callable[[int], None] | None = field(default=None, compare=False)
    ceiling: Ceiling | None = field(default=None, compare=False)

    def require_tables(self, tables: Iterable[object]) -> None:
        """PermissionRefusal for the first of these tables that is not this caller's to ask about."""
        for table in tables:
            self.require_table(str(table))

    def require_price(self, charge: Charge, budget: Budget | None) -> None:
        """Refuses a principal's price that is next to nothing: each bit of an answer's failure would cost that."""
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
        """Refuses a price above the ceiling. Both are compared as dp_plan shows them, so that equal ones are equal."""
        if self.ceiling is None:
            return
        epsilon, rho, delta = self.ceiling
        pure = charge.epsilon is None or (epsilon is not None and float(charge.epsilon) <= epsilon)
        if not (pure and float(charge.rho) <= rho and float(charge.delta) <= delta):
            raise Refusal(DEARER, accepted="the same statement again, with its price as it is now")

    def take_room(self, rows: int, characters: int) -> None:
        """Takes room in the store for a release, whose texts have at most so many characters a row."""
        self.require_texts(rows, characters)
        if self.room is not None:
            self.room(rows)

    def with_room_for_a_view(self) -> Caller:
        """Returns a caller whose rows count twice: they are kept as the answers and as the view."""
        room = self.room
        return self if room is None else replace(self, room=lambda rows: room(rows and 2 * rows))

    def require_texts(self, rows: int, characters: int) -> None:
        """Refuses a table of so many rows where its texts, so many characters a row, do not fit into memory."""
        if self.most_characters is not None and rows * characters > self.most_characters:
            raise Refusal(
                f"{rows} rows with texts of up to {characters} characters each are too much at once",
                accepted=f"at most {self.most_characters // characters} rows, or keys with shorter labels",
            )

    def require_table(self, table: str) -> None:
        """PermissionRefusal for a private table, named in full, that is not this caller's to ask about.

        >>> Caller("alice", owner=False, tables=("visits",)).require_table("clinic.main.visits")
        """
        if not self.may_ask(table):
            accepted, name = ", ".join(self.tables or ()) or "no table", fold(table).split(".")[-1]
            raise PermissionRefusal(f"{self.name} may not ask about {name!r}", accepted=accepted)

    def may_ask(self, table: str) -> bool:
        """Tells whether a private table, named in full, is this caller's to ask about."""
        parts = fold(table).split(".")
        named = [fold(name).split(".") for name in self.tables or ()]
        return self.tables is None or any(parts[-len(allowed) :] == allowed for allowed in named)


def require_owner(caller: Caller) -> None:
    """Refuses everybody else."""
    if not caller.owner:
        raise PermissionRefusal("this statement is the data owner's", accepted="SELECT WITH DIFFERENTIAL_PRIVACY ..")


# Serialises work under the same name; work under different names goes on side by side.


class NamedLocks:
    """A lock for each name that is in work; names at rest are forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def held(self, name: str, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Waits until nobody else works under this name. waits: called where somebody does."""
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
"""Sandboxes that are kept for the next statement: its own, and the one of its rehearsal."""


@dataclass(frozen=True)
class KeptSandbox:
    """A sandbox between two statements. copies: the tables in it, each with its columns and how it was filled."""

    root: duckdb.DuckDBPyConnection = field(repr=False)
    copies: frozenset[Hashable]


class SandboxAnswers:
    """What sandboxes have answered lately. An answer follows from the question alone: SQL text, types, public labels.

    A refused question is asked again. Sandboxes themselves are kept, since opening one takes 10 ms, and filling one as
    long as all questions of a small statement. A statement sees the copies of its own tables, and no others.
    """

    def __init__(self, most: int = MOST_ANSWERS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()
        self._kept: list[KeptSandbox] = []

    def lend(self, copies: frozenset[Hashable]) -> KeptSandbox | None:
        """Lends a sandbox to one statement alone: a sandbox that holds only copies from this list, and as many as can
        be. Where there is none, the oldest sandbox is lent if no room is left. The statement has to empty it.
        """
        with self._lock:
            fitting = [one for one in self._kept if one.copies <= copies]
            if not fitting and len(self._kept) < MOST_KEPT:
                return None
            lent = max(fitting, key=lambda one: len(one.copies), default=self._kept[0])
            self._kept.remove(lent)
            return lent

    def keep(self, sandbox: KeptSandbox) -> None:
        """Keeps a sandbox that holds nothing but copies, or closes it where enough are kept."""
        with self._lock:
            if len(self._kept) < MOST_KEPT:
                self._kept.append(sandbox)
                return
        sandbox.root.close()

    def get(self, question: Hashable) -> Any:
        """Returns the answer, None where there is none."""
        with self._lock:
            if question in self._answers:
                self._answers.move_to_end(question)
            return self._answers.get(question)

    def put(self, question: Hashable, answer: object) -> None:
        """Remembers an answer in the place of the one that was not asked for longest."""
        with self._lock:
            self._answers[question] = answer
            if len(self._answers) > self._most:
                self._answers.popitem(last=False)


@contextmanager
def interrupted_after(seconds: float, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupts the cursor when so many seconds are over; never for 0."""
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
    """Tells how many bytes the texts of a SELECT's rows have, and whatever else has no fixed length, as text."""
    types = [row[1] for row in cursor.execute(f"DESCRIBE FROM ({select_sql})").fetchall()]
    names = [f"c{number}" for number in range(len(types))]
    long = [name for name, kind in zip(names, types, strict=True) if not sql_type(str(kind)).is_short]
    if not long:
        return 0
    length = " + ".join(f"coalesce(strlen(CAST({name} AS VARCHAR)), 0)" for name in long)
    found = cursor.execute(f"SELECT sum({length}) FROM ({select_sql}) AS t({', '.join(names)})").fetchone()
    return 0 if found is None or found[0] is None else int(found[0])
