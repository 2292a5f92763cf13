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

from benchmarks.peers._asked_data import DELTA, EPSILON, made

PEERS = {
    "dpduck": (),
    "OpenDP 0.16": ("opendp[polars]==0.16.0", "pandas<3", "pyarrow"),
    "SmartNoise SQL 1.0": ("smartnoise-sql==1.0.10", "pandas<3", "pyarrow"),
    "PipelineDP 0.3": ("pipeline-dp==0.3.1", "pandas<3", "pyarrow"),
}
SCRIPTS = dict(zip(PEERS, ("dpduck", "opendp", "smartnoise", "pipelinedp"), strict=True))
NOT_HERE = {
    "Tumult Analytics": "its wheels are on no registry that this machine reaches (asked for as tumult-analytics)",
    "Qrlew 0.9": "rewrites SQL for a server to run, with that server's RANDOM() for noise; none is part of it",
    "`privacy` extension of DuckDB": "a binary of DuckDB's community server, which is no registry of packages",
}
CLOSE = 1.5
"""A factor below which errors of so few repeats are alike."""

WOULD_DO = {
    "seconds": "its time is that of a call without a ledger on disk, a rehearsal and workers: nothing",
    "error": "look at the plan of this workload with `dp_explain`, and at more repeats",
    "mebibytes": "the processes are measured whole, DuckDB and pyarrow included: nothing",
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
    yield f"Error: root mean squared, over cells and repeats. **Bold**: {CLOSE:g} times better than ours, or more."
    yield ""
    yield "| workload | system | outcome | error | seconds | MiB | spent |"
    yield "|---|---|---|---|---|---|---|"
    better = list[str]()
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
                if peer != "dpduck" and value * CLOSE < own:
                    shown = f"**{shown}**"
                    better.append(f"{workload}, {peer}, {figure} {value:.3g} against {own:.3g}: {WOULD_DO[figure]}.")
                cells.append(shown)
            spent = "what is said, once for the statement, in a ledger" if peer == "dpduck" else SPENT[peer]
            yield f"| {workload} | {peer} | answered | {' | '.join(cells)} | {spent} |"
    yield ""
    yield "## Where a peer is better"
    yield ""
    yield from (f"* {line}" for line in better or ["Nowhere by more than chance."])
    yield ""
    yield "## What could not be run here"
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
        given.write.write_text(page, "utf-8")
    return 0 if told.get("dpduck") else 1


if __name__ == "__main__":
    sys.exit(main())
