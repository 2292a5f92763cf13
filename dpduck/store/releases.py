"""Stores released tables, with their prices and other public facts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction

import duckdb
import pyarrow as pa

from dpduck.kernel.ledger.secrets import Steps, no_step
from dpduck.kernel.ledger.table import Note
from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.statements.kinds import PROJECTION
from dpduck.store.cursors import Caller, OpenCursor, characters_of, interrupt_after, transaction
from dpduck.strategies.choose import spell_out
from dpduck.strategies.recovery.intervals import ErrorLaw
from dpduck.values.column_notes import COMPUTED
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier, quote_text, written_values
from dpduck.values.records import as_array

SEED = "_seed"
"""Ending of the name of a projection's second table, which has its seed."""

KNOWN, STREAM = "known", "stream"
"""Strategies: of a refreshed view, which uses all measurements of its rows, and of a stream's table."""

Also = Callable[[duckdb.DuckDBPyConnection], None]
FEW = 256
"""Most values of a released table that is written as SQL. _PLAIN: the types that its columns may have."""

_PLAIN = frozenset((pa.string(), pa.int64(), pa.int32(), pa.float64()))
BEFORE_STORING = "before it is stored"
_COLUMNS = "name, digest, statement, strategy, epsilon, delta, rho, rows, principal, ledger_id, laws, kind, source"


@dataclass(frozen=True)
class StoredRelease:
    """Released table. kind: 'answer' (read through dp()) or 'view' (a private view).

    laws: error laws by aggregate and grouping set. epsilon: None for a Gaussian release. source: for a view, the
    release that it shows. For an answer with reuse, the release that it paid for. The other fields are for a view that
    is being made. price: its guarantee with its price as a part of the whole budget of that moment. scope, notes: its
    comment beside the price, and the comments of its columns. caption: its title and its description, each on its own
    line.
    """

    name: str
    digest: str
    statement: str
    strategy: str
    epsilon: Fraction | None
    delta: Fraction
    rho: Fraction
    rows: int
    principal: str
    ledger_id: int
    laws: tuple[tuple[ErrorLaw, ...], ...]
    kind: str
    scope: str = ""
    price: str = ""
    source: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    caption: str = ""

    @property
    def guarantee(self) -> str:
        keys = f", delta = {float(self.delta):g} for selected keys" if self.delta else ""
        if self.epsilon is not None:
            return f"differentially private, epsilon = {float(self.epsilon):g}{keys or ' (pure)'}"
        return f"differentially private, rho = {float(self.rho):g} (zCDP){keys}"

    def column_note(self, name: str) -> str:
        of = self.notes.get(name, COMPUTED) if self.notes else "{}"
        return of.replace("{}", self.guarantee)


@dataclass(frozen=True)
class RequestOutcome:
    """Outcome of a request. there: whether its release still has a table.

    failed, unanswered: ledger entry of a charge that was followed by a failure, or by the end of the process.
    """

    release: StoredRelease | None = None
    there: bool = False
    failed: int | None = None
    unanswered: int | None = None


class ReleaseStore:
    """Reader and writer of the released tables of an attached store."""

    def __init__(self, open_cursor: OpenCursor, store: str, steps: Steps = no_step) -> None:
        """`steps` is called before a new release is stored, which makes the release visible to others."""
        self._open_cursor = open_cursor
        self._steps = steps
        self.seconds = 0.0
        """Time limit of the SELECT that makes a view from a release. 0 means no limit."""

        self._store = quote_identifier(store)
        self._table = f"{self._store}.dpduck.releases"
        self._failures = f"{self._store}.dpduck.failures"
        self._unanswered = f"{self._store}.dpduck.unanswered"
        self._plans = f"{self._store}.dpduck.plans"

    def table_sql(self, name: str) -> str:
        return f"{self._store}.main.{quote_identifier(name)}"

    def by_digest(self, digest: str) -> StoredRelease | None:
        return next(iter(self._select(f"WHERE digest = {quote_text(digest)} AND kind = 'answer'", [])), None)

    def answers(self, digest: str, caller: Caller) -> bool:
        """Tells whether a request is answered already, and the caller may know: the owner, or whoever asked."""
        release = self.by_digest(digest)
        return release is not None and (caller.owner or release.principal == caller.name)

    def put_failure(self, digest: str, ledger_id: int) -> None:
        """Records that a request failed after its charge. If it is asked again, it fails without a charge."""
        with transaction(self._open_cursor) as cursor:
            cursor.execute(f"INSERT INTO {self._failures} VALUES (?, ?)", [digest, ledger_id])
            cursor.execute(f"DELETE FROM {self._unanswered} WHERE digest = ?", [digest])

    def noting(self, digest: str, plan: str, made_by: str) -> Note:
        """Returns a function that records a charged request, and its plan, in the transaction of the charge."""

        def note(cursor: duckdb.DuckDBPyConnection, ledger_id: int) -> None:
            row = f"({quote_text(digest)}, {int(ledger_id)})"
            cursor.execute(f"INSERT INTO {self._unanswered} (digest, ledger_id) VALUES {row}")
            plan_row = f"({int(ledger_id)}, {quote_text(plan)}, {quote_text(made_by)})"
            cursor.execute(f"INSERT INTO {self._plans} (ledger_id, plan, made_by) VALUES {plan_row}")

        return note

    def find_outcome(self, digest: str) -> RequestOutcome:
        """Returns the outcome of a request so far: its release, or the ledger entry of a charge without one."""
        literal = quote_text(digest)
        with self._open_cursor() as cursor:
            rows = cursor.execute(
                f"SELECT {_COLUMNS} FROM {self._table} WHERE digest = {literal} AND kind = 'answer'"
            ).fetchall()
            if rows:
                release = _release(rows[0])
                return RequestOutcome(release, self._is_taken(cursor, release.name))
            noted = cursor.execute(
                f"SELECT true, ledger_id FROM {self._failures} WHERE digest = {literal} UNION ALL "
                f"SELECT false, ledger_id FROM {self._unanswered} WHERE digest = {literal}"
            ).fetchall()
        failed, ended = ([entry for failure, entry in noted if failure is which] for which in (True, False))
        return RequestOutcome(failed=max(failed, default=None), unanswered=max(ended, default=None))

    def view(self, name: str) -> StoredRelease | None:
        return next(iter(self._select("WHERE lower(name) = lower(?) AND kind = 'view'", [name])), None)

    def views(self) -> list[str]:
        """Lists the names of the private views, which every permitted caller may read."""
        return [view.name for view in self._select("WHERE kind = 'view'", [])]

    def find(self, name: str) -> StoredRelease | None:
        """Returns a release or a private view by the name of its table."""
        return next(iter(self._select("WHERE lower(name) = lower(?)", [name])), None)

    def covariances(self, digest: str) -> str | None:
        """Returns the covariances of a release's cells, which are public, as text. None if they are not stored."""
        with self._open_cursor() as cursor:
            query = f"SELECT covariances FROM {self._table} WHERE digest = ? AND kind = 'answer'"
            row = cursor.execute(query, [digest]).fetchone()
        return None if row is None or row[0] is None else str(row[0])

    def column_names(self, name: str) -> list[str]:
        with self._open_cursor() as cursor:
            return [str(row[0]) for row in cursor.execute(f"DESCRIBE {self.table_sql(name)}").fetchall()]

    def rows(self, name: str) -> pa.Table:
        with self._open_cursor() as cursor:
            return cursor.sql(f"FROM {self.table_sql(name)}").to_arrow_table()

    def all(self) -> list[tuple[StoredRelease, str]]:
        """Returns every release, each with the time at which it was made."""
        with self._open_cursor() as cursor:
            rows = cursor.execute(
                f"SELECT {_COLUMNS}, CAST(released_at AS VARCHAR) FROM {self._table} ORDER BY ledger_id, kind"
            ).fetchall()
        return [(_release(row), row[-1]) for row in rows]

    def _select(self, condition: str, parameters: list[object]) -> list[StoredRelease]:
        with self._open_cursor() as cursor:
            rows = cursor.execute(f"SELECT {_COLUMNS} FROM {self._table} {condition}", parameters).fetchall()
        return [_release(row) for row in rows]

    def is_taken(self, name: str) -> bool:
        """Tells whether the store has a table of this name. Binding the name is cheaper than listing all tables."""
        with self._open_cursor() as cursor:
            return self._is_taken(cursor, name)

    def _is_taken(self, cursor: duckdb.DuckDBPyConnection, name: str) -> bool:
        with suppress(duckdb.CatalogException):
            cursor.execute(f"SELECT 1 FROM {self.table_sql(name)} LIMIT 0").fetchall()
            return True
        return False

    def kept_by(self, principal: str) -> tuple[int, int]:
        """Returns the number of a principal's releases and views in the store, and the number of their rows."""
        with self._open_cursor() as cursor:
            query = f"SELECT count(*), coalesce(sum(rows), 0) FROM {self._table} WHERE principal = ?"
            ((count, rows),) = cursor.execute(query, [principal]).fetchall()
        return int(count), int(rows)

    def means_something(self, name: str) -> bool:
        """Tells whether DuckDB's catalog has a table of this name. SQL would read that table once the view is gone."""
        internal = "internal AND schema_name IN ('main', 'pg_catalog')"
        with self._open_cursor() as cursor:
            query = f"SELECT 1 FROM duckdb_views() WHERE {internal} AND lower(view_name) = lower(?)"
            return cursor.execute(query, [name]).fetchone() is not None

    def put_table(
        self,
        release: StoredRelease,
        columns: Sequence[tuple[str, str]],
        table: pa.Table,
        covariances: str | None = None,
        before_it_is_seen: Callable[[], None] = lambda: None,
        also: Also = lambda cursor: None,
    ) -> str:
        """Stores a release with its rows, and runs `also` in the same transaction.

        Nothing is stored if `before_it_is_seen` raises. Returns a SELECT of the rows if they are few, otherwise "".
        """
        self._steps(BEFORE_STORING)
        with transaction(self._open_cursor) as cursor:
            values_sql = self._fill(cursor, release.name, columns, table)
            self.insert(cursor, release, table.num_rows, covariances)
            also(cursor)
            cursor.execute(f"DELETE FROM {self._unanswered} WHERE digest = {quote_text(release.digest)}")
            before_it_is_seen()
        return values_sql

    def put_views(
        self,
        views: Sequence[tuple[StoredRelease, str]],
        replace: bool,
        most: int | None = None,
        characters: int | None = None,
    ) -> None:
        """Stores private views in one transaction. Each is a table with the rows of a SELECT over a release.

        most, characters: limits of each view's rows and texts. Refuses larger views, and checks texts before writing.
        """
        with transaction(self._open_cursor) as cursor:
            for release, select_sql in views:
                if replace:
                    self._remove(cursor, release.name)
                bounded = select_sql if most is None else f"FROM ({select_sql}) LIMIT {most + 1}"
                with interrupt_after(self.seconds, cursor):
                    if characters is not None and characters_of(cursor, bounded) > characters:
                        raise Refusal(
                            f"the texts of {release.name!r} are too long; the answers are kept: asking for them again "
                            "is free",
                            accepted=f"at most {characters} characters in all",
                        )
                    ((count,),) = cursor.execute(f"CREATE TABLE {self.table_sql(release.name)} AS {bounded}").fetchall()
                if most is not None and count > most:
                    raise Refusal(
                        f"there is room for {most} rows more in the store, and {release.name!r} has more; the answers "
                        "are kept: asking for them again is free",
                        accepted="fewer rows; DROP PRIVATE VIEW makes room",
                    )
                self.insert(cursor, release, int(count))

    def put_rows(
        self, release: StoredRelease, columns: Sequence[tuple[str, str]], table: pa.Table, replace: bool
    ) -> None:
        """Stores a private table under its own name, with rows that were computed from a release."""
        with transaction(self._open_cursor) as cursor:
            if replace:
                self._remove(cursor, release.name)
            self._fill(cursor, release.name, columns, table)
            self.insert(cursor, release, table.num_rows)

    def _fill(
        self, cursor: duckdb.DuckDBPyConnection, name: str, columns: Sequence[tuple[str, str]], table: pa.Table
    ) -> str:
        """Creates a table with these rows. Few rows are written as SQL, which takes half as long as from Arrow.

        Returns the SELECT in that SQL if it has no parameters, otherwise "".
        """
        target = self.table_sql(name)
        if 0 < table.num_rows * table.num_columns <= FEW and all(kind in _PLAIN for kind in table.schema.types):
            values_sql, values = _values_sql(columns, table)
            cursor.execute(f"CREATE TABLE {target} AS {values_sql}", values)
            return "" if values else values_sql
        listed = ", ".join(f"{quote_identifier(column)} {type_name}" for column, type_name in columns)
        cursor.execute(f"CREATE TABLE {target} ({listed})")
        cursor.register("dpduck_released_rows", table)
        cursor.execute(f"INSERT INTO {target} SELECT * FROM dpduck_released_rows")
        cursor.unregister("dpduck_released_rows")
        return ""

    def drop_view(self, name: str) -> None:
        """Removes a private view. Its release stays, so that the same statement is free."""
        with transaction(self._open_cursor) as cursor:
            self._remove(cursor, name)

    def _remove(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        """Removes a view, and a projection's seed table, since nobody could query that table alone."""
        seeds = cursor.execute(
            f"SELECT seed.name FROM {self._table} AS seed JOIN {self._table} AS main "
            "USING (digest, statement, principal, kind) "
            f"WHERE kind = 'view' AND main.strategy = '{PROJECTION}' AND lower(main.name) = lower($1) "
            f"AND lower(seed.name) = lower($1 || '{SEED}')",
            [name],
        ).fetchall()
        for (seed,) in seeds:
            self._remove(cursor, seed)
        cursor.execute(f"DELETE FROM {self._table} WHERE lower(name) = lower(?) AND kind = 'view'", [name])
        cursor.execute(f"DROP TABLE IF EXISTS {self.table_sql(name)}")

    def insert(
        self, cursor: duckdb.DuckDBPyConnection, release: StoredRelease, rows: int, covariances: str | None = None
    ) -> None:
        """Writes the record of a release after its table was created, and the comments of the table."""
        scope = f"; {release.scope}" if release.scope else ""
        how = spell_out(release.strategy) or release.strategy
        comment = f"{release.price or release.guarantee}{scope}; strategy {how}; ledger entry {release.ledger_id}"
        comment = " ".join(comment.splitlines())  # a name with a line break would read as a title
        comment += f"\n{release.caption}" if release.caption else ""
        cursor.execute(f"COMMENT ON TABLE {self.table_sql(release.name)} IS {quote_text(comment)}")
        named = f"DESCRIBE {self.table_sql(release.name)}"  # an answer is read through dp(), under other names
        for row in [] if release.kind == "answer" else cursor.execute(named).fetchall():
            target = f"{self.table_sql(release.name)}.{quote_identifier(row[0])}"
            cursor.execute(f"COMMENT ON COLUMN {target} IS {quote_text(release.column_note(row[0]))}")
        marks, values = written_values([
            release.name, release.digest, release.statement, release.strategy,
            None if release.epsilon is None else str(release.epsilon), str(release.delta), str(release.rho), rows,
            release.principal, release.ledger_id, laws_to_text(release.laws), release.kind, release.source, covariances,
        ])  # fmt: skip
        columns = f"{_COLUMNS}, covariances, released_at"
        cursor.execute(f"INSERT INTO {self._table} ({columns}) VALUES ({marks}, now() AT TIME ZONE 'UTC')", values)


def _values_sql(columns: Sequence[tuple[str, str]], table: pa.Table) -> tuple[str, list[object]]:
    """Returns a SELECT that yields the rows with these column names and types, and its parameters."""
    written = [written_values(map(_exact, row)) for row in zip(*table.to_pydict().values(), strict=True)]
    names = [f"c{number}" for number in range(len(columns))]
    casts = (
        f"CAST({value} AS {type_name}) AS {quote_identifier(name)}"
        for value, (name, type_name) in zip(names, columns, strict=True)
    )
    rows = ", ".join(f"({marks})" for marks, _ in written)
    select = f"SELECT {', '.join(casts)} FROM (VALUES {rows}) AS dpduck_values({', '.join(names)})"
    return select, [value for _, values in written for value in values]


def _exact(value: object) -> object:
    """Returns a float as the shortest text that casts to the same float, since SQL reads a literal as a decimal."""
    return repr(value) if isinstance(value, float) else value


def laws_to_text(laws: Sequence[Sequence[ErrorLaw]]) -> str:
    """Returns error laws as JSON."""
    return json.dumps(laws, default=as_array)


def laws_from_text(text: str) -> tuple[tuple[ErrorLaw, ...], ...]:
    """Returns the error laws that laws_to_text wrote. It reads no type hints, so that stored answers are fast."""
    return tuple(
        tuple(
            ErrorLaw(NoiseKind[noise], None if parameter is None else Fraction(parameter), *numbers)
            for noise, parameter, *numbers in of_aggregate
        )
        for of_aggregate in json.loads(text)
    )


def _release(row: Sequence[object]) -> StoredRelease:
    return StoredRelease(
        *(str(row[0]), str(row[1]), str(row[2]), str(row[3])),
        epsilon=None if row[4] is None else Fraction(str(row[4])),
        delta=Fraction(str(row[5])),
        rho=Fraction(str(row[6])),
        rows=int(str(row[7])),
        principal=str(row[8]),
        ledger_id=int(str(row[9])),
        laws=laws_from_text(str(row[10])),
        kind=str(row[11]),
        source=str(row[12] or ""),
    )
