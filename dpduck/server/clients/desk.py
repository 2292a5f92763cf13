"""Desk: asks the gate for one principal, and prices statements. The page and the tools of agents use it.

Every statement passes the gate, as for every other client. Nothing here asks the vault directly. Each question to the
vault has the shown price as its limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import duckdb
import pyarrow as pa

from dpduck.publish.pictures import MOST_POINTS
from dpduck.server.bare_statements import QUERIES, first_word
from dpduck.server.gate import ClientTerms, Service
from dpduck.server.limits import GivenUp, never
from dpduck.server.principals import Principal
from dpduck.server.runner_process import shown_sql
from dpduck.store.cursors import FREE_OF_CHARGE, Ceiling
from dpduck.values.errors import DpduckError, PermissionRefusal, Refusal
from dpduck.values.quoting import fold, quote_text
from dpduck.values.sqltypes import sql_type

MOST_COLUMNS = 60
MOST_LETTERS = 1_000
"""The largest number of letters of a shown value."""

MOST_BYTES = 8 * 2**20
"""The largest size of the rows of one answer. Further rows are not turned into Python objects."""

_LETTERS_OF_A_ROW = 20_000
_ROWS_AT_ONCE, _ROWS_OF_A_PIECE = 2_048, 64


_ERROR_COLUMNS = "SELECT aggregate, cells, rows_of_a_cell, stderr, worst_stderr"

_VIEW = re.compile(r"\bCREATE\s+(OR\s+REPLACE\s+)?PRIVATE\s+VIEW\b", re.IGNORECASE)


@dataclass(frozen=True)
class PageAnswer:
    """Rows of a statement for a page. types: DuckDB's names. more: if rows are missing. left_out: missing columns."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool = False
    left_out: int = 0

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class PageStatement:
    """Statement as it was typed. charging: its calls that may charge, as action and argument."""

    text: str
    charging: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Priced:
    """Statement with its price and errors. plan: its row of dp_plan, None without a price.

    note, other_prices: of dp_explain.
    """

    statement: str
    plan: Mapping[str, Any] | None = None
    errors: PageAnswer | None = None
    note: str = ""
    other_prices: str = ""


@dataclass(frozen=True)
class Prices:
    """Prices of all statements of a text, in order. totals: dp_plan's total of each budget.

    policies: the policies under which the prices hold, each with its revision and epoch.
    """

    statements: tuple[Priced, ...] = ()
    totals: tuple[Mapping[str, Any], ...] = ()
    policies: tuple[tuple[Any, ...], ...] = ()

    @property
    def fits(self) -> bool:
        return all(row["fits"] is not False for row in self.totals)

    def ceilings(self) -> dict[str, Ceiling]:
        """Returns the price that was shown for each statement. No statement may cost more."""
        limits: dict[str, Ceiling] = {}
        for priced in self.statements:
            ceiling = FREE_OF_CHARGE if priced.plan is None else _ceiling(priced.plan)
            if ceiling[1] or priced.statement not in limits:  # the same statement twice is charged once
                limits[priced.statement] = ceiling
        return limits

    def facts(self) -> str:
        """Returns the shown facts as a text, which differs if a statement, its price or its policy differs."""
        rows = [
            (priced.statement, priced.plan and (priced.plan["table_name"], _ceiling(priced.plan), priced.plan["note"]))
            for priced in self.statements
        ]
        return repr((rows, self.policies))


def _ceiling(row: Mapping[str, Any]) -> Ceiling:
    return (row["epsilon"], float(row["rho"] or 0), float(row["delta"] or 0))


class Desk:
    """Asks questions for one principal, within one request of a browser."""

    def __init__(self, service: Service, principal: Principal, gone: GivenUp = never) -> None:
        self._service = service
        self.principal, self._gone = principal, gone

    def ask(
        self, text: str, most: int = MOST_POINTS, ceilings: Mapping[str, Ceiling] | None = None, *, typed: bool = False,
        entries: list[int] | None = None,
    ) -> PageAnswer:  # fmt: skip
        """Returns the first rows of a statement. ceilings: the largest cost of each argument of dp, 0 for others.

        typed: whether somebody typed the statement or its argument. Otherwise the page asks by itself. entries: takes
        the ledger entries of its charges.
        """
        terms = ClientTerms(ceilings or {}, MOST_LETTERS, page=not typed)
        sql = self._service.gate.admit(self.principal, text, self._gone, terms, entries)
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
                rows, more = _read_rows(cursor, shown, types, most)
            except (duckdb.Error, pa.ArrowException, ArithmeticError, ValueError):
                raise Refusal(
                    "the statement fails over the released tables",
                    accepted="expressions that every number can go through",
                ) from None
        return PageAnswer(tuple(names[: len(types)]), tuple(types), tuple(rows), more, len(names) - len(types))

    def try_ask(self, text: str) -> PageAnswer | None:
        """Returns the rows for a part of a page, or None if the statement is refused or fails."""
        try:
            return self.ask(text)
        except DpduckError:
            return None

    def read_statement(self, text: str) -> PageStatement:
        """Returns a typed text with its calls that may charge. Charges nothing."""
        calls = self._service.gate.charging(self.principal, text)
        return PageStatement(text, tuple((call.action, call.argument or "") for call in calls))

    def prices(self, asked: PageStatement) -> Prices:
        """Returns the prices of all calls that may charge, planned together. Raises the refusal of a refused call."""
        run = [statement for action, statement in asked.charging if action == "run"]
        paying = [statement for statement in run if not _drops(statement)]
        if not paying:
            return Prices(tuple(map(Priced, run)))
        batch = quote_text(";".join(f"{text}\n" for text in paying))
        plan = self.ask(f"FROM dp_plan({batch})", typed=True).dicts()
        rows = [row for row in plan if row["number"] is not None]
        if len(rows) != len(paying):
            self.ask(asked.text, typed=True)  # raises the statement's own refusal
            raise Refusal("there are several statements in one text", accepted="one statement in each dp('..')")
        left = iter(rows)
        listed = tuple(Priced(text, None if _drops(text) else next(left)) for text in run)
        policies = self.try_ask("SELECT table_name, revision, epoch FROM dp_policies() ORDER BY ALL")
        totals = tuple(row for row in plan if row["number"] is None)
        return Prices(listed, totals, policies.rows if policies else ())

    def with_errors(self, priced: Priced) -> Priced:
        if priced.plan is None:
            return priced
        statement, quoted = priced.statement, quote_text(priced.statement)
        explained = self.try_ask(f"SELECT note, other_prices FROM dp_explain({quoted}) WHERE chosen")
        note, others = (
            map(str, (text or "" for text in explained.rows[0])) if explained and explained.rows else ("", "")
        )
        with_errors = first_word(statement) in QUERIES or _VIEW.search(statement) is not None
        errors = self.try_ask(f"{_ERROR_COLUMNS} FROM dp_errors({quoted})") if with_errors else None
        return Priced(statement, priced.plan, errors, note, others)

    def charges(self) -> int:
        answer = self.ask("SELECT count(*) FROM dp_ledger()")
        return int(answer.rows[0][0])

    def rows_of(self, view: str) -> int:
        size = self._service.public.size(fold(view))
        return 0 if size is None else size.rows

    def columns(self) -> list[dict[str, Any]]:
        answer = self.try_ask("FROM dp_columns()")
        return [] if answer is None else answer.dicts()

    def admit(self, sql: str) -> str:
        """Returns SQL for the public database that reads a SELECT over private views. May wait for a runner."""
        return self._service.gate.admit(self.principal, sql, self._gone, ClientTerms({}))

    def table(self, admitted: str, most_bytes: int) -> pa.Table:
        with self._service.public.cursor() as cursor:
            try:
                reader = cursor.sql(admitted).to_arrow_reader(_ROWS_AT_ONCE)
                batches, size = [], 0
                for batch in reader:
                    batches.append(batch)
                    size += batch.nbytes
                    if size > most_bytes:
                        break
                rows = pa.Table.from_batches(batches, reader.schema)
            except (duckdb.Error, pa.ArrowException):
                raise Refusal("the view cannot be a file", accepted="a SELECT of some of its columns") from None
        if size > most_bytes:
            raise Refusal("the view is too large for a file", accepted="a SELECT of fewer rows or columns")
        return rows

    def may_ask(self, tables: Sequence[str]) -> set[str]:
        """Returns the tables that this principal may ask about, each by the last part of its name."""
        names = set()
        for table in tables:
            with suppress(PermissionRefusal):
                self.principal.caller.require_tables([table])
                names.add(fold(table.rpartition(".")[2].strip('"')))
        return names


def _read_rows(
    cursor: duckdb.DuckDBPyConnection, sql: str, types: Sequence[str], most: int
) -> tuple[list[tuple[Any, ...]], bool]:
    """Returns rows of numbers and short texts, within limits of rows and bytes, and whether more rows exist."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    for batch in cursor.sql(sql).to_arrow_reader(_ROWS_AT_ONCE):
        for start in range(0, batch.num_rows, _ROWS_OF_A_PIECE):
            piece = batch.slice(start, _ROWS_OF_A_PIECE)
            size += piece.nbytes
            if rows and size > MOST_BYTES:
                return rows, True
            values = [_values(column, kind) for column, kind in zip(piece.columns, types, strict=True)]
            rows += zip(*values, strict=True)
            if len(rows) > most:
                return rows[:most], True
    return rows, False


def _values(column: pa.Array, kind: str) -> list[Any]:
    """Returns Python values. Whole numbers may have any length. Days and moments beyond Python's range stay texts."""
    values = column.to_pylist()
    column_type = sql_type(kind)
    if column_type.is_whole and not column_type.is_integer:
        return [None if value is None else int(value) for value in values]
    return [_moment(kind, value) for value in values] if column_type.is_dated else values


def _is_number(kind: str) -> bool:
    """Tells whether pages show values of a type as numbers or flags. They show wide numbers as texts."""
    column_type = sql_type(kind)
    return column_type.is_boolean or (column_type.is_numeric and column_type.bits <= 64)


def _moment(kind: str, text: str | None) -> date | str | None:
    if text is None or kind == "TIMESTAMP_NS":  # finer than a moment of Python
        return text
    try:
        return date.fromisoformat(text) if kind == "DATE" else datetime.fromisoformat(text)
    except ValueError:  # infinity, or a year beyond Python's range
        return text


def is_paid(asked: PageStatement, prices: Prices) -> bool:
    """Tells whether a statement only reads answers that are paid for, as when a browser loads a page again."""
    selects = all(priced.plan is not None and first_word(priced.statement) in QUERIES for priced in prices.statements)
    return selects and all(action == "run" for action, _ in asked.charging) and not any(map(is_charged, prices.totals))


def _drops(statement: str) -> bool:
    """Tells whether a statement changes nothing that is paid for."""
    return first_word(statement) == "DROP"


def is_charged(row: Mapping[str, Any]) -> bool:
    """Tells whether a row of dp_plan costs anything."""
    return any(row.get(name) for name in ("epsilon", "rho", "delta"))
