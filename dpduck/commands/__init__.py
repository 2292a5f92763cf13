"""The command line: a file for each group of commands, and here the arguments and options that several have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import duckdb

from dpduck.values.errors import DpduckError

DATABASE = click.argument("database", type=click.Path(dir_okay=False, exists=True, path_type=Path))
STORE = click.option(
    "--store", type=click.Path(dir_okay=False, path_type=Path), help="The store, if not beside DATABASE."
)
FORMAT = click.option(
    "--format", "shape", type=click.Choice(["box", "csv", "json"]), default="box", help="How the answer is printed."
)


# Errors of a command: one line on standard error, exit status 1.


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns an error into one line on standard error and exit status 1."""
    try:
        yield
    except duckdb.IOException as error:
        if "lock" not in str(error):
            raise click.ClickException(str(error).strip().split("\n", 1)[0]) from None
        raise click.ClickException(
            "another process has this database open, perhaps dpduck serve; accepted: ending it first, or asking it"
        ) from None
    except (DpduckError, duckdb.Error) as error:
        raise click.ClickException(one_line(error)) from None


def one_line(error: Exception) -> str:
    """Returns an error's message, without DuckDB's words around it."""
    return str(error).strip().split("\n", 1)[0].removeprefix("Invalid Input Error: ")
