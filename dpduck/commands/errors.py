"""Errors of a command: one line on standard error, exit status 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
import duckdb

from dpduck.values.errors import DpduckError


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
        text = str(error).strip().split("\n", 1)[0]
        raise click.ClickException(text.removeprefix("Invalid Input Error: ")) from None
