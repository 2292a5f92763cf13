"""Recognition of the dp functions that a SELECT reads, such as FROM dp_columns('visits')."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import duckdb

from dpduck.database.macros import MACROS, SEVERAL_ARGUMENTS
from dpduck.server.locked import ReleasedTables, answer_place
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

_CALL = re.compile(r"\bdp(?:_\w+)?\s*\(", re.IGNORECASE)


@dataclass(frozen=True)
class FunctionCall:
    """Call of a dp function. arguments: as SQL."""

    function: str
    arguments: str

    def argument(self, tables: ReleasedTables) -> str | None:
        """Evaluates the arguments as the one text that a dp function takes. Returns None if there are none."""
        parameters, _ = MACROS[self.function]
        taken = SEVERAL_ARGUMENTS.get(self.function, parameters or "NULL")
        try:
            return tables.constant(parameters, taken, self.arguments)
        except duckdb.Error:
            what = f"these are no arguments of {self.function}"
            raise Refusal(what, accepted=f"{self.function}({parameters})") from None


@dataclass(frozen=True)
class FunctionQuery:
    """Query over dp functions. sql: the query with names of answers in place of the calls.

    tables: the names of all other tables that the query reads.
    """

    sql: str
    calls: tuple[FunctionCall, ...] = ()
    tables: tuple[str, ...] = ()


def reading(text: str) -> FunctionQuery:
    """Finds the dp functions of a query.

    >>> reading("SELECT domain FROM dp_columns('visits') WHERE column_name = 'sex'").calls
    (FunctionCall(function='dp_columns', arguments="'visits'"),)
    >>> reading("FROM private.by_ward").calls
    ()
    """
    if _CALL.search(text) is None:
        return FunctionQuery(text)
    from sqlglot import exp, parse_one  # noqa: PLC0415 - most queries start without a parser
    from sqlglot.errors import SqlglotError  # noqa: PLC0415

    try:
        tree = parse_one(text.strip().rstrip(";"), read="duckdb")
    except (SqlglotError, RecursionError):
        return FunctionQuery(text)
    calls, tables = list[FunctionCall](), list[str]()
    known = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for node in list(tree.find_all(exp.Table)):
        called = node.this
        if isinstance(called, exp.Identifier):
            if node.db or node.name.lower() not in known:
                tables.append(".".join(part.name for part in node.parts))
        elif isinstance(called, exp.Anonymous) and called.name.lower() in MACROS:
            function = called.name.lower()
            catalog, schema, name = answer_place(len(calls)).split(".")
            calls.append(FunctionCall(function, ", ".join(part.sql("duckdb") for part in called.expressions)))
            node.set("this", exp.to_identifier(name))
            node.set("db", exp.to_identifier(schema))
            node.set("catalog", exp.to_identifier(catalog))
            if not node.alias:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(function)))
    if not calls:
        return FunctionQuery(text)
    return FunctionQuery(tree.sql("duckdb"), tuple(calls), tuple(tables))


def missing_of(query: FunctionQuery, names: Iterable[str]) -> str | None:
    """Returns the first table that a query over dp functions reads, and that is not released."""
    released = {fold(name) for name in names}
    return next((table for table in query.tables if _short(table) not in released), None)


def _short(table: str) -> str:
    return fold(table).removeprefix("private.").removeprefix("main.")
