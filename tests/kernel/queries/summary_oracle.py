"""Draws summaries the laborious way: noise on every cell of a small domain, for many runs at once. Compares runs."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
from scipy import stats

from dpduck.kernel.noise.layers import SummaryLaw

FALSE_ALARM = 1e-10
"""Of each of the three statistics of a comparison."""


@dataclass(frozen=True)
class Runs:
    """Noisy counts and which cells are kept. A run is a row, and a cell of the small domain is a column."""

    values: np.ndarray
    kept: np.ndarray


def noisy_table(runs: int, exact: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    """The full geometric mechanism, as the difference of two geometric variables."""
    success = 1 - exp(-1 / scale)
    shape = (runs, len(exact))
    return exact + rng.geometric(success, shape) - rng.geometric(success, shape)


def laborious(runs: int, exact: np.ndarray, law: SummaryLaw, rng: np.random.Generator) -> Runs:
    """Draws noise for every cell, then filters and samples each cell by the threshold."""
    values = noisy_table(runs, exact, float(law.scale), rng)
    magnitudes = np.abs(values) if law.sides == 2 else values
    kept = (magnitudes >= law.theta) & (rng.random(values.shape) < magnitudes / float(law.tau))
    return Runs(values, kept)


def laborious_priorities(
    runs: int, exact: np.ndarray, scale: float, theta: int, size: int, rng: np.random.Generator
) -> tuple[Runs, np.ndarray]:
    """Keeps the `size` filtered cells of highest priority. Also returns the thresholds, 0 where all cells are kept."""
    values = noisy_table(runs, exact, scale, rng)
    priorities = np.where(np.abs(values) >= theta, np.abs(values) / (1 - rng.random(values.shape)), 0.0)
    threshold = np.sort(priorities, axis=1)[:, -size - 1]
    return Runs(values, (priorities > threshold[:, None]) & (priorities > 0)), threshold


def categories(runs: Runs, widest: int) -> np.ndarray:
    """The joint outcome of each run as one number: each cell is absent, or has its count clipped to +-widest."""
    codes = np.where(runs.kept, np.clip(runs.values, -widest, widest) + widest + 1, 0)
    radix = (2 * widest + 2) ** np.arange(codes.shape[1])
    return codes @ radix


def same_joint(first: np.ndarray, second: np.ndarray) -> float:
    """P-value of a two-sample chi-square test over joint outcomes.

    Outcomes that expect less than 20 in the smaller sample are merged, as the chi-square law would not hold.
    """
    found, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    table = np.stack([np.bincount(part, minlength=len(found)) for part in np.split(places, [len(first)])])
    share = min(len(first), len(second)) / (len(first) + len(second))
    rare = table.sum(axis=0) * share < 20
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


def same_mean(first: np.ndarray, second: np.ndarray) -> float:
    """P-value of a two-sample z test of means."""
    error = sqrt(first.var() / len(first) + second.var() / len(second))
    return float(2 * stats.norm.sf(abs(first.mean() - second.mean()) / error)) if error else 1.0


def disagreements(shortcut: Runs, dense: Runs, widest: int = 8) -> list[str]:
    """Lists the tests that tell two sets of runs apart: joint outcomes, numbers of kept cells, sizes of counts.

    Both sets must have as many runs. Then a rare outcome falls to either by a fair coin, with tails below the normal
    law. With 1,000 against 100,000 runs it is a Poisson variable: where nearly every run keeps as many cells, two in a
    hundred comparisons would be false alarms.
    """
    if len(shortcut.kept) != len(dense.kept):
        raise ValueError("compare as many runs with as many")
    tests = {
        "joint": same_joint(categories(shortcut, widest), categories(dense, widest)),
        "number": same_mean(shortcut.kept.sum(axis=1), dense.kept.sum(axis=1)),
        "size": same_mean(np.abs(shortcut.values[shortcut.kept]), np.abs(dense.values[dense.kept])),
    }
    return [name for name, probability in tests.items() if probability < FALSE_ALARM]
