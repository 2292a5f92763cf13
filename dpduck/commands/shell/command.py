"""dpduck shell: the command. Its imports are made when it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dpduck.commands import DATABASE, ENGINE, FORMAT, STORE


@click.command()
@DATABASE
@STORE
@FORMAT
@ENGINE
def shell(database: Path, store: Path | None, shape: str, engines: tuple[str, ...]) -> None:
    """Type statements and queries one after the other, with history and completion. For the owner.

    A statement ends with a semicolon, on any line. .help lists the commands that begin with a dot. Statements may also
    come through a pipe: dpduck shell clinic.duckdb < statements.sql
    """
    from dpduck.commands.errors import lines_of_input, one_line_errors  # noqa: PLC0415
    from dpduck.commands.owner_session import OwnerSession  # noqa: PLC0415
    from dpduck.commands.shell.loop import OwnerShell, run_lines  # noqa: PLC0415

    with one_line_errors(), OwnerSession(database, store, engines=engines) as session:
        at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if at_terminal:
            from dpduck.commands.shell.prompt import require_prompt, run_prompt  # noqa: PLC0415

            require_prompt()
        is_served = session.is_served()
        owners_shell = OwnerShell(session, shape)
        if at_terminal:
            run_prompt(owners_shell, database.stem, is_served)
        elif not run_lines(owners_shell, lines_of_input()):
            sys.exit(1)
