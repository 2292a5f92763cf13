"""The command line: which command lies in which file of this folder.

A file is imported when its command is asked for: the process of dpduck serve, which plans and counts nothing, begins
in half the time that the engine takes.
"""

from __future__ import annotations

import logging

import click

from dpduck.trusted.rows.worker import do_without_pandas

ASKING = (
    *("budget", "certify", "check", "explain", "ledger", "policies", "prepare", "publish", "releases", "show", "sql"),
    "verify",
)
NAMES = (*ASKING, "audit", "compare", "demo", "policy", "principal", "report", "serve")


class Commands(click.Group):
    """The commands, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns all names, which are known without their files."""
        return sorted(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command; None where none has this name."""
        return command(ctx, cmd_name)


def command(ctx: click.Context, name: str) -> click.Command | None:
    """Imports the file of a command."""
    match name:
        case "audit":
            from dpduck.commands.audit import audit_command  # noqa: PLC0415

            return audit_command
        case "compare":
            from dpduck.commands.compare import compare  # noqa: PLC0415

            return compare
        case "demo":
            from dpduck.commands.demo import demo  # noqa: PLC0415

            return demo
        case "serve":
            from dpduck.commands.serving import serve  # noqa: PLC0415

            return serve
        case "policy" | "principal" | "report":
            from dpduck.commands.policy import OWNERS  # noqa: PLC0415

            return OWNERS.get_command(ctx, name)
        case _ if name in ASKING:
            from dpduck.commands.asking import QUESTIONS  # noqa: PLC0415

            return QUESTIONS.get_command(ctx, name)
    return None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dpduck")
def main() -> None:
    """Differential privacy inside DuckDB. DATABASE is a DuckDB file whose tables have privacy policies."""
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of what is no SELECT, as statements of dp() are


def run() -> None:
    """Runs the command that this process was begun for."""
    do_without_pandas()
    main()


if __name__ == "__main__":
    run()
