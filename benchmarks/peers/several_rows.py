"""People with several rows beside OpenDP and PipelineDP, which have their best bounds in hindsight: docs/peers.md.

usage: python -m benchmarks.peers.several_rows [--environments DIRECTORY] [--tables N] [--write docs/peers.md]

Counts by one and two keys, persons, averages and sums by group, of made tables and of taxi routes (../shared/data or
$DPDUCK_DATA), at epsilon 1 and delta 1e-6 for the whole statement. Laplace noise is at epsilon 1 alone. A group's error
is |answer - truth| over the truth, and of averages |answer - truth|. A statement's error is the median over its groups,
by their rows, and the mean over REPEATS releases. Ours is `max_norm_contributed = 'private'`: everything is paid for.

Gates, of geometric means over the statements of a kind: ours is at most 1.3 times the best peer for counts, persons and
sums, and at most its equal for averages. The best peer is the best of both, with either noise, at its best bounds.
Traps avoided: truths are of the whole table. A peer's noise is that of its own library at these bounds, and its bounds
are chosen by a simulation over the grids of _several_data.py, which must agree with what the library then answers. Our
own bounds in hindsight are chosen by an answer each, and two more of the best three. All that is shown is of new
releases, twice as many of ours.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import exp, log
from pathlib import Path
from textwrap import wrap

import duckdb

from benchmarks.papers.people import DATA, STAYS, TAXI, WEB
from benchmarks.peers._several_data import CLIPS, FEW, GROUPS, ROWS, WIDTHS, Question, write
from benchmarks.peers._wide_page import HEADING, QUANTILES, SEVERAL
from benchmarks.peers.table import DELTA, Group, asked, here, is_better, python_of
from dpduck.values.accounting import rho_of

REPEATS = 6
OWN_ROWS = (1, 2, 5, 10, 20, 30, 50, 80, 120, 200, 300)
OWN_NORMS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 150)
FEW_NORMS, SUM_NORMS = (3, 8, 20, 50), (1, 3, 10, 30, 100, 300)
"""Of averages and sums: those of sums in units of the public guess."""

OURS = ("dpduck", "dpduck, best norm", "dpduck, best MAX ROWS")
THEIRS = ("OpenDP 0.16", "PipelineDP 0.3")
NOISES = ("Gaussian", "Laplace")
GATES = {"counts": 1.3, "persons": 1.3, "averages": 1.0, "sums": 1.3}
LIMIT = 1500
AGREES = 1.5
"""A factor within which a simulated error and that of the library must be."""

Told = dict[str, dict[str, dict[str, float | str]]]
"""Lines by workload and by system."""


def made(name: str, rows: str, keys: dict[str, tuple[int, int]], value: str, guess: int, width: int) -> tuple[
    str, str, list[Question]
]:  # fmt: skip
    """A table: its name, its rows, and the questions."""
    one, two = tuple(keys)[:1], tuple(keys)
    sql = f"""SELECT dense_rank() OVER (ORDER BY person) AS id, {", ".join(f"{key}::INTEGER AS {key}" for key in keys)},
        coalesce(round({value}), 0)::INTEGER AS value FROM ({rows})"""
    kinds = (("counts", one), ("counts", two), ("persons", two), ("averages", one), ("sums", one))
    return name, sql, [Question(name, kind, of, tuple(keys[key] for key in of), guess, width) for kind, of in kinds]


FEWER = WEB.replace("range(20000)", "range(10000)")
TABLES = (
    made("web", FEWER, {"category": (0, 20), "hour": (0, 24)}, "seconds", 60, 600),
    made("stays", STAYS, {"ward": (0, 40), "month": (0, 12)}, "10 * cost", 300, 5000),
    made("taxi", TAXI, {"hour": (0, 24), "weekday": (1, 8)}, "100 * tip", 300, 10000),
)  # fmt: skip


def asked_of(folder: Path, tables: int) -> list[Question]:
    """Writes the first so many tables, and returns the questions about the tables that exist."""
    found: list[Question] = []
    for name, sql, questions in TABLES[:tables]:
        try:
            rows = sql.replace("{}", str(DATA))
            duckdb.execute(f"COPY ({rows} ORDER BY id) TO '{folder / name}.parquet'")
        except duckdb.Error as error:
            print(f"skipped: {name} ({str(error).splitlines()[0][:90]})", file=sys.stderr)
            continue
        found += questions
    given = {"repeats": REPEATS, "rows": OWN_ROWS, "norms": OWN_NORMS, "few norms": FEW_NORMS, "sum norms": SUM_NORMS}
    write(folder, found, {**given, "rho": str(rho_of(Fraction(1), Fraction(str(DELTA))))})
    return found


def run(environments: Path | None, tables: int) -> tuple[list[Question], Told]:
    """Asks everybody everything."""
    with tempfile.TemporaryDirectory() as room:
        folder = Path(room)
        questions = asked_of(folder, tables)
        told: Told = {question.name: {} for question in questions}
        for peer in ("dpduck", *THEIRS):
            python = python_of(peer, environments)
            if python is None:
                print(f"skipped: {peer} has no environment (--environments DIRECTORY makes one)", file=sys.stderr)
                continue
            systems = OURS if peer == "dpduck" else NOISES
            workloads = tuple(f"{question.name}|{system}" for question in questions for system in systems)
            group = Group(0, workloads, 0, 1, 1, LIMIT)
            for workload, line in asked(peer, python, folder, group, "_several_").items():
                name, _, system = workload.partition("|")
                told[name][system if peer == "dpduck" else f"{peer}, {system}"] = line
            print(f"{peer}: done", file=sys.stderr)
        return questions, told


def least(found: dict[str, dict[str, float | str]], systems: Iterable[str]) -> float | None:
    """The least error of some systems."""
    return min((float(found[one]["error"]) for one in systems if "error" in found.get(one, {})), default=None)


def ratio(of: list[dict[str, dict[str, float | str]]], ours: Iterable[str], theirs: Iterable[str]) -> float | None:
    """The geometric mean over statements of the least error of some systems over that of others."""
    pairs = [(least(found, tuple(ours)), least(found, tuple(theirs))) for found in of]
    values = [one / other for one, other in pairs if one is not None and other is not None]
    return geometric(values) if values else None


def means(questions: list[Question], told: Told) -> Iterator[tuple[str, float, str]]:
    """For each kind, our error over the best peer's, and a sentence about it and our own other ways."""
    peers = [f"{peer}, {noise}" for peer in THEIRS for noise in NOISES]
    others = {
        "times that of the best peer with Gaussian noise": [one for one in peers if one.endswith("Gaussian")],
        "of our best norm": OURS[1:2],
        "of our best MAX ROWS": OURS[2:],
    }
    for kind in GATES:
        of = [told[question.name] for question in questions if question.kind == kind]
        mean, hindsight = ratio(of, OURS[:1], peers), ratio(of, OURS[1:], peers)
        if mean is None or hindsight is None:
            continue
        beside = {text: ratio(of, OURS[:1], systems) for text, systems in others.items()}
        parts = ", ".join(f"{value:.2f} {text}" for text, value in beside.items() if value is not None)
        yield (
            kind,
            mean,
            (
                f"{kind}: ours is {mean:.2f} times the best peer's error over {len(of)} statements. It is {parts}. The "
                f"better of our two other ways, both in hindsight, has {hindsight:.2f} times the best peer's error"
            ),
        )


def geometric(values: list[float]) -> float:
    return exp(sum(log(value) for value in values) / len(values))


def unlike(told: Told) -> list[str]:
    """Where a simulation is not like the library, so that bounds may not be the best."""
    return [
        f"{name}, {system}: {float(line['error']):.3g}, simulated {float(line['simulated']):.3g}"
        for name, found in told.items()
        for system, line in found.items()
        if line.get("simulated") and not 1 / AGREES < float(line["error"]) / float(line["simulated"]) < AGREES
    ]


def lines_of(questions: list[Question], told: Told, where: str) -> Iterator[str]:
    """Yields the part of the page."""
    yield from (SEVERAL, "", "Made by `python -m benchmarks.peers.several_rows` in one run:", f"{where}.", "")
    yield from (*HEAD.splitlines(), *DATA_SAID.splitlines())
    better: dict[str, list[tuple[float, str]]] = {}
    for question in questions:
        found = told[question.name]
        ours = found.get("dpduck", {})
        for system, line in found.items():
            if "error" not in line:
                yield f"| {question.name} | {system} | {line.get('stopped', 'not answered')} | |"
                continue
            text = f"{float(line['error']):.3g}"
            if system not in OURS and is_better(line, ours, "error"):
                better.setdefault(question.name, []).append((float(line["error"]), system))
                text = f"**{text}**"
            text += f" ± {100 * float(line['sure']):.0f} %"
            yield f"| {question.name} | {system} | answered, {line['bounds']} | {text} |"
    yield ""
    for kind, mean, sentence in means(questions, told):
        verdict = "met" if mean <= GATES[kind] else "missed"
        yield from wrap(f"* {sentence}. Gate: at most {GATES[kind]:g}, {verdict}.", 118, subsequent_indent="  ")
    cases = []
    for name, found in better.items():
        least, system = min(found)
        number = sum(one not in OURS for one in told[name])
        own = float(told[name]["dpduck"]["error"])
        cases.append(f"{name}, {len(found)} of {number} (best {system}: {least:.3g}, ours {own:.3g})")
    text = ". ".join(cases) or "nowhere in this table by more than chance"
    yield from wrap(f"* Where a peer is better: {text}.", 118, subsequent_indent="  ")
    if wrong := unlike(told):
        yield from wrap(f"* Unlike their simulation: {'; '.join(wrong)}.", 118, subsequent_indent="  ")
    yield from SHOWS.rstrip().splitlines()


def listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))


HEAD = f"""
* **Price:** epsilon is 1 for the whole statement, and delta is 1e-06 for Gaussian noise. One person is added or
  removed, and keys are public.
* **Error of a group:** |answer - truth| over the truth, and for averages |answer - truth|. Truths are of the whole
  table.
* **Error of a statement:** the median over groups, weighted by their rows. The table has its mean over {REPEATS}
  releases ({2 * REPEATS} of ours). After ± is its standard error, as a part of the error.
* **Bold**: better than ours by more than 3.5 standard errors of both. "3 of 4" says how many lines of peers are better.
* **Ours** is `max_norm_contributed = 'private'`, which pays for its norm, at MAX ROWS 1000. All others have the best
  bounds of a grid in hindsight, which nobody could choose so well.
* **Noise:** a peer has either kind. Laplace noise is for epsilon 1 alone, without a delta. But it costs 15 times as
  much of a budget in rho.

The grid of bounds:

* Groups of a person, or rows in all: {listed(GROUPS)}.
* Rows of a person in a group: {listed(ROWS)}.
* Clips of a person's sum in a group: {listed(CLIPS)} times the public guess of the average.
* OpenDP's averages have {listed(FEW)} for both rows and clips.
* Clamps of PipelineDP's averages: {listed(WIDTHS)} times the guess.
* Our MAX ROWS: {listed(OWN_ROWS)}. Our norms: {listed(OWN_NORMS)}.
* Of averages and sums our norms are {listed(FEW_NORMS)}, and those of sums {listed(SUM_NORMS)} times the guess.
""".strip()
DATA_SAID = """
OpenDP 0.16 keeps a person's first or last groups, one less than it charges for. Its choice of groups by chance fails
with the polars that it asks for. Its choices of rows by chance work, and are in the grid.

The tables:

* Web logs are made: 10,000 people, Pareto, at most 2,000 rows of one. Values are in seconds.
* Stays are made: 5,000 people, at most 24 rows of one. Values are in tenths.
* Taxi routes are real: 6,295 pairs of zones, at most 1,790 rows of one. Values are in cents.

Our policies' clamps are 600, 5,000 and 10,000, for MAX ROWS as well. The run takes eight minutes of a processor.

| workload | system | outcome | error |
|---|---|---|---|"""


SHOWS = """
What it shows:

* Counts: by 480 or 168 groups ours errs about as much. By 20 to 40 groups, and if nobody has more than 24 rows, peers
  are better with one kind of noise at least. So is our own best bound in hindsight. The loss comes from the choice. A
  private norm is paid for, and ends too low if groups are few. Name a number there, or take `total = TRUE`.
* Persons: about the same for web logs and taxi routes. Peers are 1.4 times better for stays. Nobody has more than 24
  rows there, and a bound in hindsight leaves nobody out.
* Averages: ours is 1.8 and 2.0 times better for web logs and stays, and is told the guess alone. For taxi routes OpenDP
  has 0.75 of our error, 2.4 standard errors apart. It is given distances from the guess, which its users would have to
  subtract. PipelineDP takes the middle of its clamp for a guess.
* Sums: a clip of what a person adds to a group is a good bound for somebody who knows it. For web logs and taxi routes
  it is 2.1 and 1.8 times better than a private norm. For stays the private norm is 1.7 times better than our best norm.
* Noise: Laplace noise at epsilon 1 is better if people have few rows. In stays by ward it has half of the error, in
  dpduck as in the peers. Leave the delta out of a statement to have it.
* Our grid of norms of sums is coarse. For sums of stays the private norm lies between its points, and is better.
"""


def put(page: Path, part: str) -> None:
    """Writes the part in place of its earlier version, or before the next part of a page without one."""
    text = page.read_text("utf-8")
    before, heading, rest = text.partition(SEVERAL)
    _, mark, after = rest.partition("\n## ")
    if not heading:
        place = min((text.index(one) for one in (QUANTILES, HEADING) if one in text), default=len(text))
        before, mark, after = text[:place], "\n" if place < len(text) else "", text[place:]
    page.write_text(f"{before.rstrip()}\n\n{part}\n{mark}{after}", "utf-8")


def main() -> int:
    """Prints the part with its gates, and writes it into the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--environments", type=Path)
    parser.add_argument("--tables", type=int, default=len(TABLES), help="the first so many tables alone")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    where = here()
    questions, told = run(given.environments, given.tables)
    part = "\n".join(lines_of(questions, told, where))
    if given.write is not None:
        put(given.write, part)
    print(part)
    passed = [mean <= GATES[kind] for kind, mean, _ in means(questions, told)]
    for (kind, mean, _), met in zip(means(questions, told), passed, strict=True):
        print(f"{'PASS' if met else 'FAIL'} gate    {kind}: {mean:.2f} of the best peer, at most {GATES[kind]:g}")
    if not passed:
        print("skipped: no gate without a peer", file=sys.stderr)
    answered = all("error" in found.get("dpduck", {}) for found in told.values())
    return 0 if answered and all(passed) and not unlike(told) else 1


if __name__ == "__main__":
    sys.exit(main())
