"""Magics for IPython and Jupyter: `%load_ext dpduck.notebook` adds %dp_connect and %%dp.

Both use one connection, which is the variable `con` of the notebook. IPython is imported inside, where it is needed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from dpduck.commands.answering import TOO_DEAR, print_explanation
from dpduck.commands.errors import one_line
from dpduck.database.connection import connect, load
from dpduck.owner.private_names import DEFINITIONS, private_names
from dpduck.server.bare_statements import first_word, read_bare, split_at_ends
from dpduck.store.attaching import not_opened
from dpduck.store.cursors import is_ctrl_c
from dpduck.values.errors import DpduckError, Refusal
from dpduck.values.quoting import printable, quote_text

VARIABLE = "con"
USAGE = "%%dp [--price | --explain] [name <<], and a statement in the lines below"
_CELL = re.compile(r"\s*(?:--(?P<mode>price|explain)\s*)?(?:(?P<name>[^\W\d]\w*)\s*<<\s*)?")
_PRICE = "SELECT number, coalesce(price, note), times_left, fits FROM dp_plan({}) WHERE number IS NOT NULL"


@dataclass(frozen=True)
class CellLine:
    """The words after %%dp. mode: price, explain, or nothing. name: the variable that keeps the table, if any."""

    mode: str
    name: str


def load_ipython_extension(shell: Any) -> None:
    """Adds the magics to an IPython shell. `%load_ext dpduck.notebook` calls this."""

    def dp_connect(line: str) -> None:
        """Opens a database file, or takes a connection, as `con`: %dp_connect clinic.duckdb"""
        with one_line_errors():
            print(connect_notebook(shell.user_ns, line))  # noqa: T201 - the answer of the cell

    def dp(line: str, cell: str) -> duckdb.DuckDBPyRelation | None:
        """Runs one statement of dp(), or a plain SELECT: %%dp [--price | --explain] [name <<]"""
        with one_line_errors():
            return run_cell(shell.user_ns, line, cell)

    shell.register_magic_function(dp_connect, "line", "dp_connect")
    shell.register_magic_function(dp, "cell", "dp")


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns an error into one line without a traceback. The cell fails, so that a run of all cells stops."""
    from IPython.core.error import UsageError  # noqa: PLC0415

    try:
        yield
    except (DpduckError, duckdb.Error) as error:
        in_use = not_opened(error, None) if isinstance(error, duckdb.IOException) else None
        raise UsageError(one_line(in_use or error)) from None
    except (KeyboardInterrupt, RuntimeError) as error:
        if not is_ctrl_c(error):
            raise
        raise UsageError(str(error) or "interrupted") from None


def connect_notebook(names: dict[str, Any], line: str) -> str:
    """Makes the variable `con` a connection with dpduck. Returns a line that says which database it is.

    names: the variables of the notebook. line: a file, the name of a connection, or nothing for a database in memory.
    """
    try:
        words = shlex.split(line)
    except ValueError:
        words = ["", ""]
    if len(words) > 1:
        raise Refusal("%dp_connect takes one database", accepted="%dp_connect clinic.duckdb")
    if not isinstance(names.get(VARIABLE), duckdb.DuckDBPyConnection | None):
        raise Refusal(f"the variable {VARIABLE} is no connection", accepted=f"del {VARIABLE}, then %dp_connect")
    given = names.get(words[0]) if words else None
    if isinstance(given, duckdb.DuckDBPyConnection):
        names[VARIABLE] = load(given)
        return f"{VARIABLE} is {words[0]}"
    file = Path(words[0]).expanduser() if words else Path(":memory:")
    new = "" if file.exists() else ", a new database"
    names[VARIABLE] = connect(file)
    return f"{VARIABLE} is {file.name}{new}"


def run_cell(names: dict[str, Any], line: str, cell: str) -> duckdb.DuckDBPyRelation | None:
    """Runs a cell. Returns the table to show, and keeps it under a name if the line has one."""
    asked = read_line(line)
    connection = names.get(VARIABLE)
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        raise Refusal("there is no connection yet", accepted="%dp_connect clinic.duckdb")
    bare = read_bare(cell)
    if asked.mode and (bare is None or bare.function != "dp"):
        raise Refusal(f"--{asked.mode} is for a statement of dp()", accepted="SELECT WITH DIFFERENTIAL_PRIVACY ..")
    if asked.mode == "price":
        print("\n".join(prices(connection, cell)))  # noqa: T201 - the answer of the cell
        return None
    require_one(cell)
    if bare is not None and (asked.mode == "explain" or (bare.function == "dp_explain" and not asked.name)):
        explain(connection, bare.statement)
        return None
    shown = read_plain(connection, cell) if bare is None else read_table(connection, bare.query)
    if asked.name:
        names[asked.name] = shown
    return shown


def read_line(line: str) -> CellLine:
    """Reads the words after %%dp.

    >>> read_line("--price"), read_line("wards <<")
    (CellLine(mode='price', name=''), CellLine(mode='', name='wards'))
    """
    found = _CELL.fullmatch(line.split("#", 1)[0])
    if found is None or (found["mode"] and found["name"]):
        raise Refusal(f"%%dp cannot read {line.strip()[:80]!r}", accepted=USAGE)
    return CellLine(found["mode"] or "", found["name"] or "")


def prices(connection: duckdb.DuckDBPyConnection, statement: str) -> list[str]:
    """Returns a line for each statement of a cell: its price, and how often that fits. Nothing is charged."""
    rows = connection.execute(_PRICE.format(quote_text(statement))).fetchall()
    lines = list[str]()
    for number, price, times, fits in rows:
        more = "" if times is None else f"; you can ask this {times:,} time{'s' * (times != 1)}"
        which = f"statement {number}: " if len(rows) > 1 else ""
        lines.append(f"{which}{price}{more if fits else f'; {TOO_DEAR}'}")
    return [printable(line) for line in lines]


def explain(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Prints the errors of a statement's answers, its strategy and its price, as the owner's shell does."""

    def ask(function: str, argument: str | None) -> duckdb.DuckDBPyRelation:
        return connection.from_arrow(connection.sql(f"FROM {function}({quote_text(argument or '')})").to_arrow_table())

    print_explanation(ask, statement)


def require_one(cell: str) -> None:
    """Refuses a cell of several statements, since only the last one would be shown."""
    statements, rest = split_at_ends(cell)
    number = len(statements) + bool(first_word(rest))
    if number > 1:
        raise Refusal(f"this cell has {number} statements", accepted="a cell for each, or %%dp --price")


def read_plain(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation | None:
    """Runs a query over released tables. A query over a private table gives for free what earlier answers tell.

    Refuses the query if earlier answers tell nothing. So nobody takes exact rows for private answers.
    """
    policies = [name for (name,) in connection.execute("SELECT DISTINCT table_name FROM dp_policies()").fetchall()]
    views = connection.execute(DEFINITIONS).fetchall()
    private = private_names(sql, policies, dict(views))
    if not private:
        return read_table(connection, sql)
    question = sql.strip().rstrip(";")
    try:
        return read_table(connection, f"FROM dp_known({quote_text(question)})")
    except (DpduckError, duckdb.Error):
        raise Refusal(
            f"{private[0]} has private rows, and earlier answers do not tell this",
            accepted=f"SELECT WITH DIFFERENTIAL_PRIVACY .., or {VARIABLE}.sql(..)",
        ) from None


def read_table(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation | None:
    """Runs a query once. Returns its rows as a relation, which shows itself and becomes a data frame by .df()."""
    connection.execute("SELECT NULL").fetchall()  # DuckDB 2.0 runs nothing beside a result that was not read
    found: duckdb.DuckDBPyRelation | None = connection.sql(sql)
    return None if found is None else connection.from_arrow(found.to_arrow_table())
