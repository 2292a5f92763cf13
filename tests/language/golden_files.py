"""Golden files: blocks of a title, a statement and the expected outcome.

    -- title: the subject of the case
    -- before: a statement for a clinic of this case alone (may be repeated)
    the statement, on as many lines as it takes, where <<text * n>> stands for n times the text
    -- refused: the full message
or, for a statement that must be accepted, any of
    -- columns: the names and types of the result
    -- keys / filters / counts / sets / source / bound: parts of the request
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"
_REPEATED = re.compile(r"<<(.+?) \* (\d+)>>", re.DOTALL)


@dataclass(frozen=True)
class Golden:
    """One block of a golden file."""

    file: str
    title: str
    before: tuple[str, ...]
    written: str
    expected: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.file.removesuffix('.sql')}: {self.title}"

    @property
    def statement(self) -> str:
        """The statement with its repetitions spelled out."""
        return _REPEATED.sub(lambda found: found[1] * int(found[2]), self.written)

    @property
    def text(self) -> str:
        """The block as it stands in the file."""
        marks = [("title", self.title), *(("before", statement) for statement in self.before)]
        head, tail = (
            "\n".join(f"-- {name}: {value}".rstrip() for name, value in lines) for lines in (marks, self.expected)
        )
        return f"{head}\n{self.written}\n{tail}\n"


def read_block(file: str, block: str) -> Golden:
    """The block of a file."""
    marked = re.compile(r"-- ([a-z]+): ?(.*)")
    lines = block.strip().split("\n")
    first = next(number for number, line in enumerate(lines) if not marked.fullmatch(line))
    last = max(number for number, line in enumerate(lines) if not marked.fullmatch(line)) + 1
    marks = [(found[1], found[2]) for line in lines[:first] if (found := marked.fullmatch(line))]
    expected = [(found[1], found[2]) for line in lines[last:] if (found := marked.fullmatch(line))]
    before = tuple(value for name, value in marks if name == "before")
    return Golden(file, dict(marks)["title"], before, "\n".join(lines[first:last]), tuple(expected))


def read_golden(pattern: str) -> list[Golden]:
    """Every block of the files of a pattern, in order."""
    return [
        read_block(path.name, block)
        for path in sorted(FOLDER.glob(pattern))
        for block in path.read_text(encoding="utf-8").strip().split("\n\n")
    ]
