"""Tools of agents, each with its description, its parameters and its function. Nothing else is reachable."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dpduck.server.clients.desk import Desk
from dpduck.server.mcp.questions import answer_of, budgets_of, free_answer, last_name, price_of
from dpduck.server.mcp.results import IS_DATA, MOST_ROWS, Json, clean_text, records_of
from dpduck.values.errors import DpduckError, Refusal
from dpduck.values.quoting import fold, quote_text

INSTRUCTIONS = (
    "Answers about private tables, with noise that protects each person. Each new answer spends a part of a budget "
    "that never grows back. Ask `tables` and `columns` first, then `known`, then `price`, and `ask` last. Every number "
    "has an error: report it with the number. Statements are DuckDB's SQL. A question about a private table is SELECT "
    "WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) sex, count(*) AS n FROM visits GROUP BY sex. " + IS_DATA
)
MOST_TABLES = 200
_POLICY = ("table_name", "privacy_unit", "max_rows", "expect_rows", "min_epsilon", "max_epsilon", "guarantee")
_COLUMN = ("column_name", "data_type", "privacy_unit", "domain", "cells", "clamp")


@dataclass(frozen=True)
class Parameter:
    """Parameter of a tool. kind: its type in JSON Schema."""

    name: str
    kind: str
    description: str
    required: bool = True

    def check(self, value: object) -> Any:
        """Returns a given value, or refuses one of another type."""
        if self.kind == "string" and isinstance(value, str):
            return value
        if self.kind == "boolean" and isinstance(value, bool):
            return value
        if self.kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                if math.isfinite(value) and value >= 0:
                    return float(value)
            raise Refusal(f"{self.name} is out of range", accepted="a number from 0 to 100")
        raise Refusal(f"{self.name} is no {self.kind}", accepted=f"a {self.kind}")


SQL = Parameter("sql", "string", "one statement of SQL")
MOST = Parameter("most_percent", "number", "the most that it may cost, in per cent of your budget", required=False)
ANEW = Parameter("anew", "boolean", "true: pay for a new answer even if earlier releases give one", required=False)
TABLE = Parameter("table", "string", "a name of `tables`")


@dataclass(frozen=True)
class AgentTool:
    """Tool of agents. free: whether it never charges anything."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    run: Callable[[Desk, Mapping[str, Any]], Json]
    free: bool = True

    def schema(self) -> Json:
        """Returns the parameters as JSON Schema."""
        described = {entry.name: {"type": entry.kind, "description": entry.description} for entry in self.parameters}
        return {
            "type": "object",
            "properties": described,
            "required": [entry.name for entry in self.parameters if entry.required],
            "additionalProperties": False,
        }

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a call. Refuses others, missing ones, and those of another type."""
        names = {entry.name: entry for entry in self.parameters}
        for name in given:
            if name not in names:
                accepted = ", ".join(names) or "no argument"
                raise Refusal(f"{self.name} has no argument {clean_text(name, 60)!r}", accepted=accepted)
        for entry in self.parameters:
            if entry.required and given.get(entry.name) is None:
                raise Refusal(f"{self.name} needs {entry.name}", accepted=entry.description)
        return {name: names[name].check(value) for name, value in given.items() if value is not None}


_PUBLIC = "SELECT DISTINCT table_name FROM dp_columns() WHERE kind = 'public table'"


def list_tables(desk: Desk) -> Json:
    """Lists the private tables that may be asked about, with budgets, and the released tables that may be read."""
    policies = desk.ask("FROM dp_policies()", MOST_TABLES)
    theirs = desk.may_ask([str(row["table_name"]) for row in policies.dicts()])
    mine = [row for row in policies.dicts() if last_name(row["table_name"]) in theirs]
    views = desk.ask("SELECT table_name, comment FROM duckdb_tables() ORDER BY table_name", MOST_TABLES)
    public = desk.ask(f"{_PUBLIC} ORDER BY table_name", MOST_TABLES)
    return {
        "data_note": IS_DATA,
        "private_tables": records_of(mine, _POLICY),
        "budget": budgets_of(desk, theirs),
        "released_tables": records_of(views.dicts(), ("table_name", "comment")),
        "public_tables": [clean_text(str(row["table_name"])) for row in public.dicts()],
        "more": policies.more or views.more or public.more,
    }


def list_columns(desk: Desk, table: str) -> Json:
    """Lists the columns of a table: types, domains and clamps, and of a released table its notes."""
    listed = desk.ask(f"FROM dp_columns({quote_text(table)})", MOST_ROWS)
    notes = desk.ask(
        "SELECT column_name, comment FROM duckdb_columns() "
        f"WHERE lower(table_name) = {quote_text(fold(table))} AND comment IS NOT NULL",
        MOST_ROWS,
    )
    return {
        "data_note": IS_DATA,
        "columns": records_of(listed.dicts(), _COLUMN),
        **({"notes": records_of(notes.dicts(), ("column_name", "comment"))} if notes.rows else {}),
        "more": listed.more,
    }


TOOLS = (
    AgentTool(
        "tables", "Lists the private tables that you may ask about, what is left of their budgets in per cent, and the "
        "released tables that you may read for free. " + IS_DATA, (), lambda desk, _: list_tables(desk),
    ),
    AgentTool(
        "columns", "Lists the columns of one table: type, domain, clamp. A GROUP BY column needs a domain. " + IS_DATA,
        (TABLE,), lambda desk, given: list_columns(desk, given["table"]),
    ),
    AgentTool(
        "known", "Answers for free: a SELECT over released tables, or over a private table where earlier releases give "
        "the answer. Never charges. " + IS_DATA, (SQL,), lambda desk, given: free_answer(desk, given["sql"]),
    ),
    AgentTool(
        "price", "Says what a question would cost, in per cent of your budget, how far each answer may be off, and "
        "whether it is free. Never charges. " + IS_DATA, (SQL,), lambda desk, given: price_of(desk, given["sql"]),
    ),
    AgentTool(
        "ask", "Answers SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = ..) .. with errors. First looks for a free "
        "answer. A new answer is charged, never above most_percent, nor above the ceiling that a person set for the "
        "day. " + IS_DATA, (SQL, MOST, ANEW),
        lambda desk, given: answer_of(desk, given["sql"], given.get("most_percent"), anew=given.get("anew", False)),
        free=False,
    ),
)  # fmt: skip
"""All that an agent can do."""


def call(desk: Desk, name: str, given: Mapping[str, Any] | None) -> Json:
    """Runs a tool. Refuses an unknown tool or argument. Raises the refusal of a statement that is not accepted."""
    for tool in TOOLS:
        if tool.name == name:
            return tool.run(desk, tool.arguments(given or {}))
    raise Refusal(f"there is no tool {clean_text(name, 60)!r}", accepted=", ".join(tool.name for tool in TOOLS))


def refusal_text(error: DpduckError) -> str:
    """Returns a refusal in one line, in which names of the database are shown as any other data."""
    return clean_text(" ".join(str(error).split()), 1_000)
