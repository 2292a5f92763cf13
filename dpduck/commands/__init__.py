"""The command line: a file for each group of commands. Arguments and options that several commands share are here."""

from __future__ import annotations

from pathlib import Path

import click

DATABASE = click.argument("database", type=click.Path(dir_okay=False, exists=True, path_type=Path))
STORE = click.option(
    "--store", type=click.Path(dir_okay=False, path_type=Path), help="The store, if not beside DATABASE."
)
ENGINE = click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="NAME=ADDRESS",
    help="An engine with tables, as in lake=sc://HOST:PORT.",
)
FORMAT = click.option(
    "--format", "shape", type=click.Choice(["box", "csv", "json"]), default="box", help="How the answer is printed."
)
