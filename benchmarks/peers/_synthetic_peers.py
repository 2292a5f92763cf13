"""Other systems' synthetic data, each in a python of its own, and the errors of what they made."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.papers._synthetic_data import absolute_error, sets_of, variation
from dpduck.mechanisms.synthetic.distribution import Component, Distribution

HERE = Path(__file__).parent
Table = np.ndarray


@dataclass(frozen=True)
class Made:
    """A peer's result. error: mean absolute error of a cell of the 3-way marginals, in records. distance: their mean
    total variation. Both are None where it did not finish."""

    wall: float
    busy: float
    told: Mapping[str, object]
    error: float | None
    distance: float | None


def python_of(named: str | None, variable: str) -> str | None:
    """The python of a peer's environment: an option, or a variable of the environment."""
    return named or os.environ.get(variable)


def run_peer(python: str, script: str, table: Table, *arguments: str) -> Made:
    """A peer's script on a table, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        given, kept = Path(folder) / "table.npy", Path(folder) / "kept.npy"
        np.save(given, table)
        done = subprocess.run(
            [python, "-W", "ignore", str(HERE / script), str(given), *arguments, str(kept)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{script} failed: {done.stderr[-800:]}")
        told = json.loads(done.stdout.splitlines()[-1])
        if not kept.is_file():
            return Made(told["wall"], told["busy"], told, None, None)
        made = np.load(kept)
    distribution = Distribution(table.shape, (Component(tuple(range(table.ndim)), made / made.sum()),))
    sets = sets_of(table, 3)
    error, distance = absolute_error(table, distribution, sets), variation(table, distribution, sets)
    return Made(told["wall"], told["busy"], told, error, distance)


def smartnoise(python: str, table: Table, rounds: int, replays: int) -> Made:
    """MWEM of smartnoise-synth 1.0.8 at epsilon 1."""
    return run_peer(python, "_smartnoise_peer.py", table, str(rounds), str(replays))


def print_mbi(python: str, table: Table, seeds: int, seconds: float) -> None:
    """AIM and MST of mbi 2.0.0 at (1, 1e-6): error and time. AIM runs 32 rounds, and its own number of rounds."""
    for (mechanism, rounds), seed in product((("MST", 0), ("AIM", 32), ("AIM", 0)), range(seeds)):
        made = run_peer(python, "_mbi_peer.py", table, mechanism, str(seed), str(rounds), str(seconds))
        planned = {"MST": "", "AIM": f", {rounds or 16 * table.ndim} rounds planned"}[mechanism]
        result = f"mean total variation {made.distance:.5f}" if made.distance is not None else "unfinished"
        print(
            f"      mbi {mechanism}{planned}, seed {seed}: {result}, {made.told['rounds']} done, "
            f"{made.wall:.0f} s wall, {made.busy:.0f} s busy",
            flush=True,
        )
