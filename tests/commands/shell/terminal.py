"""The owner's shell on a pseudo-terminal, as a person types into it."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 300
"""Seconds for whatever must come: a busy machine is no failure."""

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")
RUN = "from dpduck.commands.command_line import run; run()"


def _pexpect() -> Any:
    """Returns the package that types. Skips a test without it, and not this file, which other files import."""
    pytest.importorskip("prompt_toolkit", reason="prompt_toolkit is not installed")
    return pytest.importorskip("pexpect", reason="pexpect is not installed")


class Terminal:
    """A shell and its printed text, without colours and movements of the cursor."""

    def __init__(self, child: Any) -> None:
        self.child = child
        self.shown = ""
        self._seen = 0

    def type(self, text: str) -> None:
        self.child.send(text)

    def see(self, pattern: str) -> str:
        """Waits for a pattern in the text since the last one, and returns its text."""
        end = time.monotonic() + PATIENCE
        while True:
            found = re.compile(pattern, re.DOTALL).search(self.shown, self._seen)
            if found is not None:
                self._seen = found.end()
                return found[0]
            assert time.monotonic() < end, f"{pattern!r} is not in {self.shown[self._seen :]!r}"
            try:
                self.shown += _CONTROL.sub("", self.child.read_nonblocking(65_536, 1))
            except _pexpect().TIMEOUT:
                continue
            except _pexpect().EOF:
                if re.compile(pattern, re.DOTALL).search(self.shown, self._seen) is None:
                    raise AssertionError(f"the shell ended: {self.shown[self._seen :]!r}") from None

    def ask(self, text: str, pattern: str) -> str:
        """Types a line, and waits for its answer and the next prompt."""
        self.type(f"{text}\r")
        answer = self.see(pattern)
        self.see("clinic>")
        return answer

    def leave(self) -> int:
        """Types Ctrl-D, and returns the exit status."""
        self.type("\x04")
        self.child.expect(_pexpect().EOF, timeout=PATIENCE)
        self.child.close()
        return int(self.child.exitstatus)


@contextmanager
def terminal(database: Path, before: str = "") -> Iterator[Terminal]:
    """A shell at its first prompt. before: Python that runs in the shell's process before the shell does."""
    environment = {**os.environ, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", "NO_COLOR": "1"}
    words = ["-c", f"{before}\n{RUN}", "shell", str(database)]
    child = _pexpect().spawn(
        sys.executable, words, env=environment, encoding="utf-8", timeout=PATIENCE, dimensions=(50, 140)
    )
    opened = Terminal(child)
    try:
        opened.see("lists commands.*clinic>")
        yield opened
    finally:
        child.close(force=True)
