"""Prompt of the owner's shell at a terminal: several lines, history in a file, completion with Tab.

This file alone uses prompt_toolkit, which the extra `shell` installs.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import duckdb

from dpduck.commands.shell.completion import PublicNames, names_from, offer
from dpduck.commands.shell.loop import OwnerShell, is_complete
from dpduck.kernel.ledger.witness import state_directory
from dpduck.values.errors import DpduckError, Refusal

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

HISTORY = "shell_history"
"""Name of the file with the history, in the state directory. Only its owner can read it."""

SERVED, ALONE = (
    "{0} is served: the server answers.",
    "{0} is open here: other processes wait until you leave.",
)
GREETING = " A statement ends with ; and .help lists commands."


def require_prompt() -> None:
    """Refuses a terminal if prompt_toolkit is not installed. Statements through a pipe need no prompt."""
    if find_spec("prompt_toolkit") is None:
        raise Refusal("dpduck shell at a terminal needs prompt_toolkit", accepted="pip install '.[shell]'")


def run_prompt(shell: OwnerShell, name: str, is_served: bool) -> None:
    """Reads and runs typed lines until the owner leaves. name: the database's, for the prompt."""
    click.echo((SERVED if is_served else ALONE).format(name) + GREETING)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script may have started the shell with Ctrl-C ignored
    load_arrow()
    session = open_prompt(shell, name)
    while True:
        try:
            if shell.execute(session.prompt()):
                return
        except KeyboardInterrupt:  # clears what was typed
            continue
        except EOFError:
            return


def load_arrow() -> None:
    """Imports Arrow before the first statement. Its import swallows Ctrl-C, so the key would not end a statement."""
    import pyarrow.compute  # noqa: PLC0415
    import pyarrow.dataset  # noqa: F401, PLC0415


def open_prompt(shell: OwnerShell, name: str) -> PromptSession[str]:
    """Makes the prompt with its keys, its history and its completion."""
    from prompt_toolkit import PromptSession  # noqa: PLC0415
    from prompt_toolkit.shortcuts import CompleteStyle  # noqa: PLC0415

    prompt = f"{name}> "
    return PromptSession(
        prompt,
        multiline=True,
        prompt_continuation=f"{'->':>{len(prompt) - 1}} ",
        key_bindings=keys(),
        history=open_history(),
        completer=completer(shell),
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,
        enable_open_in_editor=False,
    )


def keys() -> KeyBindings:
    """Returns the keys: Enter runs complete statements, and begins a new line in others."""
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415

    bindings = KeyBindings()

    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    bindings.add("enter")(enter)
    return bindings


def open_history() -> History:
    """Opens the history in the state directory, for this account alone, or in memory if there is no such directory."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory  # noqa: PLC0415

    directory = state_directory(os.environ)
    path = None if directory is None else _private_file(directory / HISTORY)
    return InMemoryHistory() if path is None else FileHistory(str(path))


def _private_file(path: Path) -> Path | None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except OSError as error:
        click.echo(f"the history is not kept: {type(error).__name__} in the state directory", err=True)
        return None
    return path


def completer(shell: OwnerShell) -> Any:
    """Returns prompt_toolkit's completer over the shell's public names. It asks for them when they may have changed."""
    from prompt_toolkit.completion import Completer, Completion  # noqa: PLC0415

    known: list[PublicNames] = []
    options = list_options()

    class NameCompleter(Completer):
        def get_completions(self, document: Document, complete_event: object) -> Iterator[Completion]:
            if shell.changed or not known:
                known[:] = read_names(shell) or known
                shell.changed = False
            found = offer(document.text_before_cursor, known[0] if known else PublicNames(), options)
            for text in found.texts:
                yield Completion(text, start_position=-found.length)

    return NameCompleter()


def read_names(shell: OwnerShell) -> list[PublicNames]:
    """Reads the public names. Returns nothing if they cannot be read now."""
    try:
        return [names_from(shell.session.ask("dp_columns", None))]
    except (DpduckError, duckdb.Error):
        return []


def list_options() -> list[str]:
    """Lists the names of the options of SELECT WITH DIFFERENTIAL_PRIVACY, each with the sign that follows it."""
    from dpduck.language.select.options import TABLE  # noqa: PLC0415

    return [f"{option.name} = " for option in TABLE]
