"""Runs dpduck's command line in this process."""

from __future__ import annotations

import json

from click.testing import CliRunner, Result

from dpduck.commands.command_line import main


def run(*words: object, typed: str | None = None) -> Result:
    """Runs a command. typed: its standard input."""
    return CliRunner().invoke(main, [str(word) for word in words], input=typed)


def rows(*words: object) -> list[dict[str, object]]:
    """Runs a command, which must succeed, and returns the rows that it prints."""
    result = run(*words, "--format", "json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]
