"""What is read from the command line: dp's own functions, DESCRIBE visits, SHOW TABLES, private views."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
from sqlglot import exp, parse, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from dpduck.commands import one_line_errors
from dpduck.commands.printing import printed
from dpduck.engine.connection import connect
from dpduck.engine.macros import MACROS, SEVERAL_ARGUMENTS
from dpduck.server.syntax import in_selects, is_ours

_ANSWER = "dpduck_answer"


@dataclass(frozen=True)
class Reading:
    """A SELECT over one function of dp's and over nothing else. call: the function with its arguments, as SQL.

    arguments: of the call. over: the SELECT over the function's answer, which has the name _ANSWER there.
    """

    function: str
    call: str
    arguments: str
    over: str

    @property
    def argument(self) -> str | None:
        """Returns the one text that an engine takes for the arguments."""
        parameters, _ = MACROS[self.function]
        taken = SEVERAL_ARGUMENTS.get(self.function, parameters or "NULL")
        with duckdb.connect() as con:
            con.execute(f"CREATE MACRO taken({parameters}) AS {taken}")
            row = con.execute(f"SELECT taken({self.arguments})").fetchone()
        return None if row is None or row[0] is None else str(row[0])

    def shown(self, answer: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
        """Returns what is read of the function's answer."""
        return answer.query(_ANSWER, self.over)


def reading(text: str) -> Reading | None:
    """Returns what a text reads of one of dp's functions; None where it is a statement of dp(), or anything else.

    >>> reading("SELECT domain FROM dp_columns('visits') WHERE column_name = 'sex'").call
    "dp_columns('visits')"
    >>> reading("SELECT * FROM visits")
    """
    if is_ours(text):
        return None
    try:
        tree = parse_one(in_selects(text).strip().rstrip(";"), read="duckdb")
    except (SqlglotError, RecursionError):
        return None
    tables = list(tree.find_all(exp.Table))
    called = tables[0].this if len(tables) == 1 and isinstance(tree, exp.Select) else None
    if not isinstance(called, exp.Anonymous) or called.name.lower() not in MACROS:
        return None
    arguments = ", ".join(one.sql("duckdb") for one in called.expressions)
    function = called.name.lower()
    tables[0].set("this", exp.to_identifier(_ANSWER))
    return Reading(function, f"{function}({arguments})", arguments, tree.sql("duckdb"))


def is_of_views(text: str) -> bool:
    """Tells whether a text is a SELECT over private views and over nothing else.

    >>> is_of_views("WITH w AS (FROM private.by_ward) FROM w WHERE n > 9"), is_of_views("SELECT ward FROM visits")
    (True, False)
    """
    try:
        trees = [] if is_ours(text) else parse(text.strip().rstrip(";"), read="duckdb")
        scopes = traverse_scope(trees[0]) if len(trees) == 1 and isinstance(trees[0], exp.Query) else []
    except (SqlglotError, RecursionError):
        return False
    sources = [source for scope in scopes for source in scope.sources.values()]
    tables = [one for one in sources if isinstance(one, exp.Table)]  # what WITH names is no table
    views = {isinstance(one.this, exp.Identifier) and (one.catalog, one.db) for one in tables}
    return bool(views) and views <= {("", "private"), ("private", "main")}


def show_views(database: Path, store: Path | None, text: str, shape: str) -> None:
    """Prints a SELECT over private views, which are ordinary tables."""
    with one_line_errors(), connect(database, store) as con:
        printed(con.sql(text), shape)
