"""Statements and dot commands of the owner's shell. Each prints its rows, or one line with the mistake."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable

import click
import duckdb

from dpduck.commands.answering import (
    BUDGET,
    EFFECTS,
    LEDGER,
    TOO_DEAR,
    print_answer,
    print_explanation,
    times_in_words,
)
from dpduck.commands.errors import one_line
from dpduck.commands.owner_session import OwnerSession
from dpduck.commands.printing import RECORDS, WIDTH, print_relation, say
from dpduck.database.functions import STOPPED
from dpduck.server.bare_statements import QUERIES, first_word, has_clause, split_at_ends, without_dp
from dpduck.store.cursors import is_ctrl_c
from dpduck.values.errors import DpduckError, Interrupted, Refusal

TOGGLE = "\\x"
LEAVING = frozenset((".quit", ".exit", "quit", "exit"))
"""Words that leave the shell, also without a semicolon."""

NO_PRICE = "free: a plain SELECT reads released tables, or says what is known already"

HELP = {
    ".help": "this list",
    ".tables": "tables and private views, with their columns",
    ".budget": "what is spent and left of each budget",
    ".ledger": "every charge",
    ".price STATEMENT;": "the price of a statement in per cent of the budget, before it is paid",
    ".explain STATEMENT;": "how far its answers will be off, and what helps",
    ".errors STATEMENT;": "the standard error of each of its answers; alone, these three take the statement before",
    TOGGLE: "rows one below the other, or in a box again",
    ".quit": "leave, as Ctrl-D does",
}
"""Dot commands. Without a statement, .price, .explain and .errors are about the statement before."""

TABLES = """SELECT c.table_name AS name, any_value(CASE WHEN r.name IS NOT NULL THEN 'private view'
    WHEN p.table_name IS NOT NULL THEN 'private table' ELSE 'public table' END) AS kind,
    string_agg(c.column_name, ', ') AS columns FROM dp_columns() AS c
    LEFT JOIN (FROM dp_releases() WHERE kind = 'view') AS r ON r.name = c.table_name
    LEFT JOIN dp_policies() AS p ON ends_with('.' || p.table_name, '.' || c.table_name)
    GROUP BY c.table_name ORDER BY kind, name"""
"""Query of all tables that may be read or asked about. It reads public facts alone."""


class OwnerShell:
    """Shell of one owner. It goes on after a refusal, an interruption and the end of a server."""

    def __init__(self, session: OwnerSession, shape: str) -> None:
        """shape: box, csv or json."""
        self.session = session
        self._shape = shape
        self._records = False
        self._last = ""
        self.refused = self.interrupted = False
        self.changed = False
        self._commands: dict[str, Callable[[str], None]] = {
            ".help": self._help,
            ".tables": lambda _: self._print(self.session.run(TABLES)),
            ".budget": lambda _: self._print(self.session.ask("dp_budget", None), BUDGET),
            ".ledger": lambda _: self._print(self.session.ask("dp_ledger", None), LEDGER),
            ".price": self._price,
            ".explain": lambda text: print_explanation(self.session.ask, text),
            ".errors": lambda text: self._print(self.session.ask("dp_errors", text)),
            TOGGLE: self._toggle,
        }

    @property
    def shape(self) -> str:
        return RECORDS if self._records and self._shape == "box" else self._shape

    def execute(self, text: str) -> bool:
        """Runs a typed text: a dot command, or statements with a semicolon after each. Returns whether to leave."""
        stripped = text.strip()
        if stripped.rstrip("; \n").lower() in LEAVING:
            return True
        if is_dot_command(stripped):
            self._attempt(lambda: self._command(stripped))
            return False
        statements, rest = split_at_ends(text)
        for statement in [*statements, *([rest.strip()] if first_word(rest) else [])]:
            self._last = statement
            if not self._attempt(lambda statement=statement: self._statement(statement)):  # type: ignore[misc]
                break
        return False

    def _statement(self, text: str) -> None:
        self.changed |= first_word(text) not in ("SELECT", "FROM", "WITH")
        print_answer(self.session, text, self.shape, TOGGLE)

    def _command(self, text: str) -> None:
        name, argument = (*text.split(None, 1), "")[:2] if not is_toggle(text) else (text.rstrip("; "), "")
        command = self._commands.get(name.rstrip(";").lower())
        if command is None:
            raise Refusal(f"there is no command {name[:40]!r}", accepted=", ".join(name.split()[0] for name in HELP))
        argument = argument.strip().rstrip(";").strip()
        if takes_statement(text):
            argument = argument or self._last
            self._last = argument
            if not argument:
                name = name.rstrip(";")
                raise Refusal("a statement is missing", accepted=f"{name} SELECT WITH DIFFERENTIAL_PRIVACY ..;")
        command(argument)

    def _attempt(self, action: Callable[[], None]) -> bool:
        """Runs an action. A refusal or Ctrl-C is one line. Returns whether the action was done."""
        try:
            action()
        except (DpduckError, duckdb.Error, Interrupted) as error:
            self._complain(one_line(error))
        except (KeyboardInterrupt, RuntimeError) as error:
            if not is_ctrl_c(error):
                raise
            self.session.interrupt()
            self._complain(STOPPED)
        else:
            return True
        return False

    def _complain(self, line: str) -> None:
        self.refused = True
        self.interrupted = line.startswith("interrupted;")
        click.secho(f"Error: {line}", fg="red", err=True)

    def _print(self, relation: duckdb.DuckDBPyRelation, narrow: tuple[str, ...] = ()) -> None:
        print_relation(relation, self.shape, narrow, TOGGLE)

    def _help(self, _: str) -> None:
        room = max(map(len, HELP))
        for name, text in HELP.items():
            click.echo(f"{name:<{room}}  {text}")
        more = (
            "A statement ends with a semicolon: SELECT WITH DIFFERENTIAL_PRIVACY .., CREATE PRIVATE .., policies, and "
            "any query over private views and dp functions. A plain SELECT over a private table says what is known."
        )
        click.echo(textwrap.fill(more, WIDTH))

    def _toggle(self, _: str) -> None:
        self._records = not self._records
        click.echo("rows one below the other" if self._records else "rows in a box")

    def _price(self, text: str) -> None:
        """Prints the price of each statement of a text, or what an ALTER takes away. Charges nothing."""
        text = without_dp(text)
        if first_word(text) == "ALTER":
            self._print(self.session.ask("dp_explain", text), EFFECTS)
            return
        if first_word(text) in QUERIES and not has_clause(text):
            click.echo(NO_PRICE)
            return
        planned = self.session.ask("dp_plan", text).filter("number IS NOT NULL")
        columns = "price, fits, remaining_percent, times_left, note"
        for price, fits, left, times, note in planned.project(columns).fetchall():
            said = [price or note or "free"]
            if price and not fits:
                said.append(TOO_DEAR)
            elif price:
                said += [] if left is None else [f"{left:.3g} % are left afterwards"]
                said += [] if times is None else [times_in_words(times)]
            say("; ".join(said))


def is_dot_command(text: str) -> bool:
    """Tells whether a text is a dot command. A number such as .5 is none."""
    return is_toggle(text) or (text.startswith(".") and text[1:2].isalpha())


def is_toggle(text: str) -> bool:
    """Tells whether a text is the toggle, in a letter of either size."""
    return text.lower().startswith(TOGGLE)


def takes_statement(text: str) -> bool:
    """Tells whether a text is a dot command about a statement, which may have several lines."""
    return text.lower().startswith((".price", ".explain", ".errors"))


def is_complete(text: str) -> bool:
    """Tells whether Enter runs a text: a dot command, or statements that all end with a semicolon.

    >>> is_complete(".budget"), is_complete("SELECT 1"), is_complete("SELECT ';"), is_complete(".price SELECT 1;")
    (True, False, False, True)
    """
    stripped = text.strip()
    if not stripped or stripped.lower() in LEAVING:
        return True
    if is_dot_command(stripped) and not (takes_statement(stripped) and len(stripped.split()) > 1):
        return True
    return not first_word(split_at_ends(text)[1])


def run_lines(shell: OwnerShell, lines: Iterable[str]) -> bool:
    """Runs statements from a pipe, each as soon as it is complete. Returns whether none was refused.

    Ctrl-C ends the statement that runs, and no other is begun.
    """
    waiting = ""
    for line in lines:
        waiting += line
        if is_complete(waiting):
            if shell.execute(waiting) or shell.interrupted:
                return not shell.refused
            waiting = ""
    if waiting.strip():
        shell.execute(waiting)
    return not shell.refused
