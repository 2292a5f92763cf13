"""Reports the errors of a command: one line on standard error, and exit status 1."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

import click

from dpduck.values.errors import DpduckError, Interrupted, Refusal
from dpduck.values.quoting import printable


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns an error into one line on standard error and exit status 1."""
    try:
        yield
    except (DpduckError, Interrupted) as error:
        raise click.ClickException(one_line(error)) from None
    except Exception as error:
        said = _of_duckdb(error)
        if said is None:
            raise
        raise click.ClickException(said) from None


def _of_duckdb(error: Exception) -> str | None:
    """Returns the line for an error of DuckDB, or None for other errors. Its imports are only needed for an error."""
    import duckdb  # noqa: PLC0415

    from dpduck.store.attaching import not_opened  # noqa: PLC0415

    if isinstance(error, duckdb.IOException):
        return one_line(not_opened(error, _database_here()) or error)
    return one_line(error) if isinstance(error, duckdb.Error) else None


def _database_here() -> Path | None:
    context = click.get_current_context(silent=True)
    named = None if context is None else context.params.get("database")
    return named if isinstance(named, Path) else None


def lines_of_input() -> Iterator[str]:
    """Yields the lines of standard input, which is in UTF-8. A byte order mark at its start is left out."""
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    try:
        yield from sys.stdin
    except UnicodeDecodeError:
        accepted = "a copy in UTF-8: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW, with the encoding that the file has"
        raise Refusal("standard input is not in UTF-8", accepted=accepted) from None


def one_line(error: BaseException) -> str:
    """Returns the first line of an error's message as a terminal may show it, without DuckDB's words before it."""
    return printable(str(error).strip().split("\n", 1)[0].removeprefix("Invalid Input Error: "))
