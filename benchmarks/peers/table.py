"""Every system that can run here, on the same questions of the same data at the same guarantee: docs/peers.md.

usage: python -m benchmarks.peers.table [--rows 20000] [--environments DIRECTORY] [--write docs/peers.md]

Each peer has an environment of its own, made by pip in DIRECTORY (none: dpduck alone, and the benchmark says so). One
row a person, so that no system is favoured by how it bounds what a person adds; epsilon 1, delta 1e-6 where needed.
Informs alone: errors are of so few repeats that factors below 1.5 are chance. Traps avoided: reading the table is timed
for nobody; keys are public for everybody but in "free texts"; each repeat is a release of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap

from benchmarks.peers._asked_data import DELTA, EPSILON, made
from benchmarks.peers._wide_page import part_of

PEERS = {
    "dpduck": (),
    "OpenDP 0.16": ("opendp[polars]==0.16.0", "pandas<3", "pyarrow"),
    "SmartNoise SQL 1.0": ("smartnoise-sql==1.0.10", "pandas<3", "pyarrow"),
    "PipelineDP 0.3": ("pipeline-dp==0.3.1", "pandas<3", "pyarrow"),
}
SCRIPTS = dict(zip(PEERS, ("dpduck", "opendp", "smartnoise", "pipelinedp"), strict=True))
NOT_HERE = {
    "Tumult Analytics": "pip finds no version of tumult-analytics; its noise needs Spark",
    "Qrlew 0.9": "rewrites SQL for a server to run, with that server's RANDOM() for noise; none is part of it",
    "`privacy` extension of DuckDB": "a binary of DuckDB's community server, which is no registry of packages",
}
CLOSE = {"error": 2.0, "seconds": 1.1, "mebibytes": 1.1}
"""Factors below which figures are alike: errors are of so few repeats that much is chance."""

WOULD_DO = {
    "seconds": "a new answer waits for a ledger, a rehearsal and a worker, 24 to 33 ms where nothing else is at work "
    "(CHANGELOG.md): profile a first question in memory, which is what is timed here",
    "error": "compare the plan of this workload (`dp_explain`) with theirs, at more repeats",
    "mebibytes": "DuckDB, pyarrow and scipy are in the process; pyarrow and scipy could be loaded when first needed",
}
ROOT = Path(__file__).resolve().parents[2]
LIMIT = 600
"""Seconds for all workloads of one peer; what is not answered by then did not finish."""

Told = dict[str, dict[str, dict[str, float | str]]]


def python_of(peer: str, environments: Path | None) -> str | None:
    """Returns the python of a peer's environment, made where there is none; None where none is wanted or can be."""
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


def asked(peer: str, python: str, table: Path) -> dict[str, dict[str, float | str]]:
    """Runs a peer on the table; what it told until it ended, or until its time was over."""
    command = [python, "-W", "ignore", "-m", f"benchmarks.peers._asked_{SCRIPTS[peer]}", str(table)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        said, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    lines = [json.loads(line) for line in said.decode().splitlines() if line.startswith("{")]
    return {line["workload"]: line for line in lines}


def lines_of(told: Told, rows: int) -> Iterator[str]:
    """Yields the page: one table, bold where a peer is better by more than chance, and what we would do about it."""
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    commit = subprocess.run(["git", "log", "-1", "--format=%h"], cwd=ROOT, capture_output=True, text=True, check=False)
    yield "# Beside whom we stand"
    yield ""
    yield f"Made by `python -m benchmarks.peers.table`: commit {commit.stdout.strip() or 'unknown'}, {machine},"
    yield f"{datetime.now(UTC):%Y-%m-%d}; {rows:,} rows, one a person, epsilon {EPSILON:g}, delta {DELTA:g}."
    yield "Error: root mean squared, over cells and repeats. **Bold**: better than ours by more than chance,"
    yield f"{CLOSE['error']:g} times for errors, {CLOSE['seconds']:g} times for seconds and memory. Seconds are of a"
    yield "machine that did other work too: their ratios mean something, they do not."
    yield ""
    yield "| workload | system | outcome | error | seconds | MiB | spent |"
    yield "|---|---|---|---|---|---|---|"
    better: dict[str, list[str]] = {figure: [] for figure in CLOSE}
    for workload, ours in told["dpduck"].items():
        for peer, answers in told.items():
            found = answers.get(workload)
            if found is None or "refused" in found:
                why = "did not finish" if found is None else f"refused: {str(found['refused']).replace('|', ' ')}"
                yield f"| {workload} | {peer} | {why} | | | | |"
                continue
            cells = []
            for figure in ("error", "seconds", "mebibytes"):
                value, own = float(found[figure]), float(ours.get(figure, "inf"))
                shown = f"{value:.3g}"
                if peer != "dpduck" and value < own and value * CLOSE[figure] <= own:
                    shown = f"**{shown}**"
                    better[figure].append(f"{workload}, {peer} ({value:.3g}, ours {own:.3g})")
                cells.append(shown)
            spent = "what is said, once for the statement, in a ledger" if peer == "dpduck" else SPENT[peer]
            yield f"| {workload} | {peer} | answered | {' | '.join(cells)} | {spent} |"
    yield ""
    yield "## Where a peer is better"
    yield ""
    for figure, cases in better.items():
        told_of = (
            f"{'; '.join(cases)}. What we would do: {WOULD_DO[figure]}." if cases else "nowhere by more than chance."
        )
        yield from wrap(f"* {figure}: {told_of}", 118, subsequent_indent="  ")
    yield ""
    yield "## What was not run, and why"
    yield ""
    missing = {**{peer: "its environment could not be made" for peer in PEERS if peer not in told}, **NOT_HERE}
    yield from (f"* {peer}: {why}." for peer, why in missing.items())
    yield "* 20 M rows, joins with units, ranges, sparse origin and destination, 1,000 statements on one budget: not in"
    yield "  this table. Synthetic data has benchmarks of its own ([synthetic_data.md](synthetic_data.md))."


SPENT = {
    "OpenDP 0.16": "what is said; the context ends with its process",
    "SmartNoise SQL 1.0": "what is said for each column; no ledger",
    "PipelineDP 0.3": "what is said; the accountant ends with its process",
}


def main() -> int:
    """Prints the page, or writes it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--environments", type=Path)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    told: Told = {}
    with tempfile.TemporaryDirectory() as room:
        table = Path(room) / "table.parquet"
        made(given.rows).to_parquet(table)
        for peer in PEERS:
            python = python_of(peer, given.environments)
            if python is None:
                print(f"skipped: {peer} has no environment (--environments DIRECTORY makes one)", file=sys.stderr)
                continue
            told[peer] = asked(peer, python, table)
            print(f"{peer}: {len(told[peer])} workloads", file=sys.stderr)
    page = "\n".join(lines_of(told, given.rows)) + "\n"
    if given.write is None:
        sys.stdout.write(page)
    else:
        wide = part_of(given.write)  # which another benchmark makes
        given.write.write_text(f"{page.rstrip()}\n\n{wide}" if wide else page, "utf-8")
    return 0 if told.get("dpduck") else 1


if __name__ == "__main__":
    sys.exit(main())
