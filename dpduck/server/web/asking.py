"""What the page asks of the server: every statement through the gate, by the way of every other client's.

Nothing here reads the public database but what the gate admitted, and nothing asks the vault. Nothing is charged but
what was shown as a price: each question to the vault has that as its ceiling.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import duckdb
import pyarrow as pa

from dpduck.publish.pictures import MOST_POINTS, KeyColumn, Shape, shape_of
from dpduck.server.gate import Service, Terms
from dpduck.server.limits import GivenUp, never
from dpduck.server.principals import Principal
from dpduck.server.runner_process import shown_sql
from dpduck.server.syntax import is_ours
from dpduck.store.cursors import FREE_OF_CHARGE, Ceiling
from dpduck.values.column_notes import Nulls
from dpduck.values.errors import DpduckError, PermissionRefusal, Refusal
from dpduck.values.quoting import fold, quote_text
from dpduck.values.sqltypes import sql_type

MOST_COLUMNS = 60
MOST_LETTERS = 1_000
"""Of a value that is shown."""

MOST_BYTES = 8 * 2**20
"""Of the rows of one answer: what is more stays where it is, and never becomes Python's."""

_LETTERS_OF_A_ROW = 20_000
_ROWS_AT_ONCE, _ROWS_OF_A_PIECE = 2_048, 64

_ERRORS = ("stderr", "interval_low", "interval_high")
_ERROR_COLUMNS = "SELECT aggregate, cells, rows_of_a_cell, stderr, worst_stderr"

_WITH_ERRORS = re.compile(r"\s*(SELECT|CREATE\s+(OR\s+REPLACE\s+)?PRIVATE\s+VIEW)\b", re.IGNORECASE)
_LEVELS = re.compile(r"\b(CUBE|ROLLUP|SETS|MARGINALS)\b", re.IGNORECASE)
_SELECTS = re.compile(r"\s*SELECT\b", re.IGNORECASE)
_CHANGES_NOTHING_PAID = re.compile(r"\s*DROP\b", re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """Rows of a statement, as many as a page can use. types: DuckDB's names. more: whether there are others."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool = False
    left_out: int = 0

    def dicts(self) -> list[dict[str, Any]]:
        """Returns the rows by names of columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Asked:
    """A statement as the gate takes it. charging: what it asks the vault that may charge, as action and argument."""

    text: str
    charging: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Priced:
    """What a statement would cost and miss. plan: its row of dp_plan, if it has a price; errors: rows of dp_errors;
    note: dp_explain's.
    """

    statement: str
    plan: Mapping[str, Any] | None = None
    errors: Answer | None = None
    note: str = ""


@dataclass(frozen=True)
class Prices:
    """What all statements of a text would cost, one after the other. totals: rows of dp_plan, of each budget in all.

    policies: under which this holds, each with its revision and epoch.
    """

    statements: tuple[Priced, ...] = ()
    totals: tuple[Mapping[str, Any], ...] = ()
    policies: tuple[tuple[Any, ...], ...] = ()

    @property
    def fits(self) -> bool:
        """Tells whether there is room for all of them in the budgets."""
        return all(row["fits"] is not False for row in self.totals)

    def ceilings(self) -> dict[str, Ceiling]:
        """Returns what each statement may cost: this price, and no more."""
        found: dict[str, Ceiling] = {}
        for one in self.statements:
            ceiling = FREE_OF_CHARGE if one.plan is None else _ceiling(one.plan)
            if ceiling[1] or one.statement not in found:  # the same statement twice is charged once
                found[one.statement] = ceiling
        return found

    def facts(self) -> str:
        """Returns what was shown, as a text: it is another one where a price, or what it buys, is another one."""
        rows = [
            (one.statement, one.plan and (one.plan["table_name"], _ceiling(one.plan), one.plan["note"]))
            for one in self.statements
        ]
        return repr((rows, self.policies))


def _ceiling(row: Mapping[str, Any]) -> Ceiling:
    return (row["epsilon"], float(row["rho"] or 0), float(row["delta"] or 0))


class Desk:
    """Asks for one principal, in one request."""

    def __init__(self, service: Service, principal: Principal, gone: GivenUp = never) -> None:
        self._service = service
        self.principal, self._gone = principal, gone

    def ask(
        self, text: str, most: int = MOST_POINTS, ceilings: Mapping[str, Ceiling] | None = None, *, typed: bool = False
    ) -> Answer:
        """Returns the first rows of a statement. ceilings: what each argument of dp may cost; nothing without them.

        typed: whether somebody typed it, or what it quotes; otherwise the page asks it of itself.
        """
        terms = Terms(ceilings or {}, MOST_LETTERS, page=not typed)
        sql = self._service.gate.admit(self.principal, text, self._gone, terms)
        with self._service.public.cursor() as cursor:
            try:
                bound = cursor.sql(f"SELECT * FROM ({sql}\n) LIMIT 0")
            except duckdb.Error as error:
                said = str(error).strip().split("\n", 1)[0][:300].split(": ", 1)[-1]
                raise Refusal(f"DuckDB does not accept this: {said}", accepted="DuckDB's SQL") from None
            names, types = bound.columns, [str(kind) for kind in bound.types][:MOST_COLUMNS]
            texts = sum(not _is_number(kind) for kind in types)
            letters = min(MOST_LETTERS, _LETTERS_OF_A_ROW // max(1, texts))
            shown = f"{shown_sql(sql, names, types, letters, _is_number)} LIMIT {most + 1}"
            try:
                rows, more = _read(cursor, shown, types, most)
            except (duckdb.Error, pa.ArrowException, ArithmeticError, ValueError):
                raise Refusal(
                    "the statement fails over the released tables",
                    accepted="expressions that every number can go through",
                ) from None
        return Answer(tuple(names[: len(types)]), tuple(types), tuple(rows), more, len(names) - len(types))

    def read(self, text: str) -> Answer | None:
        """Returns what a part of a page shows; None where this principal may not see it."""
        try:
            return self.ask(text)
        except DpduckError:
            return None

    def asked(self, text: str) -> Asked:
        """Reads a statement: as dp() has it, or any that the gate takes; nothing is asked, and nothing charged."""
        if is_ours(text):
            statement = text.strip().rstrip(";")
            return Asked(f"FROM dp({quote_text(statement)})", (("run", statement),))
        calls = self._service.gate.charging(self.principal, text)
        return Asked(text, tuple((call.action, call.argument or "") for call in calls))

    def prices(self, asked: Asked) -> Prices:
        """Returns the price of everything that may charge, in one plan; a Refusal is the statement's own."""
        run = [statement for action, statement in asked.charging if action == "run"]
        paying = [statement for statement in run if not _CHANGES_NOTHING_PAID.match(statement)]
        if not paying:
            return Prices(tuple(map(Priced, run)))
        batch = quote_text(";".join(f"{one}\n" for one in paying))
        plan = self.ask(f"FROM dp_plan({batch})", typed=True).dicts()
        rows = [row for row in plan if row["number"] is not None]
        if len(rows) != len(paying):
            self.ask(asked.text, typed=True)  # which says in its own words why not
            raise Refusal("there are several statements in one text", accepted="one statement in each dp('..')")
        left = iter(rows)
        listed = tuple(Priced(one, None if _CHANGES_NOTHING_PAID.match(one) else next(left)) for one in run)
        policies = self.read("SELECT table_name, revision, epoch FROM dp_policies() ORDER BY ALL")
        totals = tuple(row for row in plan if row["number"] is None)
        return Prices(listed, totals, policies.rows if policies else ())

    def with_errors(self, one: Priced) -> Priced:
        """Returns a price with the errors of what it buys, and with what would help most."""
        if one.plan is None:
            return one
        statement, quoted = one.statement, quote_text(one.statement)
        explained = self.read(f"SELECT note FROM dp_explain({quoted}) WHERE chosen")
        note = str(explained.rows[0][0] or "") if explained and explained.rows else ""
        errors = self.read(f"{_ERROR_COLUMNS} FROM dp_errors({quoted})") if _WITH_ERRORS.match(statement) else None
        return Priced(statement, one.plan, errors, note)

    def charges(self) -> int:
        """Counts what this principal was charged for."""
        found = self.ask("SELECT count(*) FROM dp_ledger()")
        return int(found.rows[0][0])

    def rows_of(self, view: str) -> int:
        """Returns the number of rows of a private view, 0 where it is not there."""
        size = self._service.public.size(fold(view))
        return 0 if size is None else size.rows

    def columns(self) -> list[dict[str, Any]]:
        """Lists the columns that a statement may name, as rows of dp_columns."""
        found = self.read("FROM dp_columns()")
        return [] if found is None else found.dicts()

    def admitted(self, sql: str) -> str:
        """Returns a SELECT over private views as the public database runs it; waits for a place where it has to."""
        return self._service.gate.admit(self.principal, sql, self._gone, Terms({}))

    def table(self, admitted: str, most_bytes: int) -> pa.Table:
        """Returns all rows of what was admitted, and refuses more bytes than `most_bytes`."""
        with self._service.public.cursor() as cursor:
            try:
                reader = cursor.sql(admitted).to_arrow_reader(_ROWS_AT_ONCE)
                batches, size = [], 0
                for batch in reader:
                    batches.append(batch)
                    size += batch.nbytes
                    if size > most_bytes:
                        break
                found = pa.Table.from_batches(batches, reader.schema)
            except (duckdb.Error, pa.ArrowException):
                raise Refusal("the view cannot be a file", accepted="a SELECT of some of its columns") from None
        if size > most_bytes:
            raise Refusal("the view is too large for a file", accepted="a SELECT of fewer rows or columns")
        return found

    def may_ask(self, tables: Sequence[str]) -> set[str]:
        """Returns the last names of the tables that this principal may ask about."""
        found = set()
        for table in tables:
            with suppress(PermissionRefusal):
                self.principal.caller.require_tables([table])
                found.add(fold(table.rpartition(".")[2].strip('"')))
        return found


def names_of(columns: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Lists the names that a statement may have, each with its kind. columns: rows of dp_columns."""
    listed = {str(row["table_name"]): "a table" for row in columns}
    for row in columns:
        name, table = str(row["column_name"]), row["table_name"]
        listed[name] = f"{listed[name]}, {table}" if name in listed else f"{row['data_type']} of {table}"
    return sorted(listed.items())


def _read(
    cursor: duckdb.DuckDBPyConnection, sql: str, types: Sequence[str], most: int
) -> tuple[list[tuple[Any, ...]], bool]:
    """Returns rows of numbers and short texts, piece by piece until they are too many or too large; whether there are
    others.
    """
    rows: list[tuple[Any, ...]] = []
    size = 0
    for batch in cursor.sql(sql).to_arrow_reader(_ROWS_AT_ONCE):
        for start in range(0, batch.num_rows, _ROWS_OF_A_PIECE):
            piece = batch.slice(start, _ROWS_OF_A_PIECE)
            size += piece.nbytes
            if rows and size > MOST_BYTES:
                return rows, True
            made = [_values(column, kind) for column, kind in zip(piece.columns, types, strict=True)]
            rows += zip(*made, strict=True)
            if len(rows) > most:
                return rows[:most], True
    return rows, False


def _values(column: pa.Array, kind: str) -> list[Any]:
    """Returns values: whole numbers of any length, days and moments as Python's own where it has them, else texts."""
    values = column.to_pylist()
    known = sql_type(kind)
    if known.is_whole and not known.is_integer:
        return [None if value is None else int(value) for value in values]
    return [_moment(kind, value) for value in values] if known.is_dated else values


def _is_number(kind: str) -> bool:
    """Tells whether a page has values of the type as numbers and flags, and not as texts: all but wide numbers."""
    known = sql_type(kind)
    return known.is_boolean or (known.is_numeric and known.bits <= 64)


def _moment(kind: str, text: str | None) -> date | str | None:
    if text is None or kind == "TIMESTAMP_NS":  # which is more than Python has
        return text
    try:
        return date.fromisoformat(text) if kind == "DATE" else datetime.fromisoformat(text)
    except ValueError:  # infinity, or a year that Python has no day of
        return text


def view_shape(columns: Sequence[Mapping[str, Any]]) -> Shape:
    """Tells keys from answers by the comments on a view's columns (see publish/pictures.py), of those that an Answer
    has under their whole names.
    """
    there = [c for c in columns[:MOST_COLUMNS] if len(str(c["column_name"])) < MOST_LETTERS]
    return shape_of([(str(c["column_name"]), str(c["data_type"]), str(c["comment"] or "")) for c in there])


def answer_shape(answer: Answer, text: str = "") -> Shape:
    """Guesses what tells groups of an answer apart: the columns before its first number that has errors, or its last
    number.

    text: the statement. Without several grouping sets in it, a NULL is no total.
    """
    nulls = None if _LEVELS.search(text) else Nulls.VALUE
    names = set(answer.columns)
    numbers = [name for name, kind in zip(answer.columns, answer.types, strict=True) if sql_type(kind).is_numeric]
    plain = [name for name in numbers if name not in _ERRORS and not name.startswith("dp_")]
    pairs = _with_errors(names, plain)
    found = tuple(pair for pair in pairs if pair[1] is not None) or pairs[-1:]
    if "stderr" in names and len(pairs) == 1:  # as dp_known has it
        found = ((pairs[0][0], "stderr"),)
    first = answer.columns.index(found[0][0]) if found else 0
    return Shape(tuple(KeyColumn(name, None, nulls) for name in answer.columns[:first] if name not in _ERRORS), found)


def _with_errors(names: set[str], answers: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Returns each answer with the column of its standard errors, under the names that views and statements give it."""
    shown = [name for name in answers if not name.endswith("_stderr")]
    return tuple(
        (name, next((one for one in (f"{name}_stderr", f"dp_stderr({name})") if one in names), None)) for name in shown
    )


def seal(key: bytes, session: str) -> str:
    """Returns proof that a form is of this session; none but the server can make it."""
    return hmac.new(key, session.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def sealed(key: bytes, session: str, given: str) -> bool:
    """Tells whether it is that proof, in constant time."""
    return hmac.compare_digest(seal(key, session).encode(), given.encode("utf-8", "surrogatepass"))


MOST_OFFERS = 200
"""Of one principal: prices that were shown, and not paid yet."""


class Offers:
    """Prices that were shown, each for one press of its button; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, OrderedDict[str, bytes]] = {}

    def made(self, principal: str, session: str, text: str, prices: Prices) -> str:
        """Returns the name of an offer; the oldest of this principal's make room."""
        ticket = secrets.token_urlsafe(32)
        with self._lock:
            mine = self._of.setdefault(principal, OrderedDict())
            mine[ticket] = _digest(session, text, prices)
            while len(mine) > MOST_OFFERS:
                mine.popitem(last=False)
        return ticket

    def taken(self, principal: str, ticket: str) -> bytes | None:
        """Takes an offer away, if it is there; see is_offer."""
        with self._lock:
            return self._of.get(principal, OrderedDict()).pop(ticket, None)


def is_offer(offer: bytes, session: str, text: str, prices: Prices) -> bool:
    """Tells whether this session was offered this text at these very prices, under these policies."""
    return hmac.compare_digest(offer, _digest(session, text, prices))


def _digest(session: str, text: str, prices: Prices) -> bytes:
    return hashlib.sha256(repr((session, text, prices.facts())).encode("utf-8", "surrogatepass")).digest()


def is_paid(asked: Asked, prices: Prices) -> bool:
    """Tells whether asking reads what is paid for, and changes nothing: as a page does that is loaded again."""
    selects = all(one.plan is not None and _SELECTS.match(one.statement) for one in prices.statements)
    return selects and all(action == "run" for action, _ in asked.charging) and not any(map(is_charged, prices.totals))


def is_charged(row: Mapping[str, Any]) -> bool:
    """Tells whether a row of dp_plan costs anything."""
    return any(row.get(name) for name in ("epsilon", "rho", "delta"))
