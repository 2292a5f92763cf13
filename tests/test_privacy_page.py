"""The page of proofs: it reads easily, and its files, tests, names, theorems and figures are there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from dpduck.kernel import check, relations
from dpduck.values.accounting import rho_of_laplace
from tests.support.words import long_lines, long_sentences, sentences

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
_FENCED = re.compile(r"^```.*?^```[^\n]*$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"[\w/]+\.(?:py|md|tsv)|[\w/]+/")
_NAME = re.compile(r"[A-Za-z_]\w{4,}|[A-Za-z_]\w+(?:\.[A-Za-z_]\w+)+", re.ASCII)
_CITED = re.compile(r"privacy\.md`?(?:\]\([^)]*\))?, (?:\"([^\"]+)\"|([A-Z][\w ]+))")


def headings(page: str) -> list[str]:
    """The headings of a page, without the numbers of sections."""
    return [re.sub(r"^\d+ ", "", text) for text in re.findall(r"^#+ (.+)$", _FENCED.sub("", page), re.MULTILINE)]


def tables(page: str) -> Counter[str]:
    """Counts the tables under each heading of level 2 or 3."""
    found, heading, inside = Counter[str](), "", False
    for line in _FENCED.sub("", page).splitlines():
        row = line.startswith("|")
        heading = line if line.startswith(("## ", "### ")) else heading
        found[heading] += row and not inside
        inside = row
    return found


def chained(page: str) -> list[str]:
    """Returns the sentences with a semicolon, and those with "whose"."""
    return [one for one in sentences(page) if ";" in one[:-1] or re.search(r"\bwhose\b", one, re.IGNORECASE)]


def spans(page: str) -> list[str]:
    """The pieces of code of a page, without blocks of code."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", _FENCED.sub("", page))]


@cache
def sources() -> dict[str, str]:
    """The Python files of the product and of its tests, but for this one."""
    files = [path for folder in ("dpduck", "tests") for path in (ROOT / folder).rglob("*.py")]
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in files if path != Path(__file__)}


@cache
def words_of_sources() -> frozenset[str]:
    """Returns the names that occur in these files."""
    return frozenset(word for text in sources().values() for word in re.findall(r"\w+", text))


def is_there(path: str) -> bool:
    """Tells whether a path of the page exists. Without a first folder it is in dpduck/, or a page of docs/."""
    return any((ROOT / first / path).exists() for first in ("", "dpduck", "docs"))


def missing(page: str) -> list[str]:
    """The files, tests and other names that a page has in code, and that are nowhere."""
    found = []
    for span in spans(page):
        if _PATH.fullmatch(span):
            found += [] if is_there(span) else [span]
        elif _NAME.fullmatch(span) and ("_" in span or "." in span or span[0].isupper()):
            found += [] if set(span.split(".")) <= words_of_sources() else [span]
    return found


def cited(text: str) -> list[str]:
    """The headings of this page that another text names."""
    return [one or other for one, other in _CITED.findall(re.sub(r"\s+", " ", text))]


def proofs(page: str) -> dict[int, str]:
    """Returns the text behind each theorem, up to the next theorem or heading."""
    parts = re.split(r"^\*\*Theorem (\d+) \([\w ]+\)\.\*\*", page, flags=re.MULTILINE)
    behind = (re.split(r"^#", text, flags=re.MULTILINE)[0] for text in parts[2::2])
    return dict(zip(map(int, parts[1::2]), behind, strict=True))


def test_the_page_reads_easily() -> None:
    """No sentence has more than 25 words, no line more than 120 characters, no section more than one table."""
    assert long_sentences(PAGE) == []
    assert long_lines(PAGE) == []
    assert [heading for heading, count in tables(PAGE).items() if count > 1] == []
    assert chained(PAGE) == []
    assert len(sentences(PAGE)) > 1_000


def test_what_the_page_names_is_there() -> None:
    """Every file, test, class, function and option that the page has in code exists."""
    assert missing(PAGE) == []
    assert len([span for span in spans(PAGE) if _PATH.fullmatch(span)]) > 100


def test_every_theorem_has_its_proof() -> None:
    """Theorems are numbered from 1. Each has a proof with an end, and none is named that is not there."""
    found = proofs(PAGE)
    assert list(found) == list(range(1, len(found) + 1))
    assert [number for number, text in found.items() if "*Proof.*" not in text or "∎" not in text] == []
    assert len(re.findall(r"\*Proof\.\*", PAGE)) <= PAGE.count("∎")
    named = {int(number) for number in re.findall(r"Theorems? (\d+)", PAGE)}
    assert named == set(found)


def test_theorems_of_the_kernel_are_on_the_page() -> None:
    """The page names each file of the kernel with a theorem in its docstring, or with a section cited there."""
    kernel = {path: text for path, text in sources().items() if path.startswith("dpduck/kernel/")}
    said = {path: ast.get_docstring(ast.parse(text)) or "" for path, text in kernel.items()}
    stated = [path for path, text in said.items() if "\nTheorem." in text]
    assert [path for path in stated if f"`{path.removeprefix('dpduck/')}`" not in PAGE and path not in NAMED] == []
    by_number = dict(re.findall(r"^## (\d) (.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL))
    citing = {path: re.findall(r"docs/privacy\.md, section (\d)", text) for path, text in said.items()}
    assert [path for path, found in citing.items() if "kernel/check" in path and not found] == []
    assert len(stated) + sum(map(len, citing.values())) >= 4
    for path, found in citing.items():
        assert [one for one in found if f"`{path.removeprefix('dpduck/')}`" not in by_number[one]] == []


NAMED = ("dpduck/kernel/queries/streams.py",)
"""Files with a theorem of which the page names a section: they cite it by its heading."""


def test_headings_that_others_name_are_there() -> None:
    """`privacy.md, "Streams"` in a docstring or on another page is a heading, and so is a theorem a theorem."""
    pages = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    texts = {**sources(), **{path.name: path.read_text("utf-8") for path in pages if path.name != "privacy.md"}}
    by_file = {name: cited(text) for name, text in texts.items()}
    assert set(NAMED) <= {name for name, found in by_file.items() if found}
    others = {heading for found in by_file.values() for heading in found}
    assert {"Interrupted", "Streams", "Units by periods", "What will leave", "What epsilon costs in rho"} <= others
    known = [re.sub(r"[,:].*", "", heading) for heading in headings(PAGE)]
    assert [one for one in others if one not in known and not is_theorem(one)] == []
    quoted = re.findall(r"\"([A-Z][a-z][\w ]+)\"", re.sub(r"\s+", " ", _FENCED.sub("", PAGE)))
    assert [one for one in quoted if not any(heading.startswith(one) for heading in headings(PAGE))] == []


def is_theorem(text: str) -> bool:
    """Tells whether a text names a theorem on the page."""
    found = re.fullmatch(r"Theorem (\d+)", text)
    return found is not None and int(found[1]) in proofs(PAGE)


def test_each_rule_is_one_of_the_verifier() -> None:
    """There are seven rules, and each kind of rows that kernel/check.py accepts stands in one."""
    rules = re.findall(r"^\*\*Rule (\d): .*\*\* \((.+)\)\.", PAGE, re.MULTILINE)
    assert [int(number) for number, _ in rules] == list(range(1, 8)), "as the heading says"
    kinds = {relations.Stored, relations.Join, relations.Union, relations.Branch, relations.Units}
    said = " ".join(nodes for _, nodes in rules)
    assert [kind.__name__ for kind in kinds if f"`{kind.__name__}`" not in said] == []
    assert check.NotVerified.__doc__


COSTS = {
    "a count, one row per unit": (1, 1),
    "a count, MAX ROWS 4": (4, 4),
    "a sum with CLAMP over 1,000 steps": (1000, 1000),
    "a sketch of 5 rows, one row per unit": (5, 1),
    "all 28 two-way tables of 8 columns (`strategy = 'Q'`)": (28, 1),
}
"""L1 norm and largest entry of what one unit moves. The noise has the scale that epsilon asks for."""


@pytest.mark.parametrize("asked", COSTS)
def test_the_figures_of_rho_are_computed(asked: str) -> None:
    """The rho of an epsilon, as Theorem 7 says: three digits of each figure in the table."""
    l1, most = COSTS[asked]
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {asked} |")]
    figures = [figure.strip() for figure in row.strip("|").split("|")[-2:]]
    assert figures[0]
    for epsilon, figure in zip((1, 3), figures, strict=True):
        rho = float(rho_of_laplace(l1, most, Fraction(l1, epsilon)))
        assert not figure or abs(rho - float(figure)) <= 0.6 * 10.0 ** -len(figure.partition(".")[2])


PLANTED = f"""# A page

## One

A sentence that {" ".join(["goes on"] * 12)}.

| a | b |
|---|---|

This is `kernel/no_such_file.py`; and `test_that_nobody_wrote` finds it, whose name is `Door.not_a_method_at_all`.

| c | d |
|---|---|

**Theorem 1 (planted).** It is true.
"""


def test_faults_of_a_page_are_found() -> None:
    """A long sentence, a second table, two sentences in one, and names that are nowhere are each found."""
    (long,) = long_sentences(PLANTED)
    assert long.startswith("A sentence that goes on")
    assert [heading for heading, count in tables(PLANTED).items() if count > 1] == ["## One"]
    assert len(chained(PLANTED)) == 1
    assert missing(PLANTED) == ["kernel/no_such_file.py", "test_that_nobody_wrote", "Door.not_a_method_at_all"]
    assert "∎" not in proofs(PLANTED)[1]
    assert cited('see (docs/privacy.md, "No such\nheading") and [privacy.md](privacy.md), Streams.') == [
        "No such heading", "Streams",
    ]  # fmt: skip
    planted = PAGE.replace("## 2 Neighbours\n", f"## 2 Neighbours\n\n{long}\n", 1)
    assert long_sentences(planted) == [long]
