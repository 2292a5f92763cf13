"""People with several rows beside OpenDP and PipelineDP, which have their best bounds in hindsight: docs/peers.md.

usage: python -m benchmarks.peers.several_rows [--environments DIRECTORY] [--tables N] [--write docs/peers.md]

Counts by one and two keys, persons, averages and sums by group, of made tables and of taxi routes (../shared/data or
$DPDUCK_DATA), at epsilon 1 and delta 1e-6 for the whole statement; Laplace noise is at epsilon 1 alone. A group's error
is |answer - truth| over the truth, and of averages |answer - truth|. A statement's error is the median over its groups,
by their rows, and the mean over REPEATS releases. Ours is `max_norm_contributed = 'private'`: everything is paid for.

Gates, of geometric means over the statements of a kind: ours is at most 1.3 times the best peer for counts, persons and
sums, and at most its equal for averages. The best peer is the best of both, with either noise, at its best bounds.
Traps avoided: truths are of the whole table; a peer's noise is that of its own library at these bounds, and its bounds
are chosen by a simulation over the grids of _several_data.py, which must agree with what the library then answers. Our
own bounds in hindsight are chosen by an answer each, and two more of the best three. All that is shown is of new
releases, twice as many of ours.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
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
    """A table: its name, its rows, and what is asked of it."""
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
    """Writes the first so many tables; returns the questions about those that there are."""
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


def best_peer(found: dict[str, dict[str, float | str]]) -> tuple[str, float] | None:
    """The peer with the least error, and that error."""
    errors = {system: float(line["error"]) for system, line in found.items() if system not in OURS and "error" in line}
    name = min(errors, key=lambda system: errors[system], default=None)
    return None if name is None else (name, errors[name])


def means(questions: list[Question], told: Told) -> Iterator[tuple[str, float, str]]:
    """For each kind, our error over the best peer's, and a sentence about it and our own other ways."""
    for kind in GATES:
        of = [told[question.name] for question in questions if question.kind == kind]
        pairs = [(float(one["dpduck"]["error"]), one, best_peer(one)) for one in of if "error" in one.get("dpduck", {})]
        ratios = [own / peer[1] for own, _, peer in pairs if peer is not None]
        if not ratios:
            continue
        gaussian = [own / least for own, one, _ in pairs if (least := _least(one, "Gaussian"))]
        own = [[mine / float(one[system]["error"]) for mine, one, _ in pairs if "error" in one.get(system, {})]
               for system in OURS[1:]]  # fmt: skip
        parts = ", ".join(f"{geometric(one):.2f} of {text}" for one, text in zip(
            (gaussian, *own), ("the best peer with Gaussian noise", "our best norm", "our best MAX ROWS"), strict=True)
            if one)  # fmt: skip
        mean = geometric(ratios)
        yield (
            kind,
            mean,
            f"{kind}: ours is {mean:.2f} times the best peer's error over {len(ratios)} statements; {parts}",
        )


def _least(found: dict[str, dict[str, float | str]], noise: str) -> float | None:
    errors = [float(line["error"]) for system, line in found.items() if system.endswith(noise) and "error" in line]
    return min(errors, default=None)


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


def lines_of(questions: list[Question], told: Told) -> Iterator[str]:
    """Yields the part of the page."""
    yield from (SEVERAL, "", f"Made by `python -m benchmarks.peers.several_rows` in one run: {here()}.")
    yield from (*HEAD.splitlines(), *DATA_SAID.splitlines())
    better = []
    for question in questions:
        found = told[question.name]
        ours = found.get("dpduck", {})
        for system, line in found.items():
            if "error" not in line:
                yield f"| {question.name} | {system} | {line.get('stopped', 'not answered')} | |"
                continue
            text = f"{float(line['error']):.3g}"
            if system not in OURS and is_better(line, ours, "error"):
                better.append(f"{question.name}, {system} ({text}, ours {float(ours['error']):.3g})")
                text = f"**{text}**"
            text += f" ± {100 * float(line['sure']):.0f} %"
            yield f"| {question.name} | {system} | answered, {line['bounds']} | {text} |"
    yield ""
    for kind, mean, sentence in means(questions, told):
        verdict = "met" if mean <= GATES[kind] else "missed"
        yield from wrap(f"* {sentence}. Gate: at most {GATES[kind]:g}, {verdict}.", 118, subsequent_indent="  ")
    listed = "; ".join(better) or "nowhere in this table by more than chance"
    yield from wrap(f"* Where a peer is better: {listed}.", 118, subsequent_indent="  ")
    if wrong := unlike(told):
        yield from wrap(f"* Unlike their simulation: {'; '.join(wrong)}.", 118, subsequent_indent="  ")


def listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))


HEAD = "\n".join(
    wrap(
        f"""Epsilon 1 for the whole statement, delta 1e-06 for Gaussian noise, one person added or removed, keys public.
Error: of a group |answer - truth| over the truth, of averages |answer - truth|. A statement's error is the median over
groups, by their rows, and the mean over {REPEATS} releases ({2 * REPEATS} of ours), with its standard error as a part
of it. Truths are of the whole table. **Bold**: better than ours by more than 3.5 standard errors of both. Ours is
`max_norm_contributed = 'private'`, which pays for its norm, at MAX ROWS 1000. All others have the best bounds of a
grid in hindsight, which nobody could choose so well. Groups of a person, or rows in all: {listed(GROUPS)}. Rows of a
person in a group: {listed(ROWS)}. Clips of a person's sum in a group: {listed(CLIPS)} times the public guess of the
average. OpenDP's averages have {listed(FEW)} for both. Clamps of PipelineDP's averages: {listed(WIDTHS)} times the
guess. Our MAX ROWS: {listed(OWN_ROWS)}. Our norms: {listed(OWN_NORMS)}. Of averages and sums they are
{listed(FEW_NORMS)}, and those of sums {listed(SUM_NORMS)} times the guess.""",
        118,
        break_on_hyphens=False,
    )
)
DATA_SAID = """
Tables: web logs (made: 10,000 people, Pareto, at most 2,000 rows of one), stays (made: 5,000 people, at most 24), taxi
routes (real: 6,295 pairs of zones, at most 1,790). Values are in seconds, tenths and cents. OpenDP 0.16 keeps a
person's first or last groups, one less than it charges for: its choice of groups by chance fails with the polars that
it asks for. Its choices of rows by chance work, and are in the grid. Of noise a peer has either kind; Laplace noise is
for epsilon 1 alone, but costs 15 times as much of a budget that is kept in rho.

| workload | system | outcome | error |
|---|---|---|---|"""


def put(page: Path, part: str) -> None:
    """Writes the part in place of what was there; a page without it has it before the next part."""
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
    questions, told = run(given.environments, given.tables)
    part = "\n".join(lines_of(questions, told))
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
