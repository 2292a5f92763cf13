"""Types the commands of a page of the docs, and compares their output with the page.

A block of `sh` is typed, command by command. A block of `text` after it is its output as somebody saw it. A block under
a line that ends in "Save this as `name`:" becomes a file.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from dpduck.commands.command_line import main

_BLOCK = re.compile(r"(?:^[^\n]* as `([\w.]+)`[^\n]*:\n\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LOOP = re.compile(r"^for (\w+) in (.*?); do\n(.*?)^done$", re.MULTILINE | re.DOTALL)
_TYPES = re.compile(r"(?<=│\n)│[^\n]*\n(?=├)|^ +[\d,]+ rows +[\d,]+ columns$", re.MULTILINE)
_LINES = re.compile("[\u2500-\u257f]")
_DRAWN = re.compile(r"\b[0-9a-f]{64}\b|-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
NOISELESS = frozenset(
    {
        ("python", "look.py", "clinic.duckdb"),
        *(("dpduck", command, "clinic.duckdb") for command in ("budget", "check", "explain")),
    }
)
"""How commands begin that print the same for everybody: the owner's looks at rows, and what follows from a policy."""

_CUT = re.compile(r"^\.\.$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code of a page. file: the name under which the reader saves it, or empty."""

    language: str
    text: str
    file: str


@dataclass(frozen=True)
class Typed:
    """Commands, their output, and the output that the page shows, which may be empty."""

    commands: tuple[tuple[str, ...], ...]
    output: str
    shown: str

    @property
    def as_shown(self) -> bool:
        """Tells whether the page shows the output. Noise may be any number, and a line of `..` any other lines."""
        drawn = not all(words[:3] in NOISELESS for words in self.commands)
        parts = (re.escape(_plain(part, drawn)) for part in _CUT.split(self.shown))
        return re.fullmatch(".*".join(parts), _plain(self.output, drawn)) is not None


def _plain(text: str, drawn: bool) -> str:
    """Returns one line as words and numbers, with a sign in place of numbers that may be noise.

    Lines, types and sizes of a box are left out, as each version of DuckDB may draw them in another way.
    """
    line = " ".join(_LINES.sub(" ", _TYPES.sub("", text)).split())
    return _DRAWN.sub("#", line) if drawn else line


def blocks(page: str) -> list[Block]:
    """The blocks of code of a page, in order."""
    return [Block(language, text, file) for file, language, text in _BLOCK.findall(page)]


def commands(text: str) -> Iterator[list[str]]:
    """Yields the commands of a block of `sh`, as lists of words. A quoted word may have several lines."""

    def repeated(loop: re.Match[str]) -> str:
        return "".join(loop[3].replace(f"${loop[1]}", value) for value in loop[2].split())

    lines: list[str] = []
    for line in _LOOP.sub(repeated, text).splitlines():
        lines.append(line)
        try:
            words = shlex.split("\n".join(lines))
        except ValueError:  # a quotation goes on
            continue
        lines = []
        if words:
            yield words
    assert not lines, lines


def run_command(words: Sequence[str], folder: Path, *, refused: bool = False) -> str:
    """Runs `dpduck ..` or `python ..` in the current folder of the process, and returns the output."""
    given = None
    if "<" in words:
        given = (folder / words[words.index("<") + 1]).read_text(encoding="utf-8")
        words = words[: words.index("<")]
    if words[0] == "python":
        done = subprocess.run([sys.executable, *words[1:]], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout
    assert words[0] == "dpduck", words
    result = CliRunner().invoke(main, list(words[1:]), input=given)
    assert result.exit_code == (1 if refused else 0), (words, result.output, result.exception)
    return result.output


def type_blocks(page: Sequence[Block], folder: Path) -> list[Typed]:
    """Saves and types the blocks of a page in order. Output that begins with "Error:" is of a refusal."""
    typed = []
    for block, following in zip(page, [*page[1:], Block("", "", "")], strict=True):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            shown = following.text if following.language == "text" and not following.file else ""
            refused = shown.startswith("Error:")
            asked = tuple(tuple(words) for words in commands(block.text))
            output = "".join(run_command(words, folder, refused=refused) for words in asked)
            typed.append(Typed(asked, output, shown))
        else:
            assert block.language == "text", f"nothing types a block of {block.language}"
    return typed
