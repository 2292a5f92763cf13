"""The command line: the names of all commands, their help in one line, and the file that each command is in."""

from __future__ import annotations

import logging
from inspect import cleandoc

import click
from click.shell_completion import CompletionItem

from dpduck.values.no_pandas import do_without_pandas

HELPS = {
    "audit": "Ask STATEMENTS, or some of every mechanism, of two made-up tables that differ in one privacy unit.",
    "budget": "List every table's budget, what is spent and what is left, and until when it lasts at the present rate.",
    "certify": (
        "Write a certificate for every release, which anyone can check without the data: python BUNDLE/check.py"
    ),
    "check": "Show what the answers about TABLE leave out, exactly: for its owner's eyes only.",
    "compare": (
        "Tell how far synthetic TABLE is from the data, exactly: for its owner's eyes only, never to be published."
    ),
    "demo": "Make a clinic of 1,000,000 visits, declare its policy, release counts, show them beside the exact ones.",
    "document": "Write a document about what was released: a registry record, a privacy label, a codebook, or methods.",
    "explain": "Say how far a statement's answers will be off, what helps, and what they cost. Spends nothing.",
    "ledger": "List every charge: when, who, what, how much. A box has only the beginning of each statement.",
    "mcp": "Let an agent ask over MCP, on this process's input and output, until its input ends.",
    "policies": "List every policy in force.",
    "policy": "Begin a privacy policy, or print those in force as statements.",
    "prepare": "Prepare the named tables, or all with a policy, so that answers take less time.",
    "principal": "Manage who may ask over a server.",
    "publish": "Write private views, and nothing else, to a DuckDB file, Parquet files or PostgreSQL.",
    "release": ("Release a PLAN of statements to a folder: data, certificates and documents. It can be repeated."),
    "releases": "List every released table. A box has only the beginning of each statement.",
    "report": "Write one page with a picture of every private view, what is protected, and what was spent.",
    "serve": "Serve DATABASE's private answers to the principals of its store, until the process is told to end.",
    "shell": "Type statements and queries one after the other, with history and completion. For the owner.",
    "show": "Print a private view.",
    "sql": (
        "Run one statement of dp(): a question, a policy, a view. Or read: FROM dp_columns('visits'), FROM private.v."
    ),
    "trial": (
        "Try STATEMENTS on the true data many times: how useful would their answers be? For its owner's eyes only."
    ),
    "verify": "Check the ledger's whole chain, and that the store is not an older or a second copy.",
}
"""Every command, and the first paragraph of its help. Listing the commands imports no command."""


class Commands(click.Group):
    """Group of commands, each imported at its first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(HELPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands as click does, with the texts of HELPS."""
        limit = formatter.width - 6 - max(map(len, HELPS))
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help(name, limit)) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        named = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=short_help(name)) for name in named), *options]


def short_help(name: str, limit: int = 45) -> str:
    """Returns the help of a command, shortened by click to `limit` characters."""
    return click.Command(name, help=cleandoc(HELPS[name])).get_short_help_str(limit)


def command(ctx: click.Context, name: str) -> click.Command | None:
    """Imports the file of a command, and returns the command, or None if no command has this name."""
    match name:
        case "audit" | "compare" | "demo" | "release" | "report" | "trial":
            from dpduck.commands.showing import SHOWING  # noqa: PLC0415

            return SHOWING.get_command(ctx, name)
        case "serve":
            from dpduck.commands.serving import serve  # noqa: PLC0415

            return serve
        case "mcp":
            from dpduck.commands.agents import mcp  # noqa: PLC0415

            return mcp
        case "shell":
            from dpduck.commands.shell.command import shell  # noqa: PLC0415

            return shell
        case "document":
            from dpduck.commands.documents import document  # noqa: PLC0415

            return document
        case "policy":
            from dpduck.commands.policy import policy  # noqa: PLC0415

            return policy
        case "principal":
            from dpduck.commands.principals import principal  # noqa: PLC0415

            return principal
        case _ if name in HELPS:
            from dpduck.commands.asking import QUESTIONS  # noqa: PLC0415

            return QUESTIONS.get_command(ctx, name)
    return None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dpduck")
def main() -> None:
    """Differential privacy inside DuckDB. DATABASE is a DuckDB file whose tables have privacy policies."""
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of texts other than SELECT, such as those of dp()


def run() -> None:
    """Runs the command of this process."""
    do_without_pandas()
    main()


if __name__ == "__main__":
    run()
