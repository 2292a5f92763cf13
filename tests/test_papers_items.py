"""The 136 items of the four papers: each has an end, a reason and evidence. Figures of papers.md are computed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pytest

import dpduck
from tests.planted.faults import ROOT, Fault

DOCS = ROOT / "docs"
PAGE = (DOCS / "papers.md").read_text(encoding="utf-8")
NUMBERS = {"D": 54, "S": 40, "M": 23, "Q": 19}
"""Items of datacubes, sparse data, multiplicative weights and sparse queries."""
ENDS = ("there", "there and better", "deviates", "left out")
PROVEN = ("there", "there and better", "deviates")
"""Ends that need a function as evidence."""
EVIDENCE = re.compile(r"`((?:tests|benchmarks|dpduck)/[\w/]+\.py::\w+)`")


@dataclass(frozen=True)
class Item:
    """A line of the table. reason: a figure, or why it is not as in the paper."""

    name: str
    where: str
    what: str
    end: str
    reason: str
    evidence: tuple[str, ...]

    def lacks(self) -> list[str]:
        """Returns its faults, as words."""
        wrong = [] if self.end in ENDS else [f"no end: {self.end}"]
        wrong += [] if self.where and self.what and self.reason else ["an empty cell"]
        if self.end != "there" and not re.search(r"\d", re.sub(r"`[^`]*`", "", self.reason)):
            wrong.append("no figure")
        wrong += ["no evidence"] if self.end in PROVEN and not self.evidence else []
        there = Fault(self.name, "", "", "", "", "", self.evidence).there(ROOT)
        return wrong + [f"no {one}" for one in self.evidence if one not in there]


def items(page: str) -> list[Item]:
    """Reads the lines of the tables that begin with the name of an item."""
    lines = [line for line in page.splitlines() if re.match(r"\| [A-Z]\d\d \|", line)]
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    return [
        Item(name, where, what, end, why, tuple(EVIDENCE.findall(shown)))
        for name, where, what, end, why, shown in cells
    ]


ITEMS = items((DOCS / "papers_items.md").read_text(encoding="utf-8"))


def test_there_are_136_items() -> None:
    """Each item of each paper is there once, in order."""
    wanted = [f"{letter}{number:02d}" for letter, most in NUMBERS.items() for number in range(1, most + 1)]
    assert [item.name for item in ITEMS] == wanted
    assert len(wanted) == 136


def test_each_item_has_an_end() -> None:
    """One of four ends, a figure where it differs from the paper, and evidence that exists."""
    assert {item.name: item.lacks() for item in ITEMS if item.lacks()} == {}
    assert set(Counter(item.end for item in ITEMS)) == set(ENDS)


def test_an_item_without_an_end_is_found() -> None:
    """The check checks: an end, a reason, a figure and a function that are missing are named."""
    page = (
        "| D01 | Theorem 1 | noise | probably | 3 | `tests/test_papers_items.py::items` |\n"
        "| D02 | Theorem 1 | noise | left out | because | |\n"
        "| D03 | Theorem 1 | noise | there | | |\n"
        "| D04 | Theorem 1 | noise | there | 3 | `tests/test_papers_items.py::no_such_function` |\n"
    )
    first, second, third, fourth = (item.lacks() for item in items(page))
    assert first == ["no end: probably"]
    assert second == ["no figure"]
    assert third == ["an empty cell", "no evidence"]
    assert fourth == ["no tests/test_papers_items.py::no_such_function"]


def test_the_page_names_what_deviates() -> None:
    """docs/papers.md names every apparent mistake: neighbours, names, measures, versions and slips."""
    for words in (
        "`'Q'` with `budgets = 'uniform'` is Q",
        "O begins with the clusters of C+",
        "Drawn with `consistency = 'none'`",
        "**With one pass** it is better",
        "**By the paper's measure**",
        "**The text of December 2010**",
        "Standard errors are half of what its formulas say",
    ):
        assert PAGE.count(words) == 1, words
    assert PAGE.count("**A slip that is not followed.**") == 2


def test_each_line_of_the_page_has_five_cells() -> None:
    """A line of a paper says where, in SQL, by which command, in which picture, and what differs."""
    for paper in ("Datacubes", "Sparse data", "Multiplicative weights", "Sparse queries"):
        text = PAGE.partition(f"\n## {paper}\n")[2].partition("\n## ")[0]
        lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
        assert len(lines) > 15 and {len(line) for line in lines[2:]} == {5}, paper
    for picture in re.findall(r"`(pictures/[\w/]+\.(?:svg|png))`", PAGE):
        assert (DOCS / picture).is_file(), picture
    for module in re.findall(r"python -m (benchmarks[.\w]+)", PAGE):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


GIVES = re.compile(r"^-- [^\n]*: gives ([\d.,]*\d)[^\n]*\n(SELECT .*?);$", re.MULTILINE | re.DOTALL)


def test_the_figures_of_the_page_are_computed() -> None:
    """Whoever types a statement of docs/papers.md sees the number that stands above it, to three digits."""
    (first, *_) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    asked = GIVES.findall(PAGE)
    assert len(asked) == PAGE.count(": gives ") == 17
    with dpduck.connect() as con:
        for statement in first.split(";\n"):
            con.execute(statement)
        found = {statement: con.execute(statement).fetchall() for _, statement in asked}
    for number, statement in asked:
        ((value,),) = found[statement]
        assert f"{value:.3f}" == number.replace(",", ""), statement


@pytest.mark.parametrize("end", ENDS)
def test_the_numbers_of_ends_are_stated(end: str) -> None:
    """docs/papers_items.md begins with how many items have each end."""
    number = sum(item.end == end for item in ITEMS)
    assert f"* **{end}** ({number}):" in (DOCS / "papers_items.md").read_text(encoding="utf-8")
