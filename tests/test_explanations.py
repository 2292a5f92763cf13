"""Pages that explain: short sentences, short lines, and tests that exist under the names that pages give."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = ("odds", "nist_800_226", "recipients", "coming_from")
LONGEST_SENTENCE, LONGEST_LINE = 25, 120
_END = re.compile(r"(?<=[.!?:])[\"')*_]*\s+(?=[\"'(*_]*(?:[A-Z0-9`\[]|dpduck))")


def sentences(page: str) -> list[str]:
    """The sentences of a page without its blocks of code: of paragraphs, items, headings, and each cell of a table."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    found = []
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[*\d]|#|\|))", text):
        cells = part.strip().strip("|").split(" | ") if part.lstrip().startswith("|") else [part]
        for cell in cells:
            plain = re.sub(r"`[^`]*`", "`x`", re.sub(r"\]\([^)]*\)", "]", cell))
            found += [one for one in _END.split(" ".join(plain.split())) if one.strip()]
    return found


def words(sentence: str) -> int:
    return len(re.findall(r"[\w'&/.,-]*\w[\w'&/.,-]*", sentence))


def test_sentences_are_counted() -> None:
    """A sentence ends at a full stop before a capital; code is one word; cells of a table stand alone."""
    assert sentences("One two. Three `a.b c` four.\n\n| x y | z |\n|---|---|") == [
        "One two.",
        "Three `x` four.",
        "x y",
        "z",
        "---|---",
    ]
    assert [words(one) for one in ("A rho of 0.5, say.", "It's (epsilon, delta).")] == [5, 3]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_easily(name: str) -> None:
    """No sentence has more than 25 words, and no line more than 120 characters."""
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert [one for one in sentences(page) if words(one) > LONGEST_SENTENCE] == []
    assert [line for line in page.splitlines() if len(line) > LONGEST_LINE] == []


def named_tests(path: Path) -> set[str]:
    """The functions of a file."""
    return {
        node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)
    }


def test_every_test_that_a_page_names_exists() -> None:
    """`tests/file.py::test_name` on a page is a function of that file, and a file that is named is there."""
    found = 0
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
            assert name in named_tests(ROOT / file), f"{page.name}: {file}::{name}"
            found += 1
    assert found > 20


def test_the_changelog_has_the_version_that_is_built() -> None:
    """ "Unreleased" stands first. Below it the version of pyproject.toml has its date, and five lines of highlights."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    first, second = re.findall(r"^## (.+)$", text, re.MULTILINE)[:2]
    assert first == "Unreleased" and re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", second)
    highlights = text.split(f"## {second}\n")[1].partition("\n### ")[0].strip().splitlines()
    assert len(highlights) == 5
    assert all(line.startswith("* **") and len(line) <= LONGEST_LINE for line in highlights)
    headings = re.findall(r"^### (.+)$", text.split(f"## {second}\n")[1].partition("\n## ")[0], re.MULTILINE)
    assert len(headings) == len(set(headings)), "a version has each heading once"
