"""Every system that can run here, on the same questions of the same data at the same guarantee: docs/peers.md.

usage: python -m benchmarks.peers.table [--environments DIRECTORY] [--rows MOST] [--part OF] [--record FILE]
[--only WORKLOAD] [--again FILE] [--write docs/peers.md]

Each peer has an environment of its own, made by pip in DIRECTORY (none: dpduck alone, and the benchmark says so). Each
size is asked of all peers before the next one. Epsilon 1 for a whole statement, delta 1e-6 where it is needed. A person
is added or removed. Informs alone. An error is called better where it is, beyond 3.5 standard errors of both, which
follow from how repeats differ. Traps avoided: reading the table is timed for nobody. Keys are public for everybody but
in "free texts" and "pairs". Each repeat is a release of its own. One process at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from math import log
from pathlib import Path
from textwrap import wrap

from benchmarks.peers._asked_data import DELTA, EPSILON, KEYS, MOST, write
from benchmarks.peers._wide_page import part_of
from dpduck.values.accounting import rho_of

PEERS = {
    "dpduck": (),
    "OpenDP 0.16": ("opendp[polars,mbi]==0.16.0", "pandas<3", "pyarrow"),
    "SmartNoise SQL 1.0": ("smartnoise-sql==1.0.10", "pandas<3", "pyarrow"),
    "PipelineDP 0.3": ("pipeline-dp==0.3.1", "dp-accounting==0.6.0", "pandas<3", "pyarrow"),
}
SCRIPTS = dict(zip(PEERS, ("dpduck", "opendp", "smartnoise", "pipelinedp"), strict=True))
SPENT = {
    "dpduck": "once for the statement. The charge lies in a ledger on disk, and the ledger refuses statements beyond "
    "the budget",
    "OpenDP 0.16": "once for the statement, in a context. The context refuses more, and ends with its process",
    "SmartNoise SQL 1.0": "for each column by itself, unless its odometer is asked before, as it is here. It refuses "
    "nothing",
    "PipelineDP 0.3": "once for the budget that one accountant divides. The accountant ends with its process",
}
NOT_HERE = {
    "Tumult Analytics": "pip finds no version of tumult-analytics. Its noise needs Spark",
    "Qrlew 0.9": "it rewrites SQL for a server to run, with that server's RANDOM() for noise. No server is part of it",
    "`pac`, `privacy` and `dp` of DuckDB's community": "binaries of DuckDB's server, which is no registry of packages",
    "SmartNoise Synth, mbi 2's AIM and MST": "they are beside our synthetic tables in `benchmarks/peers/synthetic.py` "
    "([synthetic_data.md](synthetic_data.md)). AIM and MST of mbi 1.1, which OpenDP has, are below",
}
CLOSE = {"seconds": 1.1, "busy": 1.1, "mebibytes": 1.1}
"""Factors below which figures are alike."""

SURE, LEAST_REPEATS = 3.5, 5
"""Standard errors by which errors must differ, and repeats from which on they have such."""

WOULD_DO = {
    "error": "see below",
    "seconds": "profile a first question in memory, and answer small tables without a rehearsal. A new answer waits "
    "for a ledger, a rehearsal on made-up rows and a plan. That takes 24 to 33 ms if nothing else is at work "
    "(CHANGELOG.md). A loop over a thousand rows in Python waits for none of them",
    "busy": "the same",
    "mebibytes": "start the worker only when there is an expression. DuckDB and pyarrow are in the process, with the "
    "parts of scipy that are used, and the worker is beside it",
}
EACH = "Each table has the cases of one figure. A cell is empty if that system is not better."
BEYOND = {
    "error": " Two questions are not in it, and have tables below: quantiles, and people with many rows.",
}
"""What the table does not ask."""
ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 7 << 30
"""Of memory, of a peer and all that it starts."""


@dataclass(frozen=True)
class Group:
    """Workloads that are asked at one size of the data. seconds, most: of each at most, once asked `least` times.

    limit: seconds for all workloads together. A question without an answer by then did not finish.
    """

    rows: int
    workloads: tuple[str, ...]
    seconds: float
    least: int
    most: int
    limit: float


OTHERS = ("cube", "sums", "averages", "quartiles", "free texts", "several rows", "join", "ranges", "pairs",
          "pairs, added up", "synthetic rows")  # fmt: skip
GROUPS = (
    Group(1_000, tuple(KEYS), 6, LEAST_REPEATS, 100, 150),
    Group(10_000, OTHERS, 8, LEAST_REPEATS, 100, 450),
    Group(1_000, ("1,000 statements", "1,000 statements, known"), 60, 1, 1, 150),
    Group(1_000_000, tuple(KEYS), 6, 1, 5, 100),
    Group(20_000_000, tuple(KEYS), 6, 1, 3, 100),
)
Told = dict[tuple[str, int], dict[str, dict[str, float | str]]]
"""Lines by workload and rows, and by peer."""


def python_of(peer: str, environments: Path | None) -> str | None:
    """Returns the python of a peer's environment, made if missing. None if none is wanted or possible."""
    if not PEERS[peer]:
        return sys.executable
    if environments is None:
        return None
    folder = environments / SCRIPTS[peer]
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *PEERS[peer]]
        if subprocess.run(pip, check=False).returncode != 0:
            return None
        (folder / "made").touch()
    return str(python)


def asked(
    peer: str, python: str, folder: Path, group: Group, script: str = "_asked_"
) -> dict[str, dict[str, float | str]]:
    """Runs a peer. Returns its lines until its end, and for each missing line the reason."""
    command = [python, "-W", "ignore", "-m", f"benchmarks.peers.{script}{SCRIPTS[peer]}", str(folder)]
    limits = {"WORKLOADS": ";".join(group.workloads), "SECONDS": str(group.seconds), "REPEATS": str(group.most)}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LEAST": str(group.least), **limits}
    with (folder / "said").open("wb") as said, (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=said, stderr=errors, start_new_session=True
        )
        why = _ended(process, group.limit)
    lines = [json.loads(line) for line in (folder / "said").read_text().splitlines() if line.startswith("{")]
    found = {line["workload"]: line for line in lines}
    left = [name for name in group.workloads if name not in found]
    last = ((folder / "errors").read_text(errors="replace").strip() or "nothing").splitlines()[-1]
    for place, name in enumerate(left):
        found[name] = {"stopped": (why or f"ended: {last[:120]}") if place == 0 else "not asked any more"}
    return found


def _ended(process: subprocess.Popen[bytes], limit: float) -> str:
    """Waits until a process ends, or ends it with all that it started. Returns why, empty where it ended itself."""
    end = time.monotonic() + limit
    while process.poll() is None:
        why = f"stopped after {limit:.0f} s" if time.monotonic() > end else ""
        if not why and _held(process.pid) > MOST_BYTES:
            why = f"stopped at {MOST_BYTES >> 30} GiB of memory"
        if why:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return why
        time.sleep(0.2)
    return ""


def _held(session: int) -> int:
    """Returns the bytes that all processes of a session hold."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE") if int(fields[3]) == session else 0
    return total


def sized(name: str, rows: int) -> str:
    """Names a workload, with its rows where it is asked of several sizes."""
    return f"{name}, {rows:,} rows" if name in KEYS else name


def is_better(theirs: dict[str, float | str], ours: dict[str, float | str], figure: str) -> bool:
    """Tells whether a peer's figure is below ours by more than chance."""
    value, own = float(theirs[figure]), float(ours.get(figure) or "inf")
    if figure != "error":
        return value * CLOSE[figure] <= own
    if min(float(theirs["repeats"]), float(ours.get("repeats", 0))) < LEAST_REPEATS or value >= own:
        return False
    sure = sum(float(one.get("sure") or 0) ** 2 for one in (theirs, ours)) ** 0.5
    return value == 0 or log(own / value) > SURE * sure


def here() -> str:
    """Names the commit, the machine and the day."""
    commit = subprocess.run(["git", "log", "-1", "--format=%h"], cwd=ROOT, capture_output=True, text=True, check=False)
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"commit {commit.stdout.strip() or 'unknown'}, {machine}, {datetime.now(UTC):%Y-%m-%d}"


def lines_of(told: Told, where: str) -> Iterator[str]:
    """Yields the page: one table, bold where a peer is better by more than chance, and what we would do about it."""
    yield from (line.format(where=where) for line in HEAD.strip().splitlines())
    better: dict[str, dict[str, dict[str, str]]] = {figure: {} for figure in WOULD_DO}
    for (workload, rows), by_peer in told.items():
        ours = by_peer["dpduck"]
        for peer, found in by_peer.items():
            name = sized(workload, rows)
            if "stopped" in found or "refused" in found:
                why = str(found.get("stopped") or f"refused: {found['refused']}").replace("|", " ")
                yield f"| {name} | {peer} | {why} | | | | |"
                continue
            cells = [f"answered{', ' if found['note'] else ''}{found['note']}"]
            for figure in WOULD_DO:
                value, text = float(found[figure]), f"{float(found[figure]):.3g}"
                if peer != "dpduck" and is_better(found, ours, figure):
                    line = better[figure].setdefault(name, {"dpduck": f"{float(ours.get(figure, 'nan')):.3g}"})
                    line[peer] = text
                    text = f"**{text}**"
                if figure == "error":
                    sure = found.get("sure")
                    text += (
                        f" ± {100 * float(sure):.0f} %"
                        if sure is not None
                        else " always"
                        if not value and float(found["repeats"]) > 1
                        else ""
                    )
                cells.append(text)
            yield f"| {name} | {peer} | {' | '.join(cells)} |"
    yield from ("", "## Where a peer is better", "", EACH, "")
    yield from (line for figure, cases in better.items() for line in better_lines(figure, cases))
    yield ""
    yield from NOTES.rstrip().splitlines()
    yield from ("", "## What is spent", "")
    yield from (line for peer, how in SPENT.items() for line in wrap(f"* {peer}: {how}.", 118, subsequent_indent="  "))
    yield from ("", "## What was not run, and why", "")
    made = {peer for by_peer in told.values() for peer in by_peer}
    missing = {peer: "its environment could not be made" for peer in PEERS if peer not in made}
    for peer, why in {**missing, **NOT_HERE}.items():
        yield from wrap(f"* {peer}: {why}.", 118, subsequent_indent="  ")


def better_lines(figure: str, cases: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yields a table of the workloads where a peer's figure is better, and what we would do. cases: by workload."""
    heading = {"busy": "processor seconds", "mebibytes": "MiB"}.get(figure, figure)
    if not cases:
        text = f"* {heading}: nowhere in this table by more than chance.{BEYOND.get(figure, '')}"
        yield from wrap(text, 118, subsequent_indent="  ")
        return
    yield from ("", f"| {heading} | {' | '.join(PEERS)} |", "|---|" + "---|" * len(PEERS))
    for name, line in cases.items():
        cells = (f" {line[peer]} |" if peer in line else " |" for peer in PEERS)
        yield f"| {name} |{''.join(cells)}"
    yield ""
    yield from wrap(f"What we would do: {WOULD_DO[figure]}.", 118)


HEAD = f"""# Comparison with other tools

Made by `python -m benchmarks.peers.table` in one run: {{where}}.

* **Price:** epsilon is {EPSILON:g} for the whole statement, and delta is {DELTA:g} if one is needed. One person is
  added or removed.
* **People:** each has one row. In "several rows" and "join" each has one to {MOST}, and every system is told that
  {MOST} is the most that count.
* **Error:** root mean squared, over cells and repeats. After ± is its standard error, as a part of the error.
* **Bold**: better than ours, errors by more than {SURE} standard errors of both, other figures by a tenth.
* **Seconds:** medians of one answer, on a machine that did other work too. Processor seconds are those of an answer,
  for the process and all that it started. MiB are the most that these processes held.
* **Sizes:** counts and keys are asked of tables of three sizes. The 1,000 statements are asked of 1,000 rows, and all
  else of 10,000 rows.
* **"Pairs":** homes and places of work, of 1,000,000 possible ones. "Added up" are sums of the same answer over 100
  squares of them.
* **"Ranges":** all 5,151 ranges of 101 values.
* **"Synthetic rows":** the error is the mean total variation over margins of two of four columns.
* **"1,000 statements":** counts with different conditions on one budget, and each is paid for. "Known" are the same
  counts, answered from one release of three keys. That release was paid with the whole budget.

| workload | system | outcome | error | seconds | processor seconds | MiB |
|---|---|---|---|---|---|---|"""

NOTES = """
## What the errors come from

* Counts, keys, sums and several rows: all systems add Laplace noise of the same scale. Its standard error is 1.4 for a
  count, and 141 for a sum of charges of a group. So the differences are chance, at any number of repeats. An earlier
  table of ten draws had 107 beside our 198 for sums, which was chance, too.
* SmartNoise SQL moves counts below 0 up to 0. That adds an error to sums of many small bins (ranges).
* Averages: OpenDP and SmartNoise SQL divide the price between a sum and a count. PipelineDP and dpduck add up distances
  from the middle of the bounds, which move half as far.
* A cube: dpduck makes one plan for all grouping sets. The others ask four statements, at a quarter of the price each.
* Free texts and pairs: all systems have thresholds at the same delta. In pairs that are added up, a threshold has lost
  rare pairs, and a summary has not.
* Synthetic rows: the columns are independent of each other, which nobody knows beforehand. `auto` takes a cube there,
  and `mechanism = 'aim'` has 0.051. A noisy look at how far columns depend on each other would choose (decisions.md).
* 1,000 statements: dpduck and OpenDP have zero-concentrated accounting. SmartNoise SQL has advanced composition, and
  PipelineDP the sum of epsilons.
"""


def read(record: Path) -> tuple[Told, str]:
    """Returns the record."""
    where, kept = json.loads(record.read_text())
    return {(name, rows): by_peer for (name, rows), by_peer in kept}, where


def run(most: int, part: float, environments: Path | None, record: Path | None, only: str | None) -> tuple[Told, str]:
    """Asks all peers everything. most: rows. part: of all seconds. record: the file for results as they come.

    only: a workload that all peers are asked again. The rest comes from the record.
    """
    told, where = {}, here()
    if only is not None and record is not None:
        told, before = read(record)
        where = f"{before}; {only}: {where}"
    pythons = {peer: python_of(peer, environments) for peer in PEERS}
    for peer, python in pythons.items():
        if python is None:
            print(f"skipped: {peer} has no environment (--environments DIRECTORY makes one)", file=sys.stderr)
    for group in GROUPS:
        if (group.rows > most and group.workloads == tuple(KEYS)) or (only and only not in group.workloads):
            continue
        least = group.least if part >= 1 else 1
        one = replace(group, rows=min(group.rows, most), seconds=group.seconds * part, least=least)
        whole = one.workloads == OTHERS
        one = replace(one, workloads=(only,)) if only else one
        with tempfile.TemporaryDirectory() as room:
            write(Path(room), one.rows, str(rho_of(Fraction(1), Fraction(str(DELTA)))), whole)
            for peer, python in pythons.items():
                if python is not None:
                    for name, line in asked(peer, python, Path(room), one).items():
                        told.setdefault((name, one.rows), {})[peer] = line
                    print(f"{one.rows:,} rows, {peer}: done", file=sys.stderr)
                    if record is not None:
                        kept = [[list(key), by_peer] for key, by_peer in told.items()]
                        record.write_text(json.dumps([where, kept]))
    return told, where


def main() -> int:
    """Prints the page, or writes it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=max(group.rows for group in GROUPS), help="at most so many")
    parser.add_argument("--part", type=float, default=1.0, help="of all seconds")
    parser.add_argument("--environments", type=Path)
    parser.add_argument("--record", type=Path, help="where to keep what was found")
    parser.add_argument("--only", metavar="WORKLOAD", help="ask it again; the rest is of --record")
    parser.add_argument("--again", type=Path, help="a record, of which the page is made again")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    if given.again is not None:
        told, where = read(given.again)
    else:
        told, where = run(given.rows, given.part, given.environments, given.record, given.only)
    page = "\n".join(lines_of(told, where)) + "\n"
    if given.write is None:
        sys.stdout.write(page)
    else:
        wide = part_of(given.write)  # which other benchmarks make
        given.write.write_text(f"{page.rstrip()}\n\n{wide}" if wide else page, "utf-8")
    return 0 if any("error" in by_peer["dpduck"] for by_peer in told.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
