"""Types the code of a page in an empty folder, as a reader does: its commands, its Python, its SQL."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from dpduck.commands.command_line import main

BLOCK = re.compile(r"^```(\w+)(?: needs=(\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:#|--) ([\w/]+\.\w+)\n")
_SAID = re.compile(r"-- (gives|refused): (.+)")
_ERROR = re.compile(r"^(?:Invalid Input|Catalog|Binder|Parser) Error: ")


@dataclass
class Typed:
    """The state after a page: its names in Python, the output of commands, and the answers of statements."""

    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    answers: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    shell: Any = None

    @property
    def con(self) -> duckdb.DuckDBPyConnection:
        """The connection that the page opened."""
        con = self.names["con"]
        assert isinstance(con, duckdb.DuckDBPyConnection)
        return con

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.con.execute(sql).fetchall()

    def answer(self, part: str) -> list[tuple[Any, ...]]:
        """Returns the answer of the first statement that has this part."""
        return next(rows for statement, rows in self.answers.items() if part in statement)


def installed(name: str) -> bool:
    """Tells whether a package can be imported. A package of a missing parent cannot."""
    try:
        return find_spec(name) is not None
    except ImportError:
        return False


def type_page(page: Path, typed: Typed, instead: Mapping[str, str]) -> None:
    """Types every block with packages that are installed. A block that begins with a file's name becomes that file.

    instead: a reader's own words in place of an example's.
    """
    for kind, needs, written in BLOCK.findall(page.read_text(encoding="utf-8")):
        if not all(map(installed, filter(None, needs.split(",")))):
            continue
        text = written
        for example, mine in instead.items():
            text = text.replace(example, mine)
        typed.kinds.add(kind)
        if named := _FILE.match(text):
            (typed.folder / named[1]).parent.mkdir(exist_ok=True)
            (typed.folder / named[1]).write_text(text, encoding="utf-8")
        elif kind == "python":
            exec(text, typed.names)  # noqa: S102
        elif kind == "ipython":
            run_cell(text, typed)
        elif kind == "sql":
            for statement, says, what in steps(text):
                typed.answers[statement] = check_statement(typed.con, statement, says, what)
        elif kind == "sh":
            for command in commands(text):
                typed.said.append(run_command(command, typed))


def run_cell(text: str, typed: Typed) -> None:
    """Runs a cell in IPython, which needs no kernel. Its variables are the page's, and errors are raised."""
    from IPython.core.interactiveshell import InteractiveShell  # noqa: PLC0415

    if typed.shell is None:
        typed.shell = InteractiveShell(user_ns=typed.names)
        typed.shell.history_manager.enabled = False
    typed.shell.run_cell(text).raise_error()


def steps(block: str) -> Iterator[tuple[str, str, str]]:
    """Yields the statements of a block, each with its result on the page, or with its refusal."""
    lines: list[str] = []
    ready: tuple[str, str, str] | None = None
    for line in block.splitlines():
        if (said := _SAID.fullmatch(line)) and ready:
            ready = (ready[0], said[1], said[2])
            continue
        lines.append(line)
        if line.endswith(";"):
            if ready:
                yield ready
            ready, lines = ("\n".join(lines), "", ""), []
    assert not "".join(lines).strip(), f"no semicolon: {lines}"
    if ready:
        yield ready


def check_statement(con: duckdb.DuckDBPyConnection, statement: str, says: str, what: str) -> list[tuple[Any, ...]]:
    """Runs a statement, and requires the result or the refusal that the page shows."""
    if says == "refused":
        with pytest.raises(duckdb.Error) as refused:
            con.sql(statement).fetchall()
        message = _ERROR.sub("", str(refused.value).split("\n")[0])
        assert what in message, (statement, message)
        return []
    found = con.sql(statement)
    assert found is not None, f"nothing to show: {statement}"
    columns, rows = found.columns, found.fetchall()
    shown = f"{', '.join(columns)}; {len(rows)} row{'s' * (len(rows) != 1)}"
    assert what in ("", shown, shown.partition(";")[0]), (statement, shown)
    return rows


def commands(block: str) -> list[str]:
    """Yields the commands of a block. A quotation may run over several lines."""
    found, lines = [], ""
    for line in block.splitlines():
        lines += line
        try:
            shlex.split(lines, comments=True)
        except ValueError:  # the quotation goes on
            lines += "\n"
            continue
        found.append(lines)
        lines = ""
    assert not lines, lines
    return [command for command in found if shlex.split(command, comments=True)]


def run_command(command: str, typed: Typed) -> str:
    """Runs `dpduck ..` and `python -c ..` in this process, and others as programs. `>` and `<` name files."""
    words = shlex.split(command, comments=True)
    given, target = None, None
    if ">" in words:
        target = typed.folder / words[words.index(">") + 1]
        words = words[: words.index(">")]
    if "<" in words:
        given = (typed.folder / words[words.index("<") + 1]).read_text(encoding="utf-8")
        words = words[: words.index("<")]
    output = _run(words, given)
    if target:
        target.write_text(output, encoding="utf-8")
    return output


def _run(words: list[str], given: str | None) -> str:
    if words[0] == "pip":
        return ""
    if words[0] == "dpduck":
        done = CliRunner().invoke(main, words[1:], input=given)
        assert done.exit_code == 0, (words, done.output)
        return done.output
    if words[:2] == ["python", "-c"]:
        with contextlib.redirect_stdout(io.StringIO()) as said, warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # code of a page need not close the files that it reads
            exec(words[2], {})  # noqa: S102
        return said.getvalue()
    program = shutil.which(words[0], path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip(f"not installed: {words[0]}")
    ran = subprocess.run([program, *words[1:]], input=given, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (words, ran.stderr)
    return ran.stdout
