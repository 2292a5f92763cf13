"""The page on the architecture stays true: its walk through one statement runs, and prints the page's text."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.shown import WIDTH, shown
from tests.support.words import long_lines, long_sentences, words_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LONGEST_CELL = 200
WORDS_A_MINUTE, LINES_A_MINUTE = 230, 30
"""Words and lines of code that a reader of documentation takes in."""

ROWS = [line.strip().strip("|").split("|") for line in PAGE.splitlines() if line.startswith("|")]


def test_every_block_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of Python run in order, as one program. A block of text is the output of the one before."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    names: dict[str, object] = {}
    printed = ""
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) > 20
    for kind, text in blocks:
        if kind == "python":
            assert printed == "", "a block printed what the page does not show"
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(text, names)  # noqa: S102
            printed = said.getvalue()
        else:
            assert kind == "text"
            assert printed == text
            printed = ""
    assert printed == ""


def test_the_page_is_read_in_ten_minutes() -> None:
    """Short sentences, short lines but for tables, short cells, and no more than is read in ten minutes."""
    prose = "\n".join(line for line in PAGE.splitlines() if not line.startswith("|"))
    assert long_sentences(PAGE) == [] and long_lines(prose) == []
    assert [cell for row in ROWS for cell in row if len(cell.strip()) > LONGEST_CELL] == []
    code = sum(len(text.splitlines()) for _, text in BLOCK.findall(PAGE))
    assert words_of(prose) / WORDS_A_MINUTE + code / LINES_A_MINUTE <= 10


def test_every_file_and_name_of_the_tables_is_there() -> None:
    """Every word set as code is a file, a folder, or a name in one of the row's files."""
    for row in ROWS:
        codes = re.findall(r"`([^`]+)`", "|".join(row))
        paths = [one for one in codes if "/" in one or one.endswith((".py", ".md"))]
        roots = [ROOT / "dpduck", ROOT, ROOT / "docs", *(ROOT / "dpduck" / one for one in paths[:1])]
        found = {path: next((root / path for root in roots if (root / path).exists()), None) for path in paths}
        assert None not in found.values(), found
        texts = [path.read_text(encoding="utf-8") for path in found.values() if path is not None and path.is_file()]
        for name in {*codes} - {*paths} if texts else ():
            words = re.findall(r"\w+", name)
            assert any(all(re.search(rf"\b{word}\b", text) for word in words) for text in texts), (name, row)


@dataclass(frozen=True)
class Made:
    """A value of this test."""

    name: str
    parts: tuple[object, ...] = ()
    amount: Fraction = Fraction(1)


def test_values_are_shown_without_their_defaults() -> None:
    """A value is shown as Python would have it typed, and broken where a line would be too long."""
    assert shown(Made("a")) == "Made(name='a')"
    assert (
        shown(Made("a", (Made("b"), 2)), ("parts", "amount"))
        == "Made(parts=(Made(name='b'), 2), amount=Fraction(1, 1))"
    )
    long = shown(Made("x" * 60, (Made("y" * 60), {"z": 3})))
    assert long.splitlines()[1] == f"    name='{'x' * 60}'," and "{'z': 3})" in long
    assert max(map(len, long.splitlines())) <= WIDTH
    assert eval(long, {"Made": Made}) == Made("x" * 60, (Made("y" * 60), {"z": 3}))  # noqa: S307
