"""Pages that explain: short sentences, short lines, and tests that exist under the names that pages give."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.support.words import MOST_CHARACTERS, long_lines, long_sentences

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = ("odds", "nist_800_226", "recipients", "coming_from")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_easily(name: str) -> None:
    """No sentence has more than 25 words, and no line more than 120 characters."""
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert long_sentences(page) == []
    assert long_lines(page) == []


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
    assert all(line.startswith("* **") and len(line) <= MOST_CHARACTERS for line in highlights)
    headings = re.findall(r"^### (.+)$", text.split(f"## {second}\n")[1].partition("\n## ")[0], re.MULTILINE)
    assert len(headings) == len(set(headings)), "a version has each heading once"
